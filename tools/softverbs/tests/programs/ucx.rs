//! UCX's measuring program, over its own verbs transports.

use super::support::{Libraries, is_installed, succeed};

#[test]
fn the_transports_of_ucx_use_the_device() {
    if !is_installed("ucx_perftest", "ucx-utils") {
        return;
    }
    let libraries = Libraries::new();
    let lines: &[&[&str]] = &[
        &["-x", "rc_verbs", "-t", "am_lat"],
        &["-x", "rc_verbs", "-t", "am_bw", "-D", "zcopy", "-s", "8192"],
        &["-x", "rc_verbs", "-t", "put_lat"],
        &["-x", "rc_verbs", "-t", "get", "-D", "bcopy"],
        &["-x", "rc_verbs", "-t", "add_lat"],
        &["-x", "rc_verbs", "-t", "fadd"],
        &["-x", "rc_verbs", "-t", "cswap"],
        &["-x", "ud_verbs", "-t", "am_lat"],
        &["-x", "ud_verbs", "-t", "am_bw", "-D", "zcopy", "-s", "2048"],
    ];
    for line in lines {
        let line = [&["ucx_perftest", "-d", "soft0:1", "-n", "100", "-w", "10", "-p", "{}"], *line].concat();
        let printed = succeed(&line, |line| libraries.run(&[], line));
        assert!(printed.contains("Final:"), "{line:?}: {printed}");
    }
}
