//! RoCEv2 over one UDP socket: between processes, network namespaces and hosts, with the kernel's rdma_rxe and with hardware.
//!
//! For the driver. The socket needs no privilege: it forbids fragmentation, so that the kernel sends IPv4 identification 0, which
//! the CRC covers. All unsafe code of the networks is here.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::icrc::{Checker, LENGTH, Route, append};
use crate::engine::wire::{LARGEST_HEADERS, PORT};
use crate::engine::{Incoming, Outgoing};

/// Packets in one system call.
const BATCH: usize = 32;
/// Packets that are asked for while few come: most of the calls find none, and take as long as the heads that they prepare.
const FEW: usize = 4;
/// Bytes of a packet at most.
const LARGEST_PACKET: usize = LARGEST_HEADERS + 4096 + LENGTH;
/// Room for packets that wait in the socket, which the system may limit to less.
const BUFFER: usize = 4 << 20;

/// A socket on the port of RoCEv2.
pub struct Udp {
    socket: Socket,
    address: IpAddr,
    checker: Checker,
    buffers: Box<[[u8; LARGEST_PACKET]; BATCH]>,
    /// Of the packets in the buffers: where they come from, and their lengths.
    sources: Box<[libc::sockaddr_storage; BATCH]>,
    lengths: [usize; BATCH],
    /// Whether the last call took as many packets as it asked for.
    was_full: bool,
}

impl Udp {
    /// A socket on this address, which other processes of this user may have too, or on an address of the loopback network that
    /// is this process's own.
    ///
    /// # Errors
    /// The address is not one of this machine, or its port is in use: by another device, or by the kernel's module rdma_rxe, which has
    /// it on all addresses of its network namespace.
    pub fn bind(address: Option<IpAddr>) -> io::Result<Udp> {
        let Some(address) = address else { return Udp::bind_own() };
        Udp::bind_to(address, true)
    }

