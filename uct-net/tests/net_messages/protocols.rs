//! Protocols of libraries on the engine: their state under its lock, turns, delivery straight from the transport, and sends that never wait.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{self, LIMIT, context, transports};
use uct_conformance::in_child;
use uct_core::{Access, Completion, MemoryKind, Posted};
use uct_net::local::Connection;
use uct_net::protocol::{Credit, Engine, Fragment, Installed, Protocol, Sink};
use uct_net::{Error, Net, NetOptions};

/// A protocol that keeps what arrives, and sends what is queued.
struct Peer {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    connection: RefCell<Option<Connection>>,
    /// Whether credit is held back.
    holds: Cell<bool>,
    /// Credit that is held.
    held: Cell<u32>,
    arrived: RefCell<Vec<(Vec<u8>, bool)>>,
    queued: RefCell<Vec<Vec<u8>>>,
    is_blocked: Cell<bool>,
    ended: RefCell<Vec<Error>>,
    memory: RefCell<Option<uct_core::Memory>>,
}

struct ToPeer(Weak<Inner>);

impl Sink for ToPeer {
    fn deliver(&self, fragment: &Fragment<'_>) -> Credit {
        let Some(inner) = self.0.upgrade() else { return Credit::Returned };
        let mut bytes = vec![0; fragment.len()];
        fragment.read(0, &mut bytes);
        inner.arrived.borrow_mut().push((bytes, fragment.is_last()));
        if !inner.holds.get() {
            return Credit::Returned;
        }
        inner.held.set(inner.held.get() + fragment.credit());
        Credit::Held
    }

    fn writable(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.is_blocked.set(false);
        }
    }

    fn ended(&self, reason: Error) {
        if let Some(inner) = self.0.upgrade() {
            inner.ended.borrow_mut().push(reason);
        }
    }
}

impl Inner {
    fn open(self: &Rc<Inner>, connection: Connection) {
        assert!(connection.deliver_to(Rc::new(ToPeer(Rc::downgrade(self)))));
        *self.connection.borrow_mut() = Some(connection);
    }
}

impl Protocol for Peer {
    fn turn(&self, _engine: &Engine) -> bool {
        let inner = &self.inner;
        let connection = inner.connection.borrow();
        let Some(connection) = &*connection else { return false };
        let mut has_sent = false;
        let mut queued = inner.queued.borrow_mut();
        while !inner.is_blocked.get() && !queued.is_empty() {
            let message = &queued[0];
            let (head, rest) = message.split_at(message.len().min(16));
            let (first, second) = rest.split_at(rest.len() / 3);
            match connection.try_send(head, &[first, second]) {
                Ok(true) => {
                    queued.remove(0);
                    has_sent = true;
                }
                Ok(false) => inner.is_blocked.set(true),
                Err(_) => queued.clear(),
            }
        }
        has_sent
    }
}

type Side = (Net, Installed<Peer>);

fn installed(net: &Net) -> Installed<Peer> {
    // SAFETY: what the protocol and its sink share is reached through the protocol alone.
    unsafe { Installed::new(net, |_engine| Peer { inner: Rc::default() }) }.expect("installed")
}

/// Two nets with a protocol each, connected over a transport. The first one has listened, in a future of its protocol.
fn sides(transport: &str, options: &NetOptions) -> (Side, Side) {
    let [left, right] = [(); 2].map(|()| {
        let net = Net::new(&context(), options.clone()).expect("a net");
        let installed = installed(&net);
        (net, installed)
    });
    let (sender, address) = mpsc::channel();
    left.1
        .with(|peer, engine| {
            let (inner, net) = (Rc::clone(&peer.inner), engine.net().clone());
            engine.spawn(async move {
                let mut listener = net.listen("127.0.0.1:0").await.expect("it listens");
                sender.send(listener.address()).expect("asked for");
                let incoming = listener.accept().await.expect("a caller");
                assert_eq!(incoming.private(), b"who calls");
                inner.open(incoming.accept().await.expect("a connection"));
            });
        })
        .expect("spawned");
    let (address, transport) = (address.recv_timeout(LIMIT).expect("an address"), transport.to_owned());
    right
        .1
        .with(|peer, engine| {
            let (inner, net) = (Rc::clone(&peer.inner), engine.net().clone());
            engine.spawn(async move {
                let connect = net.connect(address).require(transport).private(b"who calls".to_vec());
                inner.open(connect.await.expect("a connection"));
            });
        })
        .expect("spawned");
    for (_net, side) in [&left, &right] {
        wait(side, |inner| inner.connection.borrow().is_some());
    }
    (left, right)
}

