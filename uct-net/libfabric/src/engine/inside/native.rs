//! Announced messages whose bytes the receiver reads in the sender's memory, where the connection can do that.

#![expect(unsafe_code, reason = "the program's memory is passed as pointers")]

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error as Status;
use uct_core::{Access, Completion, Memory, MemoryKind, Posted};
use uct_net::protocol::InPlace;

use super::super::{Buffers, Errno};
use super::endpoint::Endpoint;
use super::link::Link;
use super::message::{Arriving, Readable, Reading};
use super::{Event, Shared, State};
use crate::wire::Offer;

/// Shortest message that is read so.
const NATIVE: usize = 16 << 10;

/// What becomes of a reading.
enum Next {
    Finished,
    /// Something will come from the device.
    Busy,
    /// There is no room; it is tried again.
    Again,
    Failed,
}

impl Link {
    fn in_place(&self) -> Option<&InPlace> {
        match self {
            Link::Net { connection, .. } => connection.in_place(),
            _ => None,
        }
    }

    /// The shortest message that the peer reads in this process; `None` if it reads none.
    pub(super) fn reads_from(&self) -> Option<usize> {
        self.in_place().map(shortest_read)
    }
}

/// The shortest message that is read there.
pub(super) fn shortest_read(place: &InPlace) -> usize {
    NATIVE.max(*place.sizes.start())
}

/// Registers one buffer of the program that a message is read into.
fn register(place: &InPlace, buffers: &Buffers) -> Option<Memory> {
    let [buffer] = buffers.parts() else { return None };
    let address = NonNull::new(buffer.base())?;
    // SAFETY: the contract of `Buffer`: the bytes are valid until the operation has ended, and the registration ends with it. The program makes no
    // use of them meanwhile.
    let memory =
        unsafe { place.domain.register_raw(address, buffer.len(), Access::empty(), MemoryKind::Host) };
    memory.ok()
}

impl Endpoint {
    /// The memory of a message to be announced, and its offer, where the peer can read it.
    pub(super) fn offer(&self, peer: u32, buffers: &Buffers) -> Option<(Memory, Offer)> {
        let link = &self.peers[peer as usize].link;
        if buffers.len() < link.reads_from()? {
            return None;
        }
        let domain = &link.in_place()?.domain;
        let [buffer] = buffers.parts() else { return None };
        let address = NonNull::new(buffer.base())?;
        // SAFETY: the contract of `Buffer`: the bytes are valid for reads until the operation has ended, and the registration ends ahead of it. No
        // reference to them is kept meanwhile.
        let memory = unsafe { domain.register_readable(address, buffer.len()) }.ok()?;
        let offer = Offer::new(memory.address(), &memory.packed_key().ok()?)?;
        Some((memory, offer))
    }

    /// Whether a part of a message that is offered can be read.
    pub(super) fn can_read(&self, peer: u32, target: &Buffers) -> bool {
        let place = self.peers[peer as usize].link.in_place();
        place.is_some_and(|place| target.len() >= *place.sizes.start()) && target.parts().len() == 1
    }

    /// Begins to read a message. Runs in a turn.
    pub(super) fn begin_reading(&mut self, shared: &mut Shared, peer: u32, readable: Box<Readable>) {
        if self.peers[peer as usize].reads_at_once && self.read_at_once(peer, &readable).is_some() {
            let Readable { arriving, id, .. } = *readable;
            return self.was_read_whole(shared, peer, &arriving, id);
        }
        let number = self.number;
        let vacant = self.readings.vacant_key();
        match self.prepare(shared, peer, readable, (number, vacant)) {
            Ok(reading) => {
                let reading = self.readings.insert(*reading);
                self.go_on_reading(shared, reading);
            }
            Err(readable) => self.ask_for(shared, peer, readable.arriving, readable.id),
        }
    }

    /// Reads a message within the call; `None` if it cannot be read so now.
    fn read_at_once(&self, peer: u32, readable: &Readable) -> Option<()> {
        let Link::Net { connection, .. } = &self.peers[peer as usize].link else { return None };
        let place = connection.in_place()?;
        let target = &readable.arriving.target;
        let buffers = target.receive.buffers.part(target.offset(), readable.arriving.wanted);
        let [buffer] = buffers.parts() else { return None };
        if buffer.len() > place.at_once {
            return None;
        }
        let key = place.domain.unpack(readable.offer.key()).ok()?;
        // SAFETY: the contract of `Buffer`: these bytes are valid for writes and nobody else's until the operation has ended, which it does after this.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.base(), buffer.len()) };
        connection.endpoint().get_short(bytes, readable.offer.address(), &key).ok()
    }

