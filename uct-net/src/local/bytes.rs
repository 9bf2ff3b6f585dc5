//! Bytes that are read and written without blocking, and a socket for them.

use std::io::{IoSlice, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use socket2::Socket;

use super::reactor::{Reactor, Watched};

/// Reads and writes without blocking.
pub(crate) trait Bytes: Read + Write {}
impl<T: Read + Write> Bytes for T {}

/// A socket of whatever family. A write raises no signal if the other end is gone: a program that is not written in Rust may not ignore SIGPIPE.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) Socket);

impl Read for &Raw {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        (&self.0).read(buffer)
    }
}

impl Write for &Raw {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.send_with_flags(bytes, libc::MSG_NOSIGNAL)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize> {
        self.0.send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Watches a socket.
pub(crate) fn watch(
    reactor: &Rc<Reactor>,
    socket: Socket,
) -> std::result::Result<Watched<Raw>, ucs::sys::SystemError> {
    // A Unix socket has nothing to delay.
    let _ = socket.set_tcp_nodelay(true);
    reactor.watch(Raw(socket))
}
