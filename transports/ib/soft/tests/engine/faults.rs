//! Faults by plan, in virtual time: each status, each event, and what follows.

use uct_ib_soft::engine::{
    Attributes, Event, FaultPlan, Incident, Mask, Moment, QpConfig, QpKind, QpState, Refusal, SendData,
    SendKind, Status, Verb, Which,
};
use uct_ib_soft::network::faults::Rates;

use crate::net::{Pair, SECOND, Setup, request};

const MS: u64 = 1_000_000;

fn bytes(length: usize) -> SendData {
    SendData::Inline(vec![1; length])
}

fn write(pair: &mut Pair, side: usize, wr_id: u64) {
    let target = pair.sides[1 - side].target(wr_id as usize);
    pair.post(side, request(wr_id, SendKind::Write(target), bytes(1))).expect("posted");
}

fn ended(pair: &mut Pair, side: usize) -> (u64, Status) {
    let completion = pair.wait(side);
    (completion.wr_id, completion.status)
}

/// A pair whose side 0 has this happen with its second send request, of three.
fn happens(setup: &Setup, incident: Incident) -> Pair {
    let mut pair = setup.pair();
    let incidents = vec![(Moment::Send(2), incident)];
    pair.net.device(0).plan(FaultPlan { incidents, ..FaultPlan::default() });
    write(&mut pair, 0, 1);
    assert_eq!(ended(&mut pair, 0), (1, Status::Success));
    pair
}

#[test]
fn a_request_ends_with_any_status_and_those_behind_it_are_flushed() {
    for (status, name) in Status::FAILURES {
        let mut pair = Setup::default().pair();
        let sends = vec![(Which::Number(2), *status)];
        pair.net.device(0).plan(FaultPlan { sends, ..FaultPlan::default() });
        (1..=3).for_each(|wr_id| write(&mut pair, 0, wr_id));
        assert_eq!(ended(&mut pair, 0), (1, Status::Success), "{name}: what is ahead is executed");
        assert_eq!(ended(&mut pair, 0), (2, *status));
        assert_eq!(ended(&mut pair, 0), (3, Status::Flushed), "{name}");
        assert_eq!((pair.state(0), pair.state(1)), (QpState::Error, QpState::ReadyToSend), "{name}");
        assert_eq!(pair.sides[1].memory[1..4], [1, 0, 0], "{name}: it is not executed");
    }
}

#[test]
fn a_datagram_ends_with_a_status_and_the_queue_resumes_behind_it() {
    let mut pair = Setup { kind: QpKind::Ud, ..Setup::default() }.pair();
    let sends = vec![(Which::Number(1), Status::LocalProtection)];
    pair.net.device(0).plan(FaultPlan { sends, ..FaultPlan::default() });
    let path = uct_ib_soft::engine::Path { destination: crate::net::address(1), source_index: 0 };
    let kind = SendKind::Datagram { path, qp: pair.sides[1].qp, qkey: 0x1111 };
    (1..=2).for_each(|wr_id| pair.post(0, request(wr_id, kind, bytes(8))).expect("posted"));
    assert_eq!(ended(&mut pair, 0), (1, Status::LocalProtection));
    assert_eq!(ended(&mut pair, 0), (2, Status::Flushed));
    assert_eq!(pair.state(0), QpState::SendQueueError);
    let (qp, on) = (pair.sides[0].qp, Attributes { state: QpState::ReadyToSend, ..Attributes::default() });
    pair.net.device(0).modify_qp(qp, &on, Mask::STATE).expect("from SQE");
    pair.post(0, request(3, kind, bytes(8))).expect("posted");
    assert_eq!(ended(&mut pair, 0), (3, Status::Success));
}

