//! Connections that end, calls out of turn, and what callbacks may do.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use uct_host::cm::{CmEp, CmEvent};
use uct_host::{Error, Posted};

use super::scene::{Client, Scene, Seen};
use super::{Case, CmSetup};

fn codes_of_disconnect(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client { notifies: false, ..Client::default() });
    assert_eq!(client.disconnect(b""), Err(Error::BUSY), "it is being resolved");
    let request = scene.request(&inbox);
    assert_eq!(client.disconnect(b""), Err(Error::BUSY), "it is not answered");
    let server = scene.accept(request, b"");
    scene.until("the client is connected", || client.count() == 2);
    assert_eq!(server.disconnect(b""), Err(Error::BUSY), "it is not notified");
    client.ep().notify().unwrap();
    scene.until("the server is notified", || server.count() == 1);
    assert_eq!(server.disconnect(b"why"), Ok(Posted::Done));
    assert_eq!(server.disconnect(b"why"), Ok(Posted::InProgress));
    scene.until("the client gets an event", || client.count() == 3);
    assert_eq!(client.last(), Some(scene.disconnected(b"why")));
    assert_eq!(server.disconnect(b"why"), Ok(Posted::InProgress), "the client has not disconnected");
    assert_eq!(client.disconnect(b""), Ok(Posted::Done), "the response");
    assert_eq!(client.disconnect(b""), Err(Error::NOT_CONNECTED));
    scene.until("the server gets an event", || server.count() == 2);
    assert_eq!(server.disconnect(b""), Err(Error::NOT_CONNECTED));
}

fn both_disconnect(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (client, server, _listener) = scene.pair(setup);
    assert_eq!(client.disconnect(b"one"), Ok(Posted::Done));
    assert_eq!(server.disconnect(b"two"), Ok(Posted::Done));
    scene.until("both get an event", || client.count() == 3 && server.count() == 2);
    for end in [&client, &server] {
        assert_eq!(end.disconnect(b""), Err(Error::NOT_CONNECTED));
    }
}

fn calls_out_of_turn(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let seen = Rc::new(Cell::new(0));
    let kept = Rc::clone(&seen);
    let client = scene.cm.connect(address, setup.options(), move |_, _| kept.set(kept.get() + 1));
    let client = client.unwrap();
    assert_eq!((client.send(b""), client.notify()), (Err(Error::BUSY), Err(Error::BUSY)));
    assert_eq!(client.addresses(), Err(Error::BUSY));
    scene.until("it is resolved", || seen.get() == 1);
    let most = scene.cm.limits().connect;
    assert_eq!(client.send(&vec![0; most + 1][..]), Err(Error::EXCEEDS_LIMIT));
    assert_eq!(client.send(b"once"), Ok(()), "what was too long has sent nothing");
    assert_eq!((client.send(b"twice"), client.notify()), (Err(Error::INVALID_PARAM), Err(Error::BUSY)));
    let server = scene.accept(scene.request(&inbox), b"");
    assert_eq!(server.ep().send(b""), Err(Error::INVALID_PARAM));
    assert_eq!(server.ep().notify(), Err(Error::INVALID_PARAM));
    scene.until("it is connected", || seen.get() == 2);
    assert_eq!((client.notify(), client.notify()), (Ok(()), Err(Error::INVALID_PARAM)));
    let most = scene.cm.limits().disconnect;
    assert_eq!(client.disconnect(&vec![0; most + 1]), Err(Error::EXCEEDS_LIMIT));
    scene.until("the server is notified", || server.count() == 1);
    let too_long = |most: usize| vec![0; most + 1];
    let _other = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    assert_eq!(request.reject(&too_long(scene.cm.limits().reject)), Err(Error::EXCEEDS_LIMIT));
    let other = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    let refused = request.accept(&scene.cm, &too_long(scene.cm.limits().accept)[..], None, |_, _| {});
    assert_eq!(refused.map(drop).expect_err("too long").status, Error::EXCEEDS_LIMIT);
    scene.until("a request is consumed also by an error", || other.failure() == Some(Error::REJECTED));
}

