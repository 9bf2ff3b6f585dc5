//! The C library: connections by address for programs in C and C++. `include/uct.h` is its documentation.
//!
//! Used by programs that link `libuct-net.so.0`. Built on `uct-net`: the state of a net is a protocol on its engine, so
//! that operations begin in the thread that calls, go on in whichever thread drives, and need no thread or lock of
//! their own.
//!
//! | room | holds | may use |
//! |---|---|---|
//! | `abi` | the structures and constants of the header | nothing |
//! | `failure` | why a call is refused or an operation has failed | nothing |
//! | `handles` | what a program holds in place of pointers, and tables of what they stand for | failure |
//! | `events` | ends of operations that wait to be taken | abi, failure |
//! | `state` | a net's objects and operations, under the lock of its engine | all of these |
//! | `options` | texts as options of a net, a connection or a listener | failure |
//! | `net` | an open net: calls under its lock, waiting | state, options |
//! | `registry` | the nets and options of the process, by handle | net |
//! | `boundary` | how C calls: pointers, refusals, panics | failure |
//! | `exports` | the functions of the header | all of these |

#![deny(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a handle is a number of 64 bits in place of a pointer");

pub mod abi;
mod boundary;
mod events;
pub mod exports;
mod failure;
mod handles;
mod net;
mod options;
mod registry;
mod state;
