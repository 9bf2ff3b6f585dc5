//! A server for many clients in one thread: each connection is a future, and all of them are driven together.
//!
//!     echo_server [ADDRESS]     then connect ADDRESS, as often and at once as you like

#![forbid(unsafe_code)]

use std::pin::pin;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use uct_core::Context;
use uct_net::local::{Incoming, Net};
use uct_net::{NetOptions, Result};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("[::]:7000".to_owned());
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    net.block_on(async {
        let mut listener = net.listen(address).await?;
        println!("listening on {}", listener.address());
        let mut clients = FuturesUnordered::new();
        loop {
            // `accept` loses no caller when it is dropped.
            let ended = match select(pin!(listener.accept()), clients.next()).await {
                Either::Left((incoming, _)) => {
                    clients.push(serve(incoming?));
                    continue;
                }
                Either::Right((ended, accept)) => match ended {
                    Some(ended) => ended,
                    // No client: nothing but the next one to wait for.
                    None => {
                        clients.push(serve(accept.await?));
                        continue;
                    }
                },
            };
            match ended {
                Ok(count) => println!("{count} messages, {} clients left", clients.len()),
                // One client's failure is not the server's.
                Err(error) => println!("{error}, {} clients left", clients.len()),
            }
        }
    })
}

/// Sends back what a client sends, until it closes; returns how many messages that were.
async fn serve(incoming: Incoming) -> Result<u64> {
    let connection = incoming.accept().await?;
    let mut count = 0;
    loop {
        match connection.recv().await {
            Ok(message) => connection.send(&message).await?,
            Err(error) if error.is_closed_by_peer() => return Ok(count),
            Err(error) => return Err(error),
        }
        count += 1;
    }
}
