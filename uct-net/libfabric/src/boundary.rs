//! How C calls this crate: no panic crosses, errors are numbers below zero, and pointers are looked at before they are followed.
//!
//! A function for C gets a [`Caller`], which follows the pointers of that call. So the functions themselves have no unsafe code.

use std::ffi::{CStr, c_char, c_int, c_void};

use ucs::panic::caught;

use crate::abi::{fi_cq_tagged_entry, fi_ioc, iovec};
use crate::engine::{Buffer, Entry, Errno, MAX_BUFFERS};

/// What a function for C comes to.
pub type Outcome<T = ()> = Result<T, Errno>;

/// How a function returns its outcome to C.
pub trait Answer {
    /// What it returns when all is well.
    type Good;
    /// The value for C.
    fn answer(outcome: Outcome<Self::Good>) -> Self;
}

impl Answer for c_int {
    type Good = c_int;

    fn answer(outcome: Outcome<c_int>) -> c_int {
        outcome.unwrap_or_else(|errno| -errno.0)
    }
}

impl Answer for isize {
    type Good = usize;

    #[inline]
    fn answer(outcome: Outcome<usize>) -> isize {
        outcome.map_or_else(|errno| -(errno.0 as isize), usize::cast_signed)
    }
}

impl Answer for u64 {
    type Good = u64;

    fn answer(outcome: Outcome<u64>) -> u64 {
        outcome.unwrap_or(0)
    }
}

impl Answer for *const c_char {
    type Good = *const c_char;

    fn answer(outcome: Outcome<*const c_char>) -> *const c_char {
        outcome.unwrap_or(std::ptr::null())
    }
}

/// Runs what C has called. A panic is logged, and an error for the caller.
///
/// # Safety
/// The pointers that `work` has its [`Caller`] follow are arguments of the call, or were found by following those. They are null, or valid as
/// libfabric's manual pages demand: until the call returns, and memory of operations until these have completed.
#[inline]
pub unsafe fn guarded<A: Answer>(work: impl FnOnce(&Caller) -> Outcome<A::Good>) -> A {
    let caller = Caller(());
    A::answer(caught(|| work(&caller)).unwrap_or_else(|words| Err(panicked(&words))))
}

#[cold]
fn panicked(words: &str) -> Errno {
    ucs::log::error!("libfabric: a call of the program failed inside the provider: {words}");
    Errno::OTHER
}

/// The program that has called. All of its methods rely on what [`guarded`] was promised.
pub struct Caller(());

impl Caller {
    /// What a pointer points to.
    #[inline]
    pub fn at<T>(&self, pointer: *const T) -> Outcome<&T> {
        // SAFETY: the promise of `guarded`.
        unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
    }

    /// Elements that a pointer points to. None may be at null.
    #[inline]
    pub fn list<T>(&self, pointer: *const T, count: usize) -> Outcome<&[T]> {
        match (pointer.is_null(), count) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(Errno::INVALID),
            // SAFETY: the promise of `guarded`.
            (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
        }
    }

