//! tokio: streams of `uct-net` in place of `TcpListener` and `TcpStream`, in a runtime with several threads.
//!
//!     tokio_echo                 the server; it prints how to start a client
//!     tokio_echo HOST:PORT       a client: sends its standard input and prints what comes back
//!
//! `uct_net::Net` is for any thread, so a task for each client may run anywhere. See docs/net-adapters.md for libraries on top.

#![forbid(unsafe_code)]

use tokio::io::{AsyncWriteExt, copy, split};
use uct_core::Context;
use uct_net::{Net, NetOptions};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    match std::env::args().nth(1) {
        None => serve(&net).await,
        Some(address) => echo(&net, &address).await,
    }
}

async fn serve(net: &Net) -> Result {
    let mut listener = net.listen("[::]:0").await?;
    println!("now start: tokio_echo localhost:{}", listener.port().unwrap_or_default());
    loop {
        let incoming = listener.accept().await?;
        tokio::spawn(async move {
            let peer = incoming.peer().to_owned();
            let outcome = async {
                let (mut reads, mut writes) = split(incoming.accept().await?.into_stream());
                let count = copy(&mut reads, &mut writes).await?;
                writes.shutdown().await?;
                std::io::Result::Ok(count)
            };
            match outcome.await {
                Ok(count) => println!("{peer}: {count} bytes"),
                Err(error) => println!("{peer}: {error}"),
            }
        });
    }
}

async fn echo(net: &Net, address: &str) -> Result {
    let connection = net.connect(address).await?;
    println!("over {}", connection.explanation().chosen);
    let (mut reads, mut writes) = split(connection.into_stream());
    let send = async {
        copy(&mut tokio::io::stdin(), &mut writes).await?;
        writes.shutdown().await
    };
    let mut output = tokio::io::stdout();
    tokio::try_join!(send, copy(&mut reads, &mut output))?;
    Ok(output.flush().await?)
}
