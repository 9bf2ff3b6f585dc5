//! A datagram that may have to be sent again: a registered buffer with what is known of it before it.
//!
//! The protocol keeps it until the peer has acknowledged it. It is in an element of a pool.
//!
//! | element | what |
//! |---|---|
//! | 0 | [`Head`] |
//! | [`DATA`] | header of the protocol ([`HEADER`]), then the message: up to the MTU in all, or less in a small packet |

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use uct_ib::verbs::{InlineData, Sge};
use uct_plugin::{Completion, Error, Result};

/// Bytes ahead of a message for the protocol's header.
pub(crate) const HEADER: usize = 16;

/// Most pieces of the application's memory in one datagram.
pub(crate) const MAX_PIECES: usize = 7;

/// Where the datagram begins in an element. A multiple of a cache line.
pub(crate) const DATA: usize = 192;

const _: () = assert!(size_of::<Head>() <= DATA);

/// What precedes a datagram; a [`Packet`] derefs to it.
pub(crate) struct Head {
    /// Written once, when the element is made.
    lkey: u32,
    /// As well.
    pub(crate) size: Size,
    /// Bytes of the datagram that are in the buffer, header included.
    pub(crate) length: u32,
    /// Number of the last work request that reads it.
    pub(crate) last_post: u32,
    /// Pieces of the application's memory behind the buffer.
    pieces: u8,
    /// The work request is solicited, so that it wakes the receiver.
    pub(crate) wakes: bool,
    /// More than one work request has read it.
    pub(crate) is_resent: bool,
    /// How it ended, once that is known and only the work request is awaited.
    pub(crate) outcome: Result,
    /// Notified when it has ended.
    pub(crate) completion: Option<Completion>,
    /// The application's memory, sent behind the buffer. Place 0 is for the buffer itself.
    list: [Sge; 1 + MAX_PIECES],
}

/// What a packet's buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Size {
    /// An MTU.
    Large,
    /// An MTU as well, made when many were in use: a small message is not to stay in it.
    Extra,
    /// A small message.
    Small,
}

/// A datagram's buffer, owned. It goes back to its pool by [`Packet::into_raw`]; dropping it leaks it.
#[must_use = "a packet that is not put back is lost to its pool"]
pub(crate) struct Packet(NonNull<Head>);

impl Packet {
    /// Prepares a new element.
    ///
    /// # Safety
    /// `element` points to at least [`DATA`] bytes, aligned to 8, that nothing else uses.
    pub(crate) unsafe fn prepare(element: NonNull<u8>, lkey: u32, size: Size) {
        let none = Sge::new(0, 0, 0);
        let head = Head {
            lkey,
            size,
            length: 0,
            last_post: 0,
            pieces: 0,
            wakes: false,
            is_resent: false,
            outcome: Ok(()),
            completion: None,
            list: [none; 1 + MAX_PIECES],
        };
        // SAFETY: the caller's promise.
        unsafe { element.cast::<Head>().write(head) };
    }

    /// Takes an element over.
    ///
    /// # Safety
    /// `element` went through [`Packet::prepare`], is followed by the buffer that `lkey` is for, and is used by nothing else.
    #[inline]
    pub(crate) unsafe fn from_raw(element: NonNull<u8>) -> Packet {
        Packet(element.cast())
    }

    /// The element, for its pool.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// The first byte of the datagram.
    #[inline]
    pub(crate) fn data(&self) -> *mut u8 {
        // SAFETY: the element goes on beyond `DATA` (`from_raw`).
        unsafe { self.0.cast::<u8>().add(DATA) }.as_ptr()
    }

    /// The first byte of the message, behind the protocol's header.
    #[inline]
    pub(crate) fn message(&self) -> *mut u8 {
        self.data().wrapping_add(HEADER)
    }

    /// Sets what the datagram consists of: `length` bytes of message in the buffer, and nothing else yet.
    #[inline]
    pub(crate) fn begin(&mut self, length: usize, wakes: bool) {
        self.length = (HEADER + length) as u32;
        self.pieces = 0;
        self.wakes = wakes;
        self.is_resent = false;
    }

    /// Adds a piece of the application's memory behind.
    ///
    /// # Errors
    /// [`Error::INVALID_PARAM`] if there are [`MAX_PIECES`].
    pub(crate) fn add_piece(&mut self, piece: Sge) -> Result {
        let place = 1 + usize::from(self.pieces);
        *self.list.get_mut(place).ok_or(Error::INVALID_PARAM)? = piece;
        self.pieces += 1;
        Ok(())
    }

    /// Writes the protocol's header.
    #[inline]
    pub(crate) fn set_header(&mut self, header: &[u8; HEADER]) {
        // SAFETY: the buffer holds at least a header, and is owned. A device that still reads the earlier copy sees
        // either header of each aligned word: both name the same message.
        unsafe { self.data().cast::<[u8; HEADER]>().write(*header) };
    }

    /// All of it, to be copied by the device's library.
    #[inline]
    pub(crate) fn inline(&self) -> InlineData<'_> {
        // SAFETY: `length` bytes were written, and are not written while the reference lives.
        InlineData::new(unsafe { std::slice::from_raw_parts(self.data(), self.length as usize) })
    }

    /// The pieces of memory, to be read by the device.
    #[inline]
    pub(crate) fn list(&mut self) -> &[Sge] {
        let address = self.data() as u64;
        self.list[0] = Sge::new(address, self.length, self.lkey);
        let pieces = usize::from(self.pieces);
        &self.list[..1 + pieces]
    }
}

impl Deref for Packet {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        // SAFETY: the element is prepared and owned (`from_raw`).
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Packet {
    #[inline]
    fn deref_mut(&mut self) -> &mut Head {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl Head {
    /// Whether memory of the application's is part of it.
    #[inline]
    pub(crate) fn has_pieces(&self) -> bool {
        self.pieces != 0
    }

    /// Whether an acknowledgement leaves it open that the device still reads it: a second copy may be in flight, and
    /// the application's memory is not given back on a peer's word alone.
    #[inline]
    pub(crate) fn may_be_read(&self) -> bool {
        self.is_resent || self.has_pieces()
    }
}
