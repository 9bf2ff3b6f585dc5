//! The classic walk through verbs, step by step: SEND, then RDMA READ, then RDMA WRITE.
//!
//!     rc_send_read_write              the server, on one machine
//!     rc_send_read_write -n HOST      the client, on the same one or another
//!
//! The server sends a message; the client reads the server's memory, then writes to it; the server sees what was
//! written. What each side needs to know of the other goes over a TCP connection first. `-t tcp -d lo` runs the same
//! steps without RDMA hardware.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use uct_core::{
    Access, AmId, Capabilities, Completion, Context, Ep, Flush, Iface, IfaceAddress, Memory, MemoryKind,
    Posted, SendFlags, Worker,
};
use uct_examples::{Connection, Failure, LIMIT, Peer};

const MESSAGE: AmId = AmId::new(5).unwrap();
const LENGTH: usize = 64;

/// SEND, RDMA READ and RDMA WRITE between two processes.
#[derive(Parser)]
struct Options {
    /// The server; without it, this is the server.
    #[arg(short = 'n', value_name = "HOST")]
    server: Option<String>,
    /// Port of the server; 0 lets the system choose one.
    #[arg(short, default_value_t = 13338)]
    port: u16,
    /// The transport.
    #[arg(short, default_value = "rc_verbs")]
    transport: String,
    /// The device; the transport's first one unless given.
    #[arg(short)]
    device: Option<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rc_send_read_write: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    // 1. The device: a context, a worker that drives it, an interface. In verbs: a context, a completion queue, a port.
    let context = Context::builder().build()?;
    let worker = Worker::new(&context)?;
    let first = || context.resources().iter().find(|it| it.transport == options.transport);
    let device = options.device.clone().or_else(|| first().map(|it| it.device.clone())).unwrap_or_default();
    let iface = worker.open(&options.transport, &device)?;

    // 2. Memory that the peer may read and write. In verbs: a protection domain and a memory region.
    let access = Access::REMOTE_PUT | Access::REMOTE_GET;
    let memory = iface.memory_domain().allocate(LENGTH, access, MemoryKind::Host)?;

    // 3. A place for the message to arrive. In verbs: a posted receive.
    let received = Rc::new(RefCell::new(String::new()));
    let place = Rc::clone(&received);
    iface.set_am_handler(MESSAGE, move |message| {
        place.replace(String::from_utf8_lossy(&message).into_owned());
    });

    // 4. The endpoint, connected to the peer's. In verbs: a queue pair, moved from RESET to RTS.
    let mut peer = match &options.server {
        Some(host) => Peer::call(host, options.port)?,
        None => Peer::listen(options.port)?,
    };
    let ep = connect(&worker, &iface, &mut peer)?;
    println!("connected over {}", iface.resource());
    let connection = Connection { iface, ep };

    match options.server {
        None => serve(&worker, &connection, &mut peer, &memory),
        Some(_) => {
            connection.wait("the message", || !received.borrow().is_empty())?;
            println!("SEND:       received {:?}", received.borrow());
            read_and_write(&worker, &connection, &mut peer, &memory)
        }
    }
}

fn connect(worker: &Worker, iface: &Iface, peer: &mut Peer) -> Result<Ep, Failure> {
    peer.send(&iface.address()?.pack()?)?;
    let (address, _) = IfaceAddress::unpack(&peer.receive(worker)?)?;
    if iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
        return Ok(iface.connect_with(&address, |_failure| ())?);
    }
    let ep = iface.create_ep(|_failure| ())?;
    peer.send(&ep.address()?)?;
    ep.connect_to_ep(&address, &peer.receive(worker)?)?;
    Ok(ep)
}

fn serve(worker: &Worker, connection: &Connection, peer: &mut Peer, memory: &Memory) -> Result<(), Failure> {
    memory.write(0, b"what the client reads ");
    peer.send(&[&memory.address().to_le_bytes()[..], &memory.packed_key()?].concat())?;
    let text = b"what the server sends";
    worker.retry(LIMIT, || {
        connection.ep.am_bcopy(MESSAGE, SendFlags::empty(), |buffer| {
            buffer[..text.len()].copy_from_slice(text);
            text.len()
        })
    })?;
    // The client works on the memory now; this side hears of it only because the client says so.
    peer.receive(worker)?;
    println!("RDMA WRITE: the memory holds {:?}", String::from_utf8_lossy(&memory.to_vec()[..22]));
    peer.send(b"seen")
}

fn read_and_write(
    worker: &Worker,
    connection: &Connection,
    peer: &mut Peer,
    memory: &Memory,
) -> Result<(), Failure> {
    let card = peer.receive(worker)?;
    let (address, key) = card.split_first_chunk::<8>().ok_or("the server sent no address")?;
    let (remote, key) = (u64::from_le_bytes(*address), memory.domain().unpack(key)?);
    let (ep, done) = (&connection.ep, Completion::new(worker));

    worker.retry(LIMIT, || ep.get_zcopy(&[memory.slice(..LENGTH)], remote, &key, &done))?;
    connection.wait("the read", || done.is_done())?;
    done.result()?;
    println!("RDMA READ:  the server's memory holds {:?}", String::from_utf8_lossy(&memory.to_vec()[..22]));

    memory.write(0, b"what the client writes");
    worker.retry(LIMIT, || ep.put_zcopy(&[memory.slice(..LENGTH)], remote, &key, &done))?;
    let flushed = worker.retry(LIMIT, || ep.flush(Flush::REMOTE, Some(&done)))?;
    connection.wait("the write", || done.is_done() || flushed == Posted::Done)?;
    done.result()?;
    peer.send(b"written")?;
    peer.receive(worker).map(drop)
}