/// Waits until something holds, without making progress: the net's own thread does.
fn wait(side: &Installed<Peer>, holds: impl Fn(&Inner) -> bool + Send + Sync) {
    let begun = Instant::now();
    while !side.with(|peer, _engine| holds(&peer.inner)).expect("in this process") {
        assert!(begun.elapsed() < LIMIT, "it never holds");
        side.rest().expect("in this process");
        thread::sleep(Duration::from_millis(1));
    }
}

fn message(number: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64 * 7 + number) as u8).collect()
}

#[test]
fn fragments_come_in_order_and_whole_while_no_program_thread_makes_progress() {
    for transport in transports() {
        let (left, right) = sides(&transport, &support::patient());
        let fragment =
            right.1.with(|peer, _engine| peer.inner.connection.borrow().as_ref().expect("open").fragment());
        let fragment = fragment.expect("in this process");
        let lengths = [0, 1, 16, 90, 120, 1000, fragment / 2, fragment];
        let sent: Vec<_> =
            (0..200_u64).map(|number| message(number, lengths[number as usize % lengths.len()])).collect();
        let queued = sent.clone();
        right.1.with(|peer, _engine| peer.inner.queued.replace(queued)).expect("queued");
        wait(&left.1, |inner| inner.arrived.borrow().len() == 200);
        let arrived = left.1.with(|peer, _engine| peer.inner.arrived.take()).expect("in this process");
        for (number, ((bytes, is_last), sent)) in arrived.into_iter().zip(sent).enumerate() {
            assert!(is_last && bytes == sent, "message {number} over {transport}");
        }
        wait(&right.1, |inner| inner.connection.borrow().as_ref().is_some_and(Connection::has_left));
    }
}

impl Inner {
    fn connection(&self) -> Connection {
        self.connection.borrow().clone().expect("open")
    }
}

/// A value of the protocol's, now.
fn get<R: Send>(side: &Installed<Peer>, get: impl FnOnce(&Inner) -> R + Send) -> R {
    side.with(|peer, _engine| get(&peer.inner)).expect("in this process")
}

#[test]
fn a_sink_that_holds_credit_stops_its_sender_until_it_releases_it() {
    const WINDOW: u32 = 16_384;
    const COUNT: usize = 200;
    for transport in transports() {
        let options = NetOptions { window: WINDOW, ..support::patient() };
        let (left, right) = sides(&transport, &options);
        get(&left.1, |inner| inner.holds.set(true));
        let messages: Vec<_> = (0..COUNT as u64).map(|number| message(number, 1000)).collect();
        get(&right.1, |inner| drop(inner.queued.replace(messages.clone())));
        // The sender stops, and what has left it has arrived: less than a window, and most of it.
        wait(&right.1, |inner| inner.is_blocked.get() && !inner.queued.borrow().is_empty());
        let sent = COUNT - get(&right.1, |inner| inner.queued.borrow().len());
        wait(&left.1, |inner| inner.arrived.borrow().len() == sent);
        let held = get(&left.1, |inner| inner.held.get());
        assert!(held <= WINDOW && held > WINDOW - 2 * 1064, "{held} over {transport}");
        assert!(get(&right.1, |inner| inner.is_blocked.get()));
        // More than it holds is not released.
        get(&left.1, |inner| {
            inner.holds.set(false);
            inner.connection().release(inner.held.take() + 5000);
        });
        wait(&left.1, |inner| inner.arrived.borrow().len() == COUNT);
        let arrived = get(&left.1, |inner| inner.arrived.take());
        assert!(arrived.iter().zip(&messages).all(|((bytes, _), sent)| bytes == sent), "over {transport}");
        assert!(get(&right.1, |inner| inner.ended.borrow().is_empty()), "over {transport}");
    }
}

