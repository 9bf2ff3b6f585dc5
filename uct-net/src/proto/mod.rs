//! The protocol between the two sides, without input and output: frames of the handshake, envelopes of messages, credits,
//! reassembly. Everything here takes bytes from outside and is tested with bytes that no honest peer sends.

pub(crate) mod assembly;
pub(crate) mod course;
pub(crate) mod envelope;
pub(crate) mod fields;
pub(crate) mod frame;
#[cfg(feature = "testing")]
pub(crate) mod fuzz;
pub(crate) mod handshake;
pub(crate) mod lane_address;
pub(crate) mod shared;
pub(crate) mod varint;
pub(crate) mod window;
