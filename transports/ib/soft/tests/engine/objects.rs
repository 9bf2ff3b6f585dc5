//! Objects of a device: the numbers that they get, the events that they have, and what ends with them.

use uct_ib_soft::engine::{
    Access, Attributes, Capacity, Config, CqId, Device, Event, FaultPlan, Incident, Mask, Moment, PdId,
    Personality, QpConfig, QpKind, QpState, Refusal, SendData, SendKind, SrqId, Target,
};

use crate::net::{Setup, address, request};

fn device(first_qp: u32, qp_bits: u32) -> Device {
    let personality = Personality::Specification;
    Device::new(Config { addresses: vec![address(0)], mtu: 4096, personality, first_qp, qp_bits })
}

fn config(pd: PdId, cq: CqId, srq: Option<SrqId>) -> QpConfig {
    let capacity = Capacity { sends: 1, receives: 1, send_pieces: 1, receive_pieces: 1, inline: 8 };
    QpConfig { kind: QpKind::Rc, pd, send_cq: cq, receive_cq: cq, srq, capacity, signals_all: false }
}

/// A queue pair that can fail.
fn create(device: &mut Device, config: QpConfig) -> u32 {
    let qp = device.create_qp(config).expect("a queue pair");
    let init = Attributes { state: QpState::Init, ..Attributes::default() };
    let mask = Mask::STATE | Mask::PORT | Mask::PKEY_INDEX | Mask::ACCESS;
    device.modify_qp(qp, &init, mask).expect("a transition");
    qp
}

/// Has this happen now, by itself.
fn happen(device: &mut Device, incidents: &[Incident]) {
    let incidents = incidents.iter().map(|incident| (Moment::Time(0), *incident)).collect();
    device.plan(FaultPlan { incidents, ..FaultPlan::default() });
    device.run(0, 1);
}

fn events(device: &mut Device) -> Vec<Event> {
    std::iter::from_fn(|| device.next_event()).collect()
}

#[test]
fn numbers_begin_again_behind_the_last_and_leave_those_of_management_out() {
    for (first, bits, expected) in [
        (0xff_fffe, 24, [0xff_fffe, 0xff_ffff, 2, 3]),
        (0x1_23fe, 8, [0x1_23fe, 0x1_23ff, 0x1_2300, 0x1_2301]),
        (0, 24, [2, 3, 4, 5]),
    ] {
        let mut device = device(first, bits);
        let (pd, cq) = (device.alloc_pd(), device.create_cq(8));
        let numbers = expected.map(|_| device.create_qp(config(pd, cq, None)).expect("a number is free"));
        assert_eq!(numbers, expected);
    }
}

#[test]
fn what_happens_by_itself_is_of_the_queue_pair_that_was_made_first() {
    let mut device = device(0xff_fffe, 24);
    let (pd, cq) = (device.alloc_pd(), device.create_cq(8));
    let qps = [(); 4].map(|()| create(&mut device, config(pd, cq, None)));
    assert_eq!(qps, [0xff_fffe, 0xff_ffff, 2, 3]);
    for qp in qps {
        happen(&mut device, &[Incident::KillQp]);
        assert_eq!((events(&mut device), device.state(qp)), (vec![Event::QpFatal(qp)], Some(QpState::Error)));
        device.destroy_qp(qp).expect("it is there");
    }
    happen(&mut device, &[Incident::KillQp]);
    assert_eq!(events(&mut device), [], "there is none");
}

/// A device with two queue pairs that share nothing but their domain.
struct Two {
    device: Device,
    cqs: [CqId; 2],
    srqs: [SrqId; 2],
    qps: [u32; 2],
}

fn two() -> Two {
    let mut device = device(5, 24);
    let pd = device.alloc_pd();
    let cqs = [(); 2].map(|()| device.create_cq(8));
    let srqs = [(); 2].map(|()| device.create_srq(pd, 8).expect("a queue"));
    let qps = [0, 1].map(|index| create(&mut device, config(pd, cqs[index], Some(srqs[index]))));
    Two { device, cqs, srqs, qps }
}

