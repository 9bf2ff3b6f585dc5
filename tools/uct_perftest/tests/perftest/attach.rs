//! A running `uct_perftest` is seen from outside if it was asked to permit that, and only then.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::port::free_port;
use crate::support::process::start;
use crate::support::{perftest, server};
use uct_core::attach::{AttachError, IfaceReport, Snapshot, read};

/// Whether a process has the thread that serves clients.
fn has_thread(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads.flatten().any(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim_end() == "uct-attach")
    })
}

/// The interface that carries the test.
fn busy(snapshot: &Snapshot) -> Option<&IfaceReport> {
    let reports = snapshot.workers.iter().filter_map(|worker| worker.report.as_ref());
    reports.flat_map(|report| &report.interfaces).find(|iface| iface.received > 100)
}

#[test]
fn a_running_test_is_seen_and_its_counts_grow() {
    let port = free_port();
    let off = server(port, "");
    let line =
        format!("-p {port} localhost -x tcp -d lo -t am_lat -n 1000000000 -f --timeout 90 --set attach=yes");
    let mut client = start(&mut perftest(&line));
    let deadline = Instant::now() + Duration::from_secs(60);
    let first = loop {
        if let Ok(snapshot) = read(client.id())
            && let Some(iface) = busy(&snapshot)
        {
            break iface.clone();
        }
        assert!(Instant::now() < deadline, "it is not seen: {:?}", read(client.id()));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((first.transport.as_str(), first.device.as_str()), ("tcp", "lo"));
    assert!(first.is_driven && first.endpoints > 0 && first.failed == 0, "{first:?}");
    assert!(
        first.counters.iter().any(|counter| counter.name == "connections" && counter.value > 0),
        "{first:?}"
    );
    std::thread::sleep(Duration::from_millis(100));
    let second = read(client.id()).expect("it still runs");
    assert!(busy(&second).expect("its interface").received > first.received, "{second:?}");
    assert!(has_thread(client.id()));

    // Its peer was not asked to.
    assert!(!has_thread(off.id()), "off is without a thread");
    let error = read(off.id()).expect_err("it permits nothing");
    assert!(
        matches!(&error, AttachError::NotEnabled { searched, .. } if searched.iter().all(|it| !it.exists())),
        "{error}"
    );

    let pid = client.id();
    client.kill();
    client.end();
    assert!(matches!(read(pid), Err(AttachError::NoProcess { .. })), "{:?}", read(pid));
}
