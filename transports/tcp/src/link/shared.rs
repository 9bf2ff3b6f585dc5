//! What the connections of an interface share: scratch memory, buffers, limits, the handlers.

use std::cell::RefCell;
use std::collections::VecDeque;

use socket2::Socket;
use ucs::event_set::EventSet;
use uct_plugin::memory::{Accessor, Regions};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{AmHandlers, Completion, Disposition, Result};

use crate::config::TcpConfig;
use crate::iface::TcpIface;
use crate::io::buffer::{RxBuffer, RxPool, TxBuffer, TxPool};
use crate::io::socket::Options;
use crate::listen::HalfOpenList;
use crate::progress::SPIN_ALONE;
use crate::proto::addr::IfaceAddress;
use crate::proto::wire::{FEATURE_RMA, Hello, HelloKind, PADDING, padded};

/// Progress has more to do than to receive.
const BUSY: u8 = 1;
/// The application packs a message.
const PACKING: u8 = 2;
/// Handlers and completions are nested as deep as they may be.
const DEEPEST: u8 = 4;

/// How deep progress, handlers and completions may be nested, each called by the one around it: 16 handlers. One with the progress
/// around it takes a few kilobytes of stack.
const NESTING: u32 = 32;

impl TcpIface {
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    #[inline(always)]
    pub(crate) fn next_epoch(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }

