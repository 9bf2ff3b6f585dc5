//! Pieces of registered memory, without an allocation and a registration each.
//!
//! Used by applications. Built on [`Memory`]: a piece is a `Memory` that returns its bytes to the pool. The lists of free pieces
//! are outside of the registered memory, because peers may write to all of that; the pools of `ucs` keep theirs inside.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use ucs::Error;

use super::MemoryDomain;
use super::access::Access;
use super::free_pieces::{FreePieces, Place};
use super::memory::{Memory, MemoryKind};
use crate::error::Refused;

/// Smallest piece in bytes: a cache line.
const SMALLEST: usize = 64;

/// A pool of pieces of registered memory, without system calls: taking and dropping a piece of 4 KiB took 60 to 90 ns, where
/// [`MemoryDomain::allocate`] took 2 µs over `self` and `tcp` and 16 to 24 µs over `posix`. For the thread that made it. Cheap to clone.
///
/// The pool allocates chunks and cuts each into pieces of one size, a power of two of 64 bytes or more. Chunks are freed when pool and
/// pieces are gone.
///
/// **A key is to the whole chunk.** [`Memory::packed_key`] of all pieces of one chunk is the same. A peer that has it can access all of
/// them, with the rights of the pool, also pieces that are taken later. Use one pool for peers that trust each other, and
/// [`MemoryDomain::allocate`] for memory with a key of its own. A piece can be taken again as soon as it is dropped: drop it when no peer
/// accesses it any more.
#[derive(Clone)]
pub struct RegisteredPool {
    inner: Rc<Inner>,
}

struct Inner {
    md: MemoryDomain,
    access: Access,
    chunk: usize,
    limit: usize,
    chunks: RefCell<Vec<Memory>>,
    free: Rc<FreePieces>,
}

impl MemoryDomain {
    /// A pool whose chunks have `chunk` bytes each and at most `limit` bytes together, registered for `access`. Allocates nothing yet.
    /// `chunk` is rounded up to a power of two of at least 64 bytes; it is the largest piece.
    ///
    /// # Errors
    /// `INVALID_PARAM` if not even one chunk is within the limit.
    pub fn pool(&self, chunk: usize, limit: usize, access: Access) -> Result<RegisteredPool, Refused> {
        let rounded = chunk.max(SMALLEST).checked_next_power_of_two().filter(|&chunk| chunk <= limit);
        let chunk = rounded.ok_or_else(|| Refused {
            operation: "make a pool of registered memory",
            subject: self.name().to_owned(),
            status: Error::INVALID_PARAM,
            reason: format!(
                "a chunk of {chunk} bytes, rounded up to a power of two, exceeds the limit of {limit}"
            ),
        })?;
        let inner =
            Inner { md: self.clone(), access, chunk, limit, chunks: RefCell::default(), free: Rc::default() };
        Ok(RegisteredPool { inner: Rc::new(inner) })
    }
}

impl RegisteredPool {
    /// A piece of `length` bytes, aligned to a power of two of at least `length` bytes or to a page. It contains what an earlier owner or a
    /// peer has left there. It returns to the pool when the last clone, slice or outstanding operation is gone.
    ///
    /// # Errors
    /// `INVALID_PARAM` if a chunk is shorter; `NO_MEMORY` if a new chunk would exceed the pool's limit; those of
    /// [`MemoryDomain::allocate`], if a chunk cannot be allocated; in a child of a fork.
    pub fn take(&self, length: usize) -> Result<Memory, Refused> {
        let pool = &self.inner;
        pool.md.inner.check_fork("take a piece of registered memory")?;
        if length > pool.chunk {
            let reason = format!("a piece of {length} bytes; the chunks of the pool have {}", pool.chunk);
            return Err(pool.refused(Error::INVALID_PARAM, reason));
        }
        let class = length.max(SMALLEST).next_power_of_two().trailing_zeros() as usize;
        let place = match pool.free.take(class) {
            Some(place) => place,
            None => pool.grow(class)?,
        };
        let (chunk, offset) = place.spot();
        Ok(Memory::piece(&pool.chunks.borrow()[chunk], offset, length, place))
    }

