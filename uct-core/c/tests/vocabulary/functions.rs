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
fn a_line_of_the_log_has_the_reason_of_each_operation_that_is_refused() {
    let Some(program) = Program::compile("tests/programs/functions.c") else { return };
    let mut command = program.command();
    let output = command.args(["posix", "memory"]).env("UCT_LOG_LEVEL", "debug").output().expect("it runs");
    let log = String::from_utf8_lossy(&output.stderr);
    for reason in [
        "posix/memory: am_short of",
        "posix/memory: INVALID_PARAM: 32 is no id of an active message; they are below 32",
        "posix/memory: INVALID_PARAM: iov is a vector of 1000 entries; at most 64 are possible",
        "posix/memory: INVALID_PARAM: pack_cb is NULL",
        "posix/memory: INVALID_PARAM: the memory of a vector is not registered with the domain of the interface",
        "posix/memory: INVALID_PARAM: the remote key is 0 or UCT_INVALID_RKEY",
    ] {
        assert!(log.contains(reason), "{reason} is not in:\n{log}");
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
