//! Non-blocking TCP sockets: listen, accept, connect.
//!
//! Used by the tcp transport and the out-of-band exchanges of programs. Built on `socket2`. Every error names
//! the address.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use super::SystemError;

/// What to do without sockets of an address's family.
const NO_FAMILY: &str = "the kernel has no sockets of this family, or a sandbox forbids them (RestrictAddressFamilies): use the other one";

/// The state of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// The connection is established.
    Connected,
    /// The outcome is not known yet. When the socket becomes writable, call [`connect_outcome`].
    InProgress,
}

/// A non-blocking socket that listens on `address`; port 0 lets the system choose. `[::]` takes IPv4 peers as well, and is `0.0.0.0`
/// where there is no IPv6; another IPv6 address takes none. `backlog` is the number of connections that may wait for [`accept`].
pub fn listen(address: SocketAddr, backlog: i32) -> Result<Socket, SystemError> {
    match listen_at(address, backlog) {
        Err(error) if is_everywhere(address) && lacks_ipv6(error.errno) => {
            listen_at(SocketAddr::from(([0, 0, 0, 0], address.port())), backlog)
        }
        outcome => outcome,
    }
}

/// Whether an IPv6 address was refused because the system has no IPv6, or forbids its sockets.
pub fn is_for_want_of_ipv6(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(lacks_ipv6)
}

fn lacks_ipv6(errno: i32) -> bool {
    [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL].contains(&errno)
}

fn is_everywhere(address: SocketAddr) -> bool {
    address.is_ipv6() && address.ip().is_unspecified()
}

fn listen_at(address: SocketAddr, backlog: i32) -> Result<Socket, SystemError> {
    let failure = |error: io::Error| {
        let error = SystemError::new(format!("listen on {address}"), error);
        match error.errno {
            libc::EADDRINUSE => {
                error.advise("another program uses the port: choose another one, or 0 for any")
            }
            libc::EADDRNOTAVAIL => error.advise("the address is not one of this machine's"),
            libc::EACCES => error.advise("ports below 1024 need privileges"),
            libc::EAFNOSUPPORT => error.advise(NO_FAMILY),
            _ => error,
        }
    };
    let socket = stream(address).map_err(failure)?;
    // Without it a server cannot come back while old connections linger.
    socket.set_reuse_address(true).map_err(failure)?;
    if address.is_ipv6() {
        // Whatever net.ipv6.bindv6only says.
        socket.set_only_v6(!is_everywhere(address)).map_err(failure)?;
    }
    socket.bind(&address.into()).map_err(failure)?;
    socket.listen(backlog).map_err(failure)?;
    Ok(socket)
}

/// Takes a waiting connection, non-blocking and closed on `exec`; `None` if none is waiting, or if the one
/// that was has gone.
///
/// Being out of descriptors or memory is an error (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`) that leaves the
/// connection waiting.
pub fn accept(listener: &Socket) -> Result<Option<(Socket, SocketAddr)>, SystemError> {
    let (socket, peer) = match listener.accept_raw() {
        Ok(accepted) => accepted,
        Err(error) if is_nothing_to_accept(&error) => return Ok(None),
        Err(error) => return Err(SystemError::new("accept a connection", error)),
    };
    let failure = |error: io::Error| SystemError::new("set up an accepted connection", error);
    socket.set_cloexec(true).map_err(failure)?;
    socket.set_nonblocking(true).map_err(failure)?;
    // A peer that is gone already has no address.
    Ok(peer.as_socket().map(|peer| (socket, peer)))
}

/// Starts a connection to `peer`, from `source` if given (its port is usually 0). Does not block.
pub fn connect(peer: SocketAddr, source: Option<SocketAddr>) -> Result<(Socket, Connect), SystemError> {
    let failure = |error: io::Error| connect_failure(peer, error);
    let socket = stream(peer).map_err(failure)?;
    if let Some(source) = source {
        let bind_failure = |error| SystemError::new(format!("connect to {peer} from {source}"), error);
        socket.bind(&source.into()).map_err(bind_failure)?;
    }
    match socket.connect(&peer.into()) {
        Ok(()) => Ok((socket, Connect::Connected)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((socket, Connect::InProgress)),
        Err(error) => Err(failure(error)),
    }
}

/// How a connection attempt has gone so far.
pub fn connect_outcome(socket: &Socket, peer: SocketAddr) -> Result<Connect, SystemError> {
    let pending = socket.take_error().map_err(|error| connect_failure(peer, error))?;
    if let Some(error) = pending {
        return Err(connect_failure(peer, error));
    }
    match socket.peer_addr() {
        Ok(_) => Ok(Connect::Connected),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(Connect::InProgress),
        Err(error) => Err(connect_failure(peer, error)),
    }
}

/// The address that a socket is bound to.
pub fn local_address(socket: &Socket) -> Result<SocketAddr, SystemError> {
    let failure = |error: io::Error| SystemError::new("read a socket's address", error);
    let address = socket.local_addr().map_err(failure)?;
    address.as_socket().ok_or_else(|| SystemError::new("read a socket's address", libc::EAFNOSUPPORT))
}

fn stream(address: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))
}

