//! Connecting as with rdma_cm, step by step, then RDMA READ and RDMA WRITE.
//!
//!     rdma_cm_walk [-t TRANSPORT]            the server; it prints its address
//!     rdma_cm_walk [-t TRANSPORT] ADDRESS    the client
//!
//! Both sides print each event of the connection manager. The addresses of the data endpoints travel as private data. With an RDMA
//! device that is `rc_verbs`, connected by `rdmacm`; without one `tcp`, connected by the connection manager of `tcp`. Most
//! programs have `uct-net` do all of this.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use uct_core::cm::{Cm, CmData, CmEvent, CmToken, ConnectOptions};
use uct_core::{
    Access, AmId, Capabilities, Completion, Context, Ep, Flush, Iface, IfaceAddress, Memory, MemoryKind,
    Posted, SendFlags, Worker,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const CARD: AmId = AmId::new(1).unwrap();
const WRITTEN: AmId = AmId::new(2).unwrap();
const LENGTH: usize = 64;
const LIMIT: Duration = Duration::from_secs(30);

/// Connects as with rdma_cm, then READ and WRITE.
#[derive(Parser)]
struct Options {
    /// Address and port of the server; without it, this is the server.
    server: Option<SocketAddr>,
    /// rc_verbs or tcp [default: rc_verbs if this machine has it]
    #[arg(short)]
    transport: Option<String>,
    /// The device [default: the transport's first one]
    #[arg(short)]
    device: Option<String>,
    /// Address and port that the server listens on.
    #[arg(short, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

fn main() -> Result {
    let options = Options::parse();
    let context = Context::builder().build()?;
    let first = |name: &str| context.resources().iter().find(|resource| resource.transport == name);
    let default = if first("rc_verbs").is_some() { "rc_verbs" } else { "tcp" };
    let transport = options.transport.as_deref().unwrap_or(default);
    let device = options.device.clone().or_else(|| Some(first(transport)?.device.clone()));

    let worker = Worker::new(&context)?;
    let iface = worker.open(transport, &device.unwrap_or_default())?;
    let cm = worker.open_cm(if transport == "rc_verbs" { "rdmacm" } else { "tcp" })?;
    println!("{} for the connection, {} for the data", cm.component(), iface.resource());
    match options.server {
        None => serve(&worker, &cm, &iface, options.listen),
        Some(server) => call(&worker, &cm, &iface, server),
    }
}

fn serve(worker: &Worker, cm: &Cm, iface: &Iface, address: SocketAddr) -> Result {
    let memory = memory(iface)?;
    memory.write(0, b"what the client reads ");
    let is_written = flag(iface, WRITTEN);

    let requests = Rc::new(RefCell::new(Vec::new()));
    let queue = Rc::clone(&requests);
    let listener = cm.listen(address, None, move |request| queue.borrow_mut().push(request))?;
    println!("now start: rdma_cm_walk {}", listener.address()?);
    until(worker, "a client", || !requests.borrow().is_empty())?;
    let request = requests.borrow_mut().pop().ok_or("no request")?;
    println!("REQUEST: {} sent {} bytes of private data", request.peer(), request.private().len());

    let lane = Lane::new(iface)?;
    let own = lane.address()?;
    let token = lane.token();
    let ep = lane.connect(request.private())?;
    let (is_notified, is_gone) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (notified, gone) = (Rc::clone(&is_notified), Rc::clone(&is_gone));
    let accepted =
        request.accept(cm, CmData { private: &own, token }, None, move |_, event| match event {
            CmEvent::Notified => notified.set(true),
            _ => gone.set(true),
        })?;
    until(worker, "the client's notification", || is_notified.get() || is_gone.get())?;
    if is_gone.get() {
        return Err("the client has gone".into());
    }
    println!("NOTIFIED: the client is connected");

    let card = [&memory.address().to_le_bytes()[..], &memory.packed_key()?].concat();
    send(worker, &ep, CARD, &card)?;
    until(worker, "the client's message", || is_written.get())?;
    println!("WRITE: the memory holds {:?}", String::from_utf8_lossy(&memory.to_vec()[..22]));
    until(worker, "the end", || is_gone.get())?;
    println!("DISCONNECTED");
    // Each side disconnects once; this is the second one.
    accepted.disconnect(b"")?;
    Ok(())
}

fn call(worker: &Worker, cm: &Cm, iface: &Iface, server: SocketAddr) -> Result {
    let local = memory(iface)?;
    let card = Rc::new(RefCell::new(Vec::new()));
    let place = Rc::clone(&card);
    iface.set_am_handler(CARD, move |message| place.borrow_mut().extend_from_slice(&message));

    let lane = Lane::new(iface)?;
    let (reply, is_over) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(false)));
    let (outcome, over) = (Rc::clone(&reply), Rc::clone(&is_over));
    let (own, token) = (lane.address()?, lane.token());
    let connection = cm.connect(server, ConnectOptions::default(), move |connection, event| match event {
        CmEvent::Resolved { local, peer, .. } => {
            println!("RESOLVED: {local} leads to {peer}");
            if let Err(error) = connection.send(CmData { private: &own, token }) {
                outcome.replace(Some(Err(error.to_string())));
            }
        }
        CmEvent::Connected { private } => {
            outcome.replace(Some(Ok(private.to_vec())));
        }
        CmEvent::Failed { reason, .. } => {
            outcome.replace(Some(Err(reason.to_owned())));
        }
        _ => over.set(true),
    })?;
    until(worker, "the server's reply", || reply.borrow().is_some())?;
    let private = reply.take().ok_or("no reply")??;
    println!("CONNECTED: the server sent {} bytes of private data", private.len());
    let ep = lane.connect(&private)?;
    connection.notify()?;

    until(worker, "the server's memory", || !card.borrow().is_empty())?;
    let card = card.take();
    let (address, key) = card.split_first_chunk::<8>().ok_or("the server sent no address")?;
    let (remote, key) = (u64::from_le_bytes(*address), iface.memory_domain().unpack(key)?);
    let done = Completion::new(worker);
    worker.retry(LIMIT, || ep.get_zcopy(&[local.slice(..LENGTH)], remote, &key, &done))?;
    until(worker, "the read", || done.is_done())?;
    done.result()?;
    println!("READ: the server's memory holds {:?}", String::from_utf8_lossy(&local.to_vec()[..22]));

    local.write(0, b"what the client writes");
    worker.retry(LIMIT, || ep.put_zcopy(&[local.slice(..LENGTH)], remote, &key, &done))?;
    let flushed = Completion::new(worker);
    let posted = worker.retry(LIMIT, || ep.flush(Flush::REMOTE, Some(&flushed)))?;
    until(worker, "the write", || done.is_done() && (posted == Posted::Done || flushed.is_done()))?;
    done.result()?;
    send(worker, &ep, WRITTEN, b"")?;
    until(worker, "the message to leave", || ep.flush(Flush::empty(), None) == Ok(Posted::Done))?;
    connection.disconnect(b"")?;
    until(worker, "the server's disconnect", || is_over.get())?;
    println!("DISCONNECTED");
    Ok(())
}

