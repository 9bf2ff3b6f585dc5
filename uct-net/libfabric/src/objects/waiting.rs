//! Waiting for queues and counters: by a call that sleeps, or with a descriptor that the program polls.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::time::Duration;

use crate::abi::*;
use crate::boundary::{Caller, Outcome};
use crate::engine::Errno;

/// Whether a queue or counter with this kind of wait object can be waited for.
pub fn can_wait(wait_object: c_uint) -> Outcome<bool> {
    match wait_object {
        FI_WAIT_NONE => Ok(false),
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => Ok(true),
        _ => Err(Errno(ENOSYS)),
    }
}

/// A time in milliseconds, below zero for none.
pub fn limit(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// Answers what a program asks of a wait object: its kind, or its descriptor.
pub fn control(
    caller: &Caller,
    command: c_int,
    argument: *mut c_void,
    wait_object: c_uint,
    descriptor: Option<RawFd>,
) -> Outcome<c_int> {
    match (command, descriptor) {
        (FI_GETWAITOBJ, _) => caller.put(argument.cast(), wait_object)?,
        (FI_GETWAIT, Some(descriptor)) => caller.put(argument.cast(), descriptor)?,
        _ => return Err(Errno(ENOSYS)),
    }
    Ok(0)
}
