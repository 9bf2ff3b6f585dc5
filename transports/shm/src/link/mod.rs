//! Connections to peers. Built on `proto` and `io`.

pub(crate) mod place;
pub(crate) mod remote;
