//! What the verbs report of a device with faults: each status of a completion, each event, each call that fails.

use std::sync::Arc;
use std::time::Instant;

use uct_ib::verbs::abi::{IBV_EVENT_SQ_DRAINED, IBV_WC_LOC_LEN_ERR, IBV_WC_TM_RNDV_INCOMPLETE};
use uct_ib::verbs::{
    Access, Ah, AsyncEvent, CompChannel, Cq, InlineData, InlineWr, MrBuffer, Pd, Qp, QpCaps, QpConfig,
    QpKind, QpState, RecvSlot, SendFlags, Srq,
};
use uct_ib::{EventListener, IbError, Port, PortAddress, PortPreferences, WcStatus};

use crate::faults::has_faults;
use crate::support::{End, PATIENCE, connected, devices, open};

/// Posts a write of a byte.
fn write(from: &End, to: &End, wr_id: u64) {
    let (data, key) = ([InlineData::new(b"x")], to.buffer.mr().rkey());
    let request = InlineWr::rdma_write(wr_id, &data, to.address(0), key, SendFlags::SIGNALED);
    from.qp.post_inline(request).expect("posted");
}

#[track_caller]
fn next_event(listener: &EventListener) -> AsyncEvent {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = listener.next() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event in {PATIENCE:?}");
        std::thread::yield_now();
    }
}

#[test]
fn each_status_of_a_completion_comes_with_its_name_and_the_rest_is_flushed() {
    let statuses: Vec<WcStatus> =
        (IBV_WC_LOC_LEN_ERR..=IBV_WC_TM_RNDV_INCOMPLETE).map(WcStatus::from_raw).collect();
    // Two requests of each pair.
    let words =
        statuses.iter().enumerate().map(|(index, status)| format!("wc={}@{}", status.name(), 2 * index + 1));
    if !has_faults(&words.collect::<Vec<_>>().join(" ")) {
        return;
    }
    let Some((_turn, names)) = devices() else { return };
    // Requests are counted as long as it is open.
    let _device = open(&names[0]);
    for status in statuses {
        let (a, b) = connected(&names);
        write(&a, &b, 1);
        // Flushed, whether the first has failed by now or not.
        write(&a, &b, 2);
        assert_eq!((a.wait().status(), a.wait().status()), (status, WcStatus::FLUSHED));
        assert_eq!(a.qp.state().expect("a state"), QpState::Error);
        assert_eq!(b.read(0, 1), [0], "{status}: it is not executed");
    }
}

fn srq_of(end: &End) -> usize {
    end.srq.as_ref().expect("it has one").identity()
}

#[test]
fn each_event_comes_to_all_listeners_with_what_it_is_about() {
    let words = "lid-change@1 pkey-change@2 sm-change@3 client-reregister@4 gid-change@5 comm-est@6 sq-drained@7 last-wqe@8 \
                 srq-limit@9 kill-qp@10 qp-req-err@11 qp-access-err@12 cq-overrun@13 srq-err@14 device-fatal@15";
    if !has_faults(words) {
        return;
    }
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    let qp = a.qp.number();
    let listeners =
        [a.device.events.listen().expect("a listener"), a.device.events.listen().expect("a listener")];
    for expected in [
        AsyncEvent::AddressChange(1),
        AsyncEvent::AddressChange(1),
        AsyncEvent::AddressChange(1),
        AsyncEvent::AddressChange(1),
        AsyncEvent::AddressChange(1),
        AsyncEvent::Established(qp),
        AsyncEvent::Other(IBV_EVENT_SQ_DRAINED),
        AsyncEvent::LastBufferTaken(qp),
        AsyncEvent::SrqLimit(srq_of(&a)),
    ] {
        write(&a, &b, 1);
        a.wait_ok(1);
        let events = [next_event(&listeners[0]), next_event(&listeners[1])];
        assert_eq!(events, [expected; 2]);
    }
    // A pair for each of those that end a queue pair.
    type Expected = fn(&End) -> AsyncEvent;
    let ends: [(Expected, usize); 5] = [
        (|end| AsyncEvent::QpFatal(end.qp.number()), 1),
        (|end| AsyncEvent::QpPeerError(end.qp.number()), 1),
        (|end| AsyncEvent::QpPeerError(end.qp.number()), 1),
        (|end| AsyncEvent::CqError(end.cq.identity()), 2),
        (|end| AsyncEvent::SrqError(srq_of(end)), 2),
    ];
    for (expected, count) in ends {
        let (a, b) = connected(&names);
        let qp = a.qp.number();
        let listener = a.device.events.listen().expect("a listener");
        write(&a, &b, 1);
        assert_eq!(next_event(&listener), expected(&a));
        if count == 2 {
            assert_eq!(next_event(&listener), AsyncEvent::QpFatal(qp));
        }
        assert_eq!(next_event(&listener), AsyncEvent::LastBufferTaken(qp));
        assert_eq!(a.qp.state().expect("a state"), QpState::Error);
    }
    let (a, b) = connected(&names);
    let listener = a.device.events.listen().expect("a listener");
    write(&a, &b, 1);
    assert_eq!(next_event(&listener), AsyncEvent::DeviceFatal);
    let error = Pd::new(&a.device.context).err().expect("the device has failed").to_string();
    assert!(error.contains("ibv_alloc_pd"), "{error}");
    a.qp.fail().expect("an end is possible");
}

