//! The plugin boundary: `repr(C)` types, and nothing else.
//!
//! Used by `uct-core` on one side, a transport plugin on the other, in Rust (through `uct-plugin`) or in C (through
//! `include/uct_abi.h`, generated from these files). No dependencies.
//!
//! # Rules that hold for every table and slot
//!
//! - A table begins with its `size` in bytes as its maker compiled it, and only ever grows at its end. A slot that is
//!   absent or null returns [`UCT_ERR_UNSUPPORTED`]; only slots marked *mandatory* may not be.
//! - A function returns a [`UctStatus`]; the numbers are UCX's. Unknown numbers and unknown flag bits are tolerated.
//! - Pointers to bytes that the host passes are never null, also where the length is 0.
//! - The side that allocates frees. Lists leave a plugin through an `emit` callback, text through a [`UctText`] that the host owns.
//! - Nothing may unwind through a slot. `uct-plugin` guards each one.
//! - Handlers of messages, completions, pending requests and error handlers run inside `progress`, and may call any slot of the
//!   same worker's objects, `progress` of the same interface among them. The host destroys and closes nothing from inside a slot: it
//!   waits until no call of a plugin is in progress on that thread.
//! - In the child of a fork the host calls no slot of an endpoint that was made before it.
//! - All objects of one interface belong to the thread of its worker, unless a slot or [`UCT_IFACE_ATTR_ANY_THREAD`] states
//!   otherwise. No slot blocks, unless its documentation states it. Strings are UTF-8 without a terminating zero ([`UctStr`]).
//! - Statements about semantics follow UCX's `uct/api/uct.h`.

#![no_std]

mod cm;
mod component;
mod config;
mod ep;
mod flags;
mod handles;
mod host;
mod iface;
mod layout;
mod md;
mod plugin;
mod primitive;
mod status;

pub use cm::*;
pub use component::*;
pub use config::*;
pub use ep::*;
pub use flags::*;
pub use handles::*;
pub use host::*;
pub use iface::*;
pub use layout::LAYOUT;
pub use md::*;
pub use plugin::*;
pub use primitive::*;
pub use status::*;
