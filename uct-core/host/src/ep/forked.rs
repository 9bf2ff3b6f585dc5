//! Endpoints in a child of a fork, whose connections are the parent's: every operation of theirs is refused.
//!
//! Used by endpoints, which check nothing when they send. Built on `pthread_atfork`: the child gives all endpoints
//! another table, and revokes their gates. A child made by a bare system call gets no notification; progress, interfaces and memory
//! detect that one too, by `ucs::memory::fork`.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use uct_abi::UctEpOps;

use super::EpInner;
use crate::loader::Slot;

/// Every slot refuses.
static REFUSING: UctEpOps = UctEpOps {
    size: size_of::<UctEpOps>(),
    destroy: Some(Slot::FORKED),
    am_short: Some(Slot::FORKED),
    am_short_iov: Some(Slot::FORKED),
    am_bcopy: Some(Slot::FORKED),
    am_zcopy: Some(Slot::FORKED),
    put_short: Some(Slot::FORKED),
    put_bcopy: Some(Slot::FORKED),
    put_zcopy: Some(Slot::FORKED),
    get_short: Some(Slot::FORKED),
    get_bcopy: Some(Slot::FORKED),
    get_zcopy: Some(Slot::FORKED),
    atomic32_post: Some(Slot::FORKED),
    atomic64_post: Some(Slot::FORKED),
    atomic32_fetch: Some(Slot::FORKED),
    atomic64_fetch: Some(Slot::FORKED),
    atomic32_cswap: Some(Slot::FORKED),
    atomic64_cswap: Some(Slot::FORKED),
    pending_add: Some(Slot::FORKED),
    pending_purge: Some(Slot::FORKED),
    flush: Some(Slot::FORKED),
    fence: Some(Slot::FORKED),
    check: Some(Slot::FORKED),
    get_address: Some(Slot::FORKED),
    connect_to_ep: Some(Slot::FORKED),
    cm_token: Some(Slot::FORKED),
};

/// The endpoints of all threads.
static ENDPOINTS: Mutex<Option<Endpoints>> = Mutex::new(None);

#[derive(Default)]
struct Endpoints(HashSet<NonNull<EpInner>>);

// SAFETY: the pointers are followed in a child alone, by the only thread that it has.
unsafe impl Send for Endpoints {}

fn endpoints() -> MutexGuard<'static, Option<Endpoints>> {
    ENDPOINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The list, while this thread forks: no other one changes it then.
    static HELD: RefCell<Option<MutexGuard<'static, Option<Endpoints>>>> = const { RefCell::new(None) };
}

/// From now on a child refuses the operations of this endpoint.
///
/// # Safety
/// It stays where it is, and [`remove`] is called before it is gone.
pub(super) unsafe fn add(ep: &EpInner) {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: functions of this library, which the C library forgets should it be unloaded. There is no memory for them
        // at worst, and nothing is reported to a child then.
        unsafe { libc::pthread_atfork(Some(lock_list), Some(unlock_list), Some(refuse)) };
    });
    endpoints().get_or_insert_default().0.insert(NonNull::from(ep));
}

/// The endpoint is about to be gone.
pub(super) fn remove(ep: &EpInner) {
    if let Some(endpoints) = &mut *endpoints() {
        endpoints.0.remove(&NonNull::from(ep));
    }
}

/// Ahead of a fork.
unsafe extern "C" fn lock_list() {
    let _ = HELD.try_with(|held| held.replace(Some(endpoints())));
}

/// Behind a fork, in the parent.
unsafe extern "C" fn unlock_list() {
    let _ = HELD.try_with(|held| held.replace(None));
}

/// Behind a fork, in the child.
unsafe extern "C" fn refuse() {
    let held = HELD.try_with(|held| held.replace(None)).ok().flatten();
    for ep in held.iter().filter_map(|endpoints| endpoints.as_ref()).flat_map(|endpoints| &endpoints.0) {
        // SAFETY: what is in the list is alive (`add`), and no other thread is here to use it.
        let ep = unsafe { ep.as_ref() };
        ep.ops.set(&REFUSING);
        ep.am_short.set(Slot::FORKED);
        ep.gate.revoke();
    }
}
