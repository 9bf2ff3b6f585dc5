//! Error numbers of libfabric.

use std::fmt;

/// A positive error number: one of the system's, or from 256 on one of libfabric's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Nothing was done; the same call may succeed after progress.
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    /// The operation was canceled.
    pub const CANCELED: Errno = Errno(libc::ECANCELED);
    /// No such operation.
    pub const NOT_FOUND: Errno = Errno(libc::ENOENT);
    /// A peek found no message.
    pub const NO_MESSAGE: Errno = Errno(libc::ENOMSG);
    /// An argument is out of range.
    pub const INVALID: Errno = Errno(libc::EINVAL);
    /// There is no memory for it.
    pub const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    /// The call is not offered.
    pub const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    /// A message or operation is longer than the limit.
    pub const TOO_LONG: Errno = Errno(libc::EMSGSIZE);
    /// The peer's region does not permit the access.
    pub const ACCESS: Errno = Errno(libc::EACCES);
    /// An input or output error.
    pub const IO: Errno = Errno(libc::EIO);
    /// The peer's address is not reachable.
    pub const UNREACHABLE: Errno = Errno(libc::EHOSTUNREACH);
    /// No process listens at the peer's address.
    pub const REFUSED: Errno = Errno(libc::ECONNREFUSED);
    /// The connection to the peer has failed.
    pub const RESET: Errno = Errno(libc::ECONNRESET);
    /// The peer is gone, in order.
    pub const SHUT_DOWN: Errno = Errno(libc::ESHUTDOWN);
    /// It took too long.
    pub const TIMED_OUT: Errno = Errno(libc::ETIMEDOUT);
    /// The process is a child of a fork.
    pub const FORKED: Errno = Errno(libc::EPERM);
    /// Libfabric's number for an error without a better one.
    pub const OTHER: Errno = Errno(256);
    /// The object is still in use.
    pub const BUSY: Errno = Errno(libc::EBUSY);
    /// Libfabric's number for an error that is to be read elsewhere.
    pub const AVAILABLE: Errno = Errno(259);
    /// A receive was shorter than its message.
    pub const TRUNCATED: Errno = Errno(265);
    /// The key of a region is taken, or names none.
    pub const NO_KEY: Errno = Errno(266);
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", self.0)
    }
}
