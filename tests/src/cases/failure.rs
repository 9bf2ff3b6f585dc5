//! A peer that dies or stops: one failure is reported in time, outstanding operations end, other endpoints continue.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use uct_host::{
    AmId, Capabilities, Completion, Ep, Error, Flush, IfaceAddress, IfaceOptions, Pending, SendFlags,
};

use super::case;
use crate::access::Way;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Link, Side, poll_until, recorder, retry, wait};
use crate::random::pattern;
use crate::remote::{Peer, Process};
use crate::setup::Setup;

const ID: AmId = AmId::new(16).unwrap();

/// Times after which transports take a silent peer for dead, by the names that they have for it; and how long the suite
/// gives them.
const TIMES: &[(&str, &str)] = &[
    ("keepalive_interval", "300ms"),
    ("keepalive_timeout", "1s"),
    ("connect_timeout", "2s"),
    ("keepidle", "1s"),
    ("keepintvl", "1s"),
    ("keepcnt", "2"),
    ("user_timeout", "2s"),
    ("peer_timeout", "2s"),
];
const IN_TIME: Duration = Duration::from_secs(40);

/// What the case is about: two other processes, one of which goes, while the other has to go on.
struct Three {
    side: Side,
    victim: Process,
    to_victim: Link,
    witness: Process,
    to_witness: Link,
    echoes: Rc<Cell<usize>>,
}

impl Three {
    fn new(setup: &Setup) -> Three {
        for (key, value) in TIMES {
            setup.configure(key, value);
        }
        let side = setup.open(IfaceOptions::default());
        let echoes = Rc::new(Cell::new(0));
        let seen = Rc::clone(&echoes);
        side.iface.set_am_handler(ID, move |_| seen.set(seen.get() + 1));
        let join = || {
            let mut process = Process::start(setup);
            let link = process.peer.connect(&side);
            process.peer.expect("ready", &side);
            (process, link)
        };
        let ((victim, to_victim), (witness, to_witness)) = (join(), join());
        let three = Three { side, victim, to_victim, witness, to_witness, echoes };
        three.echo(&three.to_victim);
        three.echo(&three.to_witness);
        three
    }

    /// Sends a message and waits for its echo.
    fn echo(&self, link: &Link) {
        let wanted = self.echoes.get() + 1;
        send(&self.side, link).unwrap_or_else(|error| panic!("a send: {error}"));
        wait("an echo", || self.side.worker.progress(), || self.echoes.get() >= wanted || failed(link));
        link.check_alive();
    }

    /// Waits for the failure of the endpoint to the victim; it is reported in time, once, and affects no other endpoint.
    fn check(&mut self, since: Instant) {
        let failed_in_time = poll_until(IN_TIME, || self.side.worker.progress(), || failed(&self.to_victim));
        assert!(failed_in_time, "no failure within {:?} of the signal", since.elapsed());
        let error = self.to_victim.failures()[0].error;
        assert!(error != Error::NO_RESOURCE && error != Error::BUSY, "the failure is {error}");
        let reason = self.to_victim.failures()[0].reason.clone();
        assert!(reason.len() > 5, "a failure without a reason: {error}");
        // From now on every operation returns the error.
        let completion = self.side.completion();
        for flavour in Flavour::of(&self.side) {
            let bytes = pattern(1, flavour.limits(self.side.attributes()).0.max(8));
            let answer = flavour.send(&self.side, &self.to_victim, ID, &bytes, &completion);
            let error = answer.expect_err("a send on a failed endpoint");
            assert_ne!(error, Error::NO_RESOURCE, "{flavour:?} on a failed endpoint");
        }
        for way in Way::of(&self.side) {
            let memory = self.side.memory(vec![0; 64]);
            let key = self.side.key_to(&memory);
            let data = vec![1; way.limits(self.side.attributes()).0.max(8)];
            let answer = way.start(&self.side, &self.to_victim, &data, memory.address(), &key).map(drop);
            let error = answer.expect_err("an access on a failed endpoint");
            assert_ne!(error, Error::NO_RESOURCE, "{way:?} on a failed endpoint");
        }
        for _ in 0..5 {
            self.echo(&self.to_witness);
        }
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(300) {
            self.side.worker.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.to_victim.failures().len(), 1, "the error handler is called once");
        self.to_witness.check_alive();
    }