fn is_nothing_to_accept(error: &io::Error) -> bool {
    let gone =
        [libc::EAGAIN, libc::EINTR, libc::ECONNABORTED, libc::EPROTO, libc::ENETDOWN, libc::EHOSTUNREACH];
    error.raw_os_error().is_some_and(|errno| gone.contains(&errno))
}

fn connect_failure(peer: SocketAddr, error: io::Error) -> SystemError {
    let error = SystemError::new(format!("connect to {peer}"), error);
    match error.errno {
        libc::ECONNREFUSED => {
            error.advise("nothing listens there: start the server first, and check address and port")
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => error.advise("there is no route: check the address"),
        libc::EAFNOSUPPORT => error.advise(NO_FAMILY),
        libc::ETIMEDOUT => error.advise("no answer: check the address and firewalls on the way"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_set::{EventBuffer, EventSet, Events};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn wait_for(fd: impl AsFd, events: Events) {
        let set = EventSet::new().unwrap();
        set.add(fd, events, 0).unwrap();
        let count = set.wait(&mut EventBuffer::<1>::new(), Some(Duration::from_secs(10))).unwrap().len();
        assert_eq!(count, 1, "nothing happened for ten seconds");
    }

    fn connects(address: &str) {
        let listener = match listen(address.parse().unwrap(), 8) {
            Ok(listener) => listener,
            Err(error) if address.starts_with('[') && error.errno != libc::EINVAL => {
                return eprintln!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let server = local_address(&listener).unwrap();
        assert!(accept(&listener).unwrap().is_none());
        let (mut client, state) = connect(server, None).unwrap();
        if state == Connect::InProgress {
            wait_for(&client, Events::WRITE);
        }
        assert_eq!(connect_outcome(&client, server).unwrap(), Connect::Connected);
        wait_for(&listener, Events::READ);
        let (mut accepted, peer) = accept(&listener).unwrap().expect("a connection waits");
        assert_eq!(peer, local_address(&client).unwrap());
        assert_eq!(accepted.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"x").unwrap();
        wait_for(&accepted, Events::READ);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 1);
    }

    #[test]
    fn a_connection_is_made_without_blocking_over_ipv4() {
        connects("127.0.0.1:0");
    }

    #[test]
    fn a_connection_is_made_without_blocking_over_ipv6() {
        connects("[::1]:0");
    }

    #[test]
    fn a_port_in_use_is_named_with_advice() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = local_address(&first).unwrap();
        let error = listen(address, 1).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(error.advice.unwrap().contains("another program"));
        assert_eq!(crate::Error::from_errno(error.errno), crate::Error::BUSY);
    }

    #[test]
    fn nobody_listening_is_an_error_with_advice() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = local_address(&listener).unwrap();
        drop(listener);
        let outcome = connect(address, None).and_then(|(socket, _)| {
            wait_for(&socket, Events::WRITE);
            connect_outcome(&socket, address)
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.errno, libc::ECONNREFUSED);
        assert!(error.to_string().contains("start the server"), "{error}");
    }

    #[test]
    fn all_addresses_are_those_of_ipv4_as_well() {
        let listener = listen("[::]:0".parse().unwrap(), 1).unwrap();
        let port = local_address(&listener).unwrap().port();
        let (client, _) = connect(SocketAddr::from(([127, 0, 0, 1], port)), None).unwrap();
        wait_for(&listener, Events::READ);
        assert!(accept(&listener).unwrap().is_some());
        drop(client);
    }

    #[test]
    fn an_address_of_another_machine_cannot_be_listened_on() {
        let error = listen("192.0.2.250:0".parse().unwrap(), 1).unwrap_err();
        assert!(error.to_string().contains("not one of this machine's"), "{error}");
    }
}
