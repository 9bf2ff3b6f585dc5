//! What a connection sends and receives with: a ring in each direction, and the ping-pong line.
//!
//! Two interfaces that connect to each other at the same time have two channels. Each sends on its own channel, so a reply arrives on the
//! other one. Both channels then use one line. Hello and welcome decide which one (`ShmIface::meet`).
//!
//! Built on `proto::ring`.

use std::cell::OnceCell;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::io::Mapping;
use crate::link::rings::Rings;
use crate::proto::ring::{
    Body, Control, MappedRing, MappedTurnLine, Receiver, Sender, Sent, Short, TURN_LINE_BYTES, TurnLine,
    Watch,
};

/// See the module.
pub(crate) struct Lane {
    pub(crate) sender: Sender<MappedRing>,
    pub(crate) receiver: Receiver<MappedRing>,
    own: Rc<Line>,
    /// The line of the other channel, once it is used instead of our own.
    shared: OnceCell<Rc<Line>>,
}

/// One end of a line, and the memory that contains it.
struct Line {
    turn_line: TurnLine<MappedTurnLine>,
    _memory: Arc<Mapping>,
}

impl Lane {
    /// One end of the rings and the line in `memory`.
    pub(crate) fn new(rings: &Rings, memory: &Arc<Mapping>, connects: bool) -> Lane {
        let (sender, receiver, turn_line) = rings.ends(memory, connects);
        let own = Rc::new(Line { turn_line, _memory: Arc::clone(memory) });
        Lane { sender, receiver, own, shared: OnceCell::new() }
    }

    /// Uses the line of another channel from now on.
    pub(crate) fn share(&self, other: &Lane) {
        let line = other.shared.get().unwrap_or(&other.own);
        let _ = self.shared.set(Rc::clone(line));
    }

    /// Whether both use the same line.
    pub(crate) fn has_line_of(&self, other: &Lane) -> bool {
        ptr::eq(self.line().0, other.line().0)
    }

    /// The line, and the mark that is added to the positions of messages in it. The mark distinguishes the positions of this channel's rings
    /// from those of the other channel's.
    #[inline]
    fn line(&self) -> (&TurnLine<MappedTurnLine>, u64) {
        match self.shared.get() {
            None => (&self.own.turn_line, 0),
            Some(line) => (&line.turn_line, Control::SHARED),
        }
    }

    /// Whether this end owns the line, and so may send in it.
    #[inline]
    pub(crate) fn owns_line(&self) -> bool {
        self.line().0.is_owner()
    }

    /// Whether a short message of this length would be sent in the line.
    #[inline]
    pub(crate) fn fits_line(&self, length: usize) -> bool {
        length <= TURN_LINE_BYTES && self.owns_line()
    }

    /// Sends a short message that `fill` writes, in the line or in the ring. `None`: there is no room as far as is known.
    #[inline]
    pub(crate) fn send(&self, id: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Option<Sent> {
        if !self.fits_line(length) {
            return self.sender.try_short(id, length, fill);
        }
        let (line, mark) = self.line();
        self.sender.try_out_of_ring(|position| line.send(Control::short(position + mark, id, length), fill))
    }

    /// Takes the message in the line, if it is the next one of the peer.
    #[inline]
    pub(crate) fn take_from_line(&self, copy: &mut Body) -> Option<Short> {
        let (line, mark) = self.line();
        if line.is_owner() {
            return None;
        }
        let short = line.take(self.receiver.position() + mark, copy)?;
        self.receiver.pass();
        Some(short)
    }

    /// Whether a message has arrived, in the ring or in the line.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        let (line, mark) = self.line();
        self.receiver.has_message() || line.has(self.receiver.position() + mark)
    }

    /// The word that the next message will most likely change. While the peer owns the line, the next message may be in the ring instead.
    #[inline]
    pub(crate) fn watch(&self) -> Watch {
        let (line, mark) = self.line();
        if line.is_owner() { self.receiver.watch() } else { line.watch(self.receiver.position() + mark) }
    }
}
