//! Whether a program may sleep.

use std::ffi::c_int;

use crate::abi::*;
use crate::engine::Errno;

use super::completion_queue::CompletionQueue;
use super::counter::Counter;
use super::event_queue::EventQueue;
use super::fabric::Fabric;
use super::methods;

methods! {
    /// Whether the program may sleep on the descriptors of all these objects.
    pub fn trywait(caller, _fabric: *mut fid_fabric => Fabric, objects: *mut *mut fid, count: c_int) -> c_int {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        for &object in caller.list(objects, count)? {
            match caller.at(object)?.fclass {
                FI_CLASS_CQ => {
                    let queue = caller.held::<CompletionQueue>(object)?;
                    if !queue.domain.engine.prepare_to_wait(&queue.engine)? {
                        return Err(Errno::AGAIN);
                    }
                }
                FI_CLASS_CNTR => {
                    let counter = caller.held::<Counter>(object)?;
                    counter.domain.engine.prepare_to_wait_for_counter(&counter.engine)?;
                }
                _ => {
                    caller.held::<EventQueue>(object)?;
                }
            }
        }
        Ok(0)
    }
}
