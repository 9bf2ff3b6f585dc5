//! Put and get: a process writes to and reads from memory that another one registered.
//!
//!     cargo run -p uct-examples --bin put_get
//!
//! The owner registers memory and tells the initiator three things: that an operation may begin, where the memory is
//! and the key to it. From then on the initiator works alone; the owner's code is not involved.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use uct_core::select::{Operation, Request};
use uct_core::{Access, Completion, Context, Flush, MemoryKind, Posted, Worker};
use uct_examples::{Failure, LIMIT, Peer, connect, two_processes};

const LENGTH: usize = 64;

fn main() -> ExitCode {
    two_processes(initiator, owner)
}

fn owner(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;

    // `Access` lists what peers may do; any other access is an error.
    let access = Access::REMOTE_PUT | Access::REMOTE_GET;
    let memory = connection.iface.memory_domain().allocate(LENGTH, access, MemoryKind::Host)?;
    memory.write(0, b"what the owner wrote");
    peer.send(&[&memory.address().to_le_bytes()[..], &memory.packed_key()?].concat())?;

    // Where the transport has no hardware for put and get, this progress is what carries them out.
    peer.receive(&worker)?;
    println!("owner:     the memory now begins with {:?}", text(&memory.to_vec()));
    Ok(())
}

fn initiator(peer: &mut Peer) -> Result<(), Failure> {
    let worker = Worker::new(&Context::builder().build()?)?;
    let connection = connect(&worker, peer, &request())?;
    let (iface, ep) = (&connection.iface, &connection.ep);

    let card = peer.receive(&worker)?;
    let (address, key) = card.split_first_chunk::<8>().ok_or("the owner sent no address")?;
    let remote = u64::from_le_bytes(*address);
    let key = iface.memory_domain().unpack(key)?;

    // Get: into memory of our own, which is the transport's until the completion.
    let local = iface.memory_domain().allocate(LENGTH, Access::ALL, MemoryKind::Host)?;
    let completion = Completion::new(&worker);
    worker.retry(LIMIT, || ep.get_zcopy(&[local.slice(..LENGTH)], remote, &key, &completion))?;
    connection.wait("the get", || completion.is_done())?;
    completion.result()?;
    println!("initiator: the memory begins with {:?}", text(&local.to_vec()));

    // Put: the bytes are copied, so they are free at return. They have arrived when a remote flush is done.
    worker.retry(LIMIT, || ep.put_short(b"what the initiator put", remote, &key))?;
    let flushed = Completion::new(&worker);
    if worker.retry(LIMIT, || ep.flush(Flush::REMOTE, Some(&flushed)))? == Posted::InProgress {
        connection.wait("the flush", || flushed.is_done())?;
        flushed.result()?;
    }
    peer.send(b"done")
}

/// The transport has to have both.
fn request() -> Request {
    let get = Operation::GetZcopy.capability();
    Request { capabilities: get, ..Request::new(Operation::PutShort, LENGTH) }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
