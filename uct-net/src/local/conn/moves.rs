//! Transfers under way: blocks are handed to the transport in groups, each with one completion, as fast as it takes them and a few at a time, so
//! that other connections have their turn.
//!
//! When what is sent next, and when it is over, is decided by [`Course`]. A group one of whose operations has failed is posted again block
//! by block, which shows which of them fail: a put or get may be repeated.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use ucs::Error as Status;
use uct_host::attach::TransferReport;
use uct_host::{Block as Piece, Completion, Memory, Worker};

use super::super::lane::Lane;
use super::super::remote_memory::{RemoteMemory, invalid_key};
use super::Conn;
use super::state::Ticket;
use crate::error::Error;
use crate::proto::course::{Course, Step};
use crate::proto::envelope::Kind;
use crate::transfer::{Blocks, Direction, Moved, Receipt, mark};

/// Longest data of a notification, in bytes.
pub(crate) const MAX_NOTICE: usize = 1024;
/// Most operations, and about how many bytes, that a connection starts before others have their turn.
const TURN: usize = 64;
const TURN_BYTES: usize = 256 << 10;
/// Most blocks of a group.
const GROUP: usize = 64;
/// Most groups in flight, and about how many bytes: what keeps a lane busy. More would only fall out of the caches meanwhile.
const GROUPS: usize = 16;
const IN_FLIGHT: usize = 2 << 20;

/// Blocks between one local and one remote memory. The blocks are within both.
pub(crate) struct Part {
    pub(crate) memory: Memory,
    pub(crate) remote: RemoteMemory,
    pub(crate) blocks: Blocks,
}

/// A transfer, under way or over.
pub(crate) struct Moves {
    direction: Direction,
    parts: Vec<Part>,
    /// Number of all blocks.
    total: usize,
    notice: Option<Vec<u8>>,
    over: Arc<str>,
    /// Most bytes of an operation.
    most: usize,
    running: RefCell<Running>,
}

struct Running {
    course: Course,
    /// The next block that was never posted.
    next: Cursor,
    groups: SmallVec<[Group; GROUPS]>,
    /// The group that is being filled.
    open: Option<usize>,
    in_flight: usize,
    /// Blocks of groups that failed.
    again: Vec<usize>,
    /// A bit for each block that has moved.
    moved: Vec<u64>,
    failed: Vec<(usize, Status)>,
    /// Why the first block failed, or why the connection has.
    error: Option<Error>,
    notice: Option<Ticket>,
    begun: Instant,
    posted: Duration,
    /// Once it is over.
    elapsed: Option<Duration>,
    waker: Option<Waker>,
}

/// A block of a part, and what of it was posted already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    part: usize,
    /// In the part.
    block: usize,
    /// In the transfer.
    number: usize,
    /// In the block.
    offset: u64,
}

/// Blocks with one completion.
struct Group {
    completion: Completion,
    first: usize,
    /// Behind the last block, as far as it was filled.
    cursor: Cursor,
    /// Where it ends at the latest.
    limit: usize,
    is_again: bool,
    state: Filling,
    bytes: usize,
    refused: Option<Status>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Filling {
    Free,
    Open,
    Closed,
}

/// What filling a group came to.
enum Filled {
    /// It goes on.
    Some,
    /// All groups are in flight.
    Full,
    /// The transport has no room.
    NoRoom,
}

type Pieces = [Piece; TURN];

/// Operations that go to the transport by one call.
struct Batch {
    operations: usize,
    bytes: usize,
    /// The place behind the last.
    behind: Cursor,
}

/// What a transfer still may do in this turn.
struct Turn {
    operations: usize,
    bytes: usize,
}

impl Moves {
    pub(crate) fn new(
        direction: Direction,
        parts: Vec<Part>,
        notice: Option<Vec<u8>>,
        over: Arc<str>,
        most: usize,
    ) -> Moves {
        let total = parts.iter().map(|part| part.blocks.len()).sum();
        let running = RefCell::new(Running::new(total, notice.is_some()));
        // A long one would keep others waiting.
        Moves { direction, parts, total, notice, over, most: most.min(TURN_BYTES), running }
    }

