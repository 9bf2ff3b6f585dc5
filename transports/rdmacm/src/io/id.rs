//! An identifier of rdma_cm: a listener, or one side of a connection. Nothing of ours hangs on it but a number.
//!
//! The queue pair is made on a context of our own and never attached: the library opens its own context and domain, and
//! refuses objects of another.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;

use uct_ib::verbs::abi::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

use super::CmError;
use super::abi::*;
use super::address::{from_raw, to_raw};
use super::channel::Channel;

/// An identifier. Dropping it ends what is pending on it, also a connection attempt, within milliseconds.
pub struct Id {
    channel: Arc<Channel>,
    raw: *mut rdma_cm_id,
}

// SAFETY: librdmacm may be called from any thread (rdma_cm(7)). An identifier has one owner, who makes all calls on it.
unsafe impl Send for Id {}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Id({:?})", self.raw)
    }
}

/// The parameters of this side when it connects or accepts.
#[derive(Clone, Copy, Debug)]
pub struct ConnParam<'a> {
    /// Private data as they are sent.
    pub private_data: &'a [u8],
    /// Number of the queue pair; a real one, that no other connection uses.
    pub qp_number: u32,
    /// Whether the queue pair has a shared receive queue.
    pub has_srq: bool,
    /// Reads and atomics that this side takes at once.
    pub responder_resources: u8,
    /// Reads and atomics that this side issues at once.
    pub initiator_depth: u8,
    /// How often a packet is sent again.
    pub retry_count: u8,
    /// How often a packet is sent again to a peer without buffers; 7 is for ever.
    pub rnr_retry_count: u8,
}

/// A state of the queue pair that the library is asked for attributes of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpStep {
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
}

