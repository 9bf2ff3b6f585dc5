//! Frames that are no active messages: remote memory access, keepalive probes, and which sides use the connection.

use std::rc::Rc;

use ucs::{Error, Result};
use uct_plugin::rma::{Answer, Arriving, Opcode, REQUEST_HEADER, RESPONSE_HEADER, Request};

use super::part::request_head;
use super::receive::Rest;
use super::{Conn, State};
use crate::io::pieces::Memory;
use crate::link::shared::Shared;
use crate::proto::fill::MAX_FILL;
use crate::proto::wire::{FRAME_HEADER, control, frame_header};

/// Puts, and responses to gets, from this size on are received straight to where they belong.
const DIRECT: usize = 16 << 10;

impl Conn {
    /// Handles a whole frame; the refusal describes what is wrong with it, and ends the connection.
    pub(super) fn on_frame(
        self: &Rc<Self>,
        shared: &Shared,
        kind: u8,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        match kind {
            control::REQUEST => match self.target.serve(shared.regions(), shared.accessor(), payload) {
                Ok(answer) => return self.answer(shared, answer),
                Err(malformed) => return Err(malformed.0),
            },
            control::RESPONSE => {
                self.initiator.answer(payload).map_err(|malformed| malformed.0)?;
                self.on_answered(shared);
            }
            control::PING | control::PONG | control::USE | control::UNUSE if !payload.is_empty() => {
                return Err("a frame of a kind without payload has one");
            }
            control::FILL if payload.len() > MAX_FILL => return Err("a fill is too long"),
            control::FILL => {}
            control::PING => self.send_control(shared, control::PONG),
            control::PONG => self.probing.set(false),
            control::USE => self.on_use(),
            control::UNUSE => self.on_unuse(shared),
            _ => return Err("a frame of an unknown kind"),
        }
        Ok(())
    }

    /// Sends or queues a response. Its data cannot be deregistered meanwhile, so nothing of the application's runs here.
    /// An error ends the connection: a request is too large, or too many were refused.
    fn answer(&self, shared: &Shared, answer: Option<Answer<'_>>) -> Result<(), &'static str> {
        let Some(answer) = answer else { return Ok(()) };
        if shared.check_length(control::RESPONSE, answer.frame_bytes()).is_err() {
            return Err("a get requests more than a response may contain");
        }
        let mut head = [0; FRAME_HEADER + RESPONSE_HEADER];
        head[..FRAME_HEADER]
            .copy_from_slice(&frame_header(control::RESPONSE, answer.frame_bytes()).to_ne_bytes());
        head[FRAME_HEADER..].copy_from_slice(answer.header());
        self.queue_response(shared, &head, (&answer).into());
        if answer.is_refusal() {
            self.refused.set(self.refused.get().saturating_add(1));
            if u32::from(self.refused.get()) > shared.settings().max_refused {
                return Err("too many of the peer's requests for remote memory were refused (max_refused)");
            }
        }
        Ok(())
    }

    /// A put that has begun to arrive and is large; the refusal describes what is wrong.
    pub(super) fn begin_put(
        &self,
        shared: &Shared,
        kind: u8,
        length: usize,
        payload: &[u8],
    ) -> Result<Option<Rest>, &'static str> {
        let is_large = length >= REQUEST_HEADER + DIRECT;
        if kind != control::REQUEST || !is_large || payload.len() < REQUEST_HEADER {
            return Ok(None);
        }
        // The zeros behind the data may have come already.
        let (request, _) = Request::read(payload).map_err(|malformed| malformed.0)?;
        if request.opcode != Opcode::Put || request.length as usize != length - REQUEST_HEADER {
            return Err("a put has another length than its frame");
        }
        let data = &payload[REQUEST_HEADER..];
        let done = data.len();
        Ok(Some(match shared.admit_put(&request) {
            Ok(access) => {
                access.write(0, &data[..done.min(access.length())]);
                Rest::Put { request, done }
            }
            Err(error) => Rest::Refused { request, error, done },
        }))
    }

    /// A response that has begun to arrive, if it is large and its data go to memory.
    pub(super) fn begin_response(&self, kind: u8, length: usize, payload: &[u8]) -> Option<Rest> {
        if kind != control::RESPONSE || length < RESPONSE_HEADER + DIRECT {
            return None;
        }
        // The zeros behind the data may have come already.
        let (frame, zeros) = payload.split_at(payload.len().min(length));
        let (response, data) = self.initiator.arriving(frame, length)?;
        let place = self.initiator.place(&response)?;
        // SAFETY: the place is writable for the data of the response, of which these are the first, and nothing of the host has run.
        unsafe { place.as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Some(Rest::Response { response, done: data.len() + zeros.len() })
    }

    /// All data of a response are where they belong.
    pub(super) fn end_response(self: &Rc<Self>, shared: &Shared, response: &Arriving) {
        match self.initiator.arrived(response) {
            Ok(_ended) => self.on_answered(shared),
            Err(malformed) => self.fail(shared, Error::IO_ERROR, malformed.0),
        }
    }

    pub(super) fn end_put(self: &Rc<Self>, shared: &Shared, request: &Request, result: Result) {
        if let Err(reason) = self.answer(shared, self.target.put_done(shared.accessor(), request, result)) {
            self.fail(shared, Error::IO_ERROR, reason);
        }
    }

    /// Sends requests for the rest of a large get.
    pub(crate) fn pump(&self, shared: &Shared) {
        self.initiator.pump(|request| {
            if let Some(error) = self.error() {
                return Err(error);
            }
            let (frame, bytes) = request_head(request, 0);
            self.queue_response(shared, &frame[..bytes], Memory::EMPTY);
            Ok(())
        });
    }

    /// Responses have arrived: there may be room for more operations.
    fn on_answered(self: &Rc<Self>, shared: &Shared) {
        if self.initiator.wants_pump() {
            self.pump(shared);
        }
        self.note_pending(shared);
        shared.agenda.check_flushes();
        if self.is_retiring() {
            self.mark_dirty(shared);
        }
    }

    /// Sends a keepalive probe.
    pub(crate) fn probe(&self, shared: &Shared) {
        if self.state.get() == State::Established && !self.probing.replace(true) {
            self.send_control(shared, control::PING);
        }
    }

    pub(super) fn send_control(&self, shared: &Shared, kind: u8) {
        self.queue_response(shared, &frame_header(kind, 0).to_ne_bytes(), Memory::EMPTY);
    }
}
