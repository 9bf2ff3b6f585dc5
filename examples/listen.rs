//! A server: sends back what it receives, to one client after the other. `listen [ADDRESS]`, then `connect ADDRESS` elsewhere.

use uct_core::Context;
use uct_net::local::{Incoming, Net};
use uct_net::{NetOptions, Result};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("[::]:7000".to_owned());
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    net.block_on(async {
        let mut listener = net.listen(address).await?;
        println!("listening on {}", listener.address());
        loop {
            let incoming = listener.accept().await?;
            // One client's failure is not the server's.
            if let Err(why) = serve(incoming).await {
                println!("{why}");
            }
        }
    })
}

/// Sends back what a client sends, until its connection ends.
async fn serve(incoming: Incoming) -> Result {
    let connection = incoming.accept().await?;
    print!("{}", connection.explanation());
    loop {
        let message = connection.recv().await?;
        connection.send(&message).await?;
    }
}
