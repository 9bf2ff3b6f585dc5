//! Endpoints that leave put, get and atomics to their peer or to the calling thread: the limits, and what becomes of the data.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::rc::Rc;
use std::slice;

use ucs::Result;
use uct_abi::UctIov;

use super::*;
use crate::attr::{IfaceAttr, MdAttr, Scope, blank, blank_md};
use crate::failure::Failure;
use crate::iov::Iov;
use crate::memory::MessagePool;
use crate::pack::{Pack, Unpack};
use crate::traits::{Endpoint, EpParams, Iface, Md, PeerAddress};

struct Domain;

impl Md for Domain {
    type Memh = ();
    type Rkey = RemoteKey;

    fn attributes(&self) -> MdAttr {
        blank_md()
    }
}

/// An interface of endpoints that the tests make themselves.
struct Interface<E>(PhantomData<E>);

impl<E: Endpoint<Iface = Interface<E>>> Iface for Interface<E> {
    type Md = Domain;
    type Ep = E;

    fn attributes(&self) -> IfaceAttr {
        blank()
    }

    fn device_address(&self, _buffer: &mut [u8]) -> Result {
        Err(Error::UNSUPPORTED)
    }

    fn address(&self, _buffer: &mut [u8]) -> Result {
        Err(Error::UNSUPPORTED)
    }

    fn is_reachable(&self, _peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        Err("it has no address".to_owned())
    }

    fn progress(&self) -> u32 {
        0
    }

    fn create_ep(self: &Rc<Self>, _params: EpParams<'_>) -> Result<Rc<E>, Failure> {
        Err(Failure::unsupported("creating an endpoint"))
    }
}

/// What the application packs: the bytes that the argument names.
unsafe extern "C" fn pack(destination: *mut c_void, argument: *mut c_void) -> usize {
    // SAFETY: the test's own slice.
    let data = unsafe { *argument.cast::<&[u8]>() };
    // SAFETY: no test packs more than the destination holds.
    unsafe { destination.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
    data.len()
}

fn packed(data: &mut &[u8]) -> Pack {
    Pack::new(pack, ptr(data))
}

/// What the application unpacks, at the end of the vector that the argument is.
unsafe extern "C" fn unpack(argument: *mut c_void, data: *const c_void, length: usize) {
    // SAFETY: the test's own vector.
    let all = unsafe { &mut *argument.cast::<Vec<u8>>() };
    // SAFETY: the data of a get are readable.
    all.extend_from_slice(unsafe { slice::from_raw_parts(data.cast(), length) });
}

fn unpacked(all: &mut Vec<u8>) -> Unpack {
    Unpack::new(unpack, ptr(all))
}

fn ptr<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// A vector with an entry for each block of so many bytes.
fn entries(data: &mut [u8], block: usize) -> Vec<UctIov> {
    let entry = |part: &mut [u8]| UctIov {
        buffer: part.as_mut_ptr().cast(),
        length: part.len(),
        memh: std::ptr::null_mut(),
        stride: 0,
        count: 1,
    };
    data.chunks_mut(block).map(entry).collect()
}

fn vector(entries: &[UctIov]) -> Iov<'_> {
    // SAFETY: the tests keep entries and memory until the operation has ended.
    unsafe { Iov::new(entries.as_ptr(), entries.len()) }
}

fn pattern(length: usize) -> Vec<u8> {
    (1..=length).map(|index| index as u8).collect()
}

/// An endpoint to a peer at the other end of a wire that [`Far::carry`] empties.
struct Far {
    pair: Pair,
    wire: RefCell<VecDeque<Vec<u8>>>,
    /// Whether requests may be sent, and puts at all.
    may: Cell<Result>,
    may_put: Cell<Result>,
    /// The peer is this process.
    is_own: Cell<bool>,
    /// The peer answers while this side waits.
    answers: Cell<bool>,
}

const OWNER: u32 = 7;
const MOST: RemoteLimits = RemoteLimits { put: 40, get: 24, vector: 32, max_iov: 3 };

impl Far {
    fn new() -> Far {
        Far {
            pair: Pair::new(),
            wire: RefCell::default(),
            may: Cell::new(Ok(())),
            may_put: Cell::new(Ok(())),
            is_own: Cell::new(false),
            answers: Cell::new(true),
        }
    }

