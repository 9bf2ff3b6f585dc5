//! The classic walk through verbs, step by step: SEND, then RDMA READ, then RDMA WRITE.
//!
//!     rc_send_read_write              the server, on one machine
//!     rc_send_read_write -n HOST      the client, on the same one or another
//!
//! The server sends a message; the client reads the server's memory, then writes to it; the server sees what was
//! written. The two find each other by a TCP connection first; `rdma_cm_walk` shows rdma_cm. `-t tcp -d lo` runs the same
//! steps without RDMA hardware.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use uct_core::select::Selector;
use uct_core::{AmId, Context, SendFlags, Worker};
use uct_net::NetOptions;
use uct_net::local::{Connection, Net};

type Failure = Box<dyn std::error::Error>;

const MESSAGE: AmId = AmId::new(5).unwrap();
const LENGTH: usize = 64;
const LIMIT: Duration = Duration::from_secs(30);

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

    // 2. A place for the message to arrive. In verbs: a posted receive.
    let received = Rc::new(RefCell::new(String::new()));
    let place = Rc::clone(&received);
    iface.set_am_handler(MESSAGE, move |message| {
        place.replace(String::from_utf8_lossy(&message).into_owned());
    });

    // 3. The endpoint, connected to the peer's. In verbs: a queue pair, moved from RESET to RTS.
    let net = Net::over(&worker, Selector::of(&worker, vec![iface]), NetOptions::default())?;
    match &options.server {
        None => net.block_on(async {
            let mut listener = net.listen(format!("0.0.0.0:{}", options.port)).await?;
            println!("waiting on port {}", listener.port().unwrap_or_default());
            let incoming = net.within(LIMIT, listener.accept()).await.ok_or("no client came")??;
            serve(&incoming.accept().await?).await
        }),
        Some(host) => net.block_on(async {
            let connection = net.connect(format!("{host}:{}", options.port)).await?;
            println!("connected over {}", connection.explanation().chosen);
            if !worker.progress_until(LIMIT, || !received.borrow().is_empty()) {
                return Err("the server's message did not come".into());
            }
            println!("SEND:       received {:?}", received.borrow());
            read_and_write(&connection).await?;
            Ok(connection.close().await?)
        }),
    }
}

async fn serve(connection: &Connection) -> Result<(), Failure> {
    // 4. Memory that the peer may read and write. In verbs: a protection domain and a memory region, whose key the peer needs.
    let memory = connection.allocate(LENGTH)?;
    memory.write(0, b"what the client reads ");
    connection.share(&memory).await?;

    let (ep, text) = (connection.endpoint(), b"what the server sends");
    let send = || {
        ep.am_bcopy(MESSAGE, SendFlags::empty(), |buffer| {
            buffer[..text.len()].copy_from_slice(text);
            text.len()
        })
    };
    connection.when_room(send).await?;
    // The client works on the memory now; this side hears of it only because the client says so.
    connection.recv().await?;
    println!("RDMA WRITE: the memory holds {:?}", String::from_utf8_lossy(&memory.to_vec()[..22]));
    connection.closed().await;
    Ok(())
}

async fn read_and_write(connection: &Connection) -> Result<(), Failure> {
    let remote = connection.shared().await?;
    let memory = connection.allocate(LENGTH)?;
    connection.get(memory.slice(..LENGTH), &remote, 0).await?;
    println!("RDMA READ:  the server's memory holds {:?}", String::from_utf8_lossy(&memory.to_vec()[..22]));

    memory.write(0, b"what the client writes");
    connection.put(memory.slice(..LENGTH), &remote, 0).await?;
    connection.flush().await?;
    Ok(connection.send(b"written").await?)
}
