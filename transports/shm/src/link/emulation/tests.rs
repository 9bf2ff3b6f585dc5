use std::os::fd::AsFd;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::io::{Mapping, Origin, Segment, Source};
use crate::link::pair_layout::PairLayout;
use crate::link::remote::{Memh, SegmentCache};
use crate::link::ring_pair::RingPair;
use crate::link::work::{PendingWork, source};
use crate::proto::addr::IfaceAddress;
use crate::proto::ring::{BODY_WORDS, Delivery, Geometry, Pool};
use uct_plugin::MemoryAccess;
use uct_plugin::abi::{UCT_ERR_CANCELED, UCT_OK, UctCompletion, UctIov};
use uct_plugin::memory::{PACKED_KEY, RemoteKey};
use uct_plugin::rma::{Opcode, Request};
use zerocopy::IntoBytes;

/// A peer may request any length; the response must fit into a block of the ring.
#[test]
fn a_get_of_more_than_fits_into_a_message_is_refused() {
    let registry = registry().unwrap();
    let mut memory = vec![0u8; 8192];
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the vector outlives the registration, and nothing else uses it meanwhile.
    let memh = unsafe { registry.insert(base, memory.len(), MemoryAccess::all(), None) }.unwrap();
    let mut packed = [0; PACKED_KEY];
    registry.regions().pack(&memh.region, &mut packed).unwrap();
    let key = RemoteKey::unpack(&packed).unwrap();
    let emulation = Emulation::new(4096);
    let serve = |length| {
        let put = emulation.initiator.put(&key, key.base, length).unwrap();
        let request = Request { opcode: Opcode::Get, ..put };
        let mut frame = [0; MAX_REQUEST];
        let bytes = request.write(&mut frame);
        emulation.serve(&frame[..bytes])
    };
    let fits = 4096 - HEAD;
    let (_, length) = serve(fits).unwrap().unwrap().data();
    assert_eq!(length, fits);
    let Err(refused) = serve(fits + 1) else { panic!("one byte more was answered") };
    assert_eq!(refused, format!("a get of {} bytes, where {fits} fit", fits + 1));
    registry.remove(&memh);
}

/// The other end of a channel: carries out what it is asked for.
struct Far {
    rings: RingPair,
    emulation: Emulation,
}

impl Far {
    /// The next request that has arrived.
    fn next(&self) -> Option<Vec<u8>> {
        let mut body = [0; BODY_WORDS];
        let message = self.rings.receiver.next(&mut body).unwrap()?;
        assert_eq!(message.tag, tag::REQUEST);
        let Delivery::Block { place, index, length } = message.data else {
            let Delivery::Inline { length } = message.data else { unreachable!() };
            return Some(body.as_bytes()[..length].to_vec());
        };
        let mut request = vec![0; length];
        // SAFETY: the block has so many bytes, and so has the vector.
        let copy = |block: *mut u8| unsafe { request.as_mut_ptr().copy_from_nonoverlapping(block, length) };
        self.rings.receiver.block(place, index, copy);
        self.rings.receiver.release(place, index);
        Some(request)
    }

    /// Carries out all requests that have arrived, and hands the answers to `near`.
    fn serve(&self, near: &Emulation, channel: &Channel) {
        while let Some(request) = self.next() {
            if let Some(answer) = self.emulation.serve(&request).unwrap() {
                near.receive(channel, tag::ANSWER, &answer.to_vec()).unwrap();
            }
        }
        if let Some(header) = self.emulation.target.acknowledge() {
            near.receive(channel, tag::ANSWER, &header).unwrap();
        }
    }
}

/// Memory that a peer may use as it likes, and its key.
struct Registered {
    memory: Vec<u8>,
    memh: Memh,
    key: RemoteKey,
}

impl Registered {
    fn new(mut memory: Vec<u8>) -> Registered {
        let registry = registry().unwrap();
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector is kept until the registration ends, and nothing else writes to it meanwhile.
        let memh = unsafe { registry.insert(base, memory.len(), MemoryAccess::all(), None) }.unwrap();
        let mut packed = [0; PACKED_KEY];
        registry.regions().pack(&memh.region, &mut packed).unwrap();
        let key = RemoteKey::unpack(&packed).unwrap();
        Registered { memory, memh, key }
    }

    /// What it holds in the end.
    fn end(self) -> Vec<u8> {
        registry().unwrap().remove(&self.memh);
        self.memory
    }
}

/// A channel that has a peer in this process, and both ends' operations.
fn ends() -> (Channel, Emulation, Far) {
    ends_with(&PendingWork::default())
}

