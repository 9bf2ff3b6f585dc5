//! What the provider offers, compared with what a program asks for: `fi_getinfo`.
//!
//! For `provider`. Built on `abi`, on the limits of `engine`, and on `ucs` for network devices. A refusal names what was asked for.

mod address;
mod allocate;
mod hints;
mod offer;
pub mod socket_address;

use std::fmt::Display;
use std::net::SocketAddr;

use ucs::log::Directives;
use uct_core::Context;

use crate::abi::{EADDRNOTAVAIL, FI_PROV_ATTR_ONLY, OFI_CORE_PROV_ONLY, fi_info};

use crate::boundary::Outcome;
use crate::engine::Errno;

pub use hints::Hints;
pub use offer::{MAX_ATOMIC, RECEIVE_FLAGS, TRANSMIT_FLAGS};

/// Name of the only fabric and of its only domain.
pub const NAME: &str = "uct";

/// A call of `fi_getinfo`.
pub struct Request<'a> {
    pub version: u32,
    pub node: Option<&'a str>,
    pub service: Option<&'a str>,
    pub flags: u64,
    pub hints: Option<Hints<'a>>,
    /// The number of the protocol of this provider's name.
    pub protocol: u32,
}

/// Answers a call: one structure, which libfabric frees, or the reason why there is none.
pub fn find(request: &Request<'_>) -> Result<*mut fi_info, String> {
    let config = Context::builder().core_config().map_err(|error| error.to_string())?;
    ucs::log::print_unheard(Directives::parse(&config.log_level));
    if request.flags & OFI_CORE_PROV_ONLY != 0 {
        return Err("a layer of libfabric asks for a provider beneath it, and this one needs none".to_owned());
    }
    let hints = request.hints.as_ref();
    for (kind, asked) in
        [("fabric", hints.and_then(|it| it.fabric_name)), ("domain", hints.and_then(|it| it.domain_name))]
    {
        match asked {
            Some(asked) if asked != NAME => return refused(&format!("{kind}_attr.name"), asked, NAME),
            _ => {}
        }
    }
    let offer = offer::Offer::new(request.version, request.protocol, hints)?;
    let addresses = if request.flags & FI_PROV_ATTR_ONLY != 0 {
        None
    } else {
        Some(address::addresses(request.node, request.service, request.flags, hints, &config.net_devices)?)
    };
    allocate::info(&offer, addresses).ok_or_else(|| "there is no memory for the answer".to_owned())
}

/// The address of an endpoint whose program wants this one, or any of this format.
///
/// # Errors
/// It is not one of a permitted device of this machine, which is logged.
pub fn own_address(format: u32, asked: Option<SocketAddr>) -> Outcome<SocketAddr> {
    let config = Context::builder().core_config().map_err(|error| error.to_string());
    let found = config.and_then(|config| address::own(format, asked, &config.net_devices));
    found.map_err(|reason| {
        ucs::log::warn!("libfabric: no address for an endpoint: {reason}");
        Errno(EADDRNOTAVAIL)
    })
}

fn refused<T>(name: &str, asked: impl Display, offered: impl Display) -> Result<T, String> {
    Err(format!("hints: {name} = {asked}, and offered is {offered}"))
}
