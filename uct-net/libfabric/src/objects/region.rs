//! Memory regions. The program chooses keys, and offsets begin at 0 with each region.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::boundary::{Caller, Outcome};
use crate::engine::{self, Access, Errno};

use super::domain::Domain;
use super::methods;

/// A region of the engine. One that peers may neither read nor write has none, since local memory needs no registration.
pub struct Region {
    _engine: Option<engine::Region>,
    _domain: Arc<Domain>,
    pub key: u64,
}

/// What is registered, however the program has said it.
struct Asked {
    list: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    pub key: u64,
    flags: u64,
    context: *mut c_void,
}

methods! {
    pub fn reg(
        caller, domain: *mut fid => Domain, base: *const c_void, length: usize, access: u64, offset: u64, key: u64,
        flags: u64, target: *mut *mut fid_mr, context: *mut c_void,
    ) -> c_int {
        let memory = iovec { iov_base: base.cast_mut(), iov_len: length };
        let list = &raw const memory;
        register(caller, domain, Asked { list, count: 1, access, offset, key, flags, context }, target)
    }

    pub fn regv(
        caller, domain: *mut fid => Domain, list: *const iovec, count: usize, access: u64, offset: u64, key: u64,
        flags: u64, target: *mut *mut fid_mr, context: *mut c_void,
    ) -> c_int {
        register(caller, domain, Asked { list, count, access, offset, key, flags, context }, target)
    }

    pub fn regattr(
        caller, domain: *mut fid => Domain, attr: *const fi_mr_attr, flags: u64, target: *mut *mut fid_mr,
    ) -> c_int {
        let &fi_mr_attr { mr_iov, iov_count, access, offset, requested_key, context, iface, .. } = caller.at(attr)?;
        if iface != FI_HMEM_SYSTEM {
            return Err(Errno(ENOSYS));
        }
        let asked = Asked { list: mr_iov, count: iov_count, access, offset, key: requested_key, flags, context };
        register(caller, domain, asked, target)
    }
}

fn register(caller: &Caller, domain: &Arc<Domain>, asked: Asked, target: *mut *mut fid_mr) -> Outcome<c_int> {
    if asked.flags != 0 {
        return Err(Errno(EBADFLAGS));
    }
    if asked.offset != 0 || asked.count > 1 {
        return Err(Errno::INVALID);
    }
    let memory = caller.buffers(asked.list, asked.count)?;
    let access =
        Access { read: asked.access & FI_REMOTE_READ != 0, write: asked.access & FI_REMOTE_WRITE != 0 };
    let engine = match memory.parts() {
        [memory] if access.read || access.write => Some(domain.engine.register(*memory, asked.key, access)?),
        _ => None,
    };
    caller.give(
        Region { _engine: engine, _domain: Arc::clone(domain), key: asked.key },
        asked.context,
        target,
    )?;
    Ok(0)
}
