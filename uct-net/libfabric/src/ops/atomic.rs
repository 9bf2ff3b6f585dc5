//! Atomic operations.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::*;
use crate::boundary::{Caller, Memory, Outcome};
use crate::engine::{Atomic, AtomicKind, Errno, Operation, Remote};
use crate::info::MAX_ATOMIC;
use crate::objects::domain::offered;
use crate::objects::endpoint::Endpoint;
use crate::objects::methods;

use super::core::{self, Flags, UPDATE};

/// Elements of the program's.
#[derive(Clone, Copy)]
enum Elements {
    None,
    At(*const c_void),
    List(*const fi_ioc, usize),
}

/// What is done with each element of a peer's.
struct Update {
    kind: AtomicKind,
    flags: Flags,
    data_type: c_uint,
    operation: c_uint,
    to: fi_addr_t,
    remote: Remote,
    /// Without it lists say how many elements there are.
    count: Option<usize>,
    operands: Elements,
    compare: Elements,
    results: Elements,
    context: *mut c_void,
}

impl Update {
    fn new(kind: AtomicKind, data_type: c_uint, operation: c_uint, to: fi_addr_t, remote: Remote) -> Update {
        Update {
            kind,
            flags: Flags::Default,
            data_type,
            operation,
            to,
            remote,
            count: None,
            operands: Elements::None,
            compare: Elements::None,
            results: Elements::None,
            context: std::ptr::null_mut(),
        }
    }

    pub fn of_message(
        caller: &Caller,
        kind: AtomicKind,
        message: *const fi_msg_atomic,
        flags: u64,
    ) -> Outcome<Update> {
        let message = caller.at(message)?;
        let [place] = caller.list(message.rma_iov, message.rma_iov_count)? else {
            return Err(Errno::INVALID);
        };
        let remote = Remote { key: place.key, offset: place.addr };
        Ok(Update {
            flags: Flags::Given(flags),
            count: Some(place.count),
            operands: Elements::List(message.msg_iov, message.iov_count),
            context: message.context,
            ..Update::new(kind, message.datatype, message.op, message.addr, remote)
        })
    }

    fn start(self, caller: &Caller, ep: &Endpoint) -> Outcome<usize> {
        let (data_type, operation) = offered(self.data_type, self.operation, self.kind)?;
        // A read has no operands, whatever the program passes.
        let operands = if operation == Operation::Read { Elements::None } else { self.operands };
        let counted = if operation == Operation::Read { self.results } else { operands };
        let count = match (self.count, counted) {
            (Some(count), _) => count,
            (None, Elements::List(list, length)) => caller.elements(list, length, data_type.size())?.1,
            _ => return Err(Errno::INVALID),
        };
        let memory = |elements: Elements| match elements {
            Elements::None => Ok(Memory::default()),
            Elements::At(base) => {
                let length = count.checked_mul(data_type.size()).ok_or(Errno::INVALID)?;
                caller.bytes(base, length).map(Memory::from)
            }
            Elements::List(list, length) => match caller.elements(list, length, data_type.size())? {
                (memory, found) if found == count => Ok(memory),
                _ => Err(Errno::INVALID),
            },
        };
        let (operands, compare, results) = (memory(operands)?, memory(self.compare)?, memory(self.results)?);
        let atomic = Atomic {
            to: self.to,
            operands: operands.parts(),
            compare: compare.parts(),
            results: results.parts(),
            remote: self.remote,
            data_type,
            operation,
            count,
            context: self.context as usize,
            ..UPDATE
        };
        core::atomic(ep, self.flags, atomic)
    }
}

