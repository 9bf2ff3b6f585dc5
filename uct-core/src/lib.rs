//! uct-core
