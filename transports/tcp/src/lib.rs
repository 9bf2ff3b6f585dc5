//! The `tcp` transport.