#[test]
fn an_end_is_told_once_with_its_reason_after_what_arrived_before() {
    type Ends = fn(&Inner);
    let ends: [(Ends, &str); 2] = [
        (|inner| inner.connection().abort("as the test says"), "as the test says"),
        (|inner| drop(inner.connection.take()), "the peer closed the connection"),
    ];
    for transport in transports() {
        for (end, reason) in ends {
            let (left, right) = sides(&transport, &support::patient());
            get(&right.1, |inner| {
                assert!(inner.connection().try_send(b"ahead", &[b" of it"]).expect("open"));
                end(inner);
            });
            wait(&left.1, |inner| !inner.ended.borrow().is_empty());
            let arrived = get(&left.1, |inner| inner.arrived.take());
            assert_eq!(arrived, [(b"ahead of it".to_vec(), true)], "over {transport}");
            get(&left.1, |inner| {
                let sent = inner.connection().try_send(b"too late", &[]);
                assert!(sent.is_err(), "{sent:?} over {transport}");
            });
            drop(right);
            for _ in 0..100 {
                left.1.progress().expect("in this process");
            }
            let told = get(&left.1, |inner| inner.ended.take());
            assert_eq!(told.len(), 1, "{told:?} over {transport}");
            assert!(told[0].to_string().contains(reason), "{} over {transport}", told[0]);
            assert_eq!(told[0].is_closed_by_peer(), reason.contains("closed"));
        }
    }
}

#[test]
fn what_had_arrived_and_what_others_send_go_to_the_sink_in_fragments() {
    for transport in transports() {
        let (left, right) = sides(&transport, &support::patient());
        // A second connection, whose messages wait for a sink.
        let (sender, address) = mpsc::channel();
        let (first, second) = (message(1, 700), message(2, 3_000_000));
        let expected = [first.clone(), second.clone(), b"last".to_vec()];
        left.1
            .with(|peer, engine| {
                let (inner, net) = (Rc::clone(&peer.inner), engine.net().clone());
                engine.spawn(async move {
                    let mut listener = net.listen("127.0.0.1:0").await.expect("it listens");
                    sender.send(listener.address()).expect("asked for");
                    let connection =
                        listener.accept().await.expect("a caller").accept().await.expect("accepted");
                    assert_eq!(&*connection.recv().await.expect("a message"), b"go");
                    net.sleep(Duration::from_millis(20)).await;
                    inner.open(connection);
                });
            })
            .expect("spawned");
        let (address, transport_name) = (address.recv_timeout(LIMIT).expect("an address"), transport.clone());
        right
            .1
            .with(|_peer, engine| {
                let net = engine.net().clone();
                engine.spawn(async move {
                    let connection = net.connect(address).require(transport_name).await.expect("connected");
                    connection.send(b"go").await.expect("sent");
                    for message in [&first[..], &second, b"last"] {
                        connection.send(message).await.expect("sent");
                    }
                    connection.closed().await;
                });
            })
            .expect("spawned");
        let has_all =
            |inner: &Inner| inner.arrived.borrow().iter().filter(|(_, is_last)| *is_last).count() == 3;
        wait(&left.1, has_all);
        let (mut messages, mut begun) = (Vec::new(), Vec::new());
        for (bytes, is_last) in get(&left.1, |inner| inner.arrived.take()) {
            begun.extend(bytes);
            if is_last {
                messages.push(std::mem::take(&mut begun));
            }
        }
        assert!(messages == expected, "over {transport}");
    }
}

#[test]
fn threads_that_poll_at_once_serve_each_message_once() {
    const COUNT: u64 = 500;
    for transport in transports() {
        let (left, right) = sides(&transport, &support::patient());
        let (left, right) = (Arc::new(left), Arc::new(right));
        let threads: Vec<_> = [&left, &right, &left, &right]
            .into_iter()
            .map(|side| {
                let side = Arc::clone(side);
                thread::spawn(move || {
                    let begun = Instant::now();
                    while get(&side.1, |inner| (inner.arrived.borrow().len() as u64) < COUNT) {
                        side.1.progress().expect("in this process");
                        assert!(begun.elapsed() < LIMIT, "messages are missing");
                    }
                })
            })
            .collect();
        for side in [&left, &right] {
            for number in 0..COUNT {
                get(&side.1, |inner| inner.queued.borrow_mut().push(message(number, 300)));
            }
        }
        for thread in threads {
            thread.join().expect("a thread");
        }
        for side in [&left, &right] {
            let arrived = get(&side.1, |inner| inner.arrived.take());
            let expected: Vec<_> = (0..COUNT).map(|number| (message(number, 300), true)).collect();
            assert!(arrived == expected, "over {transport}");
        }
    }
}

