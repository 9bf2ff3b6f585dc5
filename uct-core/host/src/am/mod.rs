//! Active messages on the receiving side: ids, handlers, and messages that are kept.

mod deliver;
mod everywhere;
mod handlers;
mod message;
mod placer;
mod raw;
mod table;

use uct_abi::UCT_AM_IDS;

pub(crate) use handlers::{HandlerTable, Owned};
pub use message::{AmMessage, KeptMessage};
pub use placer::{Placer, Space};
pub use raw::set_raw_am_handler;

/// The number of a kind of active message: 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct AmId(u8);

impl AmId {
    /// How many ids there are.
    pub const COUNT: usize = UCT_AM_IDS;

    /// The id of a number; `None` from 32 on.
    pub const fn new(id: u8) -> Option<AmId> {
        if (id as usize) < UCT_AM_IDS { Some(AmId(id)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}
