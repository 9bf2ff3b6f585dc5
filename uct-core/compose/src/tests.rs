//! An interface on a plugin that sends to itself, and on whose wire the tests write what they like.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};
use std::rc::Rc;
use std::sync::Arc;

use uct_plugin::abi::*;
use uct_plugin::memory::{PACKED_KEY, RegionDomain, RemoteKey};
use uct_plugin::rma::ByTransport;
use uct_plugin::rma::{MAX_REQUEST, Notify, Operation, Requests};
use uct_plugin::{
    AmHandlers, Completion, Endpoint, EpParams, Error, Failure, Flush, Iface, IfaceAttr, Md, MdAttr,
    MemoryAccess, Outcome, Pack, PeerAddress, Result, Scope, adapter, attr,
};

use crate::ep::ComposedEp;
use crate::iface::ComposedIface;
use crate::md::ComposedMd;
use crate::wire::{CHANNEL, Head, Kind};

/// Bytes of the plugin's longest message.
const LONGEST: usize = 512;
/// The address of the plugin's only interface.
const HERE: [u8; 8] = *b"here\0\0\0\0";
/// Another interface's.
const THERE: [u8; 8] = *b"there\0\0\0";
/// What the addresses of interfaces begin with that somebody has made up.
const MADE_UP: &[u8] = b"made";

struct WireMd;

impl Md for WireMd {
    type Memh = ();
    type Rkey = ();

    fn attributes(&self) -> MdAttr {
        attr::blank_md()
    }
}

struct Wire {
    am: AmHandlers,
    frames: RefCell<VecDeque<(u8, Vec<u8>)>>,
    room: Cell<usize>,
}

struct WireEp(Rc<Wire>);

thread_local! {
    /// The interface that was opened last.
    static LAST: RefCell<Option<Rc<Wire>>> = const { RefCell::new(None) };
}

impl Iface for Wire {
    type Md = WireMd;
    type Ep = WireEp;

    fn attributes(&self) -> IfaceAttr {
        let am = UctOpLimits { max_bcopy: LONGEST, max_iov: 4, ..attr::blank().am };
        let capabilities = UCT_CAP_AM_BCOPY | UCT_CAP_CONNECT_TO_IFACE | UCT_CAP_CB_SYNC;
        IfaceAttr { capabilities, am, iface_addr_len: HERE.len(), ..attr::blank() }
    }

    fn device_address(&self, _buffer: &mut [u8]) -> Result {
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&HERE);
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        if [HERE, THERE].iter().any(|known| known == peer.iface) || peer.iface.starts_with(MADE_UP) {
            Ok(())
        } else {
            Err("there is nobody".to_owned())
        }
    }

    fn progress(&self) -> u32 {
        let mut count = 0;
        loop {
            let Some((id, frame)) = self.frames.borrow_mut().pop_front() else { return count };
            // SAFETY: the frame is this function's until the call returns.
            unsafe { self.am.deliver(id, frame.as_ptr(), frame.len()) };
            count += 1;
        }
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<WireEp>, Failure> {
        let peer = params.peer.ok_or_else(|| Failure::unsupported("an unconnected endpoint"))?;
        self.is_reachable(peer, Scope::Network).map_err(|words| Failure::new(Error::UNREACHABLE, words))?;
        Ok(Rc::new(WireEp(Rc::clone(self))))
    }

    fn flush(&self, _flags: Flush, _completion: Option<Completion>) -> Result<Outcome> {
        Ok(Outcome::Done)
    }
}

impl Endpoint for WireEp {
    type Iface = Wire;
    type Remote = ByTransport;

    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        let Some(left) = self.0.room.get().checked_sub(1) else { return Err(Error::NO_RESOURCE) };
        self.0.room.set(left);
        let mut frame = vec![0; LONGEST];
        // SAFETY: the frame has `max_bcopy` bytes, initialised.
        let length = unsafe { pack.write(frame.as_mut_ptr(), usize::MAX) }?;
        assert!(length <= LONGEST, "a frame is longer than the plugin's messages");
        frame.truncate(length);
        self.0.frames.borrow_mut().push_back((id, frame));
        Ok(length)
    }

    fn flush(&self, _flags: Flush, _completion: Option<Completion>) -> Result<Outcome> {
        Ok(Outcome::Done)
    }
}

