//! Tagged messages.

use std::ffi::c_void;

use crate::abi::*;
use crate::engine::{Receive, Send, TagFilter};
use crate::objects::endpoint::Endpoint;
use crate::objects::methods;

use super::core::{self, Flags, RECV, SEND};

methods! {
    pub fn recv(
        caller, ep: *mut fid_ep => Endpoint, base: *mut c_void, length: usize, _desc: *mut c_void, from: fi_addr_t,
        tag: u64, ignore: u64, context: *mut c_void,
    ) -> isize {
        let memory = [caller.bytes(base, length)?];
        let receive = Receive { buffers: &memory, tag: Some(TagFilter { tag, ignore }), context: context as usize, ..RECV };
        core::receive(ep, Flags::Default, from, receive)
    }

    pub fn recvv(
        caller, ep: *mut fid_ep => Endpoint, list: *const iovec, _desc: *mut *mut c_void, count: usize,
        from: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void,
    ) -> isize {
        let memory = caller.buffers(list, count)?;
        let receive = Receive { buffers: memory.parts(), tag: Some(TagFilter { tag, ignore }), context: context as usize, ..RECV };
        core::receive(ep, Flags::Default, from, receive)
    }

    pub fn recvmsg(caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_tagged, flags: u64) -> isize {
        let message = caller.at(message)?;
        let memory = caller.buffers(message.msg_iov, message.iov_count)?;
        let tag = Some(TagFilter { tag: message.tag, ignore: message.ignore });
        let receive = Receive { buffers: memory.parts(), tag, context: message.context as usize, ..RECV };
        core::receive(ep, Flags::Given(flags), message.addr, receive)
    }

    pub fn send(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, _desc: *mut c_void, to: fi_addr_t,
        tag: u64, context: *mut c_void,
    ) -> isize {
        let memory = [caller.bytes(base, length)?];
        let send = Send { to, buffers: &memory, tag: Some(tag), context: context as usize, ..SEND };
        core::send(ep, Flags::Default, send)
    }

    pub fn sendv(
        caller, ep: *mut fid_ep => Endpoint, list: *const iovec, _desc: *mut *mut c_void, count: usize,
        to: fi_addr_t, tag: u64, context: *mut c_void,
    ) -> isize {
        let memory = caller.buffers(list, count)?;
        let send = Send { to, buffers: memory.parts(), tag: Some(tag), context: context as usize, ..SEND };
        core::send(ep, Flags::Default, send)
    }

    pub fn sendmsg(caller, ep: *mut fid_ep => Endpoint, message: *const fi_msg_tagged, flags: u64) -> isize {
        let (message, flags) = (caller.at(message)?, Flags::Given(flags));
        let memory = caller.buffers(message.msg_iov, message.iov_count)?;
        let (to, data, context) = (message.addr, flags.data(message.data), message.context as usize);
        core::send(ep, flags, Send { to, buffers: memory.parts(), tag: Some(message.tag), data, context, ..SEND })
    }

    pub fn inject(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, to: fi_addr_t, tag: u64,
    ) -> isize {
        let memory = [caller.bytes(base, length)?];
        core::send(ep, Flags::Inject, Send { to, buffers: &memory, tag: Some(tag), ..SEND })
    }

    pub fn senddata(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, _desc: *mut c_void, data: u64,
        to: fi_addr_t, tag: u64, context: *mut c_void,
    ) -> isize {
        let memory = [caller.bytes(base, length)?];
        let (data, context) = (Some(data), context as usize);
        core::send(ep, Flags::Default, Send { to, buffers: &memory, tag: Some(tag), data, context, ..SEND })
    }

    pub fn injectdata(
        caller, ep: *mut fid_ep => Endpoint, base: *const c_void, length: usize, data: u64, to: fi_addr_t, tag: u64,
    ) -> isize {
        let memory = [caller.bytes(base, length)?];
        core::send(ep, Flags::Inject, Send { to, buffers: &memory, tag: Some(tag), data: Some(data), ..SEND })
    }
}
