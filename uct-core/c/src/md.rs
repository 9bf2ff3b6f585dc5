//! Memory domains.

use std::ffi::{c_char, c_int, c_uint, c_void};

use ucs::Error;
use uct_abi::{UCT_MD_ADVISE, UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_REG, UCT_MD_RKEY_PTR};
use uct_core::{DeviceKind, MemoryDomain, Resource};

use crate::call::{Outcome, at, free_list, guarded, list, name, put, refuse, refused, status, text};
use crate::component::{Component, context};
use crate::types::{CpuSet, LinearFunc, MdAttr, MdCap, TlResourceDesc};

/// `UCT_MD_FLAG_NEED_MEMH`.
const FLAG_NEED_MEMH: u64 = 1 << 2;
/// The flags of the boundary, and those of C: `UCT_MD_FLAG_*`.
const FLAGS: [(u64, u64); 5] = [
    (UCT_MD_ALLOC, 1 << 0),
    (UCT_MD_REG, 1 << 1),
    (UCT_MD_NEED_RKEY, 1 << 3),
    (UCT_MD_ADVISE, 1 << 4),
    (UCT_MD_RKEY_PTR, 1 << 6),
];
/// The bit of `UCS_MEMORY_TYPE_HOST`.
const HOST: u64 = 1;

/// What the handle points to.
pub struct Md {
    pub domain: MemoryDomain,
    component: &'static Component,
    name: String,
}

impl Md {
    /// What can be opened on it.
    fn resources(&self) -> Outcome<impl Iterator<Item = &'static Resource>> {
        let context = context()?;
        let own = |it: &&Resource| it.component == self.component.name && it.md == self.name;
        let resources = context.resources().iter().filter(move |it| own(it));
        Ok(resources.filter(|resource| context.excluded(resource).is_none()))
    }

    /// The resource of a transport and a device.
    ///
    /// # Errors
    /// This domain has none, or the configuration excludes it.
    pub fn resource(&self, transport: &str, device: &str) -> Outcome<&'static Resource> {
        let found = self.resources()?.find(|it| it.transport == transport && it.device == device);
        found.ok_or_else(|| {
            let (component, name) = (&self.component.name, &self.name);
            let reason = format_args!(
                "{transport}/{device}: the memory domain {component}/{name} has no such resource; uct_md_query_tl_resources lists them"
            );
            refuse(Error::NO_DEVICE, reason)
        })
    }
}

impl Drop for Md {
    fn drop(&mut self) {
        self.component.closed(&self.domain);
    }
}

/// `uct_md_open`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_open(
    component: *const Component,
    md_name: *const c_char,
    _config: *const c_void,
    handle: *mut *mut Md,
) -> c_int {
    status(|| {
        // SAFETY: components are never freed.
        let component: &'static Component = unsafe { at(component, "component") }?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(md_name, "md_name") }?;
        // SAFETY: as above.
        unsafe { put(handle, std::ptr::null_mut(), "md_p") }?;
        let context = context()?;
        let mut resources = context.resources().iter();
        let Some(resource) = resources.find(|it| it.component == component.name && it.md == name) else {
            let reason = format_args!("the component {} has no memory domain {name:?}", component.name);
            return Err(refuse(Error::NO_DEVICE, reason));
        };
        let domain = context.memory_domain(resource).map_err(|error| refused(&error))?;
        component.opened(&domain);
        let md = Box::new(Md { domain, component, name: name.to_owned() });
        // SAFETY: as above.
        unsafe { put(handle, Box::into_raw(md), "md_p") }
    })
}

/// `uct_md_close`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_close(md: *mut Md) {
    if !md.is_null() {
        // SAFETY: a handle, by the caller's promise.
        let md = unsafe { Box::from_raw(md) };
        guarded((), || drop(md));
    }
}

/// `uct_md_query`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_query(md: *const Md, attr: *mut MdAttr) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let md = unsafe { at(md, "md") }?;
        let own = md.domain.attributes();
        let flags = FLAGS.iter().filter(|(flag, _)| own.flags & flag != 0);
        let answer = MdAttr {
            cap: MdCap {
                max_alloc: own.max_alloc,
                max_reg: usize::try_from(own.max_reg).unwrap_or(usize::MAX),
                flags: flags.fold(FLAG_NEED_MEMH, |all, (_, flag)| all | flag),
                reg_mem_types: if own.flags & UCT_MD_REG != 0 { HOST } else { 0 },
                detect_mem_types: 0,
                alloc_mem_types: if own.flags & UCT_MD_ALLOC != 0 { HOST } else { 0 },
                access_mem_types: HOST,
            },
            reg_cost: LinearFunc { c: own.reg_cost, m: own.reg_growth },
            component_name: name(&md.component.name),
            rkey_packed_size: own.rkey_packed_size,
            local_cpus: CpuSet { bits: [u64::MAX; 16] },
        };
        // SAFETY: the caller's promise.
        unsafe { put(attr, answer, "md_attr") }
    })
}

/// `uct_md_query_tl_resources`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_md_query_tl_resources(
    md: *const Md,
    resources: *mut *mut TlResourceDesc,
    count: *mut c_uint,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let md = unsafe { at(md, "md") }?;
        let described: Vec<TlResourceDesc> = md.resources()?.map(describe).collect();
        // SAFETY: as above.
        unsafe { put(count, described.len() as c_uint, "num_resources_p") }?;
        // SAFETY: as above.
        unsafe { put(resources, std::ptr::null_mut(), "resources_p") }?;
        // SAFETY: as above.
        unsafe { put(resources, list(&described)?, "resources_p") }
    })
}

fn describe(resource: &Resource) -> TlResourceDesc {
    let dev_type = match resource.kind {
        DeviceKind::Network => 0,
        DeviceKind::SharedMemory => 1,
        DeviceKind::Accelerator => 2,
        DeviceKind::Myself => 3,
    };
    TlResourceDesc { tl_name: name(&resource.transport), dev_name: name(&resource.device), dev_type }
}

/// `uct_release_tl_resource_list`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_release_tl_resource_list(resources: *mut TlResourceDesc) {
    // SAFETY: a list of `uctc_md_query_tl_resources`, by the caller's promise.
    unsafe { free_list(resources) };
}