/// The same, which leaves work to progress.
fn ends_with(work: &PendingWork) -> (Channel, Emulation, Far) {
    let pool = |stride| Pool { count: 2, stride };
    let shape = Geometry { slots: 64, first: 8, small: pool(1024), bulk: pool(8128) };
    let layout = PairLayout::new(shape, shape).unwrap();
    let Segment { mapping, source } = Segment::new(&Origin::Memfd, layout.size(), false).unwrap();
    let Source::File(fd) = source else { panic!("a memfd is a file") };
    let same = Arc::new(Mapping::file(fd.as_fd(), layout.size(), true).unwrap());
    let to = IfaceAddress { id: 1, key: 1, uid: 0, pid: 1 };
    let shared = (work.clone(), Rc::new(SegmentCache::new(0, 0)));
    let channel = Channel::connecting(0, &to, &layout, mapping, shared);
    let far = Far { rings: RingPair::new(&layout, &same, false), emulation: Emulation::new(4096) };
    (channel, Emulation::new(4096), far)
}

/// The answer to a short get has arrived when this side changes the memory: it is older than the change, and no flush has moved the
/// position of the ring.
#[test]
fn a_short_get_does_not_return_what_was_there_before_a_change_of_this_side() {
    let registry = registry().unwrap();
    let mut memory = vec![0u8; 8];
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the vector outlives the registration, and nothing else uses it meanwhile.
    let memh = unsafe { registry.insert(base, 8, MemoryAccess::all(), None) }.unwrap();
    let mut packed = [0; PACKED_KEY];
    registry.regions().pack(&memh.region, &mut packed).unwrap();
    let key = RemoteKey::unpack(&packed).unwrap();
    let (channel, near, far) = ends();
    let get = || {
        let mut buffer = [0; 8];
        let result = near.get_ahead(&channel, 0, (&key, key.base), &mut buffer, true);
        result.map(|result| result.map(|()| u64::from_ne_bytes(buffer)).unwrap())
    };
    // Served until it is there, since an answer is too old after some time.
    let value = || {
        (0..100).find_map(|_| {
            let got = get();
            far.serve(&near, &channel);
            got.ok()
        })
    };
    for (round, number) in (1..=30u64).enumerate() {
        assert_eq!(get(), Err(BlockedOn::Response), "nothing was asked for in round {round}");
        far.serve(&near, &channel);
        assert!(near.has_answer(), "no answer in round {round}");
        let data = number.to_ne_bytes();
        match round % 3 {
            0 => {
                let request = near.initiator.put(&key, key.base, 8).unwrap();
                // SAFETY: `post` gives room for the data.
                let fill = |target: *mut u8| unsafe { target.copy_from_nonoverlapping(data.as_ptr(), 8) };
                let done = Operation::Acknowledged(Notify::Nobody);
                near.post(&channel, 0, &request, done, 8, fill).unwrap();
            }
            1 => near.put_copied(&channel, 0, &data, (&key, key.base)),
            _ => {
                let entry = UctIov {
                    buffer: data.as_ptr().cast_mut().cast(),
                    length: 8,
                    memh: ptr::null_mut(),
                    stride: 0,
                    count: 1,
                };
                // SAFETY: one entry, which lives until the put is sent, below.
                let iov = unsafe { Iov::new(&raw const entry, 1) };
                // SAFETY: as above.
                unsafe { near.put_large(&channel, 0, iov, (&key, key.base), Notify::Nobody) };
            }
        }
        assert_eq!(get(), Err(BlockedOn::Response), "round {round}: what was there before the put");
        far.serve(&near, &channel);
        assert_eq!(value(), Some(number), "round {round}");
    }
    registry.remove(&memh);
}

