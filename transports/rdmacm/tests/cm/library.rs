//! The errors on a machine without librdmacm, or without devices.

use crate::skip;
use uct_core::{Context, Worker};
use uct_rdmacm::testing::refusal::{Step, system};
use uct_rdmacm::testing::{Channel, CmError, load, load_from};

#[test]
fn a_missing_library_names_what_to_install() {
    let error = load_from(&["librdmacm-that-nobody-has.so.1"]).err().expect("no such library");
    let text = error.to_string();
    assert!(matches!(error, CmError::LibraryMissing { .. }), "{error:?}");
    for part in ["librdmacm-that-nobody-has.so.1", "librdmacm1", "rdma-core"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(!text.contains('\n'), "one line: {text}");
}

#[test]
fn another_library_names_the_function_that_it_lacks() {
    let error = load_from(&["libc.so.6"]).err().expect("not librdmacm");
    assert!(matches!(error, CmError::LibrarySymbol { symbol: "rdma_create_event_channel", .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("libc.so.6 has no function rdma_create_event_channel"), "{text}");
    assert!(text.contains("RDMACM_1.2"), "{text}");
}

#[test]
fn it_does_not_connect_over_the_device_in_software() {
    if Context::builder().build().expect("a context").schema().section("rdmacm").is_none() {
        return skip::skip("verbs", "the plugin of rdmacm was not found");
    }
    let context = Context::builder().set("ib.library", "soft").build().expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let error = worker.open_cm("rdmacm").expect_err("librdmacm does not know it").to_string();
    assert!(error.contains("library = soft in [ib]") && error.contains("UCT_IB_LIBRARY"), "{error}");
}

#[test]
fn a_machine_without_devices_says_so() {
    let table = match load() {
        Ok(table) => table,
        Err(error) => return skip::skip("librdmacm", error),
    };
    if std::path::Path::new("/sys/class/infiniband").exists() {
        return skip::skip("no-rdma", "this machine has RDMA devices");
    }
    let error = Channel::new(table).err().expect("no devices");
    let CmError::Call { errno, .. } = error else { panic!("{error:?}") };
    let refusal = system(Step::Open, "", errno);
    assert_eq!(refusal.status, ucs::Error::NO_DEVICE);
    assert!(refusal.words.starts_with("cannot open an event channel of rdma_cm: "), "{}", refusal.words);
    assert!(refusal.words.contains(" → "), "a remedy: {}", refusal.words);
}
