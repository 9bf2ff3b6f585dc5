//! Receiving into memory of the application: what has arrived is copied there, and what the peer offers is read there straight from the peer's memory
//! where that is done at once. Nothing keeps a reference to that memory: all of it happens inside of a call.

use std::rc::Rc;

use ucs::Error as Status;

use super::super::lane::Lane;
use super::Conn;
use super::offer::Offer;
use crate::error::{Error, Stage};
use crate::proto::envelope::Kind;

impl Conn {
    /// As [`Conn::try_receive`], to `target`. Returns the length. An error that the message is longer leaves the message for another call.
    pub(crate) fn try_receive_into(self: &Rc<Conn>, target: &mut [u8]) -> Result<Option<usize>, Error> {
        let (length, is_offered) = {
            let state = self.state.borrow();
            match (state.received.front(), &state.offer) {
                (Some((message, _)), _) => (message.len(), false),
                (None, Some(offer)) if offer.read.is_none() => (offer.length(), true),
                _ => return state.check_ended(&self.peer).map(|()| None),
            }
        };
        let Some(target) = target.get_mut(..length) else { return Err(self.too_long(length, target.len())) };
        if is_offered && self.fetch_into(target) {
            return Ok(Some(length));
        }
        let Some(message) = self.try_receive()? else { return Ok(None) };
        ucs::memory::copy(target, &message);
        Ok(Some(length))
    }

    /// The length of the next message, if it has arrived or is offered.
    pub(crate) fn next_length(&self) -> Option<usize> {
        let state = self.state.borrow();
        let received = state.received.front().map(|(message, _)| message.len());
        received.or_else(|| state.offer.as_ref().map(Offer::length))
    }

    fn too_long(&self, length: usize, room: usize) -> Error {
        let reason = format!("a message of {length} bytes has no room in {room} bytes");
        Error::new(Stage::Connected, &*self.peer, Status::MESSAGE_TRUNCATED, reason)
            .hint("receive it with more room, or with recv: it is still there")
    }

    /// Reads the message that the peer offers to `target`, which is as long. False if that is not done at once.
    fn fetch_into(self: &Rc<Conn>, target: &mut [u8]) -> bool {
        let Some(lane) = self.lane.get().filter(|lane| lane.reads_at_once(target.len())) else {
            return false;
        };
        if self.waits_for_room.get() || self.state.borrow().fin.wanted == Some(true) {
            return false;
        }
        let Some(offer) = self.state.borrow_mut().offer.take() else { return false };
        // Who repeats it gets the reason of a failure.
        let is_read = read_into(lane, &offer, target);
        let mut state = self.state.borrow_mut();
        if is_read {
            state.receive.release(offer.cost);
            state.control.push_back((Kind::Taken, Vec::new()));
        } else {
            state.offer = Some(offer);
        }
        drop(state);
        if is_read {
            self.pump();
        }
        is_read
    }

    /// Leaves an offer to the application, which wants to read it where it likes, or does so no more.
    pub(crate) fn leave_offers(&self, leaves: bool) {
        let mut state = self.state.borrow_mut();
        state.leaves_offers = leaves;
        if !leaves && state.offer.is_some() {
            drop(state);
            self.become_due();
        }
    }
}

fn read_into(lane: &Lane, offer: &Offer, target: &mut [u8]) -> bool {
    let Some(large) = &lane.large else { return false };
    let Ok(key) = large.domain.unpack(&offer.place.key) else { return false };
    lane.ep.get_short(target, offer.place.address, &key).is_ok()
}
