//! Receives the messages of one peer and delivers them.
//!
//! Used by progress. Built on connections. No handler gets a reference to memory that the peer can write: short messages are copied out of
//! their slots, and the host copies a message in a block when its handler first reads it.

use std::cell::Cell;

use uct_plugin::{AmHandlers, AmRun};
use zerocopy::IntoBytes;

use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::proto::ring::{BODY_WORDS, Delivery, Message, Place, Short};
use crate::proto::wire::tag;

/// The handlers of the application.
pub(crate) struct Handlers {
    am: AmHandlers,
    /// Message id of the last short message, which is probably the id of the next one too.
    last_id: Cell<u8>,
}

impl Handlers {
    /// The handlers of an interface.
    pub(crate) fn new(am: AmHandlers) -> Handlers {
        Handlers { am, last_id: Cell::new(0) }
    }
}

impl Channel {
    /// Receives up to `limit` short messages, up to the first of another kind. Returns how many.
    #[inline(always)]
    pub(crate) fn receive_shorts(&self, handlers: &Handlers, limit: u32) -> u32 {
        let mut run = AmRun::new(handlers.am, handlers.last_id.get());
        let count = self.rings.receive_shorts(limit, |short: Short, data: &[u8]| {
            // SAFETY: a slice is readable, and nothing writes to a private copy.
            unsafe { run.deliver(short.tag(), data.as_ptr(), data.len()) };
        });
        handlers.last_id.set(run.id());
        count
    }

    /// Delivers a message in a block, and then returns the block to the sender.
    fn deliver_block(&self, handlers: &Handlers, id: u8, (place, index, length): (Place, u32, usize)) {
        // SAFETY: the block is held and has `length` bytes (`Receiver::next`).
        let deliver = |data: *mut u8| unsafe { handlers.am.deliver_shared(id, data, length) };
        self.rings.receiver.block(place, index, deliver);
        self.rings.receiver.release(place, index);
    }

    /// Copies `length` bytes of a received block, and releases the block. No reference to it exists, because the peer may write to it at any
    /// time.
    fn private_copy(&self, (place, index, length): (Place, u32, usize)) -> Vec<u8> {
        let mut copy = Vec::with_capacity(length);
        let target: *mut u8 = copy.as_mut_ptr();
        // SAFETY: the block is held and has `length` bytes (`Receiver::next`), the vector has room for them.
        let take = |data: *mut u8| unsafe { ucs::memory::copy_raw(target, data, length) };
        self.rings.receiver.block(place, index, take);
        self.rings.receiver.release(place, index);
        // SAFETY: they were just written.
        unsafe { copy.set_len(length) };
        copy
    }
}

impl Connection {
    /// Receives up to `limit` messages of any kind. Returns how many. A response to a short get ends the round.
    pub(crate) fn receive(&self, handlers: &Handlers, limit: u32) -> u32 {
        let shorts = self.channel.receive_shorts(handlers, limit);
        if shorts < limit { shorts + self.receive_others(handlers, limit - shorts) } else { shorts }
    }

    /// As [`receive`](Connection::receive), where the next message is known to be no short one.
    #[inline(never)]
    pub(crate) fn receive_others(&self, handlers: &Handlers, limit: u32) -> u32 {
        let mut count = 0;
        while self.receive_other(handlers) {
            count += 1;
            if count == limit || self.has_just_answered() {
                break;
            }
            count += self.channel.receive_shorts(handlers, limit - count);
            if count == limit {
                break;
            }
        }
        count
    }

    /// Receives one message that is in a block or belongs to the transport. Returns whether there was one.
    fn receive_other(&self, handlers: &Handlers) -> bool {
        let channel = &self.channel;
        let mut body = [0; BODY_WORDS];
        let Message { tag, data } = match channel.rings.next(&mut body) {
            Ok(Some(message)) => message,
            Ok(None) => return false,
            Err(corrupt) => {
                channel.corrupt(&corrupt);
                return false;
            }
        };
        match data {
            Delivery::Inline { length } if tag < tag::AM_IDS => {
                // A short message that arrived after the last poll.
                // SAFETY: a slice is readable, and nothing writes to a private copy.
                unsafe { handlers.am.deliver(tag, body.as_bytes().as_ptr(), length) };
            }
            Delivery::Inline { length } => self.receive_frame(tag, &body.as_bytes()[..length]),
            Delivery::Block { place, index, length } if tag < tag::AM_IDS => {
                channel.deliver_block(handlers, tag, (place, index, length));
            }
            Delivery::Block { place, index, length } => {
                self.receive_frame(tag, &channel.private_copy((place, index, length)));
            }
        }
        true
    }

    fn receive_frame(&self, tag: u8, frame: &[u8]) {
        let result = match tag {
            tag::NOTHING => Ok(()),
            tag::REQUEST | tag::ANSWER => self.emulation().receive(&self.channel, tag, frame),
            _ => Err(format!("tag {tag}")),
        };
        if let Err(reason) = result {
            self.channel.corrupt(&reason);
        }
    }
}
