//! The transitions between the states of a queue pair, and which attributes each needs and takes.
//!
//! From the table of QP state transitions (InfiniBand Architecture Specification, 10.3.1, and the manual page of
//! `ibv_modify_qp`).

use super::super::resources::Resources;
use super::requester::Requester;
use super::{Attributes, Qp, QpKind, QpState};

bitflags::bitflags! {
    /// Which attributes are set. The bits are those of the verbs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Mask: u32 {
        /// The state.
        const STATE = 1 << 0;
        /// The state that the caller believes it is in.
        const CURRENT_STATE = 1 << 1;
        /// Whether the end of draining is an event.
        const TELLS_DRAINED = 1 << 2;
        /// What the peer may do.
        const ACCESS = 1 << 3;
        /// Index of the partition.
        const PKEY_INDEX = 1 << 4;
        /// The port.
        const PORT = 1 << 5;
        /// Key of datagrams.
        const QKEY = 1 << 6;
        /// The way to the peer.
        const PATH = 1 << 7;
        /// The largest payload.
        const MTU = 1 << 8;
        /// Timeout of acknowledgements.
        const TIMEOUT = 1 << 9;
        /// Retries.
        const RETRY_COUNT = 1 << 10;
        /// Retries for want of receive buffers.
        const RNR_RETRY = 1 << 11;
        /// Number of the first packet that arrives.
        const RECEIVE_PSN = 1 << 12;
        /// Reads that this side has in flight.
        const READS_OUT = 1 << 13;
        /// An alternate path; there is none.
        const ALTERNATE_PATH = 1 << 14;
        /// How long a peer waits for a receive buffer.
        const MIN_RNR_TIMER = 1 << 15;
        /// Number of the first packet that is sent.
        const SEND_PSN = 1 << 16;
        /// Reads of the peer that are in flight.
        const READS_IN = 1 << 17;
        /// State of path migration; there is none.
        const MIGRATION_STATE = 1 << 18;
        /// Sizes of the queues; they do not change.
        const CAPACITY = 1 << 19;
        /// The peer's queue pair.
        const DESTINATION_QP = 1 << 20;
    }
}

/// Why a queue pair is not modified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no such transition.
    Transition,
    /// These attributes are needed.
    Missing(Mask),
    /// These attributes are not taken by the transition.
    Excess(Mask),
    /// A value is out of range.
    Value(Mask),
}

/// Attributes that a transition needs, and those that it takes beside them.
fn rules(kind: QpKind, from: QpState, to: QpState) -> Option<(Mask, Mask)> {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};
    let always = Mask::STATE | Mask::CURRENT_STATE;
    let none = Mask::empty();
    let is_rc = kind == QpKind::Rc;
    let pick = |rc, ud| if is_rc { rc } else { ud };
    let initial = Mask::PKEY_INDEX | Mask::PORT | pick(Mask::ACCESS, Mask::QKEY);
    let running =
        pick(Mask::ACCESS | Mask::MIN_RNR_TIMER | Mask::ALTERNATE_PATH | Mask::MIGRATION_STATE, Mask::QKEY);
    let (needed, taken) = match (from, to) {
        (_, Reset | Error) => (none, none),
        (Reset, Init) => (initial, none),
        (Init, Init) => (none, initial),
        (Init, ReadyToReceive) => {
            let rc = Mask::PATH
                | Mask::MTU
                | Mask::DESTINATION_QP
                | Mask::RECEIVE_PSN
                | Mask::READS_IN
                | Mask::MIN_RNR_TIMER;
            let optional = Mask::PKEY_INDEX | pick(Mask::ACCESS | Mask::ALTERNATE_PATH, Mask::QKEY);
            (pick(rc, none), optional)
        }
        (ReadyToReceive, ReadyToSend) => {
            let rc = Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::READS_OUT;
            (Mask::SEND_PSN | pick(rc, none), running)
        }
        (ReadyToSend, ReadyToSend) => (none, running),
        (ReadyToSend, SendQueueDrain) => (none, Mask::TELLS_DRAINED),
        (SendQueueDrain, SendQueueDrain) => {
            let rc = running
                | Mask::PATH
                | Mask::PKEY_INDEX
                | Mask::TIMEOUT
                | Mask::RETRY_COUNT
                | Mask::RNR_RETRY
                | Mask::READS_OUT
                | Mask::READS_IN;
            (none, pick(rc, Mask::PKEY_INDEX | Mask::QKEY))
        }
        (SendQueueDrain, ReadyToSend) => (none, running),
        (SendQueueError, ReadyToSend) if !is_rc => (none, Mask::QKEY),
        _ => return None,
    };
    Some((needed | Mask::STATE, needed | taken | always))
}

impl Qp {
    /// Changes the attributes of `mask` to those of `new`, all or none.
    pub fn modify(&mut self, new: &Attributes, mask: Mask, resources: &mut Resources) -> Result<(), Refused> {
        let absent = mask & (Mask::ALTERNATE_PATH | Mask::CAPACITY);
        if !absent.is_empty() {
            return Err(Refused::Excess(absent));
        }
        let from = self.state();
        if mask.contains(Mask::CURRENT_STATE) && new.current_state != from {
            return Err(Refused::Value(Mask::CURRENT_STATE));
        }
        let to = if mask.contains(Mask::STATE) { new.state } else { from };
        let mask = mask | Mask::STATE;
        let (needed, taken) = rules(self.config.kind, from, to).ok_or(Refused::Transition)?;
        if !mask.contains(needed) {
            return Err(Refused::Missing(needed - mask));
        }
        if to != QpState::Reset && to != QpState::Error && !taken.contains(mask) {
            return Err(Refused::Excess(mask - taken));
        }
        match to {
            QpState::Reset => self.reset(resources),
            QpState::Error => self.fail(resources),
            _ => {
                self.set(new, mask, resources)?;
                self.attributes.state = to;
                if to == QpState::ReadyToReceive {
                    self.responder.start(self.attributes.receive_psn);
                }
                if to == QpState::ReadyToSend && from == QpState::ReadyToReceive {
                    self.requester = Requester::starting_at(&self.attributes);
                }
                self.tell_drained(resources);
            }
        }
        Ok(())
    }

