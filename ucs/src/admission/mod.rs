//! Who takes a place: callers in their handshake, requests, connections. Any process may call, so their number is limited, for all
//! and for each source, and an entry that has said nothing gives way to a new one.
//!
//! Used by the listeners of `tcp`, its connection manager and `uct-net`. [`Places`] decides and does nothing else: it knows entries by
//! their ids, is told the time and whether descriptors are short, and closes nothing.

mod patience;
mod places;
mod source;

pub use patience::Patience;
pub use places::{Limits, Places, Vacancy};
pub use source::Source;
