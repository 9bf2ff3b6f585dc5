//! Remote memory.

use std::ffi::c_void;

use crate::abi::*;
use crate::boundary::{Caller, Memory, Outcome};
use crate::engine::{Errno, Remote, Rma};
use crate::objects::endpoint::Endpoint;
use crate::objects::methods;

use super::core::{self, ACCESS, Flags};

methods! {
    pub fn read(
        caller, ep: *mut fid_ep => Endpoint, base: *mut c_void, length: usize, _desc: *mut c_void, to: fi_addr_t,
        offset: u64, key: u64, context: *mut c_void,
    ) -> isize {
        let (memory, remote) = ([caller.bytes(base, length)?], Remote { key, offset });
        let rma = Rma { to, buffers: &memory, remote, context: context as usize, ..ACCESS };
        core::read(ep, Flags::Default, rma)
    }

    pub fn readv(
        caller, ep: *mut fid_ep => Endpoint, list: *const iovec, _desc: *mut *mut c_void, count: usize,
        to: fi_addr_t, offset: u64, key: u64, context: *mut c_void,
    ) -> isize {
        let (memory, remote) = (caller.buffers(list, count)?, Remote { key, offset });
        let rma = Rma { to, buffers: memory.parts(), remote, context: context as usize, ..ACCESS };
        core::read(ep, Flags::Default, rma)
    }

    pub fn readmsg(caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_rma, flags: u64) -> isize {
        let message = caller.at(message)?;
        let (memory, remote) = places(caller, message)?;
        let (to, context) = (message.addr, message.context as usize);
        core::read(ep, Flags::Given(flags), Rma { to, buffers: memory.parts(), remote, context, ..ACCESS })
    }

    pub fn write(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, _desc: *mut c_void, to: fi_addr_t,
        offset: u64, key: u64, context: *mut c_void,
    ) -> isize {
        let (memory, remote) = ([caller.bytes(base, length)?], Remote { key, offset });
        let rma = Rma { to, buffers: &memory, remote, context: context as usize, ..ACCESS };
        core::write(ep, Flags::Default, rma)
    }

    pub fn writev(
        caller, ep: *mut fid_ep => Endpoint, list: *const iovec, _desc: *mut *mut c_void, count: usize,
        to: fi_addr_t, offset: u64, key: u64, context: *mut c_void,
    ) -> isize {
        let (memory, remote) = (caller.buffers(list, count)?, Remote { key, offset });
        let rma = Rma { to, buffers: memory.parts(), remote, context: context as usize, ..ACCESS };
        core::write(ep, Flags::Default, rma)
    }

    pub fn writemsg(caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_rma, flags: u64) -> isize {
        let (message, flags) = (caller.at(message)?, Flags::Given(flags));
        let (memory, remote) = places(caller, message)?;
        let (to, data, context) = (message.addr, flags.data(message.data), message.context as usize);
        core::write(ep, flags, Rma { to, buffers: memory.parts(), remote, data, context, ..ACCESS })
    }

    pub fn inject(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, to: fi_addr_t, offset: u64,
        key: u64,
    ) -> isize {
        let (memory, remote) = ([caller.bytes(base, length)?], Remote { key, offset });
        core::write(ep, Flags::Inject, Rma { to, buffers: &memory, remote, ..ACCESS })
    }

    pub fn writedata(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, _desc: *mut c_void, data: u64,
        to: fi_addr_t, offset: u64, key: u64, context: *mut c_void,
    ) -> isize {
        let (memory, remote) = ([caller.bytes(base, length)?], Remote { key, offset });
        let (data, context) = (Some(data), context as usize);
        core::write(ep, Flags::Default, Rma { to, buffers: &memory, remote, data, context, ..ACCESS })
    }

    pub fn injectdata(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, data: u64, to: fi_addr_t,
        offset: u64, key: u64,
    ) -> isize {
        let (memory, remote) = ([caller.bytes(base, length)?], Remote { key, offset });
        core::write(ep, Flags::Inject, Rma { to, buffers: &memory, remote, data: Some(data), ..ACCESS })
    }
}

/// This side's memory, and the one place of the peer's, which is as long.
fn places(caller: &Caller, message: &fi_msg_rma) -> Outcome<(Memory, Remote)> {
    let memory = caller.buffers(message.msg_iov, message.iov_count)?;
    let [place] = caller.list(message.rma_iov, message.rma_iov_count)? else { return Err(Errno::INVALID) };
    if place.len != memory.len() {
        return Err(Errno::INVALID);
    }
    Ok((memory, Remote { key: place.key, offset: place.addr }))
}
