//! Advice about registered memory that is the process's own.

use std::ptr::NonNull;

use ucs::memory::advice::{Use, advise as tell};
use ucs::{Error, Result};
use uct_abi::{UCT_ADVICE_NORMAL, UCT_ADVICE_WILLNEED};

/// Passes `UCT_ADVICE_*` on to the kernel: what [`crate::Md::advise`] does where memory needs nothing of a device.
///
/// # Errors
/// [`Error::UNSUPPORTED`]: advice of another kind; what the kernel returns.
pub fn advise(address: NonNull<u8>, length: usize, advice: u32) -> Result {
    let about = match advice {
        UCT_ADVICE_NORMAL => Use::Normal,
        UCT_ADVICE_WILLNEED => Use::Soon,
        _ => return Err(Error::UNSUPPORTED),
    };
    tell(address, length, about).map_err(|error| Error::from(&error))
}
