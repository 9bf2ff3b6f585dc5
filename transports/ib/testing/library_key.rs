//! The key `library` of `[ib]`, without a device. For the tests of the verbs transports, which include this file and say by `TRANSPORT` whose they
//! are; it is part of no library.

use uct_core::Context;

use crate::support::{TRANSPORT, context};

/// Why the transport is not there with this library.
fn absent(library: &str) -> String {
    let context = Context::builder().set("ib.library", library).build().expect("a context");
    let absent = context.discovery().absent.iter().find(|it| it.component == TRANSPORT);
    absent.expect("there is no such library").refused.to_string()
}

#[test]
fn a_library_that_cannot_be_loaded_is_why_the_transport_is_absent() {
    if context(&[]).schema().section(TRANSPORT).is_none() {
        // A run that requires verbs fails at the tests of devices.
        eprintln!("SKIPPED: the plugin of {TRANSPORT} was not found");
        return;
    }
    for (library, words) in [
        ("sofft", "library = `sofft` in [ib] is neither auto, nor soft"),
        ("/nonexistent/libibverbs.so.1", "/nonexistent/libibverbs.so.1 cannot be loaded"),
    ] {
        let reason = absent(library);
        assert!(reason.contains(words), "{library}: {reason}");
    }
}
