//! Pure state and formats: what travels, and what a connection counts. Nothing here calls the device, the system or the SDK.

pub(crate) mod addr;
pub(crate) mod liveness;
pub(crate) mod outstanding;
pub(crate) mod send_queue;
pub(crate) mod window;
pub(crate) mod wire;
