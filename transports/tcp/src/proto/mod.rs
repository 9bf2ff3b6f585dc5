//! What crosses a socket or an address, as bytes: pure functions without a system call.

pub(crate) mod addr;
pub(crate) mod cm;
pub(crate) mod fill;
mod version;
pub(crate) mod wire;
