//! The pingpongs of rdma-core, which check their data.

use super::support::{Ended, Libraries, is_installed, succeed, talk, with_variable};

#[test]
fn pingpongs_run_by_polling_and_by_events() {
    if !is_installed("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let libraries = Libraries::new();
    for name in ["ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"] {
        for waits in [&[][..], &["-e"]] {
            let line = [&[name, "-g", "0", "-c", "-n", "200", "-p", "{}"], waits].concat();
            let printed = succeed(&line, |line| libraries.run(&[], line));
            assert!(printed.contains("200 iters"), "{printed}");
            assert!(!printed.contains("invalid data"), "{printed}");
        }
    }
}

#[test]
fn a_pingpong_finds_the_device_by_the_loaders_variables_alone() {
    if !is_installed("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let libraries = Libraries::new();
    let library = libraries.path().join("libibverbs.so.1");
    let line = ["ibv_rc_pingpong", "-d", "soft0", "-g", "0", "-c", "-n", "200", "-p", "{}"];
    for (name, value) in [("LD_LIBRARY_PATH", libraries.path()), ("LD_PRELOAD", &library)] {
        let printed = succeed(&line, |line| with_variable(line, name, value));
        assert!(printed.contains("200 iters") && !printed.contains("invalid data"), "{name}: {printed}");
    }
}

#[test]
fn a_pingpong_ends_over_a_link_that_loses_packets() {
    if !is_installed("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let libraries = Libraries::new();
    let faults = ["--faults", "seed=7 loss=5% duplicate=5% reorder=5%"];
    let line = ["ibv_rc_pingpong", "-g", "0", "-c", "-n", "100", "-p", "{}"];
    let (server, client) = talk(&line, |line| libraries.run(&faults, line));
    let ends = [&server, &client];
    assert!(ends.iter().all(|end| !end.stdout.contains("invalid data")), "{ends:?}");
    // A side ends when it has all messages and acknowledgements. If the last one that it sent was lost, nobody is left who would send another.
    let has_ended = |end: &Ended| end.code == Some(0) && end.stdout.contains("100 iters");
    let is_alone = |end: &Ended| end.stderr.contains("transport retry counter exceeded (12)");
    assert!(ends.iter().any(|end| has_ended(end)), "{ends:?}");
    assert!(ends.iter().all(|end| has_ended(end) || is_alone(end)), "{ends:?}");
}