methods! {
    pub fn write(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, count: usize, _desc: *mut c_void, to: fi_addr_t,
        offset: u64, key: u64, data_type: c_uint, operation: c_uint, context: *mut c_void,
    ) -> isize {
        let update = Update::new(AtomicKind::Plain, data_type, operation, to, Remote { key, offset });
        let operands = Elements::At(base);
        Update { count: Some(count), operands, context, ..update }.start(caller, ep)
    }

    pub fn writev(
        caller, ep: *mut fid_ep => Endpoint, list: *const fi_ioc, _desc: *mut *mut c_void, length: usize,
        to: fi_addr_t, offset: u64, key: u64, data_type: c_uint, operation: c_uint, context: *mut c_void,
    ) -> isize {
        let update = Update::new(AtomicKind::Plain, data_type, operation, to, Remote { key, offset });
        Update { operands: Elements::List(list, length), context, ..update }.start(caller, ep)
    }

    pub fn writemsg(caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_atomic, flags: u64) -> isize {
        Update::of_message(caller, AtomicKind::Plain, message, flags)?.start(caller, ep)
    }

    pub fn inject(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, count: usize, to: fi_addr_t, offset: u64, key: u64,
        data_type: c_uint, operation: c_uint,
    ) -> isize {
        let update = Update::new(AtomicKind::Plain, data_type, operation, to, Remote { key, offset });
        let (flags, operands) = (Flags::Inject, Elements::At(base));
        Update { flags, count: Some(count), operands, ..update }.start(caller, ep)
    }

    pub fn readwrite(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, count: usize, _desc: *mut c_void,
        result: *mut c_void, _result_desc: *mut c_void, to: fi_addr_t, offset: u64, key: u64, data_type: c_uint,
        operation: c_uint, context: *mut c_void,
    ) -> isize {
        let update = Update::new(AtomicKind::Fetch, data_type, operation, to, Remote { key, offset });
        let (operands, results) = (Elements::At(base), Elements::At(result));
        Update { count: Some(count), operands, results, context, ..update }.start(caller, ep)
    }

    pub fn readwritev(
        caller, ep: *mut fid_ep => Endpoint, list: *const fi_ioc, _desc: *mut *mut c_void, length: usize,
        result: *mut fi_ioc, _result_desc: *mut *mut c_void, result_length: usize, to: fi_addr_t, offset: u64,
        key: u64, data_type: c_uint, operation: c_uint, context: *mut c_void,
    ) -> isize {
        let update = Update::new(AtomicKind::Fetch, data_type, operation, to, Remote { key, offset });
        let (operands, results) = (Elements::List(list, length), Elements::List(result, result_length));
        Update { operands, results, context, ..update }.start(caller, ep)
    }

    pub fn readwritemsg(
        caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_atomic, result: *mut fi_ioc,
        _result_desc: *mut *mut c_void, result_length: usize, flags: u64,
    ) -> isize {
        let update = Update::of_message(caller, AtomicKind::Fetch, message, flags)?;
        Update { results: Elements::List(result, result_length), ..update }.start(caller, ep)
    }

    pub fn compwrite(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, count: usize, _desc: *mut c_void,
        compare: *const c_void, _compare_desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void,
        to: fi_addr_t, offset: u64, key: u64, data_type: c_uint, operation: c_uint, context: *mut c_void,
    ) -> isize {
        let update = Update::new(AtomicKind::Compare, data_type, operation, to, Remote { key, offset });
        let (operands, compare, results) = (Elements::At(base), Elements::At(compare), Elements::At(result));
        Update { count: Some(count), operands, compare, results, context, ..update }.start(caller, ep)
    }

    pub fn compwritev(
        caller, ep: *mut fid_ep => Endpoint, list: *const fi_ioc, _desc: *mut *mut c_void, length: usize,
        compare: *const fi_ioc, _compare_desc: *mut *mut c_void, compare_length: usize, result: *mut fi_ioc,
        _result_desc: *mut *mut c_void, result_length: usize, to: fi_addr_t, offset: u64, key: u64,
        data_type: c_uint, operation: c_uint, context: *mut c_void,
    ) -> isize {
        let update = Update::new(AtomicKind::Compare, data_type, operation, to, Remote { key, offset });
        let operands = Elements::List(list, length);
        let (compare, results) = (Elements::List(compare, compare_length), Elements::List(result, result_length));
        Update { operands, compare, results, context, ..update }.start(caller, ep)
    }

    pub fn compwritemsg(
        caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_atomic, compare: *const fi_ioc,
        _compare_desc: *mut *mut c_void, compare_length: usize, result: *mut fi_ioc, _result_desc: *mut *mut c_void,
        result_length: usize, flags: u64,
    ) -> isize {
        let update = Update::of_message(caller, AtomicKind::Compare, message, flags)?;
        let (compare, results) = (Elements::List(compare, compare_length), Elements::List(result, result_length));
        Update { compare, results, ..update }.start(caller, ep)
    }

    pub fn writevalid(
        caller, _ep: *mut fid_ep => Endpoint, data_type: c_uint, operation: c_uint, count: *mut usize,
    ) -> c_int {
        valid(caller, AtomicKind::Plain, data_type, operation, count)
    }

    pub fn readwritevalid(
        caller, _ep: *mut fid_ep => Endpoint, data_type: c_uint, operation: c_uint, count: *mut usize,
    ) -> c_int {
        valid(caller, AtomicKind::Fetch, data_type, operation, count)
    }

    pub fn compwritevalid(
        caller, _ep: *mut fid_ep => Endpoint, data_type: c_uint, operation: c_uint, count: *mut usize,
    ) -> c_int {
        valid(caller, AtomicKind::Compare, data_type, operation, count)
    }
}

fn valid(
    caller: &Caller,
    kind: AtomicKind,
    data_type: c_uint,
    operation: c_uint,
    count: *mut usize,
) -> Outcome<c_int> {
    let (data_type, _) = offered(data_type, operation, kind)?;
    caller.put(count, MAX_ATOMIC / data_type.size())?;
    Ok(0)
}
