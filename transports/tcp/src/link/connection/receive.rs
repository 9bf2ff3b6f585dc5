//! Receiving: one system call reads many frames, and active messages are delivered in place.
//!
//! A handler may call progress, which continues with the next frames. The position is therefore stored in the connection
//! before a handler runs, and a buffer lives as long as a handler uses a message in it.

use std::rc::Rc;
use std::slice;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use ucs::Error;
use ucs::clock;
use uct_plugin::rma::{Arriving, Request};
use uct_plugin::{Arrival, Disposition};

use super::life::UNACKNOWLEDGED;
use super::{Conn, State};
use crate::io::buffer::RxBuffer;
use crate::link::announced::Room;
use crate::link::shared::Shared;
use crate::proto::wire::{FRAME_HEADER, control, padded, parse_frame};

/// A large frame that was begun.
pub(super) enum Rest {
    None,
    /// The payload of a frame goes to a buffer of its own.
    Message {
        buffer: RxBuffer,
        kind: u8,
        have: usize,
        length: usize,
        began: u64,
        room: Room,
    },
    /// The bytes of a message go where the application likes them; so many of its payload and the zeros behind it have come.
    Placed {
        arrival: Arrival,
        done: usize,
        length: usize,
    },
    /// The data of a put go to the registered memory.
    Put {
        request: Request,
        done: usize,
    },
    /// The data of a response go to the memory of the get; nowhere, if it was given up.
    Response {
        response: Arriving,
        done: usize,
    },
    /// The data of a refused put go nowhere.
    Refused {
        request: Request,
        error: Error,
        done: usize,
    },
}

/// Why frames are not just read from the socket.
mod hold {
    /// A large frame was begun: its rest comes first.
    pub(super) const REST: u8 = 1;
    /// The peer does not read its responses: its requests wait until it has read some.
    pub(super) const ANSWERS: u8 = 2;
    /// A large message was announced for which there is no room now.
    pub(super) const ROOM: u8 = 4;
    /// Data of large frames are received straight to where they belong: little is read at once, until as much of it are short frames.
    pub(super) const DIRECT: u8 = 8;
    /// Large frames follow one another: several are received at once, and puts are acknowledged together.
    pub(super) const SERIES: u8 = 16;
}

/// How much is read at once where large frames come whose data are received straight to where they belong: enough to begin one, so that its
/// data are not copied.
const BEHIND_DIRECT: usize = 512;
/// Steps of a series in one receive: a frame takes two, one for its head and one for its data.
const LONGEST_SERIES: usize = 16;
/// A large message of which nothing comes is given up where room is lacking: after so long,
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// and if less than so many bytes have come each second.
const SLOW_RATE: usize = 64 << 10;

/// The result of one receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Messages and other frames that were handled.
    pub(crate) count: u32,
    /// Whether anything arrived.
    pub(crate) any: bool,
    /// As much as was to be read at once.
    is_full: bool,
}

const NOTHING: Received = Received { count: 0, any: false, is_full: false };

impl Conn {
    /// Receives once and handles the complete frames.
    #[inline]
    pub(crate) fn receive(self: &Rc<Self>, shared: &Shared) -> Received {
        if self.state.get() != State::Established || shared.agenda.is_inside() || self.hold.get() != 0 {
            return self.receive_specially(shared);
        }
        self.receive_frames(shared, usize::MAX)
    }

    /// The same inside a handler, or after a frame that was received in part.
    #[cold]
    #[inline(never)]
    fn receive_specially(self: &Rc<Self>, shared: &Shared) -> Received {
        if self.state.get() != State::Established || self.is_held() {
            return NOTHING;
        }
        if shared.agenda.is_inside() {
            return shared.agenda.inside(|| self.receive_inside(shared));
        }
        self.receive_series(shared)
    }

    /// As long as large frames follow one another, up to a limit.
    fn receive_series(self: &Rc<Self>, shared: &Shared) -> Received {
        let mut received = NOTHING;
        for _ in 0..LONGEST_SERIES {
            let Received { count, any, .. } = self.receive_next(shared);
            received = Received { count: received.count + count, any: received.any || any, ..NOTHING };
            if !any || self.hold.get() & hold::SERIES == 0 {
                break;
            }
        }
        if self.has_unacknowledged() && !self.is_blocked() {
            self.acknowledge_frames(shared);
        }
        received
    }

