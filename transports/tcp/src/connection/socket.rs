//! Sockets: how they are made and set up.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use ucs::units::{MemSize, Time};

use crate::config::TcpConfig;

/// A non-blocking socket on its way to `peer`. An error other than "in progress" is immediate, as on loopback.
pub(super) fn connect(
    peer: SocketAddr,
    source: Option<SocketAddr>,
    config: &TcpConfig,
) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(peer), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    set_buffers(&socket, config)?;
    set_up(&socket, config)?;
    if config.syn_cnt > 0 {
        set_syn_count(&socket, config.syn_cnt)?;
    }
    if let Some(source) = source {
        socket.bind(&source.into())?;
    }
    match socket.connect(&peer.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// What has to be set before a connection is made, and is passed on by a listening socket.
pub(crate) fn set_buffers(socket: &Socket, config: &TcpConfig) -> io::Result<()> {
    let number = |size: MemSize| (!size.is_auto() && !size.is_inf()).then(|| size.to_usize());
    if let Some(bytes) = number(config.sndbuf) {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = number(config.rcvbuf) {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// What is set on every socket that carries messages.
pub(crate) fn set_up(socket: &Socket, config: &TcpConfig) -> io::Result<()> {
    socket.set_tcp_nodelay(config.nodelay)?;
    if !config.keepidle.is_inf() {
        let keepalive = TcpKeepalive::new()
            .with_time(whole_seconds(config.keepidle))
            .with_interval(whole_seconds(config.keepintvl))
            .with_retries(config.keepcnt);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    if !config.user_timeout.is_inf() {
        socket.set_tcp_user_timeout(Some(config.user_timeout.to_duration()))?;
    }
    Ok(())
}

/// The system counts whole seconds, at least one and at most 32767.
fn whole_seconds(time: Time) -> Duration {
    Duration::from_secs(time.seconds().clamp(1.0, 32_767.0).ceil() as u64)
}

fn set_syn_count(socket: &Socket, count: u8) -> io::Result<()> {
    use std::os::fd::AsRawFd;
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
