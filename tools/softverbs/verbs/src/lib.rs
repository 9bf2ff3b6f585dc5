//! The functions of libibverbs on the software verbs device, under their C names.
//!
//! For programs of others, which load `libibverbs.so.1`. `libibverbs.map` says which version of the library each name belongs to;
//! the linker refuses a name there that is not here.

// The manual pages say what they mean, and `uct_ib_soft::abi` what of it holds.
#![allow(missing_docs)]

mod exported;
mod private;
mod unsupported;
