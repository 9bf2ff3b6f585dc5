//! Memory of the calling program.

#![expect(unsafe_code, reason = "the program's memory is passed as pointers")]

/// Most buffers of one operation.
pub const MAX_BUFFERS: usize = 4;

/// Bytes of the program, passed as a pointer.
///
/// Contract of every operation with buffers, made by libfabric: they are valid, and the program leaves them alone, until the operation has
/// completed, failed or been canceled, or until its endpoint (for a region: the region) is closed. An operation with [`super::Mode::inject`]
/// needs its buffers only during the call. Nothing here keeps a buffer longer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    base: *mut u8,
    length: usize,
}

// SAFETY: the contract of `Buffer::new` holds for any thread.
unsafe impl std::marker::Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// No bytes.
    pub const EMPTY: Buffer = Buffer { base: std::ptr::null_mut(), length: 0 };

    /// Bytes of the program.
    ///
    /// # Safety
    /// Until the operation that it is used for has ended (see [`Buffer`]), `length` bytes from `base` on are valid for reads, for writes too
    /// if they are a target, and nobody else uses them in conflict. `base` may be null if `length` is 0.
    pub const unsafe fn new(base: *mut u8, length: usize) -> Buffer {
        Buffer { base, length }
    }

    /// Its first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part from `offset` on, of at most `length` bytes.
    pub fn part(&self, offset: usize, length: usize) -> Buffer {
        let offset = offset.min(self.length);
        Buffer { base: self.base.wrapping_add(offset), length: length.min(self.length - offset) }
    }

    /// Copies as many of `bytes` to its beginning as fit, and returns how many.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.length);
        // SAFETY: `new` was promised that these bytes are valid for writes, and used by nobody else.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base, count) };
        count
    }

    /// Its first bytes; 0 where it has none.
    pub(super) fn read<const SIZE: usize>(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        // SAFETY: `new` was promised that these bytes are valid for reads.
        unsafe { std::ptr::copy_nonoverlapping(self.base, bytes.as_mut_ptr(), SIZE.min(self.length)) };
        bytes
    }

    /// Its bytes, for as long as the operation lasts.
    ///
    /// # Safety
    /// The reference is not used after the operation has ended, nor while its bytes are written.
    pub unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: `new` was promised that they are valid until the operation has ended, which the caller promises to respect.
        unsafe { std::slice::from_raw_parts(self.base, self.length) }
    }
}

/// The buffers of one operation, in order: mostly one.
#[derive(Clone, Debug)]
pub enum Buffers {
    /// One.
    One(Buffer),
    /// Several, or none.
    Several(Box<[Buffer]>),
}

impl Buffers {
    /// `None` for more than [`MAX_BUFFERS`].
    #[inline]
    pub fn new(buffers: &[Buffer]) -> Option<Buffers> {
        match buffers {
            [buffer] => Some(Buffers::One(*buffer)),
            buffers => (buffers.len() <= MAX_BUFFERS).then(|| Buffers::Several(buffers.into())),
        }
    }

    /// Bytes of all of them.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Buffers::One(buffer) => buffer.length,
            Buffers::Several(buffers) => length_of(buffers),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffers.
    #[inline]
    pub fn parts(&self) -> &[Buffer] {
        match self {
            Buffers::One(buffer) => std::slice::from_ref(buffer),
            Buffers::Several(buffers) => buffers,
        }
    }

    /// The first byte of the first buffer.
    pub fn base(&self) -> *mut u8 {
        self.parts().first().map_or(std::ptr::null_mut(), Buffer::base)
    }

    /// The part from `offset` on, of at most `length` bytes.
    pub fn part(&self, offset: usize, length: usize) -> Buffers {
        match self {
            Buffers::One(buffer) => Buffers::One(buffer.part(offset, length)),
            Buffers::Several(_) => {
                let parts = self.pieces(offset, length).filter(|piece| !piece.is_empty());
                let parts: Vec<Buffer> = parts.collect();
                if let [part] = parts[..] { Buffers::One(part) } else { Buffers::Several(parts.into()) }
            }
        }
    }

    /// Copies as many of `bytes` as fit to the bytes from `offset` on, and returns how many.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> usize {
        let mut written = 0;
        for piece in self.pieces(offset, bytes.len()) {
            written += piece.write(&bytes[written..]);
        }
        written
    }

    /// The pieces of the `length` bytes from `offset` on, in order. Some may be empty.
    #[inline]
    pub fn pieces(&self, mut offset: usize, mut length: usize) -> impl Iterator<Item = Buffer> {
        self.parts().iter().map(move |buffer| {
            let piece = buffer.part(offset, length);
            offset -= offset.min(buffer.length);
            length -= piece.length;
            piece
        })
    }

    /// Calls `work` with the bytes of the buffers, which are not written meanwhile.
    #[inline]
    pub(super) fn with_slices<T>(&self, work: impl FnOnce(&[&[u8]]) -> T) -> T {
        with_slices(self.parts(), work).expect("no more than the limit")
    }

    /// Appends their bytes to `target`.
    pub fn append_to(&self, target: &mut Vec<u8>) {
        for buffer in self.parts() {
            // SAFETY: the reference ends here, inside the operation.
            target.extend_from_slice(unsafe { buffer.bytes() });
        }
    }
}

/// Bytes of all of them.
#[inline]
pub(super) fn length_of(buffers: &[Buffer]) -> usize {
    match buffers {
        [buffer] => buffer.length,
        buffers => buffers.iter().map(Buffer::len).sum(),
    }
}

/// Calls `work` with the bytes of the buffers, which are not written meanwhile; `None` for more than [`MAX_BUFFERS`].
#[inline]
pub(super) fn with_slices<T>(buffers: &[Buffer], work: impl FnOnce(&[&[u8]]) -> T) -> Option<T> {
    if let [buffer] = buffers {
        // SAFETY: the reference ends with this call, inside the operation.
        return Some(work(&[unsafe { buffer.bytes() }]));
    }
    let mut slices: [&[u8]; MAX_BUFFERS] = [&[]; MAX_BUFFERS];
    let slices = slices.get_mut(..buffers.len())?;
    for (slice, buffer) in slices.iter_mut().zip(buffers) {
        // SAFETY: as above.
        *slice = unsafe { buffer.bytes() };
    }
    Some(work(slices))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: &mut [u8]) -> Buffer {
        // SAFETY: each test uses it while the bytes live, and nothing else meanwhile.
        unsafe { Buffer::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    #[test]
    fn bytes_cross_the_borders_of_buffers() {
        let (mut first, mut second, mut third) = ([0; 3], [0; 0], [0; 4]);
        let all = [buffer(&mut first), buffer(&mut second), buffer(&mut third)];
        let buffers = Buffers::new(&all).unwrap();
        assert_eq!(buffers.len(), 7);
        assert_eq!(buffers.write(1, b"abcdefgh"), 6);
        let mut copy = Vec::new();
        buffers.append_to(&mut copy);
        assert_eq!(copy, b"\0abcdef");
        copy.clear();
        buffers.part(2, 3).append_to(&mut copy);
        assert_eq!(copy, b"bcd");
        assert_eq!(buffers.part(7, 3).len(), 0);
        assert_eq!(buffers.write(7, b"x"), 0);
    }

    #[test]
    fn more_buffers_than_the_limit_are_refused() {
        assert!(Buffers::new(&[Buffer::EMPTY; MAX_BUFFERS]).is_some());
        assert!(Buffers::new(&[Buffer::EMPTY; MAX_BUFFERS + 1]).is_none());
    }
}
