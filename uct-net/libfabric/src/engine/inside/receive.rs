//! Receives, and messages that arrive for them.

use super::super::{Buffers, Entry, Errno, ErrorEntry, Receive, TagFilter, flags};
use super::Shared;
use super::endpoint::{Endpoint, is_any, receive_flags};
use super::input::Payload;
use super::message::{Announced, Arrived, Arriving, Place, Posted, Readable, Target};
use super::peer::Job;
use crate::matching::{Envelope, Filter, Matching, Released, Unexpected, Why};
use crate::wire::{self, Head, Offer};

impl Endpoint {
    pub(super) fn space(&mut self, is_tagged: bool) -> &mut Matching<Posted, Arrived> {
        if is_tagged { &mut self.tagged } else { &mut self.untagged }
    }

    pub(super) fn filter(&mut self, from: Option<u64>, tag: Option<TagFilter>) -> Result<Filter, Errno> {
        let source = match from {
            Some(index) if !is_any(from) => Some(self.peer_at(index)?),
            _ => None,
        };
        let TagFilter { tag, ignore } = tag.unwrap_or(TagFilter { tag: 0, ignore: u64::MAX });
        Ok(Filter { source, tag, ignore })
    }

    /// Posts a receive, or gives it an unexpected message.
    pub(super) fn receive(&mut self, shared: &mut Shared, receive: &Receive<'_>) -> Result<(), Errno> {
        let filter = self.filter(receive.from, receive.tag)?;
        let posted = posted(receive)?;
        let is_tagged = receive.tag.is_some();
        match self.space(is_tagged).post(filter, posted) {
            Some((posted, message)) => self.take(shared, is_tagged, Target::all(posted), message),
            None => self.open_again(shared, filter.source),
        }
        Ok(())
    }

    /// Posts a receive of many messages.
    pub(super) fn receive_many(
        &mut self,
        shared: &mut Shared,
        receive: &Receive<'_>,
        minimum: usize,
    ) -> Result<(), Errno> {
        let filter = self.filter(receive.from, receive.tag)?;
        let posted = posted(receive)?;
        let (is_tagged, capacity) = (receive.tag.is_some(), posted.buffers.len() as u64);
        let met = self.space(is_tagged).post_multi(filter, posted, capacity, minimum as u64);
        for (landing, message) in met {
            self.take(shared, is_tagged, landing, message);
        }
        self.report_released(is_tagged);
        self.open_again(shared, filter.source);
        Ok(())
    }

    /// A receive waits for this peer alone: one whose connection has ended is called, so that the receive does not wait for a peer that is gone.
    #[inline]
    fn open_again(&mut self, shared: &mut Shared, source: Option<u32>) {
        if let Some(peer) = source.filter(|peer| self.peers[*peer as usize].attempt > 0) {
            self.open(shared, peer);
        }
    }

    /// A receive takes an unexpected message.
    pub(super) fn take(
        &mut self,
        shared: &mut Shared,
        is_tagged: bool,
        target: Target,
        message: Unexpected<Arrived>,
    ) {
        let Unexpected { envelope, payload } = message;
        let peer = envelope.source;
        match payload {
            Arrived::Bytes { bytes, missing, held, attempt, delivery } => {
                let received = bytes.len().min(target.room());
                target.receive.buffers.write(target.offset(), &bytes[..received]);
                self.release(shared, peer, bytes.len() + missing);
                self.give_back(peer, attempt, held);
                if missing > 0 {
                    let wanted = target.room().min(envelope.length as usize);
                    let arriving = Arriving { target, envelope, is_tagged, delivery, wanted, received };
                    return self.rest_goes_to(peer, Place::Target(Box::new(arriving)));
                }
                self.received(&target, &envelope, is_tagged);
                if let Some(id) = delivery
                    && self.peer(peer).attempt == attempt
                {
                    self.reply(shared, peer, id, Ok(()));
                }
            }
            Arrived::Request { id, held, attempt, delivery, offer } => {
                self.release(shared, peer, 0);
                self.give_back(peer, attempt, held);
                if self.peer(peer).attempt == attempt {
                    let announced = Announced { envelope, is_tagged, id, delivery, offer };
                    self.ask(shared, target, announced);
                } else {
                    self.not_received(&target, is_tagged, Errno::RESET, None);
                }
            }
        }
    }

    /// Credit of a sender that was held back.
    fn give_back(&mut self, peer: u32, attempt: u32, held: u32) {
        let peer = self.peer(peer);
        if held > 0
            && peer.attempt == attempt
            && let super::link::Link::Net { connection, .. } = &peer.link
        {
            connection.release(held);
        }
    }

