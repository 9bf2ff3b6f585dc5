//! Frames whose bytes a transport receives straight to the buffers of the receive, as far as it is known by their beginning.

use uct_net::protocol::Space;

use super::Shared;
use super::endpoint::Endpoint;
use super::input::{Input, Payload};
use super::message::{Arriving, Begun, Place, Placed, PlacedFrame};
use crate::matching::Envelope;
use crate::wire::{self, Frame, MAX_BEGUN, MAX_HEAD};

/// Frames that have arrived so, in all endpoints.
#[cfg(test)]
pub(in super::super) static PLACED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Endpoint {
    /// The beginning of a frame of `length` bytes has arrived. Whether the bytes behind it go where [`Endpoint::place_of`] says. A frame that is refused
    /// here, unexpected or malformed, is looked at when all of it is there.
    pub(super) fn place_frame(&mut self, shared: &mut Shared, peer: u32, head: &[u8], length: usize) -> bool {
        // A peer that loses its transport in the middle of one may leave it behind.
        if head.len() < MAX_HEAD || self.peer(peer).placed.is_some() {
            return false;
        }
        let Ok((frame, start)) = Frame::parse(head, length) else { return false };
        let payload = length - start;
        let of = match frame {
            Frame::Message { id, envelope } => {
                self.match_early(peer, id, &envelope, payload).map(PlacedFrame::Message)
            }
            Frame::Begin { id, envelope, length } => {
                self.begin_early(shared, peer, (id, &envelope, length), payload)
            }
            Frame::Rest => self.goes_on(peer, payload).then_some(PlacedFrame::Begun),
            Frame::Fragment { id } => {
                let arriving = self.peer(peer).arriving.get(id as usize);
                let is_wanted =
                    arriving.is_some_and(|arriving| payload <= arriving.wanted - arriving.received);
                is_wanted.then_some(PlacedFrame::Fragment(id))
            }
            _ => None,
        };
        let Some(of) = of else { return false };
        self.peer(peer).placed = Some(Placed { of, start });
        if let Some((arriving, start)) = self.arriving_placed(peer) {
            let bytes = &head[start..];
            let wanted = bytes.len().min(arriving.wanted - arriving.received);
            arriving
                .target
                .receive
                .buffers
                .write(arriving.target.offset() + arriving.received, &bytes[..wanted]);
        }
        true
    }

    /// The receive for a message of `length` bytes, if there is one.
    fn match_early(
        &mut self,
        peer: u32,
        id: u32,
        envelope: &wire::Envelope,
        length: usize,
    ) -> Option<Box<Arriving>> {
        let is_tagged = envelope.tag.is_some();
        let tag = envelope.tag.unwrap_or(0);
        let matched = Envelope { source: peer, tag, length: length as u64, data: envelope.data };
        let target = self.space(is_tagged).arrive(&matched);
        self.report_released(is_tagged);
        let target = target?;
        let wanted = length.min(target.room());
        let delivery = envelope.delivery.then_some(id);
        Some(Box::new(Arriving { target, envelope: matched, is_tagged, delivery, wanted, received: 0 }))
    }

    /// A message of several frames, of which the first has `payload` bytes, begins.
    fn begin_early(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        (id, envelope, length): (u32, &wire::Envelope, u64),
        payload: usize,
    ) -> Option<PlacedFrame> {
        if self.peer(peer).begun.is_some() || length > MAX_BEGUN as u64 || payload as u64 >= length {
            return None;
        }
        let length = length as usize;
        let arriving = self.match_early(peer, id, envelope, length)?;
        shared.totals.received(length as u64);
        self.peer(peer).begun = Some(Begun { length, received: 0, place: Place::Target(arriving) });
        Some(PlacedFrame::Begun)
    }

    /// Whether `payload` bytes of the message that has begun go to a receive.
    fn goes_on(&mut self, peer: u32, payload: usize) -> bool {
        let begun = &self.peer(peer).begun;
        begun.as_ref().is_some_and(|begun| {
            matches!(begun.place, Place::Target(_)) && (1..=begun.length - begun.received).contains(&payload)
        })
    }

    /// The message that the frame belongs to, and where the frame's payload begins.
    fn arriving_placed(&mut self, peer: u32) -> Option<(&Arriving, usize)> {
        let peer = self.peer(peer);
        let Placed { of, start } = peer.placed.as_ref()?;
        let arriving = match of {
            PlacedFrame::Message(arriving) => arriving,
            PlacedFrame::Begun => match &peer.begun.as_ref()?.place {
                Place::Target(arriving) => arriving,
                Place::Kept { .. } | Place::Nowhere { .. } => return None,
            },
            PlacedFrame::Fragment(id) => peer.arriving.get(*id as usize)?,
        };
        Some((arriving, *start))
    }

    /// Where the bytes from `offset` on of the frame go.
    #[expect(unsafe_code, reason = "the program's memory is passed as pointers")]
    pub(super) fn place_of(&mut self, peer: u32, offset: usize) -> Option<Space> {
        let (arriving, start) = self.arriving_placed(peer)?;
        let at = arriving.received + offset.checked_sub(start)?;
        let wanted = arriving.wanted.checked_sub(at)?;
        let buffers = arriving.target.receive.buffers.part(arriving.target.offset() + at, wanted);
        let buffer = buffers.parts().first()?;
        let start = std::ptr::NonNull::new(buffer.base())?;
        // SAFETY: the contract of `Buffer`: these bytes of the program are valid for writes while the operation lasts, and it lasts at least until
        // the engine is called again.
        Some(unsafe { Space::new(start, buffer.len()) })
    }

    /// All `length` bytes of the frame have arrived. Returns whether the sender's credit is held back.
    pub(super) fn placed(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        length: usize,
        credit: u32,
    ) -> Result<bool, &'static str> {
        let Some(Placed { of, start }) = self.peer(peer).placed.take() else { return Ok(false) };
        #[cfg(test)]
        PLACED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let payload = Payload { input: Input::Placed { length, credit }, start };
        match of {
            PlacedFrame::Message(arriving) => {
                shared.totals.received(payload.len() as u64);
                self.has_arrived(shared, peer, *arriving);
                Ok(false)
            }
            PlacedFrame::Begun => self.rest_of_message(shared, peer, payload),
            PlacedFrame::Fragment(id) => self.frame(shared, peer, Frame::Fragment { id }, payload),
        }
    }

    /// All of a message is in its buffer.
    pub(super) fn has_arrived(&mut self, shared: &mut Shared, peer: u32, arriving: Arriving) {
        let Arriving { target, envelope, is_tagged, delivery, .. } = arriving;
        self.received(&target, &envelope, is_tagged);
        if let Some(id) = delivery {
            self.reply(shared, peer, id, Ok(()));
        }
        self.report_released(is_tagged);
    }
}
