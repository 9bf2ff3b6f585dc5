//! What travels as private data, the states of a connection, and what refusals mean. No system call is here.

pub mod private;
pub mod refusal;
pub mod state;
