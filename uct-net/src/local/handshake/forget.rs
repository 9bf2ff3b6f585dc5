//! The end of connections whose handshake fails.

use super::super::conn::Conn;
use super::super::net::NetHandle;
use crate::proto::envelope::Token;

/// Removes a connection whose handshake failed.
pub(crate) struct Forget<'a> {
    net: &'a NetHandle,
    token: Option<Token>,
}

impl<'a> Forget<'a> {
    pub(crate) fn new(net: &'a NetHandle, conn: &Conn) -> Forget<'a> {
        Forget { net, token: Some(conn.token()) }
    }

    pub(crate) fn keep(mut self) {
        self.token = None;
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.net.forget(token);
        }
    }
}
