//! Connections by rdmacm. On a machine with an RDMA device; the others skip them.

#[path = "../../../transports/rc_verbs/tests/device/cable.rs"]
mod cable;
#[path = "../support/mod.rs"]
mod support;

mod connecting;
mod hostile;
mod link;
