//! perftest.

use super::support::{Libraries, is_installed, succeed};

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
        &["ib_send_bw", "-c", "UD"],
        &["ib_write_lat"],
        &["ib_write_bw", "-s", "65536"],
        &["ib_read_lat"],
        &["ib_read_bw", "-s", "65536"],
        &["ib_atomic_lat"],
        &["ib_atomic_bw"],
    ];
    for line in lines {
        let line = [line, &["-n", "100", "-p", "{}"][..]].concat();
        let printed = succeed(&line, |line| libraries.run(&[], line));
        let unit = if line[0].ends_with("_lat") { "t_typical[usec]" } else { "BW average" };
        assert!(printed.contains(unit), "{line:?}: {printed}");
    }
}
