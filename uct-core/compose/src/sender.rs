//! What an endpoint sends through: the plugin's endpoint, requests that were accepted and not sent, and its failure.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use uct_plugin::abi::UCT_FLUSH_CANCEL;
use uct_plugin::rma::{Initiator, MAX_REQUEST, Malformed, Payload, Request};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{EpStatus, Error, PendingGroup, PendingQueue, Result};

use crate::plugin::PluginEp;
use crate::wire::{CHANNEL, HEAD, Head, Kind};

/// What an endpoint sends through.
pub(crate) struct Sender {
    pub(crate) plugin: PluginEp,
    pub(crate) status: EpStatus,
    pub(crate) initiator: Initiator,
    pub(crate) waiting: PendingGroup,
    /// Identifies the endpoint in requests.
    pub(crate) token: u64,
    /// Accepted frames that the plugin had no room for.
    outbox: RefCell<VecDeque<Vec<u8>>>,
    /// The plugin had no room for the last send.
    lacks: Cell<bool>,
}

impl Sender {
    pub(crate) fn new(plugin: PluginEp, status: EpStatus, initiator: Initiator, token: u64) -> Sender {
        Sender {
            plugin,
            status,
            initiator,
            waiting: PendingGroup::default(),
            token,
            outbox: RefCell::default(),
            lacks: Cell::new(false),
        }
    }

    /// Whether a send would overtake nothing.
    pub(crate) fn may_send(&self, pending: &PendingQueue) -> Result {
        self.status.check()?;
        if pending.must_wait(&self.waiting) || self.has_unsent() { Err(Error::NO_RESOURCE) } else { Ok(()) }
    }

    /// Whether the last send was refused for lack of resources.
    pub(crate) fn is_blocked(&self) -> bool {
        self.lacks.get() || self.has_unsent() || self.initiator.admit().is_err()
    }

    /// The next send is tried again.
    pub(crate) fn clear_blocked(&self) {
        self.lacks.set(false);
    }

    /// Notes whether a send of the plugin's has found room.
    pub(crate) fn noted<T>(&self, sent: Result<T>) -> Result<T> {
        self.lacks.set(matches!(sent, Err(Error::NO_RESOURCE)));
        sent
    }

    /// Whether accepted frames are queued.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.borrow().is_empty()
    }

    /// Whether everything was sent and carried out.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_unsent() && self.initiator.is_idle()
    }

    /// Sends a frame whose body `fill` writes; returns the length of the body.
    pub(crate) fn send_frame(
        &self,
        kind: Kind,
        signaled: bool,
        fill: impl FnOnce(*mut u8) -> usize,
    ) -> Result<usize> {
        let token = if kind == Kind::Message { 0 } else { self.token };
        let head = Head { kind, token }.write();
        let sent = self.plugin.am_bcopy(CHANNEL, signaled, |buffer| {
            // SAFETY: the plugin's buffer is longer than a head.
            unsafe { buffer.copy_from_nonoverlapping(head.as_ptr(), HEAD) };
            // `UCT_PACK_NONE` stays what it is.
            fill(buffer.wrapping_add(HEAD)).saturating_add(HEAD)
        });
        self.noted(sent).map(|length| length - HEAD)
    }

    /// Sends a request from the interface of this address, with data behind.
    pub(crate) fn send_request(&self, from: &[u8], request: &Request, data: &impl Payload) -> Result {
        self.send_frame(Kind::Request, false, |buffer| {
            // SAFETY: address, request and data fit into a message, as their limits were chosen; the buffer is no part of them.
            unsafe { write_request(buffer, from, request, data) }
        })
        .map(drop)
    }

    /// Accepts a request: sends it now or later.
    pub(crate) fn accept_request(&self, from: &[u8], request: &Request, data: &[u8]) {
        let mut frame = vec![0; HEAD + from.len() + MAX_REQUEST + data.len()];
        let (head, body) = frame.split_at_mut(HEAD);
        head.copy_from_slice(&Head { kind: Kind::Request, token: self.token }.write());
        // SAFETY: the frame was made long enough for all of it.
        let length = unsafe { write_request(body.as_mut_ptr(), from, request, &data) };
        frame.truncate(HEAD + length);
        self.outbox.borrow_mut().push_back(frame);
        self.send_unsent();
    }

    /// Sends queued frames as far as there is room; returns whether none is left.
    pub(crate) fn send_unsent(&self) -> bool {
        loop {
            // Nothing is borrowed while the plugin sends.
            let Some(frame) = self.outbox.borrow_mut().pop_front() else { return true };
            let sent = self.plugin.am_bcopy(CHANNEL, false, |buffer| {
                // SAFETY: the frame fits into a message, and the buffer is no part of it.
                unsafe { buffer.copy_from_nonoverlapping(frame.as_ptr(), frame.len()) };
                frame.len()
            });
            // With another error the endpoint fails, and everything with it.
            if let Err(Error::NO_RESOURCE | Error::NOT_CONNECTED) = self.noted(sent) {
                self.outbox.borrow_mut().push_front(frame);
                return false;
            }
        }
    }

    /// Sends requests for the rest of gets, as far as there is room.
    pub(crate) fn pump(&self, from: &[u8]) {
        if self.initiator.wants_pump() && !self.has_unsent() {
            self.initiator.pump(|request| self.send_request(from, request, &&[][..]));
        }
    }

    /// Handles a response.
    pub(crate) fn answer(&self, from: &[u8], answer: &[u8]) -> Result<u32, Malformed> {
        let ended = self.initiator.answer(answer)?;
        self.pump(from);
        Ok(ended)
    }

    /// The application gives up on what is outstanding.
    pub(crate) fn give_up(&self) {
        self.status.fail(Error::CANCELED);
        self.outbox.borrow_mut().clear();
        self.initiator.fail(Error::CANCELED);
        // What the plugin has sent is sent; its own flush that cancels is the last that it is asked for.
        let _ = self.plugin.flush(UCT_FLUSH_CANCEL);
    }

    /// The endpoint has failed: ends what is outstanding and notifies the application. Called by progress.
    pub(crate) fn fail(&self, errors: &ErrorHandler, pending: &PendingQueue, error: Error, reason: &str) {
        if !self.status.fail(error) {
            return;
        }
        self.outbox.borrow_mut().clear();
        self.initiator.fail(error);
        pending.schedule(&self.waiting);
        self.status.report(errors, reason);
    }
}

/// Writes what a request frame has behind its head; returns how many bytes.
///
/// # Safety
/// `buffer` has room for address, request and data, and is no part of them.
unsafe fn write_request(buffer: *mut u8, from: &[u8], request: &Request, data: &impl Payload) -> usize {
    let mut head = [0; MAX_REQUEST];
    let length = request.write(&mut head);
    // SAFETY: the caller's promise.
    unsafe { buffer.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    let behind = buffer.wrapping_add(from.len());
    // SAFETY: as above.
    unsafe { behind.copy_from_nonoverlapping(head.as_ptr(), length) };
    // SAFETY: as above.
    unsafe { data.write(behind.wrapping_add(length)) };
    from.len() + length + data.length()
}
