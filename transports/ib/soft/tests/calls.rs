//! Any order of calls of the C functions with any numbers, by seed: none may crash, hang or write beyond what was registered;
//! each completion belongs to a request, and all objects can end.
//!
//! Pointers are those that C promises by its manual pages.

// A block for each call would hide what the test does.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use fastrand::Rng;
use uct_ib_abi::*;
use uct_ib_soft::table;

#[path = "../../../../ucs/testing/seed.rs"]
mod seed;

/// Runs with a device and memory of their own.
const ROUNDS: usize = 200;
/// Calls of a round.
const CALLS: usize = 600;
/// Bytes of a part of the memory, of which some at its beginning may be registered. The others are [`UNTOUCHED`], which nothing
/// else is: found elsewhere, that many in a row were read behind a region.
const PART: usize = 1024;
const PARTS: usize = 8;
const UNTOUCHED: u8 = 0x5a;
const READ: usize = 8;
/// Objects of a kind.
const MOST: usize = 6;
/// Pieces that a list has room for; more than a request may have.
const LIST: usize = 40;

/// Structures of integers and pointers only.
fn zeroed<T>() -> T {
    // SAFETY: the tests use it for C's structures, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Any bytes as a structure of integers.
fn any_attributes(random: &mut Rng) -> ibv_qp_attr {
    let mut attr: ibv_qp_attr = zeroed();
    attr.qp_state = random.i32(-1..8);
    attr.cur_qp_state = random.i32(-1..8);
    attr.path_mtu = random.i32(-1..8);
    attr.qkey = random.u32(..);
    (attr.rq_psn, attr.sq_psn) = (random.u32(..), random.u32(..));
    attr.dest_qp_num = random.u32(..);
    attr.qp_access_flags = random.u32(..);
    attr.ah_attr.grh.dgid.raw = std::array::from_fn(|_| random.u8(..));
    attr.ah_attr.grh.sgid_index = random.u8(..);
    (attr.ah_attr.is_global, attr.ah_attr.port_num) = (random.u8(..2), random.u8(..3));
    (attr.pkey_index, attr.en_sqd_async_notify) = (random.u16(..), random.u8(..2));
    (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (random.u8(..), random.u8(..));
    (attr.min_rnr_timer, attr.port_num, attr.timeout) = (random.u8(..), random.u8(..3), random.u8(..));
    (attr.retry_cnt, attr.rnr_retry) = (random.u8(..), random.u8(..));
    attr
}

/// What the calls have made.
struct World {
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    pds: Vec<*mut ibv_pd>,
    cqs: Vec<*mut ibv_cq>,
    srqs: Vec<*mut ibv_srq>,
    qps: Vec<*mut ibv_qp>,
    mrs: Vec<*mut ibv_mr>,
    ahs: Vec<*mut ibv_ah>,
    gid: ibv_gid,
    memory: Box<[u8]>,
    /// Most bytes of each part that are ever registered.
    lengths: [usize; PARTS],
    /// What calls read by themselves.
    inline: Box<[u8]>,
    next_request: u64,
    /// Requests that were accepted and have no completion yet, and the queue pair if it is known.
    posted: HashMap<u64, Option<u32>>,
}

impl World {
    fn new(random: &mut Rng) -> World {
        let mut count = 0;
        // SAFETY: each call gets what the one before returned, which is not null.
        unsafe {
            let list = (table().get_device_list)(&mut count);
            assert_eq!(count, 1);
            let context = (table().open_device)(*list);
            assert!(!context.is_null(), "{}", std::io::Error::last_os_error());
            (table().free_device_list)(list);
            let channel = (table().create_comp_channel)(context);
            for descriptor in [(*channel).fd, (*context).async_fd] {
                assert_eq!(libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK), 0);
            }
            let mut gid = zeroed();
            assert_eq!((table().query_gid)(context, 1, 0, &mut gid), 0);
            let lengths = std::array::from_fn(|_| random.usize(8..PART));
            let mut memory = vec![UNTOUCHED; PARTS * PART].into_boxed_slice();
            memory
                .chunks_mut(PART)
                .zip(lengths)
                .for_each(|(part, length): (_, usize)| part[..length].fill(0));
            World {
                context,
                channel,
                pds: Vec::new(),
                cqs: Vec::new(),
                srqs: Vec::new(),
                qps: Vec::new(),
                mrs: Vec::new(),
                ahs: Vec::new(),
                gid,
                memory,
                lengths,
                inline: vec![0; PARTS * PART].into_boxed_slice(),
                next_request: 0,
                posted: HashMap::new(),
            }
        }
    }

    /// One of each kind, and a pair of queue pairs connected to each other, so that later calls meet something.
    fn begin(&mut self, random: &mut Rng) {
        // SAFETY: the context is open.
        self.pds.push(unsafe { (table().alloc_pd)(self.context) });
        // SAFETY: as above, and the channel lives.
        self.cqs.push(unsafe { (table().create_cq)(self.context, 256, null_mut(), self.channel, 0) });
        for _ in 0..3 {
            self.register(random);
        }
        for kind in [IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UD] {
            let mut init: ibv_qp_init_attr = zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (self.cqs[0], self.cqs[0], kind);
            init.cap = ibv_qp_cap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            };
            // SAFETY: the domain and the queue live.
            let qp = unsafe { (table().create_qp)(self.pds[0], &mut init) };
            assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
            self.qps.push(qp);
        }
        for (own, peer) in [(0, 1), (1, 0), (2, 2)] {
            self.connect(self.qps[own], self.qps[peer]);
        }
    }

    /// From where a queue pair is to where it sends; refused if it is in no state for that.
    fn connect(&self, qp: *mut ibv_qp, peer: *mut ibv_qp) {
        let mut attr: ibv_qp_attr = zeroed();
        // SAFETY: both live.
        let (is_datagram, number) = unsafe { ((*qp).qp_type == IBV_QPT_UD, (*peer).qp_num) };
        (attr.port_num, attr.qkey, attr.qp_access_flags) = (1, 0x11, u32::MAX >> 28);
        (attr.path_mtu, attr.dest_qp_num) = (IBV_MTU_1024, number);
        (attr.ah_attr.is_global, attr.ah_attr.port_num, attr.ah_attr.grh.dgid) = (1, 1, self.gid);
        (attr.max_dest_rd_atomic, attr.max_rd_atomic) = (4, 4);
        // Short, so that no round waits for a peer that is not there.
        (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer) = (8, 2, 2, 1);
        let masks = if is_datagram {
            [IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN]
        } else {
            [
                IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
                IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER,
                IBV_QP_TIMEOUT
                    | IBV_QP_RETRY_CNT
                    | IBV_QP_RNR_RETRY
                    | IBV_QP_SQ_PSN
                    | IBV_QP_MAX_QP_RD_ATOMIC,
            ]
        };
        let states = [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS];
        for (state, mask) in states.into_iter().zip([0].into_iter().chain(masks)) {
            attr.qp_state = state;
            // SAFETY: the queue pair lives.
            unsafe { (table().modify_qp)(qp, &mut attr, mask | IBV_QP_STATE) };
        }
    }

    fn register(&mut self, random: &mut Rng) {
        let part = random.usize(0..PARTS);
        let access = if random.u8(..4) == 0 { random.i32(..) & 0xf } else { 0xf };
        let most = self.lengths[part];
        let length = if random.u8(..4) == 0 { random.usize(0..=most) } else { most };
        let place = self.memory[part * PART..].as_mut_ptr();
        let pd = random.choice(&self.pds).copied();
        // SAFETY: the domain lives; the memory is there until the world has ended.
        self.mrs.extend(pd.map(|pd| unsafe { (table().reg_mr)(pd, place.cast(), length, access) }));
        self.mrs.retain(|mr| !mr.is_null());
    }

    /// Bytes that are registered and their key; one time of `rarely` any address, any length, or any key.
    fn somewhere(&self, random: &mut Rng, rarely: u8) -> ibv_sge {
        let begin = self.memory.as_ptr().expose_provenance() as u64;
        let mut place = ibv_sge { addr: begin, length: random.u32(0..64), lkey: random.u32(..) };
        if let Some(mr) = random.choice(&self.mrs) {
            // SAFETY: it lives.
            let mr = unsafe { &**mr };
            place.addr = mr.addr.addr() as u64;
            let most = mr.length as u32;
            (place.length, place.lkey) = (if random.bool() { most } else { random.u32(0..=most) }, mr.lkey);
        }
        if random.u8(..rarely) == 0 {
            match random.u8(..4) {
                0 => place.addr = random.u64(..),
                1 => place.addr = begin + random.u64(0..(PARTS * PART) as u64),
                2 if random.bool() => place.length = random.u32(..),
                2 => place.length += random.u32(1..64),
                _ => place.lkey = random.u32(..),
            }
        }
        place
    }

    /// A list of pieces; only bytes of the memory if the call itself reads them.
    fn pieces(&self, random: &mut Rng, is_read_now: bool) -> [ibv_sge; LIST] {
        std::array::from_fn(|_| {
            let mut place = self.somewhere(random, 24);
            if is_read_now {
                place.addr = self.inline.as_ptr().expose_provenance() as u64;
                place.length =
                    if random.bool() { place.length % 24 } else { place.length % (PARTS * PART) as u32 };
            }
            place
        })
    }

    /// How many pieces of a list are named.
    fn count(random: &mut Rng) -> c_int {
        if random.u8(..32) == 0 { random.i32(-2..=LIST as c_int) } else { random.i32(0..3) }
    }

    fn send(&mut self, random: &mut Rng) {
        let Some(&qp) = random.choice(&self.qps) else { return };
        // SAFETY: it lives.
        let (number, is_datagram) = unsafe { ((*qp).qp_num, (*qp).qp_type == IBV_QPT_UD) };
        let flags = random.u32(..) & if random.u8(..4) == 0 { u32::MAX } else { !IBV_SEND_INLINE };
        let mut list = self.pieces(random, flags & IBV_SEND_INLINE != 0);
        let mut requests: [ibv_send_wr; 3] = zeroed();
        for wr in &mut requests {
            (wr.wr_id, wr.sg_list, wr.num_sge) = (self.next_request, list.as_mut_ptr(), World::count(random));
            self.next_request += 1;
            wr.opcode = if random.u8(..16) == 0 { random.i32(..) } else { random.i32(0..7) };
            (wr.send_flags, wr.imm_data) = (flags, random.u32(..));
            let ibv_sge { addr: remote_addr, lkey: rkey, .. } = self.somewhere(random, 24);
            if is_datagram {
                wr.opcode = if random.u8(..8) == 0 { wr.opcode } else { IBV_WR_SEND };
                let Some(&ah) = random.choice(&self.ahs) else { return };
                wr.wr.ud = ibv_wr_ud { ah, remote_qpn: number, remote_qkey: random.u32(0x10..0x13) };
            } else if matches!(wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD) {
                let (compare_add, swap) = (random.u64(..), random.u64(..));
                if random.bool() {
                    (list[0].length, wr.num_sge) = (8, 1);
                }
                wr.wr.atomic = ibv_wr_atomic { remote_addr, compare_add, swap, rkey };
            } else {
                wr.wr.rdma = ibv_wr_rdma { remote_addr, rkey };
            }
        }
        let count = random.usize(1..=requests.len());
        for index in 1..count {
            requests[index - 1].next = &raw mut requests[index];
        }
        let (first, mut bad) = (&raw mut requests[0], null_mut());
        // SAFETY: the queue pair and the list live through the call.
        let outcome = unsafe { (*self.context).ops.post_send.expect("it is there")(qp, first, &mut bad) };
        let accepted =
            self.accepted(outcome, bad.is_null(), count, |index| &raw const requests[index] == bad);
        self.posted.extend(requests[..accepted].iter().map(|wr| (wr.wr_id, Some(number))));
    }

    fn receive(&mut self, random: &mut Rng) {
        let mut list = self.pieces(random, false);
        let mut requests: [ibv_recv_wr; 3] = zeroed();
        for wr in &mut requests {
            (wr.wr_id, wr.sg_list, wr.num_sge) = (self.next_request, list.as_mut_ptr(), World::count(random));
            self.next_request += 1;
        }
        let count = random.usize(1..=requests.len());
        for index in 1..count {
            requests[index - 1].next = &raw mut requests[index];
        }
        let (first, mut bad) = (&raw mut requests[0], null_mut());
        // SAFETY: the context is open.
        let ops = unsafe { &(*self.context).ops };
        let (outcome, number) = match (random.choice(&self.srqs), random.choice(&self.qps)) {
            (Some(&srq), _) if random.bool() => {
                // SAFETY: the queue and the list live through the call.
                (unsafe { ops.post_srq_recv.expect("it is there")(srq, first, &mut bad) }, None)
            }
            (_, Some(&qp)) => {
                // SAFETY: as above.
                let outcome = unsafe { ops.post_recv.expect("it is there")(qp, first, &mut bad) };
                // SAFETY: it lives.
                (outcome, Some(unsafe { (*qp).qp_num }))
            }
            _ => return,
        };
        let accepted =
            self.accepted(outcome, bad.is_null(), count, |index| &raw const requests[index] == bad);
        self.posted.extend(requests[..accepted].iter().map(|wr| (wr.wr_id, number)));
    }

    /// How many of a list were accepted: all, or those in front of the one that the call has named.
    fn accepted(&self, outcome: c_int, is_null: bool, count: usize, is_bad: impl Fn(usize) -> bool) -> usize {
        if outcome == 0 {
            assert!(is_null, "a request is named bad, and none was refused");
            return count;
        }
        (0..count).find(|index| is_bad(*index)).expect("what was refused is named")
    }

    fn poll(&mut self, random: &mut Rng) {
        let Some(&cq) = random.choice(&self.cqs) else { return };
        let mut places: [ibv_wc; 8] = zeroed();
        let room = random.i32(0..=8);
        // SAFETY: there is room for as many.
        let found =
            unsafe { (*self.context).ops.poll_cq.expect("it is there")(cq, room, places.as_mut_ptr()) };
        assert!((0..=room).contains(&found));
        for wc in &places[..found as usize] {
            let of = self.posted.remove(&wc.wr_id).expect("a completion belongs to a request, and ends it");
            assert!(of.is_none_or(|number| number == wc.qp_num), "it is that of its queue pair");
        }
    }

    fn make(&mut self, random: &mut Rng) {
        let (pd, cq) = (random.choice(&self.pds).copied(), random.choice(&self.cqs).copied());
        match random.u8(..6) {
            0 if self.pds.len() < MOST => {
                // SAFETY: the context is open.
                self.pds.push(unsafe { (table().alloc_pd)(self.context) });
            }
            1 if self.cqs.len() < MOST => {
                let channel = if random.bool() { self.channel } else { null_mut() };
                let (capacity, vector) = (random.i32(-1..64), random.i32(-1..2).min(random.i32(0..2)));
                // SAFETY: as above, and the channel lives.
                let cq = unsafe { (table().create_cq)(self.context, capacity, null_mut(), channel, vector) };
                assert_eq!(cq.is_null(), capacity < 1 || vector != 0);
                self.cqs.push(cq);
            }
            2 if self.srqs.len() < MOST => {
                let mut init: ibv_srq_init_attr = zeroed();
                init.attr = ibv_srq_attr {
                    max_wr: random.u32(0..20),
                    max_sge: random.u32(0..LIST as u32),
                    srq_limit: random.u32(..),
                };
                let Some(pd) = pd else { return };
                // SAFETY: the domain lives.
                self.srqs.push(unsafe { (table().create_srq)(pd, &mut init) });
            }
            3 if self.qps.len() < MOST => {
                let (Some(pd), Some(cq)) = (pd, cq) else { return };
                let mut init: ibv_qp_init_attr = zeroed();
                (init.send_cq, init.recv_cq) = (cq, *random.choice(&self.cqs).expect("there is one"));
                init.srq = random.choice(&self.srqs).copied().filter(|_| random.bool()).unwrap_or(null_mut());
                (init.qp_type, init.sq_sig_all) = (random.i32(0..8), random.i32(0..2));
                let any =
                    |random: &mut Rng| if random.u8(..16) == 0 { random.u32(..) } else { random.u32(0..24) };
                init.cap = ibv_qp_cap {
                    max_send_wr: any(random),
                    max_recv_wr: any(random),
                    max_send_sge: any(random),
                    max_recv_sge: any(random),
                    max_inline_data: any(random),
                };
                // SAFETY: domain and queues live.
                self.qps.push(unsafe { (table().create_qp)(pd, &mut init) });
            }
            4 if self.ahs.len() < MOST => {
                let mut attr = any_attributes(random).ah_attr;
                if random.bool() {
                    (attr.is_global, attr.port_num, attr.grh.dgid) = (1, 1, self.gid);
                }
                let Some(pd) = pd else { return };
                // SAFETY: the domain lives.
                self.ahs.push(unsafe { (table().create_ah)(pd, &mut attr) });
            }
            5 if self.mrs.len() < 2 * MOST => self.register(random),
            _ => {}
        }
        self.cqs.retain(|object| !object.is_null());
        self.srqs.retain(|object| !object.is_null());
        self.qps.retain(|object| !object.is_null());
        self.ahs.retain(|object| !object.is_null());
    }

    fn end_one(&mut self, random: &mut Rng) {
        fn any<T>(list: &[*mut T], random: &mut Rng) -> Option<usize> {
            (!list.is_empty()).then(|| random.usize(0..list.len()))
        }
        // SAFETY: each lives, is one of this device, and is forgotten if it has ended.
        unsafe {
            match random.u8(..12) {
                0 => {
                    if let Some(at) = any(&self.pds, random)
                        && (table().dealloc_pd)(self.pds[at]) == 0
                    {
                        self.pds.swap_remove(at);
                    }
                }
                1 => {
                    if let Some(at) = any(&self.cqs, random)
                        && (table().destroy_cq)(self.cqs[at]) == 0
                    {
                        self.cqs.swap_remove(at);
                    }
                }
                2 => {
                    if let Some(at) = any(&self.srqs, random)
                        && (table().destroy_srq)(self.srqs[at]) == 0
                    {
                        self.srqs.swap_remove(at);
                    }
                }
                3 => {
                    if let Some(at) = any(&self.qps, random) {
                        assert_eq!((table().destroy_qp)(self.qps.swap_remove(at)), 0);
                    }
                }
                4 => {
                    if let Some(at) = any(&self.mrs, random) {
                        assert_eq!((table().dereg_mr)(self.mrs.swap_remove(at)), 0);
                    }
                }
                5 => {
                    if let Some(at) = any(&self.ahs, random) {
                        assert_eq!((table().destroy_ah)(self.ahs.swap_remove(at)), 0);
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes what the device has to tell; what was taken is acknowledged, so that objects can end.
    fn events(&mut self) {
        // SAFETY: context and channel live, their descriptors do not block, and each event is acknowledged once.
        unsafe {
            let (mut cq, mut cookie) = (null_mut(), null_mut());
            while (table().get_cq_event)(self.channel, &mut cq, &mut cookie) == 0 {
                assert!(self.cqs.contains(&cq), "an event of a queue that is there");
                (table().ack_cq_events)(cq, 1);
            }
            let mut event: ibv_async_event = zeroed();
            while (table().get_async_event)(self.context, &mut event) == 0 {
                match event.event_type {
                    IBV_EVENT_CQ_ERR => assert!(self.cqs.contains(&event.element.cq)),
                    IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                        assert!(self.srqs.contains(&event.element.srq));
                    }
                    _ => assert!(self.qps.contains(&event.element.qp), "{}", event.event_type),
                }
                (table().ack_async_event)(&mut event);
            }
        }
    }

    fn call(&mut self, random: &mut Rng) {
        match random.u8(..31) {
            0..8 => self.send(random),
            8..14 => self.receive(random),
            14..20 => self.poll(random),
            20..23 => self.make(random),
            23..25 => self.end_one(random),
            25 => self.events(),
            26 => {
                let (Some(&qp), Some(&peer)) = (random.choice(&self.qps), random.choice(&self.qps)) else {
                    return;
                };
                self.connect(qp, peer);
                self.connect(peer, qp);
            }
            27 => {
                let Some(&qp) = random.choice(&self.qps) else { return };
                let mask =
                    random.i32(..) & if random.bool() { IBV_QP_STATE | IBV_QP_CUR_STATE } else { c_int::MAX };
                // SAFETY: the queue pair lives.
                unsafe { (table().modify_qp)(qp, &mut any_attributes(random), mask) };
            }
            28 => {
                let Some(&qp) = random.choice(&self.qps) else { return };
                let (mut attr, mut init) = (zeroed(), zeroed());
                // SAFETY: the queue pair lives, and both are places.
                assert_eq!(unsafe { (table().query_qp)(qp, &mut attr, random.i32(..), &mut init) }, 0);
            }
            29 => {
                let Some(&srq) = random.choice(&self.srqs) else { return };
                let mut attr = ibv_srq_attr {
                    max_wr: random.u32(..),
                    max_sge: random.u32(..),
                    srq_limit: random.u32(..24),
                };
                // SAFETY: the queue lives.
                unsafe { (table().modify_srq)(srq, &mut attr, random.i32(0..4)) };
            }
            _ => {
                let Some(&cq) = random.choice(&self.cqs) else { return };
                // SAFETY: the queue lives.
                unsafe { (*self.context).ops.req_notify_cq.expect("it is there")(cq, random.i32(0..2)) };
            }
        }
    }

    /// All of it ends in the order of its dependence.
    fn end(mut self) {
        self.events();
        // SAFETY: each lives, and ends once.
        unsafe {
            for ah in self.ahs.drain(..) {
                assert_eq!((table().destroy_ah)(ah), 0);
            }
            for qp in std::mem::take(&mut self.qps) {
                assert_eq!((table().destroy_qp)(qp), 0);
            }
            for srq in std::mem::take(&mut self.srqs) {
                assert_eq!((table().destroy_srq)(srq), 0);
            }
            for cq in std::mem::take(&mut self.cqs) {
                assert_eq!((table().destroy_cq)(cq), 0);
            }
            for mr in self.mrs.drain(..) {
                assert_eq!((table().dereg_mr)(mr), 0);
            }
            for pd in self.pds.drain(..) {
                assert_eq!((table().dealloc_pd)(pd), 0);
            }
            assert_eq!((table().destroy_comp_channel)(self.channel), 0);
            assert_eq!((table().close_device)(self.context), 0);
        }
        for (part, length) in self.memory.chunks(PART).zip(self.lengths) {
            let is_untouched = part[length..].iter().all(|byte| *byte == UNTOUCHED);
            assert!(is_untouched, "bytes behind {length} were written, and never registered");
            let has_read =
                part[..length].windows(READ).any(|bytes| bytes.iter().all(|byte| *byte == UNTOUCHED));
            assert!(!has_read, "bytes were read that were never registered");
        }
    }
}

#[test]
fn any_calls_with_any_numbers_end_well() {
    let mut random = Rng::with_seed(seed::printed());
    for _ in 0..ROUNDS {
        let mut world = World::new(&mut random);
        world.begin(&mut random);
        for _ in 0..CALLS {
            world.call(&mut random);
        }
        world.end();
    }
}
