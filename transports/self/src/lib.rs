//! The `self` transport.