    /// Bytes of all chunks that were allocated.
    pub fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    /// The memory domain with which the pieces are registered.
    pub fn domain(&self) -> &MemoryDomain {
        &self.inner.md
    }
}

impl Inner {
    /// Allocates a chunk for pieces of this class; returns its first piece.
    #[cold]
    fn grow(&self, class: usize) -> Result<Place, Refused> {
        let bytes = self.bytes() + self.chunk;
        if bytes > self.limit {
            let reason = format!(
                "{} of at most {} bytes are in use, or cut into pieces of other sizes",
                self.bytes(),
                self.limit
            );
            return Err(self.refused(Error::NO_MEMORY, reason));
        }
        let memory = self.md.allocate(self.chunk, self.access, MemoryKind::Host)?;
        let chunk = self.chunks.borrow().len();
        self.chunks.borrow_mut().push(memory);
        self.free.add(class, (0..self.chunk).step_by(1 << class).rev().map(|offset| (chunk, offset)));
        Ok(self.free.take(class).expect("a chunk has a piece at least"))
    }

    fn bytes(&self) -> usize {
        self.chunks.borrow().len() * self.chunk
    }

    fn refused(&self, status: Error, reason: String) -> Refused {
        let subject = self.md.name().to_owned();
        Refused { operation: "take a piece of registered memory", subject, status, reason }
    }
}