fn server_destroyed(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (client, mut server, _listener) = scene.pair(setup);
    server.destroy();
    scene.until("the client gets an event", || client.count() == 3);
    assert_eq!(client.last(), Some(Seen::Disconnected(Vec::new())));
    scene.linger();
    assert_eq!((client.count(), server.count()), (3, 1));
}

fn destroyed_at_any_time(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    // One whose client vanished before it notified gets its event at the deadline, so that all are waited for together.
    let mut servers = Vec::new();
    for rounds in 0..60 {
        let mut client = scene.connect(address, &Client::default());
        let mut server = None;
        for _ in 0..rounds {
            scene.worker.progress();
            if let Some(request) = inbox.borrow_mut().pop() {
                // It may be one of a client that is gone already.
                server = scene.try_accept(request, b"yes").ok().or(server);
            }
        }
        let had = client.count();
        client.destroy();
        scene.worker.progress();
        assert_eq!(client.count(), had, "no event is reported after the end");
        servers.extend(server);
    }
    for mut server in servers {
        scene.until("the server gets an event", || {
            matches!(server.last(), Some(Seen::Disconnected(_) | Seen::Lost | Seen::Failed(..)))
        });
        server.destroy();
    }
    scene.linger();
    inbox.take();
    let client = scene.connect(address, &Client::default());
    let server = scene.accept(scene.request(&inbox), b"");
    scene.until("it goes on", || client.count() == 2 && server.count() == 1);
}

fn destroyed_inside_its_callback(setup: &CmSetup) {
    for at in 1..=3 {
        let scene = Scene::new(setup);
        let (listener, address, inbox) = scene.listen(setup);
        let (count, own) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None::<CmEp>)));
        let (kept, place) = (Rc::clone(&count), Rc::clone(&own));
        let ep = scene.cm.connect(address, setup.options(), move |ep, event| {
            kept.set(kept.get() + 1);
            match event {
                CmEvent::Resolved { .. } => ep.send(b"").unwrap(),
                CmEvent::Connected { .. } => ep.notify().unwrap(),
                _ => {}
            }
            if kept.get() == at {
                place.take();
            }
        });
        *own.borrow_mut() = Some(ep.unwrap());
        let mut server = None;
        scene.until("the callback", || {
            if let Some(request) = inbox.borrow_mut().pop() {
                server = request.accept(&scene.cm, b"", None, |_, _| {}).ok();
            }
            if count.get() == 2 && at == 3 {
                server = None;
            }
            count.get() == at
        });
        drop((listener, server));
        scene.linger();
        assert_eq!(count.get(), at, "nothing follows");
    }
}

fn panic_in_a_callback(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let ep = scene.cm.connect(address, setup.options(), |_, _| panic!("the application's")).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| scene.until("the panic", || false)));
    let words = outcome.expect_err("the panic arrives");
    assert_eq!(words.downcast_ref::<&str>(), Some(&"the application's"));
    let client = scene.connect(address, &Client::default());
    let server = scene.accept(scene.request(&inbox), b"");
    scene.until("others go on", || client.count() == 2 && server.count() == 1);
    drop(ep);
}

fn closed_with_all_that_it_has(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    let Scene { worker, cm, .. } = scene;
    drop((cm, client));
    // A request outlives all.
    drop(worker);
    drop((inbox, _listener));
    let _ = request.reject(b"late");
}

pub(super) const CASES: &[Case] = &[
    ("disconnect answers by the state", codes_of_disconnect),
    ("both sides disconnect at once", both_disconnect),
    ("calls out of turn are refused and change nothing", calls_out_of_turn),
    ("a server that is destroyed disconnects", server_destroyed),
    ("an end is destroyed at any time, and no event is reported afterwards", destroyed_at_any_time),
    ("an end is destroyed inside its callback", destroyed_inside_its_callback),
    ("a panic in a callback reaches progress, and the rest goes on", panic_in_a_callback),
    ("a request outlives listener, connection manager and worker", closed_with_all_that_it_has),
];
