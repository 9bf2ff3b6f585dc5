//! What a channel sends and receives with: a ring each way, and a line in which two ends answer each other.
//!
//! Two interfaces that connect to each other at the same time have two channels: each sends over its own, and the answers to the one come
//! over the other. Both channels then use one line. Which one is agreed on by hello and welcome (`ShmIface::meet`).

use std::cell::OnceCell;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::io::Mapping;
use crate::link::rings::Rings;
use crate::proto::ring::{
    Body, Control, MappedRing, MappedShuttle, Receiver, SHUTTLE_BYTES, Sender, Sent, Short, Shuttle, Watch,
};

/// See the module.
pub(crate) struct Lane {
    pub(crate) sender: Sender<MappedRing>,
    pub(crate) receiver: Receiver<MappedRing>,
    own: Rc<Line>,
    /// That of the other channel, once it is used in place of our own.
    shared: OnceCell<Rc<Line>>,
}

/// One end of a line, with what it lies in.
struct Line {
    shuttle: Shuttle<MappedShuttle>,
    _memory: Arc<Mapping>,
}

impl Lane {
    /// One end of what is in `memory`.
    pub(crate) fn new(rings: &Rings, memory: &Arc<Mapping>, connects: bool) -> Lane {
        let (sender, receiver, shuttle) = rings.ends(memory, connects);
        let own = Rc::new(Line { shuttle, _memory: Arc::clone(memory) });
        Lane { sender, receiver, own, shared: OnceCell::new() }
    }

    /// Changes over to the line of another channel.
    pub(crate) fn share(&self, other: &Lane) {
        let line = other.shared.get().unwrap_or(&other.own);
        let _ = self.shared.set(Rc::clone(line));
    }

    /// Whether both use the same line.
    pub(crate) fn has_line_of(&self, other: &Lane) -> bool {
        ptr::eq(self.line().0, other.line().0)
    }

    /// The line, and what is added to the positions of messages in it: it tells those of this channel's rings from the other's.
    #[inline]
    fn line(&self) -> (&Shuttle<MappedShuttle>, u64) {
        match self.shared.get() {
            None => (&self.own.shuttle, 0),
            Some(line) => (&line.shuttle, Control::SHARED),
        }
    }

    /// Whether it is this end's turn to send in the line.
    #[inline]
    pub(crate) fn has_turn(&self) -> bool {
        self.line().0.is_mine()
    }

    /// Whether a short message of this length would be sent in the line.
    #[inline]
    pub(crate) fn fits_line(&self, length: usize) -> bool {
        length <= SHUTTLE_BYTES && self.has_turn()
    }

    /// Sends a short message that `fill` writes, in the line or in the ring; `None` if there is no room as far as is known.
    #[inline]
    pub(crate) fn send(&self, id: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Option<Sent> {
        if !self.fits_line(length) {
            return self.sender.try_short(id, length, fill);
        }
        let (line, mark) = self.line();
        self.sender.try_beside(|position| line.send(Control::short(position + mark, id, length), fill))
    }

    /// Takes the message in the line, if that is the peer's next one.
    #[inline]
    pub(crate) fn take_from_line(&self, copy: &mut Body) -> Option<Short> {
        let (line, mark) = self.line();
        if line.is_mine() {
            return None;
        }
        let short = line.take(self.receiver.position() + mark, copy)?;
        self.receiver.pass();
        Some(short)
    }

    /// Whether a message waits.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        let (line, mark) = self.line();
        self.receiver.has_message() || line.has(self.receiver.position() + mark)
    }

    /// What the next message changes, or most likely changes: while the peer may use the line, the ring is to be looked at besides.
    #[inline]
    pub(crate) fn watch(&self) -> Watch {
        let (line, mark) = self.line();
        if line.is_mine() { self.receiver.watch() } else { line.watch(self.receiver.position() + mark) }
    }
}
