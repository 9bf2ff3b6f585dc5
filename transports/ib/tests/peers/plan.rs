//! What a session does, made of a seed, and what the specification says of how it ends.

use fastrand::Rng;

/// Operations of a session, at most.
pub const MOST: usize = 8;
/// Bytes that an operation has for itself in each part of the memory.
pub const SLOT: usize = 4096;
/// Bytes of a region: what is sent from, what results go to, what the peer's requests name, receive buffers.
pub const SIZE: usize = 4 * MOST * SLOT;

/// Memory by what a peer may do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Region {
    Open,
    Readable,
    Writable,
}

impl Region {
    pub const ALL: [Region; 3] = [Region::Open, Region::Readable, Region::Writable];
}

/// The parts of the memory.
#[derive(Clone, Copy)]
pub enum Part {
    Source,
    Result,
    Target,
    Receive,
}

pub fn place(part: Part, index: usize) -> usize {
    (part as usize * MOST + index) * SLOT
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Send { immediate: Option<u32> },
    Write,
    Read,
    Add(u64),
    Swap(u64, u64),
}

impl Kind {
    pub fn is_send(self) -> bool {
        matches!(self, Kind::Send { .. })
    }

    pub fn is_atomic(self) -> bool {
        matches!(self, Kind::Add(_) | Kind::Swap(..))
    }
}

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    RemoteKey,
    RemoteBounds,
    /// It names memory that the peer does not open to it.
    Forbidden,
    /// An atomic on an address that is no multiple of eight.
    Odd,
    LocalKey,
    LocalBounds,
    /// The receive buffer is a byte too short.
    TooLong,
    /// There is no receive buffer.
    NoReceive,
    /// The receive buffer has no valid key.
    ReceiveKey,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub kind: Kind,
    pub length: usize,
    /// 1 to 3.
    pub pieces: usize,
    pub is_inline: bool,
    pub is_fenced: bool,
    pub mistake: Option<Mistake>,
}

/// What is expected of a completion: request, name of the status, and of what succeeds its bytes and immediate data.
pub type Ended = (u64, &'static str, usize, Option<u32>);

#[derive(Clone, Debug)]
pub struct Plan {
    pub operations: Vec<Operation>,
    /// Receive buffers are posted when the sender has been at it for a moment.
    pub is_late: bool,
}

/// What the device that sends can do.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    pub atomics: bool,
    /// Atomics on odd addresses, for the peer to refuse.
    pub odd_atomics: bool,
    pub fences: bool,
    /// A request whose own memory is none ends alone, and what was sent before it ends as well.
    pub local_mistakes: bool,
    /// Not where packets are lost: a peer that has failed does not repeat an answer that was lost before.
    pub mistakes: bool,
}

impl Plan {
    /// A plan of what the sender can do.
    pub fn new(random: &mut Rng, can: Abilities) -> Plan {
        let count = random.usize(1..=MOST);
        let mut operations: Vec<Operation> = (0..count).map(|_| Operation::new(random, can)).collect();
        // Half of the sessions have nothing wrong; what is behind a mistake is never executed.
        if can.mistakes && random.bool() {
            let operation = &mut operations[random.usize(..count)];
            operation.go_wrong(random, can);
        }
        let is_late =
            random.u8(0..4) == 0 && !operations.iter().any(|it| it.mistake == Some(Mistake::NoReceive));
        Plan { operations, is_late }
    }

    /// The sends, with their places among all.
    pub fn sends(&self) -> impl Iterator<Item = (usize, &Operation)> {
        self.operations.iter().enumerate().filter(|(_, operation)| operation.kind.is_send())
    }

    /// The sends that have a receive buffer: those behind one that has none have none either.
    pub fn received(&self) -> impl Iterator<Item = (usize, &Operation)> {
        self.sends().take_while(|(_, operation)| operation.mistake != Some(Mistake::NoReceive))
    }
}

impl Operation {
    fn new(random: &mut Rng, can: Abilities) -> Operation {
        let kind = match random.u8(0..if can.atomics { 5 } else { 3 }) {
            0 => Kind::Send { immediate: random.bool().then(|| random.u32(..)) },
            1 => Kind::Write,
            2 => Kind::Read,
            3 => Kind::Add(random.u64(..)),
            // Half of them are equal: the memory is filled with such words.
            _ => Kind::Swap(if random.bool() { u64::from_ne_bytes([TARGET; 8]) } else { 1 }, random.u64(..)),
        };
        let is_inline = !kind.is_atomic() && kind != Kind::Read && random.u8(0..4) == 0;
        let any = random.usize(..SLOT);
        let length = match kind {
            _ if kind.is_atomic() => 8,
            _ if is_inline => random.usize(0..=64),
            _ => random.choice([0, 1, 1023, 1024, 1025, any, SLOT]).expect("one of them"),
        };
        let pieces = if kind.is_atomic() || length < 3 { 1 } else { random.usize(1..=3) };
        Operation {
            kind,
            length,
            pieces,
            is_inline,
            is_fenced: can.fences && random.u8(0..4) == 0,
            mistake: None,
        }
    }

