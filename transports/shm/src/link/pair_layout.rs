//! The two rings of a channel in their segment.

use std::sync::Arc;

use crate::io::Mapping;
use crate::link::remote::Words;
use crate::proto::ring::{
    FIRST_BYTES, Geometry, Layout, MappedRing, MappedTurnLine, Receiver, Sender, TurnLine,
};

/// Bytes of a page.
const PAGE: usize = 4096;

/// The shapes of both rings, and their places in the segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairLayout {
    forward: Layout,
    backward: Layout,
}

impl PairLayout {
    /// From geometries that may be a peer's.
    pub(crate) fn new(forward: Geometry, backward: Geometry) -> Result<PairLayout, String> {
        let layout =
            |geometry, rest| Layout::with_rest(geometry, rest).map_err(|error| format!("a ring of {error}"));
        // The first parts of both rings are in one page.
        let forward = layout(forward, PAGE)?;
        Ok(PairLayout { forward, backward: layout(backward, forward.size() - FIRST_BYTES)? })
    }

    pub(crate) fn size(&self) -> usize {
        FIRST_BYTES + self.backward.size()
    }

    /// Largest message to the side that connects, in a small block and in a bulk block.
    pub(crate) fn capacities(&self) -> (usize, usize) {
        (self.backward.small_capacity(), self.backward.bulk_capacity())
    }

    /// One end of what is in `memory`: the side that connects sends on the forward ring. The side that accepts is the first
    /// owner of the ping-pong line, which is for replies.
    pub(super) fn ends(&self, memory: &Mapping, connects: bool) -> Ends {
        debug_assert!(memory.length() >= self.size());
        let base = memory.base();
        // SAFETY: the mapping holds both rings.
        let second = unsafe { base.add(FIRST_BYTES) };
        let (send, receive) = if connects {
            ((base, self.forward), (second, self.backward))
        } else {
            ((second, self.backward), (base, self.forward))
        };
        // SAFETY: aligned, inside the mapping, which the channel keeps; one sender in this process.
        let sender = Sender::new(unsafe { MappedRing::new(send.0, send.1) }, ucs::clock::now);
        // SAFETY: as above; one receiver.
        let receiver = Receiver::new(unsafe { MappedRing::new(receive.0, receive.1) });
        // SAFETY: inside the forward ring.
        let line = unsafe { base.add(self.forward.turn_line()) };
        // SAFETY: a line of the mapping that nothing else uses; one end in this process for each channel.
        let turn_line = TurnLine::new(unsafe { MappedTurnLine::new(line, connects) }, !connects);
        (sender, receiver, turn_line)
    }

    /// The words on what the kernel copies: those of the ring on which this side sends, and of the other one.
    pub(super) fn words(&self, memory: &Arc<Mapping>, connects: bool) -> [Words; 2] {
        let at = |start: usize, layout: &Layout| {
            Words::new(memory, start + layout.named(), start + layout.closed())
        };
        let [first, second] = [at(0, &self.forward), at(FIRST_BYTES, &self.backward)];
        if connects { [first, second] } else { [second, first] }
    }
}

/// The parts of a ring pair.
pub(super) type Ends = (Sender<MappedRing>, Receiver<MappedRing>, TurnLine<MappedTurnLine>);
