//! What happens to a peer that is a process of its own, and how it is met.

use std::io::Write;

use uct_net::Result;
use uct_net::local::{Connection, Net};

use super::LOOPBACK;

/// What happens to a peer at some stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is killed.
    Killed,
    /// It is stopped for longer than the survivor waits.
    Stopped,
    /// It is stopped, and goes on before the limits of the survivor.
    GoesOn,
}

/// The connection of the process that is to be stopped: as `client TRANSPORT ADDRESS`, or as a listener that prints its address.
pub async fn meet(net: &Net, role: &str) -> Result<Connection> {
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["client", transport, address] => net.connect(address).require(transport).await,
        _ => {
            let mut listener = net.listen(LOOPBACK).await?;
            println!("\nlistening {}", listener.address());
            std::io::stdout().flush().expect("the parent reads");
            listener.accept().await?.accept().await
        }
    }
}