    /// A whole message has arrived: its payload begins at `start`. Returns whether the sender's credit is held back.
    #[inline(always)]
    pub(super) fn message(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        envelope: &wire::Envelope,
        id: u32,
        payload: Payload<'_>,
    ) -> bool {
        let length = payload.len();
        let is_tagged = envelope.tag.is_some();
        let matched = Envelope {
            source: peer,
            tag: envelope.tag.unwrap_or(0),
            length: length as u64,
            data: envelope.data,
        };
        shared.totals.received(length as u64);
        let landing = self.space(is_tagged).arrive(&matched);
        let Some(target) = &landing else {
            return self.keep(shared, matched, envelope, id, payload);
        };
        payload.copy_to(length.min(target.room()), &target.receive.buffers, target.offset());
        self.received(target, &matched, is_tagged);
        if envelope.delivery {
            self.reply(shared, peer, id, Ok(()));
        }
        if target.part.is_some() {
            self.report_released(is_tagged);
        }
        false
    }

    /// Keeps a whole message for which there is no receive. Returns whether the sender's credit is held back.
    #[inline(never)]
    fn keep(
        &mut self,
        shared: &mut Shared,
        matched: Envelope,
        envelope: &wire::Envelope,
        id: u32,
        payload: Payload<'_>,
    ) -> bool {
        let (peer, is_tagged) = (matched.source, envelope.tag.is_some());
        let is_held = self.retain(shared, peer, payload.len());
        let arrived = Arrived::Bytes {
            bytes: payload.to_vec(),
            missing: 0,
            held: if is_held { payload.input.credit() } else { 0 },
            attempt: self.peer(peer).attempt,
            delivery: envelope.delivery.then_some(id),
        };
        self.space(is_tagged).keep(matched, arrived);
        self.report_released(is_tagged);
        is_held
    }

