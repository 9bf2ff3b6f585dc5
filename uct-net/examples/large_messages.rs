//! How fast large messages are by rendezvous and in parts, in turns in one run: bytes a second over each transport, and the ratio. Over
//! one whose get is emulated, such as tcp, both are in parts.
//!
//! `cargo run --release -p uct-net --example large_messages [ROUNDS [TRANSPORT]]`

use std::sync::mpsc;
use std::time::Instant;

use uct_core::Context;
use uct_net::local::Net;
use uct_net::{NetOptions, Result};

/// Bytes that one round sends.
const VOLUME: usize = 64 << 20;

/// Sends a round of messages; returns bytes a second.
fn round(transport: &str, length: usize, limit: &'static str) -> Result<f64> {
    let context = move || Context::builder().set("rndv_thresh", limit).build().expect("a context");
    let count = VOLUME / length;
    let (says, hears) = mpsc::channel();
    let receiver = std::thread::spawn(move || -> Result {
        let net = Net::new(&context(), NetOptions::default())?;
        net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            says.send(listener.address()).expect("the sender waits");
            let connection = listener.accept().await?.accept().await?;
            for _ in 0..count {
                assert_eq!(connection.recv().await?.len(), length);
            }
            connection.send(b"all").await?;
            connection.close().await
        })
    });
    let net = Net::new(&context(), NetOptions::default())?;
    let address = hears.recv().expect("the receiver listens");
    let message = vec![7; length];
    let rate = net.block_on(async {
        let connection = net.connect(address).require(transport).await?;
        let begun = Instant::now();
        for _ in 0..count {
            connection.send(&message).await?;
        }
        connection.recv().await?;
        Ok((count * length) as f64 / begun.elapsed().as_secs_f64())
    });
    // The receiver's end waits for this side's.
    drop(net);
    receiver.join().expect("the receiver")?;
    rate
}

fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(7);
    let only = arguments.next();
    println!("{:10} {:>8} {:>12} {:>12} {:>6}", "transport", "KiB", "parts MB/s", "at once MB/s", "ratio");
    let transports =
        only.map_or_else(|| ["posix", "sysv", "cma"].map(str::to_owned).to_vec(), |only| vec![only]);
    for transport in &transports {
        for length in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (rates, limit) in rates.iter_mut().zip(["inf", "1"]) {
                    rates.push(round(transport, length, limit)? / 1e6);
                }
            }
            let [parts, at_once] = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[rates.len() / 2]
            });
            let ratio = at_once / parts;
            println!("{transport:10} {:8} {parts:12.0} {at_once:12.0} {ratio:6.2}", length >> 10);
        }
    }
    Ok(())
}