#[test]
fn a_receive_ends_with_any_status_and_the_sender_learns_it() {
    for (status, name) in Status::FAILURES {
        let mut pair = Setup::default().pair();
        let receives = vec![(Which::Number(1), *status)];
        pair.net.device(1).plan(FaultPlan { receives, ..FaultPlan::default() });
        (5..=6).for_each(|wr_id| pair.receive(1, wr_id, 0, 8));
        pair.post(0, request(1, SendKind::Send, bytes(8))).expect("posted");
        assert_eq!(ended(&mut pair, 1), (5, *status));
        assert_eq!(ended(&mut pair, 1), (6, Status::Flushed), "{name}");
        assert_eq!(ended(&mut pair, 0), (1, Status::RemoteOperation), "{name}");
    }
}

#[test]
fn a_queue_pair_that_fails_by_itself_says_so_and_its_peer_gets_no_answer() {
    type Told = fn(u32) -> Event;
    let kinds: [(Incident, Told); 3] = [
        (Incident::KillQp, Event::QpFatal),
        (Incident::QpRequestError, Event::QpRequestError),
        (Incident::QpAccessError, Event::QpAccessError),
    ];
    for (incident, told) in kinds {
        let mut pair = happens(&Setup { has_srq: true, ..Setup::default() }, incident);
        write(&mut pair, 0, 2);
        assert_eq!(ended(&mut pair, 0), (2, Status::Flushed));
        let qp = pair.sides[0].qp;
        assert_eq!(pair.events(0), [told(qp), Event::LastReceiveReached(qp)]);
        assert_eq!(pair.state(0), QpState::Error);
        write(&mut pair, 1, 3);
        assert_eq!(ended(&mut pair, 1), (3, Status::RetryExceeded));
        let peer = pair.sides[1].qp;
        assert_eq!(
            pair.events(1),
            [Event::LastReceiveReached(peer)],
            "it was told nothing but by its retries"
        );
    }
}

#[test]
fn what_is_only_said_changes_nothing_else() {
    type Told = fn(&Pair) -> Event;
    let kinds: [(Incident, Told); 9] = [
        (Incident::CommunicationEstablished, |pair| Event::CommunicationEstablished(pair.sides[0].qp)),
        (Incident::SendQueueDrained, |pair| Event::SendQueueDrained(pair.sides[0].qp)),
        (Incident::LastReceiveReached, |pair| Event::LastReceiveReached(pair.sides[0].qp)),
        (Incident::SrqLimitReached, |pair| Event::SrqLimitReached(pair.sides[0].srq.expect("it has one"))),
        (Incident::LidChange, |_| Event::LidChange),
        (Incident::PkeyChange, |_| Event::PkeyChange),
        (Incident::SubnetManagerChange, |_| Event::SubnetManagerChange),
        (Incident::ClientReregister, |_| Event::ClientReregister),
        (Incident::GidChange, |_| Event::GidChange),
    ];
    for (incident, told) in kinds {
        let mut pair = happens(&Setup { has_srq: true, ..Setup::default() }, incident);
        write(&mut pair, 0, 2);
        assert_eq!(ended(&mut pair, 0), (2, Status::Success), "{incident:?}");
        let told = told(&pair);
        assert_eq!(pair.events(0), [told]);
    }
}

#[test]
fn a_completion_queue_that_overruns_takes_its_queue_pairs_along_and_no_others() {
    for is_natural in [false, true] {
        let mut pair = Setup { cq_capacity: if is_natural { 4 } else { 64 }, ..Setup::default() }.pair();
        let (pd, cq, qp) = (pair.sides[0].pd, pair.sides[0].cq, pair.sides[0].qp);
        let device = pair.net.device(0);
        let spare = device.create_cq(4);
        let capacity = Setup::default().capacity;
        let config = |send_cq, receive_cq| QpConfig {
            kind: QpKind::Rc,
            pd,
            send_cq,
            receive_cq,
            srq: None,
            capacity,
            signals_all: false,
        };
        let other = device.create_qp(config(spare, spare)).expect("a queue pair");
        let receiver = device.create_qp(config(spare, cq)).expect("a queue pair");
        for number in [other, receiver] {
            let init = Attributes { state: QpState::Init, ..Attributes::default() };
            let mask = Mask::STATE | Mask::PORT | Mask::PKEY_INDEX | Mask::ACCESS;
            device.modify_qp(number, &init, mask).expect("a transition");
        }
        if !is_natural {
            let incidents = vec![(Moment::Send(6), Incident::CqOverrun)];
            device.plan(FaultPlan { incidents, ..FaultPlan::default() });
        }
        (0..6).for_each(|wr_id| write(&mut pair, 0, wr_id));
        pair.idle(SECOND);
        let mut events = pair.events(0);
        events.sort_unstable_by_key(|event| format!("{event:?}"));
        assert_eq!(events, [Event::CqError(cq), Event::QpFatal(qp), Event::QpFatal(receiver)]);
        let device = pair.net.device(0);
        assert!(device.is_overrun(cq) && !device.is_overrun(spare));
        let states = [qp, receiver, other].map(|number| device.state(number));
        assert_eq!(states, [Some(QpState::Error), Some(QpState::Error), Some(QpState::Init)]);
    }
}