    /// The witness ends well.
    fn end(mut self) {
        self.echo(&self.to_witness);
        self.witness.peer.say("end");
        let side = self.side.clone();
        self.witness.finish(|| side.worker.progress());
        self.side.iface.clear_am_handlers();
    }
}

fn failed(link: &Link) -> bool {
    !link.failures().is_empty()
}

/// Sends a small message by whatever flavour there is.
fn send(side: &Side, link: &Link) -> Result<(), Error> {
    retry("a send", || side.worker.progress(), || try_send(side, link))
}

/// As [`send`], if there is room.
fn try_send(side: &Side, link: &Link) -> Result<(), Error> {
    let flavour = Flavour::of(side)[0];
    let bytes = pattern(2, flavour.limits(side.attributes()).0.max(16));
    flavour.send(side, link, ID, &bytes, &side.completion()).map(drop)
}

/// The other process: echoes messages until it is stopped, or dies.
fn echoing(setup: &Setup, peer: &mut Peer) {
    let side = setup.open(IfaceOptions::default());
    let waiting = Rc::new(Cell::new(0));
    let count = Rc::clone(&waiting);
    side.iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let link = peer.connect(&side);
    peer.say("ready");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(100) {
        side.worker.progress();
        if waiting.get() > 0 && send(&side, &link).is_ok() {
            waiting.set(waiting.get() - 1);
        }
        if peer.poll().is_some() {
            crate::pair::flush(&side.worker, &link, Flush::empty(), || side.worker.progress())
                .expect("a flush");
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn killed_idle(setup: &Setup) {
    let mut three = Three::new(setup);
    let since = Instant::now();
    three.victim.kill();
    three.check(since);
    three.end();
}

fn killed_while_sending(setup: &Setup) {
    let mut three = Three::new(setup);
    let since = Instant::now();
    three.victim.signal(Signal::STOP);
    // It reads nothing more: messages stay in flight, and then there is no room.
    let under_way = Outstanding::new(&three.side, &three.to_victim);
    three.victim.kill();
    three.check(since);
    under_way.check(&three.side, &three.to_victim);
    three.end();
}

/// Operations that a peer leaves undone.
struct Outstanding {
    completion: Completion,
    ended: Rc<RefCell<Vec<uct_host::Result>>>,
    /// Of messages that are sent from where they lie.
    memory: Option<uct_host::Memory>,
    dropped: Rc<Cell<usize>>,
    pending: usize,
}

struct Mark(Rc<Cell<usize>>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

impl Outstanding {
    fn new(side: &Side, link: &Link) -> Outstanding {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let list = Rc::clone(&ended);
        let completion =
            Completion::with_callback(&side.worker, move |result| list.borrow_mut().push(result));
        let size = side.attributes().am.max_zcopy.min(1 << 18);
        let flavours = Flavour::of(side);
        let has_zcopy = side.iface.capabilities().contains(Capabilities::AM_ZCOPY);
        let memory = has_zcopy.then(|| side.memory(pattern(1, size.max(16))));
        let mut refused = 0;
        for _ in 0..20_000 {
            let answer = if let Some(memory) = &memory {
                link.am_zcopy(ID, &[], &[memory.slice(..size)], SendFlags::empty(), &completion).map(drop)
            } else {
                flavours[0].send(side, link, ID, &pattern(1, 64), &completion).map(drop)
            };
            match answer {
                Ok(()) => refused = 0,
                Err(Error::NO_RESOURCE) => refused += 1,
                Err(error) => panic!("a send to a peer that stopped: {error}"),
            }
            side.worker.progress();
            if refused > 50 {
                break;
            }
        }
        let dropped = Rc::new(Cell::new(0));
        let mut pending = 0;
        for _ in 0..5 {
            let mark = Mark(Rc::clone(&dropped));
            let request = move |_: &Ep| {
                let _held = &mark;
                Pending::Wait
            };
            pending += usize::from(link.pending_add(request).is_ok());
        }
        dropped.set(0);
        // Where the device answers for a process that stopped, some have ended already.
        ended.borrow_mut().clear();
        Outstanding { completion, ended, memory, dropped, pending }
    }

    /// All has ended: with an error, if anything was outstanding; the memory is free, and requests are gone.
    fn check(self, side: &Side, link: &Link) {
        wait("the completion", || side.worker.progress(), || self.completion.is_done());
        assert!(self.ended.borrow().len() <= 1, "a completion was called more than once");
        if let Some(memory) = self.memory {
            memory.into_bytes().expect("nothing uses the memory any more");
        }
        link.pending_purge();
        wait("pending requests", || side.worker.progress(), || self.dropped.get() >= self.pending);
        assert_eq!(self.dropped.get(), self.pending, "each pending request is dropped once");
    }
}

fn stopped(setup: &Setup) {
    // Without that key it is the device or the system that answers, also for a process that stopped.
    let limited = setup.configure("keepalive_timeout", "1s");
    let mut three = Three::new(setup);
    let since = Instant::now();
    three.victim.signal(Signal::STOP);
    if limited {
        three.check(since);
    } else {
        // Nothing says how long a peer may be silent: it is waited for, and nothing is lost.
        let sent = (0..20).take_while(|_| try_send(&three.side, &three.to_victim).is_ok()).count();
        assert!(sent > 0, "no room for a single message");
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1500) {
            three.side.worker.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
        three.to_victim.check_alive();
        three.echo(&three.to_witness);
        let wanted = three.echoes.get() + sent;
        three.victim.signal(Signal::CONT);
        wait("the echoes", || three.side.worker.progress(), || three.echoes.get() >= wanted);
    }
    three.end();
}

fn checked(setup: &Setup) {
    let mut three = Three::new(setup);
    let since = Instant::now();
    three.victim.kill();
    let checks = || {
        let completion = three.side.completion();
        let answer = three.to_victim.check(Some(&completion));
        assert!(!matches!(answer, Err(Error::UNSUPPORTED)), "a check that is advertised");
        three.side.worker.progress()
    };
    assert!(poll_until(IN_TIME, checks, || failed(&three.to_victim)), "no check finds the dead peer");
    three.check(since);
    three.end();
}

fn killed_at_connect(setup: &Setup) {
    for (key, value) in TIMES {
        setup.configure(key, value);
    }
    let side = setup.open(IfaceOptions::default());
    let mut process = Process::start(setup);
    // It says where it is, and is gone before anybody comes.
    let packed = process.peer.receive("the address", || side.worker.progress());
    let (address, _) = IfaceAddress::unpack(&packed).expect("an address");
    process.kill();
    if !side.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
        setup.skip("it connects endpoints, whose addresses come from a living peer");
    }
    let (failures, handler) = recorder();
    let ep = match side.iface.connect_with(&address, handler) {
        Ok(ep) => ep,
        Err(refused) => {
            assert!(refused.reason.len() > 5, "no reason: {refused:?}");
            return;
        }
    };
    let link = Link::new(ep, failures);
    let completion = side.completion();
    let flavour = Flavour::of(&side)[0];
    let bytes = pattern(1, flavour.limits(side.attributes()).0.max(8));
    let told = poll_until(
        IN_TIME,
        || {
            let _ = flavour.send(&side, &link, ID, &bytes, &completion);
            side.worker.progress()
        },
        || failed(&link),
    );
    assert!(told, "the peer of a new endpoint is dead, and nobody says so");
    wait("what was sent", || side.worker.progress(), || completion.is_done());
    let reason = &link.failures()[0].reason;
    assert!(reason.len() > 5, "a failure without a reason");
    for _ in 0..200 {
        side.worker.progress();
    }
    assert_eq!(link.failures().len(), 1, "the error handler is called once");
}

const NEEDS: Needs = Needs::all(Capabilities::ERRHANDLE_PEER_FAILURE).and_other_process();

/// A dead peer may be worth a line.
const fn two(name: &'static str, needs: Needs, run: fn(&Setup)) -> Case {
    Case { logs: None, peer: Some(echoing), ..case(name, needs, run) }
}

pub(super) const CASES: &[Case] = &[
    two("an idle peer that is killed fails its endpoint once and no other", NEEDS, killed_idle),
    two(
        "a peer that is killed while sent to fails its endpoint once and ends what is outstanding",
        NEEDS,
        killed_while_sending,
    ),
    two("a peer that is stopped fails in the configured time or is waited for", NEEDS, stopped),
    two(
        "a check finds a dead peer",
        Needs { all: NEEDS.all.union(Capabilities::EP_CHECK), ..NEEDS },
        checked,
    ),
    two("connecting to a peer that is dead fails once with a reason", NEEDS, killed_at_connect),
];
