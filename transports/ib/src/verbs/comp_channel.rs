//! Completion channels: sleep until a queue has completions.
//!
//! For event descriptors of interfaces. Built on a context.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::abi::*;
use super::{Context, errno};
use crate::error::IbError;

/// A channel on which completion queues announce themselves. Non-blocking.
pub struct CompChannel {
    context: Arc<Context>,
    raw: *mut ibv_comp_channel,
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for CompChannel {}
// SAFETY: as for Send.
unsafe impl Sync for CompChannel {}

impl CompChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// The failed verb.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, IbError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.table().create_comp_channel)(context.as_ptr()) };
        if raw.is_null() {
            return Err(context.error("ibv_create_comp_channel", errno(), ""));
        }
        let channel = Self { context: context.clone(), raw };
        let fd = channel.fd();
        fcntl_getfl(fd)
            .and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK))
            .map_err(|error| context.error("fcntl(O_NONBLOCK) of the channel", error.raw_os_error(), ""))?;
        Ok(Arc::new(channel))
    }

    /// Becomes readable when an armed queue has a completion. It stays so until [`CompChannel::drain`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`.
        let fd = unsafe { (*self.raw).fd };
        // SAFETY: the library keeps the descriptor open until the channel is destroyed, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.raw
    }

    /// Reads and acknowledges pending notifications without blocking; returns their number.
    ///
    /// At most 1024 are taken, so that the time is bounded.
    pub fn drain(&self) -> usize {
        let table = self.context.table();
        for taken in 0..1024 {
            let mut cq = std::ptr::null_mut();
            let mut cookie = std::ptr::null_mut();
            // SAFETY: the channel lives, and both places are valid.
            let failed = unsafe { (table.get_cq_event)(self.raw, &mut cq, &mut cookie) };
            if failed != 0 {
                return taken;
            }
            // SAFETY: a queue cannot be destroyed while it has unacknowledged events (the library waits for them), and
            // this one is acknowledged here for the first time.
            unsafe { (table.ack_cq_events)(cq, 1) };
        }
        1024
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: queues on the channel hold it, so none is left; it is destroyed once, here.
        let failed = unsafe { (self.context.table().destroy_comp_channel)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(
                device = self.context.device_name(),
                errno = failed,
                "ibv_destroy_comp_channel failed"
            );
        }
    }
}
