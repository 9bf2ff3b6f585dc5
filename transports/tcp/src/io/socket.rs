//! Sockets: how they are made and set up.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use ucs::units::{MemSize, Time};

/// A congestion control that every system has and every user may take, and that sends as fast as the peer receives.
const UNPACED: &str = "reno";

/// The configuration of sockets.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) sndbuf: MemSize,
    pub(crate) rcvbuf: MemSize,
    pub(crate) congestion: String,
    pub(crate) syn_cnt: u8,
    pub(crate) nodelay: bool,
    pub(crate) keepidle: Time,
    pub(crate) keepintvl: Time,
    pub(crate) keepcnt: u32,
    pub(crate) user_timeout: Time,
}

/// A non-blocking socket that connects to `peer`. An error other than "in progress" is immediate, as on loopback.
pub(crate) fn connect(peer: SocketAddr, source: Option<SocketAddr>, options: &Options) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(peer), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    set_ahead(&socket, peer.ip(), options)?;
    set_up(&socket, options)?;
    if options.syn_cnt > 0 {
        set_syn_count(&socket, options.syn_cnt)?;
    }
    if let Some(source) = source {
        socket.bind(&source.into())?;
    }
    match socket.connect(&peer.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// What has to be set before a connection is made, and is passed on by a listening socket: the one that listens on `address`, or
/// is to be connected to it.
pub(crate) fn set_ahead(socket: &Socket, address: IpAddr, options: &Options) -> io::Result<()> {
    let number = |size: MemSize| (!size.is_auto() && !size.is_inf()).then(|| size.to_usize());
    if let Some(bytes) = number(options.sndbuf) {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = number(options.rcvbuf) {
        socket.set_recv_buffer_size(bytes)?;
    }
    match options.congestion.as_str() {
        "auto" if address.is_loopback() => {
            // Later would be too late: a socket that was paced once stays so. Without it all works, more slowly.
            let _ = set_tcp_congestion(socket, UNPACED);
        }
        "auto" | "system" => {}
        name => set_tcp_congestion(socket, name).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!(
                    "congestion: the system does not grant the congestion control {name:?} ({error}); expected auto, system, \
                     or one of those in /proc/sys/net/ipv4/tcp_allowed_congestion_control"
                ),
            )
        })?,
    }
    Ok(())
}

