//! Metrics of a process that forks: the child neither serves them nor closes the socket of its parent.

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use uct_conformance::in_child;
use uct_core::Context;
use uct_core::configuration::Sources;

fn context(address: &str) -> Context {
    let sources = Sources::default().set("prometheus", address).set("modules", "self");
    Context::builder().sources(sources).build().expect("a context")
}

/// The process that serves metrics there.
fn process_at(address: SocketAddr) -> u32 {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is sent");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let (_, rest) = response.split_once("uct_process_info{pid=\"").expect("its process");
    rest.split('"').next().and_then(|pid| pid.parse().ok()).expect("a number")
}

/// Waits until this process has so many sockets: a server closes those of its clients a moment after them.
fn wait_for_sockets(count: usize) {
    let is_socket = |target: &PathBuf| target.to_string_lossy().starts_with("socket:");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let open = fs::read_dir("/proc/self/fd").expect("its descriptors").flatten();
        let sockets: Vec<_> = open.filter_map(|it| fs::read_link(it.path()).ok()).filter(is_socket).collect();
        if sockets.len() == count {
            return;
        }
        assert!(Instant::now() < deadline, "{sockets:?} and not {count}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_child_neither_serves_nor_closes_the_socket_of_its_parent() {
    let own = std::process::id();
    let parent = context("127.0.0.1:0");
    let address = parent.prometheus_address().expect("it is bound");
    assert_eq!(process_at(address), own);
    wait_for_sockets(1);
    let parent = in_child(RefCell::new(Some(parent)), |parent| {
        let same = context(&address.to_string());
        assert_eq!(same.prometheus_address(), None, "the address is the parent's");
        assert_eq!(process_at(address), own);
        // As the parent asked for.
        let child = context("127.0.0.1:0");
        let elsewhere = child.prometheus_address().expect("it is bound");
        assert_ne!(elsewhere, address, "the server is the parent's");
        assert_eq!(process_at(elsewhere), std::process::id());
        drop(child);
        drop(parent.take());
        wait_for_sockets(0);
    });
    assert_eq!(process_at(address), own, "the child has closed it");
    drop(parent);
    assert!(TcpStream::connect(address).is_err(), "it listens after its context has gone");
}
