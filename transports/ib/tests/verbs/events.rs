//! Asynchronous events and what changes with them.

use std::process::Command;
use std::time::Instant;

use uct_ib::verbs::AsyncEvent;
use uct_ib::{EventListener, IbError, PortAddress, PortPreferences};

use crate::library::is_skipped_in_software;
use crate::support::{PATIENCE, devices, open};

fn link(state: &str) {
    let status = Command::new("ip").args(["link", "set", "eth0", state]).status().expect("ip runs");
    assert!(status.success());
}

fn wait_for(listener: &EventListener, wanted: AsyncEvent) {
    let deadline = Instant::now() + PATIENCE;
    while listener.next() != Some(wanted) {
        assert!(Instant::now() < deadline, "no {wanted:?} in {PATIENCE:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn every_listener_learns_that_the_link_went_down_and_up() {
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("it follows no network device") {
        return;
    }
    let device = open(&names[0]);
    let listeners =
        [device.events.listen().expect("a listener"), device.events.listen().expect("a listener")];
    link("down");
    for listener in &listeners {
        wait_for(listener, AsyncEvent::PortDown(1));
    }
    let error =
        PortAddress::new(&device.context, 1, PortPreferences::default()).expect_err("the port is down");
    assert!(matches!(error, IbError::PortDown { .. }), "{error}");
    link("up");
    for listener in &listeners {
        wait_for(listener, AsyncEvent::PortActive(1));
        // A link that settles may be announced more than once.
        while let Some(event) = listener.next() {
            assert_eq!(event, AsyncEvent::PortActive(1));
        }
    }
    // The address comes back, perhaps at another index: the choice is by what it is.
    let deadline = Instant::now() + PATIENCE;
    loop {
        match PortAddress::new(&device.context, 1, PortPreferences::default()) {
            Ok(port) if port.gid.entry.is_assigned && port.gid.entry.gid.is_ipv4() => break,
            _ => assert!(Instant::now() < deadline, "the address did not come back"),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_new_address_is_found_and_explained() {
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("its address stays") {
        return;
    }
    let device = open(&names[0]);
    let before = PortAddress::new(&device.context, 1, PortPreferences::default()).expect("a port");
    assert_eq!(before.gid.entry.gid.to_string(), "::ffff:10.7.0.1");
    assert_eq!(before.gid.reason, "RoCE v2, not link-local, an address of eth0");
    assert!(before.gid.rejected.iter().any(|line| line.contains("link-local")), "{:?}", before.gid.rejected);
    let ip = |action: &str| {
        let status = Command::new("ip")
            .args(["addr", action, "10.9.0.1/24", "dev", "eth0"])
            .status()
            .expect("ip runs");
        assert!(status.success());
    };
    ip("add");
    let table = || {
        let port = uct_ib::Port::query(&device.context, 1).expect("a port");
        uct_ib::gid::read_table(&device.context, &port).expect("a table")
    };
    let has_new =
        || table().iter().any(|entry| entry.gid.to_string() == "::ffff:10.9.0.1" && entry.is_assigned);
    let deadline = Instant::now() + PATIENCE;
    while !has_new() {
        assert!(Instant::now() < deadline, "the new address is not in the table");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    ip("del");
}
