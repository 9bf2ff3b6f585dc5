//! The `ud_verbs` transport.