    /// Sets attributes after all have been checked.
    fn set(&mut self, new: &Attributes, mask: Mask, resources: &Resources) -> Result<(), Refused> {
        let ranges = [
            (Mask::PORT, new.port == 1),
            (Mask::PKEY_INDEX, new.pkey_index == 0),
            (Mask::MTU, [256, 512, 1024, 2048, 4096].contains(&new.mtu) && new.mtu <= resources.config.mtu),
            (Mask::DESTINATION_QP, new.destination_qp < 1 << 24),
            (Mask::MIN_RNR_TIMER, new.min_rnr_timer < 32),
            (Mask::TIMEOUT, new.timeout < 32),
            (Mask::RETRY_COUNT, new.retry_count < 8),
            (Mask::RNR_RETRY, new.rnr_retry < 8),
            (Mask::PATH, resources.address(new.path.source_index).is_some()),
            (Mask::READS_OUT, new.reads_out <= MAX_READS),
            (Mask::READS_IN, new.reads_in <= MAX_READS),
        ];
        for (bit, is_good) in ranges {
            if mask.contains(bit) && !is_good {
                return Err(Refused::Value(bit));
            }
        }
        let own = &mut self.attributes;
        macro_rules! set {
            ($($bit:ident $field:ident),* $(,)?) => {
                $(if mask.contains(Mask::$bit) { own.$field = new.$field; })*
            };
        }
        set! {
            PORT port, PKEY_INDEX pkey_index, QKEY qkey, ACCESS access, MTU mtu, DESTINATION_QP destination_qp,
            RECEIVE_PSN receive_psn, SEND_PSN send_psn, READS_OUT reads_out, READS_IN reads_in,
            MIN_RNR_TIMER min_rnr_timer, TIMEOUT timeout, RETRY_COUNT retry_count, RNR_RETRY rnr_retry, PATH path,
            TELLS_DRAINED tells_drained,
        }
        Ok(())
    }
}

/// Reads and atomics that a queue pair has in flight at most.
pub const MAX_READS: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(names: &str) -> Mask {
        names.split_whitespace().map(|name| Mask::from_name(name).expect("a name")).collect()
    }

    #[test]
    fn each_transition_needs_and_takes_what_the_specification_says() {
        use QpKind::{Rc, Ud};
        use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};
        let initial = ["PKEY_INDEX PORT ACCESS", "PKEY_INDEX PORT QKEY"];
        let receiving = "PATH MTU DESTINATION_QP RECEIVE_PSN READS_IN MIN_RNR_TIMER";
        let sending = "SEND_PSN TIMEOUT RETRY_COUNT RNR_RETRY READS_OUT";
        let running = "ACCESS MIN_RNR_TIMER ALTERNATE_PATH MIGRATION_STATE";
        let drained = "ACCESS MIN_RNR_TIMER ALTERNATE_PATH MIGRATION_STATE PATH PKEY_INDEX TIMEOUT RETRY_COUNT RNR_RETRY \
                       READS_OUT READS_IN";
        let table = [
            (Rc, Reset, Init, initial[0], ""),
            (Ud, Reset, Init, initial[1], ""),
            (Rc, Init, Init, "", initial[0]),
            (Ud, Init, Init, "", initial[1]),
            (Rc, Init, ReadyToReceive, receiving, "PKEY_INDEX ACCESS ALTERNATE_PATH"),
            (Ud, Init, ReadyToReceive, "", "PKEY_INDEX QKEY"),
            (Rc, ReadyToReceive, ReadyToSend, sending, running),
            (Ud, ReadyToReceive, ReadyToSend, "SEND_PSN", "QKEY"),
            (Rc, ReadyToSend, ReadyToSend, "", running),
            (Ud, ReadyToSend, ReadyToSend, "", "QKEY"),
            (Rc, ReadyToSend, SendQueueDrain, "", "TELLS_DRAINED"),
            (Ud, ReadyToSend, SendQueueDrain, "", "TELLS_DRAINED"),
            (Rc, SendQueueDrain, SendQueueDrain, "", drained),
            (Ud, SendQueueDrain, SendQueueDrain, "", "PKEY_INDEX QKEY"),
            (Rc, SendQueueDrain, ReadyToSend, "", running),
            (Ud, SendQueueDrain, ReadyToSend, "", "QKEY"),
            (Ud, SendQueueError, ReadyToSend, "", "QKEY"),
        ];
        let states = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain, SendQueueError, Error];
        for kind in [Rc, Ud] {
            for (from, to) in states.iter().flat_map(|from| states.iter().map(|to| (*from, *to))) {
                let row = table.iter().find(|row| (row.0, row.1, row.2) == (kind, from, to));
                let row = row.map(|row| (mask(row.3), mask(row.4)));
                let row = row.or(matches!(to, Reset | Error).then_some((Mask::empty(), Mask::empty())));
                let expected = row.map(|(needed, taken)| {
                    (needed | Mask::STATE, needed | taken | Mask::STATE | Mask::CURRENT_STATE)
                });
                assert_eq!(rules(kind, from, to), expected, "{kind:?} from {from:?} to {to:?}");
            }
        }
    }
}
