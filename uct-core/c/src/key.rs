//! Keys to memory of peers.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::slice;

use ucs::Error;
use uct_core::{MemoryDomain, RemoteKey};

use crate::call::{Outcome, at, put, refuse, refused, status};
use crate::component::Component;
use crate::types::RkeyBundle;

/// What an `uct_rkey_t` points to. A component may have several domains, and a key is used with that of the endpoint,
/// which nobody names when it is unpacked.
pub struct Key {
    /// By the domain that was open first, usually the only one.
    pub first: RemoteKey,
    /// By other domains that have used it.
    others: RefCell<Vec<RemoteKey>>,
    packed: Vec<u8>,
}

impl Key {
    /// The key of a number.
    ///
    /// # Errors
    /// `UCT_INVALID_RKEY`, or zero.
    ///
    /// # Safety
    /// It is one of these two, or that of a bundle that is not released, for as long as the caller uses the reference.
    #[inline(always)]
    pub unsafe fn at<'a>(rkey: usize) -> Outcome<&'a Key> {
        if rkey.wrapping_add(1) <= 1 {
            return Err(Error::INVALID_PARAM);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { &*std::ptr::with_exposed_provenance(rkey) })
    }

    /// Calls `work` with the key of a domain.
    ///
    /// # Errors
    /// That of `work`; the domain refuses the key.
    #[inline]
    pub fn with<T>(&self, domain: &MemoryDomain, work: impl FnOnce(&RemoteKey) -> Outcome<T>) -> Outcome<T> {
        if self.first.domain().is_same(domain) { work(&self.first) } else { work(&self.other(domain)?) }
    }

    #[cold]
    fn other(&self, domain: &MemoryDomain) -> Outcome<RemoteKey> {
        let mut others = self.others.borrow_mut();
        if let Some(key) = others.iter().find(|key| key.domain().is_same(domain)) {
            return Ok(key.clone());
        }
        let key = domain.unpack(&self.packed).map_err(|error| refused(&error))?;
        others.push(key.clone());
        Ok(key)
    }
}

/// `uct_rkey_unpack`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_rkey_unpack(
    component: *const Component,
    buffer: *const c_void,
    bundle: *mut RkeyBundle,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let component = unsafe { at(component, "component") }?;
        // SAFETY: as above.
        unsafe { at(bundle, "rkey_ob") }?;
        let Some(domain) = component.any_open() else {
            let reason = format_args!("no memory domain of the component {} is open", component.name);
            return Err(refuse(Error::INVALID_PARAM, reason));
        };
        // SAFETY: as above.
        let first = unsafe { at(buffer.cast::<u8>(), "rkey_buffer") }?;
        // SAFETY: a packed key has so many bytes.
        let packed = unsafe { slice::from_raw_parts(first, domain.attributes().rkey_packed_size) }.to_vec();
        let first = domain.unpack(&packed).map_err(|error| refused(&error))?;
        let key = Box::into_raw(Box::new(Key { first, others: RefCell::default(), packed }));
        let answer =
            RkeyBundle { rkey: key.expose_provenance(), handle: key.cast(), type_: std::ptr::null_mut() };
        // SAFETY: as above.
        unsafe { put(bundle, answer, "rkey_ob") }
    })
}

/// `uct_rkey_release`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_rkey_release(_component: *const Component, bundle: *const RkeyBundle) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let bundle = unsafe { at(bundle, "rkey_ob") }?;
        if bundle.handle.is_null() {
            return Err(refuse(Error::INVALID_PARAM, "the bundle has no key"));
        }
        // SAFETY: one of `uctc_rkey_unpack`, by the caller's promise.
        drop(unsafe { Box::from_raw(bundle.handle.cast::<Key>()) });
        Ok(())
    })
}
