//! Limits of time, and sleeping.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_host::Error;
use uct_host::cm::{CmEvent, ConnectOptions};

use super::scene::{Client, LIMIT, Scene, Seen};
use super::{Case, CmSetup};

const SHORT: Duration = Duration::from_millis(50);

/// Runs a case with longer and longer limits of a stage, until the machine is fast enough for the stages that have to end within it:
/// `case` returns whether they did. A stage that ends ahead of its limit fails the case itself.
fn with_some_limit(case: impl Fn(Duration) -> bool) {
    let limits = [SHORT, SHORT * 10, SHORT * 100];
    assert!(limits.into_iter().any(case), "a stage took longer than {:?}", limits[2]);
}

fn within(limit: Duration) -> ConnectOptions {
    ConnectOptions { timeout: Some(limit), ..ConnectOptions::default() }
}

fn server_that_does_not_answer(setup: &CmSetup) {
    with_some_limit(|limit| {
        let scene = Scene::new(setup);
        let (_listener, address, inbox) = scene.listen(setup);
        let client = scene.connect(address, &Client { options: within(limit), ..Client::default() });
        scene.until("the time is over", || client.failure().is_some());
        // An address that is not resolved by the limit may be unreachable.
        if matches!(client.log()[..], [Seen::Failed(Error::TIMED_OUT | Error::UNREACHABLE, _)]) {
            return false;
        }
        assert_eq!(client.log(), [Seen::Resolved, Seen::Failed(Error::TIMED_OUT, Vec::new())]);
        drop(scene.request(&inbox));
        scene.linger();
        assert_eq!(client.count(), 2, "nothing follows");
        true
    });
}

fn client_that_does_not_notify(setup: &CmSetup) {
    with_some_limit(|limit| {
        let scene = Scene::new(setup);
        let (_listener, address, inbox) = scene.listen(setup);
        let client = scene.connect(address, &Client { notifies: false, ..Client::default() });
        let failed = Rc::new(Cell::new(None));
        let kept = Rc::clone(&failed);
        let server = scene.request(&inbox).accept(&scene.cm, b"", Some(limit), move |_, event| {
            if let CmEvent::Failed { error, .. } = event {
                kept.set(Some(error));
            }
        });
        scene.until("the time is over", || failed.get().is_some());
        assert_eq!(failed.get(), Some(Error::TIMED_OUT));
        drop(server);
        scene.until("the client learns of the end", || client.count() == 3 || client.failure().is_some());
        client.count() == 3
    });
}

fn time_of_the_application_does_not_count(setup: &CmSetup) {
    with_some_limit(|limit| {
        let scene = Scene::new(setup);
        let (_listener, address, inbox) = scene.listen(setup);
        let (done, is_late) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let begun = Rc::new(Cell::new(Instant::now()));
        let (count, late, stage) = (Rc::clone(&done), Rc::clone(&is_late), Rc::clone(&begun));
        let options = ConnectOptions { timeout: Some(limit), ..setup.options() };
        let ep = scene.cm.connect(address, options, move |_, event| match event {
            CmEvent::Resolved { .. } | CmEvent::Connected { .. } => count.set(count.get() + 1),
            CmEvent::Failed { error: Error::TIMED_OUT | Error::UNREACHABLE, .. }
                if stage.get().elapsed() >= limit =>
            {
                late.set(true)
            }
            other => panic!("{other:?} {:?} after the stage began", stage.get().elapsed()),
        });
        let ep = ep.unwrap();
        scene.until("it is resolved", || done.get() == 1 || is_late.get());
        if is_late.get() {
            return false;
        }
        std::thread::sleep(limit * 2);
        scene.linger();
        begun.set(Instant::now());
        ep.send(b"").expect("the application may take its time");
        scene.until("a request", || !inbox.borrow().is_empty() || is_late.get());
        // Longer than the machine may be busy is the limit of the server's answer now.
        let server = inbox.borrow_mut().pop().map(|request| scene.try_accept(request, b""));
        scene.until("it is connected", || done.get() == 2 || is_late.get());
        drop(server);
        done.get() == 2
    });
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
    let silent = scene.connect(address, &Client { options: within(SHORT), ..Client::default() });
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
