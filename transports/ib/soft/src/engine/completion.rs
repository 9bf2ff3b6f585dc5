//! Completions, and the queues that hold them.
//!
//! For queue pairs, and for polls of the application.

use std::collections::VecDeque;

use super::wire::Extra;

/// How a request ended. The numbers are those of the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Success = 0,
    /// A receive buffer is too short, or a message too long.
    LocalLength = 1,
    /// The queue pair cannot do this.
    LocalOperation = 2,
    /// The end-to-end context cannot do this.
    LocalEecOperation = 3,
    /// A local key, range or permission is wrong.
    LocalProtection = 4,
    /// Never executed, because the queue pair failed.
    Flushed = 5,
    /// Memory-window binding failed.
    MemoryWindowBind = 6,
    /// The responder's answer makes no sense.
    BadResponse = 7,
    /// Local memory cannot be accessed.
    LocalAccess = 8,
    /// The responder does not serve this request.
    RemoteInvalidRequest = 9,
    /// The responder refuses the access.
    RemoteAccess = 10,
    /// The responder failed.
    RemoteOperation = 11,
    /// The responder does not answer.
    RetryExceeded = 12,
    /// The responder has no receive buffer.
    RnrRetryExceeded = 13,
    /// The local end-to-end context is in the wrong state.
    LocalRddViolation = 14,
    /// The responder's reliable datagram domain is another one.
    RemoteInvalidRdRequest = 15,
    /// The responder aborted the operation.
    RemoteAborted = 16,
    /// The end-to-end context has an invalid number.
    InvalidEecn = 17,
    /// The end-to-end context is in an invalid state.
    InvalidEecState = 18,
    /// The device failed.
    Fatal = 19,
    /// The response took too long.
    ResponseTimeout = 20,
    /// Another failure.
    General = 21,
    /// Tag matching failed.
    TagMatching = 22,
    /// Software has to complete a rendezvous of tag matching.
    TagRendezvous = 23,
}

impl Status {
    /// Each failure, with the verbs' name without `IBV_WC_`.
    pub const FAILURES: &[(Status, &str)] = &[
        (Status::LocalLength, "LOC_LEN_ERR"),
        (Status::LocalOperation, "LOC_QP_OP_ERR"),
        (Status::LocalEecOperation, "LOC_EEC_OP_ERR"),
        (Status::LocalProtection, "LOC_PROT_ERR"),
        (Status::Flushed, "WR_FLUSH_ERR"),
        (Status::MemoryWindowBind, "MW_BIND_ERR"),
        (Status::BadResponse, "BAD_RESP_ERR"),
        (Status::LocalAccess, "LOC_ACCESS_ERR"),
        (Status::RemoteInvalidRequest, "REM_INV_REQ_ERR"),
        (Status::RemoteAccess, "REM_ACCESS_ERR"),
        (Status::RemoteOperation, "REM_OP_ERR"),
        (Status::RetryExceeded, "RETRY_EXC_ERR"),
        (Status::RnrRetryExceeded, "RNR_RETRY_EXC_ERR"),
        (Status::LocalRddViolation, "LOC_RDD_VIOL_ERR"),
        (Status::RemoteInvalidRdRequest, "REM_INV_RD_REQ_ERR"),
        (Status::RemoteAborted, "REM_ABORT_ERR"),
        (Status::InvalidEecn, "INV_EECN_ERR"),
        (Status::InvalidEecState, "INV_EEC_STATE_ERR"),
        (Status::Fatal, "FATAL_ERR"),
        (Status::ResponseTimeout, "RESP_TIMEOUT_ERR"),
        (Status::General, "GENERAL_ERR"),
        (Status::TagMatching, "TM_ERR"),
        (Status::TagRendezvous, "TM_RNDV_INCOMPLETE"),
    ];
}

/// What a completion is of. The numbers are those of the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Opcode {
    /// A send.
    Send = 0,
    /// An RDMA WRITE.
    Write = 1,
    /// An RDMA READ.
    Read = 2,
    /// A compare-and-swap.
    CompareSwap = 3,
    /// A fetch-and-add.
    FetchAdd = 4,
    /// A receive.
    Receive = 128,
    /// A receive request that immediate data of an RDMA WRITE used up.
    ReceiveWrite = 129,
}

