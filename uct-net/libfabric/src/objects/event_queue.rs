//! Event queues, which stay empty: this provider reports nothing by events.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use crate::abi::*;
use crate::engine::Errno;

use super::fabric::Fabric;
use super::methods;

/// An event queue only keeps its fabric open.
pub struct EventQueue {
    _fabric: Arc<Fabric>,
}

methods! {
    pub fn open(
        caller, fabric: *mut fid_fabric => Fabric, _attr: *mut fi_eq_attr, target: *mut *mut fid_eq,
        context: *mut c_void,
    ) -> c_int {
        caller.give(EventQueue { _fabric: Arc::clone(fabric) }, context, target)?;
        Ok(0)
    }

    pub fn read(
        caller, _queue: *mut fid_eq => EventQueue, _event: *mut u32, _target: *mut c_void, _length: usize,
        _flags: u64,
    ) -> isize {
        Err(Errno::AGAIN)
    }

    pub fn readerr(caller, _queue: *mut fid_eq => EventQueue, _target: *mut fi_eq_err_entry, _flags: u64) -> isize {
        Err(Errno::AGAIN)
    }

    /// Waits for the given milliseconds. To wait without limit would be for ever, and is refused.
    pub fn sread(
        caller, _queue: *mut fid_eq => EventQueue, _event: *mut u32, _target: *mut c_void, _length: usize,
        timeout: c_int, _flags: u64,
    ) -> isize {
        let milliseconds = u64::try_from(timeout).map_err(|_| Errno::NOT_SUPPORTED)?;
        std::thread::sleep(Duration::from_millis(milliseconds));
        Err(Errno::AGAIN)
    }

    pub fn strerror(
        caller, _queue: *mut fid_eq => EventQueue, _error: c_int, _data: *const c_void, _target: *mut c_char,
        _length: usize,
    ) -> *const c_char {
        Ok(c"no event".as_ptr())
    }
}
