//! What shares limits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::sys::peer::Credentials;

/// What shares limits: what can have any number of addresses or processes is one source.
///
/// - an IPv4 address;
/// - the /64 network of an IPv6 address, of which a host may have any number of addresses;
/// - a process of this user, and all processes of another user, at the other end of a Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(u64);

// As a number: the network, or in its upper half what no network of a peer begins with, which ends in an address or a number.
const IPV4: u64 = 0;
const PROCESS: u64 = 0xff00_0001 << 32;
const USER: u64 = 0xff00_0002 << 32;

impl Source {
    /// That of a peer whose address is not known, as of one that has gone.
    pub const UNKNOWN: Source = Source(u64::MAX);

    /// That of an address.
    pub fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V4(address) => Source(IPV4 | u64::from(address.to_bits())),
            IpAddr::V6(address) => Source((address.to_bits() >> 64) as u64),
        }
    }

    /// That of the process at the other end of a Unix socket, where this one runs as user `own`. Processes of another user are not told
    /// apart: that user can start any number.
    pub fn of_process(peer: Credentials, own: u32) -> Source {
        match peer.is_of_user(own) {
            true => Source(PROCESS | u64::from(peer.pid)),
            false => Source(USER | u64::from(peer.uid)),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.0 as u32;
        match self.0 - u64::from(number) {
            _ if *self == Source::UNKNOWN => write!(f, "an unknown source"),
            // A loopback address.
            IPV4 if number == 0 => write!(f, "::/64"),
            IPV4 => write!(f, "{}", Ipv4Addr::from_bits(number)),
            PROCESS => write!(f, "process {number}"),
            USER => write!(f, "user {number}"),
            _ => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(self.0) << 64)),
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
