//! Helpers of the tests of this module: the shape of rings, and a side that sends and receives over two of them.
//!
//! Used by the models and tests of this module. Built on senders, receivers and the ping-pong line.

use super::control::Control;
use super::turn_line::TurnLineMemory;
use super::{
    BODY_WORDS, Body, Delivery, FIRST_SLOTS, Geometry, Message, Place, Pool, Receiver, RingMemory, Sender,
    Sent, TurnLine,
};

/// A small ring's shape.
pub fn geometry(slots: u32, blocks: u32) -> Geometry {
    let pool = |stride| Pool { count: blocks, stride };
    Geometry { slots, first: slots.min(FIRST_SLOTS), small: pool(64), bulk: pool(1024) }
}

/// Sends numbers in a row over a ring, receives those of another over a second one, and replies in the ping-pong line. Each third number is in a
/// block if one is free.
pub struct Talker<M, S> {
    sender: Sender<M>,
    receiver: Receiver<M>,
    turn_line: TurnLine<S>,
    /// How many were sent; the next message has this number.
    pub sent: u64,
    /// How many were received.
    pub received: u64,
    /// How many of those sent have gone in the ping-pong line.
    pub answered: u64,
}

impl<M: RingMemory, S: TurnLineMemory> Talker<M, S> {
    pub fn new(there: M, back: M, turn_line: S, begins: bool) -> Talker<M, S> {
        let (sender, receiver) = (Sender::new(there, || 0), Receiver::new(back));
        sender.prepare();
        let turn_line = TurnLine::new(turn_line, begins);
        Talker { sender, receiver, turn_line, sent: 0, received: 0, answered: 0 }
    }

    /// Sends the next number, in the ping-pong line if this side owns it. Returns whether there was room.
    pub fn send(&mut self) -> bool {
        let number = self.sent;
        // SAFETY: slot and ping-pong line have room for a u64 and are aligned to it.
        let fill = |body: *mut u8| unsafe { body.cast::<u64>().write(number) };
        let is_owner = self.turn_line.is_owner();
        let block = number.is_multiple_of(3).then(|| self.sender.reserve(Place::Small)).flatten();
        let sent = if let Some(block) = block {
            self.sender.fill_block(&block, fill);
            let sent = if is_owner {
                self.sender.send_block_out_of_ring(block, |position, place, index| {
                    self.turn_line.send_block(Control::block_in_line(position, 7, place, index), 8);
                })
            } else {
                self.sender.send_block(7, block, 8)
            };
            sent.ok()
        } else if is_owner {
            self.sender.try_out_of_ring(|position| self.turn_line.send(Control::short(position, 7, 8), fill))
        } else {
            self.sender.try_short(7, 8, fill).or_else(|| self.sender.send_inline(7, 8, fill).ok())
        };
        let Some(sent) = sent else {
            self.sender.has_room().expect("the receiver is honest");
            return false;
        };
        if sent == Sent::Attend {
            self.sender.attend().expect("the receiver is honest");
        }
        self.answered += u64::from(is_owner);
        self.sent += 1;
        true
    }

    /// Receives a number, in the ping-pong line or in the ring. Returns whether there was one. It has to be the next one.
    pub fn receive(&mut self) -> bool {
        let number = self.receive_from_line().or_else(|| self.receive_other());
        if let Some(number) = number {
            assert_eq!(number, self.received, "every number once, in order");
            self.received += 1;
        }
        number.is_some()
    }

    fn receive_from_line(&self) -> Option<u64> {
        if self.turn_line.is_owner() {
            return None;
        }
        let mut copy = Body::new();
        let short = self.turn_line.take(self.receiver.position(), &mut copy)?;
        self.receiver.pass();
        assert_eq!(short.tag(), 7);
        Some(u64::from_ne_bytes(copy.bytes(short).try_into().expect("a number")))
    }

    fn receive_other(&self) -> Option<u64> {
        let mut body = [0; BODY_WORDS];
        let in_line =
            (!self.turn_line.is_owner()).then(|| self.turn_line.take_block(self.receiver.position()));
        let message = match in_line.flatten() {
            Some(in_block) => self.receiver.accept_out_of_ring(in_block).map(Some),
            None => self.receiver.next(&mut body),
        };
        match message.expect("the sender is honest")? {
            Message { tag: 7, data: Delivery::Inline { length: 8 } } => Some(body[0]),
            Message { tag: 7, data: Delivery::Block { place, index, length: 8 } } => {
                // SAFETY: a block is larger than a u64 and aligned to it.
                let number = self.receiver.block(place, index, |block| unsafe { block.cast::<u64>().read() });
                self.receiver.release(place, index);
                Some(number)
            }
            other => panic!("{other:?}"),
        }
    }
}
