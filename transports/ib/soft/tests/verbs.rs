//! The functions as C calls them: one process, two queue pairs, through the table that `uct-ib` uses.

// A block for each call would hide what the test does.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use uct_ib_abi::*;
use uct_ib_soft::table;

/// Structures of integers and pointers only.
fn zeroed<T>() -> T {
    // SAFETY: the tests use it for C's structures, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

struct End {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    memory: Box<[u8; 4096]>,
}

impl End {
    fn new() -> End {
        let mut memory = Box::new([0_u8; 4096]);
        let table = table();
        // SAFETY: each call gets what the one before returned, which is not null.
        unsafe {
            let mut count = 0;
            let list = (table.get_device_list)(&mut count);
            assert_eq!(count, 1);
            let context = (table.open_device)(*list);
            assert!(!context.is_null(), "{}", std::io::Error::last_os_error());
            (table.free_device_list)(list);
            let pd = (table.alloc_pd)(context);
            let channel = (table.create_comp_channel)(context);
            let cq = (table.create_cq)(context, 64, null_mut(), channel, 0);
            let mut init: ibv_qp_init_attr = zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
            init.cap = ibv_qp_cap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 32,
            };
            let qp = (table.create_qp)(pd, &mut init);
            let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
            let mr = (table.reg_mr)(pd, memory.as_mut_ptr().cast(), memory.len(), access);
            assert!(!qp.is_null() && !mr.is_null());
            End { context, pd, channel, cq, qp, mr, memory }
        }
    }

    fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.qp).qp_num }
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> c_int {
        // SAFETY: the queue pair lives.
        unsafe { (table().modify_qp)(self.qp, attr, mask) }
    }

    fn connect(&self, peer: &End) {
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE as u32;
        let init = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
        assert_eq!(self.modify(&mut attr, init), 0);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer.number();
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        // SAFETY: the context is open.
        assert_eq!(unsafe { (table().query_gid)(peer.context, 1, 0, &mut attr.ah_attr.grh.dgid) }, 0);
        attr.max_dest_rd_atomic = 4;
        let rtr = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        assert_eq!(self.modify(&mut attr, rtr), 0);
        attr.qp_state = IBV_QPS_RTS;
        (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic) = (14, 7, 7, 4);
        let rts = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        assert_eq!(self.modify(&mut attr, rts), 0);
    }

    fn sge(&self, offset: u64, length: u32) -> ibv_sge {
        // SAFETY: the region lives.
        let (addr, lkey) = unsafe { ((*self.mr).addr.expose_provenance() as u64 + offset, (*self.mr).lkey) };
        ibv_sge { addr, length, lkey }
    }

    fn post_receive(&self, wr_id: u64) {
        let mut sge = self.sge(0, 64);
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the request lives through the call.
        let failed =
            unsafe { (*self.context).ops.post_recv.expect("it is there")(self.qp, &mut wr, &mut bad) };
        assert_eq!(failed, 0);
    }

    fn post_send(&self, wr_id: u64, opcode: c_int, sge: &mut ibv_sge) -> c_int {
        let mut wr: ibv_send_wr = zeroed();
        (wr.wr_id, wr.opcode, wr.sg_list, wr.num_sge) = (wr_id, opcode, sge, 1);
        wr.send_flags = IBV_SEND_SIGNALED;
        let mut bad = null_mut();
        // SAFETY: the request lives through the call.
        unsafe { (*self.context).ops.post_send.expect("it is there")(self.qp, &mut wr, &mut bad) }
    }

    fn poll(&self) -> Option<ibv_wc> {
        let mut wc: ibv_wc = zeroed();
        // SAFETY: there is room for one.
        let found = unsafe { (*self.context).ops.poll_cq.expect("it is there")(self.cq, 1, &mut wc) };
        (found == 1).then_some(wc)
    }

    fn wait(&self) -> ibv_wc {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(Instant::now() < deadline, "no completion");
        }
    }

    fn arm(&self) {
        // SAFETY: the queue lives.
        unsafe { (*self.context).ops.req_notify_cq.expect("it is there")(self.cq, 0) };
    }

    /// Waits for an announcement without driving the device.
    fn announced(&self) {
        let (mut cq, mut cookie) = (null_mut(), null_mut());
        // SAFETY: the channel lives.
        assert_eq!(unsafe { (table().get_cq_event)(self.channel, &mut cq, &mut cookie) }, 0);
        assert_eq!(cq, self.cq);
        // SAFETY: the queue lives.
        unsafe { (table().ack_cq_events)(cq, 1) };
    }

    fn end(self) {
        let table = table();
        // SAFETY: in the order of their dependence, each once.
        unsafe {
            assert_eq!((table.dealloc_pd)(self.pd), libc::EBUSY);
            assert_eq!((table.destroy_cq)(self.cq), libc::EBUSY);
            assert_eq!((table.destroy_qp)(self.qp), 0);
            assert_eq!((table.destroy_comp_channel)(self.channel), libc::EBUSY);
            assert_eq!((table.destroy_cq)(self.cq), 0);
            assert_eq!((table.destroy_comp_channel)(self.channel), 0);
            assert_eq!((table.dereg_mr)(self.mr), 0);
            assert_eq!((table.dealloc_pd)(self.pd), 0);
            assert_eq!((table.close_device)(self.context), 0);
        }
    }
}

