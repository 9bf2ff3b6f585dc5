//! UCT's vocabulary for C: the functions that programs written for UCX's UCT call, over this project's transports.
//!
//! Programs see `include/uct-compat`, whose names stand for the `uctc_` functions here. A handle is a pointer to an
//! object of this crate, one file for each kind. Data go to the slots of the boundary with the program's own
//! completions and callbacks, which have the same form there.
//!
//! | file | holds |
//! |---|---|
//! | `call` | how C calls: pointers, errors, panics |
//! | `types` | the structures that C fills and reads |
//! | `names`, `config`, `async_context` | texts, and what is a token only |
//! | `component`, `md`, `memory`, `key` | devices, domains, registrations, remote keys |
//! | `worker`, `iface`, `received`, `ep` | objects that make progress |
//! | `vector`, `am`, `rma`, `atomic`, `order` | operations |

mod am;
mod async_context;
mod atomic;
mod call;
mod component;
mod config;
mod ep;
mod iface;
mod key;
mod md;
mod memory;
mod names;
mod order;
mod received;
mod rma;
#[doc(hidden)]
pub mod types;
mod vector;
mod worker;
