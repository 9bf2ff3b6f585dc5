//! Tests of one end of a channel.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uct_plugin::MemoryAccess;
use zerocopy::IntoBytes;

use super::*;
use crate::io::{Origin, Segment};
use crate::link::peer::new_doorbell;
use crate::link::remote::Memh;
use crate::proto::ring::{Geometry, Pool};
use crate::proto::wire::Side;

/// One that has connected to the interface with number and key 1.
fn channel() -> Channel {
    channel_with(&Rc::new(SegmentCache::new(0, 0)))
}

/// As [`channel`], with this cache.
fn channel_with(cache: &Rc<SegmentCache>) -> Channel {
    let pool = |stride| Pool { count: 2, stride };
    let shape = Geometry { slots: 64, first: 8, small: pool(1024), bulk: pool(8128) };
    let rings = PairLayout::new(shape, shape).unwrap();
    let segment = Segment::new(&Origin::Memfd, rings.size(), false).unwrap();
    let to = IfaceAddress { id: 1, key: 1, uid: 0, pid: 1 };
    Channel::connecting(0, &to, &rings, segment.mapping, (PendingWork::default(), Rc::clone(cache)))
}

/// Gives it a socket to this process, as which the system reports user `uid`; returns the other end.
fn connected(channel: &Channel, uid: u32) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    channel.take_line((socket, Credentials { pid: std::process::id(), uid }));
    peer
}

/// Gives it a welcome of this process.
fn welcomed(channel: &Channel) {
    let registry = registry().unwrap();
    let (_, doorbell) = new_doorbell().unwrap();
    let (Source::File(doorbell), Source::File(table)) = (doorbell.source, &registry.table().source) else {
        panic!("both are files")
    };
    let (beacon, table_identity) = (registry.beacon().address(), registry.identity());
    let side = Side { iface: 1, key: 1, table: table_identity, beacon, doorbell_number: 0, heavy_barrier: 0 };
    channel.take_peer(Peer::new(side, &[doorbell, table.try_clone().unwrap()]).unwrap());
}

/// Lends the channel a segment of `length` bytes for a key to `most`, as its peer, and returns it as for that key.
fn lend(
    channel: &Channel,
    peer: &OwnedFd,
    (proof, most): ((u64, u64), usize),
    length: usize,
) -> Result<Arc<Lent>, String> {
    assert_eq!(channel.segment(proof, most as u64).unwrap_err(), BlockedOn::Segment(proof.0), "it is here");
    let lent = Segment::new(&Origin::Memfd, length, false).unwrap();
    let Source::File(memory) = lent.source else { panic!("a memfd is a file") };
    let (key, secret) = proof;
    let reply = wire::SegmentReply { key, secret, length: length as u64, sysv_segment: -1, is_writable: 1 };
    let message = wire::control(Control::SegmentReply, reply.as_bytes());
    socket::send(peer.as_fd(), &message, &[memory.as_fd()]).unwrap();
    assert!(channel.receive_control(Trust::SEALED));
    match channel.broken() {
        Some(broken) => Err(broken.reason.clone()),
        None => Ok(channel.segment(proof, most as u64).unwrap().unwrap()),
    }
}

/// Bytes of a mapping whose pages are mapped, as the kernel reports them.
fn mapped(mapping: &Mapping) -> usize {
    let first = format!("{:x}-", mapping.base().addr());
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&first));
    let kilobytes = lines.find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")).unwrap();
    kilobytes.trim().parse::<usize>().unwrap() << 10
}

