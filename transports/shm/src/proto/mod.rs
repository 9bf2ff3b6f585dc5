//! What crosses a socket or shared memory, and the state of rings and of progress, without a system call.

pub(crate) mod addr;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod ring;
pub(crate) mod schedule;
pub(crate) mod table;
pub(crate) mod wire;
