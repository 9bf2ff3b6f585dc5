//! A panic stays inside the plugin: in `init` it is a refusal, in a slot the status of that call.

use std::{ffi::c_void, ptr};

use crate::loader_support::{HOST, Modules, names, plugin, text, with_reason};
use ucs::Status;
use uct_abi::*;
use uct_core::loader::{LoadFailureKind, Transport};

#[test]
fn a_panic_in_init_is_a_refusal_with_the_message_as_reason() {
    let modules = Modules::new();
    modules.panicking("panics_init");
    let kind = modules.only_failure_of("panics_init");
    let LoadFailureKind::Init { status, reason } = &kind else { panic!("{kind:?}") };
    assert_eq!(*status, Status::IO_ERROR);
    assert!(reason.contains("panicked in init") && reason.ends_with("there is no init here"), "{reason}");
}

#[test]
fn a_panic_in_a_slot_is_the_status_of_that_call() {
    let modules = Modules::new();
    modules.panicking("panics_slot").bad("good", &[]);
    let loaded = modules.load();
    assert_eq!(names(&loaded), ["good", "panics_slot"]);
    assert!(loaded.failures.is_empty(), "{:?}", loaded.failures);
    let component = &plugin(&loaded, "panics_slot").components[0];
    let (query_mds, md_open) = (component.ops.query_mds.unwrap(), component.ops.md_open.unwrap());

    // SAFETY: the slot takes a configuration that may be null, and calls `emit` for no name.
    let (status, reason) =
        with_reason(|reason| unsafe { query_mds(ptr::null(), emit_nothing, ptr::null_mut(), reason) });
    assert_eq!(Status::from_raw(status), Status::IO_ERROR);
    assert!(reason.contains("query_mds") && reason.ends_with("memory domain number 1"), "{reason}");

    let mut md = ptr::null_mut();
    // SAFETY: as above; `md` is a place for the answer.
    let (status, reason) =
        with_reason(|reason| unsafe { md_open(text("panics"), ptr::null(), &raw mut md, reason) });
    assert_eq!((status, reason.as_str()), (UCT_OK, ""));
    check_transport(md, &component.transports[0]);
    // SAFETY: the domain is open and nothing of it is left.
    unsafe { component.md_ops.close.unwrap()(md) };
}

fn check_transport(md: *mut UctMd, transport: &Transport) {
    let mut handlers =
        UctAmTable { callbacks: [refuse; UCT_AM_IDS], arguments: [ptr::null_mut(); UCT_AM_IDS] };
    let params = UctIfaceParams {
        size: size_of::<UctIfaceParams>(),
        // A worker that is never asked for anything.
        worker: (&raw const HOST).cast_mut().cast(),
        device: text("memory"),
        config: ptr::null(),
        am_handlers: &raw mut handlers,
        error_handler: ignore,
        error_argument: ptr::null_mut(),
        rx_headroom: 0,
        flags: 0,
        iface: ptr::null_mut(),
        am_placer: ptr::null(),
    };
    let (ops, ep_ops) = (transport.iface_ops, transport.ep_ops);
    let mut iface = ptr::null_mut();
    let open = transport.ops.iface_open.unwrap();
    // SAFETY: the domain is open; the parameters outlive the interface.
    let (status, _) = with_reason(|reason| unsafe { open(md, &raw const params, &raw mut iface, reason) });
    assert_eq!(status, UCT_OK);

    // SAFETY: the interface is open. A panic answers that nothing happened.
    assert_eq!(unsafe { ops.progress.unwrap()(iface) }, 0);
    let mut address = [0_u8; 8];
    // SAFETY: as above.
    assert_eq!(unsafe { ops.get_address.unwrap()(iface, address.as_mut_ptr()) }, UCT_ERR_IO_ERROR);

    let params = UctEpParams {
        size: size_of::<UctEpParams>(),
        user: ptr::null_mut(),
        device_address: ptr::null(),
        device_address_length: 0,
        iface_address: ptr::null(),
        iface_address_length: 0,
        gate: ptr::null_mut(),
        accesses: ptr::null_mut(),
    };
    let mut ep = ptr::null_mut();
    let create = ops.ep_create.unwrap();
    // SAFETY: the interface is open; `ep` is a place for the answer.
    let (status, _) = with_reason(|reason| unsafe { create(iface, &raw const params, &raw mut ep, reason) });
    assert_eq!(status, UCT_OK);
    let (payload, am_short, am_bcopy) = ([0_u8; 4], ep_ops.am_short.unwrap(), ep_ops.am_bcopy.unwrap());
    for _ in 0..3 {
        // SAFETY: the endpoint is alive; the payload is readable.
        assert_eq!(unsafe { am_short(ep, 0, 0, payload.as_ptr().cast(), 4) }, UCT_ERR_IO_ERROR);
        // SAFETY: the endpoint is alive.
        assert_eq!(unsafe { am_bcopy(ep, 0, pack_nothing, ptr::null_mut(), 0) }, UCT_ERR_IO_ERROR as isize);
    }
    // SAFETY: the endpoint is alive, and not used any more.
    unsafe { ep_ops.destroy.unwrap()(ep) };
    // SAFETY: the interface is open, and not used any more.
    unsafe { ops.close.unwrap()(iface) };
}

unsafe extern "C" fn emit_nothing(_context: *mut c_void, _name: UctStr) {}

unsafe extern "C" fn pack_nothing(_destination: *mut c_void, _argument: *mut c_void) -> usize {
    0
}

unsafe extern "C" fn refuse(_: *mut c_void, _: *mut c_void, _: usize, _: u32) -> UctStatus {
    UCT_OK
}

unsafe extern "C" fn ignore(_: *mut c_void, _: *mut c_void, _: UctStatus, _: UctStr) {}