#[test]
fn a_port_that_goes_down_is_refused_with_its_state_until_it_is_up_again() {
    if !has_faults("port-down@1 port-up@2") {
        return;
    }
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = connected(&names);
    let listener = a.device.events.listen().expect("a listener");
    write(&a, &b, 1);
    assert_eq!(next_event(&listener), AsyncEvent::PortDown(1));
    let port = Port::query(&a.device.context, 1).expect("a port");
    assert_eq!((port.is_active, port.state), (false, "down"));
    let error = PortAddress::new(&a.device.context, 1, PortPreferences::default()).expect_err("down");
    assert!(matches!(error, IbError::PortDown { .. }), "{error}");
    write(&a, &b, 2);
    assert_eq!(next_event(&listener), AsyncEvent::PortActive(1));
    a.wait_ok(1);
    a.wait_ok(2);
    PortAddress::new(&a.device.context, 1, PortPreferences::default()).expect("it is up");
}

#[test]
fn a_call_that_fails_is_named_with_its_reason_and_the_next_works() {
    let words = "alloc_pd=ENOMEM@1 create_comp_channel=EMFILE@1 create_cq=ENOMEM@1 create_srq=ENOMEM@1 create_qp=EINVAL@1 \
                 reg_mr=EACCES@2 create_ah=ENOSPC@1 modify_qp=ETIMEDOUT@1 post_send=ENOMEM@1 post_send=EIO@2 \
                 post_recv=ENOMEM@1 post_srq_recv=ENOMEM@1";
    if !has_faults(words) {
        return;
    }
    let Some((_turn, names)) = devices() else { return };
    const MEMORY: &str = "Cannot allocate memory";
    /// What the second attempt makes; the first fails with these words.
    #[track_caller]
    fn second<T>(verb: &str, words: &str, mut make: impl FnMut() -> Result<T, IbError>) -> T {
        let error = make().err().expect("by plan").to_string();
        // The limit on locked memory is named where it is a low one.
        let words =
            if words == MEMORY && error.contains("RLIMIT_MEMLOCK") { "not enough memory" } else { words };
        assert!(error.contains(verb) && error.contains(words), "{error}");
        make().unwrap_or_else(|error| panic!("{error}"))
    }
    let device = open(&names[0]);
    let context = &device.context;
    let port = PortAddress::new(context, 1, PortPreferences::default()).expect("a port");
    let pd: Arc<Pd> = second("ibv_alloc_pd", MEMORY, || Pd::new(context));
    second("ibv_create_comp_channel", "Too many open files", || CompChannel::new(context));
    let cq = second("ibv_create_cq", MEMORY, || Cq::new(context, 16, None, 0));
    let srq = second("ibv_create_srq", MEMORY, || Srq::new(&pd, 16));
    let caps = QpCaps { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline: 16 };
    let config = QpConfig { kind: QpKind::Ud, send_cq: &cq, recv_cq: &cq, srq: None, caps };
    let qp = second("ibv_create_qp", "Invalid argument", || Qp::new(&pd, &config));
    // The domain has registered some, to see whether it can.
    let memory = second("ibv_reg_mr", "Permission denied", || MrBuffer::new(&pd, 64, Access::LOCAL_WRITE));
    let vector = port.vector_to(&port.device_address()).expect("itself");
    let ah = second("ibv_create_ah", "No space left", || Ah::new(&pd, &vector));
    second("ibv_modify_qp", "timed out", || qp.start_ud(1, port.pkey_index(), 1));
    let data = [InlineData::new(b"x")];
    let post = || qp.post_inline(InlineWr::send(1, &data, SendFlags::SIGNALED).to(&ah, qp.number(), 1));
    assert!(post().expect_err("by plan").is_full());
    assert!(!post().expect_err("by plan").is_full());
    post().expect("the third is not planned");
    let sge = uct_ib::verbs::Sge::new(memory.as_ptr() as u64, 64, memory.mr().lkey());
    let slots = [RecvSlot { wr_id: 1, sge }];
    // SAFETY: the memory outlives the queues, which are dropped before it.
    let posted = [(); 2].map(|()| unsafe { qp.post_recv(&slots) }.unwrap_or(0));
    assert_eq!(posted, [0, 1]);
    // SAFETY: as above.
    let posted = [(); 2].map(|()| unsafe { srq.post(&slots) }.unwrap_or(0));
    assert_eq!(posted, [0, 1]);
    drop((qp, srq));
}
