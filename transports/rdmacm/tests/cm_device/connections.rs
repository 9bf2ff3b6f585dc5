//! Connections from begin to end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::cm::ConnectOptions;
use uct_core::{Error, Posted, Worker};

use crate::support::{PATIENCE, Told, net};

#[test]
fn both_sides_exchange_private_data_and_disconnect() {
    let Some(net) = net() else { return };
    let limits = net.client.cm.limits();
    assert_eq!((limits.connect, limits.accept, limits.reject, limits.disconnect), (54, 194, 146, 0));
    let listening = net.listen();
    // Zeros at the end are data.
    let (hello, welcome) = ([7, 0].repeat(limits.connect / 2), [9, 0].repeat(limits.accept / 2));
    let client = net.connect(listening.address(), &hello);
    let request = net.request(&listening);
    assert_eq!(request.private(), hello);
    assert_eq!(request.local(), listening.address());
    assert!(request.device().starts_with("mlx5_"), "{}", request.device());
    let caller = request.peer();
    let server = net.accept(request, &welcome);
    let Told::Resolved(local, peer, device) = net.told(&client) else { panic!("not resolved") };
    assert_eq!((local, peer), (caller, listening.address()));
    assert_eq!(device, "mlx5_0:1");
    assert_eq!(net.told(&client), Told::Connected(welcome));
    assert_eq!(net.told(&server), Told::Notified);
    assert_eq!(client.ep.addresses(), Ok((local, peer)));
    assert_eq!(server.ep.addresses(), Ok((peer, local)));

    assert_eq!(server.ep.disconnect(b""), Ok(Posted::Done));
    assert_eq!(server.ep.disconnect(b""), Ok(Posted::InProgress));
    assert_eq!(net.told(&client), Told::Disconnected(None));
    assert!(server.told.borrow().is_empty(), "the client has not disconnected yet");
    assert_eq!(client.ep.disconnect(b""), Ok(Posted::Done));
    assert_eq!(client.ep.disconnect(b""), Err(Error::NOT_CONNECTED));
    assert_eq!(net.told(&server), Told::Disconnected(None));
    assert_eq!(server.ep.disconnect(b""), Err(Error::NOT_CONNECTED));
}

#[test]
fn calls_out_of_turn_have_their_status() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let client = net.call(listening.address(), ConnectOptions::default());
    assert_eq!(client.ep.send(b""), Err(Error::BUSY));
    assert_eq!(client.ep.notify(), Err(Error::BUSY));
    assert_eq!(client.ep.disconnect(b""), Err(Error::BUSY));
    net.resolved(&client);
    assert_eq!(client.ep.send(&[0; 55][..]), Err(Error::EXCEEDS_LIMIT));
    assert_eq!(client.ep.send(b"once"), Ok(()));
    assert_eq!(client.ep.send(b"twice"), Err(Error::INVALID_PARAM));
    assert_eq!(client.ep.notify(), Err(Error::BUSY));
    // Later is as good as at once.
    let request = net.request(&listening);
    net.idle(Duration::from_millis(300));
    let server = net.accept(request, b"");
    assert_eq!(server.ep.disconnect(b""), Err(Error::BUSY));
    assert_eq!(net.told(&client), Told::Connected(Vec::new()));
    net.idle(Duration::from_millis(300));
    assert!(server.told.borrow().is_empty(), "the client has not notified yet");
    assert_eq!(client.ep.notify(), Ok(()));
    assert_eq!(net.told(&server), Told::Notified);
    assert_eq!(client.ep.notify(), Err(Error::INVALID_PARAM));
    assert_eq!(server.ep.notify(), Err(Error::INVALID_PARAM));
}

#[test]
fn a_client_that_never_notified_may_disconnect() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let client = net.ask(listening.address(), ConnectOptions::default());
    let server = net.accept(net.request(&listening), b"");
    net.resolved(&client);
    assert_eq!(net.told(&client), Told::Connected(Vec::new()));
    assert_eq!(client.ep.disconnect(b""), Ok(Posted::Done));
    assert_eq!(net.told(&server), Told::Notified);
    assert_eq!(net.told(&server), Told::Disconnected(None));
    drop(server);
    assert_eq!(net.told(&client), Told::Disconnected(None));
}

#[test]
fn an_end_that_is_destroyed_disconnects_its_peer() {
    let Some(net) = net() else { return };
    let (_listening, client, server) = net.connected();
    drop(client);
    assert_eq!(net.told(&server), Told::Disconnected(None));
    let (_listening, client, server) = net.connected();
    drop(server);
    assert_eq!(net.told(&client), Told::Disconnected(None));
}

#[test]
fn a_connection_outlives_its_listener() {
    let Some(net) = net() else { return };
    let (listening, client, server) = net.connected();
    drop(listening);
    net.idle(Duration::from_millis(100));
    assert_eq!(client.ep.disconnect(b""), Ok(Posted::Done));
    assert_eq!(net.told(&server), Told::Disconnected(None));
}

#[test]
fn a_request_is_accepted_by_another_thread() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let client = net.connect(listening.address(), b"to whom it concerns");
    let request = net.request(&listening);
    let context = net.server.worker.context().clone();
    let other = std::thread::spawn(move || {
        let worker = Worker::new(&context).expect("a worker");
        let cm = worker.open_cm("rdmacm").expect("a connection manager");
        let told = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&told);
        let ep = request
            .accept(&cm, b"elsewhere", None, move |_, event| kept.borrow_mut().push_back(Told::of(event)))
            .expect("accepted");
        let deadline = Instant::now() + PATIENCE;
        while told.borrow().len() < 2 && Instant::now() < deadline {
            worker.progress();
        }
        drop(ep);
        told.take()
    });
    net.resolved(&client);
    assert_eq!(net.told(&client), Told::Connected(b"elsewhere".to_vec()));
    client.ep.disconnect(b"").expect("connected");
    assert_eq!(other.join().expect("no panic"), [Told::Notified, Told::Disconnected(None)]);
    assert_eq!(net.told(&client), Told::Disconnected(None));
}

#[test]
fn many_connections_come_and_go_at_once() {
    const MANY: usize = 64;
    let Some(net) = net() else { return };
    let listening = net.listen();
    for round in 0..2 {
        let clients: Vec<_> =
            (0..MANY).map(|number| net.connect(listening.address(), &[number as u8, round])).collect();
        let mut servers = Vec::new();
        while servers.len() < MANY {
            let request = net.request(&listening);
            let private = request.private().to_vec();
            servers.push(net.accept(request, &private));
        }
        for (number, client) in clients.iter().enumerate() {
            net.resolved(client);
            assert_eq!(net.told(client), Told::Connected(vec![number as u8, round]));
        }
        for server in &servers {
            assert_eq!(net.told(server), Told::Notified);
        }
        for client in &clients {
            assert_eq!(client.ep.disconnect(b""), Ok(Posted::Done));
        }
        for server in &servers {
            assert_eq!(net.told(server), Told::Disconnected(None));
            assert_eq!(server.ep.disconnect(b""), Ok(Posted::Done));
        }
        for client in &clients {
            assert_eq!(net.told(client), Told::Disconnected(None));
        }
    }
}
