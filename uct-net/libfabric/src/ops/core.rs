//! The calls of the engine that all functions of the data path come down to, and what flags mean.

use crate::abi::*;
use crate::boundary::Outcome;
use crate::engine::{Atomic, DataType, Errno, Mode, Operation, Peek, PeekAction, Receive, Remote, Rma, Send};
use crate::objects::endpoint::{Endpoint, Live};

/// Flags of a transmit. `FI_MORE` changes nothing, and completion levels below `FI_DELIVERY_COMPLETE` are always met.
const TRANSMIT: u64 = FI_COMPLETION
    | FI_MORE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA;
/// Flags of a receive.
const RECEIVE: u64 = FI_COMPLETION | FI_MORE | FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;

const MODE: Mode = Mode { is_reported: false, inject: false, delivery: false };
const REMOTE: Remote = Remote { key: 0, offset: 0 };
/// Nothing of a message, for functions to fill in what they have.
pub const SEND: Send<'static> = Send { to: 0, buffers: &[], tag: None, data: None, context: 0, mode: MODE };
/// The same of a receive.
pub const RECV: Receive<'static> =
    Receive { from: None, buffers: &[], tag: None, context: 0, is_reported: false };
/// The same of a write or a read.
pub const ACCESS: Rma<'static> =
    Rma { to: 0, buffers: &[], remote: REMOTE, data: None, context: 0, mode: MODE };
/// The same of an atomic operation.
pub const UPDATE: Atomic<'static> = Atomic {
    to: 0,
    operands: &[],
    compare: &[],
    results: &[],
    remote: REMOTE,
    data_type: DataType::Uint64,
    operation: Operation::Sum,
    count: 0,
    context: 0,
    mode: MODE,
};

/// Where the flags of an operation come from.
#[derive(Clone, Copy)]
pub enum Flags {
    /// The endpoint's default.
    Default,
    /// The program has passed them.
    Given(u64),
    /// The bytes are copied, and there is no completion.
    Inject,
}

impl Flags {
    /// The data of a message, of which the flags say whether there are any.
    pub fn data(self, data: u64) -> Option<u64> {
        matches!(self, Flags::Given(flags) if flags & FI_REMOTE_CQ_DATA != 0).then_some(data)
    }

    #[inline]
    fn mode(self, endpoint: &Endpoint, live: &Live) -> Outcome<Mode> {
        let flags = match self {
            Flags::Default => endpoint.transmit_flags(),
            Flags::Given(flags) => flags,
            Flags::Inject => return Ok(Mode { inject: true, ..MODE }),
        };
        if flags & !TRANSMIT != 0 {
            return Err(Errno(EBADFLAGS));
        }
        Ok(Mode {
            is_reported: live.reports_transmits || flags & FI_COMPLETION != 0,
            inject: flags & FI_INJECT != 0,
            delivery: flags & FI_DELIVERY_COMPLETE != 0,
        })
    }
}

/// Sends a message.
#[inline]
pub fn send(endpoint: &Endpoint, flags: Flags, mut send: Send<'_>) -> Outcome<usize> {
    let live = endpoint.live()?;
    send.mode = flags.mode(endpoint, live)?;
    live.engine.send(&send).map(|()| 0)
}

/// Writes to a region of a peer.
#[inline]
pub fn write(endpoint: &Endpoint, flags: Flags, rma: Rma<'_>) -> Outcome<usize> {
    let live = endpoint.live()?;
    live.engine.write(&Rma { mode: flags.mode(endpoint, live)?, ..rma }).map(|()| 0)
}

/// Reads from a region of a peer.
#[inline]
pub fn read(endpoint: &Endpoint, flags: Flags, rma: Rma<'_>) -> Outcome<usize> {
    let live = endpoint.live()?;
    live.engine.read(&Rma { mode: flags.mode(endpoint, live)?, ..rma }).map(|()| 0)
}

/// Updates elements of a region of a peer.
#[inline]
pub fn atomic(endpoint: &Endpoint, flags: Flags, atomic: Atomic<'_>) -> Outcome<usize> {
    let live = endpoint.live()?;
    live.engine.atomic(&Atomic { mode: flags.mode(endpoint, live)?, ..atomic }).map(|()| 0)
}

/// Posts a receive, or looks at what has arrived, as the flags say. `from` counts only for an endpoint with directed receives.
#[inline]
pub fn receive(
    endpoint: &Endpoint,
    flags: Flags,
    from: fi_addr_t,
    mut receive: Receive<'_>,
) -> Outcome<usize> {
    let live = endpoint.live()?;
    let flags = match flags {
        Flags::Given(flags) => flags,
        _ => endpoint.receive_flags(),
    };
    if flags & !RECEIVE != 0 {
        return Err(Errno(EBADFLAGS));
    }
    receive.from = (live.is_directed && from != FI_ADDR_UNSPEC).then_some(from);
    receive.is_reported = live.reports_receives || flags & FI_COMPLETION != 0;
    if flags & (FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD) == 0 {
        return live.engine.receive(&receive).map(|()| 0);
    }
    special(endpoint, live, flags, &receive).map(|()| 0)
}

fn special(endpoint: &Endpoint, live: &Live, flags: u64, receive: &Receive<'_>) -> Outcome {
    const PEEK_CLAIM: u64 = FI_PEEK | FI_CLAIM;
    const PEEK_DISCARD: u64 = FI_PEEK | FI_DISCARD;
    const CLAIM_DISCARD: u64 = FI_CLAIM | FI_DISCARD;
    let Receive { from, tag, context, .. } = *receive;
    let peek = |action| live.engine.peek(&Peek { from, tag, context, action });
    match flags & (FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD) {
        FI_PEEK => peek(PeekAction::Look),
        PEEK_CLAIM => peek(PeekAction::Claim),
        PEEK_DISCARD => peek(PeekAction::Discard),
        FI_CLAIM => live.engine.claim(receive, false),
        CLAIM_DISCARD => live.engine.claim(receive, true),
        FI_MULTI_RECV if tag.is_none() => live.engine.receive_many(receive, endpoint.minimum()),
        _ => Err(Errno(EBADFLAGS)),
    }
}