    /// From inside a handler: first what has arrived already.
    fn receive_inside(self: &Rc<Self>, shared: &Shared) -> Received {
        let count = self.parse(shared);
        if count > 0 { Received { count, any: true, ..NOTHING } } else { self.receive_next(shared) }
    }

    fn receive_next(self: &Rc<Self>, shared: &Shared) -> Received {
        if self.state.get() != State::Established || self.is_held() {
            return NOTHING;
        }
        if self.hold.get() & hold::REST != 0 {
            return self.receive_rest(shared);
        }
        self.drop_hold(hold::SERIES);
        // What has begun and is short is read as a whole.
        if self.hold.get() & hold::DIRECT == 0 || self.rx.get().is_some() {
            return self.receive_frames(shared, usize::MAX);
        }
        self.add_hold(hold::SERIES);
        let received = self.receive_frames(shared, BEHIND_DIRECT);
        if self.hold.get() & hold::REST == 0 {
            self.drop_hold(if received.is_full { hold::SERIES | hold::DIRECT } else { hold::SERIES });
        }
        received
    }

    /// Whether nothing is read from the socket for now.
    #[inline(always)]
    pub(crate) fn is_held(&self) -> bool {
        self.hold.get() & (hold::ANSWERS | hold::ROOM) != 0
    }

    /// Reads nothing more; what has arrived, and was not handled, stays where it is.
    fn hold(&self, shared: &Shared, reason: u8) {
        self.add_hold(reason);
        self.watch_again(shared);
    }

    fn add_hold(&self, reason: u8) {
        self.hold.set(self.hold.get() | reason);
    }

    fn drop_hold(&self, reason: u8) {
        self.hold.set(self.hold.get() & !reason);
    }

    /// Continues to read if the peer has read enough of its responses.
    pub(crate) fn resume(self: &Rc<Self>, shared: &Shared) {
        if self.hold.get() & hold::ANSWERS != 0 && self.copied_bytes() <= shared.answer_limit() / 2 {
            self.release(shared, hold::ANSWERS);
        }
        if self.has_unacknowledged() && !self.is_blocked() {
            self.acknowledge(shared);
        }
    }

    fn release(self: &Rc<Self>, shared: &Shared, reason: u8) {
        self.hold.set(self.hold.get() & !reason);
        self.watch_again(shared);
        if !self.is_held() && self.state.get() == State::Established {
            self.parse(shared);
        }
    }

    /// Whether a frame that causes a response has to wait; then nothing more is read.
    fn has_to_wait(&self, shared: &Shared, kind: u8) -> bool {
        let is_answered = kind == control::REQUEST || kind == control::PING;
        if is_answered && self.is_flooded(shared) {
            self.hold(shared, hold::ANSWERS);
            return true;
        }
        false
    }

    /// Reads up to `most` bytes.
    #[inline(always)]
    fn receive_frames(self: &Rc<Self>, shared: &Shared, most: usize) -> Received {
        let held = self.rx.get();
        let (buffer, end) = match held {
            Some(buffer) => (buffer, self.rx_end.get()),
            None => match shared.take_rx() {
                Ok(buffer) => (buffer, buffer.fill()),
                Err(error) => return self.out_of_memory(shared, error),
            },
        };
        // SAFETY: the bytes behind `end` are initialised, and used by nothing else: messages that were kept lie below.
        let room = unsafe { slice::from_raw_parts_mut(buffer.at(end), (buffer.size() - end).min(most)) };
        match recv(self.fd(), room, RecvFlags::empty()) {
            Ok((received, _)) if received > 0 => {
                if held.is_none() {
                    self.rx.set(Some(buffer));
                    self.rx_start.set(end);
                }
                self.rx_end.set(end + received);
                self.heard.set(true);
                Received { count: self.parse_frames(shared), any: true, is_full: received == most }
            }
            answer => {
                if held.is_none() {
                    shared.give_rx(buffer);
                }
                self.ended(shared, answer.map(|_| ()))
            }
        }
    }

    /// Nothing came: not yet, or never again.
    #[inline]
    fn ended(self: &Rc<Self>, shared: &Shared, answer: Result<(), Errno>) -> Received {
        match answer {
            Err(Errno::AGAIN | Errno::INTR) => NOTHING,
            Ok(()) => {
                self.on_eof(shared);
                Received { count: 1, any: true, ..NOTHING }
            }
            Err(errno) => {
                let error = Error::from_errno(errno.raw_os_error());
                let reason = std::io::Error::from(errno);
                let hint = if errno == Errno::TIMEDOUT { UNACKNOWLEDGED } else { "" };
                self.fail(shared, error, &format!("the connection was lost: {reason}{hint}"));
                Received { count: 1, any: true, ..NOTHING }
            }
        }
    }

