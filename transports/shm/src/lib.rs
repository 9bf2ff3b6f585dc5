//! The `shm` transport.
