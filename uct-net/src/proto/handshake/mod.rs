//! What both sides do before a connection is established: two machines that take frames and events of lanes, and give frames and what is to be
//! opened. They know no socket, no clock and no interface: `local::handshake` is their shell.
//!
//! ```text
//! client                                  server
//!   Hello      what I have          →
//!              ←  Welcome  what I have, how each of mine looks from here, my end (or Refused: the end)
//!   Direct     this pair of ours    →
//!   a message over the lane         →
//!              ←  its answer over the lane                          (or Unable, or nothing in time: a Lane)
//!   Connected                       →
//! ```
//!
//! A lane whose endpoints need each other's addresses, and each one after the first, which has its own end on both sides:
//!
//! ```text
//!   Lane       this pair of ours    →
//!              ←  Ready, my end                                                     (or Unable: the next Lane)
//!   a message over the lane         →
//!              ←  its answer over the lane                                        (or nothing in time: the next Lane)
//!   Connected                       →
//! ```
//!
//! A lane that is a socket takes the one of the handshake, so that the listener's port is the only one that has to be reachable:
//!
//! ```text
//!   Takeover   this pair of ours, the last frame: both hand the socket to their interfaces   →
//!   a message over the lane         →
//!              ←  its answer over the lane
//! ```
//!
//! After another lane was tried the socket has its own end on both sides:
//!
//! ```text
//!   Over       this pair of ours    →
//!              ←  Ready, the last frame: both hand the socket to their interfaces   (or Unable: the next Lane)
//!   a message over the lane         →
//!              ←  its answer over the lane
//! ```
//!
//! Over the first endpoint of a connection manager's connection ([`super::lane_address`]) all of it is the same: Takeover and Over make that
//! endpoint the lane.
//!
//! Where a shared key is required, three frames precede these, and no address is sent before them:
//!
//! ```text
//!   Ask        a number             →
//!              ←  Challenge  another number, and the server's proof
//!   Answer     the client's proof   →
//! ```
//!
//! Each frame behind them ends with a seal ([`auth`]); the server's frames do from behind the Challenge on.
//!
//! In place of any frame the server may send Refused, with the reason, which is the end. Once the socket of the handshake is the lane on its
//! side, it aborts the connection over that lane.
//!
//! An Unable about the first lane says so: both sides may find out by themselves that it does not work, and then that frame comes when the client
//! waits for the answer to its next one.
//!
//! So "connected" means that a message has crossed both ways.

pub(crate) mod auth;
pub(crate) mod client;
pub(crate) mod frames;
pub(crate) mod server;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use self::client::Client;
#[cfg(any(test, feature = "tls", feature = "testing"))]
pub(crate) use self::frames::Frame;
pub(crate) use self::frames::{End, Proposal, Way};
pub(crate) use self::server::Server;
pub(crate) use self::step::{Awaits, Failure, GAVE_WAY, RawFrame};
