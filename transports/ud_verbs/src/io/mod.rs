//! What the device gives: a queue pair with its completion queues, registered memory, address handles. No protocol decision is
//! made here.

pub(crate) mod memory;
pub(crate) mod packet;
pub(crate) mod path;
pub(crate) mod pool;
pub(crate) mod queue;
