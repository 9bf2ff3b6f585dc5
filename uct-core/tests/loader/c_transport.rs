//! The transport in C does over the bare tables what the boundary promises; the conformance suite runs on it besides.

use std::{ffi::c_void, mem::offset_of, ptr};

use crate::loader_support::{HOST, Modules, plugin, text, with_reason};
use uct_abi::*;
use uct_core::loader::Component;

/// An open interface of `cself` with an endpoint to itself.
struct Open {
    component: Component,
    md: *mut UctMd,
    iface: *mut UctIface,
    ep: *mut UctEp,
    inbox: Box<Inbox>,
    // Reached by the interface until it is closed.
    _handlers: Box<UctAmTable>,
    _modules: Modules,
}

/// What the handler saw.
#[derive(Default)]
struct Inbox {
    messages: Vec<Vec<u8>>,
    keep: bool,
    kept: Vec<*mut c_void>,
}

const HEADROOM: usize = 24;

macro_rules! iface {
    ($open:expr, $slot:ident($($argument:expr),*)) => {{
        let slot = $open.component.transports[0].iface_ops.$slot.expect("a slot");
        // SAFETY: the interface is open, and the arguments are what the slot asks for.
        unsafe { slot($open.iface, $($argument),*) }
    }};
}

macro_rules! ep {
    ($open:expr, $slot:ident($($argument:expr),*)) => {{
        let slot = $open.component.transports[0].ep_ops.$slot.expect("a slot");
        // SAFETY: the endpoint is alive, and the arguments are what the slot asks for.
        unsafe { slot($open.ep, $($argument),*) }
    }};
}

impl Open {
    fn new() -> Open {
        Open::with_queue_limit(64)
    }

    fn with_queue_limit(limit: u64) -> Open {
        let modules = Modules::new();
        modules.cself();
        let loaded = modules.load();
        let component = plugin(&loaded, "cself").components[0].clone();
        let mut inbox = Box::<Inbox>::default();
        let argument: *mut c_void = (&raw mut *inbox).cast();
        let mut handlers =
            Box::new(UctAmTable { callbacks: [receive; UCT_AM_IDS], arguments: [argument; UCT_AM_IDS] });
        let value = UctConfigValue {
            section: text("cself"),
            name: text("queue_limit"),
            text: text("?"),
            integer: limit,
            real: 0.0,
        };
        let config = UctConfig { size: size_of::<UctConfig>(), values: &raw const value, count: 1 };
        let params = UctIfaceParams {
            size: size_of::<UctIfaceParams>(),
            worker: (&raw const HOST).cast_mut().cast(),
            device: text("memory"),
            config: &raw const config,
            am_handlers: &raw mut *handlers,
            error_handler: ignore,
            error_argument: ptr::null_mut(),
            rx_headroom: HEADROOM,
            flags: 0,
            iface: ptr::null_mut(),
            am_placer: ptr::null(),
        };
        let (mut md, mut iface) = (ptr::null_mut(), ptr::null_mut());
        let (md_open, iface_open) =
            (component.ops.md_open.unwrap(), component.transports[0].ops.iface_open.unwrap());
        // SAFETY: the strings, the configuration and the place for the answer are valid for the call.
        let answer =
            with_reason(|reason| unsafe { md_open(text("cself"), &raw const config, &raw mut md, reason) });
        assert_eq!(answer, (UCT_OK, String::new()));
        // SAFETY: as above; the handlers stay until the interface is closed.
        let answer =
            with_reason(|reason| unsafe { iface_open(md, &raw const params, &raw mut iface, reason) });
        assert_eq!(answer, (UCT_OK, String::new()));
        let ep = ptr::null_mut();
        let mut open = Open { component, md, iface, ep, inbox, _handlers: handlers, _modules: modules };
        open.ep = open.connect();
        open
    }

    fn addresses(&self) -> ([u8; 8], [u8; 8]) {
        let (mut device, mut address) = ([0; 8], [0; 8]);
        assert_eq!(iface!(self, get_device_address(device.as_mut_ptr())), UCT_OK);
        assert_eq!(iface!(self, get_address(address.as_mut_ptr())), UCT_OK);
        (device, address)
    }

