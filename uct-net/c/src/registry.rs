//! The nets and options of the process, by handle.
//!
//! A child of a fork finds the registry to be its parent's, whose locks may be held for ever: it touches none of them,
//! and makes a registry of its own when it opens something.

#![expect(unsafe_code, reason = "a registry is reached without a lock")]

use std::array;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ucs::Error as Status;
use ucs::memory::fork::ForkGuard;

use super::failure::{Failure, Outcome};
use super::handles::{Handle, Kind, Table, closed, first_generation};
use super::net::Net;
use super::options::Options;
use super::state::Counters;

/// Most nets.
const NETS: usize = 255;

/// See the module.
pub struct Registry {
    fork: ForkGuard,
    counters: Counters,
    slots: [Slot; NETS],
    options: Mutex<Option<Table<Options>>>,
}

/// A place for a net. Its number is part of the handles of all that belongs to the net.
#[derive(Default)]
struct Slot {
    is_taken: AtomicBool,
    open: RwLock<Option<(Handle, Arc<Net>)>>,
}

static CURRENT: AtomicPtr<Registry> = AtomicPtr::new(null_mut());

/// The registry of this process, if anything was opened.
#[inline]
fn current() -> Outcome<&'static Registry> {
    // SYNC: pairs with `made`.
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: a registry is never freed, and not written but through its locks and atomics.
    let Some(registry) = (unsafe { current.as_ref() }) else {
        return Err(Failure::invalid("nothing of this library is open in this process"));
    };
    registry.fork.check()?;
    Ok(registry)
}

/// The registry of this process.
fn made() -> &'static Registry {
    loop {
        // SYNC: pairs with the exchange below.
        let found = CURRENT.load(Ordering::Acquire);
        if let Ok(registry) = current() {
            return registry;
        }
        let counters = Counters { generations: first_generation(), operations: AtomicU64::new(1) };
        let registry = Box::leak(Box::new(Registry {
            fork: ForkGuard::new(),
            counters,
            slots: array::from_fn(|_| Slot::default()),
            options: Mutex::default(),
        }));
        // SYNC: pairs with the loads. One that another thread has made meanwhile is taken; this one is lost.
        let _ = CURRENT.compare_exchange(found, registry, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Slot {
    fn read(&self) -> RwLockReadGuard<'_, Option<(Handle, Arc<Net>)>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<(Handle, Arc<Net>)>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a net. Blocks meanwhile.
pub fn open(options: &Options) -> Outcome<Handle> {
    let registry = made();
    let is_free = |slot: &&Slot| !slot.is_taken.swap(true, Ordering::AcqRel);
    let Some(number) = registry.slots.iter().position(|slot| is_free(&slot)) else {
        let text = format!("{NETS} nets are open already: close some, or use one for several purposes");
        return Err(Failure::new(Status::EXCEEDS_LIMIT, text));
    };
    let slot = &registry.slots[number];
    let opened = Net::open(number as u8, &registry.counters, options).and_then(|net| {
        let mut handles = Table::new(Kind::Net, number as u8, &registry.counters.generations);
        Ok((handles.insert(())?, Arc::new(net)))
    });
    match opened {
        Ok(open) => {
            let handle = open.0;
            *slot.write() = Some(open);
            Ok(handle)
        }
        Err(failure) => {
            slot.is_taken.store(false, Ordering::Release);
            Err(failure)
        }
    }
}

/// Does something with the net that a handle of this kind belongs to. Short: closing the net waits for it.
#[inline]
pub fn with<T>(raw: u64, kind: Kind, work: impl FnOnce(&Arc<Net>, Handle) -> Outcome<T>) -> Outcome<T> {
    let handle = Handle::parse(raw, kind)?;
    let registry = current()?;
    let Some(slot) = registry.slots.get(usize::from(handle.net())) else { return Err(closed(kind)) };
    match &*slot.read() {
        Some((own, net)) if kind != Kind::Net || *own == handle => work(net, handle),
        _ => Err(closed(kind)),
    }
}

/// The net of a handle, for a call that takes longer.
pub fn net(raw: u64) -> Outcome<Arc<Net>> {
    with(raw, Kind::Net, |net, _handle| Ok(Arc::clone(net)))
}

/// Closes a net. Blocks up to the limits of its engine.
pub fn close(raw: u64) -> Outcome {
    let handle = Handle::parse(raw, Kind::Net)?;
    let registry = current()?;
    let Some(slot) = registry.slots.get(usize::from(handle.net())) else { return Err(closed(Kind::Net)) };
    let open = slot.write().take_if(|(own, _)| *own == handle);
    let Some((_, net)) = open else { return Err(closed(Kind::Net)) };
    let outcome = net.close();
    drop(net);
    slot.is_taken.store(false, Ordering::Release);
    outcome
}

/// Does something with the table of options.
pub fn options<T>(work: impl FnOnce(&mut Table<Options>) -> Outcome<T>) -> Outcome<T> {
    let registry = current()?;
    let mut options: MutexGuard<'_, _> = registry.options.lock().unwrap_or_else(PoisonError::into_inner);
    // Of no net.
    let new = || Table::new(Kind::Options, NETS as u8, &registry.counters.generations);
    work(options.get_or_insert_with(new))
}

/// As [`options`], and makes what is missing in this process.
pub fn options_in_any_case<T>(work: impl FnOnce(&mut Table<Options>) -> Outcome<T>) -> Outcome<T> {
    made();
    options(work)
}

/// A copy of options; none for NULL.
pub fn options_of(raw: u64) -> Outcome<Options> {
    if raw == 0 {
        return Ok(Options::default());
    }
    let handle = Handle::parse(raw, Kind::Options)?;
    options(|table| table.get(handle).cloned())
}