unsafe extern "C" fn open_wire(
    _md: *mut UctMd,
    params: *const UctIfaceParams,
    iface: *mut *mut UctIface,
    _reason: *mut UctText,
) -> UctStatus {
    // SAFETY: the parameters are valid for the call.
    let table = unsafe { (*params).am_handlers };
    // SAFETY: the table is valid until the interface is closed.
    let am = unsafe { AmHandlers::new(table) }.expect("a table");
    let wire = Rc::new(Wire { am, frames: RefCell::default(), room: Cell::new(usize::MAX) });
    LAST.with(|last| last.replace(Some(Rc::clone(&wire))));
    // SAFETY: the place of the answer.
    unsafe { iface.write(Rc::into_raw(wire).cast_mut().cast()) };
    UCT_OK
}

unsafe extern "C" fn close_md(_md: *mut UctMd) {}

/// What the application got: messages by id, and failures.
#[derive(Default)]
struct Told {
    messages: RefCell<Vec<Vec<u8>>>,
    failures: RefCell<Vec<UctStatus>>,
}

unsafe extern "C" fn message(told: *mut c_void, data: *mut c_void, length: usize, _flags: u32) -> UctStatus {
    // SAFETY: the argument is the test's, which outlives the interface.
    let told = unsafe { &*told.cast::<Told>() };
    // SAFETY: so many bytes are readable.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    told.messages.borrow_mut().push(data.to_vec());
    UCT_OK
}

unsafe extern "C" fn failure(told: *mut c_void, _ep: *mut c_void, status: UctStatus, _reason: UctStr) {
    // SAFETY: as above.
    unsafe { &*told.cast::<Told>() }.failures.borrow_mut().push(status);
}

struct Bench {
    iface: Rc<ComposedIface>,
    wire: Rc<Wire>,
    told: Box<Told>,
    _table: Box<UctAmTable>,
}

impl Bench {
    fn new() -> Bench {
        let ops: &'static UctMdOps =
            Box::leak(Box::new(UctMdOps { close: Some(close_md), ..*adapter::md_ops::<WireMd>() }));
        // SAFETY: the domain is never looked at.
        let md = Arc::new(unsafe { ComposedMd::new(ops, null_mut()) });
        let told = Box::<Told>::default();
        let argument = std::ptr::from_ref(&*told).cast_mut().cast::<c_void>();
        let mut table =
            Box::new(UctAmTable { callbacks: [message; UCT_AM_IDS], arguments: [argument; UCT_AM_IDS] });
        let transport = UctTlOps {
            size: size_of::<UctTlOps>(),
            name: UctStr { data: null(), length: 0 },
            iface_ops: adapter::iface_ops::<Wire>(),
            ep_ops: adapter::ep_ops::<WireEp>(),
            query_devices: None,
            iface_open: Some(open_wire),
        };
        let params = UctIfaceParams {
            size: size_of::<UctIfaceParams>(),
            worker: null_mut(),
            device: UctStr { data: null(), length: 0 },
            config: null(),
            am_handlers: &raw mut *table,
            error_handler: failure,
            error_argument: argument,
            rx_headroom: 0,
            flags: 0,
            iface: null_mut(),
            am_placer: null(),
        };
        // SAFETY: domain and parameters are as `open` wants them; what they point to outlives the interface.
        let iface = unsafe { ComposedIface::open(md, &transport, &params, null_mut()) };
        let wire = LAST.with(RefCell::take).expect("it was opened");
        Bench { iface: iface.expect("an interface"), wire, told, _table: table }
    }

    fn ep(&self) -> Rc<ComposedEp> {
        let params = UctEpParams {
            size: size_of::<UctEpParams>(),
            user: null_mut(),
            device_address: [].as_ptr(),
            device_address_length: 0,
            iface_address: HERE.as_ptr(),
            iface_address_length: HERE.len(),
            gate: null_mut(),
            accesses: null_mut(),
        };
        let create = adapter::iface_ops::<ComposedIface>().ep_create.expect("a slot");
        let (raw, mut ep) = (Rc::as_ptr(&self.iface).cast_mut().cast(), null_mut());
        // SAFETY: the interface lies in an `Rc`, and the parameters are valid for the call.
        assert_eq!(unsafe { create(raw, &raw const params, &raw mut ep, null_mut()) }, UCT_OK);
        // SAFETY: `ep_create` made it of an `Rc` of this type.
        unsafe { Rc::from_raw(ep.cast::<ComposedEp>()) }
    }

