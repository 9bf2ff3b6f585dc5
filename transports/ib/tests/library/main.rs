//! The system's libibverbs: the types of its functions, and the errors without it.

mod abi_functions;
mod errors;
