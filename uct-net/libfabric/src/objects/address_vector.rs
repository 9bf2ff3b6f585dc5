//! Address vectors: maps and tables are the same here, since an address is its index.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use ucs::sys::net;

use crate::abi::*;
use crate::boundary::{Caller, Outcome};
use crate::engine::{self, Errno, NOT_AVAILABLE};
use crate::info::socket_address;

use super::domain::Domain;
use super::event_queue::EventQueue;
use super::methods;

/// An address vector of the engine.
pub struct AddressVector {
    pub engine: Arc<engine::AddressVector>,
    pub domain: Arc<Domain>,
}

/// Highest bits of indices that a program may use for the number of a receive context, which is 0 here. Indices are below.
const CONTEXT_BITS: std::ops::RangeInclusive<c_int> = 0..=16;
/// Flags of the insertion of addresses that change nothing here.
const HINTS: u64 = FI_MORE;

methods! {
    pub fn open(
        caller, domain: *mut fid_domain => Domain, attr: *mut fi_av_attr, target: *mut *mut fid_av,
        context: *mut c_void,
    ) -> c_int {
        if let Ok(asked) = caller.at(attr) {
            // Neither shared between processes, nor filled in the background.
            if asked.flags & FI_EVENT != 0 || !asked.name.is_null() {
                return Err(Errno(ENOSYS));
            }
            let known = [FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE];
            if !known.contains(&asked.r#type) || !CONTEXT_BITS.contains(&asked.rx_ctx_bits) {
                return Err(Errno::INVALID);
            }
        }
        let engine = Arc::new(engine::AddressVector::new());
        caller.give(AddressVector { engine, domain: Arc::clone(domain) }, context, target)?;
        Ok(0)
    }

    /// An event queue may be bound. It gets no event.
    pub fn bind(caller, _vector: *mut fid => AddressVector, other: *mut fid, _flags: u64) -> c_int {
        caller.held::<EventQueue>(other)?;
        Ok(0)
    }

    pub fn insert(
        caller, vector: *mut fid_av => AddressVector, addresses: *const c_void, count: usize,
        indices: *mut fi_addr_t, flags: u64, context: *mut c_void,
    ) -> c_int {
        if flags & !(HINTS | FI_SYNC_ERR) != 0 {
            return Err(Errno(EBADFLAGS));
        }
        let errors = if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { std::ptr::null_mut() };
        let (mut inserted, mut next) = (0, addresses.cast::<u8>());
        for place in 0..count {
            // Elements behind one of an unknown length are unknown as well.
            let address = read(caller, next);
            next = next.wrapping_add(address.map_or(0, |address| socket_address::write(address).len()));
            let index = address.map_or(NOT_AVAILABLE, |address| vector.engine.insert(address));
            inserted += c_int::from(address.is_ok());
            if !indices.is_null() {
                caller.put(indices.wrapping_add(place), index)?;
            }
            if !errors.is_null() {
                caller.put(errors.wrapping_add(place), address.err().map_or(0, |errno| errno.0))?;
            }
        }
        Ok(inserted)
    }

    pub fn insertsvc(
        caller, vector: *mut fid_av => AddressVector, node: *const c_char, service: *const c_char,
        index: *mut fi_addr_t, flags: u64, _context: *mut c_void,
    ) -> c_int {
        if flags & !HINTS != 0 {
            return Err(Errno(EBADFLAGS));
        }
        let (node, service) = (caller.text(node)?.ok_or(Errno::INVALID)?, caller.text(service)?.ok_or(Errno::INVALID)?);
        let found = net::look_up(node, service).map_err(|error| {
            ucs::log::info!("libfabric: {node}, service {service}, is not inserted: {error}");
            Errno(ENODATA)
        })?;
        let address = *found.first().ok_or(Errno(ENODATA))?;
        let inserted = vector.engine.insert(address);
        if !index.is_null() {
            caller.put(index, inserted)?;
        }
        Ok(1)
    }

    pub fn remove(
        caller, vector: *mut fid_av => AddressVector, indices: *mut fi_addr_t, count: usize, flags: u64,
    ) -> c_int {
        if flags != 0 {
            return Err(Errno(EBADFLAGS));
        }
        let mut all_known = true;
        for index in caller.list(indices, count)? {
            all_known &= vector.engine.remove(*index);
        }
        if all_known { Ok(0) } else { Err(Errno::INVALID) }
    }

    pub fn lookup(
        caller, vector: *mut fid_av => AddressVector, index: fi_addr_t, target: *mut c_void, length: *mut usize,
    ) -> c_int {
        let address = vector.engine.address(index).ok_or(Errno::INVALID)?;
        let bytes = socket_address::write(address);
        caller.fill(target, *caller.at(length)?, &bytes)?;
        caller.put(length, bytes.len())?;
        Ok(0)
    }

    pub fn straddr(
        caller, _vector: *mut fid_av => AddressVector, address: *const c_void, target: *mut c_char,
        length: *mut usize,
    ) -> *const c_char {
        let address = read(caller, address.cast())?;
        let form = if address.is_ipv4() { "fi_sockaddr_in" } else { "fi_sockaddr_in6" };
        let mut text = format!("{form}://{address}").into_bytes();
        text.push(0);
        let room = *caller.at(length)?;
        caller.put(length, text.len())?;
        if let Some(last) = room.checked_sub(1) {
            // What does not fit is cut off; there is a zero in any case.
            let cut = last.min(text.len() - 1);
            caller.fill(target.cast(), room, &text[..cut])?;
            caller.put(target.wrapping_add(cut), 0)?;
        }
        Ok(target.cast_const())
    }
}

/// An address of the program's, of as many bytes as its family has.
fn read(caller: &Caller, address: *const u8) -> Outcome<SocketAddr> {
    let family = *caller.at(address.cast::<[u8; size_of::<libc::sa_family_t>()]>())?;
    let length = socket_address::length(libc::sa_family_t::from_ne_bytes(family)).ok_or(Errno::INVALID)?;
    socket_address::read(caller.list(address, length)?).ok_or(Errno::INVALID)
}