/// The caller repeats the call until the bytes are there. They are requested once, and those of another call anew.
#[test]
fn a_short_get_that_is_repeated_is_requested_once_and_its_answer_counts_for_no_other() {
    let target = Registered::new((1..=16).collect());
    let (channel, near, far) = ends();
    let base = target.key.base;
    let get = |address, length: usize, is_outside_handlers| {
        let mut buffer = vec![0; length];
        let got = near.get_ahead(&channel, 0, (&target.key, address), &mut buffer, is_outside_handlers);
        got.map(|result| result.map(|()| buffer).unwrap())
    };
    let requested = || channel.rings.sender.position();
    // Served until it is there, since an answer is too old after some time.
    let value = |address, length| {
        (0..100).find_map(|_| {
            let got = get(address, length, true);
            far.serve(&near, &channel);
            got.ok()
        })
    };
    assert!(near.has_answer() && !near.has_just_answered(&channel), "nothing is requested");
    let mut last = requested();
    for (address, length) in [(base, 8), (base + 8, 8), (base + 8, 4)] {
        assert_eq!(get(address, length, true), Err(BlockedOn::Response));
        assert_ne!(requested(), last, "{length} bytes at {address:#x} are not those of the call ahead");
        last = requested();
        for _ in 0..2 * OPERATIONS {
            assert_eq!(get(address, length, true), Err(BlockedOn::Response));
        }
        assert_eq!(requested(), last, "requested again");
        assert!(!near.has_answer() && !near.has_just_answered(&channel));
    }
    far.serve(&near, &channel);
    assert!(near.has_answer() && near.has_just_answered(&channel));
    assert_eq!(value(base + 8, 4), Some(vec![9, 10, 11, 12]));
    assert_eq!(value(base, 8), Some((1..=8).collect()));
    // A handler's message can be of another peer, and be younger.
    for _ in 0..3 {
        assert_eq!(get(base, 8, false), Err(BlockedOn::Response));
        far.serve(&near, &channel);
    }
    // A message that came behind the answer is younger.
    assert_eq!(get(base, 2, true), Err(BlockedOn::Response));
    far.serve(&near, &channel);
    assert!(near.has_just_answered(&channel));
    assert!(far.rings.sender.send_inline(3, 8, |_| ()).is_ok());
    assert!(channel.rings.receiver.next(&mut [0; BODY_WORDS]).unwrap().is_some());
    assert!(near.has_answer() && !near.has_just_answered(&channel));
    assert_eq!(get(base, 2, true), Err(BlockedOn::Response));
    far.serve(&near, &channel);
    // Without a call for some time they are too old.
    assert_eq!(get(base, 4, true), Err(BlockedOn::Response));
    far.serve(&near, &channel);
    std::thread::sleep(AHEAD_LIFE);
    assert_eq!(get(base, 4, true), Err(BlockedOn::Response));
    target.end();
}

/// A put goes on where the ring had no more room: at once as long as there is some, and otherwise when the peer has made some.
#[test]
fn a_put_that_is_longer_than_the_ring_is_resumed_until_all_of_it_is_there() {
    let target = Registered::new(vec![0; 65_536]);
    let work = PendingWork::default();
    let (channel, near, far) = ends_with(&work);
    let data: Vec<u8> = (0..65_536).map(|at| (at * 7 + at / 256) as u8).collect();
    assert!(!near.has_work() && near.is_idle() && near.has_room());
    near.put_copied(&channel, 5, &data, (&target.key, target.key.base));
    assert!(near.has_work() && !near.is_idle() && !near.has_room());
    assert!(work.has(source::CHANNEL) && !work.has(source::ROOM), "some of it was sent");
    assert_eq!(near.flush(5, None).err(), Some(Error::NO_RESOURCE), "it is not wholly sent");
    work.lower(source::CHANNEL);
    near.resume(&channel);
    assert!(work.has(source::ROOM) && !work.has(source::CHANNEL), "there is no room");
    let mut turns = 0;
    while near.has_work() {
        work.lower(source::CHANNEL | source::ROOM);
        far.serve(&near, &channel);
        near.resume(&channel);
        turns += 1;
        assert!(turns < 1000, "it does not end");
    }
    assert!(turns > 2, "all of it had room");
    assert!(near.has_room() && !near.is_idle(), "another one could begin, and the last piece is not there");
    far.serve(&near, &channel);
    assert!(near.is_idle() && near.flush(5, None) == Ok(Outcome::Done));
    assert!(target.end() == data, "other bytes arrived");
}

