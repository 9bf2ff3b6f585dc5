//! Messages of several frames that nobody has asked for: shorter ones arrive sooner so than by an announcement.
//!
//! Their frames follow each other, so there is at most one of each peer.

use super::Shared;
use super::endpoint::Endpoint;
use super::input::Payload;
use super::message::{Arrived, Arriving, Begun, Place};
use crate::matching::Envelope;
use crate::wire::{self, MAX_BEGUN};

impl Endpoint {
    /// The first bytes of a message have arrived. Returns whether the sender's credit is held back.
    pub(super) fn begin_message(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        (id, envelope, length): (u32, wire::Envelope, u64),
        payload: Payload<'_>,
    ) -> Result<bool, &'static str> {
        if self.peer(peer).begun.is_some() {
            return Err("it began a message within another");
        }
        if length > MAX_BEGUN as u64 || payload.len() as u64 >= length {
            return Err("it began a message with a length that none has");
        }
        let length = length as usize;
        let is_tagged = envelope.tag.is_some();
        let delivery = envelope.delivery.then_some(id);
        let tag = envelope.tag.unwrap_or(0);
        let matched = Envelope { source: peer, tag, length: length as u64, data: envelope.data };
        shared.totals.received(length as u64);
        let mut is_held = false;
        let place = match self.space(is_tagged).arrive(&matched) {
            Some(target) => {
                let wanted = length.min(target.room());
                let mut arriving =
                    Arriving { target, envelope: matched, is_tagged, delivery, wanted, received: 0 };
                arriving.add(payload);
                Place::Target(Box::new(arriving))
            }
            None => {
                is_held = self.retain(shared, peer, length);
                let mut bytes = Vec::with_capacity(length);
                payload.append_to(&mut bytes);
                let arrived = Arrived::Bytes {
                    missing: length - bytes.len(),
                    bytes,
                    held: if is_held { payload.input.credit() } else { 0 },
                    attempt: self.peer(peer).attempt,
                    delivery,
                };
                Place::Kept { id: self.space(is_tagged).keep(matched, arrived), is_tagged }
            }
        };
        self.peer(peer).begun = Some(Begun { length, received: payload.len(), place });
        self.report_released(is_tagged);
        Ok(is_held)
    }

    /// The next bytes of the message that has begun have arrived. Returns whether the sender's credit is held back.
    pub(super) fn rest_of_message(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        payload: Payload<'_>,
    ) -> Result<bool, &'static str> {
        let Some(mut begun) = self.peer(peer).begun.take() else {
            return Err("it went on with a message that was not begun");
        };
        if payload.len() == 0 || payload.len() > begun.length - begun.received {
            return Err("it sent more or fewer bytes than a message has");
        }
        begun.received += payload.len();
        let is_last = begun.received == begun.length;
        let mut is_held = false;
        match &mut begun.place {
            Place::Target(arriving) => arriving.add(payload),
            Place::Kept { id, is_tagged } => {
                if let Some(Arrived::Bytes { bytes, missing, held, .. }) = self.space(*is_tagged).payload(*id)
                {
                    payload.append_to(bytes);
                    *missing -= payload.len();
                    is_held = *held > 0;
                    *held += if is_held { payload.input.credit() } else { 0 };
                }
            }
            Place::Nowhere { .. } => {}
        }
        if !is_last {
            self.peer(peer).begun = Some(begun);
            return Ok(is_held);
        }
        match begun.place {
            Place::Target(arriving) => self.has_arrived(shared, peer, *arriving),
            Place::Nowhere { delivery: Some(id) } => self.reply(shared, peer, id, Ok(())),
            Place::Nowhere { delivery: None } | Place::Kept { .. } => {}
        }
        Ok(is_held)
    }

    /// The message that has begun, and was unexpected, is taken out of the unexpected ones. It is that of a connection that is open: others were
    /// taken out with its end.
    pub(super) fn rest_goes_to(&mut self, peer: u32, place: Place) {
        if let Some(begun) = &mut self.peer(peer).begun {
            begun.place = place;
        }
    }
}

impl Arriving {
    /// Copies the next bytes, as far as they are wanted.
    fn add(&mut self, payload: Payload<'_>) {
        let length = payload.len().min(self.wanted - self.received);
        if length > 0 {
            payload.copy_to(length, &self.target.receive.buffers, self.target.offset() + self.received);
        }
        self.received += length;
    }
}
