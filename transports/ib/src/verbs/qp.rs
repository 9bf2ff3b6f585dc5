//! Queue pairs and their states.
//!
//! For the endpoints of rc_verbs and the interface of ud_verbs. Built on a domain, completion queues and a shared receive queue.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::abi::*;
use super::work::{InlineWr, PostError, RecvSlot, SendWr, post_in_chains};
use super::{Access, AddressVector, Cq, Pd, Srq, errno};
use crate::error::IbError;

/// Which service a queue pair gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable datagram.
    Ud,
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Just made.
    Reset,
    /// May receive buffers.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
    /// A send of a datagram queue pair failed; it still receives.
    SendError,
    /// Nothing goes any more; everything posted is flushed.
    Error,
    /// Another one, by its number.
    Other(i32),
}

impl QpState {
    fn from_raw(raw: i32) -> Self {
        match raw {
            IBV_QPS_RESET => Self::Reset,
            IBV_QPS_INIT => Self::Init,
            IBV_QPS_RTR => Self::ReadyToReceive,
            IBV_QPS_RTS => Self::ReadyToSend,
            IBV_QPS_SQE => Self::SendError,
            IBV_QPS_ERR => Self::Error,
            other => Self::Other(other),
        }
    }
}

/// How big a queue pair's queues are; asked for, and given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCaps {
    /// Send requests.
    pub max_send_wr: u32,
    /// Receive requests; 0 with a shared receive queue.
    pub max_recv_wr: u32,
    /// Pieces per send request.
    pub max_send_sge: u32,
    /// Pieces per receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

/// What a queue pair is made of.
pub struct QpConfig<'a> {
    /// Its service.
    pub kind: QpKind,
    /// Where its send completions go.
    pub send_cq: &'a Arc<Cq>,
    /// Where its receive completions go.
    pub recv_cq: &'a Arc<Cq>,
    /// Where its receive buffers come from, if not from a queue of its own.
    pub srq: Option<&'a Arc<Srq>>,
    /// Sizes asked for.
    pub caps: QpCaps,
}

/// What connects a reliable queue pair to its peer.
#[derive(Clone, Copy, Debug)]
pub struct RcConnect {
    /// Path to the peer.
    pub vector: AddressVector,
    /// The peer's queue pair number.
    pub remote_qp: u32,
    /// Path MTU as the verbs code it (1 = 256 bytes … 5 = 4096).
    pub path_mtu: u8,
    /// First packet number that the peer sends.
    pub receive_psn: u32,
    /// First packet number that we send.
    pub send_psn: u32,
    /// Reads and atomics that we may have outstanding.
    pub max_reads_out: u8,
    /// Reads and atomics that the peer may have outstanding.
    pub max_reads_in: u8,
    /// How long a peer that finds no buffer waits before it tries again, as the verbs code it (0..=31).
    pub min_rnr_timer: u8,
    /// How long an acknowledgement is waited for: 4.096 µs · 2^timeout (0 is for ever).
    pub timeout: u8,
    /// How often a packet is sent again. Software RoCE takes 7 as for ever.
    pub retry_count: u8,
    /// How often a packet is sent again to a peer without buffers; 7 is for ever.
    pub rnr_retry: u8,
}

/// A queue pair.
pub struct Qp {
    raw: *mut ibv_qp,
    /// The provider's function, which the context does not change.
    post_send: PostSend,
    rest: Box<Rest>,
}

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32;

/// What no message needs.
struct Rest {
    pd: Arc<Pd>,
    // Held so that they outlive the queue pair.
    _send_cq: Arc<Cq>,
    _recv_cq: Arc<Cq>,
    _srq: Option<Arc<Srq>>,
    caps: QpCaps,
}

