//! Nets whose connections are lanes inside TLS, as between two machines.

use uct_core::Context;
use uct_net::{NetOptions, Tls};

use super::certificates::Authority;
use super::{patient, with};

/// The host that the certificates are for.
pub const HERE: &str = "127.0.0.1";

/// Only `tcp`, on the loopback device.
pub fn only_tcp() -> Context {
    with(&[("tls", "tcp"), ("net_devices", "lo")])
}

/// Options of both sides, which trust one authority of their own.
pub fn confidential() -> NetOptions {
    let authority = Authority::new("ours");
    let tls = Tls::confidential().server(authority.issue(HERE).server()).client(authority.client(None));
    NetOptions { tls: Some(tls), ..patient() }
}
