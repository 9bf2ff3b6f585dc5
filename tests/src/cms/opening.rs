//! Connections that are made.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use rustix::process::{Resource, getrlimit};
use uct_host::cm::{CmEvent, ConnectOptions};
use uct_host::{Error, Posted};

use super::scene::{Client, End, Scene, Seen};
use super::{Case, CmSetup};
use crate::setup::Skipped;

fn limits_are_reported(setup: &CmSetup) {
    let limits = Scene::new(setup).cm.limits();
    // As many as UCX's rdmacm.
    for most in [limits.connect, limits.accept, limits.reject] {
        assert!(most >= 54, "{limits:?}");
    }
}

fn port_is_resolved(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (listener, address, _inbox) = scene.listen(setup);
    assert!(address.ip() == setup.address && address.port() != 0, "{address}");
    let again = scene.cm.listen(address, None, |_| {}).expect_err("the address is in use");
    assert_eq!(again.status, Error::BUSY, "{again}");
    drop(listener);
    scene.cm.listen(address, None, |_| {}).expect("a listener that is gone leaves its port");
}

fn foreign_address_is_no_device(setup: &CmSetup) {
    let foreign: SocketAddr =
        if setup.address.is_ipv4() { "192.0.2.250:0" } else { "[2001:db8::250]:0" }.parse().unwrap();
    let refused = Scene::new(setup).cm.listen(foreign, None, |_| {}).expect_err("it is not of this machine");
    assert_eq!(refused.status, Error::NO_DEVICE, "{refused}");
    assert!(
        refused.to_string().contains("192.0.2.250") || refused.to_string().contains("2001:db8::250"),
        "{refused}"
    );
}

fn open_and_close(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (client, server, _listener) = scene.pair(setup);
    let (own, peer) = client.ep().addresses().expect("addresses");
    assert_eq!(server.ep().addresses(), Ok((peer, own)));
    assert_eq!(client.disconnect(b"done"), Ok(Posted::Done));
    scene.until("the server gets an event", || server.count() == 2);
    assert_eq!(server.last(), Some(scene.disconnected(b"done")));
    assert_eq!(client.count(), 2, "the server has not disconnected");
    assert_eq!(server.disconnect(b"so be it"), Ok(Posted::Done));
    scene.until("the client gets an event", || client.count() == 3);
    assert_eq!(client.last(), Some(scene.disconnected(b"so be it")));
    scene.linger();
    assert_eq!((client.count(), server.count()), (3, 2), "nothing follows");
}

fn private_data_arrive_exactly(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let limits = scene.cm.limits();
    let (_listener, address, inbox) = scene.listen(setup);
    for (connect, accept) in
        [(0, 0), (1, limits.accept), (limits.connect, 1), (limits.connect, limits.accept)]
    {
        let bytes = |length: usize| (0..length).map(|at| at as u8).collect::<Vec<_>>();
        let client = scene.connect(address, &Client { private: bytes(connect), ..Client::default() });
        let request = scene.request(&inbox);
        assert_eq!(request.private(), bytes(connect));
        let server = scene.accept(request, &bytes(accept));
        scene.until("both are connected", || client.count() == 2 && server.count() == 1);
        assert_eq!(client.last(), Some(Seen::Connected(bytes(accept))));
    }
}

fn own_source_address(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let source = setup.source.unwrap_or(setup.any_port());
    let options = ConnectOptions { source: Some(source), ..ConnectOptions::default() };
    let client = scene.connect(address, &Client { options, ..Client::default() });
    let request = scene.request(&inbox);
    assert_eq!((request.peer().ip(), request.local()), (source.ip(), address));
    assert_eq!(client.ep().addresses(), Ok((request.peer(), address)));
}

fn a_device_leads_to_both(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let device = Rc::new(RefCell::new(String::new()));
    let kept = Rc::clone(&device);
    let ep = scene.cm.connect(address, setup.options(), move |ep, event| {
        if let CmEvent::Resolved { device, peer, .. } = event {
            assert_eq!(peer, address);
            device.clone_into(&mut kept.borrow_mut());
            ep.send(b"").unwrap();
        }
    });
    let request = scene.request(&inbox);
    // With a source the devices are two.
    assert_eq!(request.device() == *device.borrow(), setup.source.is_none(), "{}", request.device());
    assert!(!request.device().is_empty());
    drop(ep);
}

