//! Serving a peer: sending what waits for room.

use super::super::{Access, Remote};
use super::Shared;
use super::endpoint::Endpoint;
use super::link::Link;
use super::peer::{AtomicJob, Job, Peer, Stream};
use crate::wire::{Element, Head, MAX_HEAD};

/// Frames that one peer sends before others have their turn.
const FRAMES: u32 = 32;

/// How far a job is.
enum Progress {
    Finished,
    /// There is no room.
    Blocked,
    /// Others have their turn.
    OutOfTurn,
}

impl Endpoint {
    /// Sends what waits, as far as there is room.
    pub(super) fn serve(&mut self, shared: &mut Shared, peer: u32) {
        let state = self.peer(peer);
        state.is_due = false;
        if !state.link.is_open() {
            return;
        }
        while let Some(readable) = self.peer(peer).readable.pop_front() {
            self.begin_reading(shared, peer, readable);
        }
        let mut left = FRAMES;
        let progress = loop {
            let progress = match self.serve_jobs(shared, peer, &mut left) {
                Progress::Finished => self.serve_stream(shared, peer, &mut left),
                other => other,
            };
            let state = self.peer(peer);
            if !matches!(progress, Progress::Finished) {
                break progress;
            }
            if state.jobs.is_empty() && state.streams.is_empty() {
                break progress;
            }
        };
        match progress {
            Progress::Finished => {}
            Progress::OutOfTurn => self.is_due(shared, peer),
            Progress::Blocked => {
                let number = self.number;
                let state = self.peer(peer);
                state.is_blocked = true;
                if matches!(state.link, Link::Local { .. }) {
                    shared.blocked.push((number, peer));
                }
            }
        }
        let state = self.peer(peer);
        if state.held > 0
            && !state.has_many_replies()
            && let Link::Net { connection, .. } = &state.link
        {
            connection.release(std::mem::take(&mut state.held));
        }
    }

    /// There may be room again.
    pub(super) fn unblock(&mut self, shared: &mut Shared, peer: u32) {
        if std::mem::take(&mut self.peer(peer).is_blocked) {
            self.is_due(shared, peer);
        }
    }

    fn serve_jobs(&mut self, shared: &mut Shared, peer: u32, left: &mut u32) -> Progress {
        loop {
            let state = &mut self.peers[peer as usize];
            let Some(mut job) = state.jobs.pop_front() else { return Progress::Finished };
            if state.is_paused && job.is_message() {
                state.parked.push_back(job);
                continue;
            }
            let progress = send(shared, state, &mut job, left);
            match (&progress, job) {
                (
                    Progress::Finished,
                    Job::Copied(_, Some(ticket)) | Job::Message { ticket: Some(ticket), .. },
                ) => {
                    self.succeeded(&ticket);
                }
                (Progress::Finished, Job::Message { id, .. } | Job::Write { id, .. }) => state.has_sent(id),
                (Progress::Finished, Job::Atomic(atomic)) => state.has_sent(atomic.id),
                (Progress::Finished, _) => {}
                (_, job) => {
                    self.peer(peer).jobs.push_front(job);
                    return progress;
                }
            }
        }
    }

    /// Sends a fragment of the first stream, which goes behind the others then.
    fn serve_stream(&mut self, shared: &mut Shared, peer: u32, left: &mut u32) -> Progress {
        let Some(mut stream) = self.peer(peer).streams.pop_front() else { return Progress::Finished };
        if *left == 0 {
            self.peer(peer).streams.push_front(stream);
            return Progress::OutOfTurn;
        }
        *left -= 1;
        match &mut stream {
            Stream::Message { id, receiver, buffers, sent } => {
                let state = &self.peers[peer as usize];
                let length = (buffers.len() - *sent).min(payload(state));
                let part = buffers.part(*sent, length);
                if !state.link.try_send_buffers(shared, Head::fragment(*receiver).bytes(), &part) {
                    self.peer(peer).streams.push_front(stream);
                    return Progress::Blocked;
                }
                *sent += length;
                if *sent == buffers.len() {
                    self.streamed(shared, peer, *id);
                } else {
                    self.peer(peer).streams.push_back(stream);
                }
            }
            &mut Stream::Region { id, key, offset, length, ref mut sent } => {
                let state = &self.peers[peer as usize];
                let now = (length - *sent).min(payload(state) as u64);
                let is_last = *sent + now == length;
                let access = Access { read: true, write: false };
                let outcome =
                    shared.regions.clone().with(key, offset + *sent, now as usize, access, |buffer| {
                        let head = Head::data(id, is_last);
                        let buffers = super::super::Buffers::One(buffer);
                        state.link.try_send_buffers(shared, head.bytes(), &buffers)
                    });
                match outcome {
                    Ok(false) => {
                        self.peer(peer).streams.push_front(stream);
                        return Progress::Blocked;
                    }
                    Ok(true) if is_last => self.was_read(peer, length as usize),
                    Ok(true) => {
                        *sent += now;
                        self.peer(peer).streams.push_back(stream);
                    }
                    // It was revoked meanwhile.
                    Err(errno) => self.reply(shared, peer, id, Err(errno)),
                }
            }
        }
        Progress::Finished
    }
}

