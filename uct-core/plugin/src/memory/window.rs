//! Memory of peers that lies in this process, and that the host therefore accesses without a call of the transport: aligned words by
//! put, get and atomics, other ranges of bytes by put and get.
//!
//! Used by memory domains, which return a [`Window`] for a key, and endpoints, whose [`Gate`] controls when such accesses may go
//! ahead. All else, and all that a window does not cover, comes to the endpoint's methods.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use ucs::sync::fixed::AtomicU64;

use uct_abi::{UctGate, UctWindow};

use super::{MemoryAccess, access};

/// Bytes of a word.
const WORD: u64 = size_of::<u64>() as u64;

/// What of a key's memory lies in this process, and for how long.
#[derive(Clone, Copy)]
pub struct Window<'key> {
    raw: UctWindow,
    live: PhantomData<&'key AtomicU64>,
}

impl<'key> Window<'key> {
    /// The window onto `length` bytes of remote memory at `base`, which lie `shift` higher in this process (it wraps around),
    /// for what is `granted`, while `live` holds `value`. Whole aligned words are accessible through it.
    ///
    /// # Safety
    /// As long as the key lives and `live` holds `value`, the bytes may be read and written here as granted. What ends that calls
    /// [`access::wait_for_all`] behind the change of `live`, and leaves the bytes valid until it has returned; or they stay valid as long as the
    /// key.
    pub unsafe fn new(
        base: u64,
        length: u64,
        shift: u64,
        granted: MemoryAccess,
        live: &'key AtomicU64,
        value: u64,
    ) -> Window<'key> {
        let first = base.checked_next_multiple_of(WORD).unwrap_or(u64::MAX);
        let local = first.wrapping_add(shift);
        let words = if local.is_multiple_of(WORD) { length.saturating_sub(first - base) / WORD } else { 0 };
        let of = |access| if granted.contains(access) { words } else { 0 };
        let raw = UctWindow {
            size: size_of::<UctWindow>(),
            base: first,
            local: local as *mut u64,
            put_words: of(MemoryAccess::REMOTE_PUT),
            get_words: of(MemoryAccess::REMOTE_GET),
            atomic_words: of(MemoryAccess::REMOTE_ATOMIC),
            live: live.as_ptr(),
            value,
        };
        Window { raw, live: PhantomData }
    }

    /// The table for the host.
    pub(crate) fn as_raw(&self) -> &UctWindow {
        &self.raw
    }
}

/// Whether the host may access memory through windows on behalf of an endpoint. Closed at first.
#[derive(Debug)]
pub struct Gate {
    is_open: Cell<bool>,
    /// The word that the host reads, while it does.
    host: Cell<Option<NonNull<UctGate>>>,
}

impl Gate {
    /// A closed gate.
    ///
    /// # Safety
    /// It is part of an endpoint, which returns it, and never another one, from [`Endpoint::gate`](crate::Endpoint::gate).
    pub const unsafe fn new() -> Gate {
        Gate { is_open: Cell::new(false), host: Cell::new(None) }
    }

    /// Accesses to memory of the domain's keys may go ahead.
    pub fn open(&self) {
        self.set(true);
    }

    /// They may not: the endpoint's methods are called instead.
    pub fn close(&self) {
        self.set(false);
    }

    fn set(&self, is_open: bool) {
        self.is_open.set(is_open);
        if let Some(host) = self.host.get() {
            // SAFETY: `attach` was promised that it is valid, in this thread.
            unsafe { (*host.as_ptr()).is_open = u32::from(is_open) };
        }
    }

    /// From now on the host's gate is as this one.
    ///
    /// # Safety
    /// Gate and counter are those of an endpoint's parameters, valid until [`Gate::detach`].
    pub(crate) unsafe fn attach(&self, host: Host) {
        // SAFETY: the caller's promise.
        if unsafe { host.count(self.number()) } {
            self.host.set(NonNull::new(host.gate));
        }
        self.set(self.is_open.get());
    }

