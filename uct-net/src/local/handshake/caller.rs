//! A caller of a listener, from its first byte until it is connected. It is told why it is not, however that ends.

use std::pin::pin;
use std::task::{Context, Waker};

use ucs::admission::Source;
use ucs::memory::fork::Forked;
use uct_host::select::PeerAddresses;

use super::super::net::NetHandle;
#[cfg(feature = "tls")]
use super::super::secure;
use super::super::socket::FrameSocket;
use super::steps::{Steps, part};
use crate::error::{Error, Result};
use crate::proto::handshake::server::{Action, Input};
use crate::proto::handshake::{GAVE_WAY, Server};

/// A caller. If it is dropped before it is connected, it is refused.
pub(crate) struct Caller {
    pub(super) net: NetHandle,
    pub(super) socket: FrameSocket,
    pub(super) machine: Server,
    /// What it has sent with its first frame.
    pub(crate) private: Vec<u8>,
    pub(super) addresses: PeerAddresses,
    /// What TLS has proved about it.
    #[cfg(feature = "tls")]
    pub(crate) tls_peer: Option<crate::TlsPeer>,
    /// Why it is refused if it is dropped now.
    reason: String,
}

impl Caller {
    /// Of which nothing is known yet.
    pub(crate) fn new(net: NetHandle, socket: FrameSocket) -> Result<Caller> {
        let machine = machine(&net, &socket)?;
        Ok(Caller {
            net,
            socket,
            machine,
            private: Vec::new(),
            addresses: PeerAddresses::default(),
            #[cfg(feature = "tls")]
            tls_peer: None,
            reason: GAVE_WAY.to_owned(),
        })
    }

    /// Completes TLS with it, if that is required.
    #[cfg(feature = "tls")]
    pub(crate) async fn secure(&mut self) -> Result {
        self.tls_peer = secure::accept(&self.net, &self.socket).await?;
        if self.tls_peer.is_some() {
            // With the key of the session.
            self.machine = machine(&self.net, &self.socket)?;
        }
        Ok(())
    }

    /// See [`FrameSocket::peer`].
    pub(crate) fn peer(&self) -> &str {
        self.socket.peer()
    }

    /// Whether it is this process's.
    pub(crate) fn check_fork(&self) -> std::result::Result<(), Forked> {
        self.net.check_fork()
    }

    /// What it shares limits with.
    pub(crate) fn source(&self) -> Source {
        self.socket.origin().source()
    }

    /// It is refused for this reason if it is dropped.
    pub(crate) fn drop_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
    }

    /// Refuses it because of an error. One that has called with other security, or in another version, has to hang up within a limit: then it
    /// has the reason.
    pub(crate) async fn fail(mut self, error: &Error) {
        self.refuse_for(error);
        // The endpoint of a connection manager's connection is kept until then.
        let is_awaited = matches!(error.status, ucs::Error::UNSUPPORTED | ucs::Error::REJECTED);
        if is_awaited || self.socket.ends().is_some() {
            part(&self.net, &self.socket).await;
        }
    }

    /// Refuses it because of an error, without waiting.
    pub(super) fn refuse_for(&mut self, error: &Error) {
        let hint = error.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
        self.refuse(&format!("{}{hint}", error.reason));
    }

    /// Rejects it. The error: it has gone.
    pub(crate) async fn reject(mut self, reason: &str) -> Result {
        for action in self.machine.handle(Input::Rejected(reason)) {
            if let Action::Send(bytes) = action {
                Steps::of_server(&self.net, &self.socket).send(&bytes).await?;
            }
        }
        Ok(())
    }

    /// So few bytes find room in the socket at once. What has come and was not read is discarded: unread, it would make the system reset the
    /// connection, and a reset may overtake the reason.
    fn refuse(&mut self, reason: &str) {
        let actions = self.machine.handle(Input::Rejected(reason));
        if self.check_fork().is_err() || !self.socket.takes_frames() {
            return;
        }
        for action in actions {
            let Action::Send(bytes) = action else { continue };
            let refusal = pin!(async {
                self.socket.send(&bytes).await?;
                self.socket.part().await;
                Ok::<_, Error>(())
            });
            let _ = refusal.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

fn machine(net: &NetHandle, socket: &FrameSocket) -> Result<Server> {
    // Each interface may be tried over the socket and by itself, and one that does not exist: a client that goes on is a mistake.
    let lanes = 2 * net.selector.ifaces().len() + 1;
    let key = Steps::of_server(net, socket).key()?;
    Ok(Server::new(key.as_ref().map(|(key, nonce)| (&**key, *nonce)), lanes))
}

impl Drop for Caller {
    fn drop(&mut self) {
        let reason = std::mem::take(&mut self.reason);
        self.refuse(&reason);
    }
}
