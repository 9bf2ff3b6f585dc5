//! Reliable, ordered messages over datagrams that get lost, doubled, reordered and delayed: the state machine.
//!
//! Built on nothing but time and packets that the caller passes in: no I/O, no clock, no thread. The interface
//! is built on it: it sends what [`Table::poll_transmit`] returns, and passes in what arrives.
//!
//! A datagram is a [16-byte header](header) and a body. Sequenced packets (messages and FINISH) are delivered
//! once and in order; control packets (connect, accept, acknowledge, …) are not sequenced and may get lost.
//!
//! A connection has two sides, each of which may be *owned*: an endpoint of that side's user uses it. Connecting
//! to an interface makes a connection that the asking side owns and the other side serves; if that side connects back,
//! its endpoint takes the same connection, also when both connect at once. A side that closes its endpoint sends
//! FINISH and goes on serving as long as the other side owns it; a side that does not own it responds to FINISH with
//! FINISH. When both have arrived the connection is over.
//!
//! **Origin.** A datagram counts only if it comes from the [`Origin`] that its connection has: the queue pair and
//! the port that the device names, which a program cannot forge. A request (CONNECT) names the address of the asking
//! interface, which has to be that of its origin. The first response is a CHALLENGE, for which no state is kept here: only
//! a peer that receives at that address can repeat the request with the cookie in it. Then it may take a place, if its port has not
//! [too many](Settings::connections_per_port). A connection that a peer has made is probed if
//! nothing arrives on it, and fails like any other if no response comes. A datagram of one origin never changes a connection of another.

pub(crate) mod addr;
mod answer;
mod backlog;
mod congestion;
mod connect;
mod connection;
mod control;
#[cfg(feature = "testing")]
mod fuzz;
pub mod header;
mod keepalive;
mod origin;
mod output;
mod pacing;
mod psn;
mod receive;
mod receiver;
pub(crate) mod responses;
mod round_trip;
mod secret;
mod sender;
mod settings;
mod table;
mod time;
mod timer;
mod wheel;

pub use connect::ConnectError;
pub use connection::{ConnectionId, Failure, Handles, Phase};
pub use control::{ADDRESS_LIMIT, Reason};
#[cfg(feature = "testing")]
pub use fuzz::fuzz_packets;
pub use header::{HEADER_SIZE, Header};
pub use origin::Origin;
pub use output::Body;
pub use psn::Psn;
pub use receive::{Discard, Ready, Received};
pub use settings::Settings;
pub use table::{Event, Next, Table};
pub use time::Time;
