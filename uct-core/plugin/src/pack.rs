//! The application's pack and unpack callbacks.

use std::ffi::c_void;

use ucs::{Error, Result};
use uct_abi::{UctPack, UctUnpack};

/// Writes a message into the transport's buffer. Two words, in the order of a slot's arguments.
#[repr(C)]
pub struct Pack {
    callback: UctPack,
    argument: *mut c_void,
}

impl Pack {
    #[inline(always)]
    pub(crate) fn new(callback: UctPack, argument: *mut c_void) -> Pack {
        Pack { callback, argument }
    }

    /// Lets the application write at `destination`; returns how many bytes it wrote, at most `limit`: the `max_bcopy` that the interface
    /// reports for the operation, or more if the caller checks the length itself.
    ///
    /// # Errors
    /// [`Error::INVALID_PARAM`] if the application has no message: nothing is to be sent.
    ///
    /// # Safety
    /// `destination` is initialised memory, writable for `max_bcopy` bytes, and used by nothing else.
    #[inline(always)]
    pub unsafe fn write(self, destination: *mut u8, limit: usize) -> Result<usize> {
        // SAFETY: the callback goes with its argument (`UctPack`), and the caller vouches for the destination.
        let length = unsafe { (self.callback)(destination.cast(), self.argument) };
        // `UCT_PACK_NONE` is beyond every limit.
        if length > limit { Err(Error::INVALID_PARAM) } else { Ok(length) }
    }
}

/// Takes the data of a `get_bcopy`.
pub struct Unpack {
    callback: UctUnpack,
    argument: *mut c_void,
}

impl Unpack {
    #[inline(always)]
    pub(crate) fn new(callback: UctUnpack, argument: *mut c_void) -> Unpack {
        Unpack { callback, argument }
    }

    /// Hands the data over; once, ahead of the completion.
    pub fn read(self, data: &[u8]) {
        // SAFETY: the callback goes with its argument (`UctUnpack`) and only reads the data.
        unsafe { (self.callback)(self.argument, data.as_ptr().cast(), data.len()) }
    }
}
