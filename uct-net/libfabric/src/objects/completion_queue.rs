//! Completion queues.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::*;
use crate::boundary::{Caller, Outcome};
use crate::engine::{self, Entry, Errno, NotRead};

use super::domain::Domain;
use super::{methods, waiting};

/// A queue of the engine, and the form in which the program reads it.
pub struct CompletionQueue {
    pub engine: Arc<engine::Queue>,
    pub domain: Arc<Domain>,
    /// Bytes of an entry of the program's.
    entry: usize,
    wait_object: c_uint,
    /// What `strerror` says: the reason of the last error that was read.
    reason: Mutex<CString>,
}

/// Capacity of a queue whose program names none. Queues grow.
const CAPACITY: usize = 1024;

methods! {
    pub fn open(
        caller, domain: *mut fid_domain => Domain, attr: *mut fi_cq_attr, target: *mut *mut fid_cq,
        context: *mut c_void,
    ) -> c_int {
        let asked = caller.at(attr)?;
        let entry = entry_size(asked.format)?;
        let can_wait = waiting::can_wait(asked.wait_obj)?;
        let capacity = if asked.size == 0 { CAPACITY } else { asked.size };
        let queue = CompletionQueue {
            engine: Arc::new(engine::Queue::new(capacity, can_wait)?),
            domain: Arc::clone(domain),
            entry,
            wait_object: asked.wait_obj,
            reason: Mutex::default(),
        };
        caller.give(queue, context, target)?;
        Ok(0)
    }

    pub fn read(caller, queue: *mut fid_cq => CompletionQueue, target: *mut c_void, count: usize) -> isize {
        queue.read(caller, target, count, std::ptr::null_mut())
    }

    pub fn readfrom(
        caller, queue: *mut fid_cq => CompletionQueue, target: *mut c_void, count: usize, sources: *mut fi_addr_t,
    ) -> isize {
        queue.read(caller, target, count, sources)
    }

    pub fn sread(
        caller, queue: *mut fid_cq => CompletionQueue, target: *mut c_void, count: usize, _condition: *const c_void,
        timeout: c_int,
    ) -> isize {
        queue.wait(caller, target, count, std::ptr::null_mut(), timeout)
    }

    pub fn sreadfrom(
        caller, queue: *mut fid_cq => CompletionQueue, target: *mut c_void, count: usize, sources: *mut fi_addr_t,
        _condition: *const c_void, timeout: c_int,
    ) -> isize {
        queue.wait(caller, target, count, sources, timeout)
    }

    pub fn readerr(caller, queue: *mut fid_cq => CompletionQueue, target: *mut fi_cq_err_entry, _flags: u64) -> isize {
        caller.at(target)?;
        let error = queue.engine.read_error().ok_or(Errno::AGAIN)?;
        let text = error.reason.as_deref().map_or_else(|| describe(error.errno), str::to_owned);
        *queue.reason.lock().unwrap_or_else(PoisonError::into_inner) = CString::new(text).unwrap_or_default();
        let Entry { context, flags, length, buffer, data, tag, .. } = error.entry;
        caller.put(target, fi_cq_err_entry {
            op_context: context as *mut c_void,
            flags,
            len: length,
            buf: buffer as *mut c_void,
            data,
            tag,
            olen: error.excess,
            err: error.errno.0,
            prov_errno: error.errno.0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        })?;
        Ok(1)
    }

    pub fn signal(caller, queue: *mut fid_cq => CompletionQueue) -> c_int {
        queue.engine.signal();
        Ok(0)
    }

    /// The reason of the last error that was read. It is valid until the next one is read.
    pub fn strerror(
        caller, queue: *mut fid_cq => CompletionQueue, _error: c_int, _data: *const c_void, target: *mut c_char,
        length: usize,
    ) -> *const c_char {
        let reason = queue.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = length.checked_sub(1).filter(|_| !target.is_null()) {
            let cut = last.min(reason.count_bytes());
            caller.fill(target.cast(), cut, reason.as_bytes())?;
            caller.put(target.wrapping_add(cut), 0)?;
        }
        Ok(reason.as_ptr())
    }

    pub fn control(caller, queue: *mut fid => CompletionQueue, command: c_int, argument: *mut c_void) -> c_int {
        let descriptor = queue.engine.descriptor().map(|descriptor| descriptor.as_raw_fd());
        waiting::control(caller, command, argument, queue.wait_object, descriptor)
    }
}

