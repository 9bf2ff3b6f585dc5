//! perftest.

use super::support::{Libraries, is_installed, succeed, with_variable};

/// A peer that gets no processor is waited for a minute, where perftest's own value is 1.8 s.
const PATIENT: [&str; 2] = ["-u", "19"];

#[test]
fn each_operation_has_a_latency_and_a_bandwidth() {
    if !is_installed("ib_send_lat", "perftest") {
        return;
    }
    let libraries = Libraries::new();
    let lines: &[&[&str]] = &[
        &["ib_send_lat"],
        &["ib_send_lat", "-e"],
        &["ib_send_lat", "-c", "UD"],
        &["ib_send_bw", "-s", "65536"],
        &["ib_send_bw", "-q", "4", "-s", "262144"],
        &["ib_send_bw", "-c", "UD"],
        &["ib_write_lat"],
        &["ib_write_bw", "-s", "65536"],
        &["ib_read_lat"],
        &["ib_read_bw", "-s", "65536"],
        &["ib_atomic_lat"],
        &["ib_atomic_bw"],
    ];
    for line in lines {
        let line = [line, &PATIENT[..], &["-n", "100", "-p", "{}"]].concat();
        let printed = succeed(&line, |line| libraries.run(&[], line));
        let unit = if line[0].ends_with("_lat") { "t_typical[usec]" } else { "BW average" };
        assert!(printed.contains(unit), "{line:?}: {printed}");
    }
}

/// perftest is linked to drivers of adapters, which import functions of the library, too.
#[test]
fn perftest_finds_the_device_by_the_loaders_variables_alone() {
    if !is_installed("ib_read_bw", "perftest") {
        return;
    }
    let libraries = Libraries::new();
    let library = libraries.path().join("libibverbs.so.1");
    let line = [&["ib_read_bw", "-d", "soft0", "-n", "100", "-p", "{}"], &PATIENT[..]].concat();
    for (name, value) in [("LD_LIBRARY_PATH", libraries.path()), ("LD_PRELOAD", &library)] {
        let printed = succeed(&line, |line| with_variable(line, name, value));
        assert!(printed.contains("BW average"), "{name}: {printed}");
    }
}