    fn go_wrong(&mut self, random: &mut Rng, can: Abilities) {
        let remote = [Mistake::RemoteKey, Mistake::RemoteBounds, Mistake::Forbidden];
        let local = [Mistake::LocalKey, Mistake::LocalBounds];
        let send = [Mistake::TooLong, Mistake::NoReceive, Mistake::ReceiveKey];
        let own: &[Mistake] = match self.kind {
            Kind::Send { .. } => &send,
            Kind::Write | Kind::Read => &remote,
            Kind::Add(_) | Kind::Swap(..) if !can.odd_atomics => &remote,
            Kind::Add(_) | Kind::Swap(..) => &[remote[0], remote[1], remote[2], Mistake::Odd],
        };
        let local = if self.is_inline || !can.local_mistakes { &[][..] } else { &local };
        let mistake = random.choice([own, local].concat()).expect("one of them");
        // Of nothing, neither key nor bounds are looked at.
        if self.length == 0 {
            self.length = 1;
        }
        self.mistake = Some(mistake);
    }

    /// How it ends at the one who posts it, and what becomes of its receive buffer.
    fn ends(&self) -> (&'static str, &'static str) {
        match self.mistake {
            None => ("SUCCESS", "SUCCESS"),
            Some(Mistake::RemoteKey | Mistake::RemoteBounds | Mistake::Forbidden) => ("REM_ACCESS_ERR", ""),
            Some(Mistake::Odd) => ("REM_INV_REQ_ERR", ""),
            Some(Mistake::LocalKey | Mistake::LocalBounds) => ("LOC_PROT_ERR", "WR_FLUSH_ERR"),
            Some(Mistake::TooLong) => ("REM_INV_REQ_ERR", "LOC_LEN_ERR"),
            Some(Mistake::NoReceive) => ("RNR_RETRY_EXC_ERR", ""),
            Some(Mistake::ReceiveKey) => ("REM_OP_ERR", "LOC_PROT_ERR"),
        }
    }
}

/// What the parts of the memory hold before a session: no two equal, and results differ from what is there.
const RESULT: u8 = 0x11;
pub const TARGET: u8 = 0x22;
const RECEIVE: u8 = 0x33;

/// The open region of a side ahead of a session.
pub fn fresh(random: &mut Rng) -> Vec<u8> {
    let mut memory = vec![0; SIZE];
    for (part, byte) in [(Part::Result, RESULT), (Part::Target, TARGET), (Part::Receive, RECEIVE)] {
        let begin = place(part, 0);
        memory[begin..begin + MOST * SLOT].fill(byte);
    }
    memory[..MOST * SLOT].iter_mut().for_each(|byte| *byte = random.u8(..));
    memory
}

/// What a session leaves.
#[derive(PartialEq, Eq, Debug)]
pub struct Left {
    pub sent: Vec<Ended>,
    pub received: Vec<Ended>,
    /// Of the sender and of its peer.
    pub has_failed: [bool; 2],
}

/// What the specification says, with the open regions of both sides as they are then. Of the receive buffer of a message that is too
/// long nothing is said.
pub fn expected(plan: &Plan, memory: &mut [Vec<u8>; 2]) -> Left {
    let mut left = Left { sent: Vec::new(), received: Vec::new(), has_failed: [false; 2] };
    let [own, peer] = memory;
    for (index, operation) in plan.operations.iter().enumerate() {
        let (id, length) = (index as u64, operation.length);
        let is_flushed = left.has_failed[0];
        let (sent, received) = if is_flushed { ("WR_FLUSH_ERR", "WR_FLUSH_ERR") } else { operation.ends() };
        let is_good = sent == "SUCCESS";
        let has_bytes = is_good && (operation.kind == Kind::Read || operation.kind.is_atomic());
        left.sent.push((id, sent, if has_bytes { length } else { 0 }, None));
        if let Kind::Send { immediate } = operation.kind
            && plan.received().any(|(at, _)| at == index)
        {
            let (bytes, immediate) = if received == "SUCCESS" { (length, immediate) } else { (0, None) };
            left.received.push((id, received, bytes, immediate));
        }
        if is_flushed {
            continue;
        }
        left.has_failed[0] = !is_good;
        left.has_failed[1] = matches!(sent, "REM_ACCESS_ERR" | "REM_INV_REQ_ERR" | "REM_OP_ERR");
        if !is_good {
            continue;
        }
        let at = |part| place(part, index)..place(part, index) + length;
        match operation.kind {
            Kind::Send { .. } => peer[at(Part::Receive)].copy_from_slice(&own[at(Part::Source)]),
            Kind::Write => peer[at(Part::Target)].copy_from_slice(&own[at(Part::Source)]),
            Kind::Read => own[at(Part::Result)].copy_from_slice(&peer[at(Part::Target)]),
            Kind::Add(_) | Kind::Swap(..) => {
                let word = u64::from_ne_bytes(peer[at(Part::Target)].try_into().expect("eight bytes"));
                own[at(Part::Result)].copy_from_slice(&word.to_ne_bytes());
                let new = match operation.kind {
                    Kind::Add(add) => word.wrapping_add(add),
                    Kind::Swap(compare, swap) if compare == word => swap,
                    _ => word,
                };
                peer[at(Part::Target)].copy_from_slice(&new.to_ne_bytes());
            }
        }
    }
    left
}