/// Bytes of a fragment's payload.
pub(super) fn payload(peer: &Peer) -> usize {
    peer.link.fragment().saturating_sub(MAX_HEAD).max(1)
}

/// Sends as much of a job as there is room for.
fn send(shared: &mut Shared, peer: &Peer, job: &mut Job, left: &mut u32) -> Progress {
    let most = payload(peer);
    loop {
        if *left == 0 {
            return Progress::OutOfTurn;
        }
        *left -= 1;
        let (is_sent, is_finished) = match job {
            Job::Head(head) => (peer.link.try_send(shared, head.bytes(), &[]), true),
            Job::Copied(bytes, _) => (peer.link.try_send(shared, bytes, &[]), true),
            Job::Message { head, buffers, sent, .. } => {
                let part = buffers.part(*sent, most);
                let rest = Head::rest();
                let head = if *sent == 0 { head.bytes() } else { rest.bytes() };
                let is_sent = peer.link.try_send_buffers(shared, head, &part);
                if is_sent {
                    *sent += part.len();
                }
                (is_sent, *sent == buffers.len())
            }
            Job::Write { id, remote: Remote { key, offset }, buffers, sent, data } => {
                let part = buffers.part(*sent, most);
                let is_last = *sent + part.len() == buffers.len();
                let offset = offset.wrapping_add(*sent as u64);
                let head = Head::write(*id, *key, offset, data.filter(|_| is_last), is_last);
                let is_sent = peer.link.try_send_buffers(shared, head.bytes(), &part);
                if is_sent {
                    *sent += part.len();
                }
                (is_sent, is_last)
            }
            Job::Atomic(atomic) => send_atomic(shared, peer, atomic, most),
        };
        match (is_sent, is_finished) {
            (false, _) => return Progress::Blocked,
            (true, true) => return Progress::Finished,
            (true, false) => {}
        }
    }
}

/// Sends elements of an atomic operation. Returns whether it did, and whether they were the last ones.
fn send_atomic(shared: &mut Shared, peer: &Peer, atomic: &mut AtomicJob, most: usize) -> (bool, bool) {
    let size = atomic.size;
    let arrays = usize::from(!atomic.operands.is_empty()) + usize::from(!atomic.compare.is_empty());
    let all = atomic.element.count as usize;
    let count = (most / (size * arrays.max(1))).clamp(1, all - atomic.sent);
    let is_last = atomic.sent + count == all;
    let offset = atomic.remote.offset.wrapping_add((atomic.sent * size) as u64);
    let element = Element { count: count as u32, ..atomic.element };
    let head = Head::atomic(atomic.id, atomic.remote.key, offset, element, atomic.fetches, is_last);
    let range = atomic.sent * size..(atomic.sent + count) * size;
    let part = |bytes: &'_ Vec<u8>| -> std::ops::Range<usize> {
        if bytes.is_empty() { 0..0 } else { range.clone() }
    };
    let (operands, compare) = (part(&atomic.operands), part(&atomic.compare));
    let parts = [&atomic.operands[operands], &atomic.compare[compare]];
    let is_sent = peer.link.try_send(shared, head.bytes(), &parts);
    if is_sent {
        atomic.sent += count;
    }
    (is_sent, is_last)
}
