//! The event channel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::CmError;
use super::abi::*;
use super::table::CmTable;

/// Where events of many identifiers arrive. Non-blocking. Identifiers hold it.
pub struct Channel {
    table: &'static CmTable,
    raw: *mut rdma_event_channel,
}

// SAFETY: librdmacm may be called from any thread (rdma_cm(7)).
unsafe impl Send for Channel {}
// SAFETY: as for Send.
unsafe impl Sync for Channel {}

impl Channel {
    /// Opens a channel.
    ///
    /// # Errors
    /// `ENODEV`: there is no device at all. `ENOENT`, `EACCES`: /dev/infiniband/rdma_cm cannot be opened.
    pub fn new(table: &'static CmTable) -> Result<Arc<Channel>, CmError> {
        // SAFETY: it takes nothing.
        let raw = unsafe { (table.create_event_channel)() };
        if raw.is_null() {
            return Err(CmError::last("rdma_create_event_channel"));
        }
        let channel = Channel { table, raw };
        fcntl_getfl(channel.as_fd())
            .and_then(|flags| fcntl_setfl(channel.as_fd(), flags | OFlags::NONBLOCK))
            .map_err(|error| CmError::Call { call: "fcntl(O_NONBLOCK)", errno: error.raw_os_error() })?;
        Ok(Arc::new(channel))
    }

    pub(super) fn table(&self) -> &'static CmTable {
        self.table
    }

    pub(super) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.raw
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor does not change.
        let fd = unsafe { (*self.raw).fd };
        // SAFETY: the library keeps the descriptor open until the channel is destroyed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers hold the channel, so none is left; it is destroyed once, here.
        unsafe { (self.table.destroy_event_channel)(self.raw) }
    }
}
