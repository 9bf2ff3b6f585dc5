//! The process at the other end of a unix socket, as the kernel reports it.
//!
//! Used by shared-memory transports and by the host, which refuse other users. Built on `SO_PEERCRED`.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::LazyLock;

use super::{SystemError, read};

/// The process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The process number in our pid namespace; 0 where the peer is not in it.
    pub pid: u32,
    /// The effective user in our user namespace.
    pub uid: u32,
}

/// The number by which the kernel reports a user that a user namespace does not map.
static UNMAPPED: LazyLock<u32> =
    LazyLock::new(|| read::value("/proc/sys/kernel/overflowuid").unwrap_or(65_534));

impl Credentials {
    /// Whether it is a process of that user and of no other, as far as the kernel tells: in a user namespace that maps some users only, all the
    /// others have one number, and it may be the number of one that is mapped, too.
    pub fn is_of_user(self, uid: u32) -> bool {
        self.uid == uid && (uid != *UNMAPPED || maps_all_users())
    }
}

/// Whether this user namespace maps every user.
fn maps_all_users() -> bool {
    // Of each line: the first user inside, the first outside, how many.
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let map = read::text("/proc/self/uid_map").unwrap_or_default();
    map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

impl std::fmt::Display for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            0 => write!(f, "a process of user {} in another pid namespace", self.uid),
            pid => write!(f, "process {pid} of user {}", self.uid),
        }
    }
}

/// The process that created the other end of a connection, as the kernel reports it.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<Credentials, SystemError> {
    // Not rustix's function: its pid cannot be 0, and the pid of a peer in a namespace that is not visible here is 0.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option fills a structure of this type, whose size is passed along.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(SystemError::last("ask who the peer is"));
    }
    Ok(Credentials { pid: u32::try_from(credentials.pid).unwrap_or(0), uid: credentials.uid })
}
