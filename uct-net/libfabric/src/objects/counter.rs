//! Counters.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::abi::*;
use crate::engine::{self, Errno};

use super::domain::Domain;
use super::{methods, waiting};

/// A counter of the engine.
pub struct Counter {
    pub engine: Arc<engine::Counter>,
    pub domain: Arc<Domain>,
    wait_object: c_uint,
}

methods! {
    pub fn open(
        caller, domain: *mut fid_domain => Domain, attr: *mut fi_cntr_attr, target: *mut *mut fid_cntr,
        context: *mut c_void,
    ) -> c_int {
        let (events, wait_object) = match caller.at(attr) {
            Ok(asked) => (asked.events, asked.wait_obj),
            Err(_) => (FI_CNTR_EVENTS_COMP, FI_WAIT_UNSPEC),
        };
        if events != FI_CNTR_EVENTS_COMP {
            return Err(Errno(ENOSYS));
        }
        let engine = Arc::new(engine::Counter::new(waiting::can_wait(wait_object)?)?);
        caller.give(Counter { engine, domain: Arc::clone(domain), wait_object }, context, target)?;
        Ok(0)
    }

    pub fn read(caller, counter: *mut fid_cntr => Counter) -> u64 {
        counter.domain.engine.progress();
        Ok(counter.engine.value())
    }

    pub fn readerr(caller, counter: *mut fid_cntr => Counter) -> u64 {
        counter.domain.engine.progress();
        Ok(counter.engine.errors())
    }

    pub fn add(caller, counter: *mut fid_cntr => Counter, count: u64) -> c_int {
        counter.engine.add(count);
        Ok(0)
    }

    pub fn set(caller, counter: *mut fid_cntr => Counter, value: u64) -> c_int {
        counter.engine.set(value);
        Ok(0)
    }

    pub fn adderr(caller, counter: *mut fid_cntr => Counter, count: u64) -> c_int {
        counter.engine.add_errors(count);
        Ok(0)
    }

    pub fn seterr(caller, counter: *mut fid_cntr => Counter, value: u64) -> c_int {
        counter.engine.set_errors(value);
        Ok(0)
    }

    pub fn wait(caller, counter: *mut fid_cntr => Counter, threshold: u64, timeout: c_int) -> c_int {
        if counter.engine.descriptor().is_none() {
            return Err(Errno(ENOSYS));
        }
        match counter.domain.engine.wait_counter(&counter.engine, threshold, waiting::limit(timeout)) {
            Err(Errno::AGAIN) => Err(Errno::TIMED_OUT),
            outcome => outcome.map(|()| 0),
        }
    }

    pub fn control(caller, counter: *mut fid => Counter, command: c_int, argument: *mut c_void) -> c_int {
        let descriptor = counter.engine.descriptor().map(|descriptor| descriptor.as_raw_fd());
        waiting::control(caller, command, argument, counter.wait_object, descriptor)
    }
}
