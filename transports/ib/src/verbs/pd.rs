//! Protection domains.
//!
//! For memory and queue pairs, which belong to one. Built on a context.

use std::sync::Arc;

use super::abi::*;
use super::{Context, errno};
use crate::error::IbError;

/// A protection domain: what is made in one domain can be used together.
pub struct Pd {
    context: Arc<Context>,
    raw: *mut ibv_pd,
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for Pd {}
// SAFETY: as for Send.
unsafe impl Sync for Pd {}

impl Pd {
    /// Makes a domain, without a check that anything can be registered in it.
    pub(super) fn allocate(context: &Arc<Context>) -> Result<Arc<Self>, IbError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.table().alloc_pd)(context.as_ptr()) };
        if raw.is_null() {
            return Err(context.error("ibv_alloc_pd", errno(), ""));
        }
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    /// The device it is on.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: everything in the domain holds it, so it is empty; it is freed once, here.
        let failed = unsafe { (self.context.table().dealloc_pd)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(device = self.context.device_name(), errno = failed, "ibv_dealloc_pd failed");
        }
    }
}
