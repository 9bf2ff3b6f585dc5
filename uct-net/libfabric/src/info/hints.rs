//! What a program asks for, as `fi_getinfo` gets it.

use std::ffi::c_void;
use std::net::SocketAddr;

use crate::abi::{fi_domain_attr, fi_ep_attr, fi_info, fi_rx_attr, fi_tx_attr};
use crate::boundary::{Caller, Outcome};

use super::socket_address;

/// The hints of a program; attributes that it leaves out are `None`.
#[derive(Clone, Copy)]
pub struct Hints<'a> {
    pub info: &'a fi_info,
    pub transmit: Option<&'a fi_tx_attr>,
    pub receive: Option<&'a fi_rx_attr>,
    pub endpoint: Option<&'a fi_ep_attr>,
    pub domain: Option<&'a fi_domain_attr>,
    pub domain_name: Option<&'a str>,
    pub fabric_name: Option<&'a str>,
    pub source: Address,
    pub destination: Address,
}

impl<'a> Hints<'a> {
    /// `None` if the program has passed none.
    pub fn new(caller: &'a Caller, info: *const fi_info) -> Outcome<Option<Hints<'a>>> {
        let Ok(info) = caller.at(info) else { return Ok(None) };
        let domain = caller.at(info.domain_attr).ok();
        let fabric = caller.at(info.fabric_attr).ok();
        Ok(Some(Hints {
            info,
            transmit: caller.at(info.tx_attr).ok(),
            receive: caller.at(info.rx_attr).ok(),
            endpoint: caller.at(info.ep_attr).ok(),
            domain,
            domain_name: domain.map_or(Ok(None), |domain| caller.text(domain.name))?,
            fabric_name: fabric.map_or(Ok(None), |fabric| caller.text(fabric.name))?,
            source: Address::new(caller, info.src_addr, info.src_addrlen)?,
            destination: Address::new(caller, info.dest_addr, info.dest_addrlen)?,
        }))
    }
}

/// An address as the program has written it.
#[derive(Clone, Copy)]
pub enum Address {
    None,
    Known(SocketAddr),
    Unknown,
}

impl Address {
    fn new(caller: &Caller, bytes: *const c_void, length: usize) -> Outcome<Address> {
        if bytes.is_null() {
            return Ok(Address::None);
        }
        let bytes = caller.list(bytes.cast::<u8>(), length)?;
        Ok(socket_address::read(bytes).map_or(Address::Unknown, Address::Known))
    }

    /// The address, if there is one.
    pub fn known(self, name: &str) -> Result<Option<SocketAddr>, String> {
        match self {
            Address::None => Ok(None),
            Address::Known(address) => Ok(Some(address)),
            Address::Unknown => Err(format!("hints: {name} is neither a sockaddr_in nor a sockaddr_in6")),
        }
    }
}
