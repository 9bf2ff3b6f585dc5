//! Writes to, and reads from, regions: both sides.

use super::super::{Access, Buffers, Errno, MAX_INJECT, Rma, flags};
use super::Shared;
use super::copied::Copied;
use super::endpoint::Endpoint;
use super::input::Payload;
use super::peer::{Job, Pending, PendingKind, Stream, Ticket};
use super::serve::payload;
use crate::wire::Head;

/// Longest read that is answered in its order with writes.
const SHORT_READ: u64 = 4096;

impl Endpoint {
    /// Writes to a region of a peer.
    pub(super) fn write(&mut self, shared: &mut Shared, rma: &Rma<'_>) -> Result<(), Errno> {
        let (peer, buffers) = self.begin(shared, rma)?;
        if rma.mode.inject && buffers.len() > MAX_INJECT {
            return Err(Errno::TOO_LONG);
        }
        self.open(shared, peer);
        let flags = flags::RMA | flags::WRITE;
        let ticket = Ticket { context: rma.context, flags, is_reported: rma.mode.is_reported };
        let Copied { buffers, copy } = Copied::new(buffers, rma.mode.inject);
        let pending = Pending { ticket, kind: PendingKind::Done { is_sent: false }, _copy: copy };
        let id = self.peer(peer).operations.insert(pending) as u32;
        shared.totals.writes += 1;
        shared.totals.moved += buffers.len() as u64;
        self.queue(shared, peer, Job::Write { id, remote: rma.remote, buffers, sent: 0, data: rma.data });
        Ok(())
    }

    /// Reads from a region of a peer.
    pub(super) fn read(&mut self, shared: &mut Shared, rma: &Rma<'_>) -> Result<(), Errno> {
        let (peer, buffers) = self.begin(shared, rma)?;
        self.open(shared, peer);
        let flags = flags::RMA | flags::READ;
        let ticket = Ticket { context: rma.context, flags, is_reported: rma.mode.is_reported };
        let length = buffers.len() as u64;
        let kind = PendingKind::Data { buffers, received: 0 };
        let id = self.peer(peer).operations.insert(Pending { ticket, kind, _copy: None }) as u32;
        shared.totals.reads += 1;
        shared.totals.moved += length;
        let head = Head::read(id, rma.remote.key, rma.remote.offset, length);
        self.queue(shared, peer, Job::Head(head));
        Ok(())
    }

    fn begin(&mut self, _shared: &mut Shared, rma: &Rma<'_>) -> Result<(u32, Buffers), Errno> {
        let peer = self.peer_at(rma.to)?;
        let buffers = Buffers::new(rma.buffers).ok_or(Errno::INVALID)?;
        if self.peer(peer).is_full() {
            return Err(Errno::AGAIN);
        }
        Ok((peer, buffers))
    }

    /// The peer's bytes for a region.
    pub(super) fn written(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        (id, key, offset, data, is_last): (u32, u64, u64, Option<u64>, bool),
        payload: Payload<'_>,
    ) {
        let length = payload.len();
        let state = &mut self.peers[peer as usize];
        if state.refused.is_none() {
            let access = Access { read: false, write: true };
            let outcome = shared.regions.with(key, offset, length, access, |buffer| {
                payload.copy_to(length, &Buffers::One(buffer), 0);
            });
            state.refused = outcome.err();
        }
        if !is_last {
            return;
        }
        let outcome = state.refused.take().map_or(Ok(()), Err);
        if outcome.is_ok() {
            let source = self.index_of(peer);
            self.accessed(flags::RMA | flags::REMOTE_WRITE, data, length, source);
        }
        self.reply(shared, peer, id, outcome);
    }

    /// The peer asks for bytes of a region.
    pub(super) fn reads(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        (id, key, offset, length): (u32, u64, u64, u64),
    ) {
        let access = Access { read: true, write: false };
        let outcome = usize::try_from(length)
            .map_err(|_| Errno::INVALID)
            .and_then(|length| shared.regions.with(key, offset, length, access, |_| ()));
        if let Err(errno) = outcome {
            return self.reply(shared, peer, id, Err(errno));
        }
        if length <= SHORT_READ && length <= payload(&self.peers[peer as usize]) as u64 {
            // Read now: later writes of the peer do not change what it gets.
            let mut bytes = Head::data(id, true).bytes().to_vec();
            let copied = shared.regions.with(key, offset, length as usize, access, |buffer| {
                Buffers::One(buffer).append_to(&mut bytes);
            });
            return match copied {
                Ok(()) => {
                    self.queue(shared, peer, Job::Copied(bytes.into(), None));
                    self.was_read(peer, length as usize);
                }
                Err(errno) => self.reply(shared, peer, id, Err(errno)),
            };
        }
        let state = self.peer(peer);
        state.streams.push_back(Stream::Region { id, key, offset, length, sent: 0 });
        if !state.is_blocked {
            self.is_due(shared, peer);
        }
    }

    /// The peer has got all the bytes that it has asked for.
    pub(super) fn was_read(&mut self, peer: u32, length: usize) {
        let source = self.index_of(peer);
        self.accessed(flags::RMA | flags::REMOTE_READ, None, length, source);
    }

    /// The next bytes that a read or an atomic operation of this side returns.
    pub(super) fn data(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        id: u32,
        is_last: bool,
        payload: Payload<'_>,
    ) -> Result<(), &'static str> {
        let length = payload.len();
        let pending = self.peers[peer as usize].operations.get_mut(id as usize);
        let Some(PendingKind::Data { buffers, received }) = pending.map(|pending| &mut pending.kind) else {
            return Err("it sent bytes of an operation that was not begun");
        };
        let left = buffers.len() - *received;
        if length > left || is_last != (length == left) && (is_last || length > 0) {
            return Err("it sent more or fewer bytes than an operation returns");
        }
        payload.copy_to(length, buffers, *received);
        *received += length;
        if is_last { self.ended(shared, peer, id, Ok(())) } else { Ok(()) }
    }
}
