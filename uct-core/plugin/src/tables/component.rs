//! The slots of a component and of its transports.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error;
use uct_abi::{
    UCT_DEVICE_IS_SOFTWARE, UCT_IFACE_ASYNC_IN_PROGRESS, UCT_OK, UctCmOps, UctComponentOps, UctConfig,
    UctDevice, UctEmitDevice, UctEmitName, UctEpOps, UctIface, UctIfaceOps, UctIfaceParams, UctMd, UctStatus,
    UctStr, UctText, UctTlOps,
};

use super::ep::EpTables;
use super::iface::IfaceTables;
use super::md::MdTables;
use super::{text, words};
use crate::am::AmHandlers;
use crate::arrival::AmPlacer;
use crate::failure::Failure;
use crate::guard;
use crate::host::{ProgressRequest, Worker};
use crate::settings::Settings;
use crate::traits::{Component, ErrorHandler, IfaceParams, Transport};

/// The table of a component.
pub struct ComponentTables<C>(PhantomData<C>);

impl<C: Component> ComponentTables<C> {
    /// The table, for the transports whose tables `tls` holds, and the connection manager's, if there is one.
    pub const fn ops(tls: &'static [&'static UctTlOps], cm_ops: *const UctCmOps) -> UctComponentOps {
        UctComponentOps {
            size: size_of::<UctComponentOps>(),
            name: text(C::NAME),
            tls: tls.as_ptr().cast(),
            tl_count: tls.len(),
            md_ops: &MdTables::<C::Md>::OPS,
            query_mds: Some(query_mds::<C>),
            md_open: Some(md_open::<C>),
            cm_ops,
        }
    }
}

/// The table of a transport.
pub struct TlTables<T>(PhantomData<T>);

impl<T: Transport> TlTables<T> {
    const IFACE: UctIfaceOps = IfaceTables::<T::Iface>::OPS;
    const EP: UctEpOps = EpTables::<<T::Iface as crate::Iface>::Ep>::OPS;

    /// The table.
    pub const OPS: UctTlOps = UctTlOps {
        size: size_of::<UctTlOps>(),
        name: text(T::NAME),
        iface_ops: &Self::IFACE,
        ep_ops: &Self::EP,
        query_devices: Some(query_devices::<T>),
        iface_open: Some(iface_open::<T>),
    };
}

unsafe extern "C" fn query_mds<C: Component>(
    config: *const UctConfig,
    emit: UctEmitName,
    context: *mut c_void,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("query_mds", reason, || {
        // SAFETY: the host's values are valid for the call (`UctConfig`).
        let settings = unsafe { Settings::new(config) };
        match C::memory_domains(&settings) {
            Ok(names) => {
                for name in &names {
                    let name = UctStr { data: name.as_ptr(), length: name.len() };
                    // SAFETY: `emit` goes with its context and copies the name (`UctEmitName`).
                    unsafe { emit(context, name) };
                }
                UCT_OK
            }
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn md_open<C: Component>(
    name: UctStr,
    config: *const UctConfig,
    md: *mut *mut UctMd,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("md_open", reason, || {
        // SAFETY: strings of the host are valid for the call (`UctStr`).
        let name = unsafe { words(name) };
        // SAFETY: the host's values are valid for the call (`UctConfig`).
        let settings = unsafe { Settings::new(config) };
        match C::open(name, &settings) {
            Ok(domain) => {
                let raw = Arc::into_raw(Arc::new(domain)).cast_mut().cast();
                // SAFETY: `md` is the host's place for the answer (`UctComponentOps::md_open`).
                unsafe { md.write(raw) };
                UCT_OK
            }
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn query_devices<T: Transport>(
    md: *mut UctMd,
    config: *const UctConfig,
    emit: UctEmitDevice,
    context: *mut c_void,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("query_devices", reason, || {
        // SAFETY: `md_open` made the pointer of an `Arc` of this type, and the domain is open.
        let md = unsafe { &*md.cast::<T::Md>() };
        // SAFETY: the host's values are valid for the call (`UctConfig`).
        let settings = unsafe { Settings::new(config) };
        match T::devices(md, &settings) {
            Ok(devices) => {
                for device in &devices {
                    let device = UctDevice {
                        size: size_of::<UctDevice>(),
                        name: UctStr { data: device.name.as_ptr(), length: device.name.len() },
                        kind: device.kind as u32,
                        numa_node: device.numa_node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1),
                        flags: if device.is_software { UCT_DEVICE_IS_SOFTWARE } else { 0 },
                    };
                    // SAFETY: `emit` goes with its context and copies the device (`UctEmitDevice`).
                    unsafe { emit(context, &raw const device) };
                }
                UCT_OK
            }
            Err(failure) => failure.write(reason),
        }
    })
}

unsafe extern "C" fn iface_open<T: Transport>(
    md: *mut UctMd,
    params: *const UctIfaceParams,
    iface: *mut *mut UctIface,
    reason: *mut UctText,
) -> UctStatus {
    guard::explained("iface_open", reason, || {
        ucs::log::forward::refresh();
        // SAFETY: the parameters are the host's and valid for the call (`UctIfaceParams`), the table until `close`; a host before minor version 8
        // has none.
        let placer = unsafe { AmPlacer::of(params) };
        // SAFETY: as above.
        let params = unsafe { &*params };
        let domain = md.cast::<T::Md>().cast_const();
        // SAFETY: `md_open` made the pointer with `Arc::into_raw`, and the domain is open.
        unsafe { Arc::increment_strong_count(domain) };
        // SAFETY: as above; this takes the count just added.
        let md = unsafe { Arc::from_raw(domain) };
        // SAFETY: the worker outlives the interface (`UctIfaceParams`).
        let worker = unsafe { Worker::new(params.worker) };
        // SAFETY: so does what the host has of it.
        let progress = unsafe { ProgressRequest::new(params.iface) };
        // SAFETY: the table is valid until `close` (`UctIfaceParams`).
        let handlers = unsafe { AmHandlers::new(params.am_handlers) };
        let (Some(worker), Some(progress), Some(am)) = (worker, progress, handlers) else {
            return Failure::new(Error::INVALID_PARAM, "the host passed no worker or no handler table")
                .write(reason);
        };
        // SAFETY: strings of the host are valid for the call (`UctStr`).
        let device = unsafe { words(params.device) };
        // SAFETY: the host's values are valid for the call (`UctConfig`).
        let settings = unsafe { Settings::new(params.config) };
        let errors = ErrorHandler { handler: params.error_handler, argument: params.error_argument };
        let opened = T::open(
            &md,
            IfaceParams {
                device,
                settings,
                worker,
                progress,
                am,
                placer,
                errors,
                rx_headroom: params.rx_headroom,
                async_in_progress: params.flags & UCT_IFACE_ASYNC_IN_PROGRESS != 0,
            },
        );
        match opened {
            Ok(opened) => {
                let raw = Rc::into_raw(opened).cast_mut().cast();
                // SAFETY: `iface` is the host's place for the answer (`UctTlOps::iface_open`).
                unsafe { iface.write(raw) };
                UCT_OK
            }
            Err(failure) => {
                // SAFETY: as above; a refused interface leaves null behind.
                unsafe { iface.write(ptr::null_mut()) };
                failure.write(reason)
            }
        }
    })
}
