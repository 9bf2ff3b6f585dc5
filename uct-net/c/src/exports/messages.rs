//! Messages.

use std::ffi::{c_int, c_void};

use crate::boundary::{check, list, number, operation, status};
use crate::handles::{Handle, Kind};
use crate::registry;
use crate::state::{Part, Target};

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_send(conn: *const c_void, data: *const c_void, length: usize, user: u64) -> u64 {
    operation(|| {
        // SAFETY: the promise of the caller.
        let bytes = unsafe { list(data.cast::<u8>(), length, "message") }?;
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.send(engine, conn, bytes, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_send_memory(
    conn: *const c_void,
    memory: *const c_void,
    offset: usize,
    length: usize,
    user: u64,
) -> u64 {
    operation(|| {
        let memory = Handle::parse(number(memory), Kind::Memory)?;
        let part = Part { memory, offset, length };
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.send_memory(engine, conn, part, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_recv(conn: *const c_void, user: u64) -> u64 {
    operation(|| {
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.recv(engine, conn, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_recv_into(
    conn: *const c_void,
    data: *mut c_void,
    length: usize,
    user: u64,
) -> u64 {
    operation(|| {
        check(data.cast::<u8>(), length, "place for the message")?;
        // SAFETY: the promise of the caller. Closing ends what would write to it ahead of its return.
        let target = unsafe { Target::new(data.cast(), length) };
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(move |state, engine| state.recv_into(engine, conn, target, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_message_release(message: *const c_void) -> c_int {
    status(|| {
        registry::with(number(message), Kind::Message, |net, message| {
            net.with(|state, _engine| state.release_message(message.raw()))
        })
    })
}
