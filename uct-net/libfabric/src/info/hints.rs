//! What a program asks for, as `fi_getinfo` gets it.

use crate::abi::{fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr};
use crate::boundary::{Outcome, at, list, text};

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
}

impl<'a> Hints<'a> {
    /// # Safety
    /// The pointer is null, or the structure and all that it points to are valid and unchanged for `'a`.
    pub unsafe fn new(info: *const fi_info) -> Outcome<Option<Hints<'a>>> {
        // SAFETY: the caller's promise, here and below.
        let Ok(info) = (unsafe { at(info) }) else { return Ok(None) };
        // SAFETY: as above.
        let transmit = unsafe { at(info.tx_attr) }.ok();
        // SAFETY: as above.
        let receive = unsafe { at(info.rx_attr) }.ok();
        // SAFETY: as above.
        let endpoint = unsafe { at(info.ep_attr) }.ok();
        // SAFETY: as above.
        let domain: Option<&fi_domain_attr> = unsafe { at(info.domain_attr) }.ok();
        // SAFETY: as above.
        let fabric: Option<&fi_fabric_attr> = unsafe { at(info.fabric_attr) }.ok();
        // SAFETY: as above.
        let domain_name = unsafe { text(domain.map_or(std::ptr::null(), |domain| domain.name)) }?;
        // SAFETY: as above.
        let fabric_name = unsafe { text(fabric.map_or(std::ptr::null(), |fabric| fabric.name)) }?;
        Ok(Some(Hints { info, transmit, receive, endpoint, domain, domain_name, fabric_name }))
    }

    /// The address that the program wants to have.
    pub fn source(&self) -> Result<Option<std::net::SocketAddr>, String> {
        Self::address("src_addr", self.info.src_addr, self.info.src_addrlen)
    }

    /// The address that the program wants to reach.
    pub fn destination(&self) -> Result<Option<std::net::SocketAddr>, String> {
        Self::address("dest_addr", self.info.dest_addr, self.info.dest_addrlen)
    }

    fn address(
        name: &str,
        pointer: *const std::ffi::c_void,
        length: usize,
    ) -> Result<Option<std::net::SocketAddr>, String> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: `new` was promised that what the hints point to is valid.
        let bytes = unsafe { list(pointer.cast::<u8>(), length) }.unwrap_or_default();
        let address = socket_address::read(bytes);
        address.map(Some).ok_or_else(|| format!("{name} is neither a sockaddr_in nor a sockaddr_in6"))
    }
}
