//! The system's libibverbs: the errors without it.

mod errors;
