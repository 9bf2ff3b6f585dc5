//! Several workers, threads and processes.

use std::sync::mpsc;

use uct_host::Error;
use uct_host::cm::Request;

use super::scene::{Client, End, LIMIT, Scene, Seen};
use super::{Case, CmSetup};

fn several_workers(setup: &CmSetup) {
    let server = Scene::new(setup);
    let (_listener, address, inbox) = server.listen(setup);
    let scenes: Vec<Scene> = (0..8).map(|_| Scene::new(setup)).collect();
    let connect =
        |scene: &Scene| (0..16).map(|_| scene.connect(address, &Client::default())).collect::<Vec<_>>();
    let clients: Vec<End> = scenes.iter().flat_map(connect).collect();
    let mut servers = Vec::new();
    server.until("all are connected", || {
        for scene in &scenes {
            scene.worker.progress();
        }
        servers.extend(inbox.take().into_iter().map(|request| server.accept(request, b"")));
        servers.len() == clients.len()
            && servers.iter().all(|end| end.count() == 1)
            && clients.iter().all(|end| end.count() == 2)
    });
}

fn accept_on_another_worker(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (listener, address, inbox) = scene.listen(setup);
    let (give, requests) = mpsc::channel::<Request>();
    let other = setup.clone();
    let thread = std::thread::spawn(move || {
        let here = Scene::new(&other);
        let ends: Vec<End> = requests.iter().map(|request| here.accept(request, b"elsewhere")).collect();
        here.until("all are notified and disconnected", || ends.iter().all(|end| end.count() == 2));
        for end in &ends {
            assert_eq!(end.log(), [Seen::Notified, here.disconnected(b"bye")]);
        }
    });
    let clients: Vec<End> = (0..10).map(|_| scene.connect(address, &Client::default())).collect();
    for _ in &clients {
        give.send(scene.request(&inbox)).expect("the thread takes it");
    }
    drop((give, listener));
    scene.until("all are connected", || clients.iter().all(|end| end.count() == 2));
    for client in &clients {
        assert_eq!(client.last(), Some(Seen::Connected(b"elsewhere".to_vec())));
        client.disconnect(b"bye").expect("it is connected");
    }
    thread.join().expect("the other worker ends well");
}

fn reject_in_another_thread(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    std::thread::spawn(move || request.reject(b"from afar")).join().unwrap().expect("the client is notified");
    scene.until("the client is rejected", || client.count() == 2);
    assert_eq!(client.last(), Some(Seen::Failed(Error::REJECTED, b"from afar".to_vec())));
}

fn child_is_refused(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (listener, address, inbox) = scene.listen(setup);
    let (client, server, other) = scene.pair(setup);
    let waiting = scene.connect(address, &Client::default());
    let request = scene.request(&inbox);
    let everything = (scene, listener, client, server, request);
    let (scene, _listener, client, server, request) = crate::cases::in_child(everything, |all| {
        let (scene, listener, client, _, request) = all;
        let Scene { cm, worker, .. } = scene;
        crate::log::take();
        assert_eq!(worker.progress(), 0);
        crate::log::take();
        assert!(worker.open_cm(cm.component()).is_err());
        assert!(cm.listen(address, None, |_| {}).is_err());
        assert!(cm.connect(address, Default::default(), |_, _| {}).is_err());
        let refused = Error::INVALID_PARAM;
        assert_eq!((client.disconnect(b""), client.ep().notify()), (Err(refused), Err(refused)));
        let _ = (listener, request);
        // All of it is dropped as this ends.
    });
    let accepted = scene.accept(request, b"still there");
    scene.until("the parent goes on", || waiting.count() == 2 && accepted.count() == 1);
    client.disconnect(b"bye").expect("it is connected");
    scene.until("the server gets an event", || server.count() == 2);
    assert_eq!(server.last(), Some(scene.disconnected(b"bye")));
    drop(other);
    let again = scene.connect(address, &Client::default());
    let end = scene.accept(scene.request(&inbox), b"");
    assert!(scene.worker.progress_until(LIMIT, || again.count() == 2 && end.count() == 1), "it listens on");
}

pub(super) const CASES: &[Case] = &[
    ("many clients of several workers", several_workers),
    ("requests are accepted on another worker, in another thread", accept_on_another_worker),
    ("a request is rejected in another thread", reject_in_another_thread),
    ("a child of a fork is refused, and the parent goes on", child_is_refused),
];
