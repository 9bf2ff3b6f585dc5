//! A process that knows the address of another one can neither take its place nor keep it out.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{AmId, Ep, Iface, IfaceAddress, Worker};
use uct_shm::testing::{Heard, Intruder, Lair, with_key, with_other_user};

const ID: AmId = AmId::new(7).unwrap();

/// What the other processes do: `honest` counts messages, `impostor` claims to be the honest one.
fn play(role: &str) {
    match role.split_once(' ').expect("a role and its setting") {
        ("honest", transport) => serve(transport),
        ("impostor", _) => pretend(),
        _ => panic!("{role}"),
    }
}

fn serve(transport: &str) {
    let (worker, iface) = open(transport, &[]);
    let count = Rc::new(Cell::new(0u64));
    let received = Rc::clone(&count);
    iface.set_am_handler(ID, move |_| received.set(received.get() + 1));
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    let lines = heard();
    let mut back = None;
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        worker.progress();
        let Ok(line) = lines.try_recv() else { continue };
        match line.split_once(' ') {
            Some(("connect", address)) => {
                let (address, _) = IfaceAddress::unpack(&unhex(address)).expect("an address");
                let ep = iface.connect(&address).expect("a connection");
                until(&worker, || ep.am_short(ID, 0, &[1; 8])).expect("a message");
                back = Some(ep);
                say("connected");
            }
            _ => say(&count.get().to_string()),
        }
    }
    drop(back);
}

