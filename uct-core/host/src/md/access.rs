//! What peers may do with registered memory.
//!
//! Used by everything that registers memory. Built on the flags of the plugin boundary.

#![forbid(unsafe_code)]

use bitflags::bitflags;
use uct_abi::{
    UCT_MD_ACCESS_ALL, UCT_MD_ACCESS_REMOTE_ATOMIC, UCT_MD_ACCESS_REMOTE_GET, UCT_MD_ACCESS_REMOTE_PUT,
};

bitflags! {
    /// What peers may do with registered memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Put.
        const REMOTE_PUT = UCT_MD_ACCESS_REMOTE_PUT;
        /// Get.
        const REMOTE_GET = UCT_MD_ACCESS_REMOTE_GET;
        /// Atomics.
        const REMOTE_ATOMIC = UCT_MD_ACCESS_REMOTE_ATOMIC;
        /// Everything.
        const ALL = UCT_MD_ACCESS_ALL;
    }
}
