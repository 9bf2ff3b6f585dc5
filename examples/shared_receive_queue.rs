//! One receive queue for two connections.
//!
//!     shared_receive_queue                 the receiver; it prints how to start the senders, and waits for two
//!     shared_receive_queue HOST:PORT       a sender
//!
//! All endpoints of an interface receive into the same buffers: of `rc_verbs` this is a shared receive queue of the device, and one
//! completion queue for all. So buffers are counted for the interface, not for each connection, and one handler sees
//! the messages of all, each with what tells the senders apart: here, the header.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::future::IntoFuture;
use std::rc::Rc;
use std::time::Duration;

use uct_core::{AmId, Context};
use uct_net::NetOptions;
use uct_net::local::{Connection, Net};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const NEWS: AmId = AmId::new(7).unwrap();
const SENDERS: usize = 2;
const MESSAGES: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    match std::env::args().nth(1) {
        None => receive(&net),
        Some(address) => send(&net, &address),
    }
}

fn receive(net: &Net) -> Result {
    let connections = net.block_on(take_two(net))?;
    let iface = connections[0].iface();
    if connections.iter().any(|connection| connection.iface().resource() != iface.resource()) {
        return Err("the senders chose different transports".into());
    }
    println!("one interface, {}, for {SENDERS} connections", iface.resource());

    // One handler for the interface; the sender is in the header.
    let counts = Rc::new([const { Cell::new(0) }; SENDERS]);
    let received = Rc::clone(&counts);
    iface.set_am_handler(NEWS, move |message| {
        let sender = message.header().and_then(|sender| received.get(usize::try_from(sender).ok()?));
        if let Some(count) = sender {
            count.set(count.get() + 1);
        }
    });
    for (number, connection) in connections.iter().enumerate() {
        net.block_on(connection.send(&[number as u8]))?;
    }
    if !net.worker().progress_until(LIMIT, || counts.iter().all(|count| count.get() == MESSAGES)) {
        return Err("not all messages came".into());
    }
    println!("{MESSAGES} messages of each");
    connections.iter().try_for_each(|connection| Ok(net.block_on(connection.close())?))
}

async fn take_two(net: &Net) -> Result<Vec<Connection>> {
    let mut listener = net.listen("[::]:0").await?;
    let port = listener.port().unwrap_or_default();
    println!("now start {SENDERS} times: shared_receive_queue localhost:{port}");
    let mut connections = Vec::new();
    for _ in 0..SENDERS {
        connections.push(listener.accept().await?.accept().await?);
    }
    Ok(connections)
}

fn send(net: &Net, address: &str) -> Result {
    let connection = net.block_on(net.connect(address).into_future())?;
    println!("over {}", connection.explanation().chosen);
    let number = u64::from(*net.block_on(connection.recv())?.first().ok_or("no number")?);
    for _ in 0..MESSAGES {
        net.worker().retry(LIMIT, || connection.endpoint().am_short(NEWS, number, b"news"))?;
    }
    // The receiver closes when it has everything.
    net.block_on(connection.closed());
    Ok(())
}