    /// A loopback address that follows from the number of this process, or the next that is free.
    fn bind_own() -> io::Result<Udp> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for attempt in 0..256 {
            let address = own_address(std::process::id(), attempt);
            match Udp::bind_to(IpAddr::V4(address), false) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                done => return done,
            }
        }
        Err(last)
    }

    fn bind_to(address: IpAddr, is_shared: bool) -> io::Result<Udp> {
        let own = SocketAddr::new(address, PORT);
        let kind = Type::DGRAM.cloexec().nonblocking();
        let socket = Socket::new(Domain::for_address(own), kind, Some(Protocol::UDP))?;
        match address {
            IpAddr::V4(_) => set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?,
            IpAddr::V6(_) => {
                set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
                // rdma_rxe sends no UDP checksum over IPv6 either.
                set(&socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
            }
        }
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_send_buffer_size(BUFFER)?;
        socket.set_reuse_port(is_shared)?;
        socket.bind(&SockAddr::from(own))?;
        let buffers = vec![[0; LARGEST_PACKET]; BATCH].into_boxed_slice();
        let buffers = buffers.try_into().map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let (sources, lengths) = (Box::new(zeroed()), [0; BATCH]);
        Ok(Udp { socket, address, checker: Checker::default(), buffers, sources, lengths, was_full: false })
    }

    /// The address of the port.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Sends packets from the front of the queue, as many as the socket takes. One that it refuses is lost, as on a cable.
    pub fn send(&mut self, packets: &mut VecDeque<Outgoing>) {
        while !packets.is_empty() {
            let count = packets.len().min(BATCH);
            let mut ready: Vec<(SockAddr, Vec<u8>)> = Vec::with_capacity(count);
            for packet in packets.iter_mut().take(count) {
                let destination = SocketAddr::new(packet.destination, PORT);
                let source = SocketAddr::new(packet.source, PORT);
                let mut bytes = std::mem::take(&mut packet.bytes);
                append(&Route { source, destination, identification: 0 }, &mut bytes);
                ready.push((SockAddr::from(destination), bytes));
            }
            let sent = match send_batch(&self.socket, &ready) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => {
                    ucs::log::debug!(%error, "a packet is not sent");
                    // Others behind it may go elsewhere.
                    1
                }
            };
            packets.drain(..sent);
            for (packet, (_, mut bytes)) in packets.iter_mut().zip(ready.into_iter().skip(sent)) {
                bytes.truncate(bytes.len() - LENGTH);
                packet.bytes = bytes;
            }
            if sent == 0 {
                return;
            }
        }
    }

    /// Takes packets that have arrived, one batch, and hands those whose CRC is right to `deliver`; how many arrived.
    pub fn receive(&mut self, mut deliver: impl FnMut(Incoming<'_>)) -> usize {
        let count = if self.was_full { self.receive_batch::<BATCH>() } else { self.receive_batch::<FEW>() };
        let destination = SocketAddr::new(self.address, PORT);
        for index in 0..count {
            let Some(source) = address_of(&self.sources[index]) else { continue };
            let route = Route { source, destination, identification: 0 };
            if let Some(bytes) = self.checker.check(&route, &self.buffers[index][..self.lengths[index]]) {
                deliver(Incoming { source: source.ip(), destination: self.address, bytes });
            }
        }
        count
    }

    /// Takes up to `N` packets that have arrived into the first places; how many there are.
    fn receive_batch<const N: usize>(&mut self) -> usize {
        let mut pieces: [libc::iovec; N] = zeroed();
        let mut messages: [libc::mmsghdr; N] = zeroed();
        for index in 0..N {
            let buffer = self.buffers[index].as_mut_ptr().cast();
            pieces[index] = libc::iovec { iov_base: buffer, iov_len: LARGEST_PACKET };
            let head = &mut messages[index].msg_hdr;
            head.msg_name = (&raw mut self.sources[index]).cast();
            head.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            head.msg_iov = &raw mut pieces[index];
            head.msg_iovlen = 1;
        }
        let (descriptor, first) = (self.socket.as_raw_fd(), messages.as_mut_ptr());
        // SAFETY: the heads name places and buffers that live through the call, each with its length.
        let count =
            unsafe { libc::recvmmsg(descriptor, first, N as u32, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
        let count = usize::try_from(count).unwrap_or(0);
        for (length, message) in self.lengths.iter_mut().zip(&messages[..count]) {
            *length = message.msg_len as usize;
        }
        self.was_full = count == N;
        count
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The loopback address that the process of this number tries so many attempts later: not what a process beside it has.
fn own_address(process: u32, attempt: u32) -> Ipv4Addr {
    let [_, high, middle, low] = process.wrapping_add(attempt * 65_537).to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 64, middle, low)
}

fn set(socket: &Socket, level: i32, option: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the value is an integer of this length.
    let failed =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn send_batch(socket: &Socket, packets: &[(SockAddr, Vec<u8>)]) -> io::Result<usize> {
    let mut pieces: [libc::iovec; BATCH] = zeroed();
    let mut messages: [libc::mmsghdr; BATCH] = zeroed();
    for (index, (address, bytes)) in packets.iter().enumerate() {
        pieces[index] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let head = &mut messages[index].msg_hdr;
        head.msg_name = address.as_ptr().cast_mut().cast();
        head.msg_namelen = address.len();
        head.msg_iov = &raw mut pieces[index];
        head.msg_iovlen = 1;
    }
    // SAFETY: the heads name addresses and bytes that live through the call, and there are as many as packets.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), packets.len() as u32, libc::MSG_DONTWAIT)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is as large and as aligned as every kind of address, and its family says that it is this one.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::from((v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port))))
        }
        _ => None,
    }
}

/// Structures of the C library, for which zero is a value.
fn zeroed<T: OfC, const N: usize>() -> [T; N] {
    // SAFETY: `OfC` is implemented for structures of integers and pointers only.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

trait OfC {}
impl OfC for libc::iovec {}
impl OfC for libc::mmsghdr {}
impl OfC for libc::sockaddr_storage {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    impl Udp {
        /// One whose packets go to the other end of a pair of this kind, whatever their destination, until that has no room.
        pub fn of_pair(address: IpAddr, kind: Type) -> (Udp, Socket) {
            let (socket, end) = Socket::pair(Domain::UNIX, kind, None).expect("a pair");
            for socket in [&socket, &end] {
                socket.set_nonblocking(true).expect("a flag");
            }
            let buffers = vec![[0; LARGEST_PACKET]; BATCH].try_into().expect("so many");
            let (sources, lengths) = (Box::new(zeroed()), [0; BATCH]);
            let checker = Checker::default();
            (Udp { socket, address, checker, buffers, sources, lengths, was_full: false }, end)
        }
    }

    fn two() -> (Udp, Udp) {
        (Udp::bind(None).expect("an own address"), Udp::bind(None).expect("the next one"))
    }

    #[test]
    fn packets_of_all_lengths_arrive_with_their_sender() {
        let (mut a, mut b) = two();
        assert_ne!(a.address(), b.address());
        let lengths = [12, 16, 1024, LARGEST_HEADERS + 4096];
        let packet = |length: &usize| Outgoing {
            source: a.address(),
            destination: b.address(),
            bytes: vec![*length as u8; *length],
        };
        let mut packets: VecDeque<Outgoing> = lengths.iter().map(packet).collect();
        a.send(&mut packets);
        assert!(packets.is_empty());
        let mut arrived = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while arrived.len() < lengths.len() && Instant::now() < deadline {
            b.receive(|packet| arrived.push((packet.source, packet.bytes.to_vec())));
        }
        let expected: Vec<_> =
            lengths.iter().map(|length| (a.address(), vec![*length as u8; *length])).collect();
        assert_eq!(arrived, expected);
    }

    #[test]
    fn packets_beyond_one_call_arrive_in_order() {
        let (mut a, mut b) = two();
        let bytes = |index: usize| vec![index as u8; 12 + index];
        let packet = |index| Outgoing { source: a.address(), destination: b.address(), bytes: bytes(index) };
        let mut packets: VecDeque<Outgoing> = (0..FEW + BATCH + 1).map(packet).collect();
        a.send(&mut packets);
        assert!(packets.is_empty());
        let mut arrived = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while arrived.len() < FEW + BATCH + 1 && Instant::now() < deadline {
            b.receive(|packet| arrived.push(packet.bytes.to_vec()));
        }
        assert_eq!(arrived, (0..FEW + BATCH + 1).map(bytes).collect::<Vec<_>>());
    }

    #[test]
    fn a_call_takes_few_packets_and_a_batch_behind_as_many_as_it_asked_for() {
        let (mut udp, mut end) = Udp::of_pair(IpAddr::from([127, 0, 0, 1]), Type::SEQPACKET);
        for _ in 0..FEW + BATCH + 1 {
            end.write_all(&[7; 16]).expect("there is room");
        }
        assert_eq!([(); 4].map(|()| udp.receive(|_| {})), [FEW, BATCH, 1, 0]);
    }

    #[test]
    fn what_a_full_socket_does_not_take_leaves_later_unchanged_and_in_its_order() {
        const COUNT: u32 = 2000;
        let (source, destination) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let (mut udp, mut end) = Udp::of_pair(source, Type::SEQPACKET);
        let bytes = |number: u32| number.to_be_bytes().repeat(4);
        let packet = |number| Outgoing { source, destination, bytes: bytes(number) };
        let mut packets: VecDeque<Outgoing> = (0..COUNT).map(packet).collect();
        let (mut expected, mut is_full) = (0, false);
        while !packets.is_empty() {
            udp.send(&mut packets);
            let before = expected;
            let mut buffer = [0; 64];
            while let Ok(length) = end.read(&mut buffer) {
                let mut whole = bytes(expected);
                let port = |address| SocketAddr::new(address, PORT);
                let route = Route { source: port(source), destination: port(destination), identification: 0 };
                append(&route, &mut whole);
                assert_eq!(buffer[..length], whole, "packet {expected}");
                expected += 1;
            }
            assert!(before < expected, "none leaves");
            is_full |= !packets.is_empty();
            // Those that wait have no CRC yet.
            assert_eq!(packets.len(), (COUNT - expected) as usize);
            for (number, waiting) in (expected..).zip(packets.iter().take(2 * BATCH)) {
                assert_eq!(*waiting, packet(number));
            }
        }
        assert!(is_full && expected == COUNT);
    }

    #[test]
    fn a_packet_that_the_socket_refuses_is_lost_and_no_other() {
        let (mut a, mut b) = two();
        let packet =
            |destination, number| Outgoing { source: a.address(), destination, bytes: vec![number; 12] };
        let nowhere = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
        let mut packets: VecDeque<Outgoing> =
            [(nowhere, 1), (b.address(), 2), (nowhere, 3), (nowhere, 4), (b.address(), 5)]
                .map(|(destination, number)| packet(destination, number))
                .into();
        a.send(&mut packets);
        assert!(packets.is_empty());
        let mut arrived = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while arrived.len() < 2 && Instant::now() < deadline {
            b.receive(|packet| arrived.push(packet.bytes[0]));
        }
        assert_eq!(arrived, [2, 5]);
    }

    #[test]
    fn own_addresses_are_of_one_part_of_the_loopback_network_and_differ() {
        let is = |process, attempt, expected: [u8; 4]| {
            assert_eq!(own_address(process, attempt), Ipv4Addr::from(expected), "{process:#x} {attempt}");
        };
        is(0x0000_0001, 0, [127, 64, 0, 1]);
        is(0x0001_0203, 0, [127, 65, 2, 3]);
        is(0x0001_0203, 1, [127, 66, 2, 4]);
        is(0x0001_0203, 2, [127, 67, 2, 5]);
        is(0x003f_ffff, 0, [127, 127, 255, 255]);
        is(0x0040_0000, 0, [127, 64, 0, 0]);
        is(u32::MAX, 1, [127, 65, 0, 0]);
    }

    #[test]
    fn what_is_no_packet_of_roce_is_dropped() {
        let (a, mut b) = two();
        let to = SockAddr::from(SocketAddr::new(b.address(), PORT));
        a.socket.send_to(&[1; 100], &to).expect("sent");
        a.socket.send_to(&[], &to).expect("sent");
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut count = 0;
        while count < 2 && Instant::now() < deadline {
            count += b.receive(|packet| panic!("{packet:?}"));
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn an_address_in_use_and_one_of_elsewhere_are_refused() {
        let (a, _) = two();
        let error = Udp::bind(Some(a.address())).err().expect("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let elsewhere = Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)));
        assert_eq!(Udp::bind(elsewhere).err().expect("elsewhere").kind(), io::ErrorKind::AddrNotAvailable);
    }
}
