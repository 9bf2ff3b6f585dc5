//! Handlers of active messages, and messages that they keep.

use std::ffi::{c_int, c_uint, c_void};
use std::rc::Rc;

use ucs::{Error, Status};
use uct_core::{AmId, raw};

use crate::call::{at, guarded, refuse, status};
use crate::iface::{Iface, OWNER};
use crate::types::AmCallback;

/// `UCT_CB_PARAM_FLAG_DESC`.
const PARAM_DESC: c_uint = 1 << 0;
const INPROGRESS: c_int = Status::INPROGRESS.raw();

/// `uct_iface_set_am_handler`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_set_am_handler(
    iface: *const Iface,
    id: u8,
    callback: Option<AmCallback>,
    argument: *mut c_void,
    _flags: u32,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let open = unsafe { at(iface, "iface") }?;
        let Some(id) = AmId::new(id) else {
            let reason = format_args!("no active message has the id {id}: 0 to {}", AmId::COUNT - 1);
            return Err(refuse(Error::INVALID_PARAM, reason));
        };
        let Some(callback) = callback else {
            open.inner.clear_am_handler(id);
            return Ok(());
        };
        raw::set_raw_am_handler(&open.inner, id, move |data, length, may_keep| {
            let flags = if may_keep { PARAM_DESC } else { 0 };
            // SAFETY: the program's function and argument, and the data of a message.
            let answer = unsafe { callback(argument, data, length, flags) };
            if !may_keep || answer != INPROGRESS {
                return false;
            }
            // SAFETY: the message is kept, and with it the bytes ahead of it. The interface removes its handlers before
            // it is gone, which it is not while one runs (`Worker::close`).
            unsafe { keep(iface, data) };
            true
        });
        Ok(())
    })
}

/// Leaves the interface ahead of the headroom of a message, for [`uctc_iface_release_desc`].
///
/// # Safety
/// The pointer is the handle of an open interface, whose message was kept.
unsafe fn keep(iface: *const Iface, data: *mut c_void) {
    // SAFETY: the caller's promise.
    let ahead = unsafe { (*iface).headroom } + OWNER;
    // SAFETY: the interface was opened with so many bytes of headroom.
    let place = unsafe { data.byte_sub(ahead) }.cast::<*const Iface>();
    // SAFETY: as above; the headroom may have any length.
    unsafe { place.write_unaligned(iface) };
    // SAFETY: the caller's promise. The message has the interface until it is released.
    unsafe { Rc::increment_strong_count(iface) };
}

/// `uct_iface_release_desc`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_iface_release_desc(desc: *mut c_void) {
    // SAFETY: the caller's promise: a message that was kept.
    let place = unsafe { desc.byte_sub(OWNER) }.cast::<*const Iface>();
    // SAFETY: `keep` left the interface there.
    let iface = unsafe { place.read_unaligned() };
    // SAFETY: as above; this takes the count of the message.
    let iface = unsafe { Rc::from_raw(iface) };
    guarded((), || {
        // SAFETY: the headroom begins so many bytes ahead of the data.
        let data = unsafe { desc.byte_add(iface.headroom) };
        // SAFETY: a handler kept them, and they are given back once, by the caller's promise.
        unsafe { raw::release(&iface.inner, data) };
        if Rc::strong_count(&iface) == 1 {
            // The program has closed it.
            let worker = Rc::clone(&iface.worker);
            worker.close(Box::new(iface));
        }
    });
}
