//! Memory that a connection keeps from one large message to the next, and what all connections of a net keep together.

use std::cell::Cell;
use std::rc::Rc;

use uct_host::{Access, Memory, MemoryKind};

use super::super::lane::Lane;

/// Bytes that all connections of a net keep at most.
const MOST: usize = 64 << 20;

/// How many bytes the connections of a net keep.
pub(super) type Kept = Rc<Cell<usize>>;

/// Memory that is kept.
pub(super) struct Staging {
    pub(super) memory: Memory,
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: Counted,
}

/// What it counts for.
struct Counted {
    bytes: usize,
    kept: Kept,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.kept.set(self.kept.get() - self.bytes);
    }
}

impl Staging {
    /// So many bytes that the peer can read; `None` if the net keeps too many already, or the transport refuses.
    pub(super) fn allocate(lane: &Lane, bytes: usize, kept: &Kept) -> Option<Staging> {
        if kept.get() + bytes > MOST {
            return None;
        }
        let domain = &lane.large.as_ref()?.domain;
        match domain.allocate(bytes, Access::REMOTE_GET, MemoryKind::Host) {
            Ok(memory) => {
                kept.set(kept.get() + bytes);
                Some(Staging { memory, counted: Counted { bytes, kept: Rc::clone(kept) } })
            }
            Err(refused) => {
                ucs::log::debug!("no memory is kept for large messages: {refused}");
                None
            }
        }
    }
}
