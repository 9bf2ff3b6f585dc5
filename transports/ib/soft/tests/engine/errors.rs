//! What fails, how it is told, and what the other side learns.

use uct_ib_soft::engine::{
    Access, Atomic, Attributes, Capacity, Config, Device, Event, Mask, Path, Personality, Piece, QpConfig,
    QpKind, QpState, ReceiveRequest, Refusal, SendData, SendKind, SendRequest, Status, Target,
};

use crate::net::{MEMORY, Pair, SECOND, Setup, address, all_access, request};

fn bytes(length: usize) -> SendData {
    SendData::Inline(vec![1; length])
}

/// A request of side 0 that fails with this status, after which everything posted is flushed.
#[track_caller]
fn fails_with(pair: &mut Pair, failing: SendRequest, status: Status) {
    pair.post(0, failing).expect("posted");
    let later = request(77, SendKind::Write(pair.sides[1].target(0)), bytes(1));
    pair.post(0, later.clone()).expect("posted");
    pair.receive(0, 78, 0, 8);
    let failed = pair.wait(0);
    assert_eq!(failed.status, status);
    let mut flushed = [pair.wait(0), pair.wait(0)].map(|completion| (completion.wr_id, completion.status));
    flushed.sort_unstable_by_key(|completion| completion.0);
    assert_eq!(flushed, [(77, Status::Flushed), (78, Status::Flushed)]);
    assert_eq!(pair.state(0), QpState::Error);
    pair.post(0, later).expect("it is taken");
    assert_eq!(pair.wait(0).status, Status::Flushed);
}

#[test]
fn a_peer_that_is_gone_is_noticed_after_the_retries() {
    let mut pair = Setup::default().pair();
    pair.net.is_cut = true;
    let begin = pair.net.now();
    fails_with(&mut pair, request(1, SendKind::Send, bytes(8)), Status::RetryExceeded);
    // 4.096 us * 2^8 for the first time, twice as long for the first of seven retries, four times as long for each of the others.
    assert_eq!(pair.net.now() - begin, (1 + 2 + 6 * 4) * (4096 << 8));
}

#[test]
fn a_timeout_of_zero_is_for_ever() {
    let mut setup = Setup::default();
    setup.attributes.timeout = 0;
    let mut pair = setup.pair();
    pair.net.is_cut = true;
    pair.post(0, request(1, SendKind::Send, bytes(8))).expect("posted");
    pair.idle(10_000 * SECOND);
    assert_eq!(pair.poll(0), None);
}

#[test]
fn a_peer_without_receive_buffers_is_left_alone_as_often_as_agreed() {
    let mut setup = Setup::default();
    setup.attributes.rnr_retry = 3;
    setup.attributes.min_rnr_timer = 14;
    let mut pair = setup.pair();
    let begin = pair.net.now();
    fails_with(&mut pair, request(1, SendKind::Send, bytes(8)), Status::RnrRetryExceeded);
    let took = pair.net.now() - begin;
    assert!((3 * 1_280_000..4 * 1_280_000).contains(&took), "{took}");
}

#[test]
fn what_a_peer_may_not_do_is_refused_and_both_sides_learn_it() {
    type Kind = fn(Target) -> SendKind;
    let kinds: [(Kind, Access); 3] = [
        (SendKind::Write, Access::REMOTE_WRITE),
        (SendKind::Read, Access::REMOTE_READ),
        (|target| SendKind::Atomic(target, Atomic::Add(1)), Access::REMOTE_ATOMIC),
    ];
    for (kind, access) in kinds {
        // A region that does not permit it.
        let mut pair = Setup { access: all_access() - access, ..Setup::default() }.pair();
        let target = pair.sides[1].target(0);
        let mut local = pair.sides[0].pieces(0, 8);
        // The requester's own buffer needs no remote permission.
        if access == Access::REMOTE_WRITE {
            local = pair.sides[0].pieces(8, 8);
        }
        fails_with(&mut pair, request(1, kind(target), SendData::Pieces(local)), Status::RemoteAccess);
        let qp = pair.sides[1].qp;
        assert_eq!(pair.events(1), [Event::QpAccessError(qp)]);
        assert_eq!(pair.state(1), QpState::Error);
        // A queue pair that does not.
        let mut setup = Setup::default();
        setup.attributes.access = all_access() - access;
        let mut pair = setup.pair();
        let target = pair.sides[1].target(0);
        let local = SendData::Pieces(pair.sides[0].pieces(0, 8));
        fails_with(&mut pair, request(1, kind(target), local), Status::RemoteInvalidRequest);
        let qp = pair.sides[1].qp;
        assert_eq!(pair.events(1), [Event::QpRequestError(qp)]);
    }
}

