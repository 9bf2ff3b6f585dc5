//! Connection managers: connections by socket address, with private data each way.
//!
//! A connection manager, with its listeners and endpoints, is used by one thread at a time: that of the worker it was opened on, or any
//! other one. A request may meanwhile be accepted or rejected by another thread, also after its listener was destroyed or its connection
//! manager closed.
//!
//! | client | event | server |
//! |---|---|---|
//! | `connect` | | `listen` |
//! | | `RESOLVED` at the client | |
//! | `send` | | |
//! | | `REQUEST` at the server | |
//! | | | `accept`, or `reject` |
//! | | `CONNECTED` at the client, or `FAILED` with `UCT_ERR_REJECTED` | |
//! | `notify` | | |
//! | | `NOTIFIED` at the server | |
//! | `disconnect` | `DISCONNECTED` at the peer | `disconnect` |
//!
//! Each event of an endpoint comes at most once and in this order, from `progress` only. `FAILED` takes the place of the next one,
//! and is the last. After `CONNECTED` or `NOTIFIED` only `DISCONNECTED` follows, also when the peer was lost.

use core::ffi::c_void;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{UctCm, UctCmEp, UctCmListener, UctCmRequest, UctConfig, UctStatus, UctStr, UctText, UctWorker};

/// Family of a [`UctSocketAddress`]: none.
pub const UCT_FAMILY_NONE: u16 = 0;
/// Family of a [`UctSocketAddress`]: IPv4.
pub const UCT_FAMILY_IPV4: u16 = 4;
/// Family of a [`UctSocketAddress`]: IPv6.
pub const UCT_FAMILY_IPV6: u16 = 6;

/// An address of the internet protocols.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctSocketAddress {
    /// `UCT_FAMILY_*`.
    pub family: u16,
    /// In the processor's order of bytes.
    pub port: u16,
    /// IPv6: number of the network interface that a link-local address belongs to; else 0.
    pub scope_id: u32,
    /// As in a packet; an IPv4 address takes the first 4 bytes, zeros follow.
    pub ip: [u8; 16],
}

/// The data endpoint whose connection is established: what the connection manager sends the peer about it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmToken {
    /// Size of this table in bytes.
    pub size: usize,
    /// Number of its queue pair.
    pub qp_number: u32,
    /// 1 if the queue pair receives from a shared receive queue, else 0.
    pub has_srq: u32,
}

/// Event: a client calls. `request` is the host's from now on, until `accept` or `reject`.
pub const UCT_CM_REQUEST: u32 = 1;
/// Event: the peer's address is resolved, `device` leads there, and `send` is awaited.
pub const UCT_CM_RESOLVED: u32 = 2;
/// Event: the server has accepted. `data` are its private data.
pub const UCT_CM_CONNECTED: u32 = 3;
/// Event: the client knows that it was accepted.
pub const UCT_CM_NOTIFIED: u32 = 4;
/// Event: the peer has disconnected; `data` are its reason. `status` is `UCT_ERR_CONNECTION_RESET` if it was lost instead.
pub const UCT_CM_DISCONNECTED: u32 = 5;
/// Event: the connection is not established. `status` and `reason` say why. With `UCT_ERR_REJECTED`, which comes for an explicit
/// `reject` alone, `data` are the server's.
pub const UCT_CM_FAILED: u32 = 6;

/// What has happened. Valid for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmEvent {
    /// Size of this table in bytes.
    pub size: usize,
    /// `UCT_CM_*`.
    pub kind: u32,
    /// `UCT_OK`, unless stated otherwise for the kind.
    pub status: UctStatus,
    /// The `user` of the endpoint; with `UCT_CM_REQUEST` that of the listener.
    pub user: *mut c_void,
    /// With `UCT_CM_REQUEST` the request, else null.
    pub request: *mut UctCmRequest,
    /// Private data of the peer, or its reason: exactly what it passed.
    pub data: *const u8,
    /// Their length in bytes.
    pub length: usize,
    /// With `UCT_CM_REQUEST` and `UCT_CM_RESOLVED`, the address of this side.
    pub local: UctSocketAddress,
    /// With the same, the address of the peer, as this side sees it.
    pub peer: UctSocketAddress,
    /// With the same, the device that leads to the peer: `eth0`, `mlx5_0:1`. Empty where it is not known.
    pub device: UctStr,
    /// With `UCT_CM_FAILED` and a lost peer, why: stage, address, the system's error, what to try.
    pub reason: UctStr,
}

