//! The engine over the simulated network: what is promised to applications, loss or no loss.

mod connected;
mod datagrams;
mod errors;
mod faults;
mod net;
mod objects;
mod retries;
mod seeds;