impl fmt::Debug for RegisteredPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { md, chunk, limit, .. } = &*self.inner;
        f.debug_struct("RegisteredPool")
            .field("md", &md.name())
            .field("chunk", chunk)
            .field("bytes", &self.bytes())
            .field("limit", limit)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Completion, Context, Ep, Iface, Posted, RemoteKey, Worker};

    const LONG: Duration = Duration::from_secs(20);

    fn worker() -> Worker {
        Worker::new(&Context::builder().sources(ucs::config::Sources::default()).build().unwrap()).unwrap()
    }

    fn open(worker: &Worker, transport: &str, device: &str) -> (Iface, Ep) {
        let iface = worker.open(transport, device).unwrap();
        let ep = iface.connect(&iface.address().unwrap()).unwrap();
        (iface, ep)
    }

    #[test]
    fn pieces_are_apart_aligned_and_taken_again_when_nothing_refers_to_them() {
        let worker = worker();
        let (iface, _ep) = open(&worker, "self", "memory");
        let pool = iface.memory_domain().pool(4096, 8192, Access::ALL).unwrap();
        let pieces: Vec<Memory> = (0..64).map(|_| pool.take(33).unwrap()).collect();
        assert_eq!((pool.bytes(), pieces[0].len()), (4096, 33));
        for (index, piece) in pieces.iter().enumerate() {
            assert!(piece.address().is_multiple_of(64));
            piece.fill(0, 33, index as u8);
        }
        for (index, piece) in pieces.iter().enumerate() {
            assert_eq!(piece.to_vec(), [index as u8; 33]);
        }
        let large = pool.take(4096).unwrap();
        assert_eq!(pool.bytes(), 8192);
        let refused = pool.take(33).unwrap_err();
        assert_eq!(refused.status, Error::NO_MEMORY);
        assert!(pool.take(65).is_err(), "another size needs another chunk");
        // A slice keeps its piece.
        let (address, slice) = (large.address(), large.slice(1..2));
        drop(large);
        assert!(pool.take(4096).is_err(), "the piece is taken although a slice has it");
        drop(slice);
        assert_eq!(pool.take(4096).unwrap().address(), address);
        assert!(pool.take(4096).unwrap().into_bytes().is_err());
        // Pieces outlive their pool.
        drop(pool);
        pieces[3].write(0, &[9]);
        assert_eq!(pieces[3].to_vec()[0], 9);
    }

    #[test]
    fn what_no_pool_can_give_is_refused_with_the_reason() {
        let worker = worker();
        let (iface, _ep) = open(&worker, "self", "memory");
        let md = iface.memory_domain();
        let refused = md.pool(5000, 8191, Access::ALL).unwrap_err();
        assert_eq!((refused.subject.as_str(), refused.status), ("self/self", Error::INVALID_PARAM));
        assert_eq!(format!("{md:?}"), "MemoryDomain(\"self/self\")");
        assert_eq!(md.pool(usize::MAX, usize::MAX, Access::ALL).unwrap_err().status, Error::INVALID_PARAM);
        let pool = md.pool(0, 64, Access::ALL).unwrap();
        let refused = pool.take(65).unwrap_err();
        assert_eq!(refused.status, Error::INVALID_PARAM);
        assert!(
            refused.reason.contains("65 bytes") && refused.reason.contains("have 64"),
            "{}",
            refused.reason
        );
        assert_eq!(pool.take(0).unwrap().len(), 0);
        let piece = pool.take(8).unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| piece.write(1, &[0; 8]))).is_err());
    }

    #[test]
    fn pieces_are_source_and_target_of_a_peer_on_each_transport() {
        for (transport, device) in [("self", "memory"), ("posix", "memory"), ("tcp", "lo")] {
            let worker = worker();
            let (iface, ep) = open(&worker, transport, device);
            let pool = iface.memory_domain().pool(1 << 16, 1 << 20, Access::ALL).unwrap();
            let completion = Completion::new(&worker);
            let done = |posted: crate::Result<Posted>| {
                posted.unwrap();
                completion.wait(LONG).unwrap();
            };
            let key = |piece: &Memory| -> RemoteKey {
                iface.memory_domain().unpack(&piece.packed_key().unwrap()).unwrap()
            };
            let (beside, target) = (pool.take(1000).unwrap(), pool.take(1000).unwrap());
            let (source, back) = (pool.take(1000).unwrap(), pool.take(1000).unwrap());
            beside.fill(0, 1000, 7);
            source.fill(0, 1000, 3);
            let (first, second) = (key(&beside), key(&target));
            // Either key is to the chunk of both.
            done(
                worker
                    .retry(LONG, || ep.put_zcopy(&[source.slice(..)], target.address(), &first, &completion)),
            );
            done(worker.retry(LONG, || ep.flush(crate::Flush::REMOTE, Some(&completion))));
            assert_eq!((target.to_vec(), beside.to_vec()), (vec![3; 1000], vec![7; 1000]), "{transport}");
            // What is in flight keeps its piece, even if the last handle is dropped.
            let (slice, place) = (back.slice(..), back.address());
            let posted = worker.retry(LONG, || {
                ep.get_zcopy(std::slice::from_ref(&slice), target.address(), &second, &completion)
            });
            drop((slice, back));
            if posted == Ok(Posted::InProgress) {
                assert_ne!(pool.take(1000).unwrap().address(), place, "{transport}: taken while in flight");
            }
            done(posted);
            assert_eq!(pool.take(1000).unwrap().to_vec(), vec![3; 1000], "{transport}");
        }
    }

    #[test]
    fn taking_a_piece_costs_a_fraction_of_an_allocation() {
        // Of rounds, so that other processes do not count.
        let median = |each: &dyn Fn()| {
            let round = |_| {
                let start = Instant::now();
                (0..100).for_each(|_| each());
                start.elapsed() / 100
            };
            let mut rounds: Vec<Duration> = (0..11).map(round).collect();
            rounds.sort_unstable();
            rounds[5]
        };
        for (transport, device) in [("self", "memory"), ("posix", "memory"), ("tcp", "lo")] {
            let worker = worker();
            let (iface, _ep) = open(&worker, transport, device);
            let md = iface.memory_domain();
            let pool = md.pool(1 << 20, 1 << 24, Access::ALL).unwrap();
            let taken = median(&|| drop(pool.take(4096).unwrap()));
            let allocated = median(&|| drop(md.allocate(4096, Access::ALL, MemoryKind::Host).unwrap()));
            println!("{transport}: take and drop {taken:?}, allocate and drop {allocated:?}");
            assert!(taken * 3 < allocated, "{transport}: {taken:?}, and {allocated:?} for an allocation");
        }
    }
}
