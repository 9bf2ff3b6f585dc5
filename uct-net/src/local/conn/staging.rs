//! Large messages that are copied to memory of the connection, which the peer reads them from.
//!
//! The transport has allocated it, so the peer reads it without the kernel where memory is shared, and without another registration elsewhere. It
//! is one connection's alone, since its peer can read it at any time. A connection has it from its third large message on: for few of them it
//! costs more than it saves.

use super::Conn;
use super::kept::Staging;
use super::offer::{Source, TransferMode};
use crate::proto::shared::{MAX_KEY, Shared};

/// Large messages of a connection ahead of the first that is copied to kept memory.
const BEFORE: u32 = 2;
/// Longest message that is.
const LONGEST: usize = 4 << 20;

impl Conn {
    /// Copies a message to kept memory and makes its offer; `None` if it is to leave in another way. Not to be called inside a transport.
    pub(super) fn stage(&self, message: &[u8]) -> Option<TransferMode> {
        let length = message.len();
        if length < self.large.from || length > LONGEST {
            return None;
        }
        let lane = self.lane.get()?;
        lane.reads(length)?;
        let kept = {
            let mut state = self.state.borrow_mut();
            // One that is ahead may have the memory.
            if !state.outgoing.is_empty() || state.check_sendable(&self.peer).is_err() {
                return None;
            }
            state.staged = state.staged.saturating_add(1);
            if state.staged <= BEFORE {
                return None;
            }
            state.staging.take()
        };
        let kept = kept.filter(|kept| kept.memory.len() >= length);
        let staging =
            kept.or_else(|| Staging::allocate(lane, length.next_power_of_two(), &self.large.kept))?;
        staging.memory.write(0, message);
        let key = staging.memory.packed_key().ok().filter(|key| key.len() <= MAX_KEY)?;
        let shared = Shared { address: staging.memory.address(), length: length as u64, key };
        let source = Source::Kept(staging, length);
        Some(TransferMode::Offer { source, description: shared.to_bytes(), is_sent: false })
    }

    /// Ends the registrations of messages that have left, and keeps what is kept. Not to be called inside a transport.
    pub(super) fn retire(&self) {
        let retired = std::mem::take(&mut self.state.borrow_mut().retired);
        for source in retired {
            if let Source::Kept(staging, _) = source {
                let replaced = self.state.borrow_mut().staging.replace(staging);
                drop(replaced);
            }
        }
    }
}
