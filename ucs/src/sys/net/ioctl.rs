//! What the kernel reports about a link by `ioctl`, which needs no permission and no netlink.
//!
//! Used by `interfaces`, and by `without_netlink` where a sandbox leaves nothing else. Built on libc.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

/// Hardware types whose addresses have six bytes: Ethernet and loopback.
const SIX_BYTES: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];

/// A socket for questions.
pub(super) struct Ioctl(Socket);

impl Ioctl {
    pub(super) fn new() -> io::Result<Ioctl> {
        Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), None).map(Ioctl)
    }

    pub(super) fn mtu(&self, name: &str) -> Option<u32> {
        let answer = self.ask(libc::SIOCGIFMTU, named(name)?).ok()?;
        // SAFETY: a successful SIOCGIFMTU has written this member of the union.
        let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
        u32::try_from(mtu).ok()
    }

    /// `IFF_*` bits.
    pub(super) fn flags(&self, name: &str) -> Option<u32> {
        let answer = self.ask(libc::SIOCGIFFLAGS, named(name)?).ok()?;
        // SAFETY: a successful SIOCGIFFLAGS has written this member of the union.
        let flags = unsafe { answer.ifr_ifru.ifru_flags };
        Some(flags.cast_unsigned().into())
    }

    pub(super) fn index(&self, name: &str) -> Option<u32> {
        rustix::net::netdevice::name_to_index(&self.0, name).ok()
    }

    /// The hardware address, where it has six bytes.
    pub(super) fn hardware_address(&self, name: &str) -> Option<[u8; 6]> {
        let answer = self.ask(libc::SIOCGIFHWADDR, named(name)?).ok()?;
        // SAFETY: a successful SIOCGIFHWADDR has written this member of the union.
        let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
        let bytes = address.sa_data.first_chunk::<6>()?.map(i8::cast_unsigned);
        SIX_BYTES.contains(&address.sa_family).then_some(bytes)
    }

    /// The main IPv4 address of a link, and the length of its network's prefix.
    pub(super) fn ipv4(&self, name: &str) -> Option<(Ipv4Addr, u8)> {
        let address = self.ipv4_value(libc::SIOCGIFADDR, name)?;
        let mask = self.ipv4_value(libc::SIOCGIFNETMASK, name)?;
        Some((address, u8::try_from(mask.to_bits().count_ones()).ok()?))
    }

    fn ipv4_value(&self, request: libc::Ioctl, name: &str) -> Option<Ipv4Addr> {
        let answer = self.ask(request, named(name)?).ok()?;
        // SAFETY: the successful request has written a `sockaddr_in`, of which this member of the union has the bytes.
        let address = unsafe { answer.ifr_ifru.ifru_addr };
        // The port, two bytes, comes first.
        let bytes = address.sa_data[2..].first_chunk::<4>()?.map(i8::cast_unsigned);
        (i32::from(address.sa_family) == libc::AF_INET).then(|| Ipv4Addr::from(bytes))
    }

    fn ask(&self, request: libc::Ioctl, mut record: libc::ifreq) -> io::Result<libc::ifreq> {
        // SAFETY: each request here reads a terminated name from the `ifreq` and writes into the same record.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut record) };
        if answer == 0 { Ok(record) } else { Err(io::Error::last_os_error()) }
    }
}

/// A question about a link; `None` for a name that no link can have.
fn named(name: &str) -> Option<libc::ifreq> {
    // SAFETY: `ifreq` is plain data, for which all zeroes is a value.
    let mut record: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= record.ifr_name.len() {
        return None;
    }
    for (to, from) in record.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Some(record)
}