#[test]
fn a_shared_queue_that_fails_takes_its_queue_pairs_along_and_no_requests() {
    let mut pair = happens(&Setup { has_srq: true, ..Setup::default() }, Incident::SrqError);
    write(&mut pair, 0, 2);
    assert_eq!(ended(&mut pair, 0), (2, Status::Flushed));
    let (qp, srq) = (pair.sides[0].qp, pair.sides[0].srq.expect("it has one"));
    let expected = [Event::SrqError(srq), Event::QpFatal(qp), Event::LastReceiveReached(qp)];
    assert_eq!(pair.events(0), expected);
    let receive = uct_ib_soft::engine::ReceiveRequest { wr_id: 1, pieces: pair.sides[0].pieces(0, 8) };
    assert_eq!(pair.net.device(0).post_srq_receive(srq, receive), Err(Refusal::Failed));
}

#[test]
fn a_port_that_is_down_for_a_moment_loses_nothing_and_one_that_stays_down_ends_connections() {
    let mut pair = Setup::default().pair();
    // Seven retries of 1 ms.
    let times = [(2 * MS, Incident::PortDown), (5 * MS, Incident::PortUp), (50 * MS, Incident::PortDown)];
    let incidents = times.map(|(time, incident)| (Moment::Time(time), incident)).to_vec();
    pair.net.device(1).plan(FaultPlan { incidents, ..FaultPlan::default() });
    pair.idle(3 * MS);
    assert_eq!((pair.events(1), pair.net.device(1).is_up()), (vec![Event::PortError], false));
    write(&mut pair, 0, 1);
    write(&mut pair, 1, 1);
    assert_eq!(pair.poll(0), None);
    assert_eq!(ended(&mut pair, 0), (1, Status::Success));
    assert_eq!(ended(&mut pair, 1), (1, Status::Success));
    assert!(pair.net.now() > 5 * MS, "{}", pair.net.now());
    assert_eq!((pair.events(1), pair.net.device(1).is_up()), (vec![Event::PortActive], true));
    pair.idle(51 * MS - pair.net.now());
    write(&mut pair, 0, 2);
    write(&mut pair, 1, 2);
    assert_eq!(ended(&mut pair, 0), (2, Status::RetryExceeded));
    assert_eq!(ended(&mut pair, 1), (2, Status::RetryExceeded));
    assert_eq!(pair.events(1), [Event::PortError]);
}

