//! What a connection still has to send: buffers of copied bytes, and memory of zero-copy operations, in order.
//!
//! The last buffer is appended to through two cells of the connection, so that a small message costs a copy and no more. It is
//! continued behind the memory of a zero-copy operation, so that the heads of many lie in one buffer.

use std::collections::VecDeque;
use std::rc::Rc;

use uct_plugin::{Completion, Iov, Result};

use crate::io::buffer::{TxBuffer, TxPool};
use crate::io::pieces::{Memory, Pieces};

/// Bytes that wait to be sent.
#[derive(Default)]
pub(super) struct Queue {
    segments: VecDeque<Segment>,
    /// Bytes in it.
    bytes: usize,
}

enum Segment {
    Copied { buffer: Rc<TxBuffer>, start: usize, end: usize },
    Vector(Vector),
}

/// The memory of a zero-copy operation.
struct Vector {
    /// What is left: readable until the operation has ended, so as long as this is queued.
    blocks: VecDeque<Memory<'static>>,
    /// Bytes of it.
    left: usize,
    owner: u32,
    completion: Option<Completion>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that wait in memory of this side's, not in that of zero-copy operations.
    pub(super) fn copied(&self) -> usize {
        let copied = self.segments.iter().map(|segment| match segment {
            Segment::Copied { start, end, .. } => end - start,
            Segment::Vector(_) => 0,
        });
        copied.sum()
    }

    /// Puts an empty buffer at the end; returns its first byte and its size.
    pub(super) fn push_buffer(&mut self, buffer: TxBuffer) -> (*mut u8, usize) {
        let place = (buffer.base(), buffer.size());
        self.segments.push_back(Segment::Copied { buffer: Rc::new(buffer), start: 0, end: 0 });
        place
    }

    /// Notes how far the last buffer was written: `left` bytes of it are free.
    pub(super) fn set_tail(&mut self, left: usize) {
        if let Some(Segment::Copied { buffer, end, .. }) = self.segments.back_mut() {
            let written = buffer.size().saturating_sub(left);
            self.bytes += written - *end;
            *end = written;
        }
    }

    /// Queues the memory of a vector behind its first `skip` bytes. What is left of the last buffer is continued behind it.
    pub(super) fn push_vector(
        &mut self,
        iov: Iov<'_>,
        mut skip: usize,
        owner: u32,
        completion: Option<Completion>,
    ) {
        let mut blocks = VecDeque::new();
        let mut left = 0;
        for (start, length) in iov.blocks() {
            // SAFETY: the host keeps the memory of an operation readable until it has ended, and the operation has not, since its
            // vector is queued.
            let (skipped, rest) = unsafe { Memory::new(start, length) }.split_at(skip);
            skip -= skipped.length();
            if !rest.is_empty() {
                left += rest.length();
                blocks.push_back(rest);
            }
        }
        self.bytes += left;
        let vector = Vector { blocks, left, owner, completion };
        let rest = match self.segments.back() {
            Some(Segment::Copied { buffer, end, .. }) => {
                Some(Segment::Copied { buffer: Rc::clone(buffer), start: *end, end: *end })
            }
            _ => None,
        };
        self.segments.push_back(Segment::Vector(vector));
        self.segments.extend(rest);
    }

    /// The next bytes to send, as many as one system call takes.
    pub(super) fn pieces(&self) -> Pieces<'_> {
        let mut pieces = Pieces::new();
        for segment in &self.segments {
            let has_room = match segment {
                Segment::Copied { buffer, start, end } => {
                    let data = buffer.base().wrapping_add(*start);
                    // SAFETY: `start..end` was written and lies within the buffer; what is appended lies behind.
                    pieces.add(unsafe { Memory::new(data, end - start) })
                }
                Segment::Vector(vector) => vector.blocks.iter().all(|block| pieces.add(*block)),
            };
            if !has_room {
                break;
            }
        }
        pieces
    }

    /// Takes `sent` bytes off the front; hands over the completion of every zero-copy operation that has ended.
    pub(super) fn advance(&mut self, mut sent: usize, pool: &TxPool, ended: &mut impl Extend<Completion>) {
        loop {
            match self.segments.front_mut() {
                None => return,
                Some(Segment::Copied { start, end, .. }) => {
                    let part = sent.min(*end - *start);
                    *start += part;
                    self.bytes -= part;
                    sent -= part;
                    if start < end {
                        return;
                    }
                    if let Some(Segment::Copied { buffer, .. }) = self.segments.pop_front()
                        && let Some(buffer) = Rc::into_inner(buffer)
                    {
                        pool.put(buffer);
                    }
                }
                Some(Segment::Vector(vector)) => {
                    let part = sent.min(vector.left);
                    self.bytes -= part;
                    sent -= part;
                    vector.skip(part);
                    if vector.left > 0 {
                        return;
                    }
                    if let Some(Segment::Vector(vector)) = self.segments.pop_front() {
                        ended.extend(vector.completion);
                    }
                }
            }
        }
    }

    /// Copies what is left of an owner's zero-copy operations, so that their memory is free; hands over their completions. After an error
    /// bytes are missing: there was no memory for the copy.
    pub(super) fn detach(&mut self, owner: u32, ended: &mut impl Extend<Completion>) -> Result {
        let mut outcome = Ok(());
        for segment in &mut self.segments {
            if let Segment::Vector(vector) = segment
                && vector.owner == owner
            {
                ended.extend(vector.completion.take());
                let end = vector.left;
                let buffer = match TxBuffer::new(end) {
                    Ok(buffer) => buffer,
                    Err(error) => {
                        outcome = Err(error);
                        self.bytes -= end;
                        vector.skip(end);
                        continue;
                    }
                };
                let mut place = buffer.base();
                for block in &vector.blocks {
                    // SAFETY: the buffer has room for all that is left of the vector.
                    unsafe { block.write(place) };
                    place = place.wrapping_add(block.length());
                }
                *segment = Segment::Copied { buffer: Rc::new(buffer), start: 0, end };
            }
        }
        outcome
    }

    /// Puts another queue ahead of this one.
    pub(super) fn put_ahead(&mut self, mut first: Queue) {
        first.segments.append(&mut self.segments);
        first.bytes += self.bytes;
        *self = first;
    }

    /// Drops everything; hands over the completions.
    pub(super) fn clear(&mut self, ended: &mut impl Extend<Completion>) {
        for segment in self.segments.drain(..) {
            if let Segment::Vector(vector) = segment {
                ended.extend(vector.completion);
            }
        }
        self.bytes = 0;
    }
}

impl Vector {
    /// Takes off bytes that were sent.
    fn skip(&mut self, mut bytes: usize) {
        self.left -= bytes;
        while let Some(block) = self.blocks.front_mut() {
            let (sent, rest) = block.split_at(bytes);
            if !rest.is_empty() {
                *block = rest;
                return;
            }
            bytes -= sent.length();
            self.blocks.pop_front();
        }
    }
}
