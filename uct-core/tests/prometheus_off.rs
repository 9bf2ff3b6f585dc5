//! The key `prometheus` without a value costs nothing, and without the feature it is refused. The only test of its program that makes
//! contexts, so that no other thread has sockets.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uct_core::configuration::Sources;
use uct_core::{Context, Worker};

const LIMIT: Duration = Duration::from_secs(20);

/// The sockets and the threads of this process.
fn sockets_and_threads() -> (BTreeSet<PathBuf>, usize) {
    let open = fs::read_dir("/proc/self/fd").expect("its descriptors").flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let sockets = targets.filter(|target| target.to_string_lossy().starts_with("socket:")).collect();
    (sockets, fs::read_dir("/proc/self/task").expect("its threads").count())
}

fn build(address: &str) -> Result<Context, String> {
    let sources = Sources::default().set("modules", "self").set("prometheus", address);
    Context::builder().sources(sources).build().map_err(|error| error.to_string())
}

#[test]
fn without_an_address_there_is_neither_a_thread_nor_a_socket() {
    let before = sockets_and_threads();
    let off = build("").expect("a context");
    let _worker = Worker::new(&off).expect("a worker");
    assert_eq!(sockets_and_threads(), before);

    let on = build("127.0.0.1:0");
    if !cfg!(feature = "prometheus") {
        let error = on.expect_err("the feature is missing");
        assert!(
            error.contains("prometheus = ") && error.contains("the feature `prometheus` of uct-core"),
            "{error}"
        );
        assert_eq!(sockets_and_threads(), before);
        return;
    }
    let on = on.expect("a context");
    let (sockets, threads) = sockets_and_threads();
    assert_eq!((sockets.len(), threads), (before.0.len() + 1, before.1 + 1));
    drop(on);
    // Its thread, which may have the socket, ends by itself; each does, however soon it is stopped.
    (0..100).for_each(|_| drop(build("127.0.0.1:0").expect("a context")));
    let since = Instant::now();
    while sockets_and_threads() != before {
        assert!(since.elapsed() < LIMIT, "{:?} in place of {before:?}", sockets_and_threads());
        sleep(Duration::from_millis(1));
    }
}
