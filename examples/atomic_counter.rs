//! Atomics: several programs draw tickets from one counter, and none is drawn twice.
//!
//!     atomic_counter                 the owner of the counter; it prints how to start the others, and waits for three
//!     atomic_counter HOST:PORT       draws tickets
//!
//! The counter is 8 bytes of registered memory. A fetching add returns the old value, which is the ticket.

#![forbid(unsafe_code)]

use uct_core::Context;
use uct_core::select::{Operation, Request};
use uct_net::{NetOptions, local::Net};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const PROGRAMS: usize = 3;
const TICKETS: usize = 100;

fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    match std::env::args().nth(1) {
        None => net.block_on(owner(&net)),
        Some(address) => net.block_on(drawer(&net, &address)),
    }
}

async fn owner(net: &Net) -> Result {
    let mut listener = net.listen("[::]:0").await?;
    let port = listener.port().unwrap_or_default();
    println!("now start {PROGRAMS} times: atomic_counter localhost:{port}");

    // All of them share one counter, which is memory of the first connection's transport.
    let mut connections = Vec::new();
    for _ in 0..PROGRAMS {
        connections.push(listener.accept().await?.accept().await?);
    }
    let counter = connections[0].allocate(size_of::<u64>())?;
    for connection in &connections {
        connection.share(&counter).await?;
    }

    let mut drawn = vec![false; PROGRAMS * TICKETS];
    for connection in &connections {
        for ticket in connection.recv().await?.as_chunks::<8>().0 {
            let ticket = u64::from_le_bytes(*ticket);
            let place = drawn.get_mut(ticket as usize).ok_or("a ticket beyond the last one")?;
            if std::mem::replace(place, true) {
                return Err(format!("ticket {ticket} was drawn twice").into());
            }
        }
    }
    println!("{PROGRAMS} programs drew {} tickets, each of them once", counter.load_u64(0));
    for connection in &connections {
        connection.close().await?;
    }
    Ok(())
}

async fn drawer(net: &Net, address: &str) -> Result {
    // All transports that have atomics have put; the choice asks for that.
    let request = Request::new(Operation::PutShort, size_of::<u64>());
    let connection = net.connect(address).request(request).await?;
    println!("over {}", connection.explanation().chosen);
    let counter = connection.shared().await?;
    let mut tickets = Vec::new();
    for _ in 0..TICKETS {
        tickets.extend(connection.fetch_add(&counter, 0, 1).await?.to_le_bytes());
    }
    connection.send(&tickets).await?;
    connection.closed().await;
    Ok(())
}