fn delayed_accept(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    scene.linger();
    assert_eq!(client.log(), [Seen::Resolved]);
    let server = scene.accept(request, b"late");
    scene.until("both are connected", || client.count() == 2 && server.count() == 1);
    assert_eq!(client.last(), Some(Seen::Connected(b"late".to_vec())));
}

fn accept_inside_the_callback(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let accepted = Rc::new(RefCell::new(Vec::new()));
    let (kept, cm) = (Rc::clone(&accepted), scene.cm.clone());
    let listener = scene.cm.listen(setup.any_port(), None, move |request| {
        kept.borrow_mut().push(request.accept(&cm, b"at once", None, |_, _| {}).unwrap());
    });
    let listener = listener.unwrap();
    let client = scene.connect(listener.address().unwrap(), &Client::default());
    scene.until("it is connected", || client.count() == 2);
    assert_eq!(client.last(), Some(Seen::Connected(b"at once".to_vec())));
    drop(listener);
}

fn many_connections(scene: &Scene, setup: &CmSetup, number: usize) -> (Vec<End>, Vec<End>) {
    let (_listener, address, inbox) = scene.listen(setup);
    let name = |at: usize| Client { private: at.to_le_bytes().to_vec(), ..Client::default() };
    let clients: Vec<End> = (0..number).map(|at| scene.connect(address, &name(at))).collect();
    let mut servers = Vec::new();
    scene.until("all are accepted", || {
        for request in inbox.take() {
            let name = request.private().to_vec();
            servers.push(scene.accept(request, &name));
        }
        servers.len() == number
    });
    scene.until("all are connected", || {
        clients.iter().all(|end| end.count() == 2) && servers.iter().all(|end| end.count() == 1)
    });
    for (at, client) in clients.iter().enumerate() {
        assert_eq!(client.log(), [Seen::Resolved, Seen::Connected(at.to_le_bytes().to_vec())]);
    }
    (clients, servers)
}

fn hundred_connections(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (clients, servers) = many_connections(&scene, setup, 100);
    for client in &clients {
        assert_eq!(client.disconnect(b""), Ok(Posted::Done));
    }
    scene.until("all servers get an event", || servers.iter().all(|end| end.count() == 2));
    drop(servers);
    scene.until("all clients get an event", || clients.iter().all(|end| end.count() == 3));
}

fn storm(setup: &CmSetup) {
    let number = std::env::var("UCT_TEST_CM_STORM").map_or(500, |number| number.parse().expect("a number"));
    // Over sockets each end is a descriptor, and some belong to the process.
    let needed = 2 * number as u64 + 200;
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < needed) {
        let reason =
            format!("{number} connections need {needed} descriptors, and the limit (ulimit -n) is {limit}");
        std::panic::panic_any(Skipped(reason));
    }
    let scene = Scene::new(setup);
    let (mut clients, mut servers) = many_connections(&scene, setup, number);
    clients.iter_mut().chain(&mut servers).for_each(End::destroy);
}

fn own_address_has_no_obstacle(setup: &CmSetup) {
    let found = setup.context(&[]).diagnose_cm(&setup.component, setup.any_port());
    match found {
        Ok(findings) => assert!(findings.iter().all(|finding| finding.obstacle.is_none()), "{findings:?}"),
        Err(refused) => {
            assert!(refused.to_string().contains("UNSUPPORTED"), "{refused}");
            std::panic::panic_any(Skipped("it has no diagnosis".to_owned()));
        }
    }
}

pub(super) const CASES: &[Case] = &[
    ("the limits of private data are reported", limits_are_reported),
    ("port 0 is resolved, an address in use is busy, and is free afterwards", port_is_resolved),
    ("an address of another machine is no device", foreign_address_is_no_device),
    ("a connection is opened and closed, with private data and reasons", open_and_close),
    ("private data of every size arrive exactly", private_data_arrive_exactly),
    ("the source address is the one that was asked for", own_source_address),
    ("both sides know the device", a_device_leads_to_both),
    ("a request is accepted later", delayed_accept),
    ("a request is accepted inside the callback", accept_inside_the_callback),
    ("a hundred connections of one connection manager", hundred_connections),
    ("a storm of connections", storm),
    ("a diagnosis finds no obstacle to an address that works", own_address_has_no_obstacle),
];