    /// A message has been announced. Returns whether the sender's credit is held back.
    pub(super) fn request(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        envelope: &wire::Envelope,
        id: u32,
        length: u64,
        payload: Payload<'_>,
    ) -> Result<bool, &'static str> {
        let offer = match payload.len() {
            0 => None,
            _ => Some(Offer::parse(payload.to_vec()).ok_or("its offer of a message is malformed")?),
        };
        let mut is_held = false;
        let is_tagged = envelope.tag.is_some();
        let matched = Envelope { source: peer, tag: envelope.tag.unwrap_or(0), length, data: envelope.data };
        shared.totals.received(length);
        match self.space(is_tagged).arrive(&matched) {
            Some(target) => {
                let delivery = envelope.delivery;
                let announced = Announced { envelope: matched, is_tagged, id, delivery, offer };
                self.ask(shared, target, announced);
            }
            None => {
                let attempt = self.peer(peer).attempt;
                is_held = self.retain(shared, peer, 0);
                let held = if is_held { payload.input.credit() } else { 0 };
                let arrived = Arrived::Request { id, held, attempt, delivery: envelope.delivery, offer };
                self.space(is_tagged).keep(matched, arrived);
            }
        }
        self.report_released(is_tagged);
        Ok(is_held)
    }

    /// Asks for the bytes of a message that was announced, or reads them.
    fn ask(&mut self, shared: &mut Shared, target: Target, announced: Announced) {
        let Announced { envelope, is_tagged, id, delivery, offer } = announced;
        let peer = envelope.source;
        let wanted = envelope.length.min(target.room() as u64) as usize;
        if wanted == 0 {
            self.refuse(shared, peer, id, delivery);
            return self.received(&target, &envelope, is_tagged);
        }
        let buffers = target.receive.buffers.part(target.offset(), wanted);
        let delivery = delivery.then_some(id);
        let arriving = Arriving { target, envelope, is_tagged, delivery, wanted, received: 0 };
        match offer {
            Some(offer) if self.can_read(peer, &buffers) => {
                self.peer(peer).readable.push_back(Box::new(Readable { arriving, id, offer }));
                self.is_due(shared, peer);
            }
            _ => self.ask_for(shared, peer, arriving, id),
        }
    }

    /// Asks for the bytes of a message that was announced.
    pub(super) fn ask_for(&mut self, shared: &mut Shared, peer: u32, arriving: Arriving, id: u32) {
        let wanted = arriving.wanted as u64;
        let receiver = self.peer(peer).arriving.insert(arriving) as u32;
        self.queue(shared, peer, Job::Head(Head::fetch(id, receiver, wanted)));
    }

    /// Asks for none of the bytes of a message that was announced.
    fn refuse(&mut self, shared: &mut Shared, peer: u32, id: u32, delivery: bool) {
        self.queue(shared, peer, Job::Head(Head::fetch(id, 0, 0)));
        if delivery {
            self.reply(shared, peer, id, Ok(()));
        }
    }

    /// The next bytes of a message have arrived.
    pub(super) fn fragment(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        id: u32,
        payload: Payload<'_>,
    ) -> Result<(), &'static str> {
        let length = payload.len();
        let state = &mut self.peers[peer as usize];
        let Some(arriving) = state.arriving.get_mut(id as usize) else {
            return Err("it sent bytes that were not asked for");
        };
        if length > arriving.wanted - arriving.received {
            return Err("it sent more bytes than were asked for");
        }
        let at = arriving.target.offset() + arriving.received;
        payload.copy_to(length, &arriving.target.receive.buffers, at);
        arriving.received += length;
        if arriving.received == arriving.wanted {
            let Arriving { target, envelope, is_tagged, delivery, .. } = state.arriving.remove(id as usize);
            self.received(&target, &envelope, is_tagged);
            if let Some(id) = delivery {
                self.reply(shared, peer, id, Ok(()));
            }
        }
        Ok(())
    }

    /// A message is in its buffer.
    #[inline(always)]
    pub(super) fn received(&mut self, target: &Target, envelope: &Envelope, is_tagged: bool) {
        let has_data = if envelope.data.is_some() { flags::REMOTE_CQ_DATA } else { 0 };
        let entry = Entry {
            context: target.receive.context,
            flags: receive_flags(is_tagged) | has_data,
            length: envelope.length as usize,
            buffer: 0,
            data: envelope.data.unwrap_or(0),
            tag: envelope.tag,
            source: self.index_of(envelope.source),
        };
        if target.part.is_none() && entry.length <= target.receive.buffers.len() {
            self.report_received(entry, target.receive.is_reported);
        } else {
            self.received_in_part(target, entry, is_tagged);
        }
    }

    /// A message is in a part of a buffer, or a part of it is in its buffer.
    #[inline(never)]
    fn received_in_part(&mut self, target: &Target, mut entry: Entry, is_tagged: bool) {
        let mut released = None;
        if let Some(part) = target.part {
            released = self.space(is_tagged).finish(part.id);
            entry.buffer = target.receive.buffers.base().addr() + target.offset();
        }
        let is_last = matches!(released, Some(Released { why: Why::Consumed, .. }));
        if is_last {
            entry.flags |= flags::MULTI_RECV;
        }
        let excess = entry.length.saturating_sub(target.room());
        if excess > 0 {
            entry.length -= excess;
            self.receive_failed_with(ErrorEntry { entry, excess, errno: Errno::TRUNCATED, reason: None });
        } else {
            self.report_received(entry, target.receive.is_reported || is_last);
        }
        if let Some(released) = released {
            self.report_ended(released, is_tagged);
        }
    }

    #[inline]
    fn report_received(&self, entry: Entry, is_reported: bool) {
        if is_reported && let Some(queue) = &self.bindings.receive {
            queue.push(entry);
        }
        if let Some(counter) = self.bindings.counter(flags::RECV) {
            counter.add(1);
        }
    }

    /// A message will not get into its buffer.
    pub(super) fn not_received(
        &mut self,
        target: &Target,
        is_tagged: bool,
        errno: Errno,
        reason: Option<&std::sync::Arc<str>>,
    ) {
        let mut flags = receive_flags(is_tagged);
        let released = target.part.and_then(|part| self.space(is_tagged).finish(part.id));
        if let Some(Released { why: Why::Consumed, .. }) = released {
            flags |= flags::MULTI_RECV;
        }
        self.receive_failed(&target.receive, flags, errno, reason);
        if let Some(released) = released {
            self.report_ended(released, is_tagged);
        }
    }

    /// Multi-receives that have ended while nothing was arriving in their buffers.
    pub(super) fn report_released(&mut self, is_tagged: bool) {
        while let Some(released) = self.space(is_tagged).next_released() {
            if let (Why::Consumed, Some(queue)) = (&released.why, &self.bindings.receive) {
                let flags = receive_flags(is_tagged) | flags::MULTI_RECV;
                queue.push(Entry::new(released.receive.context, flags));
            }
            self.report_ended(released, is_tagged);
        }
    }

    /// A multi-receive has ended otherwise than by a message.
    fn report_ended(&mut self, released: Released<Posted>, is_tagged: bool) {
        let errno = match released.why {
            Why::Consumed => return,
            Why::Cancelled => Errno::CANCELED,
            Why::SourceFailed => Errno::RESET,
        };
        let flags = receive_flags(is_tagged) | flags::MULTI_RECV;
        self.receive_failed(&released.receive, flags, errno, None);
    }

    /// Nobody receives an unexpected message.
    pub(super) fn throw_away(&mut self, shared: &mut Shared, message: Unexpected<Arrived>) {
        let peer = message.envelope.source;
        let is_current = |endpoint: &mut Endpoint, attempt| endpoint.peer(peer).attempt == attempt;
        match message.payload {
            Arrived::Bytes { bytes, missing, held, attempt, delivery } => {
                self.release(shared, peer, bytes.len() + missing);
                self.give_back(peer, attempt, held);
                if missing > 0 {
                    return self.rest_goes_to(peer, Place::Nowhere { delivery });
                }
                if let Some(id) = delivery
                    && is_current(self, attempt)
                {
                    self.reply(shared, peer, id, Ok(()));
                }
            }
            Arrived::Request { id, held, attempt, delivery, .. } => {
                self.release(shared, peer, 0);
                self.give_back(peer, attempt, held);
                if is_current(self, attempt) {
                    self.refuse(shared, peer, id, delivery);
                }
            }
        }
    }
}

fn posted(receive: &Receive<'_>) -> Result<Posted, Errno> {
    let buffers = Buffers::new(receive.buffers).ok_or(Errno::INVALID)?;
    Ok(Posted { context: receive.context, buffers, is_reported: receive.is_reported })
}
