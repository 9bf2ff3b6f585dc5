//! Connections and listeners.

use std::ffi::{c_char, c_int, c_void};

use crate::boundary::{copy, guarded, number, operation, status, text};
use crate::failure::Outcome;
use crate::handles::Kind;
use crate::registry;
use crate::state::Link;

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_listen(
    net: *const c_void,
    address: *const c_char,
    options: *const c_void,
    user: u64,
) -> u64 {
    operation(|| {
        // SAFETY: the promise of the caller.
        let address = unsafe { text(address, "address") }?;
        let options = registry::options_of(number(options))?;
        registry::with(number(net), Kind::Net, |net, _| {
            net.with(|state, engine| {
                let listen = options.for_listen(engine.net().listen(address))?;
                Ok(state.listen(engine, listen, user))
            })
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_connect(
    net: *const c_void,
    address: *const c_char,
    options: *const c_void,
    user: u64,
) -> u64 {
    operation(|| {
        // SAFETY: the promise of the caller.
        let address = unsafe { text(address, "address") }?;
        let options = registry::options_of(number(options))?;
        registry::with(number(net), Kind::Net, |net, _| {
            net.with(|state, engine| {
                let connect = options.for_connect(engine.net().connect(address))?;
                Ok(state.connect(engine, connect, user))
            })
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_accept(listener: *const c_void, user: u64) -> u64 {
    operation(|| {
        registry::with(number(listener), Kind::Listener, |net, listener| {
            net.with(|state, engine| state.accept(engine, listener, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_listener_close(listener: *const c_void) -> c_int {
    status(|| {
        registry::with(number(listener), Kind::Listener, |net, listener| {
            net.with(|state, _engine| state.close_listener(listener.raw()))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_listener_address(
    listener: *const c_void,
    target: *mut c_char,
    room: usize,
) -> c_int {
    let work = || {
        let address = registry::with(number(listener), Kind::Listener, |net, listener| {
            net.with(|state, _engine| Ok(state.doorway(listener)?.address().to_owned()))
        })?;
        // SAFETY: the promise of the caller.
        unsafe { copy(&address, target, room) }
    };
    guarded(|status| status, work)
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_conn_peer(conn: *const c_void, target: *mut c_char, room: usize) -> c_int {
    // SAFETY: the promise of the caller.
    unsafe { described(conn, target, room, |link| link.connection.peer().to_owned()) }
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_conn_transport(conn: *const c_void, target: *mut c_char, room: usize) -> c_int {
    // SAFETY: the promise of the caller.
    unsafe { described(conn, target, room, |link| link.connection.explanation().chosen.clone()) }
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_conn_explanation(
    conn: *const c_void,
    target: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the promise of the caller.
    unsafe { described(conn, target, room, |link| link.connection.explanation().to_string()) }
}

/// Copies a text about a connection.
///
/// # Safety
/// NULL, or room for that many bytes.
unsafe fn described(
    conn: *const c_void,
    target: *mut c_char,
    room: usize,
    describe: fn(&Link) -> String,
) -> c_int {
    let work = || {
        let described: Outcome<String> = registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, _engine| Ok(describe(&*state.link(conn)?)))
        });
        // SAFETY: the promise of the caller.
        unsafe { copy(&described?, target, room) }
    };
    guarded(|status| status, work)
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_conn_close(conn: *const c_void, user: u64) -> u64 {
    operation(|| {
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.close_connection(engine, conn.raw(), user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_conn_abort(conn: *const c_void, reason: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the promise of the caller.
        let reason = unsafe { text(reason, "reason") }?;
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, _engine| state.abort_connection(conn.raw(), reason))
        })
    })
}