/// Takes an event. It may call any slot, `destroy` and `listener_destroy` of what the event belongs to among them, but not `close`.
pub type UctCmHandler = unsafe extern "C" fn(argument: *mut c_void, event: *const UctCmEvent);

/// How to open a connection manager. Valid for the call, worker and handler until `close`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmParams {
    /// Size of this table in bytes.
    pub size: usize,
    /// The worker that will drive it.
    pub worker: *mut UctWorker,
    /// The plugin's values.
    pub config: *const UctConfig,
    /// Takes all events of the connection manager.
    pub handler: UctCmHandler,
    /// First argument of the handler.
    pub argument: *mut c_void,
}

/// Limits of a connection manager. Filled by `query`; the caller zeroes it and sets `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmAttr {
    /// Size of this table in bytes.
    pub size: usize,
    /// Most bytes of private data with `send`.
    pub max_connect_data: usize,
    /// The same with `accept`.
    pub max_accept_data: usize,
    /// The same with `reject`.
    pub max_reject_data: usize,
    /// Most bytes of a reason with `disconnect`.
    pub max_disconnect_data: usize,
}

/// Where to listen. Valid for the call, `user` until `listener_destroy`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmListenParams {
    /// Size of this table in bytes.
    pub size: usize,
    /// Handed to the handler with each request.
    pub user: *mut c_void,
    /// Port 0 lets the system choose; an unspecified address means all of them.
    pub address: UctSocketAddress,
    /// Clients that may wait in the system; 0 is the connection manager's default.
    pub backlog: u32,
}

/// Whom to connect to. Valid for the call, `user` until `destroy`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmConnectParams {
    /// Size of this table in bytes.
    pub size: usize,
    /// Handed to the handler.
    pub user: *mut c_void,
    /// The server.
    pub address: UctSocketAddress,
    /// The address to connect from; its port is usually 0. `UCT_FAMILY_NONE` leaves it to the system.
    pub source: UctSocketAddress,
    /// Nanoseconds that the peer and the network may take for each stage: until `RESOLVED`, and from `send` to `CONNECTED`. What the
    /// application takes in between does not count. 0 is the connection manager's default.
    pub timeout: u64,
}

/// What one side sends the other. Valid for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmData {
    /// Size of this table in bytes.
    pub size: usize,
    /// Private data.
    pub data: *const u8,
    /// Their length in bytes. The host passes no more than the attributes permit.
    pub length: usize,
    /// The data endpoint, where the transport gave a token (`UctEpOps::cm_token`), else null.
    pub token: *const UctCmToken,
}

/// Takes a finding of `diagnose`: `UCT_OK`, or the status of the obstacle; and a line of text, valid for the call.
pub type UctEmitFinding = unsafe extern "C" fn(context: *mut c_void, status: UctStatus, text: UctStr);

