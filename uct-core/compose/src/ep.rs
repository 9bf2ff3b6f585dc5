//! Endpoints: messages are the plugin's, put, get and atomics are requests.

use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use ucs::clock::Deadline;
use uct_plugin::abi::{
    UCT_FLUSH_CANCEL, UCT_FLUSH_REMOTE, UCT_IFACE_ATTR_PACK_NONE, UCT_PACK_NONE, UctPendingReq,
};
use uct_plugin::memory::{Accessor, RegionDomain, Regions};
use uct_plugin::rma::{ByRequests, Initiator, Payload, RemoteLimits, Request, Requests};
use uct_plugin::{Completion, Endpoint, Error, Failure, Flush, Iov, Outcome, Pack, Result};

use crate::iface::{ComposedIface, Sizes, Wait};
use crate::md::OWN;
use crate::sender::Sender;
use crate::wire::{CHANNEL, Kind};

/// Largest header of a zero-copy message.
pub(crate) const MAX_HEADER: usize = 256;
/// Bytes of a short message's header.
pub(crate) const WORD: usize = size_of::<u64>();
/// How long a get that blocks waits for its data.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// An endpoint.
pub(crate) struct ComposedEp {
    pub(crate) iface: Rc<ComposedIface>,
    pub(crate) sender: Rc<Sender>,
}

impl ComposedEp {
    /// Whether messages of this id are frames.
    fn is_framed(&self, id: u8) -> bool {
        id == CHANNEL && self.iface.sizes.is_some()
    }

    /// The sizes of messages, where put, get and atomics are made of them.
    fn sizes(&self) -> Result<Sizes> {
        self.iface.sizes.ok_or(Error::UNSUPPORTED)
    }

    /// What the plugin is given in place of a length if there is no message; it may not know that there are none.
    #[cold]
    fn no_message(&self) -> usize {
        let knows_none = self.iface.plugin.attributes().flags & UCT_IFACE_ATTR_PACK_NONE != 0;
        if knows_none { UCT_PACK_NONE } else { 0 }
    }

    /// Sends what `fill` writes as a message of any id.
    fn send(&self, id: u8, signaled: bool, fill: impl FnOnce(*mut u8) -> usize) -> Result<usize> {
        self.sender.may_send(&self.iface.pending)?;
        if self.is_framed(id) {
            return self.sender.send_frame(Kind::Message, signaled, fill);
        }
        self.sender.noted(self.sender.plugin.am_bcopy(id, signaled, fill))
    }
}

impl Requests for ComposedEp {
    fn initiator(&self) -> Result<&Initiator> {
        Ok(&self.sender.initiator)
    }

    fn owner(&self) -> u32 {
        0
    }

    fn remote_limits(&self) -> RemoteLimits {
        let (put, get) = self.iface.sizes.map_or((0, 0), |sizes| (sizes.put, sizes.get));
        RemoteLimits { put, get, vector: get, max_iov: self.iface.max_iov() }
    }

    fn may_request(&self) -> Result {
        self.sizes()?;
        self.sender.may_send(&self.iface.pending)
    }

    fn is_quiet(&self) -> bool {
        self.sender.is_quiet()
    }

    fn send_request(&self, request: &Request, data: impl Payload) -> Result {
        self.may_request()?;
        self.sender.send_request(&self.iface.address, request, &data)
    }

    /// What is packed cannot be handed back, so it is sent later if it cannot be sent now.
    fn send_packed_request(&self, pack: Pack, head: impl FnOnce(usize) -> Result<Request>) -> Result<usize> {
        self.may_request()?;
        let mut data = vec![0; self.sizes()?.put];
        // SAFETY: it has as many bytes as the attributes promise, all of them initialised.
        let length = unsafe { pack.write(data.as_mut_ptr(), data.len()) }?;
        let request = head(length)?;
        self.sender.accept_request(&self.iface.address, &request, &data[..length]);
        if self.sender.has_unsent() {
            self.iface.note_busy(&self.sender);
        }
        Ok(length)
    }

    fn pump(&self) {
        self.sender.pump(&self.iface.address);
        if self.sender.initiator.wants_pump() {
            self.iface.note_busy(&self.sender);
        }
    }

