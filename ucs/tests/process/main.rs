//! What there is once in a process: its log, its places for peers, the seed of its tests.
#![cfg(not(miri))]

#[path = "../../testing/alone.rs"]
mod alone;
#[path = "../../testing/page.rs"]
mod page;
#[path = "../../testing/property.rs"]
mod property;
#[path = "../../testing/skip.rs"]
mod skip;

mod admission;
mod alone_again;
mod log_flood;
mod log_forward;
mod log_receive;
mod log_record;
mod mapped;
mod seeds;
mod unblocking;
