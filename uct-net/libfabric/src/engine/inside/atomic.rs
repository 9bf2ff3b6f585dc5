//! Atomic operations: both sides.

use super::super::arithmetic::{Arguments, update};
use super::super::{Access, Atomic, Buffer, Buffers, DataType, Errno, Operation, flags};
use super::Shared;
use super::endpoint::Endpoint;
use super::input::Payload;
use super::peer::{AtomicJob, Job, Pending, PendingKind, Ticket};
use crate::wire::{Element, Head};

/// Most bytes of the elements of one operation.
const MAX_BYTES: usize = 16 << 20;

impl Endpoint {
    /// Updates elements of a peer's region.
    pub(super) fn atomic(&mut self, shared: &mut Shared, atomic: &Atomic<'_>) -> Result<(), Errno> {
        let peer = self.peer_at(atomic.to)?;
        if self.peer(peer).is_full() {
            return Err(Errno::AGAIN);
        }
        let size = atomic.data_type.size();
        let length = atomic.count.checked_mul(size).filter(|length| (1..=MAX_BYTES).contains(length));
        let length = length.ok_or(Errno::INVALID)?;
        let operands = if atomic.operation == Operation::Read { 0 } else { length };
        let compare = if atomic.operation.compares() { length } else { 0 };
        let operands = copy(atomic.operands, operands)?;
        let compare = copy(atomic.compare, compare)?;
        let fetches = !atomic.results.is_empty();
        let results = Buffers::new(atomic.results).ok_or(Errno::INVALID)?;
        if fetches && results.len() < length {
            return Err(Errno::INVALID);
        }
        self.open(shared, peer);
        let flags = flags::ATOMIC | if fetches { flags::READ } else { flags::WRITE };
        let ticket = Ticket { context: atomic.context, flags, is_reported: atomic.mode.is_reported };
        let kind = if fetches {
            PendingKind::Data { buffers: results.part(0, length), received: 0 }
        } else {
            PendingKind::Done { is_sent: false }
        };
        let id = self.peer(peer).operations.insert(Pending { ticket, kind, _copy: None }) as u32;
        let element = Element {
            operation: atomic.operation as u8,
            data_type: atomic.data_type as u8,
            count: atomic.count as u32,
        };
        shared.totals.atomics += 1;
        shared.totals.moved += length as u64;
        let remote = atomic.remote;
        let job = AtomicJob { id, remote, element, size, fetches, operands, compare, sent: 0 };
        self.queue(shared, peer, Job::Atomic(Box::new(job)));
        Ok(())
    }

    /// A peer updates elements of a region.
    pub(super) fn updated(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        (id, key, offset): (u32, u64, u64),
        (element, fetches, is_last): (Element, bool, bool),
        payload: Payload<'_>,
    ) -> Result<(), &'static str> {
        let operation =
            Operation::new(element.operation.into()).ok_or("it asked for an unknown operation")?;
        let data_type = DataType::new(element.data_type.into()).ok_or("it asked for an unknown type")?;
        let size = data_type.size();
        let arrays = usize::from(operation != Operation::Read) + usize::from(operation.compares());
        let length = (element.count as usize).checked_mul(size).ok_or("it asked for too many elements")?;
        if payload.len() != length * arrays {
            return Err("its operands have another length than its elements");
        }
        if fetches && length > self.peers[peer as usize].link.fragment() {
            return Err("it asked for more elements than a message has");
        }
        let bytes = payload.to_vec();
        let (operands, compare) = match arrays {
            0 => (&[][..], &[][..]),
            1 => (&bytes[..], &[][..]),
            _ => bytes.split_at(length),
        };
        let mut former = Vec::new();
        if self.peer(peer).refused.is_none() {
            let access =
                Access { read: fetches || operation == Operation::Read, write: operation != Operation::Read };
            let arguments = Arguments { operation, data_type, operands, compare };
            let outcome = shared.regions.with(key, offset, length, access, |buffer| {
                update(buffer, &arguments, fetches.then_some(&mut former))
            });
            self.peer(peer).refused = outcome.and_then(|outcome| outcome).err();
        }
        let is_refused = self.peer(peer).refused.is_some();
        if fetches && !is_refused {
            let mut bytes = Head::data(id, is_last).bytes().to_vec();
            bytes.extend_from_slice(&former);
            self.queue(shared, peer, Job::Copied(bytes.into(), None));
        }
        if is_last {
            let outcome = self.peer(peer).refused.take().map_or(Ok(()), Err);
            if outcome.is_ok() {
                let flags = if fetches { flags::REMOTE_READ } else { flags::REMOTE_WRITE };
                self.accessed(flags::ATOMIC | flags, None, length, super::super::NOT_AVAILABLE);
            }
            if !fetches || outcome.is_err() {
                self.reply(shared, peer, id, outcome);
            }
        }
        Ok(())
    }
}

/// The first `length` bytes of the buffers.
fn copy(buffers: &[Buffer], length: usize) -> Result<Vec<u8>, Errno> {
    let buffers = Buffers::new(buffers).ok_or(Errno::INVALID)?;
    if buffers.len() < length {
        return Err(Errno::INVALID);
    }
    let mut bytes = Vec::with_capacity(length);
    buffers.part(0, length).append_to(&mut bytes);
    Ok(bytes)
}
