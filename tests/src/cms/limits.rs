//! Limits of time, and sleeping.

use std::time::Duration;

use uct_core::Error;
use uct_core::cm::{CmEvent, ConnectOptions};

use super::scene::{Client, LIMIT, Scene, Seen};
use super::{Case, CmSetup};

const SHORT: Option<Duration> = Some(Duration::from_millis(50));

fn server_that_does_not_answer(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let options = ConnectOptions { timeout: SHORT, ..ConnectOptions::default() };
    let client = scene.connect(address, &Client { options, ..Client::default() });
    let request = scene.request(&inbox);
    scene.until("the time is over", || client.count() == 2);
    assert_eq!(client.log(), [Seen::Resolved, Seen::Failed(Error::TIMED_OUT, Vec::new())]);
    drop(request);
    scene.linger();
    assert_eq!(client.count(), 2, "nothing follows");
}

fn client_that_does_not_notify(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let client = scene.connect(address, &Client { notifies: false, ..Client::default() });
    let failed = std::rc::Rc::new(std::cell::Cell::new(None));
    let kept = std::rc::Rc::clone(&failed);
    let server = scene.request(&inbox).accept(&scene.cm, b"", SHORT, move |_, event| {
        if let CmEvent::Failed { error, .. } = event {
            kept.set(Some(error));
        }
    });
    scene.until("the time is over", || failed.get().is_some());
    assert_eq!(failed.get(), Some(Error::TIMED_OUT));
    drop(server);
    scene.until("the client learns of the end", || client.count() == 3);
}

fn time_of_the_application_does_not_count(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    let options = ConnectOptions { timeout: SHORT, ..ConnectOptions::default() };
    let resolved = std::rc::Rc::new(std::cell::Cell::new(0));
    let kept = std::rc::Rc::clone(&resolved);
    let ep = scene.cm.connect(address, options, move |_, event| {
        assert!(matches!(event, CmEvent::Resolved { .. } | CmEvent::Connected { .. }), "{event:?}");
        kept.set(kept.get() + 1);
    });
    let ep = ep.unwrap();
    scene.until("it is resolved", || resolved.get() == 1);
    std::thread::sleep(SHORT.unwrap() * 2);
    scene.linger();
    ep.send(b"").expect("the application may take its time");
    let request = scene.request(&inbox);
    // Longer than the machine may be busy is the limit of the server's answer now.
    let server = scene.accept(request, b"");
    scene.until("it is connected", || resolved.get() == 2);
    drop(server);
}

fn sleepers_are_woken(setup: &CmSetup) {
    let scene = Scene::new(setup);
    let (_listener, address, inbox) = scene.listen(setup);
    while scene.worker.progress() > 0 {}
    assert_eq!(
        scene.worker.wait(Duration::ZERO),
        Ok(false),
        "an idle connection manager lets the worker sleep"
    );
    let client = scene.connect(address, &Client::default());
    let mut server = None;
    // Each step wakes the worker: were one lost, the wait would last.
    while server.is_none() || client.count() < 2 {
        assert_eq!(scene.worker.wait(LIMIT), Ok(true), "{:?}", client.log());
        scene.worker.progress();
        if let Some(request) = inbox.borrow_mut().pop() {
            server = Some(scene.accept(request, b""));
        }
    }
    let options = ConnectOptions { timeout: SHORT, ..ConnectOptions::default() };
    let silent = scene.connect(address, &Client { options, ..Client::default() });
    while silent.failure().is_none() {
        assert_eq!(scene.worker.wait(LIMIT), Ok(true), "a deadline wakes, too");
        scene.worker.progress();
    }
}

pub(super) const CASES: &[Case] = &[
    ("a server that does not answer is out of time", server_that_does_not_answer),
    ("a client that does not notify is out of time", client_that_does_not_notify),
    ("the time of the application does not count", time_of_the_application_does_not_count),
    ("a sleeping worker is woken by each event and each deadline", sleepers_are_woken),
];
