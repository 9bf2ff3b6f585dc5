//! One connection to one peer, and what all connections of an interface share. Built on `proto` and `io`.

pub(crate) mod agenda;
pub(crate) mod conn;
pub(crate) mod emulation;
pub(crate) mod flushes;
pub(crate) mod op;
pub(crate) mod receiving;
pub(crate) mod rkey;
pub(crate) mod shared;
pub(crate) mod table;
