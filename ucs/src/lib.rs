//! ucs
