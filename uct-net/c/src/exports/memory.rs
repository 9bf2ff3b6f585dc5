//! Registered memory.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use ucs::Error as Status;
use ucs::memory::populate::{is_unknown, populate};

use crate::boundary::{guarded, number, operation, pointer, status};
use crate::failure::Failure;
use crate::handles::{Handle, Kind};
use crate::registry;
use crate::state::{Far, Part};

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_memory_allocate(net: *const c_void, length: usize) -> *mut c_void {
    pointer(|| {
        let net = registry::net(number(net))?;
        let (handle, address, length, populates) =
            net.with(|state, engine| state.allocate(engine, length))?;
        if populates
            && let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize))
        {
            match populate(start, length) {
                Err(error) if !is_unknown(&error) => {
                    net.with(|state, _engine| state.free_memory(handle.raw()))?;
                    return Err(Failure::new(Status::NO_MEMORY, error.to_string()));
                }
                _ => {}
            }
        }
        Ok(handle.raw())
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_memory_data(memory: *const c_void) -> *mut c_void {
    pointer(|| {
        registry::with(number(memory), Kind::Memory, |net, memory| {
            net.with(|state, _engine| Ok(state.memory(memory)?.address()))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_memory_size(memory: *const c_void) -> usize {
    let work = || {
        registry::with(number(memory), Kind::Memory, |net, memory| {
            net.with(|state, _engine| Ok(state.memory(memory)?.len()))
        })
    };
    guarded(|_| 0, work)
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_memory_free(memory: *const c_void) -> c_int {
    status(|| {
        registry::with(number(memory), Kind::Memory, |net, memory| {
            net.with(|state, _engine| state.free_memory(memory.raw()))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_share(
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
            net.with(|state, engine| state.share(engine, conn, part, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_unshare(
    conn: *const c_void,
    memory: *const c_void,
    offset: usize,
    length: usize,
) -> c_int {
    status(|| {
        let memory = Handle::parse(number(memory), Kind::Memory)?;
        let part = Part { memory, offset, length };
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, _engine| state.unshare(conn, part))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_shared(conn: *const c_void, user: u64) -> u64 {
    operation(|| {
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.shared(engine, conn, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_remote_size(remote: *const c_void) -> u64 {
    let work = || {
        registry::with(number(remote), Kind::Remote, |net, remote| {
            net.with(|state, _engine| state.remote_size(remote))
        })
    };
    guarded(|_| 0, work)
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_remote_release(remote: *const c_void) -> c_int {
    status(|| {
        registry::with(number(remote), Kind::Remote, |net, remote| {
            net.with(|state, _engine| state.release_remote(remote.raw()))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_put(
    conn: *const c_void,
    memory: *const c_void,
    offset: usize,
    length: usize,
    remote: *const c_void,
    remote_offset: u64,
    user: u64,
) -> u64 {
    operation(|| {
        let part = Part { memory: Handle::parse(number(memory), Kind::Memory)?, offset, length };
        let far = Far { remote: Handle::parse(number(remote), Kind::Remote)?, offset: remote_offset };
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.put(engine, conn, part, far, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_get(
    conn: *const c_void,
    memory: *const c_void,
    offset: usize,
    length: usize,
    remote: *const c_void,
    remote_offset: u64,
    user: u64,
) -> u64 {
    operation(|| {
        let part = Part { memory: Handle::parse(number(memory), Kind::Memory)?, offset, length };
        let far = Far { remote: Handle::parse(number(remote), Kind::Remote)?, offset: remote_offset };
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.get(engine, conn, part, far, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_fetch_add(
    conn: *const c_void,
    remote: *const c_void,
    remote_offset: u64,
    value: u64,
    user: u64,
) -> u64 {
    operation(|| {
        let far = Far { remote: Handle::parse(number(remote), Kind::Remote)?, offset: remote_offset };
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.fetch_add(engine, conn, far, value, user))
        })
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_flush(conn: *const c_void, user: u64) -> u64 {
    operation(|| {
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.flush(engine, conn, user))
        })
    })
}