impl Id {
    /// A new identifier whose events carry `key`.
    ///
    /// # Errors
    /// The failed call.
    pub fn new(channel: &Arc<Channel>, key: usize) -> Result<Id, CmError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel lives, `raw` is a place for a pointer, and the context is a number that is never dereferenced.
        let failed = unsafe {
            (channel.table().create_id)(channel.as_ptr(), &raw mut raw, key as *mut c_void, RDMA_PS_TCP)
        };
        if failed != 0 {
            return Err(CmError::last("rdma_create_id"));
        }
        Ok(Id { channel: channel.clone(), raw })
    }

    /// The identifier that came with a connection request on the channel.
    ///
    /// # Safety
    /// It is one, and nothing else owns it.
    pub(super) unsafe fn adopt(channel: &Arc<Channel>, raw: *mut rdma_cm_id) -> Id {
        Id { channel: channel.clone(), raw }
    }

    /// From now on its events carry `key`.
    pub fn set_key(&self, key: usize) {
        // SAFETY: the identifier lives; the library only hands the context back.
        unsafe { (*self.raw).context = key as *mut c_void }
    }

    /// Moves it to another channel, with the events that it has not reported yet.
    ///
    /// # Errors
    /// The failed call.
    pub fn migrate(&mut self, channel: &Arc<Channel>) -> Result<(), CmError> {
        if Arc::ptr_eq(&self.channel, channel) {
            return Ok(());
        }
        // SAFETY: identifier and channel live. All events are acknowledged when they are taken, so this does not wait.
        let failed = unsafe { (channel.table().migrate_id)(self.raw, channel.as_ptr()) };
        self.result("rdma_migrate_id", failed)?;
        self.channel = channel.clone();
        Ok(())
    }

    fn result(&self, call: &'static str, failed: c_int) -> Result<(), CmError> {
        if failed == 0 { Ok(()) } else { Err(CmError::last(call)) }
    }

    fn option(&self, option: c_int, mut value: c_int) -> Result<(), CmError> {
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: the identifier lives, and the value is an int, according to the manual page.
        let failed = unsafe {
            (self.channel.table().set_option)(self.raw, RDMA_OPTION_ID, option, place, size_of::<c_int>())
        };
        self.result("rdma_set_option", failed)
    }

    /// Lets a listener come back while old connections of its port linger. Before [`Id::bind`].
    ///
    /// # Errors
    /// The failed call.
    pub fn reuse_address(&self) -> Result<(), CmError> {
        self.option(RDMA_OPTION_ID_REUSEADDR, 1)
    }

    /// An IPv6 listener takes IPv6 only, so that one port can serve both families. Before [`Id::bind`].
    ///
    /// # Errors
    /// The failed call.
    pub fn only_its_family(&self) -> Result<(), CmError> {
        self.option(RDMA_OPTION_ID_AFONLY, 1)
    }

    /// Binds to a local address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// The failed call.
    pub fn bind(&self, address: SocketAddr) -> Result<(), CmError> {
        let mut raw = to_raw(address);
        // SAFETY: the identifier lives, and the address is one.
        let failed = unsafe { (self.channel.table().bind_addr)(self.raw, (&raw mut raw).cast()) };
        self.result("rdma_bind_addr", failed)
    }

    /// Begins to listen, with room for `backlog` requests that were not taken yet.
    ///
    /// # Errors
    /// The failed call.
    pub fn listen(&self, backlog: u32) -> Result<(), CmError> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier lives.
        let failed = unsafe { (self.channel.table().listen)(self.raw, backlog) };
        self.result("rdma_listen", failed)
    }

    /// Begins to resolve a peer's address, for so many milliseconds at most. The outcome is an event.
    ///
    /// # Errors
    /// The failed call.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        milliseconds: i32,
    ) -> Result<(), CmError> {
        let mut source = source.map(to_raw);
        let source = source.as_mut().map_or(std::ptr::null_mut(), |source| std::ptr::from_mut(source).cast());
        let mut peer = to_raw(peer);
        // SAFETY: the identifier lives; the addresses are addresses or null.
        let failed = unsafe {
            (self.channel.table().resolve_addr)(self.raw, source, (&raw mut peer).cast(), milliseconds)
        };
        self.result("rdma_resolve_addr", failed)
    }

    /// Begins to resolve the route to the peer, for so many milliseconds at most. The outcome is an event.
    ///
    /// # Errors
    /// The failed call.
    pub fn resolve_route(&self, milliseconds: i32) -> Result<(), CmError> {
        // SAFETY: the identifier lives.
        let failed = unsafe { (self.channel.table().resolve_route)(self.raw, milliseconds) };
        self.result("rdma_resolve_route", failed)
    }

    /// Sends the request to connect. The outcome is an event.
    ///
    /// # Errors
    /// The failed call. Private data that are too long are `EINVAL`.
    pub fn connect(&self, param: &ConnParam<'_>) -> Result<(), CmError> {
        let mut raw = conn_param(param)?;
        // SAFETY: the identifier lives, and the private data through the call.
        let failed = unsafe { (self.channel.table().connect)(self.raw, &raw mut raw) };
        self.result("rdma_connect", failed)
    }

    /// Accepts a request. That the peer has answered is an event.
    ///
    /// # Errors
    /// The failed call. Private data that are too long are `EINVAL`, and reject the connection.
    pub fn accept(&self, param: &ConnParam<'_>) -> Result<(), CmError> {
        let mut raw = conn_param(param)?;
        // SAFETY: as above.
        let failed = unsafe { (self.channel.table().accept)(self.raw, &raw mut raw) };
        self.result("rdma_accept", failed)
    }

    /// Rejects a request.
    ///
    /// # Errors
    /// The failed call.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        let length = private_length(private_data)?;
        // SAFETY: the identifier lives, and the private data through the call.
        let failed = unsafe { (self.channel.table().reject)(self.raw, private_data.as_ptr().cast(), length) };
        self.result("rdma_reject", failed)
    }

    /// Answers the peer's response: the connection is established. The connecting side only.
    ///
    /// # Errors
    /// The failed call.
    pub fn establish(&self) -> Result<(), CmError> {
        // SAFETY: the identifier lives.
        let failed = unsafe { (self.channel.table().establish)(self.raw) };
        self.result("rdma_establish", failed)
    }

    /// Ends the connection, or answers the peer's end of it.
    ///
    /// # Errors
    /// The failed call.
    pub fn disconnect(&self) -> Result<(), CmError> {
        // SAFETY: the identifier lives.
        let failed = unsafe { (self.channel.table().disconnect)(self.raw) };
        self.result("rdma_disconnect", failed)
    }

    /// The attributes that move a queue pair of this connection to a state, and the mask of those that are set.
    ///
    /// # Errors
    /// The failed call. `EINVAL` for [`QpStep::Init`] is the only sign that the peer of a request is gone.
    pub fn qp_attributes(&self, step: QpStep) -> Result<(ibv_qp_attr, i32), CmError> {
        // SAFETY: the structure has integers only, for which zero is a value.
        let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.qp_state = match step {
            QpStep::Init => IBV_QPS_INIT,
            QpStep::ReadyToReceive => IBV_QPS_RTR,
            QpStep::ReadyToSend => IBV_QPS_RTS,
        };
        let mut mask = 0;
        // SAFETY: the identifier lives, and both places are valid.
        let failed = unsafe { (self.channel.table().init_qp_attr)(self.raw, &raw mut attr, &raw mut mask) };
        self.result("rdma_init_qp_attr", failed)?;
        Ok((attr, mask))
    }

    /// The device that it is bound to and the port's number; `None` before that.
    pub fn device(&self) -> Option<(String, u8)> {
        // SAFETY: the identifier lives, and this field is set before the event that announces it.
        let context = unsafe { (*self.raw).verbs };
        if context.is_null() {
            return None;
        }
        // SAFETY: the library keeps its contexts open for the life of the process.
        let device = unsafe { (*context).device };
        // SAFETY: the device lives as long as its context.
        let name = unsafe { &raw const (*device).name };
        // SAFETY: the library ends the name with a zero inside the array.
        let name = unsafe { CStr::from_ptr(name.cast()) };
        // SAFETY: as above.
        let port = unsafe { (*self.raw).port_num };
        Some((name.to_string_lossy().into_owned(), port))
    }

    /// The local address; `None` before it is bound.
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives; the library writes the address inside the calls above only.
        from_raw(unsafe { &(*self.raw).route.addr.src_addr })
    }

    /// The peer's address; `None` for a listener.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        from_raw(unsafe { &(*self.raw).route.addr.dst_addr })
    }
}

fn private_length(data: &[u8]) -> Result<u8, CmError> {
    u8::try_from(data.len()).map_err(|_| CmError::Call { call: "private data", errno: libc::EINVAL })
}

fn conn_param(param: &ConnParam<'_>) -> Result<rdma_conn_param, CmError> {
    Ok(rdma_conn_param {
        private_data: param.private_data.as_ptr().cast(),
        private_data_len: private_length(param.private_data)?,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: 1,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        srq: u8::from(param.has_srq),
        qp_num: param.qp_number,
    })
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: destroyed once, here. All events are acknowledged when they are taken, so this does not wait for one.
        let failed = unsafe { (self.channel.table().destroy_id)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(errno = super::errno(), "rdma_destroy_id failed");
        }
    }
}