    /// Registers memory, and unpacks its key.
    fn key(&self, memory: &mut [u8]) -> (RemoteKey, u64) {
        let base = NonNull::new(memory.as_mut_ptr()).expect("memory");
        let regions = self.iface.md.regions();
        // SAFETY: the tests' memory outlives the last progress.
        let region = unsafe { regions.insert(base, memory.len(), MemoryAccess::all()) }.expect("a region");
        let mut packed = [0; PACKED_KEY];
        regions.pack(&region, &mut packed).expect("a key");
        (RemoteKey::unpack(&packed).expect("a key"), base.as_ptr() as u64)
    }

    /// Puts a frame on the wire.
    fn inject(&self, kind: Kind, token: u64, body: &[u8]) {
        let frame = [&Head { kind, token }.write(), body].concat();
        self.wire.frames.borrow_mut().push_back((CHANNEL, frame));
    }

    fn settle(&self) {
        while self.iface.advance() > 0 || !self.wire.frames.borrow().is_empty() {}
    }

    fn failures(&self) -> Vec<UctStatus> {
        self.told.failures.take()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.iface.close();
    }
}

#[test]
fn a_put_without_room_is_sent_once_there_is_some_and_nothing_overtakes_it() {
    let bench = Bench::new();
    let (ep, mut memory) = (bench.ep(), vec![0u8; 64]);
    let (key, address) = bench.key(&mut memory);
    bench.wire.room.set(0);
    assert_eq!(ep.put_short(&[1; 8], address, &key), Err(Error::NO_RESOURCE));
    let put = ep.sender.initiator.put(&key, address, 3).unwrap();
    ep.sender.accept_request(&bench.iface.address, &put, &[7; 3]);
    ep.sender.initiator.posted(0, &put, Operation::Acknowledged(Notify::Nobody));
    bench.iface.note_busy(&ep.sender);
    assert!(ep.sender.has_unsent() && !ep.is_quiet());
    bench.wire.room.set(100);
    assert_eq!(ep.put_short(&[1; 8], address, &key), Err(Error::NO_RESOURCE), "it would overtake");
    bench.iface.advance();
    bench.settle();
    assert!(!ep.sender.has_unsent());
    assert_eq!(memory[..4], [7, 7, 7, 0]);
}

#[test]
fn messages_of_the_last_id_arrive_without_what_stands_ahead_of_them() {
    let bench = Bench::new();
    bench.inject(Kind::Message, 0, b"of the application");
    bench.wire.frames.borrow_mut().push_back((3, b"another".to_vec()));
    bench.settle();
    assert_eq!(bench.told.messages.take(), [b"of the application".to_vec(), b"another".to_vec()]);
}

#[test]
fn frames_of_unknown_peers_are_dropped() {
    let bench = Bench::new();
    let ep = bench.ep();
    bench.wire.frames.borrow_mut().push_back((CHANNEL, vec![1; 5]));
    bench.wire.frames.borrow_mut().push_back((CHANNEL, vec![9; 40]));
    bench.inject(Kind::Request, 5, b"short");
    bench.inject(Kind::Request, 6, &[&b"nowhere!"[..], &[0; MAX_REQUEST]].concat());
    for kind in [Kind::Answer, Kind::CutOff] {
        bench.inject(kind, ep.sender.token ^ 1, &[0; 16]);
    }
    bench.settle();
    assert_eq!((bench.iface.peers.len(), bench.failures()), (0, vec![]));
    assert!(bench.told.messages.take().is_empty() && ep.sender.status.failure().is_none());
}

#[test]
fn what_is_no_request_cuts_its_token_off_and_no_other() {
    let bench = Bench::new();
    let (ep, other, mut memory) = (bench.ep(), bench.ep(), vec![0u8; 64]);
    let (key, address) = bench.key(&mut memory);
    bench.inject(Kind::Request, ep.sender.token, &[&HERE[..], &[0xff; MAX_REQUEST]].concat());
    bench.settle();
    assert_eq!(bench.failures(), [Error::REJECTED.status().raw()]);
    assert_eq!(ep.put_short(&[1; 8], address, &key), Err(Error::REJECTED));
    other.put_short(&[2; 8], address, &key).unwrap();
    bench.settle();
    assert_eq!((memory[..8].to_vec(), bench.failures()), (vec![2; 8], vec![]));
}

