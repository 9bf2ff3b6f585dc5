//! Whether the kernel has reported a change of links, addresses, routes or rules since a moment.
//!
//! Used by `snapshot`. A socket that is subscribed to the changes, and is never read: one message means that the state is old. The
//! kernel queues it before the call that makes the change returns.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The subscriptions, bits of the kernel's `rtnetlink.h`: links; addresses, routes and rules of IPv4 and IPv6.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// A subscription to changes in the network namespace in which it was made.
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// From now on; `None` where the system forbids it, or has no descriptor left.
    pub(super) fn new() -> Option<Watch> {
        // Protocol 0 of netlink is that of routes.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).ok()?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS)).ok()?;
        Some(Watch(socket))
    }

    /// Whether nothing was reported. More than the socket has room for is an error, and so a change.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(recv(&self.0, &mut [0_u8; 1], flags), Err(Errno::AGAIN | Errno::INTR))
    }
}