    fn connect(&self) -> *mut UctEp {
        let (device, address) = self.addresses();
        let params = UctEpParams {
            size: size_of::<UctEpParams>(),
            user: ptr::null_mut(),
            device_address: device.as_ptr(),
            device_address_length: 8,
            iface_address: address.as_ptr(),
            iface_address_length: 8,
            gate: ptr::null_mut(),
            accesses: ptr::null_mut(),
        };
        let mut ep = ptr::null_mut();
        let answer = with_reason(|reason| iface!(self, ep_create(&raw const params, &raw mut ep, reason)));
        assert_eq!(answer, (UCT_OK, String::new()));
        ep
    }

    fn am_short(&self, header: u64, payload: &[u8]) -> UctStatus {
        ep!(self, am_short(3, header, payload.as_ptr().cast(), payload.len()))
    }

    fn progress(&self) -> u32 {
        iface!(self, progress())
    }

    /// All messages that came until nothing more happened.
    fn received(&mut self) -> Vec<Vec<u8>> {
        for _ in 0..1000 {
            if self.progress() == 0 {
                break;
            }
        }
        std::mem::take(&mut self.inbox.messages)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.ep.is_null() {
            ep!(self, destroy());
        }
        iface!(self, close());
        let close = self.component.md_ops.close.unwrap();
        // SAFETY: the domain is open, and nothing of it is left.
        unsafe { close(self.md) };
    }
}

unsafe extern "C" fn receive(
    argument: *mut c_void,
    data: *mut c_void,
    length: usize,
    flags: u32,
) -> UctStatus {
    // SAFETY: the argument is the test's inbox, which nothing else uses during progress.
    let inbox = unsafe { &mut *argument.cast::<Inbox>() };
    // SAFETY: the transport's data are readable for the call.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    inbox.messages.push(bytes.to_vec());
    if inbox.keep && flags & UCT_AM_DESC != 0 {
        inbox.kept.push(data);
        return UCT_INPROGRESS;
    }
    UCT_OK
}

unsafe extern "C" fn ignore(_: *mut c_void, _: *mut c_void, _: UctStatus, _: UctStr) {}

fn message(header: u64, payload: &[u8]) -> Vec<u8> {
    [&header.to_ne_bytes(), payload].concat()
}

fn iov(buffer: &[u8], length: usize, stride: usize, count: u32) -> UctIov {
    UctIov { buffer: buffer.as_ptr().cast_mut().cast(), length, memh: ptr::null_mut(), stride, count }
}

#[test]
fn its_attributes_name_what_it_can() {
    let open = Open::new();
    // SAFETY: the table consists of numbers, of which zero is one.
    let mut attr: UctIfaceAttr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<UctIfaceAttr>();
    assert_eq!(iface!(open, query(&raw mut attr)), UCT_OK);
    let wanted =
        UCT_CAP_AM_SHORT | UCT_CAP_AM_BCOPY | UCT_CAP_AM_ZCOPY | UCT_CAP_PENDING | UCT_CAP_CONNECT_TO_IFACE;
    assert_eq!(attr.capabilities & wanted, wanted);
    assert_eq!((attr.device_addr_len, attr.iface_addr_len), (8, 8));
    assert!(attr.latency.value >= 0.0 && attr.overhead.value > 0.0 && attr.bandwidth_dedicated.value > 1e9);
    // An older host has less room.
    let mut old: UctIfaceAttr = attr;
    old.size = offset_of!(UctIfaceAttr, overhead);
    old.overhead.value = -7.0;
    assert_eq!(iface!(open, query(&raw mut old)), UCT_OK);
    assert_eq!(old.overhead.value, -7.0);
}

