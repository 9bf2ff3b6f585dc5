//! The `rc_verbs` transport.
