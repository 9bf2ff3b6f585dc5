//! A client: says hello to `listen`, over the best transport that both have, and prints why that one. `connect [ADDRESS]`.

use uct_core::Context;
use uct_net::{NetOptions, local::Net};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("localhost:7000".to_owned());
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    net.block_on(async {
        let connection = net.connect(address).await?;
        print!("{}", connection.explanation());
        connection.send(b"hello").await?;
        let answer = connection.recv().await?;
        println!("the peer says {}", String::from_utf8_lossy(&answer));
        connection.close().await?;
        Ok(())
    })
}
