//! A frame that has arrived: in a transport's buffer, or from an endpoint of this domain.

use uct_net::protocol::Fragment;

use super::super::{Buffer, Buffers};

/// The bytes of a frame.
#[derive(Clone, Copy)]
pub(in super::super) enum Input<'a> {
    /// In the transport's buffer.
    Net(&'a Fragment<'a>),
    /// In memory of this process.
    Local(&'a [u8]),
    /// So many bytes, where they belong already.
    Placed { length: usize, credit: u32 },
}

impl Input<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Input::Net(fragment) => fragment.len(),
            Input::Local(bytes) => bytes.len(),
            Input::Placed { length, .. } => *length,
        }
    }

    /// What the frame has cost its sender.
    pub(super) fn credit(&self) -> u32 {
        match self {
            Input::Net(fragment) => fragment.credit(),
            Input::Local(_) => 0,
            Input::Placed { credit, .. } => *credit,
        }
    }

    /// Copies the bytes from `offset` on, which are there.
    #[inline(always)]
    pub(super) fn read(&self, offset: usize, target: &mut [u8]) {
        match self {
            Input::Net(fragment) => fragment.read(offset, target),
            Input::Local(bytes) => target.copy_from_slice(&bytes[offset..offset + target.len()]),
            Input::Placed { .. } => debug_assert!(false, "it was read ahead"),
        }
    }
}

/// The bytes of a frame behind its fields.
#[derive(Clone, Copy)]
pub(super) struct Payload<'a> {
    pub(super) input: Input<'a>,
    pub(super) start: usize,
}

impl Payload<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.input.len() - self.start
    }

    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    pub(super) fn append_to(self, target: &mut Vec<u8>) {
        let start = target.len();
        target.resize(start + self.len(), 0);
        self.input.read(self.start, &mut target[start..]);
    }

    /// Copies the first `length` bytes, which are there, into buffers of the program from `at` on, which have room.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the program's memory is passed as pointers")]
    pub(super) fn copy_to(&self, length: usize, target: &Buffers, at: usize) {
        match self.input {
            Input::Local(bytes) => {
                target.write(at, &bytes[self.start..self.start + length]);
            }
            Input::Placed { .. } => {}
            Input::Net(fragment) => {
                let read = |offset, piece: Buffer| {
                    // SAFETY: the contract of `Buffer`: these bytes of the program are valid for writes while the operation lasts.
                    unsafe { fragment.read_raw(offset, piece.base(), piece.len()) };
                    offset + piece.len()
                };
                match target {
                    Buffers::One(buffer) => _ = read(self.start, buffer.part(at, length)),
                    Buffers::Several(_) => _ = target.pieces(at, length).fold(self.start, read),
                }
            }
        }
    }
}
