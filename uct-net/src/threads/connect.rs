//! Connecting to a listener by its address, from any thread.

use std::fmt;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uct_core::select::Request;

use super::connection::Connection;
use super::engine::Engine;
use super::operation::Operation;

/// An attempt to connect, made by `.await`. Its methods set what the attempt needs.
#[must_use = "nothing is connected until it is awaited"]
pub struct Connect {
    engine: Arc<Engine>,
    address: String,
    by: Option<String>,
    from: Option<SocketAddr>,
    limit: Option<Duration>,
    requests: Vec<Request>,
    require: Vec<String>,
    private: Vec<u8>,
    #[cfg(feature = "tls")]
    server_name: Option<String>,
}

/// The future of [`super::Net::connect`]. Dropping it ends the attempt.
pub type Connecting = Operation<Connection>;

impl Connect {
    pub(super) fn new(engine: &Arc<Engine>, address: String) -> Connect {
        let engine = Arc::clone(engine);
        Connect {
            engine,
            address,
            by: None,
            from: None,
            limit: None,
            requests: Vec::new(),
            require: Vec::new(),
            private: Vec::new(),
            #[cfg(feature = "tls")]
            server_name: None,
        }
    }

    /// Time limit of the whole attempt, after which the error is `TIMED_OUT`. Default: [`crate::NetOptions::connect_timeout`].
    pub fn within(mut self, limit: Duration) -> Connect {
        self.limit = Some(limit);
        self
    }

    /// Connects by a connection manager, as [`crate::local::Connect::by`].
    pub fn by(mut self, manager: impl Into<String>) -> Connect {
        self.by = Some(manager.into());
        self
    }

    /// The address of this machine to call from, as [`crate::local::Connect::from`].
    pub fn from(mut self, source: SocketAddr) -> Connect {
        self.from = Some(source);
        self
    }

    /// Permits only a transport (`posix`), a device (`eth0`) or both (`tcp/eth0`) of this name. May be repeated: any of them.
    pub fn require(mut self, name: impl Into<String>) -> Connect {
        self.require.push(name.into());
        self
    }

    /// The operation and size for which selection compares the transports. May be repeated: of several requests the one that can be met at the
    /// lowest cost counts. Default: [`crate::NetOptions::request`].
    pub fn request(mut self, request: Request) -> Connect {
        self.requests.push(request);
        self
    }

    /// Private data for the listener, which can read them before it accepts. At most 64 KiB; more is an error of connecting.
    pub fn private(mut self, private: impl Into<Vec<u8>>) -> Connect {
        self.private = private.into();
        self
    }

    /// The name that the listener's certificate must be valid for, as [`crate::local::Connect::server_name`].
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> Connect {
        self.server_name = Some(name.into());
        self
    }
}

impl IntoFuture for Connect {
    type Output = <Connecting as Future>::Output;
    type IntoFuture = Connecting;

    fn into_future(self) -> Connecting {
        #[cfg(feature = "tls")]
        let server_name = self.server_name;
        let Connect { engine, address, by, from, limit, requests, require, private, .. } = self;
        let begin = move |entered: &super::engine::Entered<'_>| {
            let net = crate::local::Net { inner: entered.net().clone() };
            let mut connect = net.connect(address).private(private);
            connect = by.into_iter().fold(connect, crate::local::Connect::by);
            connect = from.into_iter().fold(connect, crate::local::Connect::from);
            connect = require.into_iter().fold(connect, crate::local::Connect::require);
            connect = requests.into_iter().fold(connect, crate::local::Connect::request);
            #[cfg(feature = "tls")]
            if let Some(name) = server_name {
                connect = connect.server_name(name);
            }
            if let Some(limit) = limit {
                connect = connect.within(limit);
            }
            connect.into_future()
        };
        Operation::new(&engine, begin, Connection::new)
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("address", &self.address).finish_non_exhaustive()
    }
}