#[test]
fn a_sleeping_receiver_is_woken_by_a_message() {
    let (mut a, b) = (End::new(), End::new());
    a.connect(&b);
    b.connect(&a);
    for round in 0..20 {
        a.memory[..8].fill(round);
        b.post_receive(7);
        b.arm();
        let mut sge = a.sge(0, 8);
        assert_eq!(a.post_send(1, IBV_WR_SEND, &mut sge), 0);
        b.announced();
        let wc = b.wait();
        assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.byte_len), (7, IBV_WC_SUCCESS, IBV_WC_RECV, 8));
        assert_eq!(b.memory[..8], [round; 8]);
        assert_eq!(a.wait().status, IBV_WC_SUCCESS);
    }
    a.end();
    b.end();
}

#[test]
fn a_peer_that_ends_is_noticed_and_events_reach_their_queue_pair() {
    let (a, b) = (End::new(), End::new());
    a.connect(&b);
    b.connect(&a);
    // Permission to read was not given.
    let mut sge = a.sge(0, 8);
    assert_eq!(a.post_send(1, IBV_WR_RDMA_READ, &mut sge), 0);
    assert_eq!(a.wait().status, IBV_WC_REM_INV_REQ_ERR);
    let mut event: ibv_async_event = zeroed();
    // SAFETY: the context is open.
    assert_eq!(unsafe { (table().get_async_event)(b.context, &mut event) }, 0);
    assert_eq!(event.event_type, IBV_EVENT_QP_REQ_ERR);
    // SAFETY: the type says which member it is.
    assert_eq!(unsafe { event.element.qp }, b.qp);
    // SAFETY: it was taken once.
    unsafe { (table().ack_async_event)(&mut event) };
    a.end();
    b.end();
}

#[test]
fn objects_that_are_not_served_are_refused_with_a_number() {
    let end = End::new();
    let mut init: ibv_qp_init_attr = zeroed();
    (init.send_cq, init.recv_cq, init.qp_type) = (end.cq, end.cq, IBV_QPT_UC);
    // SAFETY: the domain lives.
    assert!(unsafe { (table().create_qp)(end.pd, &mut init) }.is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    init.qp_type = IBV_QPT_RC;
    init.cap.max_inline_data = 1 << 20;
    // SAFETY: as above.
    assert!(unsafe { (table().create_qp)(end.pd, &mut init) }.is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    end.end();
}

#[test]
fn a_flushed_receive_request_is_announced_at_once() {
    let (a, b) = (End::new(), End::new());
    a.connect(&b);
    let mut attr: ibv_qp_attr = zeroed();
    attr.qp_state = IBV_QPS_ERR;
    assert_eq!(a.modify(&mut attr, IBV_QP_STATE), 0);
    a.arm();
    a.post_receive(7);
    // SAFETY: the channel lives.
    let fd = unsafe { (*a.channel).fd };
    let mut watched = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one place. No time: nobody else has to work for it.
    assert_eq!(unsafe { libc::poll(&mut watched, 1, 0) }, 1);
    a.announced();
    assert_eq!(a.wait().status, IBV_WC_WR_FLUSH_ERR);
    a.end();
    b.end();
}

#[test]
fn inline_data_that_is_too_long_is_refused_before_it_is_read() {
    let (a, b) = (End::new(), End::new());
    a.connect(&b);
    // Far more than the memory that is there.
    let mut sges = [a.sge(0, 1 << 30), a.sge(0, u32::MAX)];
    let mut wr: ibv_send_wr = zeroed();
    (wr.opcode, wr.sg_list, wr.send_flags) = (IBV_WR_SEND, sges.as_mut_ptr(), IBV_SEND_INLINE);
    for pieces in [1, 2, 1 << 20] {
        wr.num_sge = pieces;
        let mut bad = null_mut();
        // SAFETY: the request lives through the call; of its pieces no more is read than the device offers.
        let failed = unsafe { (*a.context).ops.post_send.expect("it is there")(a.qp, &mut wr, &mut bad) };
        assert_eq!(failed, libc::EINVAL);
        assert_eq!(bad, &raw mut wr);
    }
    a.end();
    b.end();
}