    #[cold]
    fn out_of_memory(self: &Rc<Self>, shared: &Shared, error: Error) -> Received {
        self.fail(shared, error, "there is no memory for a receive buffer");
        NOTHING
    }

    /// Handles the complete frames; returns their number.
    #[inline(never)]
    pub(super) fn parse(self: &Rc<Self>, shared: &Shared) -> u32 {
        self.parse_frames(shared)
    }

    #[inline(always)]
    fn parse_frames(self: &Rc<Self>, shared: &Shared) -> u32 {
        shared.agenda.enter();
        let mut count = 0;
        while let Some(buffer) = self.rx.get() {
            let start = self.rx_start.get();
            let have = self.rx_end.get() - start;
            if have < FRAME_HEADER {
                break;
            }
            // SAFETY: eight bytes have arrived at `start`.
            let header = unsafe { buffer.at(start).cast::<u64>().read_unaligned() };
            let (kind, length) = parse_frame(header);
            let payload = start + FRAME_HEADER;
            if have - FRAME_HEADER < padded(length) {
                if !self.begin_large(shared, buffer, kind, length, have - FRAME_HEADER) {
                    break;
                }
                continue;
            }
            if usize::from(kind) >= uct_plugin::abi::UCT_AM_IDS && self.has_to_wait(shared, kind) {
                break;
            }
            self.rx_start.set(payload + padded(length));
            if length >= shared.long_message()
                && let Err(reason) = self.notice_long(shared, kind, length)
            {
                self.fail(shared, Error::IO_ERROR, reason);
                continue;
            }
            if usize::from(kind) < uct_plugin::abi::UCT_AM_IDS {
                self.deliver(shared, buffer, kind, payload, length);
            } else {
                buffer.retain();
                // SAFETY: so many bytes have arrived, and the buffer is held meanwhile.
                let bytes = unsafe { slice::from_raw_parts(buffer.at(payload), length) };
                let result = self.on_frame(shared, kind, bytes);
                shared.rx_pool().release(buffer);
                if let Err(reason) = result {
                    self.fail(shared, Error::IO_ERROR, reason);
                }
            }
            count += 1;
        }
        shared.agenda.leave();
        self.after_frames(shared);
        count
    }