    fn prepare(
        &self,
        shared: &Shared,
        peer: u32,
        readable: Box<Readable>,
        (endpoint, reading): (usize, usize),
    ) -> Result<Box<Reading>, Box<Readable>> {
        let state = &self.peers[peer as usize];
        let target = &readable.arriving.target;
        let buffers = target.receive.buffers.part(target.offset(), readable.arriving.wanted);
        let parts = state.link.in_place().and_then(|place| {
            let key = place.domain.unpack(readable.offer.key()).ok()?;
            Some((key, register(place, &buffers)?, *place.sizes.end()))
        });
        let (Some((key, memory, most)), Some(state_of_all)) = (parts, shared.inside.upgrade()) else {
            return Err(readable);
        };
        let (inside, engine) = (Rc::downgrade(&state_of_all), shared.engine.clone());
        let completion = Completion::with_callback(shared.engine.net().worker(), move |outcome| {
            if let Some(inside) = inside.upgrade() {
                let is_read = outcome.is_ok();
                State(inside).note(&engine, Event::Read { endpoint, reading, is_read });
            }
        });
        let Readable { arriving, id, offer } = *readable;
        Ok(Box::new(Reading {
            peer,
            attempt: state.attempt,
            arriving,
            id,
            memory,
            key,
            address: offer.address(),
            completion,
            most,
            posted: 0,
            is_busy: false,
            failed: None,
        }))
    }

    /// The device has read what was begun. Runs in a turn.
    pub(super) fn was_reading(&mut self, shared: &mut Shared, reading: usize, is_read: bool) {
        let Some(state) = self.readings.get_mut(reading) else { return };
        state.is_busy = false;
        if let Some((errno, reason)) = state.failed.take() {
            let state = self.readings.remove(reading);
            return self.not_received(&state.arriving.target, state.arriving.is_tagged, errno, Some(&reason));
        }
        if is_read {
            self.go_on_reading(shared, reading);
        } else {
            self.stop_reading(shared, reading);
        }
    }

    /// Reads as much of a message as there is room for. Runs in a turn.
    pub(super) fn go_on_reading(&mut self, shared: &mut Shared, reading: usize) {
        let Some(state) = self.readings.get_mut(reading).filter(|state| !state.is_busy) else { return };
        let Link::Net { connection, .. } = &self.peers[state.peer as usize].link else { return };
        let (peer, mut within_call) = (state.peer, false);
        let next = loop {
            let left = state.arriving.wanted - state.posted;
            if left == 0 {
                break Next::Finished;
            }
            let end = state.posted + left.min(state.most);
            let slices = [state.memory.slice(state.posted..end)];
            let address = state.address.wrapping_add(state.posted as u64);
            match connection.endpoint().get_zcopy(&slices, address, &state.key, &state.completion) {
                Ok(Posted::Done) => {
                    state.posted = end;
                    within_call = true;
                }
                Ok(Posted::InProgress) => {
                    state.posted = end;
                    state.is_busy = true;
                    break Next::Busy;
                }
                Err(Status::NO_RESOURCE) => break Next::Again,
                Err(_) => break Next::Failed,
            }
        };
        // Where the system has copied for this side, it goes on to.
        self.peer(peer).reads_at_once |= within_call;
        match next {
            Next::Busy => {}
            Next::Again => shared.again.push((self.number, reading)),
            Next::Failed => self.stop_reading(shared, reading),
            Next::Finished => {
                let Reading { peer, arriving, id, .. } = self.readings.remove(reading);
                self.was_read_whole(shared, peer, &arriving, id);
            }
        }
    }

    /// All of a message has been read: its sender may have its memory back.
    fn was_read_whole(&mut self, shared: &mut Shared, peer: u32, arriving: &Arriving, id: u32) {
        self.received(&arriving.target, &arriving.envelope, arriving.is_tagged);
        self.reply(shared, peer, id, Ok(()));
    }

    /// A message cannot be read: its bytes are asked for.
    fn stop_reading(&mut self, shared: &mut Shared, reading: usize) {
        let Reading { peer, attempt, arriving, id, .. } = self.readings.remove(reading);
        if self.peer(peer).attempt == attempt {
            self.ask_for(shared, peer, arriving, id);
        } else {
            self.not_received(&arriving.target, arriving.is_tagged, Errno::RESET, None);
        }
    }

    /// The peer has failed. What the device is reading ends when it says so.
    pub(super) fn fail_readings(&mut self, peer: u32, errno: Errno, reason: &Arc<str>) {
        let readable = std::mem::take(&mut self.peer(peer).readable);
        let mut over: Vec<Arriving> = readable.into_iter().map(|readable| readable.arriving).collect();
        for reading in 0..self.readings.capacity() {
            let Some(state) = self.readings.get_mut(reading).filter(|state| state.peer == peer) else {
                continue;
            };
            if state.is_busy {
                state.failed.get_or_insert_with(|| (errno, Arc::clone(reason)));
            } else {
                over.push(self.readings.remove(reading).arriving);
            }
        }
        for arriving in over {
            self.not_received(&arriving.target, arriving.is_tagged, errno, Some(reason));
        }
    }
}
