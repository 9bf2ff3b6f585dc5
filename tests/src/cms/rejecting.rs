//! Connections that are not made.

use std::net::SocketAddr;

use uct_host::Error;
use uct_host::cm::ConnectOptions;

use super::scene::{Client, End, Scene, Seen};
use super::{Case, CmSetup};
use crate::setup::Skipped;

fn rejected(data: &[u8]) -> Vec<Seen> {
    vec![Seen::Resolved, Seen::Failed(Error::REJECTED, data.to_vec())]
}

fn reject(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let most = vec![9; scene.cm.limits().reject];
    for data in [&b""[..], b"no", &most] {
        let client = scene.connect(address, &Client::default());
        scene.request(&inbox).reject(data).expect("the client is notified");
        scene.until("the client is rejected", || client.count() == 2);
        assert_eq!(client.log(), rejected(data));
        assert_eq!(client.disconnect(b""), Err(Error::NOT_CONNECTED));
    }
}

fn dropped_request(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client::default());
    drop(scene.request(&inbox));
    scene.until("the client is rejected", || client.count() == 2);
    assert_eq!(client.log(), rejected(b""));
}

fn reject_stress(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let clients: Vec<End> = (0..200).map(|_| scene.connect(address, &Client::default())).collect();
    scene.until("all are rejected", || {
        for request in inbox.take() {
            request.reject(b"no").expect("the client is notified");
        }
        clients.iter().all(|client| client.count() == 2)
    });
    assert!(clients.iter().all(|client| client.log() == rejected(b"no")));
}

fn delayed_reject(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    scene.linger();
    request.reject(b"late").expect("the client is notified");
    scene.until("the client is rejected", || client.count() == 2);
    assert_eq!(client.log(), rejected(b"late"));
}

fn nobody_listens(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (listener, address, _inbox) = scene.listen(setup);
    drop(listener);
    let client = scene.connect(address, &Client::default());
    scene.until("it fails", || client.failure().is_some());
    // An address may be resolved apart from the program that listens there.
    assert!(
        client.log()[..client.count() - 1].iter().all(|seen| *seen == Seen::Resolved),
        "{:?}",
        client.log()
    );
    assert_eq!(client.last(), Some(Seen::Failed(Error::NOT_CONNECTED, Vec::new())));
    assert_eq!(client.ep().send(b""), Err(Error::NOT_CONNECTED));
}

fn another_port(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, _address, inbox) = scene.listen(setup);
    let (gone, elsewhere, _) = scene.listen(setup);
    drop(gone);
    let client = scene.connect(elsewhere, &Client::default());
    scene.until("it fails", || client.failure().is_some());
    assert_eq!(client.failure(), Some(Error::NOT_CONNECTED));
    assert!(inbox.borrow().is_empty());
}

fn no_port_and_no_host(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let refused = scene.cm.connect(setup.any_port(), ConnectOptions::default(), |_, _| {});
    assert_eq!(refused.map(drop).expect_err("port 0").status, Error::INVALID_ADDR);
}

fn foreign_source(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let source = if setup.address.is_ipv4() { "192.0.2.250:0" } else { "[2001:db8::250]:0" }.parse().unwrap();
    let options = ConnectOptions { source: Some(source), ..ConnectOptions::default() };
    let refused =
        scene.cm.connect(address, options, |_, _| {}).map(drop).expect_err("it is not of this machine");
    // The application's mistake, not one of the network.
    assert!([Error::NO_DEVICE, Error::INVALID_ADDR].contains(&refused.status), "{refused}");
    assert!(inbox.borrow().is_empty());
}

fn unreachable(setup: &CmSetup) {
    let (ended, outcome) = std::sync::mpsc::channel();
    // The source address is not part of that network.
    let setup = CmSetup { source: None, ..setup.clone() };
    let alone = move || {
        // A network of its own for this thread, without routes: nothing leaves the machine.
        // SAFETY: it concerns this thread alone, which owns nothing of the network yet.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return ended.send(Err("only root makes a network namespace".to_owned()));
        }
        let scene = Scene::new(&setup);
        let there: SocketAddr =
            if setup.address.is_ipv4() { "192.0.2.1:7" } else { "[2001:db8::1]:7" }.parse().unwrap();
        let client = scene.connect(there, &Client::default());
        scene.until("it fails", || client.count() == 1);
        ended.send(Ok(client.failure()))
    };
    let thread = std::thread::spawn(alone);
    let outcome = outcome.recv();
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).expect("the outcome is taken");
    match outcome.expect("the thread tells") {
        Ok(failure) => assert_eq!(failure, Some(Error::UNREACHABLE)),
        Err(reason) => std::panic::panic_any(Skipped(reason)),
    }
}

fn client_gone(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    for accepts in [true, false, true] {
        let mut client = scene.connect(address, &Client::default());
        let request = scene.request(&inbox);
        client.destroy();
        scene.linger();
        if !accepts {
            // Whether the peer can be notified depends on the system; the request is consumed.
            let _ = request.reject(b"no");
            continue;
        }
        // At once, or as a failure.
        let failed = std::rc::Rc::new(std::cell::Cell::new(None));
        let kept = std::rc::Rc::clone(&failed);
        match request.accept(&scene.cm, b"", None, move |_, event| {
            if let uct_host::cm::CmEvent::Failed { error, .. } = event {
                kept.set(Some(error));
            }
        }) {
            Err(refused) => assert_eq!(refused.status, Error::CONNECTION_RESET, "{refused}"),
            Ok(_ep) => {
                scene.until("the server fails", || failed.get().is_some());
                assert_eq!(failed.get(), Some(Error::CONNECTION_RESET));
            }
        }
        assert_eq!(client.log(), [Seen::Resolved], "no event is reported after the end");
    }
    let client = scene.connect(address, &Client::default());
    let server = scene.accept(scene.request(&inbox), b"");
    scene.until("the listener goes on", || client.count() == 2 && server.count() == 1);
}

fn listener_gone(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (listener, address, inbox) = scene.listen(setup);
    let clients: Vec<End> = (0..20).map(|_| scene.connect(address, &Client::default())).collect();
    let first = scene.request(&inbox);
    drop(listener);
    let had = inbox.borrow().len();
    let server = scene.accept(first, b"still");
    scene.until("all have an answer", || {
        // Requests that were reported stay valid.
        for request in inbox.take() {
            request.reject(b"closed").expect("the client is notified");
        }
        server.count() == 1 && clients.iter().all(|client| client.count() == 2 || client.failure().is_some())
    });
    let connected = clients.iter().filter(|it| it.last() == Some(Seen::Connected(b"still".to_vec()))).count();
    let rejections = clients.iter().filter(|it| it.log() == rejected(b"closed")).count();
    assert_eq!((connected, rejections), (1, had), "no request is reported afterwards");
    let others = clients.iter().filter(|it| matches!(it.failure(), Some(error) if error != Error::REJECTED));
    assert_eq!(others.count(), clients.len() - 1 - had);
}

pub(super) const CASES: &[Case] = &[
    ("a request is rejected, with private data", reject),
    ("a request that is dropped is rejected", dropped_request),
    ("two hundred requests are rejected", reject_stress),
    ("a request is rejected later", delayed_reject),
    ("where no program listens it is not connected", nobody_listens),
    ("on another port it is not connected", another_port),
    ("an address without a port is refused", no_port_and_no_host),
    ("a source address of another machine is refused", foreign_source),
    ("an address without a route is unreachable", unreachable),
    ("a client that is gone ahead of the answer fails the server alone", client_gone),
    ("a listener is closed while requests come", listener_gone),
];
