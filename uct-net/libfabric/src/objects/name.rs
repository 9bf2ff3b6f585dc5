//! The name of an endpoint: where peers reach it.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use crate::abi::*;
use crate::boundary::Outcome;
use crate::engine::Errno;
use crate::info::{self, socket_address};

use super::{Endpoint, methods};

/// The functions of connections, of which only those of names are offered.
pub static OPS: fi_ops_cm = fi_ops_cm { setname, getname, ..fi_ops_cm::UNSUPPORTED };

methods! {
    fn setname(caller, endpoint: *mut fid => Endpoint, address: *mut c_void, length: usize) -> c_int {
        let bytes = caller.list(address.cast::<u8>().cast_const(), length)?;
        let asked = socket_address::read(bytes).ok_or(Errno::INVALID)?;
        endpoint.set_address(own(FI_SOCKADDR, Some(asked))?)?;
        Ok(0)
    }

    fn getname(caller, endpoint: *mut fid => Endpoint, target: *mut c_void, length: *mut usize) -> c_int {
        let bytes = socket_address::write(endpoint.live()?.engine.name());
        let room = *caller.at(length)?;
        caller.put(length, bytes.len())?;
        if room < bytes.len() {
            return Err(Errno(ETOOSMALL));
        }
        caller.fill(target, room, &bytes)?;
        Ok(0)
    }
}

/// The address to listen at.
///
/// # Errors
/// It is not one of a permitted device of this machine, which is logged.
pub fn own(format: u32, asked: Option<SocketAddr>) -> Outcome<SocketAddr> {
    info::own_address(format, asked).map_err(|reason| {
        ucs::log::warn!("libfabric: no address for an endpoint: {reason}");
        Errno(EADDRNOTAVAIL)
    })
}
