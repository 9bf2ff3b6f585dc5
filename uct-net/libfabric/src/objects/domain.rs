//! The domain: everything but the fabric and event queues is made from one.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::boundary::Outcome;
use crate::engine::{self, AtomicKind, DataType, Errno, Operation};
use crate::info::MAX_ATOMIC;

use super::event_queue::EventQueue;
use super::fabric::Fabric;
use super::methods;

/// A domain of the engine.
pub struct Domain {
    pub engine: Arc<engine::Domain>,
    _fabric: Arc<Fabric>,
}

methods! {
    pub fn open(
        caller, fabric: *mut fid_fabric => Fabric, _info: *mut fi_info, target: *mut *mut fid_domain,
        context: *mut c_void,
    ) -> c_int {
        let engine = engine::Domain::open().map_err(|error| {
            ucs::log::warn!("libfabric: no domain: {}", error.reason);
            error.errno
        })?;
        caller.give(Domain { engine, _fabric: Arc::clone(fabric) }, context, target)?;
        Ok(0)
    }

    /// No flag is offered, and libfabric calls `open` itself where there is none.
    pub fn open_with_flags(
        caller, _fabric: *mut fid_fabric => Fabric, _info: *mut fi_info, _target: *mut *mut fid_domain, _flags: u64,
        _context: *mut c_void,
    ) -> c_int {
        Err(Errno(EBADFLAGS))
    }

    /// An event queue may be bound. It gets no event.
    pub fn bind(caller, _domain: *mut fid => Domain, other: *mut fid, flags: u64) -> c_int {
        caller.held::<EventQueue>(other)?;
        if flags == 0 { Ok(0) } else { Err(Errno(EBADFLAGS)) }
    }

    pub fn query_atomic(
        caller, _domain: *mut fid_domain => Domain, data_type: c_uint, operation: c_uint,
        target: *mut fi_atomic_attr, flags: u64,
    ) -> c_int {
        let kind = match flags {
            0 => AtomicKind::Plain,
            FI_FETCH_ATOMIC => AtomicKind::Fetch,
            FI_COMPARE_ATOMIC => AtomicKind::Compare,
            _ => return Err(Errno(EBADFLAGS)),
        };
        let size = offered(data_type, operation, kind)?.0.size();
        let count = MAX_ATOMIC / size;
        caller.put(target, fi_atomic_attr { count, size })?;
        Ok(0)
    }
}

/// A type of elements and an operation, if they are offered in calls of this form.
pub fn offered(data_type: c_uint, operation: c_uint, kind: AtomicKind) -> Outcome<(DataType, Operation)> {
    let known = DataType::new(data_type).zip(Operation::new(operation));
    known.filter(|(data_type, operation)| operation.is_offered(*data_type, kind)).ok_or(Errno::NOT_SUPPORTED)
}
