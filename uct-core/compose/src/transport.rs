//! The SDK's view of the interface: what it can do, its endpoints, progress, events.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ucs::clock::Deadline;
use uct_plugin::abi::*;
use uct_plugin::{
    Completion, EpParams, EpStatus, Error, Failure, Flush, Iface, IfaceAttr, Outcome, PeerAddress, Result,
    Scope, attr,
};

use crate::ep::{ComposedEp, MAX_HEADER, raw};
use crate::iface::{ComposedIface, Wait};
use crate::md::ComposedMd;

/// A name for as long as the process lives, once for each name.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = name.to_owned().leak();
    names.insert(name);
    name
}

/// How long closing waits for room for what was accepted.
const LINGER: Duration = Duration::from_secs(1);

impl Iface for ComposedIface {
    type Md = ComposedMd;
    type Ep = ComposedEp;

    fn attributes(&self) -> IfaceAttr {
        let own = self.plugin.attributes();
        let capabilities = own.capabilities | UCT_CAP_PENDING;
        let Some(sizes) = self.sizes else { return IfaceAttr { capabilities, ..own } };
        let composed = attr::PUT_GET | UCT_CAP_AM_ZCOPY;
        let vectors = UctOpLimits { max_iov: self.max_iov(), opt_zcopy_align: 1, ..attr::blank().put };
        let limits =
            |length| UctOpLimits { max_short: length, max_bcopy: length, max_zcopy: length, ..vectors };
        let atomics = UctAtomicOps {
            post: attr::ALL_POST,
            fetch: attr::ALL_FETCH,
            post_emulated: attr::ALL_POST,
            fetch_emulated: attr::ALL_FETCH,
        };
        IfaceAttr {
            capabilities: capabilities | composed | UCT_CAP_ATOMIC_CPU | UCT_CAP_ERRHANDLE_REMOTE_MEM,
            emulated: own.emulated | composed,
            am: UctOpLimits {
                max_short: self.max_short(),
                max_bcopy: sizes.message,
                max_zcopy: sizes.message,
                min_zcopy: 0,
                max_iov: self.max_iov(),
                max_hdr: MAX_HEADER.min(sizes.message),
                ..own.am
            },
            put: limits(sizes.put),
            get: limits(sizes.get),
            atomic32: atomics,
            atomic64: atomics,
            emulated_round_trips: own.emulated_round_trips.max(1),
            ..own
        }
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        self.plugin.device_address(buffer)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.plugin.address(buffer)
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, scope: Scope) -> Result<(), String> {
        let scope = if scope == Scope::Device { UCT_SCOPE_DEVICE } else { UCT_SCOPE_NETWORK };
        self.plugin.is_reachable(peer, scope).map_err(|failure| failure.reason)
    }

    fn is_impeded(&self, peer: PeerAddress<'_>) -> bool {
        let reached = self.plugin.is_reachable(peer, UCT_SCOPE_NETWORK);
        reached.is_err_and(|failure| failure.status == Error::REJECTED)
    }

    fn progress(&self) -> u32 {
        self.advance()
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<ComposedEp>, Failure> {
        let sender = self.new_sender(params.peer, EpStatus::new(params.user))?;
        Ok(Rc::new(ComposedEp { iface: Rc::clone(self), sender }))
    }

    fn close(&self) {
        let deadline = Deadline::after(LINGER);
        while self.has_unsent() && !deadline.expired() {
            self.advance();
            std::thread::yield_now();
        }
        self.flushes.fail(Error::CANCELED);
        self.forget_all();
    }

    unsafe fn release(&self, data: *mut u8) {
        // SAFETY: the caller's promise; what was delivered so was the plugin's.
        unsafe { self.plugin.release(data) };
    }

    fn event_fd(&self) -> Result<RawFd> {
        self.plugin.event_fd()
    }

    fn arm(&self, events: u32) -> Result {
        if self.has_work() { Err(Error::BUSY) } else { self.plugin.arm(events) }
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            for sender in self.senders() {
                self.cancel(&sender);
            }
            return Ok(Outcome::Done);
        }
        if self.has_waiting() {
            return Err(Error::NO_RESOURCE);
        }
        let flags = raw(flags);
        let flushed = self.plugin.flush(flags)?;
        let senders = self.senders();
        let open = senders.iter().filter(|sender| sender.status.failure().is_none() && !sender.is_quiet());
        let mut waits: Vec<Wait> = open
            .map(|sender| Wait::Operations(Rc::downgrade(sender), sender.initiator.mark(), false))
            .collect();
        if flushed == Outcome::InProgress {
            waits.push(Wait::Plugin(flags));
        }
        Ok(self.flushes.begin(waits, completion))
    }

    fn fence(&self) -> Result {
        self.plugin.fence()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters =
            vec![("peers", self.peers.len() as u64), ("registrations", self.registrations() as u64)];
        counters.extend(self.accessor.served().counters());
        self.plugin.counters(|name, value| counters.push((kept(name), value)));
        counters
    }
}
