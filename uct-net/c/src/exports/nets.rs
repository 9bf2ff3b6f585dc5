//! Nets and events.

use std::ffi::{c_int, c_void};

use ucs::Error as Status;

use crate::abi::uct_event;
use crate::boundary::{check, guarded, number, pointer, status};
use crate::failure::{Failure, Outcome, last, remember};
use crate::handles::{Handle, Kind};
use crate::net::Net;
use crate::registry;

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_net_open(options: *const c_void) -> *mut c_void {
    pointer(|| {
        let options = registry::options_of(number(options))?;
        registry::open(&options).map(Handle::raw)
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_net_close(net: *const c_void) -> c_int {
    status(|| registry::close(number(net)))
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_net_wait(
    net: *const c_void,
    events: *mut uct_event,
    room: usize,
    timeout_ns: i64,
) -> c_int {
    let work = || {
        check(events, room, "place for events")?;
        if room == 0 {
            return Err(Failure::invalid("there is room for no event"));
        }
        // A count fits into what is returned.
        let room = room.min(c_int::MAX as usize);
        // SAFETY: the promise of the caller.
        let taken = registry::with(number(net), Kind::Net, |net, _| Ok(unsafe { take(net, events, room) }))?;
        match taken {
            // SAFETY: as above.
            None => unsafe { wait(number(net), events, room, timeout_ns) },
            Some(taken) => Ok(taken),
        }
    };
    guarded(|status| status, work)
}

/// Takes what is there; `None` if nothing is.
///
/// # Safety
/// There is room for so many events.
#[inline]
unsafe fn take(net: &Net, events: *mut uct_event, room: usize) -> Option<c_int> {
    let mut next = events;
    let taken = net.events.take(room, |event| {
        // SAFETY: the promise of the caller: at most `room` events are written.
        unsafe { next.write(event) };
        // SAFETY: as above.
        next = unsafe { next.add(1) };
    });
    (taken > 0).then_some(taken as c_int)
}

/// Waits until something is there, and takes it.
///
/// # Safety
/// As for [`take`].
#[inline(never)]
unsafe fn wait(raw: u64, events: *mut uct_event, room: usize, timeout_ns: i64) -> Outcome<c_int> {
    let net = registry::net(raw)?;
    // SAFETY: the promise of the caller.
    let taken = net.wait_for(timeout_ns, || unsafe { take(&net, events, room) })?;
    Ok(taken.unwrap_or(0))
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_wait(
    net: *const c_void,
    op: u64,
    timeout_ns: i64,
    event: *mut uct_event,
) -> c_int {
    if op == 0 {
        return last().map_or(Status::INVALID_PARAM.status().raw(), |(status, _)| status);
    }
    let work = || {
        check(event, usize::from(!event.is_null()), "place for the event")?;
        let net = registry::net(number(net))?;
        let Some(ended) = net.wait_for(timeout_ns, || taken(&net, op))? else { return Ok(1) };
        let ended = ended?;
        if event.is_null() {
            net.with(|state, _engine| {
                state.discard(&ended);
                Ok(())
            })?;
        } else {
            // SAFETY: the promise of the caller.
            unsafe { event.write(ended) };
        }
        if ended.status < 0
            && let Some(failure) = net.events.failure(op, Failure::clone)
        {
            remember(failure);
        }
        Ok(ended.status)
    };
    guarded(|status| status, work)
}

/// The event of an operation, once it has ended.
fn taken(net: &Net, op: u64) -> Option<Outcome<uct_event>> {
    if let Some(event) = net.events.take_one(op) {
        return Some(Ok(event));
    }
    match net.with(|state, _engine| Ok(state.is_in_flight(op))) {
        Ok(true) => None,
        // It may have ended between the two looks.
        Ok(false) => Some(net.events.take_one(op).ok_or_else(|| {
            Failure::invalid("its event was taken already, or this net has no such operation")
        })),
        Err(failure) => Some(Err(failure)),
    }
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_net_fd(net: *const c_void) -> c_int {
    guarded(|status| status, || registry::with(number(net), Kind::Net, |net, _| net.events.descriptor()))
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_cancel(net: *const c_void, op: u64) -> c_int {
    status(|| {
        registry::with(number(net), Kind::Net, |net, _| {
            net.with(|state, _engine| match state.cancel(op) {
                true => Ok(()),
                false => Err(Failure::new(Status::NO_ELEM, "no such operation is in flight: it has ended")),
            })
        })
    })
}