/// What is set on every socket that carries messages.
pub(crate) fn set_up(socket: &Socket, options: &Options) -> io::Result<()> {
    socket.set_tcp_nodelay(options.nodelay)?;
    if !options.keepidle.is_inf() {
        let keepalive = TcpKeepalive::new()
            .with_time(whole_seconds(options.keepidle))
            .with_interval(whole_seconds(options.keepintvl))
            .with_retries(options.keepcnt);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    if !options.user_timeout.is_inf() {
        socket.set_tcp_user_timeout(Some(options.user_timeout.to_duration()))?;
    }
    Ok(())
}

/// Bytes that have come on a socket since it was connected.
pub(crate) fn bytes_received(socket: &Socket) -> io::Result<u64> {
    /// Where `tcpi_bytes_received` is in the system's `struct tcp_info`: 8 bytes.
    const AT: usize = 128;
    let mut info = [0_u8; AT + 8];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the option writes at most `length` bytes, which the array has.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match answer {
        0 if length as usize == info.len() => {
            Ok(u64::from_ne_bytes(info[AT..].try_into().expect("eight bytes")))
        }
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The system counts whole seconds, at least one and at most 32767.
fn whole_seconds(time: Time) -> Duration {
    Duration::from_secs(time.seconds().clamp(1.0, 32_767.0).ceil() as u64)
}

fn set_syn_count(socket: &Socket, count: u8) -> io::Result<()> {
    let value = i32::from(count);
    // SAFETY: the option takes an int, which lives on this stack.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SYNCNT,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use rustix::net::sockopt::tcp_congestion;

    pub(crate) fn with(congestion: &str) -> Options {
        Options {
            sndbuf: MemSize::AUTO,
            rcvbuf: MemSize::AUTO,
            congestion: congestion.to_owned(),
            syn_cnt: 0,
            nodelay: true,
            keepidle: "10s".parse().unwrap(),
            keepintvl: "2s".parse().unwrap(),
            keepcnt: 3,
            user_timeout: "30s".parse().unwrap(),
        }
    }

    fn congestion_of_a_connection(options: &Options) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = connect(listener.local_addr().unwrap(), None, options).unwrap();
        tcp_congestion(&socket).unwrap()
    }

    #[test]
    fn over_loopback_nothing_is_paced_unless_the_configuration_says_so() {
        let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let systems = tcp_congestion(&fresh).unwrap();
        assert_eq!(congestion_of_a_connection(&with("auto")), UNPACED);
        assert_eq!(congestion_of_a_connection(&with("system")), systems);
        assert_eq!(congestion_of_a_connection(&with(UNPACED)), UNPACED);
        // Elsewhere the system knows better.
        set_ahead(&fresh, IpAddr::from([192, 0, 2, 1]), &with("auto")).unwrap();
        assert_eq!(tcp_congestion(&fresh).unwrap(), systems);
    }

    #[test]
    fn a_silent_peer_is_noticed_by_the_system_unless_its_limits_are_off() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connected = |options: &Options| connect(listener.local_addr().unwrap(), None, options).unwrap();
        let seconds = |count| Duration::from_secs(count);
        let socket = connected(&with("auto"));
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        let times = [socket.tcp_keepalive_time(), socket.tcp_keepalive_interval()].map(io::Result::unwrap);
        assert_eq!((times, socket.tcp_keepalive_retries().unwrap()), ([seconds(10), seconds(2)], 3));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(seconds(30)));
        let off = || "inf".parse().unwrap();
        let socket =
            connected(&Options { keepidle: off(), user_timeout: off(), nodelay: false, ..with("auto") });
        assert!(!socket.keepalive().unwrap() && !socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }

    #[test]
    fn a_connection_that_the_system_refuses_at_once_is_an_error() {
        // The broadcast address of loopback: there is no route for TCP.
        let refused = connect((Ipv4Addr::new(127, 255, 255, 255), 9).into(), None, &with("auto"));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENETUNREACH));
    }

    fn syn_count(socket: &Socket) -> i32 {
        let (mut value, mut length) = (0, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the option is an int, for which there is room.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_SYNCNT,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!(answer, 0);
        value
    }

    #[test]
    fn a_socket_has_the_buffers_and_attempts_that_are_configured_and_otherwise_the_systems() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connected = |options: &Options| connect(listener.local_addr().unwrap(), None, options).unwrap();
        let buffers =
            |socket: &Socket| [socket.send_buffer_size(), socket.recv_buffer_size()].map(io::Result::unwrap);
        let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        assert_eq!(syn_count(&connected(&with("auto"))), syn_count(&fresh));
        let [sndbuf, rcvbuf] = [8192, 16_384].map(MemSize::new);
        let socket = connected(&Options { sndbuf, rcvbuf, syn_cnt: 9, ..with("auto") });
        // The system doubles them, for what it needs itself.
        assert_eq!((buffers(&socket), syn_count(&socket)), ([16_384, 32_768], 9));
    }

    #[test]
    fn bytes_are_counted_as_they_come() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut accepted = Socket::from(listener.accept().unwrap().0);
        assert_eq!(bytes_received(&accepted).unwrap(), 0);
        client.write_all(&[1; 1234]).unwrap();
        accepted.read_exact(&mut [0; 1234]).unwrap();
        assert_eq!(bytes_received(&accepted).unwrap(), 1234);
    }

    #[test]
    fn a_congestion_control_that_the_system_does_not_have_is_named() {
        let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let error = set_ahead(&fresh, IpAddr::from([127, 0, 0, 1]), &with("renno")).unwrap_err().to_string();
        assert!(error.contains("\"renno\"") && error.contains("tcp_allowed_congestion_control"), "{error}");
    }
}
