//! Shared receive queues.
//!
//! For rc_verbs, whose queue pairs all receive from one. Built on a protection domain.

use std::sync::Arc;

use super::abi::*;
use super::work::{PostError, RecvSlot, post_in_chains};
use super::{Pd, errno};
use crate::error::IbError;

/// A queue of receive buffers that many queue pairs share.
pub struct Srq {
    pd: Arc<Pd>,
    raw: *mut ibv_srq,
    max_wr: u32,
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for Srq {}
// SAFETY: as for Send; providers lock the queue while they post.
unsafe impl Sync for Srq {}

impl Srq {
    /// Makes a queue for at least `max_wr` buffers of one piece each.
    ///
    /// # Errors
    /// The failed verb, or the limit on locked memory.
    pub fn new(pd: &Arc<Pd>, max_wr: u32) -> Result<Arc<Self>, IbError> {
        let context = pd.context();
        let mut init = ibv_srq_init_attr {
            srq_context: std::ptr::null_mut(),
            attr: ibv_srq_attr { max_wr, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the domain lives, and `init` is valid.
        let raw = unsafe { (context.table().create_srq)(pd.as_ptr(), &mut init) };
        if raw.is_null() {
            let most = context.attr().max_srq_wr;
            return Err(context.error(
                "ibv_create_srq",
                errno(),
                &format!("{max_wr} buffers; the device has at most {most}"),
            ));
        }
        Ok(Arc::new(Self { pd: pd.clone(), raw, max_wr: init.attr.max_wr.max(max_wr) }))
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.raw
    }

    /// What events name it by, as long as it lives.
    pub fn identity(&self) -> usize {
        self.raw.addr()
    }

    /// How many buffers it holds; at least what was asked for.
    pub fn capacity(&self) -> u32 {
        self.max_wr
    }

    /// Posts buffers, as many as fit; returns how many were taken.
    ///
    /// # Safety
    /// Every buffer stays valid, and nothing else accesses it, until its completion has been polled or the queue and all
    /// queue pairs on it are gone.
    ///
    /// # Errors
    /// The provider's error number if none was taken.
    pub unsafe fn post(&self, buffers: &[RecvSlot]) -> Result<usize, PostError> {
        let Some(post) = self.pd.context().ops().post_srq_recv else { return Err(PostError(libc::ENOSYS)) };
        post_in_chains(buffers, |first, bad| {
            // SAFETY: the queue lives; `first` heads a chain that lives through the call; the caller promises the buffers.
            unsafe { post(self.raw, first, bad) }
        })
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: queue pairs on the queue hold it, so none is left; it is destroyed once, here.
        let failed = unsafe { (self.pd.context().table().destroy_srq)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(
                device = self.pd.context().device_name(),
                errno = failed,
                "ibv_destroy_srq failed"
            );
        }
    }
}
