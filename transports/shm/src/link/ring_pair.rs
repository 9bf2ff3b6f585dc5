//! What a connection sends and receives with: a ring in each direction, and the ping-pong line.
//!
//! Two interfaces that connect to each other at the same time have two channels. Each sends on its own channel, so a reply arrives on the
//! other one. Both channels then use one line. Hello and welcome decide which one (`ShmIface::meet`).
//!
//! Built on `proto::ring`.

use std::cell::{Cell, OnceCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::io::Mapping;
use crate::link::pair_layout::PairLayout;
use crate::proto::ring::{
    BODY_WORDS, Block, Body, Control, Corrupt, INLINE_BYTES, MappedRing, MappedTurnLine, Message, Receiver,
    Refused, Sender, Sent, Short, TURN_LINE_BYTES, TurnLine, Watch,
};

/// See the module.
pub(crate) struct RingPair {
    pub(crate) sender: Sender<MappedRing>,
    pub(crate) receiver: Receiver<MappedRing>,
    own: Rc<Line>,
    /// The line of the other channel, once it is used instead of our own.
    shared: OnceCell<Rc<Line>>,
    /// Position of the message that is expected in the line.
    reply_at: Cell<u64>,
}

/// One end of a line, and the memory that contains it.
struct Line {
    turn_line: TurnLine<MappedTurnLine>,
    _memory: Arc<Mapping>,
}

impl RingPair {
    /// One end of the rings and the line in `memory`.
    pub(crate) fn new(layout: &PairLayout, memory: &Arc<Mapping>, connects: bool) -> RingPair {
        let (sender, receiver, turn_line) = layout.ends(memory, connects);
        let own = Rc::new(Line { turn_line, _memory: Arc::clone(memory) });
        RingPair { sender, receiver, own, shared: OnceCell::new(), reply_at: Cell::new(0) }
    }

    /// Uses the line of another channel from now on.
    pub(crate) fn share(&self, other: &RingPair) {
        let line = other.shared.get().unwrap_or(&other.own);
        let _ = self.shared.set(Rc::clone(line));
    }

    /// Whether both use the same line.
    pub(crate) fn has_line_of(&self, other: &RingPair) -> bool {
        ptr::eq(self.line().0, other.line().0)
    }

    /// The line, and the mark that is added to the positions of messages in it. The mark distinguishes the positions of this channel's rings
    /// from those of the other channel's.
    #[inline]
    fn line(&self) -> (&Line, u64) {
        match self.shared.get() {
            None => (&self.own, 0),
            Some(line) => (line, Control::SHARED),
        }
    }

    /// Whether this end owns the line, and so may send in it.
    #[inline]
    pub(crate) fn owns_line(&self) -> bool {
        self.line().0.turn_line.is_owner()
    }

    /// Whether a message of this length would be sent in the line, without a block.
    #[inline]
    pub(crate) fn fits_line(&self, length: usize) -> bool {
        length <= TURN_LINE_BYTES && self.owns_line()
    }

    /// Whether a message of this length would be sent in a slot or in the line, without a block.
    #[inline]
    pub(crate) fn fits_slot_or_line(&self, length: usize) -> bool {
        length <= INLINE_BYTES || self.fits_line(length)
    }

    /// Sends a message of such a length that `fill` writes, in the line or in the ring. `None`: there is no room as far as is known.
    #[inline]
    pub(crate) fn send(&self, id: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Option<Sent> {
        if !self.fits_line(length) {
            return self.sender.try_short(id, length, fill);
        }
        let (line, mark) = self.line();
        self.sender.try_out_of_ring(|position| {
            line.turn_line.send(Control::short(position + mark, id, length), fill);
        })
    }

    /// Sends the first `length` bytes of a block, announced in the line or in the ring. Without room the block is given back.
    pub(crate) fn send_block(&self, id: u8, block: Block, length: usize) -> Result<Sent, Refused> {
        if !self.owns_line() {
            return self.sender.send_block(id, block, length);
        }
        let (line, mark) = self.line();
        self.sender.send_block_out_of_ring(block, |position, place, index| {
            line.turn_line.send_block(Control::block_in_line(position + mark, id, place, index), length);
        })
    }

    /// Takes the next message, whatever it is, as [`Receiver::next`] does. A short one is not looked for in the line.
    pub(crate) fn next(&self, inline: &mut [u64; BODY_WORDS]) -> Result<Option<Message>, Corrupt> {
        let (line, mark) = self.line();
        if !line.turn_line.is_owner()
            && let Some(message) = line.turn_line.take_block(self.receiver.position() + mark)
        {
            return self.receiver.accept_out_of_ring(message).map(Some);
        }
        self.receiver.next(inline)
    }

    /// Receives the short message in the line, or up to `limit` from the ring, up to the first message of another kind. Returns how many.
    /// `each` gets a private copy, when the state is up to date: it may send and receive.
    #[inline(always)]
    pub(crate) fn receive_shorts(&self, limit: u32, mut each: impl FnMut(Short, &[u8])) -> u32 {
        let (line, mark) = self.line();
        if !line.turn_line.is_owner() {
            let mut copy = Body::new();
            if let Some(short) = line.turn_line.take(self.receiver.position() + mark, &mut copy) {
                self.receiver.pass();
                each(short, copy.bytes(short));
                return 1;
            }
        }
        self.receiver.take_shorts(limit, each)
    }

    /// The peer's next message is probably a reply in the line.
    pub(crate) fn expect_reply(&self) {
        self.reply_at.set(self.receiver.position());
    }

    /// Whether a message has arrived, in the ring or in the line.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        let (line, mark) = self.line();
        self.receiver.has_message() || line.turn_line.has(self.receiver.position() + mark)
    }

    /// The word that the next message will most likely change. While the peer owns the line, the message may come in the other place instead.
    #[inline]
    pub(crate) fn watch(&self) -> Watch {
        let (line, mark) = self.line();
        if self.reply_at.get() == self.receiver.position() {
            line.turn_line.watch(self.receiver.position() + mark)
        } else {
            self.receiver.watch()
        }
    }
}
