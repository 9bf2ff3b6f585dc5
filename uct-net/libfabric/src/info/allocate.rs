//! Makes the structures that libfabric duplicates and frees.
//!
//! Built on `calloc`. Later versions of libfabric have longer structures than `abi` and copy those of its own length, so each allocation has
//! reserve behind it, of zeros, which mean "not said" in all of them.

use std::ffi::c_char;
use std::net::SocketAddr;
use std::ptr::null_mut;

use crate::abi::*;

use super::address::Addresses;
use super::offer::Offer;
use super::{NAME, socket_address};

const RESERVE: usize = 512;

/// One `fi_info` with all its attributes; `None` if there is no memory.
pub fn info(offer: &Offer, addresses: Option<Addresses>) -> Option<*mut fi_info> {
    let source = addresses.and_then(|addresses| addresses.source);
    let destination = addresses.and_then(|addresses| addresses.destination);
    let (src_addr, src_addrlen) = address(source)?;
    let (dest_addr, dest_addrlen) = address(destination)?;
    let domain = fi_domain_attr { name: copy(NAME)?, ..offer.domain };
    let fabric = fi_fabric_attr {
        fabric: null_mut(),
        name: copy(NAME)?,
        prov_name: null_mut(),
        prov_version: 0,
        api_version: 0,
    };
    allocate(fi_info {
        next: null_mut(),
        caps: offer.caps,
        mode: 0,
        addr_format: source.map_or(FI_SOCKADDR_IN, socket_address::format),
        src_addrlen,
        dest_addrlen,
        src_addr: src_addr.cast(),
        dest_addr: dest_addr.cast(),
        handle: null_mut(),
        tx_attr: allocate(offer.transmit)?,
        rx_attr: allocate(offer.receive)?,
        ep_attr: allocate(offer.endpoint)?,
        domain_attr: allocate(domain)?,
        fabric_attr: allocate(fabric)?,
        nic: null_mut(),
    })
}

fn address(address: Option<SocketAddr>) -> Option<(*mut u8, usize)> {
    let Some(address) = address else { return Some((null_mut(), 0)) };
    let bytes = socket_address::write(address);
    Some((copy_bytes(&bytes)?, bytes.len()))
}

fn copy(text: &str) -> Option<*mut c_char> {
    copy_bytes(text.as_bytes()).map(<*mut u8>::cast)
}

/// A copy with zeros behind it.
fn copy_bytes(bytes: &[u8]) -> Option<*mut u8> {
    let target: *mut u8 = zeroed(bytes.len())?;
    // SAFETY: `zeroed` has that many bytes, and they are new.
    unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Some(target)
}

fn allocate<T>(value: T) -> Option<*mut T> {
    let target: *mut T = zeroed(size_of::<T>())?;
    // SAFETY: it has room for one, and `calloc` aligns it for any.
    unsafe { target.write(value) };
    Some(target)
}

fn zeroed<T>(bytes: usize) -> Option<*mut T> {
    // SAFETY: allocates; the result is looked at.
    let target: *mut T = unsafe { libc::calloc(1, bytes + RESERVE) }.cast();
    (!target.is_null()).then_some(target)
}
