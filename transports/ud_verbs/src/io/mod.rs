//! What the device gives: a queue pair with its completion queues, registered memory, address handles. No protocol decision is
//! made here.

mod chunks;
pub(crate) mod memory;
pub(crate) mod packet;
pub(crate) mod packets;
pub(crate) mod path;
pub(crate) mod queue;
pub(crate) mod receives;
