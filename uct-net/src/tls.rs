//! TLS for the handshake of connections: its settings, and the transports that are permitted with it.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use uct_host::{DeviceKind, Iface};

/// The default of [`Tls::close_timeout`].
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// TLS for the handshake, and the lanes that are permitted with it.
///
/// The handshake runs inside TLS: each side authenticates the other as the settings of rustls require, and addresses, tokens, keys and private
/// data are encrypted. Messages, streams and remote memory use a transport. [`Tls::confidential`] permits transports within
/// the machine, and `tcp` inside the same TLS: what leaves the machine is encrypted. [`Tls::handshake_only`] permits all transports, and data
/// cross a network in clear.
///
/// ```
/// use uct_net::rustls::{ClientConfig, RootCertStore};
/// use uct_net::{NetOptions, Tls};
///
/// fn options(roots: RootCertStore) -> NetOptions {
///     let trusted = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
///     NetOptions { tls: Some(Tls::confidential().client(trusted)), ..NetOptions::default() }
/// }
/// ```
#[derive(Clone)]
#[must_use = "it takes effect as `NetOptions::tls`"]
pub struct Tls {
    pub(crate) client: Option<Arc<ClientConfig>>,
    pub(crate) server: Option<Arc<ServerConfig>>,
    may_leave_in_clear: bool,
    pub(crate) close_timeout: Duration,
}

/// What TLS has proved about a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPeer {
    /// The peer's certificate, which the verifier of the settings has accepted, and its chain. Empty if the settings request none.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The protocol that ALPN has negotiated, if the settings name any.
    pub protocol: Option<Vec<u8>>,
}

impl Tls {
    /// Nothing leaves this machine in clear: the handshake is encrypted; connections use transports within the machine
    /// (shared memory and `self`), and where none leads to the peer, `tcp` inside TLS, over the socket and with the session of the handshake. Both
    /// sides need this setting for that. With [`crate::Connect::by`] or [`crate::Listen::by`] it is an error, because RDMA is in clear. The
    /// system, root and processes that may debug this one can read shared memory.
    ///
    /// Interfaces of `tcp` are open for it. What the application itself sends over them ([`crate::local::Net::ifaces`]) is in clear.
    pub fn confidential() -> Tls {
        Tls { client: None, server: None, may_leave_in_clear: false, close_timeout: CLOSE_TIMEOUT }
    }

    /// The handshake is encrypted and nothing else: **messages, streams and remote memory cross the network in clear**, and a
    /// host on the path can read and change them. The certificate identifies the peer at the time of the handshake only.
    pub fn handshake_only() -> Tls {
        Tls { may_leave_in_clear: true, ..Tls::confidential() }
    }

    /// Settings for [`crate::Net::connect`]. Without them, connecting is an error.
    pub fn client(mut self, settings: impl Into<Arc<ClientConfig>>) -> Tls {
        self.client = Some(settings.into());
        self
    }

    /// Settings for [`crate::Net::listen`]. Without them, listening is an error.
    pub fn server(mut self, settings: impl Into<Arc<ServerConfig>>) -> Tls {
        self.server = Some(settings.into());
        self
    }

    /// Time limit of the end of a lane inside TLS, from the moment when one side has ended, or this side's connection is gone: for the rest that
    /// was sent, and for the peer's own end. Afterwards its socket is closed, and what has not left is lost. Default 5 s.
    pub fn close_timeout(mut self, limit: Duration) -> Tls {
        self.close_timeout = limit;
        self
    }

    /// What is missing, as text.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_empty = self.client.is_none() && self.server.is_none();
        is_empty.then(|| "tls has no settings: give Tls::client, Tls::server or both".to_owned())
    }

    /// Why an interface must not carry messages.
    pub(crate) fn refuses(&self, iface: &Iface) -> Option<String> {
        self.limit().filter(|_| !is_near(iface) && !iface.adopts()).map(str::to_owned)
    }

    /// Whether an interface may carry messages inside TLS only.
    pub(crate) fn wraps(&self, iface: &Iface) -> bool {
        !self.may_leave_in_clear && !is_near(iface)
    }

    /// What is not permitted, and by which setting.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        const LIMIT: &str = "Tls::confidential permits no transport that leaves the machine but tcp inside TLS, for which both \
                             sides need it, as messages would be in clear; Tls::handshake_only does";
        (!self.may_leave_in_clear).then_some(LIMIT)
    }
}

fn is_near(iface: &Iface) -> bool {
    matches!(iface.resource().kind, DeviceKind::Myself | DeviceKind::SharedMemory)
}

/// Without keys.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("has_client", &self.client.is_some())
            .field("has_server", &self.server.is_some())
            .field("may_leave_in_clear", &self.may_leave_in_clear)
            .field("close_timeout", &self.close_timeout)
            .finish()
    }
}
