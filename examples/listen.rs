//! A server: sends back what it receives, to one client after the other. `listen [ADDRESS]`, then `connect ADDRESS` elsewhere.

use uct_core::Context;
use uct_net::{NetOptions, local::Net};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("[::]:7000".to_owned());
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    net.block_on(async {
        let mut listener = net.listen(address).await?;
        println!("listening on {}", listener.address());
        loop {
            let connection = listener.accept().await?.accept().await?;
            print!("{}", connection.explanation());
            while let Ok(message) = connection.recv().await {
                connection.send(&message).await?;
            }
            println!("{}", connection.closed().await);
        }
    })
}