    /// A string; `None` for null.
    pub fn text(&self, pointer: *const c_char) -> Outcome<Option<&str>> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: the promise of `guarded`.
        let text = unsafe { CStr::from_ptr(pointer) };
        text.to_str().map(Some).map_err(|_| Errno::INVALID)
    }

    /// Stores what the call returns through a pointer.
    #[inline]
    pub fn put<T>(&self, target: *mut T, value: T) -> Outcome {
        if target.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the promise of `guarded`.
        unsafe { target.write(value) };
        Ok(())
    }

    /// Copies as much of `bytes` as fits to memory of the program.
    #[inline]
    pub fn fill(&self, target: *mut c_void, room: usize, bytes: &[u8]) -> Outcome {
        let count = bytes.len().min(room);
        if count > 0 && target.is_null() {
            return Err(Errno::INVALID);
        }
        if count > 0 {
            // SAFETY: the promise of `guarded`.
            unsafe { target.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), count) };
        }
        Ok(())
    }

    /// Copies the first `size` bytes of an entry to the program. They are laid out as C has them (`fi_cq_tagged_entry`).
    #[inline]
    pub fn entry(&self, target: *mut c_void, size: usize, entry: &Entry) {
        let size = size.min(size_of::<fi_cq_tagged_entry>());
        // SAFETY: the promise of `guarded` for the target; the entry has that many bytes, none of which is padding.
        unsafe { target.cast::<u8>().copy_from_nonoverlapping((&raw const *entry).cast(), size) };
    }

    /// The memory of an operation with one buffer.
    #[inline]
    pub fn bytes(&self, base: *const c_void, length: usize) -> Outcome<Buffer> {
        if base.is_null() && length > 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the promise of `guarded`: the memory is the operation's until it has completed.
        Ok(unsafe { Buffer::new(base.cast_mut().cast(), length) })
    }

    /// The memory of an operation with a list of buffers.
    pub fn buffers(&self, list: *const iovec, count: usize) -> Outcome<Memory> {
        let mut memory = Memory::default();
        for part in self.list(list, count)? {
            memory.add(self.bytes(part.iov_base, part.iov_len)?)?;
        }
        Ok(memory)
    }

    /// The memory of an atomic operation, of elements of this size, and how many there are.
    pub fn elements(&self, list: *const fi_ioc, count: usize, size: usize) -> Outcome<(Memory, usize)> {
        let (mut memory, mut elements) = (Memory::default(), 0_usize);
        for part in self.list(list, count)? {
            memory.add(self.bytes(part.addr, part.count.checked_mul(size).ok_or(Errno::INVALID)?)?)?;
            elements = elements.saturating_add(part.count);
        }
        Ok((memory, elements))
    }
}

/// The memory of an operation with a list of buffers.
pub struct Memory {
    parts: [Buffer; MAX_BUFFERS],
    count: usize,
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Memory {
        Memory { parts: [buffer, Buffer::EMPTY, Buffer::EMPTY, Buffer::EMPTY], count: 1 }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { parts: [Buffer::EMPTY; MAX_BUFFERS], count: 0 }
    }
}

impl Memory {
    fn add(&mut self, buffer: Buffer) -> Outcome {
        *self.parts.get_mut(self.count).ok_or(Errno::INVALID)? = buffer;
        self.count += 1;
        Ok(())
    }

    /// Bytes of all buffers.
    pub fn len(&self) -> usize {
        self.parts().iter().map(Buffer::len).sum()
    }

    /// The buffers.
    pub fn parts(&self) -> &[Buffer] {
        &self.parts[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<A: Answer>(work: impl FnOnce(&Caller) -> Outcome<A::Good>) -> A {
        // SAFETY: the tests have it follow valid pointers and null.
        unsafe { guarded(work) }
    }

    #[test]
    fn a_panic_is_an_error_and_errors_are_below_zero() {
        assert_eq!(call::<c_int>(|_| panic!("planted")), -256);
        assert_eq!(call::<isize>(|_| Err(Errno::AGAIN)), -(libc::EAGAIN as isize));
        assert_eq!(call::<isize>(|_| Ok(3)), 3);
    }

    #[test]
    fn null_and_too_long_lists_are_refused() {
        let refusals: isize = call(|caller| {
            let null = std::ptr::null::<iovec>();
            let one = iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
            let empty = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_BUFFERS + 1];
            assert!(caller.buffers(null, 0)?.parts().is_empty());
            assert_eq!(caller.buffers(empty.as_ptr(), MAX_BUFFERS)?.parts().len(), MAX_BUFFERS);
            let refused = [
                caller.at(null).is_err(),
                caller.list(null, 1).is_err(),
                caller.put(std::ptr::null_mut(), 1).is_err(),
                caller.bytes(std::ptr::null(), 1).is_err(),
                caller.buffers(&raw const one, 1).is_err(),
                caller.buffers(empty.as_ptr(), MAX_BUFFERS + 1).is_err(),
                caller.elements(std::ptr::null(), 1, 8).is_err(),
                caller.fill(std::ptr::null_mut(), 1, b"x").is_err(),
            ];
            Ok(refused.into_iter().filter(|refused| *refused).count())
        });
        assert_eq!(refusals, 8);
    }
}
