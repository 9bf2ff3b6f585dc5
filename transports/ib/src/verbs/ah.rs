//! Where a packet goes: address vectors, and address handles made of them.
//!
//! For connecting queue pairs (the vector) and sending datagrams (the handle). Built on a protection domain.

use std::sync::Arc;

use super::abi::*;
use super::{Pd, errno};
use crate::error::IbError;

/// The path to a peer's port. `crate::addr` makes one of two port addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressVector {
    /// Local port, from 1.
    pub port: u8,
    /// Destination LID; 0 on Ethernet.
    pub dlid: u16,
    /// Low bits of the local LID that select a path; 0 on Ethernet.
    pub source_path_bits: u8,
    /// Service level.
    pub service_level: u8,
    /// The global route; always there on Ethernet.
    pub global: Option<GlobalRoute>,
}

/// The global part of an address vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GlobalRoute {
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Index of the local GID in the port's table.
    pub sgid_index: u8,
    /// Hops before the packet is dropped.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl AddressVector {
    pub(super) fn to_raw(self) -> ibv_ah_attr {
        let route = self.global.unwrap_or(GlobalRoute {
            dgid: [0; 16],
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
        });
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: route.dgid, _align: [] },
                flow_label: 0,
                sgid_index: route.sgid_index,
                hop_limit: route.hop_limit,
                traffic_class: route.traffic_class,
            },
            dlid: self.dlid,
            sl: self.service_level,
            src_path_bits: self.source_path_bits,
            static_rate: 0,
            is_global: u8::from(self.global.is_some()),
            port_num: self.port,
        }
    }
}

/// An address handle: the path to a peer, ready for datagrams.
pub struct Ah {
    pd: Arc<Pd>,
    raw: *mut ibv_ah,
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for Ah {}
// SAFETY: as for Send.
unsafe impl Sync for Ah {}

impl Ah {
    /// Makes a handle. On Ethernet the kernel resolves the peer's MAC address, which may take a moment.
    ///
    /// # Errors
    /// The failed verb; `ENETUNREACH`, `EHOSTUNREACH` and `ETIMEDOUT` mean that there is no way to the address.
    pub fn new(pd: &Arc<Pd>, vector: &AddressVector) -> Result<Arc<Self>, IbError> {
        let mut attr = vector.to_raw();
        // SAFETY: the domain lives, and `attr` is valid.
        let raw = unsafe { (pd.context().table().create_ah)(pd.as_ptr(), &mut attr) };
        if raw.is_null() {
            return Err(pd.context().error("ibv_create_ah", errno(), &format!("{vector:?}")));
        }
        Ok(Arc::new(Self { pd: pd.clone(), raw }))
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut ibv_ah {
        self.raw
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: destroyed once, here. Requests that name it have completed: see `SendWr::to`.
        let failed = unsafe { (self.pd.context().table().destroy_ah)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(
                device = self.pd.context().device_name(),
                errno = failed,
                "ibv_destroy_ah failed"
            );
        }
    }
}
