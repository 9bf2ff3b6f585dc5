//! The limits of an interface and its queue pairs, which the data path checks against.

use std::sync::Arc;
use std::time::Duration;

use uct_ib::verbs::{Cq, Pd, Qp, QpCaps, QpConfig, QpKind, Srq};
use uct_plugin::{Failure, Result};

/// Most pieces of memory in a work request.
pub(crate) const MAX_PIECES: usize = 32;
/// Most bytes carried inside a work request.
pub(crate) const MAX_INLINE: usize = 1024;

/// The limits of an interface and its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Work requests an endpoint, and of all endpoints.
    pub(crate) tx_queue_len: u32,
    pub(crate) tx_cq_len: u32,
    /// One request in this many is signalled; all are when no more completions than `cq_low` fit.
    pub(crate) moderation: u32,
    pub(crate) cq_low: u32,
    /// Endpoints that it serves well; 0: no limit.
    pub(crate) max_num_eps: u64,
    pub(crate) rx_queue_len: u32,
    /// Bytes.
    pub(crate) seg_size: usize,
    pub(crate) max_inline: usize,
    pub(crate) max_short: usize,
    pub(crate) max_message: usize,
    /// Longest put or get in one work request; longer ones are several, so that each completes soon enough to show that the peer
    /// lives.
    pub(crate) max_part: usize,
    pub(crate) max_read_bytes: u64,
    pub(crate) max_pieces: usize,
    pub(crate) max_reads_out: u8,
    pub(crate) max_reads_in: u8,
    pub(crate) has_atomics: bool,
    /// An atomic in flight behind messages or writes may lose its result.
    pub(crate) has_stray_acks: bool,
    /// As the verbs code them.
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) linger: Duration,
    pub(crate) peer_timeout: Duration,
    /// For a call that waits.
    pub(crate) longest_wait: Duration,
}

impl Limits {
    /// Takes what a queue pair of this device really carries inside a work request.
    pub(crate) fn set_inline(&mut self, given: usize) {
        self.max_inline = given.min(MAX_INLINE).min(self.seg_size);
        self.max_short = self.max_inline.saturating_sub(size_of::<u64>());
    }

    /// A queue pair for an endpoint.
    pub(crate) fn new_qp(
        &self,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: &Arc<Srq>,
        max_inline: u32,
    ) -> Result<Qp, Failure> {
        let caps = QpCaps {
            max_send_wr: self.tx_queue_len,
            max_recv_wr: 0,
            max_send_sge: self.max_pieces as u32,
            max_recv_sge: 0,
            max_inline,
        };
        let config = QpConfig { kind: QpKind::Rc, send_cq, recv_cq, srq: Some(srq), caps };
        Ok(Qp::new_with_inline_up_to(pd, &config)?)
    }
}
