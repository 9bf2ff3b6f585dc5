//! What is to be sent beyond new messages: control packets, and messages again.
//!
//! Built on `table` and `connection`; the interface calls it after everything else, while it can send.

use super::answer::{Answer, Reply};
use super::connection::{ConnectionId, Handles, Phase};
use super::control::{
    Refusal, write_ack, write_challenge, write_connect, write_handshake, write_reject, write_reset,
};
use super::header::{HEADER_SIZE, Header, flag, kind};
use super::psn::Psn;
use super::table::Table;
use super::time::Time;

/// A datagram to be sent now. If sending fails it may be dropped: it counts as lost.
pub struct Transmit<'a, T: Handles> {
    /// Where it goes.
    pub path: &'a T::Path,
    /// What it consists of.
    pub body: Body<'a, T::Send>,
}

/// The content of a `Transmit`.
pub enum Body<'a, S> {
    /// A control packet, header and all; at most 153 bytes.
    Control(&'a [u8]),
    /// A message again: this header, and the rest as it was sent first.
    Message([u8; HEADER_SIZE], &'a mut S),
}

/// Answers that wait at most: a request beyond them is as good as lost, and comes again.
const ANSWERS_MAX: usize = 256;

/// What [`Table::choose`] found to send.
enum Choice {
    Answer,
    Control(u8),
    Finish,
    Resend,
}

impl<T: Handles> Table<T> {
    /// Whether [`Table::poll_transmit`] may have something.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.output_queue.is_empty()
    }

    /// The next datagram to be sent; to be called only while one can be sent. The connections take turns.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit<'_, T>> {
        let (id, choice) = self.choose()?;
        if matches!(choice, Choice::Answer) {
            return self.next_answer();
        }
        let connection = &mut self.connections[id.index()];
        let message = match choice {
            Choice::Control(kind) => {
                self.write_control(now, id, kind);
                None
            }
            Choice::Finish => {
                self.write_finish(now, id);
                None
            }
            Choice::Resend => connection.sender.resend(now.stamp()),
            Choice::Answer => None,
        };
        if let Some(resend) = message {
            self.counters.resent += 1;
            let connection = &mut self.connections[id.index()];
            connection.receiver.acknowledged_by_header();
            let ack = connection.receiver.next();
            let flags = resend.flags | flag::ACK_REQUEST;
            let header = Header::new(connection.to, resend.kind, flags, resend.psn, ack).to_bytes();
            self.scratch.clear();
            self.scratch.extend_from_slice(&header);
            self.requeue(id);
            let connection = &mut self.connections[id.index()];
            let path = connection.path.as_ref()?;
            let body = match connection.sender.packet(resend.psn) {
                Some(packet) => Body::Message(header, packet),
                None => Body::Control(&self.scratch),
            };
            return Some(Transmit { path, body });
        }
        self.requeue(id);
        let path = self.connections[id.index()].path.as_ref()?;
        Some(Transmit { path, body: Body::Control(&self.scratch) })
    }

    /// The next connection that has something to send, and what.
    fn choose(&mut self) -> Option<(ConnectionId, Choice)> {
        loop {
            let id = self.output_queue.pop_front()?;
            if id == ConnectionId::ANSWER {
                return Some((id, Choice::Answer));
            }
            let connection = &mut self.connections[id.index()];
            connection.is_queued = false;
            if connection.path.is_none() || !connection.has_output() {
                continue;
            }
            let due = connection.due;
            let choice = match connection.phase {
                Phase::Connecting => Choice::Control(kind::CONNECT),
                Phase::Failed(_) | Phase::Aborted => Choice::Control(kind::RESET),
                _ if due.accept => Choice::Control(kind::ACCEPT),
                _ if connection.sender.may_resend() => Choice::Resend,
                _ if connection.should_finish() => Choice::Finish,
                _ if connection.should_ack() => Choice::Control(kind::ACK),
                _ => Choice::Control(kind::PING),
            };
            return Some((id, choice));
        }
    }

    fn requeue(&mut self, id: ConnectionId) {
        if self.connections[id.index()].has_output() {
            self.schedule_output(id);
        }
    }

    /// Queues a response to a peer without a connection, if not too many are queued.
    pub(super) fn answer(&mut self, answer: Answer<T::Path>) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(answer);
            self.output_queue.push_back(ConnectionId::ANSWER);
        }
    }

    fn next_answer(&mut self) -> Option<Transmit<'_, T>> {
        let answer = self.answers.pop_front()?;
        let control = match answer.reply {
            Reply::Challenge(_) => kind::CHALLENGE,
            Reply::Reject => kind::REJECT,
        };
        let out = &mut self.scratch;
        out.clear();
        out.extend_from_slice(&Header::new(answer.to.word(), control, 0, Psn(0), Psn(0)).to_bytes());
        match answer.reply {
            Reply::Challenge(cookie) => write_challenge(out, cookie),
            Reply::Reject => write_reject(out, Refusal::VERSION),
        }
        let path = &self.answered.insert(answer).path;
        Some(Transmit { path, body: Body::Control(&self.scratch) })
    }

    fn write_control(&mut self, now: Time, id: ConnectionId, control: u8) {
        let invitation = self.invitation(id);
        let connection = &mut self.connections[id.index()];
        let out = &mut self.scratch;
        out.clear();
        let flags = if control == kind::PING { flag::ACK_REQUEST } else { 0 };
        out.extend_from_slice(&connection.header(control, flags).to_bytes());
        match control {
            kind::CONNECT => {
                connection.due.connect = false;
                let opening = connection.opening.as_deref();
                let (ordinal, cookie) =
                    opening.map_or((0, 0), |opening| (opening.pairing.ordinal, opening.cookie));
                write_connect(out, invitation, ordinal, self.identity, &self.address, cookie);
            }
            kind::ACCEPT => {
                connection.due.accept = false;
                write_handshake(out, invitation);
            }
            kind::ACK => {
                connection.due.ack = false;
                connection.deadlines.ack = Time::NEVER;
                let delay = now.since(connection.last_received);
                let pace = match connection.receiver.unacknowledged() {
                    0 => 0,
                    _ => self.pacing.pace(now, &mut connection.counted, self.settings.receives),
                };
                write_ack(out, &connection.receiver.ack_contents(delay, pace));
                self.counters.acknowledgements += 1;
            }
            kind::PING => {
                connection.due.ping = false;
                out.extend_from_slice(&connection.sender.ping(now.stamp()).to_le_bytes());
            }
            _ => {
                connection.due.reset = false;
                write_reset(out, connection.reset_reason);
            }
        }
    }

    /// FINISH takes a sequence number like a message, but is only a header.
    fn write_finish(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        self.scratch.clear();
        let header = connection.header(kind::FINISH, flag::ACK_REQUEST);
        self.scratch.extend_from_slice(&header.to_bytes());
        connection.due.finish = false;
        connection.finish_sent = true;
        if connection.sender.outstanding() == 0 {
            connection.waiting_since = now;
        }
        connection.receiver.acknowledged_by_header();
        connection.sender.sent(now.stamp(), kind::FINISH, 0, None);
        connection.sender.close();
        let deadline = connection.deadlines.retransmit.min(now.plus(connection.timeout));
        connection.deadlines.retransmit = deadline;
        self.schedule(id, deadline);
    }
}
