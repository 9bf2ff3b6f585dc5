//! Peers of `tcp` that do harm: what they can make an interface spend, what they learn, what they can break.

#[path = "../../../ucs/testing/alone.rs"]
mod alone;
#[path = "../support/tcp.rs"]
mod support;
#[path = "../support/victim.rs"]
mod victim;

mod attacks;
mod cm;
mod frames;
mod identity;
