//! The name of an endpoint: where peers reach it.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::engine::Errno;
use crate::info::{self, socket_address};

use super::endpoint::Endpoint;
use super::methods;

methods! {
    pub fn setname(caller, endpoint: *mut fid => Endpoint, address: *mut c_void, length: usize) -> c_int {
        let bytes = caller.list(address.cast::<u8>().cast_const(), length)?;
        let asked = socket_address::read(bytes).ok_or(Errno::INVALID)?;
        endpoint.set_address(info::own_address(FI_SOCKADDR, Some(asked))?)?;
        Ok(0)
    }

    pub fn getname(caller, endpoint: *mut fid => Endpoint, target: *mut c_void, length: *mut usize) -> c_int {
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
