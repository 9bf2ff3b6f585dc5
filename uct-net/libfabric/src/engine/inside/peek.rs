//! Looking at unexpected messages, and claiming them.

use super::super::Buffers;
use super::super::{Entry, Errno, ErrorEntry, Peek, PeekAction, Receive, flags};
use super::Shared;
use super::endpoint::{Endpoint, receive_flags};
use super::message::{Posted, Target};
use crate::matching::Envelope;

impl Endpoint {
    /// Looks for an unexpected message.
    pub(super) fn peek(&mut self, shared: &mut Shared, peek: &Peek) -> Result<(), Errno> {
        let filter = self.filter(peek.from, peek.tag)?;
        let is_tagged = peek.tag.is_some();
        let space = self.space(is_tagged);
        let Some((id, found)) = space.peek(&filter) else {
            let entry = Entry { tag: filter.tag, ..Entry::new(peek.context, receive_flags(is_tagged)) };
            if let Some(queue) = &self.bindings.receive {
                queue.push_error(ErrorEntry { entry, excess: 0, errno: Errno::NO_MESSAGE, reason: None });
            }
            return Ok(());
        };
        let envelope = found.envelope;
        match peek.action {
            PeekAction::Look => {}
            PeekAction::Claim => {
                if !space.claim(id, peek.context) {
                    return Err(Errno::BUSY);
                }
            }
            PeekAction::Discard => {
                if let Some(message) = space.discard(id) {
                    self.throw_away(shared, message);
                }
            }
        }
        self.report_found(peek.context, &envelope, is_tagged);
        Ok(())
    }

    /// Receives the message that the context has claimed, or throws it away.
    pub(super) fn claim(
        &mut self,
        shared: &mut Shared,
        receive: &Receive<'_>,
        discard: bool,
    ) -> Result<(), Errno> {
        let is_tagged = receive.tag.is_some();
        let buffers = Buffers::new(receive.buffers).ok_or(Errno::INVALID)?;
        let message = self.space(is_tagged).take_claimed(receive.context).ok_or(Errno::NO_MESSAGE)?;
        if discard {
            let envelope = message.envelope;
            self.throw_away(shared, message);
            self.report_found(receive.context, &envelope, is_tagged);
        } else {
            let posted = Posted { context: receive.context, buffers, is_reported: receive.is_reported };
            self.take(shared, is_tagged, Target::all(posted), message);
        }
        Ok(())
    }

    fn report_found(&mut self, context: usize, envelope: &Envelope, is_tagged: bool) {
        let flags =
            receive_flags(is_tagged) | if envelope.data.is_some() { flags::REMOTE_CQ_DATA } else { 0 };
        let entry = Entry {
            length: envelope.length as usize,
            data: envelope.data.unwrap_or(0),
            tag: envelope.tag,
            source: self.index_of(envelope.source),
            ..Entry::new(context, flags)
        };
        if let Some(queue) = &self.bindings.receive {
            queue.push(entry);
        }
    }
}
