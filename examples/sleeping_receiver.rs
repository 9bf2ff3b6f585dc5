//! A receiver that sleeps: no processor time is used until a message comes.
//!
//!     cargo run -p uct-examples --bin sleeping_receiver
//!
//! `Worker::wait` arms every interface and sleeps on one descriptor. A program with an event loop of its own watches
//! `Worker::event_fd` instead, and calls `Worker::arm` before it goes to sleep: `BUSY` means "progress first".

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::select::{Operation, Request};
use uct_core::{AmId, Context, Flush, Posted, Worker};
use uct_examples::{Failure, LIMIT, Peer, connect, two_processes};

const NEWS: AmId = AmId::new(1).unwrap();
const MESSAGES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

fn main() -> ExitCode {
    two_processes(sender, receiver)
}

fn receiver(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    connection.iface.set_am_handler(NEWS, move |_message| count.set(count.get() + 1));
    peer.send(b"ready")?;

    let (start, mut wakes) = (Instant::now(), 0);
    while received.get() < MESSAGES {
        // What is already there has to be dealt with first: an armed worker wakes for what comes next.
        if worker.progress() > 0 {
            continue;
        }
        if start.elapsed() > LIMIT {
            return Err(format!("only {} of {MESSAGES} messages came", received.get()).into());
        }
        wakes += u32::from(worker.wait(Duration::from_secs(1))?);
    }
    println!("receiver: {MESSAGES} messages within {} ms, woken {wakes} times", start.elapsed().as_millis());
    peer.send(b"done")
}

fn sender(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;
    peer.receive(&worker)?;
    for number in 0..MESSAGES {
        std::thread::sleep(PAUSE);
        worker.retry(LIMIT, || connection.ep.am_short(NEWS, u64::from(number), b"news"))?;
        // A message may still be in a buffer of ours; this moves it on before we sleep again.
        connection.wait("the flush", || {
            connection.ep.flush(Flush::empty(), None).is_ok_and(|posted| posted == Posted::Done)
        })?;
    }
    peer.receive(&worker)?;
    Ok(())
}

fn request() -> Request {
    Request::new(Operation::AmShort, 4)
}
