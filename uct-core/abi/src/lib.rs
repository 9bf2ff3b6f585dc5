//! uct-core/abi
