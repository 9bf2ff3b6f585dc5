//! Memory that is sent: copied, or handed to the system in pieces.
//!
//! No reference is created to memory that may change while it is sent: registered memory, and that of vectors.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

/// Pieces of one system call.
pub(crate) const PIECES: usize = 34;

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

    /// The first byte.
    pub(crate) fn start(self) -> *const u8 {
        self.start
    }

    /// Bytes.
    pub(crate) fn length(self) -> usize {
        self.length
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

    /// Copies all bytes.
    ///
    /// # Safety
    /// `target` is writable for as many bytes, which are no part of this memory.
    pub(crate) unsafe fn write(self, target: *mut u8) {
        // SAFETY: the memory is readable; the rest is the caller's promise.
        unsafe { target.copy_from_nonoverlapping(self.start, self.length) };
    }

    /// Copies all bytes to the end of others.
    pub(crate) fn copy_to(self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.length, 0);
        // SAFETY: the vector was resized for as many bytes.
        unsafe { self.write(bytes[start..].as_mut_ptr()) };
    }
}

impl<'a> From<&'a [u8]> for Memory<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Memory<'a> {
        Memory { start: bytes.as_ptr(), length: bytes.len(), readable: PhantomData }
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
