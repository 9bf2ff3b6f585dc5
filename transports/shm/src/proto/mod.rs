//! What crosses a socket or shared memory: formats, and the state of rings, without a system call.

pub(crate) mod addr;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod wire;