/// What the key waits for is what the peer has used, and nothing that only its length promises.
#[test]
fn the_pages_that_a_peer_has_used_are_mapped_before_its_key_is_bound_and_no_others_are_made() {
    const PAGE: usize = 4096;
    /// Several pieces, and a rest.
    const LENGTH: usize = (5 << 20) + PAGE;
    for populates in [false, true] {
        let channel = channel_with(&Rc::new(SegmentCache::new(8, u64::MAX).populating(populates)));
        welcomed(&channel);
        let peer = connected(&channel, credentials().effective_uid);
        let memory = Segment::new(&Origin::Memfd, LENGTH, false).unwrap();
        for used in [0, 3 << 20, LENGTH - PAGE] {
            // SAFETY: within the mapping.
            let byte = unsafe { memory.mapping.base().add(used) };
            // SAFETY: the mapping is this test's alone.
            unsafe { byte.write_volatile(1) };
        }
        let Source::File(file) = &memory.source else { panic!("a memfd is a file") };
        let proof = (7, 7);
        assert_eq!(channel.segment(proof, LENGTH as u64).unwrap_err(), BlockedOn::Segment(7));
        let reply =
            wire::SegmentReply { key: 7, secret: 7, length: LENGTH as u64, sysv_segment: -1, is_writable: 1 };
        let message = wire::control(Control::SegmentReply, reply.as_bytes());
        socket::send(peer.as_fd(), &message, &[file.as_fd()]).unwrap();
        assert!(channel.receive_control(Trust::SEALED));
        assert_eq!(channel.waits_for_segment(7), populates);
        let mut turns = 0;
        let segment = loop {
            match channel.segment(proof, LENGTH as u64) {
                Ok(segment) => break segment.unwrap(),
                Err(blocked) => assert_eq!(blocked, BlockedOn::Segment(7)),
            }
            assert!(channel.work.has(source::CHANNEL), "nobody would go on");
            channel.populate();
            turns += 1;
            assert!(turns < 1000, "it does not end");
        };
        assert_eq!(turns > 0, populates);
        assert_eq!(mapped(&segment.mapping), if populates { 3 * PAGE } else { 0 });
        assert_eq!(rustix::fs::fstat(file).unwrap().st_blocks as usize * 512, 3 * PAGE, "pages were made");
        channel.populate();
        assert!(channel.segment(proof, LENGTH as u64).unwrap().is_some());
    }
}

/// Requests that wait at the peer's end of the socket.
fn requests(peer: &OwnedFd) -> usize {
    let mut buffer = [0; wire::MAX_CONTROL];
    std::iter::from_fn(|| match socket::receive(peer.as_fd(), &mut buffer) {
        Received::Message(..) => Some(()),
        Received::Nothing | Received::Closed => None,
    })
    .count()
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
    let own = credentials().effective_uid;
    let copies = |uid| {
        let channel = channel();
        welcomed(&channel);
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
        welcomed(&channel);
        let peer = connected(&channel, credentials().effective_uid);
        lend(&channel, &peer, ((3, 5), SIZE), length).map(|segment| segment.mapping.length())
    };
    assert_eq!(answered(SIZE), Ok(SIZE));
    let reason = answered(2 * SIZE).unwrap_err();
    assert!(reason.contains("a segment of 16384 bytes, where the key is to 8192"), "{reason}");
}

/// A channel with this cache, welcomed and connected, and the peer's end of its socket.
fn cached(cache: &Rc<SegmentCache>) -> (Channel, OwnedFd) {
    let channel = channel_with(cache);
    welcomed(&channel);
    let peer = connected(&channel, credentials().effective_uid);
    (channel, peer)
}

#[test]
fn a_segment_outlives_its_keys_and_serves_the_same_key_without_a_request() {
    const SIZE: usize = 8192;
    let cache = Rc::new(SegmentCache::new(8, u64::MAX));
    let (channel, peer) = cached(&cache);
    let first = lend(&channel, &peer, ((3, 5), SIZE), SIZE).unwrap();
    let base = first.mapping.base();
    drop(first);
    assert_eq!(requests(&peer), 1);
    for _ in 0..10 {
        let again = channel.segment((3, 5), SIZE as u64).unwrap().unwrap();
        assert_eq!(again.mapping.base(), base, "it was mapped again");
    }
    assert_eq!(requests(&peer), 0);
    drop(channel);
    assert!(cache.is_empty(), "the channel is closed, and its segments stay mapped");
    // As it was without a cache.
    let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, u64::MAX)));
    drop(lend(&channel, &peer, ((3, 5), SIZE), SIZE).unwrap());
    drop(lend(&channel, &peer, ((3, 5), SIZE), SIZE).unwrap());
    assert_eq!(requests(&peer), 2);
}

