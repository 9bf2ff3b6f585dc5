//! A receiver that sleeps: no processor time is used until a message comes.
//!
//!     sleeping_receiver                 the receiver; it prints how to start the sender
//!     sleeping_receiver HOST:PORT       the sender
//!
//! `Wait::Sleep` arms every transport and sleeps on one descriptor. The default polls for 20 µs first. A program with an event
//! loop of its own watches that descriptor itself: see `own_event_loop`.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use uct_core::Context;
use uct_net::{NetOptions, Wait, local::Net};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const MESSAGES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(40);

fn main() -> Result {
    let options = NetOptions { wait: Wait::Sleep, ..NetOptions::default() };
    let net = Net::new(&Context::builder().build()?, options)?;
    match std::env::args().nth(1) {
        None => net.block_on(receiver(&net)),
        Some(address) => net.block_on(sender(&net, &address)),
    }
}

async fn receiver(net: &Net) -> Result {
    let mut listener = net.listen("[::]:0").await?;
    println!("now start: sleeping_receiver localhost:{}", listener.port().unwrap_or_default());
    let connection = listener.accept().await?.accept().await?;
    let (start, used) = (Instant::now(), processor_time()?);
    for _ in 0..MESSAGES {
        connection.recv().await?;
    }
    let (passed, used) = (start.elapsed(), processor_time()? - used);
    println!("{MESSAGES} messages within {} ms, {} us of a processor", passed.as_millis(), used.as_micros());
    connection.closed().await;
    Ok(())
}

async fn sender(net: &Net, address: &str) -> Result {
    let connection = net.connect(address).await?;
    println!("over {}", connection.explanation().chosen);
    for _ in 0..MESSAGES {
        net.sleep(PAUSE).await;
        connection.send(b"news").await?;
    }
    Ok(connection.close().await?)
}

/// Time that this thread has spent on a processor.
fn processor_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("/proc/thread-self/schedstat is empty")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}