    /// A new epoch between two rounds. The looks at the event set, which go by the lowest bits, stay in step with the rounds.
    pub(crate) fn begin_epoch(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(SPIN_ALONE));
    }

    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.state.get() != 0
    }

    pub(crate) fn note_busy(&self) {
        self.state.set(self.state.get() | BUSY);
    }

    pub(crate) fn clear_busy(&self) {
        self.state.set(self.state.get() & !BUSY);
    }

    /// Whether the application packs a message at this moment. Nothing is received then, and no other message packed: either would
    /// be written over the one that is not finished.
    #[inline(always)]
    pub(crate) fn is_packing(&self) -> bool {
        self.state.get() & PACKING != 0
    }

    /// Handlers run from here on.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        self.depth.set(self.depth.get() + 1);
    }

    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Whether a handler or a completion of this interface runs.
    #[inline(always)]
    pub(crate) fn is_inside(&self) -> bool {
        self.depth.get() > 0
    }

    /// Runs `body` one level deeper. Progress inside the deepest one only sends.
    pub(crate) fn inside<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_deepest = self.state.get() & DEEPEST;
        self.enter();
        if self.depth.get() >= NESTING {
            self.state.set(self.state.get() | DEEPEST);
        }
        let answer = body();
        self.leave();
        self.state.set((self.state.get() & !DEEPEST) | is_deepest);
        answer
    }

    /// Whether handlers are nested as deep as they may be.
    pub(crate) fn is_deepest(&self) -> bool {
        self.state.get() & DEEPEST != 0
    }

    /// Runs `pack`, which writes a message to the scratch memory or to a connection's buffer.
    #[inline(always)]
    pub(crate) fn while_packing<T>(&self, pack: impl FnOnce() -> T) -> T {
        let first = self.scratch();
        self.scratch.set(first.wrapping_add(self.scratch_size));
        self.state.set(self.state.get() | PACKING);
        let answer = pack();
        self.state.set(self.state.get() & !PACKING);
        self.scratch.set(first);
        answer
    }

    /// Where a message is put together that goes straight to a socket.
    #[inline(always)]
    pub(crate) fn scratch(&self) -> *mut u8 {
        self.scratch.get()
    }

    pub(crate) fn scratch_size(&self) -> usize {
        self.scratch_size
    }

    #[inline(always)]
    pub(crate) fn am(&self) -> &AmHandlers {
        &self.am
    }

    #[inline(always)]
    pub(crate) fn headroom(&self) -> usize {
        self.headroom
    }

    #[inline(always)]
    pub(crate) fn rx_pool(&self) -> &RxPool {
        &self.rx_pool
    }

    /// The buffer for the next receive.
    #[inline(always)]
    pub(crate) fn take_rx(&self) -> Result<RxBuffer> {
        match self.shared.take() {
            Some(buffer) => {
                if buffer.is_sole() {
                    self.rx_pool.reset(buffer);
                }
                Ok(buffer)
            }
            None => self.rx_pool.get(),
        }
    }

    /// Takes it back. What was kept in it stays, so it is used on behind that as long as there is room.
    #[inline(always)]
    pub(crate) fn give_rx(&self, buffer: RxBuffer) {
        let has_room = buffer.is_sole() || buffer.size() - buffer.fill() >= buffer.size() / 2;
        if has_room && let Some(other) = self.shared.replace(Some(buffer)) {
            self.rx_pool.release(other);
        } else if !has_room {
            self.rx_pool.release(buffer);
        }
    }

    /// Delivers a copy, which has the headroom that the original lacks.
    #[cold]
    pub(crate) fn deliver_copy(&self, id: u8, message: &[u8]) {
        let needed = self.headroom + message.len() + PADDING;
        let buffer = match self.copies.take() {
            Some(buffer) if buffer.size() - buffer.fill() >= needed => Ok(buffer),
            Some(buffer) if buffer.is_sole() && needed <= self.rx_pool.capacity() => {
                self.rx_pool.reset(buffer);
                Ok(buffer)
            }
            other => {
                if let Some(full) = other {
                    self.rx_pool.release(full);
                }
                if needed <= self.rx_pool.capacity() {
                    self.rx_pool.get()
                } else {
                    self.rx_pool.get_large(needed)
                }
            }
        };
        let Ok(buffer) = buffer else {
            tracing::error!("no memory for a received message of {} bytes: it is lost", message.len());
            return;
        };
        let place = padded(buffer.fill() + self.headroom);
        buffer.set_fill((place + message.len()).next_multiple_of(16).min(buffer.size()));
        // SAFETY: the buffer has room for headroom and message, and nobody else writes there.
        unsafe { buffer.at(place).copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        buffer.retain();
        let is_shared = buffer.size() == self.rx_pool.capacity() + self.rx_pool.start();
        if is_shared && let Some(other) = self.copies.replace(Some(buffer)) {
            self.rx_pool.release(other);
        }
        // SAFETY: the message was just written, and the buffer lives until it is released.
        if unsafe { self.am.deliver_desc(id, buffer.at(place), message.len()) } == Disposition::Consumed {
            self.rx_pool.release(buffer);
        }
        if !is_shared {
            self.rx_pool.release(buffer);
        }
    }

    pub(crate) fn tx_buffer(&self) -> TxBuffer {
        self.tx_pool.get()
    }

    /// Lets a connection take what it has sent off its queue.
    pub(crate) fn sent(&self, advance: impl FnOnce(&TxPool, &mut VecDeque<Completion>)) {
        let mut ended = self.ended.borrow_mut();
        advance(&self.tx_pool, &mut ended);
        if !ended.is_empty() {
            self.note_busy();
        }
    }

    pub(crate) fn queue_limit(&self) -> usize {
        self.queue_limit
    }

    /// Bytes that may be queued before a peer that makes this side queue more is not read from.
    pub(crate) fn answer_limit(&self) -> usize {
        self.answer_limit
    }

    /// Largest payload of an active message.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.md.regions
    }

    pub(crate) fn accessor(&self) -> &Accessor {
        &self.accessor
    }

    pub(crate) fn config(&self) -> &TcpConfig {
        &self.config
    }

    pub(crate) fn socket_options(&self) -> &Options {
        &self.socket_options
    }

    pub(crate) fn events(&self) -> &EventSet {
        &self.events
    }

    pub(crate) fn listeners(&self) -> &[Socket] {
        &self.listeners
    }

    pub(crate) fn half_open(&self) -> &RefCell<HalfOpenList> {
        &self.half_open
    }

    pub(crate) fn errors(&self) -> &ErrorHandler {
        &self.errors
    }

    pub(crate) fn id(&self) -> u64 {
        self.address.id
    }

    pub(crate) fn own_address(&self) -> &IfaceAddress {
        &self.address
    }

    /// What this side says of itself.
    pub(crate) fn hello(&self, kind: HelloKind) -> Hello {
        Hello {
            kind,
            features: FEATURE_RMA,
            sender: self.id(),
            key: 0,
            token: 0,
            max_message: self.max_message as u64,
            refusal: None,
            in_use: false,
            wants_own: false,
            claim: None,
        }
    }

    /// A number that tells the endpoints of a connection apart.
    pub(crate) fn next_owner(&self) -> u32 {
        self.owners.set(self.owners.get().wrapping_add(1));
        self.owners.get()
    }
}
