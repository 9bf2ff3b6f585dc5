//! Many puts or gets by one call: sets of blocks, with one completion.

use ucs::{Error, Result};
use uct_abi::{UCT_INPROGRESS, UCT_OK, UctIov};

use super::{Ep, EpInner};
use crate::completion::{Completion, Held, Posted};
use crate::latency::Kind;
use crate::md::{Memory, RemoteKey};

/// A block of memory that a put or get moves: where it is on both sides, and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first byte in the local memory.
    pub local: usize,
    /// Its address at the peer.
    pub remote: u64,
    /// Its length. At least 1, and within the limits of `put_zcopy` or `get_zcopy` ([`crate::OpLimits`]).
    pub length: usize,
}

/// How far a call came that starts an operation for each block of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The first so many blocks were started: they have ended, or are in flight.
    pub started: usize,
    /// Whether any of those is in flight. Where none is, [`Completion::result`] says whether one has failed.
    pub posted: Posted,
    /// Why the next block was not started; `None` if all were.
    pub refused: Option<Error>,
}

impl Ep {
    /// Writes blocks of local memory to remote memory in place: [`Ep::put_zcopy`] for each, in this order, with one completion. Where
    /// remote memory is reached directly (`self`, shared memory) no block takes a call of the transport. Does not block.
    ///
    /// # Errors
    /// `INVALID_PARAM` for memory or a key of another domain. Everything else is in [`Batch::refused`]: `NO_RESOURCE` (make progress, and
    /// start the others), `OUT_OF_RANGE` for a block beyond the local memory, otherwise as [`Ep::put_zcopy`]. What is found wrong later comes
    /// with the completion, which does not say which block it was.
    pub fn put_blocks(
        &self,
        memory: &Memory,
        key: &RemoteKey,
        blocks: &[Block],
        completion: &Completion,
    ) -> Result<Batch> {
        self.inner.move_blocks(Kind::Put, memory, key, blocks, completion)
    }

    /// Reads blocks of remote memory into local memory in place: [`Ep::get_zcopy`] for each, otherwise as [`Ep::put_blocks`].
    ///
    /// # Errors
    /// As [`Ep::put_blocks`]; `INVALID_PARAM` for memory that is not [writable](Memory::is_writable).
    pub fn get_blocks(
        &self,
        memory: &Memory,
        key: &RemoteKey,
        blocks: &[Block],
        completion: &Completion,
    ) -> Result<Batch> {
        if !memory.is_writable() {
            return Err(Error::INVALID_PARAM);
        }
        self.inner.move_blocks(Kind::Get, memory, key, blocks, completion)
    }
}

impl EpInner {
    fn move_blocks(
        &self,
        kind: Kind,
        memory: &Memory,
        key: &RemoteKey,
        blocks: &[Block],
        completion: &Completion,
    ) -> Result<Batch> {
        self.same_domain(key.domain())?;
        self.same_domain(memory.domain())?;
        key.look_again();
        let done = self.move_at_once(kind, memory, key, blocks);
        if done == blocks.len() {
            return Ok(Batch { started: done, posted: Posted::Done, refused: None });
        }
        let batch = self.post_blocks(kind, memory, key, &blocks[done..], completion);
        Ok(Batch { started: done + batch.started, ..batch })
    }

    /// Moves the first blocks that are reached directly. Returns how many.
    fn move_at_once(&self, kind: Kind, memory: &Memory, key: &RemoteKey, blocks: &[Block]) -> usize {
        let (mut moved, mut bytes) = (0, 0);
        for block in blocks {
            let Some(here) = memory.range(block.local, block.length) else { break };
            let (remote, length) = (block.remote, block.length);
            let direct = match kind {
                // SAFETY: so many bytes of the memory are there, which is registered and nobody's reference (`Memory::write`).
                Kind::Put => unsafe { key.put_raw(&self.gate, remote, here, length) },
                // SAFETY: as above, and the caller has checked that it is writable.
                _ => unsafe { key.get_raw(&self.gate, remote, here, length) },
            };
            if direct.is_none() {
                break;
            }
            moved += 1;
            bytes += length;
        }
        self.counters.of(kind).add_many(moved, bytes);
        moved
    }

    /// Starts an operation of the transport for each block, until one is refused.
    fn post_blocks(
        &self,
        kind: Kind,
        memory: &Memory,
        key: &RemoteKey,
        blocks: &[Block],
        completion: &Completion,
    ) -> Batch {
        let slot = match kind {
            Kind::Put => slot!(self.put_zcopy),
            _ => slot!(self.get_zcopy),
        };
        let (mut started, mut bytes, mut in_flight, mut refused) = (0, 0, false, None);
        // For this call: the operations cannot end the completion ahead of it.
        completion.begin();
        for block in blocks {
            let Some(here) = memory.range(block.local, block.length) else {
                refused = Some(Error::OUT_OF_RANGE);
                break;
            };
            let iov = UctIov {
                buffer: here.cast(),
                length: block.length,
                memh: memory.memh(),
                stride: 0,
                count: 1,
            };
            let begun = completion.begin();
            // SAFETY: the endpoint is alive; the vector is valid for the call, and memory and key until the completion, which
            // `started_all` holds them for: it does not end ahead of that.
            let status = unsafe { slot(self.raw.get(), &raw const iov, 1, block.remote, key.raw(), begun) };
            if status != UCT_INPROGRESS {
                completion.ended_at_once();
            }
            match status {
                UCT_OK => {}
                UCT_INPROGRESS => in_flight = true,
                status => {
                    refused = self.refused(status, self.counters.of(kind), block.length).err();
                    break;
                }
            }
            started += 1;
            bytes += block.length;
        }
        self.counters.of(kind).add_many(started, bytes);
        let posted = completion.started_all(key, Held::Memory(memory.clone()), in_flight);
        completion.measure(Ok(posted), kind, self.iface.histograms());
        Batch { started, posted, refused }
    }
}
