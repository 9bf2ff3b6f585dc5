//! Put, get, atomics and pending requests for interfaces of plugins that only send messages.
//!
//! For: the host, which puts it around the objects of a plugin whose memory domain registers nothing. Built on `uct-plugin`, as a
//! transport is, and on the tables of the plugin. From the bottom up:
//!
//! - `wire`: the frames that travel as messages of the last id.
//! - `plugin`, `relay`: the plugin's interface and endpoints, and the handlers that it is given.
//! - `md`: registered memory, checked on every access.
//! - `peers`: the peers that access memory of this side, and the responses to each.
//! - `sender`: what one endpoint sends through.
//! - `iface`, `ep`, `transport`: the interface, its endpoints, and the SDK's view of them.

mod ep;
mod iface;
mod md;
mod peers;
mod plugin;
mod relay;
mod sender;
#[cfg(test)]
mod tests;
mod transport;
mod wire;

use std::rc::Rc;
use std::sync::Arc;

use uct_plugin::abi::*;
use uct_plugin::adapter;

use ep::ComposedEp;
use iface::ComposedIface;
use md::ComposedMd;

/// The calls of memory domains, interfaces and endpoints that are made here.
#[derive(Clone, Copy)]
pub struct Tables {
    /// Of memory domains.
    pub md: &'static UctMdOps,
    /// Of interfaces.
    pub iface: &'static UctIfaceOps,
    /// Of endpoints.
    pub ep: &'static UctEpOps,
}

/// The calls of what [`domain`] and [`open`] make.
pub fn tables() -> Tables {
    Tables {
        md: adapter::md_ops::<ComposedMd>(),
        iface: adapter::iface_ops::<ComposedIface>(),
        ep: adapter::ep_ops::<ComposedEp>(),
    }
}

/// Whether a plugin's memory domain leaves registered memory to the host.
pub fn is_wanted(attr: &UctMdAttr) -> bool {
    attr.flags & (UCT_MD_REG | UCT_MD_ALLOC) == 0 && attr.rkey_packed_size == 0
}

/// Puts a domain with registered memory around a plugin's that has none; closing it closes the plugin's.
///
/// # Safety
/// The domain is open and goes with its table, every slot of which is there; nothing else closes it.
pub unsafe fn domain(ops: &'static UctMdOps, raw: *mut UctMd) -> *mut UctMd {
    // SAFETY: the caller's promise.
    let md = unsafe { ComposedMd::new(ops, raw) };
    Arc::into_raw(Arc::new(md)).cast_mut().cast()
}

/// As `iface_open` of the plugin's transport, with the interface's operations composed.
///
/// # Safety
/// `md` came from [`domain`] and is open. Every slot of the transport's tables is there. Parameters and `reason` are as for
/// `iface_open`.
pub unsafe fn open(
    md: *mut UctMd,
    transport: &UctTlOps,
    params: &UctIfaceParams,
    iface: &mut *mut UctIface,
    reason: *mut UctText,
) -> UctStatus {
    let domain = md.cast::<ComposedMd>().cast_const();
    // SAFETY: `domain` made the pointer with `Arc::into_raw`, and it is open.
    unsafe { Arc::increment_strong_count(domain) };
    // SAFETY: as above; this takes the count just added.
    let md = unsafe { Arc::from_raw(domain) };
    // SAFETY: the caller's promise.
    match unsafe { ComposedIface::open(md, transport, params, reason) } {
        Ok(opened) => {
            *iface = Rc::into_raw(opened).cast_mut().cast();
            UCT_OK
        }
        Err(status) => status,
    }
}