/// The calls of a connection manager.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctCmOps {
    /// Size of this table in bytes.
    pub size: usize,
    /// Opens one on a worker. *Mandatory.*
    pub open: Option<
        unsafe extern "C" fn(
            params: *const UctCmParams,
            cm: *mut *mut UctCm,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Closes. All listeners and endpoints are destroyed by then; requests need not be consumed. *Mandatory.*
    pub close: Option<unsafe extern "C" fn(cm: *mut UctCm)>,
    /// Fills the attributes. *Mandatory.*
    pub query: Option<unsafe extern "C" fn(cm: *mut UctCm, attr: *mut UctCmAttr) -> UctStatus>,
    /// A descriptor that is readable as long as `progress` has something to do, deadlines among it. It belongs to the connection
    /// manager. *Mandatory.*
    pub event_fd: Option<unsafe extern "C" fn(cm: *mut UctCm, fd: *mut i32) -> UctStatus>,
    /// Does what is due and calls the handler; returns how many events it handled. Not called from inside the handler. *Mandatory.*
    pub progress: Option<unsafe extern "C" fn(cm: *mut UctCm) -> u32>,
    /// Listens. `UCT_ERR_BUSY`: the address is in use. `UCT_ERR_NO_DEVICE`: no device has it. *Mandatory.*
    pub listen: Option<
        unsafe extern "C" fn(
            cm: *mut UctCm,
            params: *const UctCmListenParams,
            listener: *mut *mut UctCmListener,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Where it listens, with the port that was chosen. *Mandatory.*
    pub listener_address: Option<
        unsafe extern "C" fn(listener: *mut UctCmListener, address: *mut UctSocketAddress) -> UctStatus,
    >,
    /// Stops listening. No request of it is reported any more; those that were reported stay valid. *Mandatory.*
    pub listener_destroy: Option<unsafe extern "C" fn(listener: *mut UctCmListener)>,
    /// Begins to connect. *Mandatory.*
    pub connect: Option<
        unsafe extern "C" fn(
            cm: *mut UctCm,
            params: *const UctCmConnectParams,
            ep: *mut *mut UctCmEp,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Sends the request to the server, once, after `UCT_CM_RESOLVED`. `UCT_ERR_BUSY`: not resolved yet. *Mandatory.*
    pub send: Option<unsafe extern "C" fn(ep: *mut UctCmEp, data: *const UctCmData) -> UctStatus>,
    /// Accepts a request of any connection manager of the component, and makes its endpoint in `cm`, on the thread of that one's
    /// worker. The request is consumed, also by an error; the client is rejected then, with no data. `UCT_ERR_CONNECTION_RESET`: it
    /// has gone. `timeout` is in nanoseconds, until `UCT_CM_NOTIFIED`; 0 is the connection manager's default. *Mandatory.*
    pub accept: Option<
        unsafe extern "C" fn(
            cm: *mut UctCm,
            request: *mut UctCmRequest,
            user: *mut c_void,
            data: *const UctCmData,
            timeout: u64,
            ep: *mut *mut UctCmEp,
            reason: *mut UctText,
        ) -> UctStatus,
    >,
    /// Rejects a request with private data, and consumes it, also with an error. Any thread. *Mandatory.*
    pub reject:
        Option<unsafe extern "C" fn(request: *mut UctCmRequest, data: *const u8, length: usize) -> UctStatus>,
    /// Notifies the server that the client is connected, once, after `UCT_CM_CONNECTED`. *Mandatory.*
    pub notify: Option<unsafe extern "C" fn(ep: *mut UctCmEp) -> UctStatus>,
    /// Disconnects, with a reason for the peer. Each side calls it once. `UCT_ERR_BUSY`: neither `UCT_CM_CONNECTED` nor `UCT_CM_NOTIFIED`
    /// was reported. `UCT_INPROGRESS`: called before, and the peer has not disconnected. `UCT_ERR_NOT_CONNECTED`: both sides have
    /// disconnected, or the endpoint has failed. *Mandatory.*
    pub disconnect:
        Option<unsafe extern "C" fn(ep: *mut UctCmEp, data: *const u8, length: usize) -> UctStatus>,
    /// The addresses of both ends, as this side sees them. `UCT_ERR_BUSY`: not resolved yet. *Mandatory.*
    pub ep_addresses: Option<
        unsafe extern "C" fn(
            ep: *mut UctCmEp,
            local: *mut UctSocketAddress,
            peer: *mut UctSocketAddress,
        ) -> UctStatus,
    >,
    /// Destroys, at any time; a connection that is established is disconnected without a reason. No event follows. *Mandatory.*
    pub ep_destroy: Option<unsafe extern "C" fn(ep: *mut UctCmEp)>,
    /// Finds out what prevents connections to an address, of a peer or of this machine, and emits a finding for each
    /// step, up to the first obstacle. Needs no open connection manager. Blocks for some seconds at most. Since minor version 3.
    pub diagnose: Option<
        unsafe extern "C" fn(
            address: *const UctSocketAddress,
            emit: UctEmitFinding,
            context: *mut c_void,
        ) -> UctStatus,
    >,
}

impl UctSocketAddress {
    /// No address.
    pub const NONE: UctSocketAddress =
        UctSocketAddress { family: UCT_FAMILY_NONE, port: 0, scope_id: 0, ip: [0; 16] };

    /// As the language has it; `None` for no address, or one of an unknown family.
    pub fn get(&self) -> Option<SocketAddr> {
        let ip = &self.ip;
        match self.family {
            UCT_FAMILY_IPV4 => Some(SocketAddr::from((Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]), self.port))),
            UCT_FAMILY_IPV6 => {
                let ip = Ipv6Addr::from(self.ip);
                Some(SocketAddrV6::new(ip, self.port, 0, self.scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for UctSocketAddress {
    fn from(address: SocketAddr) -> UctSocketAddress {
        let mut ip = [0; 16];
        let (family, scope_id) = match address {
            SocketAddr::V4(address) => {
                ip[..4].copy_from_slice(&address.ip().octets());
                (UCT_FAMILY_IPV4, 0)
            }
            SocketAddr::V6(address) => {
                ip = address.ip().octets();
                (UCT_FAMILY_IPV6, address.scope_id())
            }
        };
        UctSocketAddress { family, port: address.port(), scope_id, ip }
    }
}
