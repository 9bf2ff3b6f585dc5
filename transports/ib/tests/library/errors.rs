//! The errors on a machine without libibverbs, or without devices.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use ucs::sys::trust::Writer;
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
fn a_value_that_names_no_file_says_what_there_is() {
    for value in ["", "sofft", "libc.so.6", "./libc.so.6"] {
        let error = verbs::load(value).err().expect("not a library");
        assert_eq!(error, IbError::LibraryValue { value: value.to_owned() });
        assert!(error.to_string().contains("neither auto, nor soft, nor an absolute path"), "{error}");
        assert_eq!(error.status(), ucs::Status::INVALID_PARAM);
    }
}

#[test]
fn a_file_that_is_missing_or_no_library_is_named_with_the_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("libibverbs.so.1");
    let path = file.to_str().expect("a path");
    for content in [None, Some("not a library")] {
        if let Some(content) = content {
            std::fs::write(&file, content).expect("a file");
        }
        let error = verbs::load(path).err().expect("no library");
        assert!(matches!(error, IbError::LibraryFile { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(path) && text.contains("set library in [ib] to auto"), "{text}");
    }
}

#[test]
fn a_file_that_others_may_write_to_is_not_loaded() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("libibverbs.so.1");
    let path = file.to_str().expect("a path");
    std::fs::write(&file, "").expect("a file");
    let open_to = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
    };
    open_to(&file, 0o646);
    let refused = |words: &str| {
        let error = verbs::load(path).err().expect("refused");
        assert!(matches!(&error, IbError::LibraryNotTrusted { writer: Writer::Everybody, .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused("is not loaded: every user may write to it");
    open_to(&file, 0o644);
    open_to(directory.path(), 0o777);
    refused(&format!("is not loaded: of {}, every user", directory.path().display()));
}

#[test]
fn a_library_is_loaded_once_for_each_value() {
    let Ok(verbs) = verbs::load("auto") else {
        eprintln!("SKIPPED: libibverbs is not installed");
        return;
    };
    let again = verbs::load("auto").expect("loaded before");
    assert!(std::ptr::eq(verbs.table(), again.table()));
    assert!(!verbs.is_software());
}

#[test]
fn a_machine_without_devices_says_so() {
    let Ok(verbs) = verbs::load("auto") else {
        eprintln!(
            "SKIPPED: libibverbs is not installed; a_missing_library_names_what_to_install covers that"
        );
        return;
    };
    if std::path::Path::new("/sys/class/infiniband").exists() {
        eprintln!("SKIPPED: this machine has RDMA devices");
        return;
    }
    let error = uct_ib::device::devices(verbs).err().expect("no devices");
    assert_eq!(error, IbError::NoDevices);
    assert!(error.to_string().contains("rdma link add"), "{error}");
    assert_eq!(error.status(), ucs::Status::NO_DEVICE);
}
