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

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::io::{Origin, Segment};
    use crate::proto::ring::{
        BODY_WORDS, Control, Delivery, Message, Place, Pool, RingMemory, TURN_LINE_BYTES,
    };

    fn shape(small: u32, bulk: u32) -> Geometry {
        let pool = |stride| Pool { count: 2, stride };
        Geometry { slots: 64, first: 8, small: pool(small), bulk: pool(bulk) }
    }

    #[test]
    fn both_ends_find_everything_in_the_same_place_and_nothing_twice() {
        let layout = PairLayout::new(shape(1024, 8128), shape(2048, 4096)).unwrap();
        assert_eq!(layout.capacities(), (2048, 4096), "those towards the side that connects");
        let memory = Arc::new(Segment::new(&Origin::Memfd, layout.size(), false).unwrap().mapping);
        let word = |offset: usize| {
            // SAFETY: inside the mapping, whose first page has both.
            let word = unsafe { memory.base().add(offset) };
            // SAFETY: as above, and aligned.
            unsafe { word.cast::<u64>().read_volatile() }
        };
        for connects in [true, false] {
            let [ours, theirs] = layout.words(&memory, connects);
            let places = if connects { [384, FIRST_BYTES + 384] } else { [FIRST_BYTES + 384, 384] };
            let copy = ours.announce(7);
            assert_eq!(places.map(word), [8, 0], "connects: {connects}");
            drop(copy);
            let copy = theirs.announce(7);
            assert_eq!(places.map(word), [0, 8], "connects: {connects}");
            drop(copy);
        }
        let (near, far) = (layout.ends(&memory, true), layout.ends(&memory, false));
        assert_eq!(
            (near.0.memory().layout().bulk_capacity(), far.0.memory().layout().bulk_capacity()),
            (8128, 4096)
        );
        // All blocks of both rings at a time, of which none overwrites another.
        let ends = [(&near.0, &far.1, 1), (&far.0, &near.1, 2)];
        for (sender, _, value) in ends {
            sender.prepare();
            for place in [Place::Small, Place::Bulk] {
                for _ in 0..2 {
                    let block = sender.reserve(place).unwrap();
                    // SAFETY: the block has so many bytes.
                    let fill = |bytes: *mut u8| unsafe { bytes.write_bytes(value, 1024) };
                    sender.fill_block(&block, fill);
                    assert!(sender.send_block(3, block, 1024).is_ok());
                }
            }
        }
        for (_, receiver, value) in ends {
            for _ in 0..4 {
                let message = receiver.next(&mut [0; BODY_WORDS]).unwrap().unwrap();
                let Message { tag: 3, data: Delivery::Block { place, index, length: 1024 } } = message else {
                    panic!("{message:?}")
                };
                let mut copy = [0; 1024];
                // SAFETY: the block has so many bytes.
                let read =
                    |bytes: *mut u8| unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(bytes, 1024) };
                receiver.block(place, index, read);
                assert!(copy.iter().all(|byte| *byte == value));
            }
        }
        // The line is for replies: the side that accepts begins.
        assert!(!near.2.is_owner() && far.2.is_owner());
        let position = far.0.position();
        far.2.send(Control::short(position, 3, TURN_LINE_BYTES), |_| ());
        assert!(near.2.has(position) && !far.2.has(position));
    }

    #[test]
    fn a_shape_that_is_wrong_is_refused_on_either_side() {
        let (good, wrong) = (shape(1024, 8128), shape(1024, 100));
        for (forward, backward) in [(wrong, good), (good, wrong)] {
            let reason = PairLayout::new(forward, backward).unwrap_err();
            assert!(reason.contains("a ring of blocks of 100 bytes"), "{reason}");
        }
    }
}
