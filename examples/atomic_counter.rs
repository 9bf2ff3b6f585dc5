//! Atomics: several processes draw tickets from one counter, and none is drawn twice.
//!
//!     cargo run -p uct-examples --bin atomic_counter
//!
//! The counter is 8 bytes of registered memory. A fetching add returns the old value, which is the ticket.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use uct_core::select::{Operation, Request};
use uct_core::{Access, AtomicOp, Completion, Context, Memory, MemoryKind, Worker};
use uct_examples::{Failure, LIMIT, Peer, connect, with_peers};

const PROCESSES: usize = 3;
const TICKETS: usize = 100;

fn main() -> ExitCode {
    with_peers(PROCESSES, owner, drawer)
}

fn owner(peers: &mut [Peer]) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let mut counter: Option<Memory> = None;
    let mut connections = Vec::new();
    for peer in peers.iter_mut() {
        let connection = connect(&worker, peer, &request())?;
        let counter = match &counter {
            Some(counter) => counter,
            None => {
                let md = connection.iface.memory_domain();
                counter.insert(md.allocate(size_of::<u64>(), Access::REMOTE_ATOMIC, MemoryKind::Host)?)
            }
        };
        peer.send(&[&counter.address().to_le_bytes()[..], &counter.packed_key()?].concat())?;
        connections.push(connection);
    }

    let mut drawn = vec![false; PROCESSES * TICKETS];
    for peer in peers.iter_mut() {
        for ticket in peer.receive(&worker)?.as_chunks::<8>().0 {
            let ticket = u64::from_le_bytes(*ticket);
            let place = drawn.get_mut(ticket as usize).ok_or("a ticket beyond the last one")?;
            if std::mem::replace(place, true) {
                return Err(format!("ticket {ticket} was drawn twice").into());
            }
        }
        peer.send(b"thank you")?;
    }
    let count = counter.map_or(0, |counter| counter.load_u64(0));
    println!("{PROCESSES} processes drew {count} tickets, each of them once");
    Ok(())
}

fn drawer(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;
    let card = peer.receive(&worker)?;
    let (address, key) = card.split_first_chunk::<8>().ok_or("the owner sent no address")?;
    let remote = u64::from_le_bytes(*address);
    let key = connection.iface.memory_domain().unpack(key)?;

    let drawn = Completion::new(&worker);
    let mut tickets = Vec::new();
    for _ in 0..TICKETS {
        let add = || connection.ep.atomic64_fetch(AtomicOp::Add, 1, remote, &key, &drawn);
        let ticket = worker.retry(LIMIT, add)?.wait(&drawn, LIMIT)?;
        tickets.extend(ticket.to_le_bytes());
    }
    peer.send(&tickets)?;
    // Another process may still be drawing; the owner says when all are done with this one.
    peer.receive(&worker)?;
    Ok(())
}

/// All transports that have atomics have put; the choice asks for that.
fn request() -> Request {
    Request::new(Operation::PutShort, size_of::<u64>())
}