#[test]
fn a_message_beyond_a_fragment_is_refused_and_the_connection_goes_on() {
    let (left, right) = sides("tcp/lo", &NetOptions { window: 4096, ..support::patient() });
    get(&right.1, |inner| {
        let connection = inner.connection();
        let longest = connection.fragment();
        assert!(longest < 4096, "{longest} bytes never have credit");
        let error = connection.try_send(b"x", &[&vec![0; longest]]).expect_err("too long");
        assert_eq!(error.status, uct_core::Error::INVALID_PARAM, "{error}");
        assert!(connection.try_send(&[], &[&vec![7; longest]]).expect("open"));
        assert!(!connection.deliver_to(Rc::new(ToPeer(Weak::new()))), "it has a sink");
    });
    wait(&left.1, |inner| inner.arrived.borrow().len() == 1);
}

#[test]
fn futures_are_woken_by_timers_and_threads_and_outlive_one_that_panics() {
    #[derive(Default)]
    struct Mailbox {
        word: Option<&'static str>,
        waker: Option<Waker>,
    }
    let net = Net::new(&context(), support::patient()).expect("a net");
    let side = installed(&net);
    let (sender, heard) = mpsc::channel();
    let mailbox = Arc::new(Mutex::new(Mailbox::default()));
    let own = Arc::clone(&mailbox);
    side.with(move |_peer, engine| {
        engine.spawn(async { panic!("planted") });
        let net = engine.net().clone();
        let inner = engine.clone();
        engine.spawn(async move {
            net.sleep(Duration::from_millis(1)).await;
            sender.send("slept").expect("heard");
            let word = std::future::poll_fn(|context| {
                let mut mailbox = own.lock().expect("whole");
                mailbox.waker = Some(context.waker().clone());
                mailbox.word.take().map_or(Poll::Pending, Poll::Ready)
            });
            let word = word.await;
            inner.spawn(async move { sender.send(word).expect("heard") });
        });
    })
    .expect("spawned");
    assert_eq!(heard.recv_timeout(LIMIT), Ok("slept"));
    // The net's thread sleeps by now, or not.
    thread::sleep(Duration::from_millis(5));
    let waker = {
        let mut mailbox = mailbox.lock().expect("whole");
        mailbox.word = Some("woken");
        mailbox.waker.take()
    };
    waker.expect("it waits").wake();
    assert_eq!(heard.recv_timeout(LIMIT), Ok("woken"));
    // All of them have ended.
    assert_eq!(heard.recv_timeout(LIMIT), Err(mpsc::RecvTimeoutError::Disconnected));
}

/// Notes its drop.
struct Noted(Arc<Mutex<Vec<&'static str>>>, &'static str);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.lock().expect("whole").push(self.1);
    }
}