#[test]
fn keys_and_ranges_of_remote_memory_are_checked() {
    for (shift, key_change) in [(MEMORY - 7, 0), (0, 1), (usize::MAX, 0)] {
        let mut pair = Setup::default().pair();
        let mut target = pair.sides[1].target(0);
        target.address = target.address.wrapping_add(shift as u64);
        target.rkey ^= key_change;
        fails_with(&mut pair, request(1, SendKind::Write(target), bytes(8)), Status::RemoteAccess);
        assert!(pair.sides[1].memory.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn memory_that_is_deregistered_in_the_middle_of_a_transfer_is_not_touched_again() {
    let mut pair = Setup::default().pair();
    let target = pair.sides[1].target(0);
    let data = SendData::Pieces(pair.sides[0].pieces(0, MEMORY));
    pair.sides[0].memory.fill(9);
    pair.post(0, request(1, SendKind::Write(target), data)).expect("posted");
    pair.idle(3_000);
    let written = pair.sides[1].memory.iter().filter(|byte| **byte == 9).count();
    assert!(written > 0 && written < MEMORY, "{written}");
    let key = pair.sides[1].key;
    pair.net.device(1).deregister(key).expect("it was registered");
    assert_eq!(pair.wait(0).status, Status::RemoteAccess);
    assert_eq!(pair.sides[1].memory.iter().filter(|byte| **byte == 9).count(), written);
}

#[test]
fn a_wrong_local_key_fails_here_and_the_peer_sees_nothing() {
    let mut pair = Setup::default().pair();
    let mut piece: Piece = pair.sides[0].pieces(0, 8)[0];
    piece.lkey ^= 1;
    let target = pair.sides[1].target(0);
    let data = SendData::Pieces([piece].into_iter().collect());
    let before = request(0, SendKind::Write(target), bytes(4));
    pair.post(0, before).expect("posted");
    pair.post(0, request(1, SendKind::Write(target), data)).expect("posted");
    assert_eq!(pair.wait(0).status, Status::Success, "what was posted before is executed");
    assert_eq!(pair.wait(0).status, Status::LocalProtection);
    assert_eq!(pair.state(1), QpState::ReadyToSend);
    assert_eq!(pair.events(1), []);
}

#[test]
fn a_message_longer_than_its_buffer_fails_on_both_sides() {
    let mut pair = Setup::default().pair();
    pair.receive(1, 5, 0, 1000);
    let data = SendData::Pieces(pair.sides[0].pieces(0, 1001));
    fails_with(&mut pair, request(1, SendKind::Send, data), Status::RemoteInvalidRequest);
    assert_eq!(pair.wait(1).status, Status::LocalLength);
    assert_eq!(pair.state(1), QpState::Error);
}

#[test]
fn a_receive_buffer_with_a_wrong_key_fails_on_both_sides() {
    let mut pair = Setup::default().pair();
    pair.sides[1].key ^= 1;
    pair.receive(1, 5, 0, 1000);
    fails_with(&mut pair, request(1, SendKind::Send, bytes(8)), Status::RemoteOperation);
    assert_eq!(pair.wait(1).status, Status::LocalProtection);
}

#[test]
fn an_atomic_on_an_odd_address_is_refused() {
    let mut pair = Setup::default().pair();
    let kind = SendKind::Atomic(pair.sides[1].target(4), Atomic::Add(1));
    let data = SendData::Pieces(pair.sides[0].pieces(0, 8));
    fails_with(&mut pair, request(1, kind, data), Status::RemoteInvalidRequest);
    assert!(pair.sides[1].memory.iter().all(|byte| *byte == 0));
}

#[test]
fn a_queue_pair_that_fails_says_that_its_shared_queue_is_left_in_peace() {
    let mut pair = Setup { has_srq: true, ..Setup::default() }.pair();
    pair.receive(1, 5, 0, 8);
    fails_without_receives(&mut pair);
    let qp = pair.sides[1].qp;
    assert_eq!(pair.events(1), [Event::QpRequestError(qp), Event::LastReceiveReached(qp)]);
}

fn fails_without_receives(pair: &mut Pair) {
    pair.post(0, request(1, SendKind::Send, bytes(9))).expect("posted");
    assert_eq!(pair.wait(0).status, Status::RemoteInvalidRequest);
    assert_eq!(pair.wait(1).status, Status::LocalLength);
}

#[test]
fn a_completion_queue_without_room_fails_with_an_event() {
    let mut pair = Setup { cq_capacity: 4, ..Setup::default() }.pair();
    let target = pair.sides[1].target(0);
    for wr_id in 0..6 {
        pair.post(0, request(wr_id, SendKind::Write(target), bytes(1))).expect("posted");
    }
    pair.idle(SECOND);
    let (cq, qp) = (pair.sides[0].cq, pair.sides[0].qp);
    assert_eq!(pair.events(0), [Event::CqError(cq), Event::QpFatal(qp)]);
    assert!(pair.net.device(0).is_overrun(cq));
}

#[test]
fn what_does_not_fit_is_not_posted() {
    let capacity = Capacity { sends: 2, receives: 2, send_pieces: 1, receive_pieces: 1, inline: 8 };
    let mut pair = Setup { capacity, ..Setup::default() }.pair();
    pair.net.is_cut = true;
    let target = pair.sides[1].target(0);
    let write = |data| request(1, SendKind::Write(target), data);
    let two = [pair.sides[0].pieces(0, 1), pair.sides[0].pieces(8, 1)].into_iter().flatten().collect();
    assert_eq!(pair.post(0, write(SendData::Pieces(two))), Err(Refusal::Invalid));
    assert_eq!(pair.post(0, write(bytes(9))), Err(Refusal::Invalid));
    assert_eq!(pair.post(0, request(1, SendKind::Read(target), bytes(8))), Err(Refusal::Invalid));
    let short = SendData::Pieces(pair.sides[0].pieces(0, 7));
    assert_eq!(
        pair.post(0, request(1, SendKind::Atomic(target, Atomic::Add(1)), short)),
        Err(Refusal::Invalid)
    );
    assert_eq!(pair.post(0, write(bytes(8))), Ok(()));
    assert_eq!(pair.post(0, write(bytes(8))), Ok(()));
    assert_eq!(pair.post(0, write(bytes(8))), Err(Refusal::Full));
    let side = &pair.sides[0];
    let receive = |count| ReceiveRequest {
        wr_id: 1,
        pieces: (0..count).flat_map(|index| side.pieces(index * 8, 8)).collect(),
    };
    let device = pair.net.device(0);
    assert_eq!(device.post_receive(side.qp, receive(2)), Err(Refusal::Invalid));
    assert_eq!([0, 1].map(|count| device.post_receive(side.qp, receive(count))), [Ok(()); 2]);
    assert_eq!(device.post_receive(side.qp, receive(1)), Err(Refusal::Full));
}

#[test]
fn a_message_is_as_long_as_half_of_the_numbers_permit() {
    let mut pair = Setup::default().pair();
    let target = pair.sides[1].target(0);
    let long = |pair: &Pair, rest: u32| {
        let pieces = pair.sides[0].pieces(0, 1 << 29);
        let more = Piece { length: (1 << 29) + rest, ..pieces[0] };
        request(1, SendKind::Write(target), SendData::Pieces([pieces[0], more].into_iter().collect()))
    };
    let (largest, larger) = (long(&pair, 0), long(&pair, 1));
    assert_eq!(pair.post(0, larger), Err(Refusal::Invalid));
    assert_eq!(pair.post(0, largest), Ok(()));
    assert_eq!(pair.wait(0).status, Status::LocalProtection, "there is no such memory");
}

#[test]
fn the_state_of_failure_ends_all_that_was_posted_and_looks_at_no_other_attribute() {
    for has_srq in [false, true] {
        let mut pair = Setup { has_srq, ..Setup::default() }.pair();
        pair.net.is_cut = true;
        let target = pair.sides[1].target(0);
        (1..=2).for_each(|wr_id| {
            pair.post(0, request(wr_id, SendKind::Write(target), bytes(8))).expect("posted");
        });
        pair.receive(0, 3, 0, 8);
        pair.idle(1);
        let qp = pair.sides[0].qp;
        let error = Attributes { state: QpState::Error, port: 9, ..Attributes::default() };
        assert_eq!(pair.net.device(0).modify_qp(qp, &error, Mask::STATE | Mask::PORT), Ok(()));
        assert_eq!(pair.state(0), QpState::Error);
        let mut ended: Vec<_> =
            std::iter::from_fn(|| pair.poll(0)).map(|one| (one.wr_id, one.status)).collect();
        ended.sort_unstable_by_key(|one| one.0);
        // What is in a shared queue is for the others.
        let posted = if has_srq { 1..=2 } else { 1..=3 };
        assert_eq!(ended, posted.map(|wr_id| (wr_id, Status::Flushed)).collect::<Vec<_>>());
        let expected = if has_srq { vec![Event::LastReceiveReached(qp)] } else { vec![] };
        assert_eq!(pair.events(0), expected);
        assert_eq!(pair.net.device(0).query_qp(qp).expect("it is there").0.port, 1);
        let sent = pair.net.sent;
        pair.idle(SECOND);
        assert_eq!(pair.net.sent, sent, "nothing is sent again");
    }
}

#[test]
fn what_the_device_does_not_have_is_refused_in_every_transition() {
    let mut pair = Setup::default().pair();
    let qp = pair.sides[0].qp;
    let device = pair.net.device(0);
    for state in [QpState::ReadyToSend, QpState::Reset, QpState::Error] {
        for absent in [Mask::ALTERNATE_PATH, Mask::CAPACITY] {
            let to = Attributes { state, ..Attributes::default() };
            assert_eq!(device.modify_qp(qp, &to, Mask::STATE | absent), Err(Refusal::Invalid), "{absent:?}");
            assert_eq!(device.state(qp), Some(QpState::ReadyToSend));
        }
    }
}

#[test]
fn what_is_in_use_does_not_end() {
    let mut pair = Setup { has_srq: true, ..Setup::default() }.pair();
    let (pd, cq, srq, qp, key) = {
        let side = &pair.sides[0];
        (side.pd, side.cq, side.srq.expect("it has one"), side.qp, side.key)
    };
    let device = pair.net.device(0);
    assert_eq!(device.destroy_cq(cq), Err(Refusal::InUse));
    assert_eq!(device.destroy_srq(srq), Err(Refusal::InUse));
    assert_eq!(device.dealloc_pd(pd), Err(Refusal::InUse));
    assert_eq!(device.destroy_qp(qp), Ok(()));
    assert_eq!(device.destroy_qp(qp), Err(Refusal::NotFound));
    assert_eq!(device.dealloc_pd(pd), Err(Refusal::InUse));
    assert_eq!(device.destroy_srq(srq), Ok(()));
    assert_eq!(device.dealloc_pd(pd), Err(Refusal::InUse), "memory is registered");
    assert_eq!(device.deregister(key), Ok(()));
    assert_eq!(device.dealloc_pd(pd), Ok(()));
    assert_eq!(device.destroy_cq(cq), Ok(()));
}

#[test]
fn a_reset_forgets_and_the_pair_connects_again() {
    let setup = Setup::default();
    let mut pair = setup.pair();
    pair.net.is_cut = true;
    let target = pair.sides[1].target(0);
    pair.post(0, request(1, SendKind::Write(target), bytes(8))).expect("posted");
    pair.idle(1);
    for side in 0..2 {
        let qp = pair.sides[side].qp;
        let reset = uct_ib_soft::engine::Attributes::default();
        pair.net
            .device(side)
            .modify_qp(qp, &reset, uct_ib_soft::engine::Mask::STATE)
            .expect("from any state");
    }
    pair.net.is_cut = false;
    pair.idle(SECOND);
    assert_eq!(pair.poll(0), None);
    for side in 0..2 {
        pair.connect(side, &setup.attributes, QpState::ReadyToSend);
    }
    pair.post(0, request(2, SendKind::Write(target), bytes(8))).expect("posted");
    assert_eq!(pair.wait(0).wr_id, 2);
}

#[test]
fn draining_ends_what_was_begun_and_begins_nothing() {
    let mut pair = Setup::default().pair();
    let target = pair.sides[1].target(0);
    let qp = pair.sides[0].qp;
    pair.post(0, request(1, SendKind::Write(target), bytes(8))).expect("posted");
    pair.idle(1);
    let drain = Attributes { state: QpState::SendQueueDrain, tells_drained: true, ..Attributes::default() };
    pair.net.device(0).modify_qp(qp, &drain, Mask::STATE | Mask::TELLS_DRAINED).expect("from RTS");
    assert_eq!(pair.events(0), [], "the first is under way");
    pair.post(0, request(2, SendKind::Write(target), bytes(8))).expect("posted");
    assert_eq!(pair.wait(0).wr_id, 1);
    pair.idle(SECOND);
    assert_eq!(pair.poll(0), None);
    assert_eq!(pair.events(0), [Event::SendQueueDrained(qp)]);
    let on = Attributes { state: QpState::ReadyToSend, ..Attributes::default() };
    pair.net.device(0).modify_qp(qp, &on, Mask::STATE).expect("from SQD");
    assert_eq!(pair.wait(0).wr_id, 2);
}

#[test]
fn a_queue_that_has_nothing_under_way_is_drained_at_once_if_that_is_asked_for() {
    for tells_drained in [true, false] {
        let mut pair = Setup::default().pair();
        let qp = pair.sides[0].qp;
        let drain = Attributes { state: QpState::SendQueueDrain, tells_drained, ..Attributes::default() };
        let mask = Mask::STATE | Mask::TELLS_DRAINED;
        pair.net.device(0).modify_qp(qp, &drain, mask).expect("from RTS");
        let expected = if tells_drained { vec![Event::SendQueueDrained(qp)] } else { vec![] };
        assert_eq!(pair.events(0), expected);
        pair.net.device(0).modify_qp(qp, &drain, Mask::STATE).expect("it stays");
        assert_eq!(pair.events(0), [], "it is reported once");
    }
}

#[test]
fn transitions_need_their_attributes_and_take_no_others() {
    let mut pair = Setup::default().unconnected();
    let qp = pair.sides[0].qp;
    let device = pair.net.device(0);
    let to = |state| Attributes { state, ..Attributes::default() };
    let init = Mask::STATE | Mask::PORT | Mask::PKEY_INDEX | Mask::ACCESS;
    let mut refused = |state, mask| {
        assert_eq!(device.modify_qp(qp, &to(state), mask), Err(Refusal::Invalid));
        assert_eq!(device.state(qp), Some(QpState::Reset));
    };
    refused(QpState::ReadyToReceive, init);
    refused(QpState::ReadyToSend, Mask::STATE);
    refused(QpState::Init, init - Mask::ACCESS);
    refused(QpState::Init, init | Mask::QKEY);
    refused(QpState::Init, init | Mask::ALTERNATE_PATH);
    let wrong = Attributes { port: 2, ..to(QpState::Init) };
    assert_eq!(device.modify_qp(qp, &wrong, init), Err(Refusal::Invalid));
    assert_eq!(device.modify_qp(qp, &to(QpState::Init), init), Ok(()));
}

#[test]
fn a_read_into_memory_that_the_device_may_not_write_fails_here() {
    let mut pair = Setup::default().pair();
    let (pd, begin) = (pair.sides[0].pd, pair.sides[0].address());
    // SAFETY: the side keeps the memory as long as the network.
    let lkey = unsafe { pair.net.device(0).register(pd, begin, 8, Access::REMOTE_READ) }.expect("registered");
    let data = SendData::Pieces([Piece { address: begin, length: 8, lkey }].into_iter().collect());
    let sent = pair.net.sent;
    pair.post(0, request(1, SendKind::Read(pair.sides[1].target(0)), data)).expect("posted");
    assert_eq!(pair.wait(0).status, Status::LocalProtection);
    assert_eq!(pair.net.sent, sent, "the peer was not asked");
}

#[test]
fn half_of_the_numbers_of_queue_pairs_are_never_in_use() {
    let mut device = Device::new(Config {
        addresses: vec![address(0)],
        mtu: 4096,
        personality: Personality::Specification,
        first_qp: 5,
        qp_bits: 4,
    });
    let (pd, cq) = (device.alloc_pd(), device.create_cq(8));
    let capacity = Capacity { sends: 1, receives: 1, send_pieces: 1, receive_pieces: 1, inline: 0 };
    let config = QpConfig {
        kind: QpKind::Rc,
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        capacity,
        signals_all: false,
    };
    let numbers: Vec<u32> = (0..8).map(|_| device.create_qp(config).expect("a number is free")).collect();
    assert_eq!(numbers, (5..13).collect::<Vec<_>>());
    assert_eq!(device.create_qp(config), Err(Refusal::Full));
    device.destroy_qp(numbers[3]).expect("it is there");
    assert_eq!(device.create_qp(config), Ok(13), "a number rests before it is used again");
}

#[test]
fn the_largest_value_of_an_attribute_is_taken_and_one_more_is_not() {
    let mut pair = Setup::default().unconnected();
    pair.connect(0, &Setup::default().attributes, QpState::Init);
    let qp = pair.sides[0].qp;
    let device = pair.net.device(0);
    let largest = Attributes {
        state: QpState::ReadyToReceive,
        path: Path { destination: address(1), source_index: 0 },
        mtu: 4096,
        destination_qp: (1 << 24) - 1,
        min_rnr_timer: 31,
        reads_in: 128,
        ..Attributes::default()
    };
    let mask = Mask::PATH
        | Mask::MTU
        | Mask::DESTINATION_QP
        | Mask::RECEIVE_PSN
        | Mask::READS_IN
        | Mask::MIN_RNR_TIMER;
    for beyond in [
        Attributes { path: Path { source_index: 1, ..largest.path }, ..largest },
        Attributes { mtu: 8192, ..largest },
        Attributes { mtu: 1000, ..largest },
        Attributes { destination_qp: 1 << 24, ..largest },
        Attributes { min_rnr_timer: 32, ..largest },
        Attributes { reads_in: 129, ..largest },
    ] {
        assert_eq!(device.modify_qp(qp, &beyond, mask | Mask::STATE), Err(Refusal::Invalid), "{beyond:?}");
        assert_eq!(device.state(qp), Some(QpState::Init));
    }
    assert_eq!(device.modify_qp(qp, &largest, mask | Mask::STATE), Ok(()));
    let largest = Attributes {
        state: QpState::ReadyToSend,
        current_state: QpState::ReadyToReceive,
        timeout: 31,
        retry_count: 7,
        rnr_retry: 7,
        reads_out: 128,
        ..largest
    };
    let mask = Mask::SEND_PSN | Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::READS_OUT;
    let mask = mask | Mask::STATE | Mask::CURRENT_STATE;
    for beyond in [
        Attributes { current_state: QpState::Init, ..largest },
        Attributes { timeout: 32, ..largest },
        Attributes { retry_count: 8, ..largest },
        Attributes { rnr_retry: 8, ..largest },
        Attributes { reads_out: 129, ..largest },
    ] {
        assert_eq!(device.modify_qp(qp, &beyond, mask), Err(Refusal::Invalid), "{beyond:?}");
        assert_eq!(device.state(qp), Some(QpState::ReadyToReceive));
    }
    assert_eq!(device.modify_qp(qp, &largest, mask), Ok(()));
    let expected = Attributes { current_state: QpState::Reset, access: all_access(), ..largest };
    assert_eq!(device.query_qp(qp).expect("it is there").0, &expected);
    // Another state than the one that it is in by now.
    let same = Attributes { state: QpState::ReadyToSend, ..largest };
    assert_eq!(device.modify_qp(qp, &same, Mask::STATE | Mask::CURRENT_STATE), Err(Refusal::Invalid));
}

#[test]
fn a_queue_pair_needs_a_domain_and_queues_that_are_there() {
    let mut pair = Setup::default().unconnected();
    let good = *pair.net.device(0).query_qp(pair.sides[0].qp).expect("it is there").1;
    let device = pair.net.device(0);
    let (cq, pd) = (device.create_cq(1), device.alloc_pd());
    let srq = device.create_srq(pd, 1).expect("a queue");
    device.destroy_srq(srq).expect("it is there");
    device.destroy_cq(cq).expect("it is there");
    device.dealloc_pd(pd).expect("it is there");
    for bad in [
        QpConfig { pd, ..good },
        QpConfig { send_cq: cq, ..good },
        QpConfig { receive_cq: cq, ..good },
        QpConfig { srq: Some(srq), ..good },
    ] {
        assert_eq!(device.create_qp(bad), Err(Refusal::NotFound), "{bad:?}");
    }
    assert!(device.create_qp(good).is_ok());
}
