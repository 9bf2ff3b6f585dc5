//! The exchange of UCX's program of the same name, with `--ucx`: the peer may be that program or another one that is written for UCT in C.
//!
//! Over a TCP connection each side sends a length in 8 bytes of the processor's order and so many bytes: the address of its device, of its
//! interface, and of its endpoint where the transport connects endpoints. Four bytes of each side are a barrier: once they are connected, and at
//! the end. The client sends one message, whose first 8 bytes are the header of `am_short`.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::{
    Access, Capabilities, Completion, Context, Ep, Error, Iface, IfaceAddress, SendFlags, Worker,
};

use uct_tools_common::note;

use crate::client::{resolve, test_string};
use crate::options::{Flavour, Options};
use crate::{Failure, HELLO, print_success, say};

/// Longer than any address.
const MAX_ADDRESS: u64 = 4096;
/// Between two looks for the other side.
const PAUSE: Duration = Duration::from_millis(50);

/// One side, until it is done.
pub(crate) fn run(options: &Options, context: &Context, deadline: Instant) -> Result<(), Failure> {
    let (Some(device), Some(transport)) = (&options.dev_name, &options.tl_name) else {
        return Err("--ucx: name the device and the transport, with -d and -t".into());
    };
    let worker = Worker::new(context)?;
    let iface = worker.open(transport, device)?;
    say(&format!("Using {transport}/{device}\n"))?;
    let arrived = Rc::new(RefCell::new(None));
    let arrival = Rc::clone(&arrived);
    iface.set_am_handler(HELLO, move |message| *arrival.borrow_mut() = Some(message.to_vec()));

    let stream = match &options.server_name {
        Some(name) => call(options, name, deadline)?,
        None => listen(options, deadline)?,
    };
    let mut peer = Peer { stream, worker: &worker, deadline };
    let ep = connect(&mut peer, &iface)?;
    if options.server_name.is_some() {
        send(options, &ep, &mut peer)?;
    } else {
        let limit = peer.left();
        if !worker.progress_until(limit, || arrived.borrow().is_some()) {
            return Err("the string did not arrive; see the output of the other side".into());
        }
        let text = arrived.take().unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let operation = options.flavour().operation().name();
        print_success("callback", operation, &String::from_utf8_lossy(&text[..end]))?;
    }
    peer.barrier()
}

fn listen(options: &Options, deadline: Instant) -> Result<TcpStream, Failure> {
    let any = if options.ipv6 { "[::]" } else { "0.0.0.0" };
    let listener = TcpListener::bind(format!("{any}:{}", options.server_port))
        .map_err(|error| format!("cannot listen on port {} (-p): {error}", options.server_port))?;
    say(&format!("Waiting for connection on port {}...\n", listener.local_addr()?.port()))?;
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if Instant::now() >= deadline => {
                return Err(format!("no client came within {} s", options.timeout).into());
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn call(options: &Options, name: &str, deadline: Instant) -> Result<TcpStream, Failure> {
    let address = resolve(options, name)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() >= deadline => {
                return Err(format!("no server at {address}: {error}").into());
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// The other side, and what makes progress while it is waited for.
struct Peer<'a> {
    stream: TcpStream,
    worker: &'a Worker,
    deadline: Instant,
}

impl Peer<'_> {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Sends an address, and receives the peer's.
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<u8>, Failure> {
        if own.is_empty() {
            return Ok(Vec::new());
        }
        self.stream.set_read_timeout(Some(self.left().max(PAUSE)))?;
        self.stream.write_all(&(own.len() as u64).to_ne_bytes())?;
        self.stream.write_all(own)?;
        let mut length = [0; 8];
        self.stream.read_exact(&mut length).map_err(gone)?;
        let length = u64::from_ne_bytes(length);
        if length > MAX_ADDRESS {
            return Err(format!("the peer sends {length} bytes for an address: it is no such program").into());
        }
        let mut theirs = vec![0; length as usize];
        self.stream.read_exact(&mut theirs).map_err(gone)?;
        Ok(theirs)
    }

    /// Waits for the peer to come as far.
    fn barrier(&mut self) -> Result<(), Failure> {
        self.stream.write_all(&[0; 4])?;
        self.stream.set_nonblocking(true)?;
        let (mut received, mut answer) = ([0; 4], 0);
        let mut failure = None;
        let (limit, worker, stream) = (self.left(), self.worker, &mut self.stream);
        worker.progress_until(limit, || match stream.read(&mut received[answer..]) {
            Ok(0) => true,
            Ok(bytes) => {
                answer += bytes;
                answer == received.len()
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                failure = Some(error);
                true
            }
        });
        self.stream.set_nonblocking(false)?;
        match failure {
            Some(error) => Err(gone(error)),
            None if answer < received.len() => Err("the peer has not come to the end".into()),
            None => Ok(()),
        }
    }
}

fn gone(error: std::io::Error) -> Failure {
    format!("the exchange of addresses: {error}").into()
}

/// An endpoint to the peer's endpoint where the transport has that, otherwise to its interface.
fn connect(peer: &mut Peer, iface: &Iface) -> Result<Ep, Failure> {
    let IfaceAddress { transport, device, iface: own } = iface.address()?;
    let device = peer.exchange(&device)?;
    let address = IfaceAddress { transport, device, iface: peer.exchange(&own)? };
    iface.is_reachable(&address)?;
    if !iface.capabilities().contains(Capabilities::CONNECT_TO_EP) {
        return Ok(iface.connect(&address)?);
    }
    let ep = iface.create_ep(|failure| note(&format!("uct_hello_world: {failure}\n")))?;
    let theirs = peer.exchange(&ep.address()?)?;
    ep.connect_to_ep(&address, &theirs)?;
    peer.barrier()?;
    Ok(ep)
}

/// Sends the string by the operation that the flags ask for, with a zero at its end.
fn send(options: &Options, ep: &Ep, peer: &mut Peer) -> Result<(), Failure> {
    let mut text = test_string(options.size.saturating_sub(1));
    text.resize(options.size.max(size_of::<u64>()), 0);
    let iface = ep.iface();
    let completion = Completion::new(peer.worker);
    let memory = iface.memory_domain().register(text.clone(), Access::empty())?;
    let limit = peer.left();
    let sent = peer.worker.retry(limit, || match options.flavour() {
        Flavour::Short => {
            let (header, payload) = text.split_first_chunk().ok_or(Error::INVALID_PARAM)?;
            ep.am_short(HELLO, u64::from_ne_bytes(*header), payload)
        }
        Flavour::Bcopy => ep.am_bcopy_iov(HELLO, SendFlags::empty(), &[text.as_slice()]).map(drop),
        Flavour::Zcopy => {
            ep.am_zcopy(HELLO, b"", &[memory.slice(..)], SendFlags::empty(), &completion).map(drop)
        }
    });
    let operation = options.flavour().operation().name();
    sent.map_err(|error| format!("{operation} of {} bytes: {error}", text.len()))?;
    Ok(completion.wait(peer.left())?)
}
