//! What an attempt to connect needs.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use uct_host::select::Request;

/// An attempt to connect, made by `.await`. Its methods set what the attempt needs.
#[must_use = "nothing is connected until it is awaited"]
pub struct Connect<N> {
    pub(crate) net: N,
    pub(crate) settings: Settings,
}

/// What the methods of [`Connect`] set. Without a limit or a request those of the net's options count.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) address: String,
    pub(crate) by: Option<String>,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) limit: Option<Duration>,
    pub(crate) requests: Vec<Request>,
    pub(crate) require: Vec<String>,
    pub(crate) private: Vec<u8>,
    #[cfg(feature = "tls")]
    pub(crate) server_name: Option<String>,
}

impl<N> Connect<N> {
    pub(crate) fn new(net: N, address: impl fmt::Display) -> Connect<N> {
        Connect { net, settings: Settings { address: address.to_string(), ..Settings::default() } }
    }

    /// Time limit of the whole attempt, after which the error is `TIMED_OUT`. Default: [`crate::NetOptions::connect_timeout`].
    pub fn within(mut self, limit: Duration) -> Connect<N> {
        self.settings.limit = Some(limit);
        self
    }

    /// Connects by a connection manager, `rdmacm`, to a listener that has [`crate::Listen::by`]. The address is an IP address or a name of a
    /// network device with an RDMA device. The first lane is `rc_verbs` on the device that leads there; it is kept if it is the one that
    /// is chosen. Without such a device, or the connection manager, it is an error, as with `Tls::confidential`, which encrypts no RDMA.
    pub fn by(mut self, manager: impl Into<String>) -> Connect<N> {
        self.settings.by = Some(manager.into());
        self
    }

    /// The address of this machine to call from; port 0 lets the system choose one. It decides the device of a call by a connection manager, and
    /// the address that the listener sees. The devices of other lanes than the one over the call itself are chosen as usual
    /// ([`Connect::require`]). An address that this machine does not have is an error, as is one of another family than the called one, or
    /// any for a Unix path.
    pub fn from(mut self, source: SocketAddr) -> Connect<N> {
        self.settings.from = Some(source);
        self
    }

    /// Permits only a transport (`posix`), a device (`eth0`) or both (`tcp/eth0`) of this name. May be repeated: any of them.
    pub fn require(mut self, name: impl Into<String>) -> Connect<N> {
        self.settings.require.push(name.into());
        self
    }

    /// The operation and size for which selection compares the transports. May be repeated: of several requests the one that can be met at the
    /// lowest cost counts. Default: [`crate::NetOptions::request`].
    pub fn request(mut self, request: Request) -> Connect<N> {
        self.settings.requests.push(request);
        self
    }

    /// Private data for the listener, which can read them before it accepts. At most 64 KiB; more is an error of connecting.
    pub fn private(mut self, private: impl Into<Vec<u8>>) -> Connect<N> {
        self.settings.private = private.into();
        self
    }

    /// The name that the listener's certificate must be valid for, with [`crate::NetOptions::tls`]. Default: the host of the address; a
    /// Unix path has none.
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> Connect<N> {
        self.settings.server_name = Some(name.into());
        self
    }
}

impl<N> fmt::Debug for Connect<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("address", &self.settings.address).finish_non_exhaustive()
    }
}
