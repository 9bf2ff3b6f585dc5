//! What the device and the system give: queues, registered memory, descriptors. No protocol decision is made here.

pub(crate) mod buffer;
pub(crate) mod completions;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod receive;
pub(crate) mod wakeup;
pub(crate) mod watches;