    /// Makes it ready to move the same blocks once more. It is over.
    pub(crate) fn reset(&self) {
        self.running.borrow_mut().reset(self.total, self.notice.is_some());
    }

    /// Number of blocks that have moved.
    pub(crate) fn count(&self) -> usize {
        self.running.borrow().course.count()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.running.borrow().elapsed.is_some()
    }

    /// Begins no further block, and does not notify.
    pub(crate) fn stop(&self) {
        self.running.borrow_mut().course.stop();
    }

    /// What became of each block.
    pub(crate) fn outcome(&self) -> Moved {
        let running = self.running.borrow();
        Moved::new(self.total, &running.moved, &running.failed)
    }

    /// Whether it is over; registers the caller if not.
    pub(crate) fn poll_over(&self, context: &Context<'_>) -> Poll<()> {
        let mut running = self.running.borrow_mut();
        if running.elapsed.is_some() {
            return Poll::Ready(());
        }
        running.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// What it came to. It is over. `cancelled` is the error if nothing else prevented blocks.
    pub(crate) fn result(&self, cancelled: impl FnOnce() -> Error) -> Result<Receipt, Error> {
        let running = self.running.borrow();
        let stopped = || running.course.is_stopped().then(cancelled);
        if let Some(error) = running.error.clone().or_else(stopped) {
            let reason =
                format!("{} of {} blocks moved: {}", running.course.count(), self.total, error.reason);
            return Err(Error { reason, ..error });
        }
        Ok(Receipt {
            over: Arc::clone(&self.over),
            blocks: self.total,
            bytes: self.parts.iter().map(|part| part.blocks.bytes()).sum(),
            posted: running.posted,
            elapsed: running.elapsed.unwrap_or_default(),
        })
    }

    /// How far it is.
    pub(super) fn report(&self) -> TransferReport {
        let running = self.running.borrow();
        TransferReport {
            kind: match self.direction {
                Direction::Get => "get",
                Direction::Put => "put",
            }
            .to_owned(),
            blocks: self.total as u64,
            bytes: self.parts.iter().map(|part| part.blocks.bytes()).sum(),
            moved: running.course.count() as u64,
            age_ns: u64::try_from(running.begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Goes on as far as this turn permits. Returns whether it has something to do in the next one. Not to be called inside a transport.
    fn pump(self: &Rc<Moves>, conn: &Rc<Conn>, lane: &Lane, turn: &mut Turn) -> bool {
        loop {
            let mut running = self.running.borrow_mut();
            if running.elapsed.is_some() {
                return false;
            }
            if let Some(failure) = conn.failure() {
                running.lose(failure);
            }
            running.collect(lane, conn);
            let goes_on = running.has_begun() && !running.course.is_stopped();
            let step = if goes_on { Step::Post } else { running.course.next() };
            match step {
                Step::Post if turn.is_over() => return true,
                Step::Post => match running.fill(self, conn, lane, turn) {
                    Filled::Some => {}
                    Filled::Full => return false,
                    Filled::NoRoom => return !conn.wait_for_transport(lane),
                },
                Step::Notify => {
                    running.course.notice_sent();
                    drop(running);
                    self.notify(conn, lane);
                }
                Step::Wait => {
                    let Some(ticket) = running.notice else { return false };
                    match conn.has_left(ticket) {
                        Ok(true) => running.course.notice_left(),
                        Ok(false) => return false,
                        Err(error) => running.lose(error),
                    }
                }
                Step::End => {
                    running.elapsed = Some(running.begun.elapsed());
                    let waker = running.waker.take();
                    drop(running);
                    conn.agenda.wake_later(waker);
                    return false;
                }
            }
        }
    }

    /// Queues the notification of the peer.
    fn notify(&self, conn: &Rc<Conn>, lane: &Lane) {
        // What the transports order by themselves needs none; one that is refused has failed, as the message will.
        let _ = lane.ep.fence();
        let queued = conn.queue(Kind::Notify, self.notice.clone().unwrap_or_default());
        let mut running = self.running.borrow_mut();
        match queued {
            Ok(ticket) => running.notice = Some(ticket),
            Err(error) => running.lose(error),
        }
    }

    /// The block of that number, as a place to begin.
    fn find(&self, number: usize) -> Cursor {
        let mut block = number;
        for (part, blocks) in self.parts.iter().map(|part| part.blocks.len()).enumerate() {
            if block < blocks {
                return Cursor { part, block, number, offset: 0 };
            }
            block -= blocks;
        }
        self.after(Cursor { number, ..Cursor::default() })
    }

    /// The same place, in the part that it is in: behind the last block of one is the first of the next.
    fn after(&self, mut cursor: Cursor) -> Cursor {
        while cursor.part + 1 < self.parts.len() && cursor.block >= self.parts[cursor.part].blocks.len() {
            cursor = Cursor { part: cursor.part + 1, block: 0, ..cursor };
        }
        cursor
    }

    /// The next operations from a place on, of one part and ahead of block `limit`: at most `most` of them, and about so many bytes.
    fn batch(&self, from: Cursor, limit: usize, most: usize, bytes: usize, pieces: &mut Pieces) -> Batch {
        let Part { remote, blocks, .. } = &self.parts[from.part];
        let (base, longest) = (remote.address(), self.most);
        let (mut number, mut offset, mut moved) = (from.number, from.offset, 0);
        let (mut free, mut last) = (pieces[..most].iter_mut(), None::<&mut Piece>);
        blocks.each(from.block..from.block + (limit - number), |block| {
            loop {
                let left = block.length - offset;
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(longest);
                // The blocks are within both memories.
                let local = (block.local + offset) as usize;
                let at = base + block.remote + offset;
                match &mut last {
                    // Its neighbour.
                    Some(last)
                        if last.local + last.length == local
                            && last.remote + last.length as u64 == at
                            && last.length + length <= longest =>
                    {
                        last.length += length;
                    }
                    // Nothing to move.
                    _ if length == 0 => {}
                    last => {
                        let Some(piece) = free.next() else { return ControlFlow::Break(()) };
                        *piece = Piece { local, remote: at, length };
                        *last = Some(piece);
                    }
                }
                moved += length;
                let is_whole = length as u64 == left;
                (number, offset) = if is_whole { (number + 1, 0) } else { (number, offset + length as u64) };
                if moved >= bytes {
                    return ControlFlow::Break(());
                }
                if is_whole {
                    return ControlFlow::Continue(());
                }
            }
        });
        let block = from.block + (number - from.number);
        let behind = Cursor { part: from.part, block, number, offset };
        Batch { operations: most - free.len(), bytes: moved, behind }
    }
}

impl Running {
    fn new(total: usize, notifies: bool) -> Running {
        Running {
            course: Course::new(total, notifies),
            next: Cursor::default(),
            groups: SmallVec::new(),
            open: None,
            in_flight: 0,
            again: Vec::new(),
            moved: vec![0; total.div_ceil(64)],
            failed: Vec::new(),
            error: None,
            notice: None,
            begun: Instant::now(),
            posted: Duration::ZERO,
            elapsed: None,
            waker: None,
        }
    }

    /// As it was when it was made, with the memory that it has. Nothing is in flight.
    fn reset(&mut self, total: usize, notifies: bool) {
        self.course = Course::new(total, notifies);
        self.next = Cursor::default();
        self.again.clear();
        self.moved.fill(0);
        self.failed.clear();
        self.error = None;
        self.notice = None;
        self.begun = Instant::now();
        self.posted = Duration::ZERO;
        self.elapsed = None;
    }

    /// Neither the rest nor the notification can be sent.
    fn lose(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.course.stop();
    }

    /// Whether a block that counts as begun is to be posted.
    fn has_begun(&self) -> bool {
        self.open.is_some() || !self.again.is_empty()
    }

    /// Accounts for the groups that have ended.
    fn collect(&mut self, lane: &Lane, conn: &Conn) {
        if self.course.is_stopped() {
            self.course.failed(self.again.len());
            self.again.clear();
        }
        for at in 0..self.groups.len() {
            let group = &mut self.groups[at];
            let is_left = self.course.is_stopped() && group.state == Filling::Open;
            let has_ended = (group.state == Filling::Closed || is_left) && group.completion.is_done();
            if !has_ended {
                continue;
            }
            let outcome = match group.refused.take() {
                Some(refused) => Err(refused),
                // What was left in the middle of a block has not moved it.
                None if group.cursor.offset > 0 => Err(Status::CANCELED),
                None => group.completion.result(),
            };
            // Nothing is outstanding.
            let _ = group.completion.reset();
            group.state = Filling::Free;
            self.in_flight -= std::mem::take(&mut group.bytes);
            let end = group.cursor.number + usize::from(group.cursor.offset > 0);
            let (blocks, is_again) = (group.first..end, group.is_again);
            if is_left {
                self.open = None;
            }
            match outcome {
                Ok(()) => {
                    self.course.moved(blocks.len());
                    mark(&mut self.moved, blocks);
                }
                Err(status) => self.group_failed(blocks, is_again, status, lane, conn),
            }
        }
    }

    fn group_failed(
        &mut self,
        blocks: Range<usize>,
        is_again: bool,
        status: Status,
        lane: &Lane,
        conn: &Conn,
    ) {
        let has_failed = lane.ep.failure().is_some();
        if !is_again && !has_failed && !self.course.is_stopped() && blocks.len() > 1 {
            self.again.extend(blocks.rev());
            return;
        }
        self.course.failed(blocks.len());
        if !(self.course.is_stopped() && status == Status::CANCELED) {
            self.error.get_or_insert_with(|| conn.refused_block(blocks.start, status));
            self.failed.extend(blocks.map(|number| (number, status)));
        }
        if has_failed {
            self.course.stop();
        }
    }

    /// Hands further operations to the transport.
    fn fill(&mut self, moves: &Moves, conn: &Rc<Conn>, lane: &Lane, turn: &mut Turn) -> Filled {
        let Some(at) = self.open.or_else(|| self.open_group(moves, conn)) else { return Filled::Full };
        self.open = Some(at);
        let group = &mut self.groups[at];
        if self.in_flight >= IN_FLIGHT {
            if !group.completion.is_done() {
                return Filled::Full;
            }
            self.in_flight -= std::mem::take(&mut group.bytes);
        }
        let mut pieces = [Piece { local: 0, remote: 0, length: 0 }; TURN];
        let (before, limit, most) = (group.cursor, group.limit, turn.bytes);
        let mut batch = moves.batch(before, limit, turn.operations.min(TURN), most, &mut pieces);
        let operations = batch.operations;
        let part = &moves.parts[before.part];
        let (memory, key, wanted) = (&part.memory, part.remote.key(), &pieces[..operations]);
        let posted = match moves.direction {
            _ if operations == 0 => None,
            Direction::Get => Some(lane.ep.get_blocks(memory, key, wanted, &group.completion)),
            Direction::Put => Some(lane.ep.put_blocks(memory, key, wanted, &group.completion)),
        };
        let (started, refused) = match posted {
            None => (0, None),
            Some(Ok(posted)) => (posted.started, posted.refused),
            Some(Err(status)) => (0, Some(status)),
        };
        if started < operations {
            batch = moves.batch(before, limit, started, most, &mut pieces);
        }
        if let Some(status) = refused.filter(|status| *status != Status::NO_RESOURCE) {
            // The group is over with the blocks of this operation.
            group.refused = Some(status);
            let end = moves.batch(before, limit, started + 1, most, &mut pieces).behind;
            let next = Cursor { block: end.block + 1, number: end.number + 1, offset: 0, ..end };
            batch.behind = if end.offset > 0 { next } else { end };
            group.limit = batch.behind.number;
        }
        group.cursor = batch.behind;
        group.bytes += batch.bytes;
        self.in_flight += batch.bytes;
        turn.operations = turn.operations.saturating_sub(operations.max(1));
        turn.bytes = turn.bytes.saturating_sub(batch.bytes);
        let count = |cursor: Cursor| cursor.number + usize::from(cursor.offset > 0);
        let is_full = group.cursor.number >= group.limit && group.cursor.offset == 0;
        if is_full {
            group.state = Filling::Closed;
            self.open = None;
        }
        let (begun, is_again, cursor) = (count(group.cursor) - count(before), group.is_again, group.cursor);
        if !is_again {
            self.course.begin(begun);
            self.next = moves.after(cursor);
            if cursor.number == moves.total {
                self.posted = self.begun.elapsed();
            }
        }
        if refused == Some(Status::NO_RESOURCE) { Filled::NoRoom } else { Filled::Some }
    }

    /// Begins a group, of a block that is posted again or else of the next ones.
    fn open_group(&mut self, moves: &Moves, conn: &Rc<Conn>) -> Option<usize> {
        if self.in_flight >= IN_FLIGHT {
            return None;
        }
        let at = match self.groups.iter().position(|group| group.state == Filling::Free) {
            Some(at) => at,
            None if self.groups.len() == GROUPS => return None,
            None => {
                self.groups.push(Group::new(conn));
                self.groups.len() - 1
            }
        };
        let again = self.again.pop();
        let cursor = again.map_or(self.next, |number| moves.find(number));
        let behind = cursor.number - cursor.block + moves.parts[cursor.part].blocks.len();
        let most = if again.is_some() { 1 } else { GROUP };
        let group = &mut self.groups[at];
        group.first = cursor.number;
        group.cursor = cursor;
        group.limit = behind.min(cursor.number + most);
        group.is_again = again.is_some();
        group.state = Filling::Open;
        Some(at)
    }
}

impl Group {
    fn new(conn: &Rc<Conn>) -> Group {
        let weak = Rc::downgrade(conn);
        let worker: &Worker = &conn.large.worker;
        let completion = Completion::with_callback(worker, move |_result| {
            if let Some(conn) = weak.upgrade() {
                conn.become_due();
            }
        });
        Group {
            completion,
            first: 0,
            cursor: Cursor::default(),
            limit: 0,
            is_again: false,
            state: Filling::Free,
            bytes: 0,
            refused: None,
        }
    }
}

impl Turn {
    fn is_over(&self) -> bool {
        self.operations == 0 || self.bytes == 0
    }
}

impl Conn {
    /// Starts a transfer.
    pub(crate) fn start(self: &Rc<Conn>, moves: &Rc<Moves>) {
        self.moves.borrow_mut().push_back(Rc::clone(moves));
        self.pump_moves();
    }

    pub(super) fn has_moves(&self) -> bool {
        !self.moves.borrow().is_empty()
    }

    /// Goes on with the transfers, each for its share of a turn. Not to be called inside a transport.
    pub(crate) fn pump_moves(self: &Rc<Conn>) {
        let Some(lane) = self.lane.get() else { return };
        let count = self.moves.borrow().len();
        let mut is_due = false;
        for _ in 0..count {
            // It stays in the queue: a failure that it meets has it go on once more.
            let Some(moves) = self.moves.borrow().front().cloned() else { break };
            let mut turn = Turn { operations: TURN.div_ceil(count), bytes: TURN_BYTES.div_ceil(count) };
            if self.waits_for_room.get() {
                turn = Turn { operations: 0, bytes: 0 };
            }
            let goes_on = moves.pump(self, lane, &mut turn);
            is_due |= goes_on && !self.waits_for_room.get();
            let mut queue = self.moves.borrow_mut();
            queue.pop_front();
            if !moves.is_over() {
                queue.push_back(moves);
            }
        }
        if is_due {
            self.become_due();
        }
        self.agenda.rouse();
    }

    /// Whether it has neither failed nor been closed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.state.borrow().check_sendable(&self.peer)
    }

    fn failure(&self) -> Option<Error> {
        self.state.borrow().failure.clone()
    }

    /// The error of a block that has not moved.
    fn refused_block(&self, number: usize, status: Status) -> Error {
        let error = |reason| Error::new(crate::Stage::Connected, &*self.peer, status, reason);
        match self.lane.get().and_then(|lane| lane.ep.failure()) {
            Some(failure) => error(failure.to_string()),
            None if status == Status::INVALID_PARAM => {
                let error = invalid_key(&self.peer);
                Error { reason: format!("block {number}: {}", error.reason), ..error }
            }
            None => error(format!("block {number}: {status}")),
        }
    }
}