#[test]
fn a_response_without_a_request_fails_the_endpoint_that_it_names() {
    let bench = Bench::new();
    let ep = bench.ep();
    bench.inject(Kind::Answer, ep.sender.token, &[2; 40]);
    bench.settle();
    assert_eq!(bench.failures(), [Error::IO_ERROR.status().raw()]);
    bench.inject(Kind::Answer, ep.sender.token, &[2; 40]);
    bench.settle();
    assert_eq!(bench.failures(), [], "once");
}

#[test]
fn made_up_tokens_of_one_interface_push_out_no_response_to_another() {
    const HONEST: u64 = 1;
    let bench = Bench::new();
    let (ep, mut memory) = (bench.ep(), vec![0u8; 8]);
    let (key, address) = bench.key(&mut memory);
    let request = ep.sender.initiator.put(&key, address, 1).unwrap();
    let mut head = [0; MAX_REQUEST];
    let length = request.write(&mut head);
    let ask =
        |from: &[u8], token| bench.inject(Kind::Request, token, &[from, &head[..length], &[9]].concat());
    // Responses wait for room, the honest one longest.
    bench.wire.room.set(0);
    ask(&THERE, HONEST);
    for token in 2..=1000 {
        ask(&HERE, token);
        bench.settle();
    }
    assert_eq!(bench.iface.peers.len(), 256);
    bench.wire.room.set(usize::MAX);
    bench.iface.peers.answer();
    let answers = bench.wire.frames.take();
    let is_honest = |frame: &Vec<u8>| {
        Head::read(frame).is_some_and(|(head, _)| head == Head { kind: Kind::Answer, token: HONEST })
    };
    assert!(answers.iter().any(|(_, frame)| is_honest(frame)), "{} other responses", answers.len());
}

#[test]
fn interfaces_that_are_made_up_without_a_key_push_out_no_response_to_a_peer_with_one() {
    const HONEST: [u64; 2] = [1, 2];
    let bench = Bench::new();
    let (ep, mut memory) = (bench.ep(), vec![0u8; 8]);
    let (key, address) = bench.key(&mut memory);
    let mut request = ep.sender.initiator.put(&key, address, 1).unwrap();
    let mut framed = || {
        let mut head = [0; MAX_REQUEST];
        let length = request.write(&mut head);
        request.secret ^= 1;
        [&head[..length], &[9]].concat()
    };
    let (right, wrong) = (framed(), framed());
    bench.wire.room.set(0);
    for token in HONEST {
        bench.inject(Kind::Request, token, &[&THERE[..], &right].concat());
    }
    for token in 3..=1000_u32 {
        let from = [MADE_UP, &token.to_le_bytes()].concat();
        bench.inject(Kind::Request, token.into(), &[&from[..], &wrong].concat());
        bench.settle();
    }
    assert_eq!(bench.iface.peers.len(), 256);
    bench.wire.room.set(usize::MAX);
    bench.iface.peers.answer();
    let answers = bench.wire.frames.take();
    for token in HONEST {
        let expected = Some(Head { kind: Kind::Answer, token });
        let is_its = |frame: &[u8]| Head::read(frame).map(|(head, _)| head) == expected;
        assert!(answers.iter().any(|(_, frame)| is_its(frame)), "no response for {token}");
    }
}

#[test]
fn peers_that_are_remembered_are_limited() {
    let bench = Bench::new();
    let (ep, mut memory) = (bench.ep(), vec![0u8; 8]);
    let (key, address) = bench.key(&mut memory);
    let request = ep.sender.initiator.put(&key, address, 1).unwrap();
    let mut head = [0; MAX_REQUEST];
    let length = request.write(&mut head);
    for token in 1..=1000 {
        bench.inject(Kind::Request, token, &[&HERE[..], &head[..length], &[9]].concat());
        bench.settle();
        assert!(bench.iface.peers.len() <= 257, "{} peers", bench.iface.peers.len());
    }
    bench.iface.advance();
    assert_eq!((bench.iface.peers.len(), memory[0], bench.failures()), (256, 9, vec![]));
}