/// The header in front of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
    /// 20 bytes of zero, and that of IPv4.
    V4,
    /// That of IPv6.
    V6,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The application's word.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: Opcode,
    /// Bytes received or read.
    pub length: u32,
    /// What came with the last packet.
    pub extra: Extra,
    /// The queue pair it was posted to.
    pub qp: u32,
    /// The queue pair that a datagram came from.
    pub source_qp: u32,
    /// Which header the 40 bytes at the begin of the buffer are, if they are there.
    pub route: Option<RouteKind>,
}

impl Completion {
    /// A completion without details.
    pub fn new(qp: u32, wr_id: u64, status: Status, opcode: Opcode) -> Completion {
        Completion { wr_id, status, opcode, length: 0, extra: Extra::None, qp, source_qp: 0, route: None }
    }
}

/// Which completion is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Armed {
    /// None.
    #[default]
    No,
    /// The next solicited one, or the next that failed.
    Solicited,
    /// The next.
    Any,
}

/// What follows from a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// Nothing.
    Silent,
    /// It is announced on the queue's channel.
    Announced,
    /// There is no room, and the queue fails now.
    Overrun,
    /// The queue has failed before.
    Lost,
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: VecDeque<Completion>,
    capacity: usize,
    armed: Armed,
    is_overrun: bool,
    /// Queue pairs that use it.
    pub(super) users: usize,
}

impl CompletionQueue {
    /// A queue for so many completions.
    pub fn new(capacity: usize) -> CompletionQueue {
        CompletionQueue { entries: VecDeque::new(), capacity, armed: Armed::No, is_overrun: false, users: 0 }
    }

    /// Adds one.
    pub fn push(&mut self, completion: Completion, is_solicited: bool) -> Pushed {
        if self.is_overrun {
            return Pushed::Lost;
        }
        if self.entries.len() == self.capacity {
            self.is_overrun = true;
            return Pushed::Overrun;
        }
        self.entries.push_back(completion);
        let is_wanted = match self.armed {
            Armed::No => false,
            Armed::Solicited => is_solicited || completion.status != Status::Success,
            Armed::Any => true,
        };
        if is_wanted {
            self.armed = Armed::No;
            Pushed::Announced
        } else {
            Pushed::Silent
        }
    }

    /// Takes the oldest.
    pub fn poll(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }

    /// Asks for an announcement. The wider of two requests holds.
    pub fn arm(&mut self, only_solicited: bool) {
        self.armed = match (self.armed, only_solicited) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            _ => Armed::Solicited,
        };
    }

    /// Forgets the completions of a queue pair, as its reset and its end do.
    pub fn forget(&mut self, qp: u32) {
        self.entries.retain(|completion| completion.qp != qp);
    }

    /// It fails as for lack of room. Whether it had not before.
    pub fn overrun(&mut self) -> bool {
        !std::mem::replace(&mut self.is_overrun, true)
    }

    /// Whether it failed for lack of room.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(status: Status) -> Completion {
        Completion::new(1, 2, status, Opcode::Send)
    }

    #[test]
    fn announcements_follow_what_was_asked_for() {
        let mut queue = CompletionQueue::new(16);
        assert_eq!(queue.push(one(Status::Success), true), Pushed::Silent);
        queue.arm(true);
        assert_eq!(queue.push(one(Status::Success), false), Pushed::Silent);
        assert_eq!(queue.push(one(Status::Success), true), Pushed::Announced);
        assert_eq!(queue.push(one(Status::Success), true), Pushed::Silent, "an announcement is for one");
        queue.arm(true);
        assert_eq!(queue.push(one(Status::Flushed), false), Pushed::Announced, "failures are solicited");
        queue.arm(false);
        queue.arm(true);
        assert_eq!(queue.push(one(Status::Success), false), Pushed::Announced, "the wider request holds");
    }

    #[test]
    fn a_full_queue_fails_once() {
        let mut queue = CompletionQueue::new(1);
        assert_eq!(queue.push(one(Status::Success), false), Pushed::Silent);
        assert_eq!(queue.push(one(Status::Success), false), Pushed::Overrun);
        assert_eq!(queue.push(one(Status::Success), false), Pushed::Lost);
        assert!(queue.poll().is_some() && queue.poll().is_none() && queue.is_overrun());
    }
}
