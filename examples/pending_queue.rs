//! The pending queue: what to do when the transport is out of resources.
//!
//!     cargo run -p uct-examples --bin pending_queue
//!
//! `NO_RESOURCE` is no failure: nothing was sent, and nothing was lost. Instead of trying again and again, queue a
//! request: progress calls it when there is room, endpoint by endpoint in turn, and nothing overtakes it.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use uct_core::select::{Operation, Request};
use uct_core::{AmId, Context, Ep, Error, Pending, Worker};
use uct_examples::{Connection, Failure, Peer, connect, two_processes};

const NUMBER: AmId = AmId::new(4).unwrap();
const MESSAGES: u64 = 200_000;

fn main() -> ExitCode {
    two_processes(sender, receiver)
}

fn sender(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;
    peer.receive(&worker)?;

    let stream = Rc::new(Numbers::default());
    stream.send_from(&connection)?;
    connection.wait("all sent", || stream.next.get() == MESSAGES)?;
    println!("sender:   {MESSAGES} messages, {} times out of room", stream.waits.get());
    peer.receive(&worker)?;
    Ok(())
}

/// The numbers that are still to be sent.
#[derive(Default)]
struct Numbers {
    next: Cell<u64>,
    waits: Cell<u32>,
}

impl Numbers {
    fn send_from(self: &Rc<Self>, connection: &Connection) -> Result<(), Failure> {
        loop {
            match self.send(&connection.ep) {
                Ok(()) => return Ok(()),
                Err(Error::NO_RESOURCE) => {}
                Err(error) => return Err(error.into()),
            }
            let numbers = Rc::clone(self);
            let request = move |ep: &Ep| match numbers.send(ep) {
                Err(Error::NO_RESOURCE) => Pending::Wait,
                // Any other error is the endpoint's end, which `Connection::wait` reports.
                Ok(()) | Err(_) => Pending::Done,
            };
            match connection.ep.pending_add(request) {
                // Progress goes on from here.
                Ok(()) => return Ok(()),
                // There is room again already: go on sending.
                Err((Error::BUSY, _request)) => {
                    connection.iface.worker().progress();
                }
                Err((error, _request)) => return Err(error.into()),
            }
        }
    }

    /// Sends as many as there is room for.
    fn send(&self, ep: &Ep) -> uct_core::Result<()> {
        while self.next.get() < MESSAGES {
            let sent = ep.am_short(NUMBER, self.next.get(), &[]);
            if matches!(sent, Err(Error::NO_RESOURCE)) {
                self.waits.set(self.waits.get() + 1);
            }
            sent?;
            self.next.set(self.next.get() + 1);
        }
        Ok(())
    }
}

fn receiver(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;
    let (expected, in_order) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(true)));
    let (next, order) = (Rc::clone(&expected), Rc::clone(&in_order));
    connection.iface.set_am_handler(NUMBER, move |message| {
        order.set(order.get() && message.header() == Some(next.get()));
        next.set(next.get() + 1);
    });
    peer.send(b"ready")?;
    connection.wait("all received", || expected.get() == MESSAGES)?;
    if !in_order.get() {
        return Err("a message overtook another".into());
    }
    println!("receiver: {MESSAGES} messages, in order");
    peer.send(b"done")
}

fn request() -> Request {
    Request::new(Operation::AmShort, 0)
}
