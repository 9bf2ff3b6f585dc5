//! Peers that send what they should not: any packet, any number of times, at any moment.

#[path = "../engine/net.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod net;
mod peer;

mod answers;
mod datagrams;
mod duplicates;
mod floods;
mod refusals;