    /// A long frame has arrived whole. If the application takes such messages where it likes them, the next one shall not.
    #[cold]
    fn notice_long(&self, shared: &Shared, kind: u8, length: usize) -> Result<(), &'static str> {
        if shared.placer(kind, length).is_some() {
            self.add_hold(hold::DIRECT);
        }
        shared.check_length(kind, length)
    }

    /// Hands a message to the application.
    #[inline(always)]
    fn deliver(&self, shared: &Shared, buffer: RxBuffer, id: u8, payload: usize, length: usize) {
        buffer.retain();
        if shared.headroom() > 0 {
            return self.deliver_behind_headroom(shared, buffer, id, payload, length);
        }
        // SAFETY: the message has arrived, and the buffer lives until it is released. Without headroom a keeper writes nowhere.
        if unsafe { shared.am().deliver_desc(id, buffer.at(payload), length) } == Disposition::Consumed {
            shared.rx_pool().release(buffer);
        }
    }

    /// The same where a keeper may write ahead of the message: over frames that were handled, never over kept ones.
    #[inline(never)]
    fn deliver_behind_headroom(
        &self,
        shared: &Shared,
        buffer: RxBuffer,
        id: u8,
        payload: usize,
        length: usize,
    ) {
        let before = buffer.kept_end();
        if payload - before < shared.headroom() {
            // SAFETY: so many bytes have arrived, and the buffer is held meanwhile.
            let message = unsafe { slice::from_raw_parts(buffer.at(payload), length) };
            shared.deliver_copy(id, message);
            shared.rx_pool().release(buffer);
            return;
        }
        let end = payload + length;
        buffer.set_kept_end(end);
        // SAFETY: the message has arrived, the buffer lives until it is released, and nothing else uses the headroom.
        if unsafe { shared.am().deliver_desc(id, buffer.at(payload), length) } == Disposition::Consumed {
            if buffer.kept_end() == end {
                buffer.set_kept_end(before);
            }
            shared.rx_pool().release(buffer);
        }
    }

    /// After frames were handled: releases an empty buffer, makes room for a frame that has begun, and acknowledges requests that were
    /// carried out.
    #[inline(always)]
    fn after_frames(self: &Rc<Self>, shared: &Shared) {
        if self.has_unacknowledged() && !self.is_blocked() && self.hold.get() & hold::SERIES == 0 {
            self.acknowledge_frames(shared);
        }
        if self.is_held() {
            return;
        }
        let Some(buffer) = self.rx.get() else { return };
        let (start, end) = (self.rx_start.get(), self.rx_end.get());
        if start == end {
            self.rx.set(None);
            buffer.set_fill(end);
            shared.give_rx(buffer);
        } else {
            self.make_whole(shared, buffer, start, end);
        }
    }

    /// Makes room for the frame begun at `start`.
    fn make_whole(self: &Rc<Self>, shared: &Shared, buffer: RxBuffer, start: usize, end: usize) {
        let have = end - start;
        let needed = if have < FRAME_HEADER {
            FRAME_HEADER
        } else {
            // SAFETY: eight bytes have arrived at `start`.
            let header = unsafe { buffer.at(start).cast::<u64>().read_unaligned() };
            FRAME_HEADER + padded(parse_frame(header).1).min(shared.rx_pool().capacity() - FRAME_HEADER)
        };
        if start + needed <= buffer.size() && end < buffer.size() {
            return;
        }
        let other = match shared.rx_pool().get() {
            Ok(other) => other,
            Err(error) => {
                self.out_of_memory(shared, error);
                return;
            }
        };
        let place = other.fill();
        // SAFETY: a frame begun is shorter than a buffer of the pool, and the buffers are two.
        unsafe { other.at(place).copy_from_nonoverlapping(buffer.at(start), have) };
        shared.rx_pool().release(buffer);
        self.rx.set(Some(other));
        self.rx_start.set(place);
        self.rx_end.set(place + have);
    }

    /// Has the rest of a large frame received straight to where it belongs. False: more has to come first, or it waits for room.
    fn begin_large(
        self: &Rc<Self>,
        shared: &Shared,
        buffer: RxBuffer,
        kind: u8,
        length: usize,
        have: usize,
    ) -> bool {
        if self.hold.get() & hold::ROOM != 0 {
            return false;
        }
        if let Err(reason) = shared.check_length(kind, length) {
            self.fail(shared, Error::IO_ERROR, reason);
            return true;
        }
        if self.has_to_wait(shared, kind) {
            return false;
        }
        let payload = self.rx_start.get() + FRAME_HEADER;
        // SAFETY: so many bytes have arrived.
        let bytes = unsafe { slice::from_raw_parts(buffer.at(payload), have) };
        let begun = match self.begin_response(kind, length, bytes) {
            Some(rest) => Ok(Some(rest)),
            None => match self.begin_placed(shared, kind, length, bytes) {
                Some(rest) => Ok(Some(rest)),
                None => self.begin_put(shared, kind, length, bytes),
            },
        };
        match begun {
            Ok(Some(rest)) => {
                *self.rest.borrow_mut() = rest;
            }
            Ok(None) if FRAME_HEADER + padded(length) <= shared.rx_pool().capacity() => return false,
            Ok(None) => {
                let Some(room) = shared.ask_for_room(self.id, self.source.get(), padded(length)) else {
                    self.hold(shared, hold::ROOM);
                    return false;
                };
                self.begin_message(shared, buffer, room);
                return true;
            }
            Err(reason) => {
                self.fail(shared, Error::IO_ERROR, reason);
                return true;
            }
        }
        self.await_rest();
        true
    }

    /// Offers a long message to the application, so that it is received where it likes.
    fn begin_placed(&self, shared: &Shared, kind: u8, length: usize, bytes: &[u8]) -> Option<Rest> {
        let placer = shared.placer(kind, length).filter(|_| bytes.len() < length)?;
        let arrival = placer.begin(kind, bytes, length)?;
        Some(Rest::Placed { arrival, done: bytes.len(), length })
    }

    /// All received bytes, and the next ones, belong to the large frame that was begun.
    fn await_rest(&self) {
        self.add_hold(hold::REST);
        self.rx_start.set(self.rx_end.get());
    }

    /// Moves the received part of a large message, at the end of `buffer`, to the buffer for the whole message.
    fn begin_message(self: &Rc<Self>, shared: &Shared, buffer: RxBuffer, room: Room) {
        let start = self.rx_start.get();
        // SAFETY: eight bytes have arrived at `start`: they announced the message.
        let header = unsafe { buffer.at(start).cast::<u64>().read_unaligned() };
        let (kind, length) = parse_frame(header);
        let large = match shared.rx_pool().get_large(padded(length)) {
            Ok(large) => large,
            Err(error) => {
                shared.give_room(room);
                self.out_of_memory(shared, error);
                return;
            }
        };
        let have = self.rx_end.get() - start - FRAME_HEADER;
        // SAFETY: so many bytes have arrived, the large buffer holds the whole payload, and it is another one.
        unsafe { large.at(large.fill()).copy_from_nonoverlapping(buffer.at(start + FRAME_HEADER), have) };
        let began = clock::ticks();
        *self.rest.borrow_mut() = Rest::Message { buffer: large, kind, have, length, began, room };
        self.await_rest();
    }

    /// There is room for the large message that waits.
    pub(crate) fn on_room(self: &Rc<Self>, shared: &Shared, room: Room) {
        self.hold.set(self.hold.get() & !hold::ROOM);
        match self.rx.get() {
            Some(buffer) => self.begin_message(shared, buffer, room),
            None => shared.give_room(room),
        }
        self.watch_again(shared);
        self.after_frames(shared);
    }

    /// Goes on with a large frame.
    #[inline(never)]
    fn receive_rest(self: &Rc<Self>, shared: &Shared) -> Received {
        let answer = self.receive_more(shared);
        match answer {
            Ok(true) => {}
            Ok(false) => {
                self.heard.set(true);
                return Received { count: 0, any: true, ..NOTHING };
            }
            Err(answer) => return self.ended(shared, answer),
        }
        self.heard.set(true);
        self.hold.set(self.hold.get() & !hold::REST);
        let rest = std::mem::replace(&mut *self.rest.borrow_mut(), Rest::None);
        match rest {
            Rest::None => {}
            Rest::Message { buffer, kind, length, room, .. } => {
                shared.give_room(room);
                let place = buffer.fill();
                if usize::from(kind) < uct_plugin::abi::UCT_AM_IDS {
                    self.deliver(shared, buffer, kind, place, length);
                } else {
                    // SAFETY: the payload has arrived whole, and the buffer is held meanwhile.
                    let bytes = unsafe { slice::from_raw_parts(buffer.at(place), length) };
                    if let Err(reason) = self.on_frame(shared, kind, bytes) {
                        self.fail(shared, Error::IO_ERROR, reason);
                    }
                }
                shared.rx_pool().release(buffer);
            }
            Rest::Placed { arrival, .. } => {
                self.add_hold(hold::DIRECT);
                arrival.end();
            }
            Rest::Put { request, .. } => {
                self.add_hold(hold::DIRECT);
                self.end_put(shared, &request, Ok(()));
            }
            Rest::Response { response, .. } => {
                self.add_hold(hold::DIRECT);
                self.end_response(shared, &response);
            }
            Rest::Refused { request, error, .. } => self.end_put(shared, &request, Err(error)),
        }
        self.after_frames(shared);
        Received { count: 1, any: true, ..NOTHING }
    }

    /// Receives once into the destination of the frame; returns whether it is complete.
    fn receive_more(&self, shared: &Shared) -> Result<bool, Result<(), Errno>> {
        let mut rest = self.rest.borrow_mut();
        // Until it has received, the owner cannot deregister the memory.
        let mut access = None;
        if let Rest::Put { request, done } = &*rest {
            match shared.admit_put(request) {
                Ok(admitted) => access = Some(admitted),
                // The owner has deregistered the memory meanwhile.
                Err(error) => *rest = Rest::Refused { request: *request, error, done: *done },
            }
        }
        let (received, whole) = match &mut *rest {
            Rest::None => return Ok(true),
            Rest::Message { buffer, have, length, .. } => {
                let place = buffer.at(buffer.fill() + *have);
                // SAFETY: the buffer was made for the whole payload and the zeros behind it.
                let received = unsafe { self.receive_at(place, padded(*length) - *have) }?;
                *have += received;
                (received, *have == padded(*length))
            }
            Rest::Placed { arrival, done, length } => {
                let missing = padded(*length) - *done;
                let received = match arrival.place() {
                    // SAFETY: the application gave the place for the next receive.
                    Some((place, room)) => unsafe { self.receive_at(place.as_ptr(), room) }?,
                    None => {
                        // SAFETY: the scratch memory is writable, and nothing else uses it while this receives.
                        unsafe { self.receive_at(shared.scratch(), missing.min(shared.scratch_size())) }?
                    }
                };
                *done += received;
                arrival.advance(received.min(arrival.missing()));
                (received, *done == padded(*length))
            }
            Rest::Put { request, done } => {
                let length = request.length as usize;
                let received = if let Some(access) = &access
                    && *done < length
                {
                    let place = access.start().as_ptr().wrapping_add(*done);
                    // SAFETY: the access is to the whole length, and is there until this returns.
                    unsafe { self.receive_at(place, length - *done) }?
                } else {
                    // SAFETY: the zeros are fewer than the scratch memory has, which nothing else uses while this receives.
                    unsafe { self.receive_at(shared.scratch(), padded(length) - *done) }?
                };
                *done += received;
                (received, *done == padded(length))
            }
            Rest::Response { response, done } => {
                let length = response.length();
                let received = match self.initiator.place(response) {
                    Some(place) if *done < length => {
                        let place = place.as_ptr().wrapping_add(*done);
                        // SAFETY: the place is writable for all data of the response, and nothing of the host runs meanwhile.
                        unsafe { self.receive_at(place, length - *done) }?
                    }
                    _ => {
                        let part = (padded(length) - *done).min(shared.scratch_size());
                        // SAFETY: the scratch memory is writable, and nothing else uses it while this receives.
                        unsafe { self.receive_at(shared.scratch(), part) }?
                    }
                };
                *done += received;
                (received, *done == padded(length))
            }
            Rest::Refused { request, done, .. } => {
                let length = padded(request.length as usize);
                let part = (length - *done).min(shared.scratch_size());
                // SAFETY: as above.
                let received = unsafe { self.receive_at(shared.scratch(), part) }?;
                *done += received;
                (received, *done == length)
            }
        };
        if received == 0 { Err(Ok(())) } else { Ok(whole) }
    }

    /// Receives to a place. The kernel writes it; no reference to it is made, since it may be the application's.
    ///
    /// # Safety
    /// The place is writable for the length.
    unsafe fn receive_at(&self, place: *mut u8, length: usize) -> Result<usize, Result<(), Errno>> {
        // SAFETY: the caller's promise.
        let received = unsafe { libc::recv(self.fd.get(), place.cast(), length, 0) };
        usize::try_from(received).map_err(|_| {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            Err(Errno::from_raw_os_error(errno))
        })
    }

    /// Whether a large message has stalled: its rate is too low, and the socket has nothing to read.
    pub(crate) fn is_stalled(&self, now: u64) -> bool {
        let Rest::Message { have, began, .. } = &*self.rest.borrow() else { return false };
        let age = clock::ticks_to_duration(now.saturating_sub(*began));
        let is_slow = age >= SLOW_AFTER && (*have as f64) < age.as_secs_f64() * SLOW_RATE as f64;
        let waiting = || self.socket.borrow().as_ref().map_or(Ok(0), rustix::io::ioctl_fionread);
        is_slow && waiting() == Ok(0)
    }

    /// Takes what another connection has received, and not handled.
    pub(super) fn take_received(&self, shared: &Shared, other: &Conn) {
        shared.wait_instead(other.id, other.source.get(), self.id);
        self.source.set(other.source.get());
        self.rx.set(other.rx.take());
        self.rx_start.set(other.rx_start.get());
        self.rx_end.set(other.rx_end.get());
        self.hold.set(other.hold.replace(0));
        self.rest.replace(other.rest.replace(Rest::None));
    }

    /// Lets go of everything that was begun.
    pub(super) fn drop_received(&self, shared: &Shared) {
        if let Some(buffer) = self.rx.take() {
            buffer.set_fill(buffer.size());
            shared.give_rx(buffer);
        }
        if self.hold.replace(0) & hold::ROOM != 0 {
            shared.stop_waiting(self.id, self.source.get());
        }
        if let Rest::Message { buffer, room, .. } =
            std::mem::replace(&mut *self.rest.borrow_mut(), Rest::None)
        {
            shared.give_room(room);
            shared.rx_pool().release(buffer);
        }
    }
}
