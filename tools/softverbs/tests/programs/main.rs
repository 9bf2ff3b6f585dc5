//! Programs of others, as their users start them: unmodified, without root, between two processes over loopback.

mod devices;
mod perftest;
mod pingpong;
#[path = "../../../../ucs/testing/skip.rs"]
mod skip;
mod support;
mod ucx;
