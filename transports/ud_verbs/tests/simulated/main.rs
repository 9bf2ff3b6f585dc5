//! The protocol between interfaces in a simulated network: connections, losses, many peers, slow processors.

#[path = "../simulator/mod.rs"]
mod simulator;

mod connections;
mod reliability;
mod scale;
mod slow;
