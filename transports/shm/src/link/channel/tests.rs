//! Tests of one end of a channel.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::IntoBytes;

use super::*;
use crate::io::{Origin, Segment};
use crate::link::peer::new_doorbell;
use crate::proto::ring::{Geometry, Pool};
use crate::proto::wire::Side;

/// One that has connected to the interface with number and key 1.
fn channel() -> Channel {
    let pool = |stride| Pool { count: 2, stride };
    let shape = Geometry { slots: 64, first: 8, small: pool(1024), bulk: pool(8128) };
    let rings = PairLayout::new(shape, shape).unwrap();
    let segment = Segment::new(&Origin::Memfd, rings.size(), false).unwrap();
    let to = IfaceAddress { id: 1, key: 1, uid: 0, pid: 1 };
    Channel::connecting(0, &to, &rings, segment.mapping, PendingWork::default())
}

/// Gives it a socket to this process, as which the system reports user `uid`; returns the other end.
fn connected(channel: &Channel, uid: u32) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    channel.take_line((socket, Credentials { pid: std::process::id(), uid }));
    peer
}

#[test]
fn what_fits_no_block_is_not_sent() {
    let channel = channel();
    channel.send(1, 8128, |_| ()).unwrap();
    assert!(channel.broken().is_none());
    assert_eq!(channel.send(1, 8129, |_| panic!("it is written")), Err(BlockedOn::BrokenChannel));
    let broken = channel.broken().unwrap();
    assert!(broken.reason.contains("8129 bytes"), "{}", broken.reason);
}

/// A privileged process may write to programs that its peer may not.
#[test]
fn the_kernel_copies_between_processes_of_one_user_only() {
    let registry = registry().unwrap();
    let own = credentials().effective_uid;
    let copies = |uid| {
        let channel = channel();
        let (_, doorbell) = new_doorbell().unwrap();
        let (Source::File(doorbell), Source::File(table)) = (doorbell.source, &registry.table().source)
        else {
            panic!("both are files")
        };
        let (beacon, table_identity) = (registry.beacon().address(), registry.identity());
        let side = Side { iface: 1, key: 1, table: table_identity, beacon, bell_number: 0, heavy_barrier: 0 };
        channel.take_peer(Peer::new(side, &[doorbell, table.try_clone().unwrap()]).unwrap());
        let _peer = connected(&channel, uid);
        channel.cma().is_some()
    };
    assert!(copies(own));
    assert!(!copies(own + 1));
}

/// What a peer lends stays mapped as long as a key has it, so it is no more than the key is to.
#[test]
fn a_segment_that_is_larger_than_its_key_is_not_mapped() {
    const SIZE: usize = 8192;
    let answered = |length: usize| {
        let channel = channel();
        let peer = connected(&channel, credentials().effective_uid);
        assert_eq!(channel.segment((3, 5), SIZE as u64).unwrap_err(), BlockedOn::Segment(3));
        let lent = Segment::new(&Origin::Memfd, length, false).unwrap();
        let Source::File(memory) = lent.source else { panic!("a memfd is a file") };
        let length = length as u64;
        let reply = wire::SegmentReply { key: 3, secret: 5, length, sysv_segment: -1, is_writable: 1 };
        let message = wire::control(Control::SegmentReply, reply.as_bytes());
        socket::send(peer.as_fd(), &message, &[memory.as_fd()]).unwrap();
        assert!(channel.receive_control(Trust::SEALED));
        match channel.broken() {
            Some(broken) => Err(broken.reason.clone()),
            None => Ok(channel.segment((3, 5), SIZE as u64).unwrap().unwrap().mapping.length()),
        }
    };
    assert_eq!(answered(SIZE), Ok(SIZE));
    let reason = answered(2 * SIZE).unwrap_err();
    assert!(reason.contains("a segment of 16384 bytes, where the key is to 8192"), "{reason}");
}
