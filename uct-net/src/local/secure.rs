//! TLS of a listener and of a caller, by the options.

use rustls::pki_types::ServerName;
use ucs::Error as Status;
use ucs::sys::net::{ParsedAddress, Purpose};

use super::handshake;
use super::net::NetHandle;
use super::session::Session;
use super::socket::FrameSocket;
use crate::TlsPeer;
use crate::error::{Error, Result, Stage};

/// Whether the options permit to listen.
pub(crate) fn check_listener(net: &NetHandle, address: &str) -> Result {
    match &net.options.tls {
        Some(tls) if tls.server.is_none() => {
            let error =
                Error::new(Stage::Listen, address, Status::INVALID_PARAM, "tls has no settings for a server");
            Err(error.hint("give Tls::server"))
        }
        _ => Ok(()),
    }
}

/// The server's side of TLS, if it is required.
pub(crate) async fn accept(net: &NetHandle, socket: &FrameSocket) -> Result<Option<TlsPeer>> {
    let Some(settings) = net.options.tls.as_ref().and_then(|tls| tls.server.as_ref()) else {
        return Ok(None);
    };
    let session = Session::server(settings)
        .map_err(|error| socket.failed(Status::INVALID_PARAM, format!("the settings of TLS: {error}")))?;
    handshake::secure(net, socket, session).await.map(Some)
}

/// The client's side of TLS, if the options have it, for the name that the certificate has to be for.
pub(crate) fn session(net: &NetHandle, address: &str, name: Option<&str>) -> Result<Option<Session>> {
    let refused = |reason: String| Error::new(Stage::Resolve, address, Status::INVALID_PARAM, reason);
    let Some(tls) = &net.options.tls else {
        return match name {
            Some(name) => Err(refused(format!("server_name {name:?} is given, and there is no TLS"))
                .hint("set NetOptions::tls, or give no server_name")),
            None => Ok(None),
        };
    };
    let settings = tls
        .client
        .as_ref()
        .ok_or_else(|| refused("tls has no settings for a client".to_owned()).hint("give Tls::client"))?;
    let parsed = ParsedAddress::parse(address, Purpose::Connect);
    let host = parsed.map_err(|bad| Error::unresolved(address, bad))?.host();
    let name = match name.map(str::to_owned).or(host) {
        Some(name) => name,
        None => {
            return Err(refused("a path has no name that a certificate is for".to_owned())
                .hint("give Connect::server_name"));
        }
    };
    let server = ServerName::try_from(name.clone()).map_err(|_| {
        refused(format!("{name:?} is no name that a certificate can be for"))
            .hint("give Connect::server_name")
    })?;
    let session = Session::client(settings, server)
        .map_err(|error| refused(format!("the settings of TLS: {error}")))?;
    Ok(Some(session))
}