impl CompletionQueue {
    /// Entries that are there are read before anything else is done.
    #[inline]
    fn read(
        &self,
        caller: &Caller,
        target: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> Outcome<usize> {
        if target.is_null() && count > 0 {
            return Err(Errno::INVALID);
        }
        if self.engine.is_empty() {
            self.domain.engine.poll()?;
            if self.engine.is_empty() {
                return Err(Errno::AGAIN);
            }
        }
        self.read_now(caller, target, count, sources)
    }

    fn read_now(
        &self,
        caller: &Caller,
        target: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> Outcome<usize> {
        let (mut place, mut target) = (0, target);
        let read = self.engine.read(count, |entry| {
            caller.entry(target, self.entry, entry);
            // Null if the program does not ask for them.
            let _ = caller
                .put(if sources.is_null() { sources } else { sources.wrapping_add(place) }, entry.source);
            target = target.wrapping_byte_add(self.entry);
            place += 1;
        });
        read.map_err(|reason| match reason {
            NotRead::Empty => Errno::AGAIN,
            NotRead::Error => Errno(EAVAIL),
        })
    }

    fn wait(
        &self,
        caller: &Caller,
        target: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        timeout: c_int,
    ) -> Outcome<usize> {
        if self.engine.descriptor().is_none() {
            return Err(Errno(ENOSYS));
        }
        match self.read(caller, target, count, sources) {
            Err(Errno::AGAIN) => {}
            outcome => return outcome,
        }
        self.domain.engine.wait(&self.engine, waiting::limit(timeout))?;
        self.read_now(caller, target, count, sources)
    }
}

/// Bytes of an entry in one of libfabric's formats, each of which is the beginning of the longest.
fn entry_size(format: c_uint) -> Outcome<usize> {
    match format {
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Ok(offset_of!(fi_cq_tagged_entry, flags)),
        FI_CQ_FORMAT_MSG => Ok(offset_of!(fi_cq_tagged_entry, buf)),
        FI_CQ_FORMAT_DATA => Ok(offset_of!(fi_cq_tagged_entry, tag)),
        FI_CQ_FORMAT_TAGGED => Ok(size_of::<fi_cq_tagged_entry>()),
        _ => Err(Errno::INVALID),
    }
}

fn describe(errno: Errno) -> String {
    match errno {
        Errno::TRUNCATED => "the message is longer than its receive".to_owned(),
        Errno::NO_KEY => "the peer has no region with this key".to_owned(),
        Errno(number) if number < EOTHER => std::io::Error::from_raw_os_error(number).to_string(),
        Errno(number) => format!("error {number} of libfabric"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_engine_begins_as_an_entry_of_libfabric() {
        let pairs = [
            (offset_of!(Entry, context), offset_of!(fi_cq_tagged_entry, op_context)),
            (offset_of!(Entry, flags), offset_of!(fi_cq_tagged_entry, flags)),
            (offset_of!(Entry, length), offset_of!(fi_cq_tagged_entry, len)),
            (offset_of!(Entry, buffer), offset_of!(fi_cq_tagged_entry, buf)),
            (offset_of!(Entry, data), offset_of!(fi_cq_tagged_entry, data)),
            (offset_of!(Entry, tag), offset_of!(fi_cq_tagged_entry, tag)),
        ];
        for (own, theirs) in pairs {
            assert_eq!(own, theirs);
        }
        let formats = [FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED];
        assert_eq!(formats.map(|format| entry_size(format).unwrap()), [8, 24, 40, 48]);
        assert!(entry_size(5).is_err());
    }
}