#[test]
fn a_device_that_fails_ends_nothing_more_and_refuses_all_but_ends() {
    let mut pair = happens(&Setup { has_srq: true, ..Setup::default() }, Incident::DeviceFatal);
    let (qp, cq, srq, pd) =
        (pair.sides[0].qp, pair.sides[0].cq, pair.sides[0].srq.expect("one"), pair.sides[0].pd);
    write(&mut pair, 0, 2);
    assert_eq!(pair.events(0), [Event::DeviceFatal]);
    let target = pair.sides[1].target(0);
    let refused = pair.post(0, request(3, SendKind::Write(target), bytes(1)));
    assert_eq!(refused, Err(Refusal::Failed));
    for (verb, name) in Verb::ALL {
        assert_eq!(pair.net.device(0).admit(*verb), Err(Refusal::Failed), "{name}");
    }
    let to = |state| Attributes { state, ..Attributes::default() };
    let drain = pair.net.device(0).modify_qp(qp, &to(QpState::SendQueueDrain), Mask::STATE);
    assert_eq!(drain, Err(Refusal::Failed));
    pair.net.device(0).modify_qp(qp, &to(QpState::Error), Mask::STATE).expect("an end");
    write(&mut pair, 1, 4);
    assert_eq!(ended(&mut pair, 1), (4, Status::RetryExceeded), "its peer gets no answer");
    pair.idle(10 * SECOND);
    assert_eq!(pair.poll(0), None);
    let device = pair.net.device(0);
    let ends = [device.destroy_qp(qp), device.destroy_cq(cq), device.destroy_srq(srq)];
    assert_eq!(ends, [Ok(()); 3]);
    assert_eq!(device.deregister(pair.sides[0].key), Ok(()));
    assert_eq!(device.dealloc_pd(pd), Ok(()));
}

#[test]
fn a_planned_call_is_refused_with_its_number_and_the_next_is_not() {
    let mut pair = Setup::default().pair();
    let verbs = vec![(Verb::PostSend, Which::Number(2), 12), (Verb::ModifyQp, Which::Number(1), 110)];
    pair.net.device(0).plan(FaultPlan { verbs, ..FaultPlan::default() });
    write(&mut pair, 0, 1);
    let target = pair.sides[1].target(0);
    let refused = pair.post(0, request(2, SendKind::Write(target), bytes(1)));
    assert_eq!(refused, Err(Refusal::Planned(12)));
    write(&mut pair, 0, 3);
    assert_eq!([(); 2].map(|()| ended(&mut pair, 0).0), [1, 3]);
    let (qp, error) = (pair.sides[0].qp, Attributes { state: QpState::Error, ..Attributes::default() });
    let device = pair.net.device(0);
    assert_eq!(device.modify_qp(qp, &error, Mask::STATE), Err(Refusal::Planned(110)));
    assert_eq!(device.modify_qp(qp, &error, Mask::STATE), Ok(()));
}

#[test]
fn delayed_packets_arrive_as_much_later_and_in_any_order_within_the_range() {
    let mut setup = Setup::default();
    setup.attributes.timeout = 20;
    let base = {
        let mut pair = setup.pair();
        write(&mut pair, 0, 1);
        ended(&mut pair, 0);
        pair.net.now()
    };
    setup.rates = Rates { delay: (3 * MS, 3 * MS), ..Rates::default() };
    let mut pair = setup.pair();
    write(&mut pair, 0, 1);
    ended(&mut pair, 0);
    assert_eq!(pair.net.now(), base + 6 * MS, "to the peer and back");
    setup.rates.delay = (MS, 3 * MS);
    let mut pair = setup.pair();
    (0..20).for_each(|wr_id| write(&mut pair, 0, wr_id));
    for wr_id in 0..20 {
        assert_eq!(ended(&mut pair, 0), (wr_id, Status::Success));
    }
    assert!(pair.net.sent > 40, "packets that overtake others are sent again: {}", pair.net.sent);
}

#[test]
fn the_state_that_a_caller_believes_in_is_compared() {
    let mut pair = Setup::default().pair();
    let qp = pair.sides[0].qp;
    let new =
        |current_state| Attributes { state: QpState::SendQueueDrain, current_state, ..Attributes::default() };
    let mask = Mask::STATE | Mask::CURRENT_STATE;
    let device = pair.net.device(0);
    assert_eq!(device.modify_qp(qp, &new(QpState::ReadyToReceive), mask), Err(Refusal::Invalid));
    assert_eq!(device.state(qp), Some(QpState::ReadyToSend));
    assert_eq!(device.modify_qp(qp, &new(QpState::ReadyToSend), mask), Ok(()));
}
