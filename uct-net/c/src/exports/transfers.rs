//! Transfers of blocks.

use std::ffi::{c_int, c_void};

use ucs::Error as Status;
use uct_net::{Block, Blocks};

use crate::abi::uct_block;
use crate::boundary::{guarded, list, number, operation};
use crate::failure::{Failure, Outcome};
use crate::handles::{Handle, Kind};
use crate::registry;
use crate::state::Transfer;

/// The arguments that both directions have.
struct Arguments {
    conn: *const c_void,
    memory: *const c_void,
    remote: *const c_void,
    blocks: *const uct_block,
    count: usize,
    notification: *const c_void,
    notification_length: usize,
    user: u64,
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_get_blocks(
    conn: *const c_void,
    memory: *const c_void,
    remote: *const c_void,
    blocks: *const uct_block,
    count: usize,
    notification: *const c_void,
    notification_length: usize,
    user: u64,
) -> u64 {
    let arguments =
        Arguments { conn, memory, remote, blocks, count, notification, notification_length, user };
    // SAFETY: the promise of the caller.
    operation(|| unsafe { start(false, &arguments) })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_put_blocks(
    conn: *const c_void,
    memory: *const c_void,
    remote: *const c_void,
    blocks: *const uct_block,
    count: usize,
    notification: *const c_void,
    notification_length: usize,
    user: u64,
) -> u64 {
    let arguments =
        Arguments { conn, memory, remote, blocks, count, notification, notification_length, user };
    // SAFETY: the promise of the caller.
    operation(|| unsafe { start(true, &arguments) })
}

/// # Safety
/// There are as many blocks, and as many bytes of a notification, as the arguments say.
unsafe fn start(is_put: bool, arguments: &Arguments) -> Outcome<u64> {
    let memory = Handle::parse(number(arguments.memory), Kind::Memory)?;
    let remote = Handle::parse(number(arguments.remote), Kind::Remote)?;
    if arguments.count > Blocks::MAX {
        let (count, most) = (arguments.count, Blocks::MAX);
        return Err(Failure::invalid(format!(
            "a transfer of {count} blocks; at most {most} are moved at once"
        )));
    }
    // SAFETY: the promise of the caller.
    let blocks = unsafe { list(arguments.blocks, arguments.count, "list of blocks") }?;
    let block = |block: &uct_block| Block { local: block.local, remote: block.remote, length: block.length };
    let blocks: Blocks = blocks.iter().map(block).collect();
    let (pointer, length) = (arguments.notification, arguments.notification_length);
    // SAFETY: the promise of the caller.
    let bytes = unsafe { list(pointer.cast::<u8>(), length, "notification") }?;
    let notification = (!pointer.is_null()).then_some(bytes);
    let user = arguments.user;
    let transfer = Transfer { is_put, memory, remote, blocks, notification };
    registry::with(number(arguments.conn), Kind::Connection, |net, conn| {
        net.with(move |state, engine| state.transfer(engine, conn, transfer, user))
    })
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_block_status(net: *const c_void, op: u64, block: usize) -> c_int {
    let work = || {
        let status = registry::with(number(net), Kind::Net, |net, _| {
            let status =
                net.events.failure(op, |failure| failure.moved.as_ref().map(|moved| moved.status(block)));
            status.flatten().ok_or_else(|| {
                Failure::new(
                    Status::NO_ELEM,
                    "no transfer that has failed, or was cancelled, has this number",
                )
            })
        })?;
        status.map_or_else(|status| Err(Failure::new(status, format!("block {block}: {status}"))), |()| Ok(0))
    };
    guarded(|status| status, work)
}

/// See `uct.h`.
#[unsafe(no_mangle)]
pub extern "C" fn uct_notified(conn: *const c_void, user: u64) -> u64 {
    operation(|| {
        registry::with(number(conn), Kind::Connection, |net, conn| {
            net.with(|state, engine| state.notified(engine, conn, user))
        })
    })
}
