//! The errors on a machine without libibverbs, or without devices.

use uct_ib::IbError;
use uct_ib::verbs;

#[test]
fn a_missing_library_names_what_to_install() {
    let error = verbs::load_from(&["libibverbs-that-nobody-has.so.1"]).err().expect("no such library");
    let text = error.to_string();
    assert!(matches!(error, IbError::LibraryMissing { .. }), "{error:?}");
    for part in ["libibverbs-that-nobody-has.so.1", "libibverbs1", "ibverbs-providers"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(!text.contains('\n'), "one line: {text}");
    assert_eq!(error.status(), ucs::Status::UNSUPPORTED);
}

#[test]
fn another_library_names_the_function_that_it_lacks() {
    let error = verbs::load_from(&["libc.so.6"]).err().expect("not libibverbs");
    assert!(matches!(error, IbError::LibrarySymbol { symbol: "ibv_get_device_list", .. }), "{error:?}");
    assert!(error.to_string().starts_with("libc.so.6 has no function ibv_get_device_list"), "{error}");
}

#[test]
fn a_library_behind_a_missing_one_is_found() {
    // The order is kept: the first that loads is taken, so the reason is about it and not about the one ahead.
    let error =
        verbs::load_from(&["libibverbs-that-nobody-has.so.1", "libc.so.6"]).err().expect("not libibverbs");
    assert!(matches!(error, IbError::LibrarySymbol { .. }), "{error:?}");
}

#[test]
fn a_machine_without_devices_says_so() {
    let Ok(table) = verbs::load() else {
        eprintln!(
            "SKIPPED: libibverbs is not installed; a_missing_library_names_what_to_install covers that"
        );
        return;
    };
    if std::path::Path::new("/sys/class/infiniband").exists() {
        eprintln!("SKIPPED: this machine has RDMA devices");
        return;
    }
    let error = uct_ib::device::devices(table).err().expect("no devices");
    assert_eq!(error, IbError::NoDevices);
    assert!(error.to_string().contains("rdma link add"), "{error}");
    assert_eq!(error.status(), ucs::Status::NO_DEVICE);
}