/// A peer that takes no responses makes this side keep as many as two initiators may have outstanding, and no more.
#[test]
fn responses_wait_for_room_in_order_and_in_limited_number() {
    let target = Registered::new(vec![7; 8]);
    let work = PendingWork::default();
    let (channel, near, far) = ends_with(&work);
    // A put is acknowledged when the requests that came with it are carried out.
    let put = far.emulation.initiator.put(&target.key, target.key.base, 8).unwrap();
    let mut frame = [0; MAX_REQUEST];
    let length = put.write(&mut frame);
    near.receive(&channel, tag::REQUEST, &[&frame[..length], &[9; 8]].concat()).unwrap();
    assert!(near.has_work() && work.has(source::CHANNEL) && !far.rings.has_message());
    near.resume(&channel);
    assert!(!near.has_work() && far.rings.has_message(), "it is not acknowledged");
    assert!(far.rings.receiver.next(&mut [0; BODY_WORDS]).unwrap().is_some_and(|it| it.tag == tag::ANSWER));
    work.lower(source::CHANNEL);
    let put = far.emulation.initiator.put(&target.key, target.key.base, 8).unwrap();
    let get = Request { opcode: Opcode::Get, ..put };
    let mut frame = [0; MAX_REQUEST];
    let length = get.write(&mut frame);
    let ask = || near.receive(&channel, tag::REQUEST, &frame[..length]);
    let mut sent = 0;
    while !near.has_work() {
        assert!(!work.has(source::CHANNEL), "a response that was sent at once");
        ask().unwrap();
        sent += 1;
    }
    assert!(sent > 1 && work.has(source::CHANNEL));
    for _ in 1..2 * OPERATIONS {
        ask().unwrap();
    }
    assert_eq!(ask().unwrap_err(), "more than 128 operations at a time");
    // As they are received, all come, and one that is asked for now does not overtake.
    let mut body = [0; BODY_WORDS];
    let mut received = 0;
    loop {
        while let Some(message) = far.rings.receiver.next(&mut body).unwrap() {
            assert_eq!(message.tag, tag::ANSWER);
            received += 1;
        }
        if !near.has_work() {
            break;
        }
        near.resume(&channel);
    }
    assert_eq!(received, sent - 1 + 2 * OPERATIONS);
    near.fail(Error::CANCELED);
    target.end();
}

#[test]
fn the_end_of_a_channel_ends_all_that_is_outstanding_and_all_that_waits() {
    let target = Registered::new(vec![0; 65_536]);
    let work = PendingWork::default();
    let (channel, near, _far) = ends_with(&work);
    let get = || {
        let mut buffer = [0; 8];
        near.get_ahead(&channel, 0, (&target.key, target.key.base), &mut buffer, true).map(drop)
    };
    assert_eq!(get(), Err(BlockedOn::Response));
    near.put_copied(&channel, 5, &[1; 65_536], (&target.key, target.key.base));
    assert!(near.has_work() && !near.has_room() && !near.has_answer());
    near.fail(Error::CONNECTION_RESET);
    assert!(!near.has_work() && near.has_room() && near.is_idle() && near.has_answer());
    target.end();
}

/// The memory of a put is its endpoint's: another endpoint of the channel that ends leaves it alone, and its own takes the memory back.
#[test]
fn a_put_that_waits_for_room_ends_with_its_endpoint_and_with_no_other() {
    unsafe extern "C" fn finished(_completion: *mut UctCompletion) {}
    let registry = registry().unwrap();
    let mut memory = vec![0u8; 65_536];
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the vector outlives the registration, and nothing else uses it meanwhile.
    let memh = unsafe { registry.insert(base, memory.len(), MemoryAccess::all(), None) }.unwrap();
    let mut packed = [0; PACKED_KEY];
    registry.regions().pack(&memh.region, &mut packed).unwrap();
    let key = RemoteKey::unpack(&packed).unwrap();
    let (channel, near, _far) = ends();
    let mut data = vec![1u8; memory.len()];
    let entry = UctIov {
        buffer: data.as_mut_ptr().cast(),
        length: data.len(),
        memh: ptr::null_mut(),
        stride: 0,
        count: 1,
    };
    let mut host = UctCompletion { func: finished, count: 1, status: UCT_OK };
    let host = &raw mut host;
    // SAFETY: it lives until the end of this test.
    let completion = unsafe { Completion::new(host) };
    // SAFETY: one entry, whose data outlive the put.
    let iov = unsafe { Iov::new(&raw const entry, 1) };
    // SAFETY: as above.
    unsafe { near.put_large(&channel, 7, iov, (&key, key.base), completion.into()) };
    // SAFETY: only this thread uses it, and nothing borrows it.
    let state = || unsafe { (*host).count };
    assert!(!near.has_room(), "the whole put had room in the ring");
    near.cancel(8, Error::CANCELED);
    assert_eq!((near.has_room(), state()), (false, 1), "the end of another endpoint");
    near.cancel(7, Error::CANCELED);
    assert_eq!((near.has_room(), state()), (true, 0), "the end of its own");
    // SAFETY: as above.
    assert_eq!(unsafe { (*host).status }, UCT_ERR_CANCELED);
    registry.remove(&memh);
}