/// Lines: the address of whom to deceive, that of whom to be, and the key to show, if another.
fn pretend() {
    let lines = heard();
    let next = || lines.recv_timeout(LIMIT).expect("a line");
    let address = |line: String| IfaceAddress::unpack(&unhex(&line)).expect("an address").0.iface;
    let (victim, mut name) = (address(next()), address(next()));
    let key = next();
    if let Ok(key) = key.parse() {
        name = with_key(&name, key);
    }
    let intruder = Intruder::connect(&victim, None).expect("a connection");
    assert!(intruder.say(&Intruder::hello(&name, &victim, None), &intruder.descriptors()));
    let start = Instant::now();
    let answer = loop {
        match intruder.hear() {
            Heard::Nothing => assert!(start.elapsed() < LIMIT, "no answer"),
            answer => break answer,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    say(&format!("{answer:?}"));
    let _ = lines.recv_timeout(LIMIT);
    drop(intruder);
}

struct Stage {
    worker: Worker,
    iface: Iface,
    received: Rc<Cell<u64>>,
    honest: Peer,
    address: String,
}

impl Stage {
    fn new(test: &str) -> Stage {
        let (worker, iface) = open("posix", &[]);
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let honest = Peer::start(&[], test, "honest posix");
        let address = honest.line();
        Stage { worker, iface, received, honest, address }
    }

    fn own_address(&self) -> String {
        hex(&self.iface.address().expect("an address").pack().expect("it packs"))
    }

    /// Starts a process that claims to be the honest peer, and waits for the response to it.
    fn impostor(&self, test: &str, key: &str) -> (Peer, String) {
        let mut impostor = Peer::start(&[], test, "impostor posix");
        for line in [self.own_address(), self.address.clone(), key.to_owned()] {
            impostor.tell(&line);
        }
        let answer = impostor.line_with(&self.worker);
        self.worker.progress_until(Duration::from_millis(20), || false);
        (impostor, answer)
    }

    fn connect(&self) -> Ep {
        let (address, _) = IfaceAddress::unpack(&unhex(&self.address)).expect("an address");
        self.iface.connect(&address).unwrap_or_else(|error| panic!("the honest peer is kept out: {error}"))
    }

    /// Sends to the honest peer, and sees that it arrives there.
    fn reaches(&mut self, ep: &Ep) {
        for _ in 0..10 {
            until(&self.worker, || ep.am_short(ID, 0, &[2; 8])).expect("the peer lives");
        }
        let start = Instant::now();
        loop {
            self.honest.tell("count");
            let count: u64 = self.honest.line_with(&self.worker).parse().expect("a number");
            if count == 10 {
                return;
            }
            assert!(start.elapsed() < LIMIT, "the honest peer has received {count} messages of 10");
        }
    }
}

#[test]
fn no_peer_receives_what_is_meant_for_another() {
    const TEST: &str = "no_peer_receives_what_is_meant_for_another";
    if let Some(role) = role() {
        return play(&role);
    }
    let mut stage = Stage::new(TEST);
    let (_impostor, _) = stage.impostor(TEST, "its own");
    let ep = stage.connect();
    stage.reaches(&ep);
}

#[test]
fn a_wrong_key_for_a_peer_does_not_keep_that_peer_out() {
    const TEST: &str = "a_wrong_key_for_a_peer_does_not_keep_that_peer_out";
    if let Some(role) = role() {
        return play(&role);
    }
    let mut stage = Stage::new(TEST);
    let (_impostor, _) = stage.impostor(TEST, "12345");
    let ep = stage.connect();
    stage.reaches(&ep);
}

#[test]
fn no_peer_gets_the_ping_pong_line_of_another() {
    const TEST: &str = "no_peer_gets_the_ping_pong_line_of_another";
    if let Some(role) = role() {
        return play(&role);
    }
    // The random numbers of both sides decide whose ping-pong line is used.
    for _ in 0..8 {
        let mut stage = Stage::new(TEST);
        let ep = stage.connect();
        let (_impostor, answer) = stage.impostor(TEST, "its own");
        assert_eq!(answer, "Welcome(0)", "an impostor shares the connection to the honest peer");
        stage.reaches(&ep);
    }
}

#[test]
fn a_peer_that_has_connected_is_answered_over_the_same_connection() {
    const TEST: &str = "a_peer_that_has_connected_is_answered_over_the_same_connection";
    if let Some(role) = role() {
        return play(&role);
    }
    let mut stage = Stage::new(TEST);
    let own = stage.own_address();
    stage.honest.tell(&format!("connect {own}"));
    assert_eq!(stage.honest.line_with(&stage.worker), "connected");
    let received = Rc::clone(&stage.received);
    assert!(stage.worker.progress_until(LIMIT, || received.get() == 1));
    let ep = stage.connect();
    let counters = stage.iface.transport_counters();
    assert!(counters.iter().any(|(name, value)| name == "peers" && *value == 1), "{counters:?}");
    // An impostor that comes later changes nothing.
    let (_impostor, _) = stage.impostor(TEST, "its own");
    stage.reaches(&ep);
    let second = stage.connect();
    until(&stage.worker, || second.am_short(ID, 0, &[])).expect("the peer lives");
}

/// Process numbers are used again: the process with the number of an address can be one of another user.
#[test]
fn a_process_of_another_user_with_the_same_number_is_not_the_peer() {
    const TEST: &str = "a_process_of_another_user_with_the_same_number_is_not_the_peer";
    if let Some(role) = role() {
        return play(&role);
    }
    let mut stage = Stage::new(TEST);
    let (mut other, _) = IfaceAddress::unpack(&unhex(&stage.address)).expect("an address");
    other.iface = with_other_user(&other.iface);
    let is_refused = |stage: &Stage| {
        let refused = stage.iface.connect(&other).map(drop).expect_err("it is connected to");
        assert!(refused.to_string().contains("listens there"), "{refused}");
    };
    is_refused(&stage);
    // Nor is a connection that the peer has made taken for one of that process.
    let own = stage.own_address();
    stage.honest.tell(&format!("connect {own}"));
    assert_eq!(stage.honest.line_with(&stage.worker), "connected");
    is_refused(&stage);
    let ep = stage.connect();
    stage.reaches(&ep);
}

/// Both sides have to choose the same line, also if one of them is of another build.
#[test]
fn of_two_connections_that_cross_the_line_is_that_of_the_side_with_the_larger_number() {
    let process = u64::from(std::process::id());
    // Numbers of interfaces are random: almost all are between these.
    for (number, expected) in [(process << 20, 0), (u64::MAX - process, 1)] {
        let (worker, iface) = open("posix", &[]);
        let own = iface.address().expect("an address").iface;
        let lair = Lair::open(number, false).expect("a listener");
        let (device, address) = lair.address();
        let to = IfaceAddress { transport: "posix".to_owned(), device, iface: address.clone() };
        // Its first connection has number 0, and is named by one more.
        let ep = iface.connect(&to).expect("an endpoint");
        let back = Intruder::connect(&own, None).expect("a connection");
        assert!(back.say(&Intruder::hello(&address, &own, None), &back.descriptors()));
        let start = Instant::now();
        let shares = loop {
            worker.progress();
            match back.hear() {
                Heard::Welcome(shares) => break shares,
                Heard::Nothing => assert!(start.elapsed() < LIMIT, "no answer"),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(shares, expected, "a peer with number {number:#x}");
        drop(ep);
    }
}