    /// Carries everything to the peer and the answers back, until nothing moves.
    fn carry(&self) {
        let Pair { initiator, target, regions, accessor, .. } = &self.pair;
        loop {
            self.pump();
            let Some(request) = self.wire.borrow_mut().pop_front() else { break };
            let answer = target.serve(regions, accessor, &request).unwrap().map(|answer| answer.to_vec());
            let acknowledgement = target.acknowledge().map(|header| header.to_vec());
            for answer in answer.into_iter().chain(acknowledgement) {
                initiator.answer(&answer).unwrap();
            }
        }
    }

    fn sent(&self) -> usize {
        self.wire.borrow().len()
    }
}

impl Requests for Far {
    fn initiator(&self) -> Result<&Initiator> {
        Ok(&self.pair.initiator)
    }

    fn owner(&self) -> u32 {
        OWNER
    }

    fn remote_limits(&self) -> RemoteLimits {
        MOST
    }

    fn may_request(&self) -> Result {
        self.may.get()
    }

    fn is_quiet(&self) -> bool {
        self.sent() == 0
    }

    fn send_request(&self, request: &Request, data: impl Payload) -> Result {
        self.may.get()?;
        let mut frame = frame(request, &vec![0; data.length()]);
        // SAFETY: the frame has as many bytes behind the request.
        unsafe { data.write(frame[request.frame_bytes()..].as_mut_ptr()) };
        self.wire.borrow_mut().push_back(frame);
        Ok(())
    }

    fn send_packed_request(&self, pack: Pack, head: impl FnOnce(usize) -> Result<Request>) -> Result<usize> {
        let mut data = [0; 64];
        // SAFETY: the tests pack no more.
        let length = unsafe { pack.write(data.as_mut_ptr(), data.len()) }?;
        self.send_request(&head(length)?, &data[..length])?;
        Ok(length)
    }

    fn pump(&self) {
        self.pair.initiator.pump(|request| self.send_request(request, &[][..]));
    }

    fn wait_until(&self, done: impl Fn() -> bool) -> Result {
        if self.answers.get() {
            self.carry();
        }
        if done() { Ok(()) } else { Err(Error::TIMED_OUT) }
    }

    fn of_own_process(
        &self,
        identity: u64,
        read: impl FnOnce(&Regions, &Accessor) -> Result,
    ) -> Option<Result> {
        let Pair { regions, accessor, .. } = &self.pair;
        (self.is_own.get() && identity == regions.identity()).then(|| read(regions, accessor))
    }

    fn may_put(&self) -> Result {
        self.may_put.get()
    }
}

impl Endpoint for Far {
    type Iface = Interface<Far>;
    type Remote = ByRequests;
}

/// An endpoint to memory of this process.
struct Near {
    pair: Pair,
    region: Option<Arc<Region>>,
    buffers: Option<MessagePool>,
}

impl Near {
    fn to(memory: &mut [u64]) -> (Near, RemoteKey, u64) {
        let pair = Pair::new();
        let (region, key, address) = pair.register(memory, MemoryAccess::all());
        let buffers = MessagePool::new("test", 0, 24, 2).unwrap();
        (Near { pair, region: Some(region), buffers: Some(buffers) }, key, address)
    }
}

impl Endpoint for Near {
    type Iface = Interface<Near>;
    type Remote = ByRegion;

    fn region<'a>(&'a self, _key: &'a RemoteKey) -> Option<(&'a Region, &'a Accessor)> {
        Some((self.region.as_deref()?, &self.pair.accessor))
    }

    fn buffers(&self) -> Option<&MessagePool> {
        self.buffers.as_ref()
    }
}

/// Moves all of the data to an address or from there.
type Move<E> = fn(&E, &RemoteKey, u64, &mut [u8]) -> Result;

