//! The libfabric provider `uct`: programs that use libfabric run over this project's transports, unchanged.
//!
//! | room | holds | may use |
//! |---|---|---|
//! | `abi` | libfabric's structures and constants, as its headers have them | nothing |
//! | `matching` | posted and unexpected receives: pure state | nothing |
//! | `wire` | what peers send each other: pure | nothing |
//! | `engine` | a domain, its endpoints and their peers over `uct-net`, in Rust's terms | matching, wire |
//! | `boundary` | how C calls: pointers, errors, panics | engine, for its errors |
//! | `info` | what the provider offers, compared with what a program asks for | abi, boundary, engine |
//! | `objects` | what programs hold | all of these |
//! | `ops` | what programs call for data | objects, engine |
//! | `tables` | what C finds in an object | objects, ops |
//! | `provider` | what libfabric finds in the file | info, objects |

pub mod abi;
mod boundary;
#[doc(hidden)]
pub mod engine;
mod info;
#[doc(hidden)]
pub mod matching;
mod objects;
mod ops;
mod provider;
mod tables;
#[doc(hidden)]
pub mod wire;

pub use provider::fi_prov_ini;
