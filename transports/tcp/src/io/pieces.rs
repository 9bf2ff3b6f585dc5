//! What is sent: parts that are copied to where a frame is sent from, and memory that is handed to the system.
//!
//! No reference is created to memory that may change while it is sent: registered memory, and that of vectors.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

/// Pieces of one system call.
pub(crate) const PIECES: usize = 34;

/// A part of a frame, which is written where the frame is sent from.
///
/// # Safety
/// `write` fills the room and calls neither the application nor a connection: the room may be the end of a connection's queue.
pub(crate) unsafe trait Part {
    /// Bytes.
    fn length(&self) -> usize;

    /// Writes the part.
    ///
    /// # Safety
    /// The room is [`Part::length`] bytes long.
    unsafe fn write(&self, room: &mut [u8]);
}

/// Memory that is readable for `'a`, and that may change meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    start: *const u8,
    length: usize,
    readable: PhantomData<&'a [u8]>,
}

impl<'a> Memory<'a> {
    pub(crate) const EMPTY: Memory<'static> =
        Memory { start: ptr::dangling(), length: 0, readable: PhantomData };

    /// # Safety
    /// The memory is readable for `'a`.
    pub(crate) unsafe fn new(start: *const u8, length: usize) -> Memory<'a> {
        Memory { start, length, readable: PhantomData }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The first bytes, and those behind; all of them are the first ones if they are fewer.
    pub(crate) fn split_at(self, bytes: usize) -> (Memory<'a>, Memory<'a>) {
        let bytes = bytes.min(self.length);
        let behind = Memory { start: self.start.wrapping_add(bytes), length: self.length - bytes, ..self };
        (Memory { length: bytes, ..self }, behind)
    }

    /// Copies all bytes to the end of others.
    pub(crate) fn copy_to(self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.length, 0);
        // SAFETY: the room is as long as this.
        unsafe { self.write(&mut bytes[start..]) };
    }
}

impl<'a> From<&'a [u8]> for Memory<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Memory<'a> {
        Memory { start: bytes.as_ptr(), length: bytes.len(), readable: PhantomData }
    }
}

// SAFETY: it copies.
unsafe impl Part for Memory<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        // SAFETY: the memory is readable; the room is as long, by the caller's promise, and nothing else uses it.
        unsafe { room.as_mut_ptr().copy_from_nonoverlapping(self.start, self.length) };
    }
}

// SAFETY: it copies.
unsafe impl<const N: usize> Part for [u8; N] {
    #[inline(always)]
    fn length(&self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        room.copy_from_slice(self);
    }
}

// SAFETY: neither part does anything else.
unsafe impl<A: Part, B: Part> Part for (A, B) {
    #[inline(always)]
    fn length(&self) -> usize {
        self.0.length().saturating_add(self.1.length())
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        let (first, second) = room.split_at_mut(self.0.length());
        // SAFETY: split off at its length.
        unsafe { self.0.write(first) };
        // SAFETY: the caller's room is as long as both.
        unsafe { self.1.write(second) };
    }
}

/// What one system call sends, in order.
pub(crate) struct Pieces<'a> {
    list: [libc::iovec; PIECES],
    count: usize,
    readable: PhantomData<&'a [u8]>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new() -> Pieces<'a> {
        let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Pieces { list: [none; PIECES], count: 0, readable: PhantomData }
    }

    /// Pieces so far; empty ones do not count.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds memory; returns whether it found room.
    pub(crate) fn add(&mut self, memory: impl Into<Memory<'a>>) -> bool {
        let memory = memory.into();
        if memory.is_empty() {
            return true;
        }
        let Some(place) = self.list.get_mut(self.count) else { return false };
        *place = libc::iovec { iov_base: memory.start.cast_mut().cast(), iov_len: memory.length };
        self.count += 1;
        true
    }

    /// Sends as much as the socket takes; returns how many bytes.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>) -> rustix::io::Result<usize> {
        let fd = socket.as_raw_fd();
        let sent = if let [piece] = self.list[..self.count] {
            // SAFETY: the memory is readable for `'a`; the kernel reads it.
            unsafe { libc::send(fd, piece.iov_base, piece.iov_len, libc::MSG_NOSIGNAL) }
        } else {
            // SAFETY: zeros are a message without address and control data.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = self.list.as_ptr().cast_mut();
            // A `usize` or an `int`, by the C library.
            message.msg_iovlen = self.count as _;
            // SAFETY: as above; the list lives through the call, and the kernel only reads it.
            unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) }
        };
        usize::try_from(sent).map_err(|_| {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            Errno::from_raw_os_error(errno)
        })
    }
}