/// Used where a provider has no function of its own.
unsafe extern "C" fn no_post_send(_: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> i32 {
    libc::ENOSYS
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for Qp {}
// SAFETY: as for Send; providers lock the queues while they post.
unsafe impl Sync for Qp {}

impl Qp {
    /// Makes a queue pair in state [`QpState::Reset`]. No request is signalled unless it requests that.
    ///
    /// # Errors
    /// The failed verb with the sizes asked for, or the limit on locked memory.
    pub fn new(pd: &Arc<Pd>, config: &QpConfig<'_>) -> Result<Self, IbError> {
        let context = pd.context();
        let caps = config.caps;
        let mut init = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: config.send_cq.as_ptr(),
            recv_cq: config.recv_cq.as_ptr(),
            srq: config.srq.map_or(std::ptr::null_mut(), |srq| srq.as_ptr()),
            cap: ibv_qp_cap {
                max_send_wr: caps.max_send_wr,
                max_recv_wr: caps.max_recv_wr,
                max_send_sge: caps.max_send_sge,
                max_recv_sge: caps.max_recv_sge,
                max_inline_data: caps.max_inline,
            },
            qp_type: match config.kind {
                QpKind::Rc => IBV_QPT_RC,
                QpKind::Ud => IBV_QPT_UD,
            },
            sq_sig_all: 0,
        };
        // SAFETY: domain and queues live, and `init` is valid.
        let raw = unsafe { (context.table().create_qp)(pd.as_ptr(), &mut init) };
        if raw.is_null() {
            let attr = context.attr();
            let detail = format!(
                "{:?} with {caps:?}; the device has at most {} requests and {} pieces",
                config.kind, attr.max_qp_wr, attr.max_sge
            );
            return Err(context.error("ibv_create_qp", errno(), &detail));
        }
        // SAFETY: the queue pair was just made, and its context is open as long as `pd` holds it.
        let provider = unsafe { (*raw).context };
        // SAFETY: as above.
        let ops = unsafe { &(*provider).ops };
        Ok(Self {
            raw,
            post_send: ops.post_send.unwrap_or(no_post_send),
            rest: Box::new(Rest {
                pd: pd.clone(),
                _send_cq: config.send_cq.clone(),
                _recv_cq: config.recv_cq.clone(),
                _srq: config.srq.cloned(),
                caps: QpCaps {
                    max_send_wr: init.cap.max_send_wr,
                    max_recv_wr: init.cap.max_recv_wr,
                    max_send_sge: init.cap.max_send_sge,
                    max_recv_sge: init.cap.max_recv_sge,
                    max_inline: init.cap.max_inline_data,
                },
            }),
        })
    }

    /// As [`Qp::new`], and with less inline data where the device refuses as much as was asked for.
    ///
    /// # Errors
    /// As [`Qp::new`], for the smallest size tried.
    pub fn new_with_inline_up_to(pd: &Arc<Pd>, config: &QpConfig<'_>) -> Result<Self, IbError> {
        let mut caps = config.caps;
        loop {
            match Self::new(pd, &QpConfig { caps, ..*config }) {
                Err(IbError::Verb { errno: libc::EINVAL, .. }) if caps.max_inline >= 32 => {
                    caps.max_inline = if caps.max_inline > 512 { 512 } else { caps.max_inline / 2 };
                }
                other => return other,
            }
        }
    }

    /// Its number on the wire, 24 bits.
    #[inline]
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as `self`, and its number does not change.
        unsafe { (*self.raw).qp_num }
    }

    /// The sizes that the provider gave; at least those asked for.
    pub fn caps(&self) -> QpCaps {
        self.rest.caps
    }

    /// The domain it is in.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.rest.pd
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: i32, what: &str) -> Result<(), IbError> {
        // SAFETY: the queue pair lives, and `attr` is valid.
        match unsafe { (self.rest.pd.context().table().modify_qp)(self.raw, attr, mask) } {
            0 => Ok(()),
            failed => Err(self.rest.pd.context().error(
                "ibv_modify_qp",
                failed,
                &format!("queue pair {:#x} {what}", self.number()),
            )),
        }
    }

    /// To [`QpState::Init`] on a port, for a reliable connection. `access` is what the peer may do.
    ///
    /// # Errors
    /// The failed verb.
    pub fn init_rc(&self, port: u8, pkey_index: u16, access: Access) -> Result<(), IbError> {
        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        attr.qp_access_flags = access.bits() as u32;
        let mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask, &format!("to INIT on port {port}"))
    }

    /// To [`QpState::ReadyToReceive`] and [`QpState::ReadyToSend`] with a peer. On Ethernet the kernel resolves its MAC address.
    ///
    /// # Errors
    /// The failed verb; the queue pair stays where it got to.
    pub fn connect_rc(&self, connect: &RcConnect) -> Result<(), IbError> {
        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_RTR;
        attr.ah_attr = connect.vector.to_raw();
        attr.path_mtu = i32::from(connect.path_mtu);
        attr.dest_qp_num = connect.remote_qp;
        attr.rq_psn = connect.receive_psn;
        attr.max_dest_rd_atomic = connect.max_reads_in;
        attr.min_rnr_timer = connect.min_rnr_timer;
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask, &format!("to RTR with {connect:?}"))?;

        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = connect.send_psn;
        attr.max_rd_atomic = connect.max_reads_out;
        attr.timeout = connect.timeout;
        attr.retry_cnt = connect.retry_count;
        attr.rnr_retry = connect.rnr_retry;
        let mask = IBV_QP_STATE
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY;
        self.modify(&mut attr, mask, &format!("to RTS with {connect:?}"))
    }

    /// To the state and with the attributes that a connection manager has computed; `mask` has those that are set.
    ///
    /// # Errors
    /// The failed verb; the queue pair stays where it is.
    pub fn apply(&self, mut attr: ibv_qp_attr, mask: i32) -> Result<(), IbError> {
        let what = format!("to {:?} as rdma_cm computed", QpState::from_raw(attr.qp_state));
        self.modify(&mut attr, mask, &what)
    }

    /// From [`QpState::Reset`] to [`QpState::ReadyToSend`] on a port, for datagrams with this key.
    ///
    /// # Errors
    /// The failed verb; the queue pair stays where it got to.
    pub fn start_ud(&self, port: u8, pkey_index: u16, qkey: u32) -> Result<(), IbError> {
        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        attr.qkey = qkey;
        let mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
        self.modify(&mut attr, mask, &format!("to INIT on port {port}"))?;
        attr.qp_state = IBV_QPS_RTR;
        self.modify(&mut attr, IBV_QP_STATE, "to RTR")?;
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = 0;
        self.modify(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN, "to RTS")
    }

    /// A datagram queue pair whose send queue failed ([`QpState::SendError`]) back to [`QpState::ReadyToSend`].
    ///
    /// # Errors
    /// The failed verb.
    pub fn resume_ud(&self) -> Result<(), IbError> {
        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_RTS;
        self.modify(&mut attr, IBV_QP_STATE, "from SQE to RTS")
    }

    /// To [`QpState::Error`]: everything posted completes as flushed.
    ///
    /// # Errors
    /// The failed verb.
    pub fn fail(&self) -> Result<(), IbError> {
        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_ERR;
        self.modify(&mut attr, IBV_QP_STATE, "to ERROR")
    }

    /// To [`QpState::Reset`]: everything posted is forgotten without a completion.
    ///
    /// # Errors
    /// The failed verb.
    pub fn reset(&self) -> Result<(), IbError> {
        let mut attr = zeroed_attr();
        attr.qp_state = IBV_QPS_RESET;
        self.modify(&mut attr, IBV_QP_STATE, "to RESET")
    }

    /// Asks the provider for the state. A system call.
    ///
    /// # Errors
    /// The failed verb.
    pub fn state(&self) -> Result<QpState, IbError> {
        let mut attr = zeroed_attr();
        // SAFETY: the structure has integers and pointers only, for which zero is a value.
        let mut init: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the queue pair lives, and both places are valid.
        let failed = unsafe {
            (self.rest.pd.context().table().query_qp)(self.raw, &mut attr, IBV_QP_STATE, &mut init)
        };
        match failed {
            0 => Ok(QpState::from_raw(attr.qp_state)),
            failed => Err(self.rest.pd.context().error("ibv_query_qp", failed, "")),
        }
    }

    #[inline]
    fn post_raw(&self, raw: &mut ibv_send_wr) -> Result<(), PostError> {
        // Of one request it is known which the provider did not take.
        let mut bad = MaybeUninit::uninit();
        // SAFETY: the queue pair lives; the request and its list live through the call, by the borrow that their types
        // carry. That the memory named by key lives on is the promise of `post_send`'s caller.
        match unsafe { (self.post_send)(self.raw, raw, bad.as_mut_ptr()) } {
            0 => Ok(()),
            failed => Err(PostError(failed)),
        }
    }

    /// Posts a request over registered memory. Does not block.
    ///
    /// # Safety
    /// The memory of the pieces stays valid until a completion reports that the request has ended (its own, or a later one
    /// of this queue pair), or the queue pair is gone. Memory that is read into (reads, atomics) is touched by nothing
    /// else until then. A datagram's address handle lives as long.
    ///
    /// # Errors
    /// The provider's error number; [`PostError::is_full`]: try again later.
    #[inline]
    pub unsafe fn post_send(&self, mut request: SendWr<'_>) -> Result<(), PostError> {
        self.post_raw(&mut request.0)
    }

    /// Posts a request with inline data, which are copied before this returns. Does not block.
    ///
    /// A datagram's address handle must live until the request has ended; a dropped one gives an error completion at
    /// worst on providers that read it late, so the transports keep handles as long as endpoints.
    ///
    /// # Errors
    /// As [`Qp::post_send`]. More data than [`QpCaps::max_inline`] are refused.
    #[inline]
    pub fn post_inline(&self, mut request: InlineWr<'_>) -> Result<(), PostError> {
        self.post_raw(&mut request.0)
    }

    /// Posts receive buffers, as many as fit; returns how many were taken. Not for a queue pair with a shared queue.
    ///
    /// # Safety
    /// Every buffer stays valid, and nothing else accesses it, until its completion has been polled or the queue pair is
    /// gone.
    ///
    /// # Errors
    /// The provider's error number if none was taken.
    pub unsafe fn post_recv(&self, buffers: &[RecvSlot]) -> Result<usize, PostError> {
        let Some(post) = self.rest.pd.context().ops().post_recv else { return Err(PostError(libc::ENOSYS)) };
        post_in_chains(buffers, |first, bad| {
            // SAFETY: the queue pair lives; `first` heads a chain that lives through the call; the caller promises the
            // buffers.
            unsafe { post(self.raw, first, bad) }
        })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: destroyed once, here. The library waits for unacknowledged asynchronous events, and
        // `Context::next_event` leaves none.
        let failed = unsafe { (self.rest.pd.context().table().destroy_qp)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(
                device = self.rest.pd.context().device_name(),
                errno = failed,
                "ibv_destroy_qp failed"
            );
        }
    }
}

fn zeroed_attr() -> ibv_qp_attr {
    // SAFETY: the structure has integers only, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
