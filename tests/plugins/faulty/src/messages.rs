//! Mistakes with active messages and interfaces.
//!
//! For the table. Built on the slots of `self`, which do the work.

use std::cell::RefCell;
use std::ffi::c_void;

use uct_abi::*;

use crate::{once_in, original, planted};

/// The endpoint's slots with the planted mistake among them.
pub(crate) fn replace(ops: UctEpOps) -> UctEpOps {
    UctEpOps {
        am_short: Some(am_short),
        am_bcopy: Some(am_bcopy),
        am_zcopy: Some(am_zcopy),
        destroy: Some(destroy),
        ..ops
    }
}

/// The interface's.
pub(crate) fn replace_iface(ops: UctIfaceOps) -> UctIfaceOps {
    UctIfaceOps {
        query: Some(query),
        progress: Some(progress),
        event_arm: Some(event_arm),
        is_reachable: Some(is_reachable),
        ..ops
    }
}

/// Something that is sent later than it was accepted.
struct Late {
    ep: *mut UctEp,
    id: u8,
    header: Vec<u8>,
    iov: Vec<UctIov>,
}

thread_local! {
    static HELD: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
}

fn send_late() -> u32 {
    let held = HELD.take();
    let count = held.len() as u32;
    for late in held {
        let send = original().ep.am_zcopy.expect("self has it");
        let (header, iov) = (late.header.as_ptr().cast(), late.iov.as_ptr());
        // SAFETY: the endpoint is alive, since `destroy` sends what is held; that the memory may be gone is the mistake.
        unsafe {
            send(late.ep, late.id, header, late.header.len(), iov, late.iov.len(), 0, std::ptr::null_mut())
        };
    }
    count
}

unsafe extern "C" fn am_short(
    ep: *mut UctEp,
    id: u8,
    header: u64,
    payload: *const c_void,
    mut length: usize,
) -> UctStatus {
    let send = original().ep.am_short.expect("self has it");
    if planted("drop") && once_in(97) {
        return UCT_OK;
    }
    if planted("too long") && length > 1000 {
        length -= 1;
    }
    if planted("swap") && HELD.with_borrow(Vec::is_empty) && once_in(41) {
        // SAFETY: the caller's payload is readable.
        let bytes = unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), length) };
        let header = [&header.to_ne_bytes(), bytes].concat();
        if header.len() <= 256 {
            HELD.with_borrow_mut(|held| held.push(Late { ep, id, header, iov: Vec::new() }));
            return UCT_OK;
        }
    }
    // SAFETY: the caller's arguments.
    let status = unsafe { send(ep, id, header, payload, length) };
    if planted("duplicate") && status == UCT_OK && once_in(61) {
        // SAFETY: as above.
        return unsafe { send(ep, id, header, payload, length) };
    }
    status
}

/// A pack callback that is passed on, and whether a bit of what it packs is flipped.
struct Flip {
    pack: UctPack,
    argument: *mut c_void,
}

unsafe extern "C" fn flip(destination: *mut c_void, argument: *mut c_void) -> usize {
    // SAFETY: `am_bcopy` passes itself.
    let inner = unsafe { &*argument.cast::<Flip>() };
    let pack = inner.pack;
    // SAFETY: the caller's callback and argument.
    let length = unsafe { pack(destination, inner.argument) };
    if length > 20 {
        // SAFETY: so many bytes were just written.
        let place = unsafe { destination.cast::<u8>().add(length - 3) };
        // SAFETY: as above.
        let byte = unsafe { place.read() };
        // SAFETY: as above.
        unsafe { place.write(byte ^ 4) };
    }
    length
}

unsafe extern "C" fn am_bcopy(
    ep: *mut UctEp,
    id: u8,
    pack: UctPack,
    argument: *mut c_void,
    flags: u32,
) -> isize {
    let send = original().ep.am_bcopy.expect("self has it");
    if planted("flip") && once_in(53) {
        let mut inner = Flip { pack, argument };
        // SAFETY: callback and argument belong together.
        return unsafe { send(ep, id, flip, (&raw mut inner).cast(), flags) };
    }
    // SAFETY: the caller's arguments.
    unsafe { send(ep, id, pack, argument, flags) }
}

unsafe extern "C" fn am_zcopy(
    ep: *mut UctEp,
    id: u8,
    header: *const c_void,
    header_length: usize,
    iov: *const UctIov,
    count: usize,
    flags: u32,
    completion: *mut UctCompletion,
) -> UctStatus {
    if planted("early") && count == 1 && header_length == 0 {
        // SAFETY: the caller's vector is readable.
        let iov = unsafe { std::slice::from_raw_parts(iov, count) }.to_vec();
        if (1..=65536).contains(&iov[0].length) {
            HELD.with_borrow_mut(|held| held.push(Late { ep, id, header: Vec::new(), iov }));
            // Done, so that the memory is the caller's again; only it is not.
            return UCT_OK;
        }
    }
    let send = original().ep.am_zcopy.expect("self has it");
    // SAFETY: the caller's arguments.
    unsafe { send(ep, id, header, header_length, iov, count, flags, completion) }
}

unsafe extern "C" fn destroy(ep: *mut UctEp) {
    send_late();
    let slot = original().ep.destroy.expect("self has it");
    // SAFETY: the caller's endpoint.
    unsafe { slot(ep) };
}

unsafe extern "C" fn progress(iface: *mut UctIface) -> u32 {
    let slot = original().iface.progress.expect("self has it");
    // SAFETY: the caller's interface.
    send_late() + unsafe { slot(iface) }
}

unsafe extern "C" fn query(iface: *mut UctIface, attr: *mut UctIfaceAttr) -> UctStatus {
    let slot = original().iface.query.expect("self has it");
    // SAFETY: the caller's arguments.
    let status = unsafe { slot(iface, attr) };
    // SAFETY: the caller's table, just filled.
    let attr = unsafe { &mut *attr };
    if planted("too long") {
        attr.am.max_short = attr.am.max_short.saturating_add(1);
    }
    if planted("hidden") {
        attr.capabilities &= !UCT_CAP_GET_BCOPY;
        attr.get.max_bcopy = 0;
    }
    if planted("promise") {
        attr.capabilities |= UCT_CAP_CONNECT_TO_EP;
    }
    status
}

unsafe extern "C" fn event_arm(iface: *mut UctIface, events: u32) -> UctStatus {
    if planted("deaf") && once_in(20) {
        return UCT_OK;
    }
    let slot = original().iface.event_arm.expect("self has it");
    // SAFETY: the caller's interface.
    unsafe { slot(iface, events) }
}

#[allow(clippy::too_many_arguments, reason = "the slot has them")]
unsafe extern "C" fn is_reachable(
    iface: *mut UctIface,
    device: *const u8,
    device_length: usize,
    address: *const u8,
    address_length: usize,
    scope: u32,
    reason: *mut UctText,
) -> UctStatus {
    if planted("anybody") && device_length == 8 && address_length != 8 {
        return UCT_OK;
    }
    let slot = original().iface.is_reachable.expect("self has it");
    // SAFETY: the caller's arguments.
    unsafe { slot(iface, device, device_length, address, address_length, scope, reason) }
}
