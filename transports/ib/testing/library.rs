//! The library with the verbs that the tests of the verbs transports use. They include this file; it is part of no library.

use std::io::Write;

/// What `UCT_IB_LIBRARY` says. Without it, the system's library where the kernel has an RDMA device or `UCT_TEST_REQUIRE` asks
/// for one, and elsewhere the device in software.
pub fn library() -> String {
    if let Ok(library) = std::env::var("UCT_IB_LIBRARY") {
        return library;
    }
    let has_device =
        std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut entries| entries.next().is_some());
    let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == "verbs");
    if has_device || is_required { "auto" } else { "soft" }.to_owned()
}

/// Whether the device is not one of the kernel's; says that the test is skipped, which needs one for this reason.
pub fn is_skipped_in_software(reason: &str) -> bool {
    let is_skipped = library() == "soft";
    if is_skipped {
        // Past the capture of a test that passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: the device is in software: {reason}");
    }
    is_skipped
}
