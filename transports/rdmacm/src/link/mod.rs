//! What the connections of a connection manager share: devices, deadlines, and the way of a queue pair to work.

pub mod deadlines;
pub mod devices;
pub mod explain;
pub mod prepare;
