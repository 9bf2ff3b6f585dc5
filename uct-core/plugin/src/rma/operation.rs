//! What an initiator remembers of an operation until it has ended.

use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use ucs::Result;

use crate::atomic::OldValue;
use crate::completion::Completion;
use crate::iov::Iov;
use crate::pack::Unpack;

/// What is notified of the end of an operation.
#[derive(Debug)]
pub enum Notify {
    /// Nothing: an error is kept for the next flush.
    Nobody,
    /// The host's completion.
    Completion(Completion),
    /// Code of the transport's that waits.
    Waiter(Waiter),
}

/// Shows how an operation has ended, to code of the transport's that waits for it. Clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Waiter(Rc<Cell<Option<Result>>>);

impl Waiter {
    /// How the operation has ended; `None` while it goes on.
    pub fn result(&self) -> Option<Result> {
        self.0.get()
    }
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Waiter) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl From<Option<Completion>> for Notify {
    fn from(completion: Option<Completion>) -> Notify {
        completion.map_or(Notify::Nobody, Notify::Completion)
    }
}

impl Notify {
    /// Notifies; the host's code may run inside.
    pub(super) fn tell(self, result: Result) {
        match self {
            Notify::Nobody => {}
            Notify::Completion(completion) => completion.complete(result),
            Notify::Waiter(waiter) => waiter.0.set(Some(result)),
        }
    }
}

/// An operation that was posted, by what its response is for.
#[derive(Debug)]
pub enum Operation {
    /// A put or a posted atomic: an acknowledgement ends it.
    Acknowledged(Notify),
    /// A piece of an operation whose last piece is still to be posted: an error in it is that of the last one.
    Piece,
    /// An atomic whose old value goes to this place.
    Fetch(OldValue, Notify),
}

/// Where a get goes.
///
/// Memory is given by a pointer, and the caller guarantees that it stays valid:
///
/// ```
/// use std::ptr::NonNull;
/// use uct_plugin::rma::Destination;
///
/// let mut place = [0_u8; 8];
/// // SAFETY: the place outlives the destination, which no get uses.
/// let destination = unsafe { Destination::block(NonNull::from(&mut place).cast(), 8) };
/// drop(destination);
/// ```
///
/// Safe code cannot do that: not by the function,
///
/// ```compile_fail,E0133
/// use std::ptr::NonNull;
/// use uct_plugin::rma::Destination;
///
/// let mut place = [0_u8; 8];
/// let destination = Destination::block(NonNull::from(&mut place).cast(), 8);
/// drop(destination);
/// ```
///
/// nor by one for a vector,
///
/// ```compile_fail,E0133
/// fn destination(iov: uct_plugin::Iov<'_>) -> uct_plugin::rma::Destination {
///     uct_plugin::rma::Destination::of_iov(iov)
/// }
/// ```
///
/// nor by its field.
///
/// ```compile_fail,E0616
/// fn look(destination: uct_plugin::rma::Destination) {
///     let _ = destination.0;
/// }
/// ```
pub struct Destination(Kind);

enum Kind {
    /// To blocks of memory, in order.
    Memory(Box<[(NonNull<u8>, usize)]>),
    /// To one block of memory.
    Block(NonNull<u8>, usize),
    /// To the application's unpack callback, in one piece.
    Unpack(Unpack, Vec<u8>),
}

impl Destination {
    /// One block of memory.
    ///
    /// # Safety
    /// The memory stays valid and writable until the get has ended, was cancelled or was abandoned.
    pub unsafe fn block(start: NonNull<u8>, length: usize) -> Destination {
        Destination(Kind::Block(start, length))
    }

    /// The memory of a vector.
    ///
    /// # Safety
    /// The memory stays valid and writable until the get has ended or was cancelled.
    pub unsafe fn of_iov(iov: Iov<'_>) -> Destination {
        let mut blocks = iov.blocks().filter_map(|(block, length)| Some((NonNull::new(block)?, length)));
        Destination(match (blocks.next(), blocks.next()) {
            (None, _) => Kind::Block(NonNull::dangling(), 0),
            (Some((block, length)), None) => Kind::Block(block, length),
            (Some(first), Some(second)) => Kind::Memory([first, second].into_iter().chain(blocks).collect()),
        })
    }

    /// The application's callback.
    pub fn unpack(unpack: Unpack) -> Destination {
        Destination(Kind::Unpack(unpack, Vec::new()))
    }

    /// Where the `length` bytes from `offset` on belong, if that is one place in memory.
    pub(super) fn place(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let Kind::Block(start, all) = self.0 else { return None };
        let is_inside = offset <= all && length <= all - offset;
        // SAFETY: the offset is inside the block, or right behind it.
        is_inside.then(|| unsafe { start.add(offset) })
    }

    /// The get is complete: passes the data to the application's callback, if there is one.
    pub(super) fn finish(self) {
        if let Kind::Unpack(unpack, collected) = self.0 {
            unpack.read(&collected);
        }
    }

    /// Writes `data`, which begin `offset` bytes from the start of a get of `total` bytes. Returns whether that was all
    /// there is room for.
    pub(super) fn write(&mut self, offset: usize, data: &[u8], total: usize) {
        match &mut self.0 {
            Kind::Block(block, length) => scatter(&[(*block, *length)], offset, data),
            Kind::Memory(blocks) => scatter(blocks, offset, data),
            Kind::Unpack(_, collected) => {
                if collected.is_empty() {
                    collected.reserve_exact(total);
                }
                debug_assert_eq!(collected.len(), offset, "pieces come in order");
                collected.extend_from_slice(data);
            }
        }
    }
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Memory(_) | Kind::Block(..) => "Memory",
            Kind::Unpack(..) => "Unpack",
        })
    }
}

/// Writes `data` to the blocks from byte `skip` on, as far as there is room.
fn scatter(blocks: &[(NonNull<u8>, usize)], mut skip: usize, mut data: &[u8]) {
    for &(block, length) in blocks {
        if skip >= length {
            skip -= length;
            continue;
        }
        let part = data.len().min(length - skip);
        // SAFETY: `skip` is below the length of the block, which is valid until the get has ended (`block`, `of_iov`).
        let place = unsafe { block.add(skip) };
        // SAFETY: the block holds `part` bytes from there, and `data` are the transport's own.
        unsafe { place.as_ptr().copy_from_nonoverlapping(data.as_ptr(), part) };
        data = &data[part..];
        skip = 0;
        if data.is_empty() {
            break;
        }
    }
}
