//! Canceling receives, and messages that have not left.

use slab::Slab;

use super::super::Errno;
use super::endpoint::{Endpoint, receive_flags};
use super::peer::{Job, Peer, Pending, PendingKind, Ticket};
use super::{Retired, Shared};
use crate::matching::Cancel;
use crate::wire::Frame;

impl Endpoint {
    /// Cancels the earliest posted receive with this context, or else a message.
    pub(super) fn cancel(&mut self, shared: &mut Shared, context: usize) -> Result<(), Errno> {
        for is_tagged in [true, false] {
            match self.space(is_tagged).cancel(|posted| posted.context == context) {
                Cancel::NotFound => {}
                Cancel::Now(posted) => {
                    self.receive_failed(&posted, receive_flags(is_tagged), Errno::CANCELED, None);
                    return Ok(());
                }
                Cancel::Released => {
                    self.report_released(is_tagged);
                    return Ok(());
                }
            }
        }
        let ticket = self.take_back(shared, context).ok_or(Errno::NOT_FOUND)?;
        self.failed(&ticket, Errno::CANCELED, None);
        Ok(())
    }

    /// Removes a message of which nothing has left: its peer is not connected yet, has no room, or takes no messages.
    fn take_back(&mut self, shared: &mut Shared, context: usize) -> Option<Ticket> {
        for Peer { jobs, parked, operations, .. } in &mut self.peers {
            for list in [parked, jobs] {
                let is_it =
                    |job: &Job| ticket(job, operations).is_some_and(|(ticket, _)| ticket.context == context);
                let Some(at) = list.iter().position(is_it) else { continue };
                let (ticket, id) = ticket(&list.remove(at)?, operations)?;
                let pending = id.and_then(|id| operations.try_remove(id));
                if let Some(PendingKind::Asked { memory: Some(memory), .. }) =
                    pending.map(|pending| pending.kind)
                {
                    // Its key has not left.
                    shared.retired.push(Retired { memory, ends: None });
                }
                return Some(ticket);
            }
        }
        None
    }
}

/// How a message that waits completes, and the operation that it begins, if there is one.
fn ticket(job: &Job, operations: &Slab<Pending>) -> Option<(Ticket, Option<usize>)> {
    let begins = |id: u32| Some((operations.get(id as usize)?.ticket, Some(id as usize)));
    let head = match job {
        Job::Message { sent: 0, ticket: Some(ticket), .. } => return Some((*ticket, None)),
        Job::Message { sent: 0, id, ticket: None, .. } => return begins(*id),
        Job::Head(head) => head.bytes(),
        Job::Copied(bytes, None) => bytes,
        // A part of it has left; what was injected is no longer the program's; and these are no messages.
        Job::Message { .. } | Job::Copied(_, Some(_)) | Job::Write { .. } | Job::Atomic(_) => return None,
    };
    match Frame::parse(head, head.len()).ok()? {
        (Frame::Request { id, .. }, _) => begins(id),
        (Frame::Message { id, envelope }, _) if envelope.delivery => begins(id),
        _ => None,
    }
}