/// The number of a registration is used again; the secret is drawn anew. A hostile peer may use both again, on a connection of its own.
#[test]
fn other_memory_of_the_same_number_is_never_found_in_the_cache() {
    const SIZE: usize = 8192;
    let cache = Rc::new(SegmentCache::new(8, u64::MAX));
    let (honest, peer) = cached(&cache);
    let first = lend(&honest, &peer, ((3, 5), SIZE), SIZE).unwrap();
    for bit in 0..64 {
        let other = (3, 5 ^ 1 << bit);
        assert_eq!(honest.segment(other, SIZE as u64).unwrap_err(), BlockedOn::Segment(3), "bit {bit}");
    }
    let next = (3 + (1 << 32), 5);
    assert_eq!(honest.segment(next, SIZE as u64).unwrap_err(), BlockedOn::Segment(next.0), "a generation");
    let (hostile, its_end) = cached(&cache);
    let other = lend(&hostile, &its_end, ((3, 5), SIZE), SIZE).unwrap();
    assert_ne!(other.mapping.base(), first.mapping.base(), "one peer gets what another one has lent");
    let found = |channel: &Channel| channel.segment((3, 5), SIZE as u64).unwrap().unwrap();
    assert!(Arc::ptr_eq(&found(&honest), &first) && Arc::ptr_eq(&found(&hostile), &other));
    let known = [Arc::downgrade(&first), Arc::downgrade(&other)];
    drop((first, other));
    hostile.forget_segments();
    assert_eq!(known.map(|segment| segment.strong_count()), [1, 0], "the failed channel's alone is unmapped");
}

/// Memory that a domain has allocated for peers to read and write, which is lent to them or not.
fn allocated(origin: &Origin, is_lent: bool) -> Memh {
    let segment = Arc::new(Segment::new(origin, 8192, false).unwrap());
    let base = segment.mapping.base();
    let allocated = Allocated { segment, is_lent, is_written: true };
    // SAFETY: the registration keeps the segment.
    unsafe { registry().unwrap().insert(base, 8192, MemoryAccess::all(), Some(allocated)) }.unwrap()
}

/// What the channel replies to its peer's request for a segment: the descriptors that came with it, its length and its System V segment.
fn replied(channel: &Channel, peer: &OwnedFd, (key, secret): (u64, u64)) -> (usize, u64, i32) {
    let request = wire::SegmentRequest { key, secret };
    socket::send(peer.as_fd(), &wire::control(Control::SegmentRequest, request.as_bytes()), &[]).unwrap();
    assert!(channel.receive_control(Trust::SEALED));
    let mut buffer = [0; wire::MAX_CONTROL];
    let Received::Message(length, fds) = socket::receive(peer.as_fd(), &mut buffer) else {
        panic!("no reply")
    };
    let (kind, body) = wire::parse_control(&buffer[..length]).unwrap();
    assert_eq!(kind, Control::SegmentReply);
    let reply: wire::SegmentReply = wire::body(body).unwrap();
    assert_eq!((reply.key, reply.secret), (key, secret));
    (fds.len(), reply.length, reply.sysv_segment)
}

const NOTHING: (usize, u64, i32) = (0, 0, -1);

/// The table shows a peer the keys of all registrations; the secret comes with the packed key only.
#[test]
fn a_peer_with_the_key_and_another_secret_is_handed_nothing() {
    let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
    for origin in [Origin::Memfd, Origin::Sysv { public: false }] {
        let memory = allocated(&origin, true);
        let (key, secret) = (memory.region.key(), memory.region.secret());
        for wrong in (0..64).map(|bit| secret ^ 1 << bit).chain([0, u64::MAX, key]) {
            assert_eq!(replied(&channel, &peer, (key, wrong)), NOTHING, "{origin:?}, {wrong:#x}");
        }
        let (fds, length, sysv) = replied(&channel, &peer, (key, secret));
        assert_eq!((fds == 1, length, sysv >= 0), (origin == Origin::Memfd, 8192, origin != Origin::Memfd));
        registry().unwrap().remove(&memory);
        assert_eq!(replied(&channel, &peer, (key, secret)), NOTHING, "{origin:?}: it is not registered");
    }
}

/// Such as memory that peers only read where the system could not keep them from writing: they ask for each access.
#[test]
fn memory_that_is_not_lent_is_not_handed_over_for_its_key_either() {
    let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
    for origin in [Origin::Memfd, Origin::Sysv { public: false }] {
        let memory = allocated(&origin, false);
        let proof = (memory.region.key(), memory.region.secret());
        assert_eq!(replied(&channel, &peer, proof), NOTHING, "{origin:?}");
        registry().unwrap().remove(&memory);
    }
}
