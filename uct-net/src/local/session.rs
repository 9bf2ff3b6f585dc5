//! TLS over the handshake's socket, without blocking.

use std::io::{ErrorKind, Read, Result, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, ServerConfig};
use ucs::text::Visible;

use super::bytes::Bytes;
use crate::tls::TlsPeer;

/// Bytes ahead of a record: its type, the version, its length.
const HEADER: usize = 5;
/// The types of the first record that there may be: an alert, or a message of the handshake.
const FIRST: [u8; 2] = [21, 22];
/// Records of the peer: an honest one sends dozens, and one that sends them without end would keep the thread busy.
const MAX_RECORDS: u32 = 4096;

/// One side of TLS over a socket.
pub(crate) struct Session {
    tls: rustls::Connection,
    records: Records,
}

/// The peer's first bytes are no TLS.
#[derive(Debug, thiserror::Error)]
#[error("the peer begins with \"{}\"", .0.escape_ascii())]
pub(crate) struct NotTls([u8; HEADER]);

/// The peer sends too many records.
#[derive(Debug, thiserror::Error)]
#[error("the peer sends more than {MAX_RECORDS} records of TLS in a handshake")]
struct TooMany;

/// How much of a record was read. No byte behind the last record is: the socket may become a lane.
#[derive(Default)]
struct Records {
    header: [u8; HEADER],
    have: usize,
    left: usize,
    /// Records that have begun.
    count: u32,
}

struct Reader<'a> {
    records: &'a mut Records,
    socket: &'a mut dyn Bytes,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let (records, socket) = (&mut *self.records, &mut *self.socket);
        if records.have == HEADER {
            let wanted = records.left.min(buffer.len());
            let count = socket.read(&mut buffer[..wanted])?;
            records.left -= count;
            if records.left == 0 {
                records.have = 0;
            }
            return Ok(count);
        }
        let wanted = (HEADER - records.have).min(buffer.len());
        let count = socket.read(&mut buffer[..wanted])?;
        records.header[records.have..][..count].copy_from_slice(&buffer[..count]);
        records.have += count;
        if records.have == HEADER {
            if records.count == 0 && !FIRST.contains(&records.header[0]) {
                return Err(std::io::Error::other(NotTls(records.header)));
            }
            records.count += 1;
            if records.count > MAX_RECORDS {
                return Err(std::io::Error::other(TooMany));
            }
            records.left = usize::from(u16::from_be_bytes([records.header[3], records.header[4]]));
            if records.left == 0 {
                records.have = 0;
            }
        }
        Ok(count)
    }
}

impl Session {
    pub(crate) fn client(
        settings: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> std::result::Result<Session, rustls::Error> {
        let tls = rustls::ClientConnection::new(Arc::clone(settings), name)?;
        Ok(Session { tls: tls.into(), records: Records::default() })
    }

    pub(crate) fn server(settings: &Arc<ServerConfig>) -> std::result::Result<Session, rustls::Error> {
        let tls = rustls::ServerConnection::new(Arc::clone(settings))?;
        Ok(Session { tls: tls.into(), records: Records::default() })
    }

    pub(crate) fn is_client(&self) -> bool {
        matches!(self.tls, rustls::Connection::Client(_))
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether something is encrypted and has not left.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Takes in what the socket has of one record.
    pub(crate) fn advance(&mut self, socket: &mut dyn Bytes) -> Result<()> {
        if self.tls.read_tls(&mut Reader { records: &mut self.records, socket })? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = self.tls.process_new_packets() {
            // The alert, if there is room for it at once.
            let _ = self.flush(socket);
            return Err(std::io::Error::other(error));
        }
        Ok(())
    }

    /// Some of what the peer has encrypted.
    pub(crate) fn read(&mut self, socket: &mut dyn Bytes, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.advance(socket)?,
                outcome => return outcome,
            }
        }
    }

    /// Encrypts some of the bytes, once what was encrypted before has left.
    pub(crate) fn write(&mut self, socket: &mut dyn Bytes, bytes: &[u8]) -> Result<usize> {
        self.flush(socket)?;
        self.tls.writer().write(bytes)
    }

    /// Sends what is encrypted.
    pub(crate) fn flush(&mut self, mut socket: &mut dyn Bytes) -> Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut socket)?;
        }
        Ok(())
    }

    /// For what follows the handshake.
    pub(crate) fn into_tls(self) -> rustls::Connection {
        self.tls
    }

    /// What both sides of the session know, and nobody else does (RFC 5705, RFC 8446 7.5).
    pub(crate) fn binding(&self) -> std::result::Result<[u8; 32], rustls::Error> {
        self.tls.export_keying_material([0; 32], b"EXPORTER-uct-net shared key", None)
    }

    /// What is proved of the peer.
    pub(crate) fn peer(&self) -> TlsPeer {
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        TlsPeer {
            certificates: certificates.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            protocol: self.tls.alpn_protocol().map(<[u8]>::to_vec),
        }
    }
}

/// What a peer has sent in place of TLS.
pub(crate) fn no_tls(error: &std::io::Error) -> Option<&[u8]> {
    error.get_ref()?.downcast_ref().map(|NotTls(first)| &first[..])
}

/// Whether the peer does not use TLS at all.
pub(crate) fn is_foreign(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<NotTls>())
}

/// What an error of TLS means, and what to try; `None` if it is one of the socket.
pub(crate) fn words(error: &std::io::Error) -> Option<(String, &'static str)> {
    use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
    let cause = error.get_ref()?;
    if let Some(NotTls(first)) = cause.downcast_ref() {
        return Some(if first.starts_with(b"UCTN") {
            let words = "the peer does not use TLS, which this side requires".to_owned();
            (words, "set tls on both sides or on neither")
        } else {
            (format!("{}, expected TLS", NotTls(*first)), "that port has another protocol")
        });
    }
    if let Some(problem) = cause.downcast_ref::<TooMany>() {
        return Some((problem.to_string(), ""));
    }
    let error = cause.downcast_ref::<rustls::Error>()?;
    Some(match error {
        InvalidCertificate(problem) => {
            let hint = match problem {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "Connect::server_name is the name to look for, by default the host that was called"
                }
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => {
                    "renew it, and compare the clocks of the two machines"
                }
                CertificateError::UnknownIssuer => {
                    "the settings of this side need the root that has issued it"
                }
                _ => "",
            };
            // It lists the names in the certificate.
            let error = error.to_string();
            (format!("the peer's certificate is not accepted: {}", Visible(&error)), hint)
        }
        NoCertificatesPresented => {
            ("the peer presents no certificate, and this side requires one".to_owned(), "")
        }
        AlertReceived(AlertDescription::CertificateRequired) => (
            "the peer requires a certificate of this side".to_owned(),
            "give one to the settings of rustls (with_client_auth_cert)",
        ),
        AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown),
        ) => (
            format!("the peer does not accept the certificate of this side: {alert:?}"),
            "the other side's log has the cause",
        ),
        AlertReceived(alert) => {
            (format!("the peer ends TLS: {alert:?}"), "the other side's log has the cause")
        }
        _ => (format!("TLS fails: {error}"), ""),
    })
}
