//! The data path: the functions that programs call for messages, remote memory and atomics.
//!
//! Built on `objects` and `engine`. All of them come down to the calls of [`core`].

pub mod atomic;
mod core;
pub mod message;
pub mod rma;
pub mod tagged;
