//! Honest callers beside attackers that call by rdma_cm from the same address, in all places of a listener and before it, and do not go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{LAST, Raw, RawEvent};
use crate::support::rdmacm::{CM, Machine, devices, machine, pair};
use crate::support::{LIMIT, patient};
use uct_core::Context;
use uct_core::cm::{CmData, CmEp};
use uct_net::NetOptions;

/// Places of callers that the listener has not returned yet, and attackers at a time: some are in the places, others wait.
const PLACES: usize = 8;
const HELD: usize = 3 * PLACES;
/// Callers that are served meanwhile.
const HONEST: usize = 20;
/// From one attacker that takes the place of another to the next: a busy machine has time for a handshake before as many have come as there
/// are places.
const PAUSE: Duration = Duration::from_millis(50);

/// What attackers do, in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    /// They do not confirm the connection that the listener has accepted.
    HalfOpen,
    /// They say nothing over it.
    Silent,
    /// They send the beginning of a frame.
    Begun,
}

const STOPS: [Stop; 3] = [Stop::HalfOpen, Stop::Silent, Stop::Begun];

/// One that calls.
struct Attacker {
    raw: Raw,
    ep: CmEp,
    stop: Stop,
    has_called: bool,
}

impl Attacker {
    /// False: its connection is over.
    fn goes_on(&mut self) -> bool {
        while let Some(event) = { self.raw.events.borrow_mut().pop_front() } {
            let done = match event {
                RawEvent::Resolved => {
                    self.has_called = true;
                    let private = self.raw.private_data();
                    self.ep.send(CmData { private: &private, token: self.raw.token() }).is_ok()
                }
                RawEvent::Connected(_) if self.stop == Stop::HalfOpen => true,
                RawEvent::Connected(private) => {
                    let token = self.raw.join(&private);
                    self.ep.notify().is_ok()
                        && (self.stop == Stop::Silent || self.raw.send(token, LAST, b"UCTN"))
                }
                RawEvent::Over(..) => false,
            };
            if !done {
                return false;
            }
        }
        true
    }
}

/// The attackers: another one calls for each whose connection the listener ends.
struct Attackers {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Attackers {
    fn of(machine: &Machine, address: &str) -> Attackers {
        let is_over = Arc::new(AtomicBool::new(false));
        let (all, are_there) = mpsc::channel();
        let (context, address, ends) = (machine.context.clone(), address.to_owned(), Arc::clone(&is_over));
        let thread = thread::spawn(move || attack(&context, &address, &ends, &all));
        are_there.recv_timeout(LIMIT).expect("as many attackers as there are to be");
        Attackers { is_over, thread: Some(thread) }
    }

    /// How many there were.
    fn end(mut self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("once").join().expect("the attackers' thread")
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn attack(context: &Context, address: &str, is_over: &AtomicBool, all: &Sender<()>) -> usize {
    let first = Raw::new(context, devices().0);
    let (mut attackers, mut count, mut next) = (Vec::<Attacker>::new(), 0, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        if first.worker.progress() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        attackers.retain_mut(Attacker::goes_on);
        if attackers.len() == HELD {
            if attackers.iter().all(|attacker| attacker.has_called) {
                let _ = all.send(());
            }
        } else if Instant::now() >= next {
            let raw = first.beside();
            let ep = raw.begin(address);
            attackers.push(Attacker { raw, ep, stop: STOPS[count % STOPS.len()], has_called: false });
            count += 1;
            if count >= HELD {
                next = Instant::now() + PAUSE;
            }
        }
    }
    count
}

#[test]
fn callers_that_stall_in_all_places_keep_no_honest_caller_out() {
    let Some(machine) = machine() else { return };
    pair(
        &machine,
        (NetOptions { max_half_open: PLACES, ..patient() }, patient()),
        async |_net, mut listener| {
            for _ in 0..HONEST {
                let connection = listener.accept().await?.accept().await?;
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
                connection.closed().await;
            }
            Ok(())
        },
        async |net, address| {
            let attackers = Attackers::of(&machine, &address);
            let (begun, mut longest) = (Instant::now(), Duration::ZERO);
            for number in 0..HONEST {
                let called = Instant::now();
                let source = "10.7.0.1:0".parse().expect("an address");
                let connection = net.connect(&address).by(CM).from(source).require("rc_verbs").await;
                let connection = connection.unwrap_or_else(|error| panic!("caller {number}: {error}"));
                longest = longest.max(called.elapsed());
                connection.send(b"honest").await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"honest");
                connection.close().within(LIMIT).await?;
            }
            let (elapsed, attackers) = (begun.elapsed(), attackers.end());
            println!("{HONEST} callers in {elapsed:.1?}, one in {longest:.1?}, beside {attackers} attackers");
            Ok(())
        },
    );
}
