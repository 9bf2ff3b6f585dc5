//! Components of the process's context, which lives as long as the process. The first call makes it.

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, OnceLock, PoisonError};

use ucs::Error;
use uct_core::{Context, MemoryDomain};

use crate::call::{Outcome, at, free_list, list, name, put, refuse, status};
use crate::types::{ComponentAttr, MdResourceDesc};

/// `UCT_COMPONENT_ATTR_FIELD_*`.
const FIELD_NAME: u64 = 1 << 0;
const FIELD_MD_RESOURCE_COUNT: u64 = 1 << 1;
const FIELD_MD_RESOURCES: u64 = 1 << 2;
const FIELD_FLAGS: u64 = 1 << 3;

/// What the handle points to. It is never freed.
pub struct Component {
    pub name: String,
    /// The names of its memory domains.
    pub domains: Vec<String>,
    /// Those that are open, once for each handle: keys are unpacked with them.
    open: Mutex<Vec<MemoryDomain>>,
}

impl Component {
    /// Adds a handle of an open domain.
    pub fn opened(&self, domain: &MemoryDomain) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(domain.clone());
    }

    /// Removes one.
    pub fn closed(&self, domain: &MemoryDomain) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = open.iter().position(|it| it.is_same(domain)).map(|index| open.swap_remove(index));
        drop(open);
        drop(handle);
    }

    /// A domain that is open.
    pub fn any_open(&self) -> Option<MemoryDomain> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

/// The context.
///
/// # Errors
/// The configuration is wrong; it is read again by the next call.
pub fn context() -> Outcome<&'static Context> {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = CONTEXT.get() {
        return Ok(context);
    }
    let context = Context::builder().build().map_err(|error| refuse(Error::INVALID_PARAM, error))?;
    Ok(CONTEXT.get_or_init(|| context))
}

/// The components that have a device.
fn components() -> Outcome<&'static [Component]> {
    static COMPONENTS: OnceLock<Vec<Component>> = OnceLock::new();
    let context = context()?;
    Ok(COMPONENTS.get_or_init(|| {
        let mut found: Vec<Component> = Vec::new();
        for resource in context.resources() {
            let index = found.iter().position(|it| it.name == resource.component).unwrap_or_else(|| {
                let (name, domains) = (resource.component.clone(), Vec::new());
                found.push(Component { name, domains, open: Mutex::default() });
                found.len() - 1
            });
            if !found[index].domains.contains(&resource.md) {
                found[index].domains.push(resource.md.clone());
            }
        }
        found
    }))
}

/// `uct_query_components`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_query_components(
    handles: *mut *mut *const Component,
    count: *mut c_uint,
) -> c_int {
    status(|| {
        let found: Vec<*const Component> = components()?.iter().map(std::ptr::from_ref).collect();
        // SAFETY: the caller's promise.
        unsafe { put(count, found.len() as c_uint, "num_components_p") }?;
        // SAFETY: as above.
        unsafe { put(handles, std::ptr::null_mut(), "components_p") }?;
        // SAFETY: as above.
        unsafe { put(handles, list(&found)?, "components_p") }
    })
}

/// `uct_release_component_list`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_release_component_list(handles: *mut *const Component) {
    // SAFETY: a list of `uctc_query_components`, by the caller's promise.
    unsafe { free_list(handles) };
}

/// `uct_component_query`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_component_query(
    component: *const Component,
    attr: *mut ComponentAttr,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let component = unsafe { at(component, "component") }?;
        // SAFETY: as above.
        let fields = unsafe { at(attr, "component_attr") }?.field_mask;
        // SAFETY: as above; nothing else refers to it.
        let attr = unsafe { &mut *attr };
        if fields & FIELD_NAME != 0 {
            attr.name = name(&component.name);
        }
        if fields & FIELD_MD_RESOURCE_COUNT != 0 {
            attr.md_resource_count = component.domains.len() as c_uint;
        }
        if fields & FIELD_FLAGS != 0 {
            attr.flags = 0;
        }
        if fields & FIELD_MD_RESOURCES != 0 {
            for (index, domain) in component.domains.iter().enumerate() {
                let entry = MdResourceDesc { md_name: name(domain) };
                // SAFETY: the caller has memory for all of them.
                let place = unsafe { attr.md_resources.add(index) };
                // SAFETY: as above.
                unsafe { put(place, entry, "md_resources") }?;
            }
        }
        Ok(())
    })
}