struct Parts(#[expect(dead_code, reason = "dropped only")] Noted);

impl Protocol for Parts {
    fn turn(&self, _engine: &Engine) -> bool {
        panic!("planted: the engine goes on without it");
    }
}

#[test]
fn futures_are_dropped_ahead_of_their_protocol_and_both_ahead_of_the_net() {
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let net = Net::new(&context(), support::patient()).expect("a net");
    let (state, left, added) =
        (Noted(Arc::clone(&dropped), "state"), Noted(Arc::clone(&dropped), "left"), Arc::clone(&dropped));
    // SAFETY: nothing of it is reached elsewhere but by a mutex.
    let made = unsafe {
        Installed::new(&net, move |engine| {
            let own = engine.clone();
            engine.spawn(async move {
                let _left = left;
                // One that is added while the others are dropped is dropped as well.
                let _added = Adds(own, added);
                std::future::pending::<()>().await;
            });
            Parts(state)
        })
    };
    let side = made.expect("installed");
    for _ in 0..10 {
        side.progress().expect("in this process");
    }
    drop(net);
    assert!(dropped.lock().expect("whole").is_empty());
    drop(side);
    let begun = Instant::now();
    while dropped.lock().expect("whole").len() < 3 {
        assert!(begun.elapsed() < LIMIT, "{dropped:?}");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(*dropped.lock().expect("whole"), ["added", "left", "state"]);
}

struct Adds(Engine, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Adds {
    fn drop(&mut self) {
        let added = Noted(Arc::clone(&self.1), "added");
        self.0.spawn(async move { drop(added) });
    }
}

#[test]
fn a_child_of_a_fork_is_refused_and_drops_it_without_harm() {
    let (left, right) = sides("tcp/lo", &support::patient());
    let (left, right) = in_child((left, right), |(left, _right)| {
        let error = left.1.progress().expect_err("the engine is the parent's");
        assert!(error.to_string().contains("before the process forked"), "{error}");
        drop(left.1.with(|_peer, _engine| ()).expect_err("as above"));
    });
    get(&right.1, |inner| drop(inner.queued.replace(vec![message(1, 10)])));
    wait(&left.1, |inner| inner.arrived.borrow().len() == 1);
}

#[test]
fn memory_of_the_peer_is_read_where_the_lane_does_that_by_itself() {
    const LENGTH: usize = 100_000;
    let mut is_anywhere = false;
    for transport in transports() {
        let (left, right) = sides(&transport, &support::patient());
        let source = message(3, LENGTH);
        let key = get(&right.1, |inner| {
            let place = inner.connection().in_place()?.clone();
            let address = NonNull::from(&source[..]).cast::<u8>();
            // SAFETY: the bytes outlive the nets, and peers only read them.
            let memory =
                unsafe { place.domain.register_raw(address, LENGTH, Access::REMOTE_GET, MemoryKind::Host) };
            let memory = memory.expect("registered");
            let key = (memory.packed_key().expect("a key"), memory.address());
            // Registered until the connection goes.
            inner.memory.replace(Some(memory));
            Some(key)
        });
        let Some((key, address)) = key else { continue };
        is_anywhere = true;
        let mut target = vec![0_u8; LENGTH];
        let is_done = Arc::new(Mutex::new(None));
        let place = NonNull::from(&mut target[..]).cast::<u8>().as_ptr().expose_provenance();
        left.1
            .with(|peer, engine| {
                let connection = peer.inner.connection();
                let lane = connection.in_place().expect("as the peer's");
                let place = NonNull::new(std::ptr::with_exposed_provenance_mut(place)).expect("a place");
                // SAFETY: the bytes are this operation's until it has ended.
                let memory =
                    unsafe { lane.domain.register_raw(place, LENGTH, Access::empty(), MemoryKind::Host) };
                let memory = memory.expect("registered");
                let key = lane.domain.unpack(&key).expect("a key of the peer's");
                let done = Arc::clone(&is_done);
                let completion = Completion::with_callback(engine.net().worker(), move |result| {
                    *done.lock().expect("whole") = Some(result);
                });
                let step = (*lane.sizes.end()).min(LENGTH);
                let mut posted = Posted::Done;
                for start in (0..LENGTH).step_by(step) {
                    let slice = memory.slice(start..LENGTH.min(start + step));
                    let read =
                        connection.endpoint().get_zcopy(&[slice], address + start as u64, &key, &completion);
                    if read.expect("posted") == Posted::InProgress {
                        posted = Posted::InProgress;
                    }
                }
                posted.notify(&completion);
            })
            .expect("in this process");
        let begun = Instant::now();
        while is_done.lock().expect("whole").is_none() {
            assert!(begun.elapsed() < LIMIT, "it does not end over {transport}");
            left.1.rest().expect("in this process");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(*is_done.lock().expect("whole"), Some(Ok(())), "over {transport}");
        drop((left, right));
        assert!(target == source, "over {transport}");
    }
    assert!(is_anywhere || transports().iter().all(|name| name.starts_with("tcp") || name.starts_with("ud")));
}