    fn wait_until(&self, done: impl Fn() -> bool) -> Result {
        let deadline = Deadline::after(LONGEST_WAIT);
        let (mut rounds, mut idle) = (0_u32, 0_u32);
        while !done() {
            idle = if self.iface.advance() > 0 { 0 } else { idle + 1 };
            rounds = rounds.wrapping_add(1);
            // However much happens meanwhile.
            if rounds.is_multiple_of(64) && deadline.expired() {
                return Err(Error::TIMED_OUT);
            }
            if idle > 0 && idle.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn of_own_process(
        &self,
        identity: u64,
        read: impl FnOnce(&Regions, &Accessor) -> Result,
    ) -> Option<Result> {
        OWN.find(identity).map(|md| read(md.regions(), &self.iface.accessor))
    }
}

impl Endpoint for ComposedEp {
    type Iface = ComposedIface;
    type Remote = ByRequests;

    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        if payload.len() > self.iface.max_short() {
            return Err(Error::INVALID_PARAM);
        }
        if !self.is_framed(id) {
            self.sender.may_send(&self.iface.pending)?;
            return self.sender.noted(self.sender.plugin.am_short(id, header, payload));
        }
        let sent = self.send(id, false, |buffer| {
            // SAFETY: a message holds header and payload, as was just checked, and the buffer is no part of them.
            unsafe { buffer.cast::<u64>().write_unaligned(header) };
            // SAFETY: as above.
            unsafe { payload.write(buffer.wrapping_add(WORD)) };
            WORD + payload.len()
        });
        sent.map(drop)
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        if iov.total() > WORD + self.iface.max_short() {
            return Err(Error::INVALID_PARAM);
        }
        if !self.is_framed(id) {
            self.sender.may_send(&self.iface.pending)?;
            return self.sender.noted(self.sender.plugin.am_short_iov(id, iov.entries()));
        }
        // SAFETY: a message holds the vector, as was just checked, and the buffer is no part of it.
        self.send(id, false, |buffer| unsafe { iov.gather(buffer) }).map(drop)
    }

    fn am_bcopy(&self, id: u8, pack: Pack, signaled: bool) -> Result<usize> {
        self.send(id, signaled, |buffer| {
            // SAFETY: the plugin's buffer holds what the attributes promise, and nothing else uses it.
            let packed = unsafe { pack.write(buffer, isize::MAX as usize) };
            packed.unwrap_or_else(|_| self.no_message())
        })
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        signaled: bool,
        _completion: Option<Completion>,
    ) -> Result<Outcome> {
        let length = header.len().saturating_add(iov.total());
        let is_long = length > self.sizes()?.message || header.len() > MAX_HEADER;
        if is_long || iov.entries().len() > self.iface.max_iov() {
            return Err(Error::INVALID_PARAM);
        }
        self.send(id, signaled, |buffer| {
            // SAFETY: a message holds header and vector, as was just checked, and the buffer is no part of them.
            unsafe { header.write(buffer) };
            // SAFETY: as above.
            unsafe { iov.gather(buffer.wrapping_add(header.len())) };
            length
        })?;
        Ok(Outcome::Done)
    }

    unsafe fn pending_add(&self, request: NonNull<UctPendingReq>) -> Result {
        self.sender.status.check()?;
        if self.sender.waiting.is_empty() {
            if !self.sender.is_blocked() {
                return Err(Error::BUSY);
            }
            self.iface.note_waiting(&self.sender);
        }
        // SAFETY: the caller's promise; the group is in an `Rc`, and purged ahead of the endpoint's end.
        unsafe { self.iface.pending.add(&self.sender.waiting, request) };
        Ok(())
    }

    fn pending_purge(&self, purge: &mut dyn FnMut(NonNull<UctPendingReq>)) {
        self.iface.pending.purge(&self.sender.waiting, purge);
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        let sender = &self.sender;
        if flags.cancel {
            self.iface.cancel(sender);
            return Ok(Outcome::Done);
        }
        sender.status.check()?;
        if self.iface.pending.must_wait(&sender.waiting) {
            return Err(Error::NO_RESOURCE);
        }
        let flags = raw(flags);
        if sender.is_quiet() {
            sender.initiator.flush(0, None)?;
            let flushed = sender.noted(sender.plugin.flush(flags))?;
            if flushed == Outcome::Done {
                return Ok(Outcome::Done);
            }
        }
        let operations = Wait::Operations(Rc::downgrade(sender), sender.initiator.mark(), true);
        let messages = Wait::Messages(Rc::downgrade(sender), flags);
        Ok(self.iface.flushes.begin(vec![operations, messages], completion))
    }

    fn fence(&self) -> Result {
        // Messages arrive in order, and requests are carried out in order.
        self.sender.plugin.fence()
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        self.sender.status.check()?;
        self.sender.plugin.check(completion)
    }

    fn address_length(&self) -> usize {
        self.iface.plugin.attributes().ep_addr_len
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.sender.plugin.address(buffer)
    }

    fn connect_to_ep(&self, device_address: &[u8], ep_address: &[u8]) -> Result<(), Failure> {
        self.sender.plugin.connect_to_ep(device_address, ep_address)
    }

    fn destroy(self: Rc<Self>) {
        self.sender.status.close();
        self.sender.initiator.cancel(0, Error::CANCELED);
        self.iface.forget(&self.sender);
    }
}

/// The flags of a flush that cancels nothing, as the plugin takes them.
pub(crate) fn raw(flags: Flush) -> u32 {
    let remote = if flags.remote { UCT_FLUSH_REMOTE } else { 0 };
    if flags.cancel { remote | UCT_FLUSH_CANCEL } else { remote }
}