/// The data endpoint, until it is connected. Some transports connect to an interface, others an endpoint to an endpoint, which
/// has to exist first.
struct Lane {
    iface: Iface,
    ep: Option<Ep>,
}

impl Lane {
    fn new(iface: &Iface) -> Result<Lane> {
        let is_first = !iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE);
        let ep = is_first.then(|| iface.create_ep(|_failure| ())).transpose()?;
        Ok(Lane { iface: iface.clone(), ep })
    }

    /// Device, interface and endpoint. The names stay out: a request of rdma_cm has room for 54 bytes.
    fn address(&self) -> Result<Vec<u8>> {
        let IfaceAddress { device, iface, .. } = self.iface.address()?;
        let ep = self.ep.as_ref().map(Ep::address).transpose()?.unwrap_or_default();
        Ok([&[device.len() as u8, iface.len() as u8], &*device, &*iface, &*ep].concat())
    }

    /// The number of its queue pair, by which rdma_cm knows the connection.
    fn token(&self) -> Option<CmToken> {
        self.ep.as_ref()?.cm_token().ok()
    }

    fn connect(self, address: &[u8]) -> Result<Ep> {
        let parts = || {
            let (lengths, rest) = address.split_first_chunk::<2>()?;
            let (device, rest) = rest.split_at_checked(lengths[0].into())?;
            let (iface, ep) = rest.split_at_checked(lengths[1].into())?;
            Some((device.to_vec(), iface.to_vec(), ep))
        };
        let (device, iface, ep_address) = parts().ok_or("the peer sent no address")?;
        let peer = IfaceAddress { device, iface, ..self.iface.address()? };
        match self.ep {
            Some(ep) => {
                ep.connect_to_ep(&peer, ep_address)?;
                Ok(ep)
            }
            None => Ok(self.iface.connect_with(&peer, |_failure| ())?),
        }
    }
}

/// Memory that the peer may read and write.
fn memory(iface: &Iface) -> Result<Memory> {
    Ok(iface.memory_domain().allocate(LENGTH, Access::ALL, MemoryKind::Host)?)
}

/// Raised by the first message with this id.
fn flag(iface: &Iface, id: AmId) -> Rc<Cell<bool>> {
    let flag = Rc::new(Cell::new(false));
    let raised = Rc::clone(&flag);
    iface.set_am_handler(id, move |_message| raised.set(true));
    flag
}

fn send(worker: &Worker, ep: &Ep, id: AmId, bytes: &[u8]) -> Result {
    let pack = |buffer: &mut [u8]| {
        buffer[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    };
    worker.retry(LIMIT, || ep.am_bcopy(id, SendFlags::empty(), pack))?;
    Ok(())
}

fn until(worker: &Worker, what: &str, done: impl FnMut() -> bool) -> Result {
    if worker.progress_until(LIMIT, done) {
        return Ok(());
    }
    Err(format!("waited {} s for {what}", LIMIT.as_secs()).into())
}