#[test]
fn it_reaches_itself_and_gives_the_reason_for_other_addresses() {
    let open = Open::new();
    let other = Open::new();
    let (device, address) = open.addresses();
    let ask = |device: &[u8], address: &[u8]| {
        let (data, length) = (device.as_ptr(), device.len());
        with_reason(|reason| {
            iface!(
                open,
                is_reachable(data, length, address.as_ptr(), address.len(), UCT_SCOPE_NETWORK, reason)
            )
        })
    };
    assert_eq!(ask(&device, &address), (UCT_OK, String::new()));
    assert_eq!(ask(&device, &[]), (UCT_OK, String::new()));
    for (device, address, word) in [
        (&device[..5], &address[..], "length"),
        (&[0; 8][..], &address[..], "another process"),
        (&device[..], &other.addresses().1[..], "another interface"),
        (&device[..], &address[..3], "another interface"),
    ] {
        let (status, reason) = ask(device, address);
        assert_eq!(status, UCT_ERR_UNREACHABLE);
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn every_flavour_of_active_message_arrives_whole_and_in_order() {
    let mut open = Open::new();
    let data: Vec<u8> = (0..=255).collect();
    assert_eq!(open.am_short(7, &data), UCT_OK);
    assert_eq!(open.am_short(8, &[]), UCT_OK);
    let strided = [iov(&data, 2, 10, 3), iov(&data, 0, 0, 0), iov(&data[100..], 5, 0, 1)];
    assert_eq!(ep!(open, am_short_iov(1, strided.as_ptr(), 3)), UCT_OK);
    let mut packed = data.clone();
    let length = ep!(open, am_bcopy(2, pack_bytes, (&raw mut packed).cast(), UCT_SEND_SIGNALED));
    assert_eq!(length, 256);
    let (header, vector) = ([9_u8; 12], [iov(&data, 256, 0, 1)]);
    let status = ep!(open, am_zcopy(3, header.as_ptr().cast(), 12, vector.as_ptr(), 1, 0, ptr::null_mut()));
    assert_eq!(status, UCT_OK);
    assert!(open.inbox.messages.is_empty(), "handlers run from progress only");
    let expected = [
        message(7, &data),
        message(8, &[]),
        vec![0, 1, 10, 11, 20, 21, 100, 101, 102, 103, 104],
        data.clone(),
        [&header[..], &data].concat(),
    ];
    assert_eq!(open.received(), expected);
}

unsafe extern "C" fn pack_bytes(destination: *mut c_void, argument: *mut c_void) -> usize {
    // SAFETY: the tests pass a vector.
    let bytes = unsafe { &*argument.cast::<Vec<u8>>() };
    // SAFETY: the transport has room for `max_bcopy` bytes, which are more.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(destination.cast(), bytes.len()) };
    bytes.len()
}

#[test]
fn what_is_beyond_a_limit_is_an_error_and_sends_nothing() {
    let mut open = Open::new();
    let data = vec![1; 70_000];
    assert_eq!(open.am_short(0, &data[..257]), UCT_ERR_INVALID_PARAM);
    assert_eq!(ep!(open, am_short(32, 0, data.as_ptr().cast(), 1)), UCT_ERR_INVALID_PARAM);
    let endless = [iov(&data, 8, 0, u32::MAX)];
    assert_eq!(ep!(open, am_short_iov(0, endless.as_ptr(), 1)), UCT_ERR_INVALID_PARAM);
    let long = [iov(&data, 65_537, 0, 1)];
    let (none, null) = (ptr::null(), ptr::null_mut());
    assert_eq!(ep!(open, am_zcopy(0, none, 0, long.as_ptr(), 1, 0, null)), UCT_ERR_INVALID_PARAM);
    assert!(open.received().is_empty());
}

/// A pending request that sends one message.
#[repr(C)]
struct Request {
    pending: UctPendingReq,
    am_short: unsafe extern "C" fn(*mut UctEp, u8, u64, *const c_void, usize) -> UctStatus,
    ep: *mut UctEp,
    number: u64,
    calls: u32,
    answer: UctStatus,
}

unsafe extern "C" fn send_pending(request: *mut UctPendingReq) -> UctStatus {
    // SAFETY: the tests queue requests of this type.
    let request = unsafe { &mut *request.cast::<Request>() };
    request.calls += 1;
    if request.answer != UCT_OK {
        return request.answer;
    }
    // SAFETY: the endpoint is alive as long as requests are queued on it.
    unsafe { (request.am_short)(request.ep, 0, request.number, ptr::dangling(), 0) }
}

impl Request {
    fn new(open: &Open, number: u64, answer: UctStatus) -> Box<Request> {
        let pending = UctPendingReq { func: send_pending, reserved: [0; 5] };
        let am_short = open.component.transports[0].ep_ops.am_short.unwrap();
        Box::new(Request { pending, am_short, ep: open.ep, number, calls: 0, answer })
    }
}

#[test]
fn pending_requests_are_served_in_order_once_there_is_room() {
    let mut open = Open::with_queue_limit(4);
    let mut early = Request::new(&open, 0, UCT_OK);
    assert_eq!(ep!(open, pending_add((&raw mut *early).cast())), UCT_ERR_BUSY);
    for number in 0..4 {
        assert_eq!(open.am_short(number, &[]), UCT_OK);
    }
    assert_eq!(open.am_short(99, &[]), UCT_ERR_NO_RESOURCE);
    let mut requests: Vec<_> = (4..10).map(|number| Request::new(&open, number, UCT_OK)).collect();
    for request in &mut requests {
        assert_eq!(ep!(open, pending_add((&raw mut **request).cast())), UCT_OK);
    }
    assert_eq!(ep!(open, flush(UCT_FLUSH_LOCAL, ptr::null_mut())), UCT_ERR_NO_RESOURCE);
    // Four arrive, four of those that wait are sent; the rest still waits, and nobody overtakes it.
    assert_eq!(open.progress(), 8);
    assert_eq!(open.am_short(99, &[]), UCT_ERR_NO_RESOURCE);
    let expected: Vec<_> = (0..10).map(|number| message(number, &[])).collect();
    assert_eq!(open.received(), expected);
    assert!(requests.iter().all(|request| request.calls == 1));
    assert_eq!(ep!(open, flush(UCT_FLUSH_LOCAL, ptr::null_mut())), UCT_OK);
}

#[test]
fn a_request_that_stays_is_called_again_and_purged_once() {
    let mut open = Open::with_queue_limit(1);
    assert_eq!(open.am_short(0, &[]), UCT_OK);
    let mut stays = Request::new(&open, 1, UCT_ERR_NO_RESOURCE);
    let mut behind = Request::new(&open, 2, UCT_OK);
    for request in [&mut stays, &mut behind] {
        assert_eq!(ep!(open, pending_add((&raw mut **request).cast())), UCT_OK);
    }
    for _ in 0..3 {
        open.progress();
    }
    assert_eq!((stays.calls, behind.calls), (3, 0));
    let mut purged: Vec<*mut UctPendingReq> = Vec::new();
    ep!(open, pending_purge(collect, (&raw mut purged).cast()));
    assert_eq!(purged, [(&raw mut *stays).cast(), (&raw mut *behind).cast()]);
    open.progress();
    assert_eq!(stays.calls, 3);
    assert_eq!(open.received().len(), 1);
}

unsafe extern "C" fn collect(request: *mut UctPendingReq, argument: *mut c_void) {
    // SAFETY: the test passes such a vector.
    unsafe { &mut *argument.cast::<Vec<*mut UctPendingReq>>() }.push(request);
}

#[test]
fn endpoints_are_served_in_turn() {
    let mut open = Open::with_queue_limit(2);
    let (first, second) = (open.ep, open.connect());
    assert_eq!((open.am_short(0, &[]), open.am_short(1, &[])), (UCT_OK, UCT_OK));
    let mut requests = Vec::new();
    for (ep, number) in [(first, 10), (first, 11), (second, 20), (second, 21)] {
        open.ep = ep;
        let mut request = Request::new(&open, number, UCT_OK);
        assert_eq!(ep!(open, pending_add((&raw mut *request).cast())), UCT_OK);
        requests.push(request);
    }
    let expected = [0, 1, 10, 20, 11, 21].map(|number| message(number, &[]));
    assert_eq!(open.received(), expected);
    ep!(open, destroy());
    open.ep = first;
}

#[test]
fn kept_data_stay_with_their_headroom_until_released() {
    let mut open = Open::new();
    open.inbox.keep = true;
    for number in 0..3 {
        assert_eq!(open.am_short(number, b"kept"), UCT_OK);
    }
    assert_eq!(open.received().len(), 3);
    let kept = std::mem::take(&mut open.inbox.kept);
    assert_eq!(kept.len(), 3);
    for (number, &data) in (0_u64..).zip(&kept) {
        let data = data.cast::<u8>();
        // SAFETY: a keeper may write to the headroom ahead of the data.
        unsafe { data.wrapping_sub(HEADROOM).write_bytes(0xee, HEADROOM) };
        // SAFETY: kept data are readable until they are released.
        let bytes = unsafe { std::slice::from_raw_parts(data, 12) };
        assert_eq!(bytes, message(number, b"kept"));
    }
    for data in kept {
        iface!(open, release(data));
    }
}

#[test]
fn a_remote_flush_ends_when_everything_ahead_of_it_was_delivered() {
    let mut open = Open::new();
    let mut completion = UctCompletion { func: count_down, count: 1, status: UCT_OK };
    assert_eq!(ep!(open, flush(UCT_FLUSH_REMOTE, &raw mut completion)), UCT_OK);
    assert_eq!(completion.count, 1, "what is done at once has no completion");
    assert_eq!(open.am_short(1, &[]), UCT_OK);
    assert_eq!(ep!(open, flush(UCT_FLUSH_LOCAL, ptr::null_mut())), UCT_OK);
    assert_eq!(ep!(open, flush(UCT_FLUSH_REMOTE, ptr::null_mut())), UCT_INPROGRESS);
    assert_eq!(iface!(open, flush(UCT_FLUSH_REMOTE, &raw mut completion)), UCT_INPROGRESS);
    assert_eq!(completion.count, 1);
    assert_eq!(open.received().len(), 1);
    assert_eq!((completion.count, completion.status), (0, -1234), "the function was called");
    assert_eq!((ep!(open, fence(0)), iface!(open, fence(0))), (UCT_OK, UCT_OK));
    assert_eq!(ep!(open, check(0, ptr::null_mut())), UCT_OK);
}

unsafe extern "C" fn count_down(completion: *mut UctCompletion) {
    // SAFETY: the completion is the test's and alive.
    unsafe { (*completion).status = -1234 };
}

#[test]
fn no_wake_up_is_lost_and_none_is_there_without_an_event() {
    let mut open = Open::new();
    let mut fd = -1;
    assert_eq!(iface!(open, event_fd(&raw mut fd)), UCT_OK);
    let readable = || {
        // SAFETY: the descriptor is the interface's, which is open.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).expect("poll") == 1
    };
    assert_eq!(open.am_short(0, &[]), UCT_OK);
    assert_eq!(iface!(open, event_arm(UCT_EVENT_RECV)), UCT_ERR_BUSY);
    open.received();
    assert_eq!(iface!(open, event_arm(UCT_EVENT_RECV)), UCT_OK);
    assert!(!readable());
    assert_eq!(open.am_short(1, &[]), UCT_OK);
    assert!(readable());
    open.received();
    assert_eq!(iface!(open, event_arm(UCT_EVENT_RECV_SIG)), UCT_OK);
    assert!(!readable());
    assert_eq!(open.am_short(2, &[]), UCT_OK);
    assert!(!readable(), "a message that is not marked does not wake");
    let mut bytes = vec![1_u8];
    assert_eq!(ep!(open, am_bcopy(0, pack_bytes, (&raw mut bytes).cast(), UCT_SEND_SIGNALED)), 1);
    assert!(readable());
}

#[test]
fn what_was_sent_is_delivered_although_the_endpoint_is_gone() {
    let mut open = Open::new();
    assert_eq!(open.am_short(5, b"last words"), UCT_OK);
    ep!(open, destroy());
    open.ep = ptr::null_mut();
    assert_eq!(open.received(), [message(5, b"last words")]);
}

#[test]
fn what_it_does_not_do_is_unsupported() {
    let open = Open::new();
    let status = ep!(open, put_short(ptr::null(), 0, 0, ptr::null_mut()));
    assert_eq!(status, UCT_ERR_UNSUPPORTED);
    let status = ep!(open, atomic64_post(UCT_ATOMIC_ADD, 1, 0, ptr::null_mut()));
    assert_eq!(status, UCT_ERR_UNSUPPORTED);
}

#[test]
fn its_configuration_is_a_section_of_the_schema() {
    let modules = Modules::new();
    modules.cself();
    let loaded = modules.load();
    let [section] = plugin(&loaded, "cself").config.as_slice() else { panic!("one section") };
    assert_eq!(section.name, "cself");
    let field = section.field("queue_limit").expect("the key");
    assert_eq!(field.kind, ucs::config::Kind::UInt { min: 1, max: 4096 });
    assert_eq!(field.default, "64");
}