    /// The host's gate is about to be gone.
    pub(crate) fn detach(&self) {
        self.host.set(None);
        access::remove_host(self.number());
    }

    /// Unique among the gates that exist.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The gate of the host's and the counter of accesses through it, as an endpoint's parameters have them.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) gate: *mut UctGate,
    pub(crate) accesses: *mut u64,
}

impl Host {
    /// Has the ends of registrations wait for the host's accesses, under a number; returns whether they do, and the gate may be opened.
    ///
    /// # Safety
    /// Both are null or valid until [`access::remove_host`].
    unsafe fn count(self, number: usize) -> bool {
        let Some(accesses) = NonNull::new(self.accesses) else { return false };
        // SAFETY: the caller's promise. The host is not accessing anything while it creates the endpoint.
        !self.gate.is_null() && unsafe { access::add_host(number, accesses) }
    }

    /// Opens the gate for good, of an endpoint with this number.
    ///
    /// # Safety
    /// As for [`Host::count`], and in the worker's thread.
    pub(crate) unsafe fn open(self, number: usize) {
        // SAFETY: the caller's promise.
        if unsafe { self.count(number) }
            && let Some(gate) = NonNull::new(self.gate)
        {
            // SAFETY: the caller's promise.
            unsafe { (*gate.as_ptr()).is_open = 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: MemoryAccess = MemoryAccess::all();

    fn window(base: u64, length: u64, shift: u64, granted: MemoryAccess) -> UctWindow {
        let live = AtomicU64::new(1);
        // SAFETY: no access goes through it.
        unsafe { *Window::new(base, length, shift, granted, &live, 1).as_raw() }
    }

    #[test]
    fn a_window_has_the_whole_aligned_words_of_its_memory_and_no_other() {
        for base in 64..72 {
            for length in 0..40 {
                let window = window(base, length, 0, ALL);
                let expected: Vec<u64> =
                    (base..base + length).filter(|at| at % WORD == 0 && at + WORD <= base + length).collect();
                let found: Vec<u64> = (0..window.put_words).map(|word| window.base + word * WORD).collect();
                assert_eq!(found, expected, "{length} bytes at {base}");
            }
        }
        assert_eq!(window(u64::MAX - 3, 3, 0, ALL).put_words, 0);
        assert_eq!(window(64, 64, 4, ALL).atomic_words, 0, "words that are not aligned here");
    }

    #[test]
    fn a_gate_of_the_hosts_follows_that_of_the_endpoint_while_it_is_attached() {
        let mut host = UctGate { is_open: 0 };
        let at = &raw mut host;
        // SAFETY: it outlives the gate.
        let is_open = || unsafe { (*at).is_open };
        // SAFETY: no endpoint, and it is detached below.
        let gate = unsafe { Gate::new() };
        gate.open();
        let mut accesses = 0;
        // SAFETY: as above.
        unsafe { gate.attach(Host { gate: at, accesses: std::ptr::null_mut() }) };
        assert_eq!(is_open(), 0, "accesses that nobody can wait for");
        // SAFETY: as above.
        unsafe { gate.attach(Host { gate: at, accesses: &raw mut accesses }) };
        assert_eq!(is_open(), 1);
        gate.close();
        assert_eq!(is_open(), 0);
        gate.detach();
        gate.open();
        assert_eq!(is_open(), 0);
    }

    #[test]
    fn a_window_grants_what_the_registration_does() {
        let words = |granted| {
            let window = window(64, 64, 0, granted);
            (window.put_words, window.get_words, window.atomic_words)
        };
        assert_eq!(words(MemoryAccess::REMOTE_PUT), (8, 0, 0));
        assert_eq!(words(MemoryAccess::REMOTE_GET), (0, 8, 0));
        assert_eq!(words(MemoryAccess::REMOTE_ATOMIC), (0, 0, 8));
        assert_eq!(words(MemoryAccess::empty()), (0, 0, 0));
    }
}
