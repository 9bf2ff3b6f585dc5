//! What a listener needs.

use std::fmt;

/// A listener to be, made by `.await`. Its methods set what it needs.
#[must_use = "nothing listens until it is awaited"]
pub struct Listen<N> {
    pub(crate) net: N,
    pub(crate) address: String,
    pub(crate) by: Option<String>,
}

impl<N> Listen<N> {
    pub(crate) fn new(net: N, address: impl fmt::Display) -> Listen<N> {
        Listen { net, address: address.to_string(), by: None }
    }

    /// Also listens by a connection manager, on the same port number: `rdmacm`, for callers with [`crate::Connect::by`]. The address is then
    /// that of a network device with an RDMA device, or of all devices. Without such a device, or the connection manager, it is an error, as
    /// with `Tls::confidential`, which encrypts no RDMA.
    pub fn by(mut self, manager: impl Into<String>) -> Listen<N> {
        self.by = Some(manager.into());
        self
    }
}

impl<N> fmt::Debug for Listen<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listen").field("address", &self.address).finish_non_exhaustive()
    }
}
