//! Each function of the vocabulary, over transports of one process.

use crate::program::{Program, has_plugin};
use crate::skip::skip;

#[test]
fn each_function_does_over_self_posix_and_tcp_what_programs_expect() {
    let Some(program) = Program::compile("tests/programs/functions.c") else { return };
    for (transport, device) in [("self", "memory"), ("posix", "memory"), ("tcp", "lo")] {
        let printed = program.run(&[transport, device]);
        assert!(printed.ends_with("done\n"), "{transport}: {printed}");
    }
}

#[test]
fn each_function_does_the_same_over_a_verbs_device_in_software() {
    let Some(program) = Program::compile("tests/programs/functions.c") else { return };
    for transport in ["rc_verbs", "ud_verbs"] {
        if has_plugin(transport) {
            let printed = program.run(&[transport, "soft0:1"]);
            assert!(printed.ends_with("done\n"), "{transport}: {printed}");
        }
    }
}

#[test]
fn callbacks_close_what_is_in_use() {
    let Some(program) = Program::compile("tests/programs/closing.c") else { return };
    for (transport, device) in [("self", "memory"), ("posix", "memory"), ("tcp", "lo")] {
        let printed = program.run(&[transport, device]);
        assert!(printed.ends_with("done\n"), "{transport}: {printed}");
    }
}

#[test]
fn ucxs_library_is_used_beside_it_in_one_process() {
    let Some(program) = Program::compile("tests/programs/beside_ucx.c") else { return };
    let printed = program.run(&[]);
    if printed.starts_with("no library") {
        return skip("ucx-utils", format_args!("{printed}: install ucx-utils"));
    }
    assert!(printed.ends_with("done\n"), "{printed}");
}