fn puts<E: Endpoint<Iface = Interface<E>>>() -> [(&'static str, Move<E>); 3] {
    [
        ("put_short", |ep, key, address, data| ep.put_short(data, address, key)),
        ("put_bcopy", |ep, key, address, data| {
            let length = data.len();
            assert_eq!(ep.put_bcopy(packed(&mut &*data), address, key)?, length);
            Ok(())
        }),
        ("put_zcopy", |ep, key, address, data| {
            ep.put_zcopy(vector(&entries(data, 16)), address, key, None).map(drop)
        }),
    ]
}

#[test]
fn puts_by_requests_bring_all_of_the_data() {
    for (name, put) in puts::<Far>() {
        for length in [1, 8, 39, 40] {
            let (ep, mut memory) = (Far::new(), [0; 8]);
            let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
            let mut data = pattern(length);
            put(&ep, &key, address + 3, &mut data).unwrap();
            assert!(!ep.pair.initiator.is_idle(), "{name} was posted");
            ep.carry();
            assert!(ep.pair.initiator.is_idle());
            let bytes = memory.map(u64::to_ne_bytes).concat();
            assert_eq!(bytes[3..], [data, vec![0; 61 - length]].concat(), "{name} of {length} bytes");
        }
    }
}

#[test]
fn the_longest_put_and_get_by_requests_are_those_of_the_endpoint() {
    let gets: [(&str, Move<Far>, usize); 3] = [
        ("get_short", |ep, key, address, data| ep.get_short(data, address, key), MOST.get),
        (
            "get_bcopy",
            |ep, key, address, data| {
                let mut all = Vec::new();
                let outcome = ep.get_bcopy(unpacked(&mut all), data.len(), address, key, None)?;
                assert_eq!(outcome, Outcome::InProgress);
                ep.carry();
                data.copy_from_slice(&all);
                Ok(())
            },
            MOST.get,
        ),
        (
            "get_zcopy",
            |ep, key, address, data| {
                let entries = entries(data, 20);
                let outcome = ep.get_zcopy(vector(&entries), address, key, None)?;
                assert_eq!(outcome, Outcome::InProgress);
                ep.carry();
                Ok(())
            },
            MOST.vector,
        ),
    ];
    let puts = puts::<Far>().map(|(name, put)| (name, put, MOST.put));
    let limited = puts.into_iter().filter(|(name, ..)| *name != "put_bcopy").chain(gets);
    for (name, operation, most) in limited {
        let (ep, mut memory) = (Far::new(), [0x0807_0605_0403_0201; 8]);
        let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
        for length in [most - 1, most] {
            let mut data = vec![0xEE; length];
            assert_eq!(operation(&ep, &key, address, &mut data), Ok(()), "{name} of {length} bytes");
            let expected = if name.starts_with("get") { 1 } else { 0xEE };
            assert_eq!((data[0], data.len()), (expected, length), "{name}");
            ep.carry();
        }
        let refused = operation(&ep, &key, address, &mut vec![0; most + 1]);
        assert_eq!((refused, ep.sent()), (Err(Error::INVALID_PARAM), 0), "{name}");
        assert!(ep.pair.initiator.is_idle());
    }
}

#[test]
fn the_longest_vector_by_requests_is_that_of_the_endpoint() {
    let (ep, mut memory) = (Far::new(), [0; 8]);
    let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
    for count in [MOST.max_iov - 1, MOST.max_iov, MOST.max_iov + 1] {
        let mut data = pattern(count * 4);
        let mut copy = vec![0; count * 4];
        let put = ep.put_zcopy(vector(&entries(&mut data, 4)), address, &key, None);
        ep.carry();
        let blocks = entries(&mut copy, 4);
        let get = ep.get_zcopy(vector(&blocks), address, &key, None);
        ep.carry();
        if count <= MOST.max_iov {
            assert_eq!((put, get), (Ok(Outcome::InProgress), Ok(Outcome::InProgress)), "{count} entries");
            assert_eq!(copy, data);
        } else {
            assert_eq!((put, get), (Err(Error::INVALID_PARAM), Err(Error::INVALID_PARAM)));
        }
    }
}

#[test]
fn where_puts_or_requests_are_not_permitted_nothing_is_sent() {
    let (ep, mut memory) = (Far::new(), [0; 8]);
    let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
    ep.may_put.set(Err(Error::UNSUPPORTED));
    for (name, put) in puts::<Far>() {
        assert_eq!(put(&ep, &key, address, &mut [1; 8]), Err(Error::UNSUPPORTED), "{name}");
    }
    ep.may_put.set(Ok(()));
    ep.may.set(Err(Error::NO_RESOURCE));
    for (name, put) in puts::<Far>() {
        assert_eq!(put(&ep, &key, address, &mut [1; 8]), Err(Error::NO_RESOURCE), "{name}");
    }
    assert_eq!(ep.get_short(&mut [0; 8], address, &key), Err(Error::NO_RESOURCE));
    let mut all = Vec::new();
    let get = ep.get_bcopy(unpacked(&mut all), 8, address, &key, None);
    assert_eq!(get, Err(Error::NO_RESOURCE));
    let get = ep.get_zcopy(vector(&entries(&mut [0; 8], 8)), address, &key, None);
    assert_eq!(get, Err(Error::NO_RESOURCE));
    let atomic = Atomic { width: Width::Bits64, change: Change::Op(AtomicOp::Add, 1) };
    assert_eq!(ep.atomic_post(atomic, address, &key), Err(Error::NO_RESOURCE));
    assert!(ep.sent() == 0 && ep.pair.initiator.is_idle());
    assert_eq!(memory, [0; 8]);
}

#[test]
fn a_get_that_waits_reads_memory_of_its_own_process_behind_what_was_asked_for() {
    let (ep, mut memory) = (Far::new(), [0x0807_0605_0403_0201, 9]);
    let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
    ep.is_own.set(true);
    ep.answers.set(false);
    let mut here = [0; 3];
    assert_eq!(ep.get_short(&mut here, address + 1, &key), Ok(()));
    assert_eq!((here, ep.sent()), ([2, 3, 4], 0));
    assert_eq!(ep.get_short(&mut here, address + 14, &key), Err(Error::OUT_OF_RANGE));
    ep.put_short(&[7; 4], address, &key).unwrap();
    assert_eq!(ep.get_short(&mut here, address, &key), Err(Error::NO_RESOURCE), "the put is on its way");
    ep.carry();
    assert_eq!(ep.get_short(&mut here, address, &key), Ok(()));
    assert_eq!(here, [7; 3]);
}

#[test]
fn a_get_that_waits_too_long_is_given_up_and_no_other_one() {
    let (ep, mut memory) = (Far::new(), [5; 2]);
    let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
    let (mut first, waiter) = ([0_u8; 8], Waiter::default());
    // SAFETY: the place outlives the get.
    let place = unsafe { Destination::block(NonNull::from(&mut first).cast(), 8) };
    ep.send_get(place, 8, address, &key, Notify::Waiter(waiter.clone())).unwrap();
    ep.answers.set(false);
    let mut here = [0xEE; 16];
    assert_eq!(ep.get_short(&mut here, address, &key), Err(Error::TIMED_OUT));
    assert_eq!(waiter.result(), None);
    assert_eq!(ep.pair.initiator.admit(), Ok(()), "nothing waits behind it");
    ep.carry();
    assert_eq!((waiter.result(), first), (Some(Ok(())), 5_u64.to_ne_bytes()));
    assert_eq!(here, [0xEE; 16], "a late answer goes nowhere");
    assert!(ep.pair.initiator.is_idle());
}

#[test]
fn a_get_that_waits_returns_the_error_of_the_peer() {
    let (ep, mut memory) = (Far::new(), [5; 2]);
    let (region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
    ep.pair.regions.remove(&region);
    assert_eq!(ep.get_short(&mut [0; 8], address, &key), Err(Error::INVALID_PARAM));
}

/// Adds 5 to 40 without a result, then swaps 1 in; the old value.
fn add_and_swap<E: Endpoint<Iface = Interface<E>>>(
    ep: &E,
    key: &RemoteKey,
    address: u64,
    width: Width,
) -> u64 {
    let atomic = |op, operand| Atomic { width, change: Change::Op(op, operand) };
    ep.atomic_post(atomic(AtomicOp::Add, 5), address, key).unwrap();
    let mut old = 0_u64;
    let place = OldValue::new(width, NonNull::from(&mut old).cast());
    ep.atomic_fetch(atomic(AtomicOp::Swap, 1), place, address, key, None).unwrap();
    old
}

#[test]
fn atomics_change_what_they_name() {
    for width in [Width::Bits32, Width::Bits64] {
        let mut memory = [0; 2];
        memory[1] = 40;
        let (ep, key, address) = Near::to(&mut memory);
        assert_eq!(add_and_swap(&ep, &key, address + 8, width), 45, "{width:?}");
        drop(ep);
        assert_eq!(memory, [0, 1]);

        let (ep, mut memory) = (Far::new(), [40, 3]);
        let (_region, key, address) = ep.pair.register(&mut memory, MemoryAccess::all());
        let mut old = 0_u64;
        let place = OldValue::new(width, NonNull::from(&mut old).cast());
        let atomic = |op, operand| Atomic { width, change: Change::Op(op, operand) };
        ep.atomic_post(atomic(AtomicOp::Add, 5), address, &key).unwrap();
        let swap = ep.atomic_fetch(atomic(AtomicOp::Swap, 1), place, address, &key, None);
        assert_eq!((swap, old), (Ok(Outcome::InProgress), 0));
        ep.carry();
        assert_eq!((old, memory), (45, [1, 3]), "{width:?}");
    }
}

#[test]
fn puts_and_gets_by_region_move_all_of_the_data() {
    for (name, put) in puts::<Near>() {
        for length in [1, 8, 24] {
            let mut memory = [0; 8];
            let (ep, key, address) = Near::to(&mut memory);
            let mut data = pattern(length);
            put(&ep, &key, address + 3, &mut data).unwrap();
            let mut copy = vec![0; length];
            ep.get_short(&mut copy, address + 3, &key).unwrap();
            assert_eq!(copy, data, "{name}");
            let mut all = Vec::new();
            let get = ep.get_bcopy(unpacked(&mut all), length, address + 3, &key, None);
            assert_eq!((get, &all), (Ok(Outcome::Done), &data), "{name}");
            copy.fill(0);
            let get = ep.get_zcopy(vector(&entries(&mut copy, 5)), address + 3, &key, None);
            assert_eq!((get, &copy), (Ok(Outcome::Done), &data), "{name}");
            drop(ep);
            assert_eq!(memory.map(u64::to_ne_bytes).concat()[3..3 + length], data);
        }
    }
}

#[test]
fn a_buffered_get_by_region_is_as_long_as_a_buffer_and_no_longer() {
    let (mut memory, mut all) = ([3; 8], Vec::new());
    let (ep, key, address) = Near::to(&mut memory);
    let most = ep.buffers.as_ref().unwrap().size();
    for (length, expected) in
        [(most - 1, Ok(Outcome::Done)), (most, Ok(Outcome::Done)), (most + 1, Err(Error::INVALID_PARAM))]
    {
        all.clear();
        assert_eq!(ep.get_bcopy(unpacked(&mut all), length, address, &key, None), expected, "{length} bytes");
        assert_eq!(all.len(), if expected.is_ok() { length } else { 0 });
    }
}

#[test]
fn by_region_what_lies_outside_or_is_no_region_of_this_process_is_refused() {
    let mut memory = [3; 2];
    let (mut ep, key, address) = Near::to(&mut memory);
    let gets: [(&str, Move<Near>); 3] = [
        ("get_short", |ep, key, address, data| ep.get_short(data, address, key)),
        ("get_bcopy", |ep, key, address, data| {
            let mut all = Vec::new();
            let outcome = ep.get_bcopy(unpacked(&mut all), data.len(), address, key, None);
            assert_eq!(all, [], "nothing is handed over");
            outcome.map(drop)
        }),
        ("get_zcopy", |ep, key, address, data| {
            ep.get_zcopy(vector(&entries(data, 16)), address, key, None).map(drop)
        }),
    ];
    let atomic = Atomic { width: Width::Bits64, change: Change::Op(AtomicOp::Add, 1) };
    for expected in [Error::OUT_OF_RANGE, Error::UNSUPPORTED] {
        for (name, operation) in puts::<Near>().into_iter().chain(gets) {
            assert_eq!(operation(&ep, &key, address + 9, &mut [1; 8]), Err(expected), "{name}");
        }
        assert_eq!(ep.atomic_post(atomic, address + 16, &key), Err(expected));
        ep.region = None;
    }
    drop(ep);
    assert_eq!(memory, [3; 2]);
}
