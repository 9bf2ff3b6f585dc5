//! Tests of one end of a channel.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uct_plugin::MemoryAccess;
use zerocopy::IntoBytes;

use super::*;
use crate::io::{Origin, Segment};
use crate::link::peer::new_doorbell;
use crate::link::remote::Memh;
use crate::proto::ring::{BODY_WORDS, Delivery, Geometry, Pool};
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
    welcomed_with(channel, new_doorbell().unwrap().1);
}

/// As [`welcomed`], with this doorbell.
fn welcomed_with(channel: &Channel, doorbell: Segment) {
    let (side, fds) = facts(doorbell);
    channel.take_peer(Peer::new(side, &fds).unwrap());
}

/// What a welcome of this process says, and its descriptors.
fn facts(doorbell: Segment) -> (Side, [OwnedFd; 2]) {
    let registry = registry().unwrap();
    let (Source::File(doorbell), Source::File(table)) = (doorbell.source, &registry.table().source) else {
        panic!("both are files")
    };
    let (beacon, table_identity) = (registry.beacon().address(), registry.identity());
    let side = Side { iface: 1, key: 1, table: table_identity, beacon, doorbell_number: 5, heavy_barrier: 0 };
    (side, [doorbell, table.try_clone().unwrap()])
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

/// A wait of half a second for a page that is there would be noticed by nothing else.
#[test]
fn mapping_ends_with_the_last_page() {
    let channel = channel();
    welcomed(&channel);
    let peer = connected(&channel, credentials().effective_uid);
    let lent = lend(&channel, &peer, ((5, 7), 4096), 4096).unwrap();
    let mut populating = Populating::new(lent);
    assert!((0..100).any(|_| populating.advance().is_some()), "more turns than a page takes");
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

/// The sender must use full barriers unless both processes have registered for those of the other.
#[test]
fn a_welcome_says_which_barriers_are_needed_and_whose_line_is_used() {
    for (heavy_barrier, shares) in [(0, 0), (1, 0), (1, 3)] {
        let channel = channel();
        let peer = connected(&channel, credentials().effective_uid);
        let (side, fds) = facts(new_doorbell().unwrap().1);
        let welcome = Welcome { from: Side { heavy_barrier, ..side }, shares, reserved: 0 };
        let message = wire::control(Control::Welcome, welcome.as_bytes());
        socket::send(peer.as_fd(), &message, &fds.each_ref().map(AsFd::as_fd)).unwrap();
        channel.poll_welcome();
        assert!(channel.view().is_some_and(|view| view.identity == registry().unwrap().identity()));
        assert_eq!((channel.shares.get(), channel.work.has(source::CHANNEL)), (shares, shares != 0));
        // The first word of the second ring is that in which this side, its receiver, reports how far it is.
        // SAFETY: inside the mapping.
        let credit = unsafe { channel.memory.base().add(FIRST_BYTES) };
        // SAFETY: as above, and aligned.
        let credit = unsafe { credit.cast::<u64>().read_volatile() };
        let is_fenced = credit & 2 != 0;
        assert_eq!(is_fenced, !(heavy_barrier == 1 && register_heavy_barrier()), "heavy: {heavy_barrier}");
    }
}

#[test]
fn the_kernel_copies_nothing_where_that_is_switched_off() {
    let channel = channel();
    channel.forbid_cma();
    welcomed(&channel);
    let _peer = connected(&channel, credentials().effective_uid);
    assert!(channel.cma().is_none());
}

/// Only the handlers' messages: what belongs to the transport is not looked for there.
#[test]
fn the_side_that_owns_the_line_sends_messages_there_and_its_own_in_the_ring() {
    let pool = |stride| Pool { count: 2, stride };
    let shape = Geometry { slots: 64, first: 8, small: pool(1024), bulk: pool(8128) };
    let rings = PairLayout::new(shape, shape).unwrap();
    let Segment { mapping, source } = Segment::new(&Origin::Memfd, rings.size(), false).unwrap();
    let Source::File(fd) = source else { panic!("a memfd is a file") };
    let same = Arc::new(Mapping::file(fd.as_fd(), rings.size(), true).unwrap());
    let near = RingPair::new(&rings, &same, true);
    let (side, fds) = facts(new_doorbell().unwrap().1);
    let peer = Peer::new(side, &fds).unwrap();
    let shared = (PendingWork::default(), Rc::new(SegmentCache::new(0, 0)));
    let channel = Channel::accepted(0, &rings, mapping, peer, shared);
    for (tag, is_in_line) in [(tag::REQUEST, false), (tag::NOTHING, false), (31, true)] {
        channel.send(tag, 300, |_| ()).unwrap();
        assert_eq!((near.receiver.has_message(), near.has_message()), (!is_in_line, true), "tag {tag}");
        let message = near.next(&mut [0; BODY_WORDS]).unwrap().unwrap();
        let Delivery::Block { place, index, length: 300 } = message.data else { panic!("{message:?}") };
        assert_eq!(message.tag, tag);
        near.receiver.release(place, index);
    }
}

#[test]
fn a_segment_is_writable_where_the_peer_says_so_and_nothing_is_mapped_for_an_empty_one() {
    for (length, is_writable, expected) in [(8192, 0, Some(false)), (8192, 1, Some(true)), (0, 1, None)] {
        let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
        assert_eq!(channel.segment((3, 5), 8192).unwrap_err(), BlockedOn::Segment(3));
        let Source::File(memory) = Segment::new(&Origin::Memfd, 8192, false).unwrap().source else {
            panic!("a memfd is a file")
        };
        let reply = wire::SegmentReply { key: 3, secret: 5, length, sysv_segment: -1, is_writable };
        let message = wire::control(Control::SegmentReply, reply.as_bytes());
        socket::send(peer.as_fd(), &message, &[memory.as_fd()]).unwrap();
        assert!(channel.receive_control(Trust::SEALED) && channel.broken().is_none());
        let segment = channel.segment((3, 5), 8192).unwrap();
        assert_eq!(segment.map(|segment| segment.is_writable), expected);
    }
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
    assert_eq!(reply.is_writable, u32::from(reply.length != 0), "peers may write to all that is lent here");
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

/// What the peer does with the socket once it is broken is nobody's concern, and the first reason is kept.
#[test]
fn a_message_that_does_not_belong_there_ends_the_channel_with_its_reason() {
    let (welcome, fds) = facts(new_doorbell().unwrap().1);
    let [of_other, of_key] = [Side { iface: 2, ..welcome }, Side { key: 2, ..welcome }];
    let welcome = |from| Welcome { from, shares: 0, reserved: 0 }.as_bytes().to_vec();
    let reply = wire::SegmentReply { key: 3, secret: 5, length: 64, sysv_segment: -1, is_writable: 0 };
    let cases = [
        (Control::Hello, Vec::new(), Error::IO_ERROR, "a second hello"),
        (
            Control::Refusal,
            b"no room".to_vec(),
            Error::REJECTED,
            "the peer refuses the connection: \"no room\"",
        ),
        (
            Control::Welcome,
            welcome(facts(new_doorbell().unwrap().1).0),
            Error::IO_ERROR,
            "an unexpected welcome",
        ),
        (Control::Welcome, vec![1; 7], Error::IO_ERROR, "7 bytes"),
        (Control::SegmentRequest, vec![1; 7], Error::IO_ERROR, "7 bytes"),
        (Control::SegmentReply, vec![1; 7], Error::IO_ERROR, "7 bytes"),
        (Control::SegmentReply, reply.as_bytes().to_vec(), Error::IO_ERROR, "was not requested"),
    ];
    for (kind, body, error, words) in cases {
        let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
        assert!(!channel.receive_control(Trust::SEALED), "nothing has come");
        socket::send(peer.as_fd(), &wire::control(Control::Wake, &[]), &[]).unwrap();
        assert!(channel.receive_control(Trust::SEALED) && channel.is_sound());
        assert!(!channel.work.has(source::CHANNEL), "a wake-up is no work");
        socket::send(peer.as_fd(), &wire::control(kind, &body), &[]).unwrap();
        assert!(channel.receive_control(Trust::SEALED));
        let broken = channel.broken().unwrap();
        assert_eq!(broken.error, error, "{kind:?}: {}", broken.reason);
        assert!(broken.reason.contains(words), "{kind:?}: {}", broken.reason);
        assert!(!channel.is_sound() && channel.work.has(source::CHANNEL), "nobody would report it");
        channel.set_broken(Error::CANCELED, "another reason".to_owned());
        assert_eq!(channel.broken().unwrap().error, error);
    }
    // The first welcome has to be that of the interface with which it was to be connected.
    for from in [of_other, of_key] {
        let channel = channel();
        let peer = connected(&channel, credentials().effective_uid);
        socket::send(
            peer.as_fd(),
            &wire::control(Control::Welcome, &welcome(from)),
            &fds.each_ref().map(AsFd::as_fd),
        )
        .unwrap();
        channel.poll_welcome();
        assert!(channel.peer().is_none());
        assert!(channel.broken().unwrap().reason.contains("an unexpected welcome"));
    }
}

#[test]
fn the_end_of_the_peer_is_found_by_a_look_at_the_socket_and_by_the_next_message() {
    let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
    assert!(!channel.is_socket_closed() && channel.is_sound());
    drop(peer);
    assert!(channel.is_socket_closed());
    assert!(channel.is_sound() && !channel.work.has(source::CHANNEL), "it was only looked at");
    assert!(!channel.receive_control(Trust::SEALED));
    assert!(!channel.is_sound() && channel.work.has(source::CHANNEL) && channel.broken().is_none());
    assert!(channel.is_socket_closed());
}

#[test]
fn a_channel_knows_the_process_at_its_other_end_once_it_is_connected() {
    let channel = channel();
    assert_eq!((channel.process(), channel.user(), channel.is_socket_closed()), (None, None, false));
    assert_eq!(channel.describe(), "the peer");
    assert!(!channel.receive_control(Trust::SEALED));
    let _peer = connected(&channel, 77);
    assert_eq!((channel.process(), channel.user()), (Some(std::process::id()), Some(77)));
    assert!(channel.describe().contains(&std::process::id().to_string()), "{}", channel.describe());
    // Of another pid namespace.
    let hidden = self::channel();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, _end) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    hidden.take_line((socket, Credentials { pid: 0, uid: 77 }));
    assert_eq!((hidden.process(), hidden.user()), (None, Some(77)));
}

/// Another peer can clear the doorbell, so it alone is not relied on.
#[test]
fn the_first_message_on_an_idle_ring_wakes_the_peer_and_a_later_one_only_if_the_doorbell_is_armed() {
    let (listener, doorbell) = new_doorbell().unwrap();
    let Source::File(fd) = &doorbell.source else { panic!("a memfd is a file") };
    let (fd, memory) = (fd.try_clone().unwrap(), doorbell.mapping);
    let channel = channel();
    let send = || channel.send(3, 8, |_| ()).unwrap();
    send();
    let peer = connected(&channel, credentials().effective_uid);
    send();
    assert!(!listener.has_rung(), "the peer is not known");
    assert_eq!(requests(&peer), 0, "it has not accepted, and finds the messages when it does");
    let same = Mapping::file(fd.as_fd(), memory.length(), true).unwrap();
    welcomed_with(&channel, Segment { mapping: same, source: Source::File(fd) });
    for (is_armed, expected) in [(false, 0), (true, 1), (false, 0)] {
        if is_armed {
            listener.arm();
        }
        send();
        assert_eq!(requests(&peer), expected, "armed: {is_armed}");
        let mut rung = Vec::new();
        listener.take(|number| rung.push(number));
        assert_eq!(rung, [5], "the number that the peer has named");
    }
    drop(memory);
    // The first of all, with the peer known from the start.
    let (first, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
    first.send(3, 8, |_| ()).unwrap();
    assert_eq!(requests(&peer), 1, "whatever the doorbell contains");
    first.send(3, 8, |_| ()).unwrap();
    assert_eq!(requests(&peer), 0);
}

/// The other end of the rings of a channel that has connected, and that channel.
fn with_far_end() -> (Channel, RingPair) {
    let pool = |stride| Pool { count: 2, stride };
    let shape = Geometry { slots: 64, first: 8, small: pool(1024), bulk: pool(8128) };
    let rings = PairLayout::new(shape, shape).unwrap();
    let Segment { mapping, source } = Segment::new(&Origin::Memfd, rings.size(), false).unwrap();
    let Source::File(fd) = source else { panic!("a memfd is a file") };
    let same = Arc::new(Mapping::file(fd.as_fd(), rings.size(), true).unwrap());
    let to = IfaceAddress { id: 1, key: 1, uid: 0, pid: 1 };
    let shared = (PendingWork::default(), Rc::new(SegmentCache::new(0, 0)));
    (Channel::connecting(0, &to, &rings, mapping, shared), RingPair::new(&rings, &same, false))
}

#[test]
fn a_message_is_in_its_slot_or_in_the_smallest_block_that_holds_it() {
    let (channel, far) = with_far_end();
    let sizes = [(0, None), (56, None), (57, Some(Place::Small)), (1024, Some(Place::Small))];
    for (length, expected) in sizes.into_iter().chain([(1025, Some(Place::Bulk)), (8128, Some(Place::Bulk))])
    {
        channel.send(3, length, |_| ()).unwrap();
        let message = far.receiver.next(&mut [0; BODY_WORDS]).unwrap().unwrap();
        let found = match message.data {
            Delivery::Inline { length } => (length, None),
            Delivery::Block { place, index, length } => {
                far.receiver.release(place, index);
                (length, Some(place))
            }
        };
        assert_eq!(found, (length, expected));
    }
    // Without a block nothing is written, and a block that is not sent after all is free again.
    let held = [(); 2].map(|()| channel.reserve(1025).unwrap());
    assert_eq!(channel.send(3, 1025, |_| panic!("it is written")), Err(BlockedOn::Block(Place::Bulk)));
    assert_eq!(channel.send(3, 1024, |_| ()), Ok(()));
    held.into_iter().for_each(|block| channel.rings.sender.cancel(block));
    assert_eq!(channel.send(3, 1025, |_| ()), Ok(()));
    while channel.send(3, 8, |_| ()).is_ok() {}
    for length in [8, 100, 2000] {
        assert_eq!(channel.send(3, length, |_| panic!("it is written")), Err(BlockedOn::Slot));
    }
}

#[test]
fn a_peer_that_overwrites_its_word_ends_the_channel_at_the_next_message() {
    let (channel, far) = with_far_end();
    channel.send(3, 8, |_| ()).unwrap();
    // SAFETY: the word is in the mapping, and aligned.
    unsafe { channel.memory.base().cast::<u64>().write_volatile(1 << 40) };
    assert_eq!(channel.attended(), Err(Error::IO_ERROR));
    let broken = channel.broken().unwrap();
    assert!(broken.reason.contains("has corrupted the ring"), "{}", broken.reason);
    assert!(channel.work.has(source::CHANNEL));
    drop(far);
}

/// All that a key waits for: an answer, or the mapping of pages. An answer to another one ends no wait.
#[test]
fn a_segment_is_waited_for_until_its_own_answer_comes() {
    let (channel, peer) = cached(&Rc::new(SegmentCache::new(0, 0)));
    assert!(!channel.waits_for_segment(3));
    for proof in [(3, 5), (4, 5)] {
        for _ in 0..3 {
            assert_eq!(channel.segment(proof, 8192).unwrap_err(), BlockedOn::Segment(proof.0));
        }
    }
    assert_eq!(requests(&peer), 2, "each is asked for once");
    let reply = wire::SegmentReply { key: 4, secret: 5, length: 0, sysv_segment: -1, is_writable: 0 };
    socket::send(peer.as_fd(), &wire::control(Control::SegmentReply, reply.as_bytes()), &[]).unwrap();
    assert!(channel.receive_control(Trust::SEALED));
    assert!(channel.broken().is_none() && channel.waits_for_segment(3) && !channel.waits_for_segment(4));
    assert!(channel.segment((4, 5), 8192).unwrap().is_none(), "there is nothing to share");
    assert_eq!(channel.segment((3, 5), 8192).unwrap_err(), BlockedOn::Segment(3));
    // The peer is gone: what was asked for is not waited for again, and nothing new is.
    drop(peer);
    assert!(channel.segment((9, 9), 8192).unwrap().is_none(), "nobody would answer");
}
