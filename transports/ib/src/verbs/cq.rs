//! Completion queues and completions.
//!
//! For progress of the transports. Built on a context and, for sleeping, a channel.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::abi::*;
use super::{CompChannel, Context, errno};
use crate::error::IbError;
use crate::wc_status::WcStatus;

/// A completion queue.
pub struct Cq {
    context: Arc<Context>,
    // Held so that the channel outlives the queue.
    _channel: Option<Arc<CompChannel>>,
    raw: *mut ibv_cq,
    /// The provider's function, cached.
    poll: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
}

/// In place of a provider's that is not there.
unsafe extern "C" fn cannot_poll(_queue: *mut ibv_cq, _entries: i32, _completions: *mut ibv_wc) -> i32 {
    -libc::ENOSYS
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for Cq {}
// SAFETY: as for Send; providers lock the queue while they poll it.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a queue with room for at least `capacity` completions, announced on `channel` if there is one.
    ///
    /// # Errors
    /// The failed verb. A capacity above the device's `max_cqe` is `EINVAL`.
    pub fn new(
        context: &Arc<Context>,
        capacity: u32,
        channel: Option<&Arc<CompChannel>>,
        vector: u32,
    ) -> Result<Arc<Self>, IbError> {
        let entries = i32::try_from(capacity).unwrap_or(i32::MAX);
        let vector = (vector % context.num_comp_vectors()) as i32;
        let channel_pointer = channel.map_or(std::ptr::null_mut(), |channel| channel.as_ptr());
        // SAFETY: the context and the channel live.
        let raw = unsafe {
            (context.table().create_cq)(
                context.as_ptr(),
                entries,
                std::ptr::null_mut(),
                channel_pointer,
                vector,
            )
        };
        if raw.is_null() {
            let most = context.attr().max_cqe;
            return Err(context.error(
                "ibv_create_cq",
                errno(),
                &format!("{capacity} entries; the device has at most {most}"),
            ));
        }
        let poll = context.ops().poll_cq.unwrap_or(cannot_poll);
        Ok(Arc::new(Self { context: context.clone(), _channel: channel.cloned(), raw, poll }))
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw
    }

    /// What events name it by, as long as it lives.
    pub fn identity(&self) -> usize {
        self.raw.addr()
    }

    /// How many completions it holds; at least what was asked for.
    pub fn capacity(&self) -> u32 {
        // SAFETY: the queue lives as long as `self`.
        let entries = unsafe { (*self.raw).cqe };
        u32::try_from(entries).unwrap_or(0)
    }

    /// Takes up to `N` completions out of the queue. Does not block and makes no system call on most providers.
    ///
    /// # Errors
    /// The provider's answer if the queue is broken (it has overrun, or the device is gone).
    #[inline]
    pub fn poll<'a, const N: usize>(&self, buffer: &'a mut WcBuffer<N>) -> Result<&'a [Wc], i32> {
        self.poll_at_most(buffer, N)
    }

    /// As [`Cq::poll`], and no more than `limit`.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    #[inline]
    pub fn poll_at_most<'a, const N: usize>(
        &self,
        buffer: &'a mut WcBuffer<N>,
        limit: usize,
    ) -> Result<&'a [Wc], i32> {
        let limit = limit.min(N) as u32;
        let first = buffer.slots.as_mut_ptr();
        // SAFETY: the buffer has room for `N >= limit` completions, and `Wc` is laid out as `ibv_wc`.
        let count = unsafe { (self.poll)(self.raw, limit as i32, first.cast::<ibv_wc>()) };
        // In one comparison: an error is negative, and no provider may answer more than the limit.
        if count as u32 > limit {
            return Err(count);
        }
        // SAFETY: the provider has filled `count` completions, at most as many as there is room for.
        Ok(unsafe { std::slice::from_raw_parts(first.cast::<Wc>(), count as usize) })
    }

    /// Asks for one announcement on the channel at the next completion, or at the next one that is solicited or failed.
    ///
    /// A completion that came before is not announced: poll once more after arming.
    ///
    /// # Errors
    /// The provider's error number.
    pub fn request_notify(&self, solicited_only: bool) -> Result<(), i32> {
        let Some(request) = self.context.ops().req_notify_cq else { return Err(libc::ENOSYS) };
        // SAFETY: the queue lives.
        match unsafe { request(self.raw, i32::from(solicited_only)) } {
            0 => Ok(()),
            failed => Err(failed),
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: queue pairs on the queue hold it, so none is left; it is destroyed once, here. The library waits for
        // unacknowledged events, and `CompChannel::drain` leaves none.
        let failed = unsafe { (self.context.table().destroy_cq)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(device = self.context.device_name(), errno = failed, "ibv_destroy_cq failed");
        }
    }
}

/// Room for `N` completions, not initialised before the queue fills it.
pub struct WcBuffer<const N: usize> {
    slots: [MaybeUninit<Wc>; N],
}

impl<const N: usize> WcBuffer<N> {
    /// An empty buffer; costs nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { slots: [const { MaybeUninit::uninit() }; N] }
    }

    /// The first `count` completions.
    ///
    /// # Safety
    /// The last [`Cq::poll`] with this buffer answered so many, or more.
    #[inline]
    pub unsafe fn filled(&self, count: usize) -> &[Wc] {
        // SAFETY: the caller's promise, and `Wc` is plain data.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr().cast::<Wc>(), count) }
    }
}

impl<const N: usize> Default for WcBuffer<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A completion.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Wc(ibv_wc);

impl Wc {
    /// The number given with the request. Valid also for a failed one.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> WcStatus {
        WcStatus(self.0.status)
    }

    /// Whether it succeeded. What follows is only valid if so, but for [`Wc::qp_number`].
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.0.status == 0
    }

    /// The provider's own error code.
    pub fn vendor_error(&self) -> u32 {
        self.0.vendor_err
    }

    /// Number of the local queue pair. Valid also for a failed request.
    #[inline]
    pub fn qp_number(&self) -> u32 {
        self.0.qp_num
    }

    /// Whether this is a receive.
    #[inline]
    pub fn is_receive(&self) -> bool {
        self.0.opcode & IBV_WC_RECV != 0
    }

    /// Bytes received, with the 40 of the routing header on a datagram queue pair.
    #[inline]
    pub fn byte_length(&self) -> usize {
        self.0.byte_len as usize
    }

    /// The immediate data, in the host's byte order, if there are any.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        (self.0.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(self.0.imm_data))
    }

    /// Datagrams: number of the sender's queue pair.
    #[inline]
    pub fn source_qp(&self) -> u32 {
        self.0.src_qp
    }

    /// Datagrams: whether the first 40 bytes hold a routing header.
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.0.wc_flags & IBV_WC_GRH != 0
    }

    /// Datagrams on InfiniBand: the sender's LID.
    #[inline]
    pub fn source_lid(&self) -> u16 {
        self.0.slid
    }
}
