//! Protocols of libraries on the engine: their state under its lock, turns, delivery straight from the transport, and sends that never wait.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{self, LIMIT, context, transports};
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
    turns: Cell<u64>,
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
        inner.turns.set(inner.turns.get() + 1);
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
