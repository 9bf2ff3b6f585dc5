//! Bytes that are read and written without blocking, and a socket for them.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use socket2::Socket;

use super::reactor::{Reactor, Watched};

/// Reads and writes without blocking.
pub(crate) trait Bytes: Read + Write {}
impl<T: Read + Write> Bytes for T {}

/// A socket of the standard library's, of whatever family.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) Socket);

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Watches a socket.
pub(crate) fn watch(reactor: &Rc<Reactor>, socket: Socket) -> Result<Watched<Raw>, ucs::sys::SystemError> {
    // A Unix socket has nothing to delay.
    let _ = socket.set_tcp_nodelay(true);
    reactor.watch(Raw(socket))
}
