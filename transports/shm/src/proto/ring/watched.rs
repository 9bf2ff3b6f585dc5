//! A ring, a doorbell and a ping-pong line in memory that loom observes.
//!
//! Used by the models of this module. Built on `ucs::sync`.

use std::sync::Arc;

use ucs::sync::atomic::AtomicU64;
use ucs::sync::cell::UnsafeCell;

use super::control::SLOT_BYTES;
use super::control::TURN_LINE_WORDS;
use super::testing::geometry;
use super::turn_line::TurnLineMemory;
use super::{DoorbellMemory, Geometry, Layout, Place, RingMemory};

struct Shared {
    layout: Layout,
    credit: AtomicU64,
    release: [AtomicU64; 2],
    control: Vec<AtomicU64>,
    bodies: Vec<UnsafeCell<[u64; 7]>>,
    blocks: [Vec<UnsafeCell<[u64; 8]>>; 2],
}

// SAFETY: the cells are what the protocol hands from side to side; loom reports it if both use one at a time.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`.
unsafe impl Send for Shared {}

/// A ring whose parts are separate objects, so that loom sees every use of each. Blocks hold 64 bytes.
#[derive(Clone)]
pub struct WatchedRing(Arc<Shared>);

impl WatchedRing {
    pub fn new(slots: u32, blocks: u32) -> WatchedRing {
        WatchedRing::with_first(slots, slots, blocks)
    }

    pub fn with_first(slots: u32, first: u32, blocks: u32) -> WatchedRing {
        let cells = || (0..blocks).map(|_| UnsafeCell::new([0; 8])).collect();
        WatchedRing(Arc::new(Shared {
            layout: Layout::new(Geometry { first, ..geometry(slots, blocks) }).expect("a valid shape"),
            credit: AtomicU64::new(0),
            release: [AtomicU64::new(0), AtomicU64::new(0)],
            control: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            bodies: (0..slots).map(|_| UnsafeCell::new([0; 7])).collect(),
            blocks: [cells(), cells()],
        }))
    }
}

/// The number of a slot, from its offset.
fn index(layout: &Layout, slot: usize) -> usize {
    let (first, rest) = (layout.first_part(), layout.rest_part());
    if slot <= first.last {
        (slot - first.start) / SLOT_BYTES
    } else {
        layout.geometry().first as usize + (slot - rest.start) / SLOT_BYTES
    }
}

// SAFETY: every word and cell is an object of its own behind an `Arc`.
unsafe impl RingMemory for WatchedRing {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn credit(&self) -> &AtomicU64 {
        &self.0.credit
    }

    fn release(&self, place: Place) -> &AtomicU64 {
        &self.0.release[place as usize - 1]
    }

    fn control(&self, slot: usize) -> &AtomicU64 {
        &self.0.control[index(&self.0.layout, slot)]
    }

    fn prefetch(&self, _slot: usize) {}

    fn body<R>(&self, slot: usize, read: impl FnOnce(*const u8) -> R) -> R {
        self.0.bodies[index(&self.0.layout, slot)].with(|body| read(body.cast()))
    }

    fn body_mut<R>(&self, slot: usize, write: impl FnOnce(*mut u8) -> R) -> R {
        self.0.bodies[index(&self.0.layout, slot)].with_mut(|body| write(body.cast()))
    }

    unsafe fn alias(&self) -> WatchedRing {
        self.clone()
    }

    fn block<R>(&self, place: Place, index: u32, access: impl FnOnce(*mut u8) -> R) -> R {
        self.0.blocks[place as usize - 1][index as usize].with_mut(|block| access(block.cast()))
    }
}

/// A doorbell of separate words.
#[derive(Clone)]
pub struct WatchedDoorbell(Arc<(AtomicU64, [AtomicU64; 2], AtomicU64)>);

impl WatchedDoorbell {
    pub fn new() -> WatchedDoorbell {
        WatchedDoorbell(Arc::new((
            AtomicU64::new(0),
            [AtomicU64::new(0), AtomicU64::new(0)],
            AtomicU64::new(0),
        )))
    }
}

// SAFETY: four distinct words behind an `Arc`.
unsafe impl DoorbellMemory for WatchedDoorbell {
    fn summary(&self) -> &AtomicU64 {
        &self.0.0
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.1[index]
    }

    fn armed(&self) -> &AtomicU64 {
        &self.0.2
    }
}

/// One end of a ping-pong line of separate words.
#[derive(Clone)]
pub struct WatchedTurnLine(Arc<Line>, usize);

struct Line([AtomicU64; 2], UnsafeCell<[u64; TURN_LINE_WORDS]>);

// SAFETY: the body is handed from end to end; loom reports it if both use it at a time.
unsafe impl Sync for Line {}
// SAFETY: as for `Sync`.
unsafe impl Send for Line {}

impl WatchedTurnLine {
    /// Both ends.
    pub fn ends() -> [WatchedTurnLine; 2] {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let line = Arc::new(Line(words, UnsafeCell::new([0; TURN_LINE_WORDS])));
        [0, 1].map(|end| WatchedTurnLine(Arc::clone(&line), end))
    }
}

// SAFETY: distinct objects behind an `Arc`.
unsafe impl TurnLineMemory for WatchedTurnLine {
    fn own(&self) -> &AtomicU64 {
        &self.0.0[self.1]
    }

    fn other(&self) -> &AtomicU64 {
        &self.0.0[1 - self.1]
    }

    fn body<R>(&self, read: impl FnOnce(*const u8) -> R) -> R {
        self.0.1.with(|body| read(body.cast()))
    }

    fn body_mut<R>(&self, write: impl FnOnce(*mut u8) -> R) -> R {
        self.0.1.with_mut(|body| write(body.cast()))
    }
}
