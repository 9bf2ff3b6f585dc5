//! The end of connections whose handshake fails.

use super::super::conn::Conn;
use super::super::net::NetHandle;
use crate::proto::envelope::Token;
use crate::proto::handshake::GAVE_WAY;

/// What a peer is told that has its side open.
const FAILED: &str = "the other side did not complete the handshake";

/// Removes a connection whose handshake failed.
pub(crate) struct Forget<'a> {
    net: &'a NetHandle,
    token: Option<Token>,
    reason: &'static str,
}

impl<'a> Forget<'a> {
    pub(crate) fn new(net: &'a NetHandle, conn: &Conn) -> Forget<'a> {
        Forget { net, token: Some(conn.token()), reason: FAILED }
    }

    /// Of a caller, which gives way unless something fails.
    pub(crate) fn of_server(net: &'a NetHandle, conn: &Conn) -> Forget<'a> {
        Forget { net, token: Some(conn.token()), reason: GAVE_WAY }
    }

    pub(crate) fn fail(&mut self) {
        self.reason = FAILED;
    }

    pub(crate) fn keep(mut self) {
        self.token = None;
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.net.forget(token, self.reason);
        }
    }
}