#[test]
fn the_events_of_an_object_end_with_it_and_those_of_others_stay() {
    type Failed = fn(u32) -> Event;
    let failures: [(Incident, Failed); 3] = [
        (Incident::KillQp, Event::QpFatal),
        (Incident::QpRequestError, Event::QpRequestError),
        (Incident::QpAccessError, Event::QpAccessError),
    ];
    for (incident, failed) in failures {
        // All of them are of the first; one more object ends each time.
        for ends in 0..=3 {
            let Two { mut device, cqs, srqs, qps } = two();
            let [qp, other] = qps;
            let of_queues = [Incident::SrqLimitReached, Incident::SrqError, Incident::CqOverrun];
            happen(&mut device, &[Incident::CommunicationEstablished, Incident::SendQueueDrained, incident]);
            happen(&mut device, &of_queues);
            happen(&mut device, &[Incident::GidChange]);
            let destroyed = [
                device.destroy_qp(other).and(device.destroy_srq(srqs[1])).and(device.destroy_cq(cqs[1])),
                if ends > 0 { device.destroy_qp(qp) } else { Ok(()) },
                if ends > 1 { device.destroy_srq(srqs[0]) } else { Ok(()) },
                if ends > 2 { device.destroy_cq(cqs[0]) } else { Ok(()) },
            ];
            assert_eq!(destroyed, [Ok(()); 4]);
            let (established, drained) = (Event::CommunicationEstablished(qp), Event::SendQueueDrained(qp));
            let of_qp = [established, drained, failed(qp), Event::LastReceiveReached(qp)];
            let of_srq = [Event::SrqLimitReached(srqs[0]), Event::SrqError(srqs[0])];
            let of_cq = [Event::CqError(cqs[0])];
            let left = [&of_qp[..], &of_srq, &of_cq].into_iter().skip(ends).flatten().copied();
            assert_eq!(events(&mut device), left.chain([Event::GidChange]).collect::<Vec<_>>(), "{ends}");
        }
    }
}

#[test]
fn the_announcement_of_a_queue_ends_with_it_and_those_of_others_stay() {
    for ends in 0..2 {
        let Two { mut device, cqs, qps, .. } = two();
        for (cq, qp) in cqs.into_iter().zip(qps) {
            device.arm_cq(cq, false);
            let error = Attributes { state: QpState::Error, ..Attributes::default() };
            device.modify_qp(qp, &error, Mask::STATE).expect("from any state");
            // It fails at once.
            let kind = SendKind::Write(Target { address: 0, rkey: 0 });
            device.post_send(qp, request(1, kind, SendData::Inline(vec![]))).expect("it is taken");
        }
        device.destroy_qp(qps[ends]).expect("it is there");
        device.destroy_cq(cqs[ends]).expect("nothing uses it");
        assert_eq!([(); 2].map(|()| device.next_announced()), [Some(cqs[1 - ends]), None]);
    }
}

#[test]
fn memory_is_registered_within_the_addresses_and_for_peers_where_the_device_may_write() {
    let mut device = device(5, 24);
    let pd = device.alloc_pd();
    let local = Access::LOCAL_WRITE;
    for (address, length, access, expected) in [
        (u64::MAX - 8, 8, Access::empty(), Ok(())),
        (u64::MAX - 8, 9, Access::empty(), Err(Refusal::Invalid)),
        (8, 8, Access::REMOTE_READ, Ok(())),
        (8, 8, Access::REMOTE_WRITE, Err(Refusal::Invalid)),
        (8, 8, Access::REMOTE_ATOMIC, Err(Refusal::Invalid)),
        (8, 8, Access::REMOTE_WRITE | local, Ok(())),
        (8, 8, Access::REMOTE_ATOMIC | local, Ok(())),
    ] {
        // SAFETY: nothing accesses it.
        let key = unsafe { device.register(pd, address, length, access) };
        assert_eq!(key.map(|key| device.deregister(key)), expected.map(Ok), "{address} {length} {access:?}");
    }
    assert_eq!((device.regions(), device.dealloc_pd(pd)), (0, Ok(())));
    // SAFETY: nothing accesses it.
    let key = unsafe { device.register(pd, 8, 8, local) };
    assert_eq!(key, Err(Refusal::NotFound), "its domain has ended");
}

#[test]
fn the_deadline_of_a_queue_pair_ends_with_it() {
    let mut pair = Setup::default().pair();
    pair.net.is_cut = true;
    let target = pair.sides[1].target(0);
    pair.post(0, request(1, SendKind::Write(target), SendData::Inline(vec![1]))).expect("posted");
    pair.idle(1);
    let qp = pair.sides[0].qp;
    let device = pair.net.device(0);
    assert_eq!(device.next_deadline(), Some(4096 << 8));
    device.destroy_qp(qp).expect("it is there");
    assert_eq!(device.next_deadline(), None);
}
