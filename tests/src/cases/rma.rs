//! Put and get of every flavour and size reach the memory they name, and nothing beside it.

use uct_host::{Capabilities, Error, Flush, Memory, MemorySlice, Posted};

use super::case;
use crate::access::{Way, perform};
use crate::case::{Case, Needs};
use crate::message::sizes;
use crate::pair::Pair;
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

/// Bytes ahead of and behind what is accessed.
const GUARD: usize = 64;

/// Memory at the receiver with known contents.
fn target(pair: &Pair, seed: u64, length: usize) -> Memory {
    pair.receiver.memory(pattern(seed, length))
}

fn every_size(setup: &Setup, way: Way) {
    let pair = Pair::new(setup);
    if !Way::of(&pair.sender).contains(&way) {
        setup.skip("it waits for the other end, which needs a thread of its own");
    }
    let (least, most) = way.limits(pair.sender.attributes());
    for (index, size) in sizes(least, most).into_iter().enumerate() {
        // An odd place, so that nothing is aligned by chance.
        let start = GUARD + index % 9;
        let before = pattern(setup.seed + index as u64, start + size + GUARD);
        let memory = pair.receiver.memory(before.clone());
        let key = pair.sender.key_to(&memory);
        let data = pattern(!setup.seed + index as u64, size);
        let remote = memory.address() + start as u64;
        let read = perform(way, &pair.sender, &pair.to, &data, remote, &key, || pair.progress())
            .unwrap_or_else(|error| panic!("{way:?} of {size} bytes: {error}"));
        let mut expected = before;
        if way.is_put() {
            expected[start..start + size].copy_from_slice(&data);
        } else {
            check_bytes(&format!("{way:?} of {size} bytes"), &read, &expected[start..start + size]);
        }
        check_bytes(&format!("memory after {way:?} of {size} bytes"), &memory.to_vec(), &expected);
    }
    pair.to.check_alive();
}

macro_rules! every_size {
    ($($name:ident $way:ident)*) => {
        $(fn $name(setup: &Setup) {
            every_size(setup, Way::$way);
        })*
    };
}

every_size! {
    put_short PutShort
    put_bcopy PutBcopy
    put_zcopy PutZcopy
    put_from PutFrom
    get_short GetShort
    get_bcopy GetBcopy
    get_zcopy GetZcopy
}

/// Local memory, and which of its bytes a vector names, in order.
type Place = (Memory, Vec<usize>);

/// A vector of `entries`, the last of them strided where there is room, over fresh local memory.
fn vector(pair: &Pair, seed: u64, entries: usize, fill: bool) -> (Vec<MemorySlice>, Vec<Place>, usize) {
    let mut slices = Vec::new();
    let mut places = Vec::new();
    let mut total = 0;
    for entry in 0..entries {
        let length = 1 + (entry * 37) % 300;
        let (stride, count) = if entry % 3 == 2 { (length + entry, 4) } else { (length, 1) };
        let bytes =
            if fill { pattern(seed + entry as u64, 5 + stride * count) } else { vec![0; 5 + stride * count] };
        let memory = pair.sender.memory(bytes);
        let slice = memory.slice(5..);
        let slice =
            if count > 1 { slice.strided(length, stride, count as u32) } else { memory.slice(5..5 + length) };
        slices.push(slice);
        let at =
            (0..count).flat_map(|block| (0..length).map(move |byte| 5 + block * stride + byte)).collect();
        places.push((memory, at));
        total += length * count;
    }
    (slices, places, total)
}

fn put_vectors(setup: &Setup) {
    let pair = Pair::new(setup);
    let put = pair.sender.attributes().put;
    for entries in 1..=put.max_iov.min(16) {
        let (slices, places, total) = vector(&pair, setup.seed, entries, true);
        if !(put.min_zcopy..=put.max_zcopy).contains(&total) {
            continue;
        }
        let memory = target(&pair, 1, total + 2 * GUARD);
        let key = pair.sender.key_to(&memory);
        let completion = pair.sender.completion();
        let remote = memory.address() + GUARD as u64;
        pair.retry("put_zcopy", || pair.to.put_zcopy(&slices, remote, &key, &completion)).expect("a put");
        pair.until("the put", || completion.is_done());
        completion.result().expect("a put");
        pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
        let mut expected = pattern(1, total + 2 * GUARD);
        let gathered: Vec<u8> = places
            .iter()
            .flat_map(|(memory, at)| {
                let bytes = memory.to_vec();
                at.iter().map(move |&place| bytes[place]).collect::<Vec<_>>()
            })
            .collect();
        expected[GUARD..GUARD + total].copy_from_slice(&gathered);
        check_bytes(&format!("a put of {entries} entries"), &memory.to_vec(), &expected);
    }
}

fn get_vectors(setup: &Setup) {
    let pair = Pair::new(setup);
    let get = pair.sender.attributes().get;
    for entries in 1..=get.max_iov.min(16) {
        let (slices, places, total) = vector(&pair, setup.seed, entries, false);
        if !(get.min_zcopy..=get.max_zcopy).contains(&total) {
            continue;
        }
        let memory = target(&pair, 2, total + 2 * GUARD);
        let key = pair.sender.key_to(&memory);
        let completion = pair.sender.completion();
        let remote = memory.address() + GUARD as u64;
        pair.retry("get_zcopy", || pair.to.get_zcopy(&slices, remote, &key, &completion)).expect("a get");
        pair.until("the get", || completion.is_done());
        completion.result().expect("a get");
        let expected = &pattern(2, total + 2 * GUARD)[GUARD..GUARD + total];
        let mut from = 0;
        for (entry, (memory, at)) in places.iter().enumerate() {
            let mut scattered = vec![0; memory.len()];
            for &place in at {
                scattered[place] = expected[from];
                from += 1;
            }
            let what = format!("entry {entry} of a get of {entries}");
            check_bytes(&what, &memory.to_vec(), &scattered);
        }
    }
}

fn many_at_once(setup: &Setup) {
    const COUNT: usize = 200;
    const SLOT: usize = 512;
    let pair = Pair::new(setup);
    let ways = Way::of(&pair.sender);
    let memory = target(&pair, setup.seed, COUNT * SLOT);
    let key = pair.sender.key_to(&memory);
    let mut expected = pattern(setup.seed, COUNT * SLOT);
    let mut random = setup.random();
    let mut started = Vec::new();
    for index in 0..COUNT {
        let way = *random.pick(&ways);
        let (least, most) = way.limits(pair.sender.attributes());
        let size = least.max(1 + random.below(SLOT.min(most)));
        let range = index * SLOT..index * SLOT + size;
        let data = pattern(index as u64, size);
        let remote = memory.address() + range.start as u64;
        let operation = pair.retry("a start", || way.start(&pair.sender, &pair.to, &data, remote, &key));
        let operation = operation.unwrap_or_else(|error| panic!("{way:?} of {size} bytes: {error}"));
        if way.is_put() {
            expected[range.clone()].copy_from_slice(&data);
        }
        started.push((way, range, operation));
    }
    pair.until("all operations", || started.iter().all(|(_, _, operation)| operation.completion.is_done()));
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    for (way, range, operation) in started {
        operation.completion.result().unwrap_or_else(|error| panic!("{way:?}: {error}"));
        if !way.is_put() {
            check_bytes(&format!("{way:?}"), &operation.read(), &expected[range]);
        }
    }
    check_bytes("memory after puts and gets", &memory.to_vec(), &expected);
}

fn both_directions(setup: &Setup) {
    let pair = Pair::new(setup);
    let size = 3000;
    let (there, here) = (target(&pair, 1, size), pair.sender.memory(pattern(2, size)));
    let (to_there, to_here) = (pair.sender.key_to(&there), pair.receiver.key_to(&here));
    for round in 0..50 {
        for way in Way::of(&pair.sender) {
            let (least, most) = way.limits(pair.sender.attributes());
            let length = least.max(100).min(most);
            let (first, second) = (pattern(round, length), pattern(!round, length));
            let progress = || pair.progress();
            let far = perform(way, &pair.sender, &pair.to, &first, there.address(), &to_there, progress);
            let near = perform(way, &pair.receiver, &pair.back, &second, here.address(), &to_here, progress);
            let (far, near) = (far.expect("an access"), near.expect("an access"));
            if way.is_put() {
                check_bytes("what was put there", &there.to_vec()[..length], &first);
                check_bytes("what was put here", &here.to_vec()[..length], &second);
            } else {
                check_bytes("what was read there", &far, &there.to_vec()[..length]);
                check_bytes("what was read here", &near, &here.to_vec()[..length]);
            }
        }
    }
}

fn allocated(setup: &Setup) {
    let pair = Pair::new(setup);
    let memory = pair.receiver.allocate(10_000);
    let key = pair.sender.key_to(&memory);
    for way in Way::of(&pair.sender) {
        let (least, most) = way.limits(pair.sender.attributes());
        let data = pattern(setup.seed, least.max(777).min(most));
        memory.write(9000, &[0; 1000]);
        let remote = memory.address() + 9000;
        let read = perform(way, &pair.sender, &pair.to, &data, remote, &key, || pair.progress());
        let read = read.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        let mut bytes = vec![0; data.len()];
        memory.read(9000, &mut bytes);
        check_bytes("allocated memory", if way.is_put() { &data } else { &read }, &bytes);
    }
}

fn beyond_the_limits(setup: &Setup) {
    // A limit that is a matter of configuration is set low enough to be exceeded.
    setup.configure("max_message", "1m");
    let pair = Pair::new(setup);
    let attributes = *pair.sender.attributes();
    for way in Way::of(&pair.sender) {
        let (_, most) = way.limits(&attributes);
        // Packing too much is a panic of the caller's; the other ways are refused.
        if most >= 64 << 20 || way == Way::PutBcopy {
            continue;
        }
        let before = pattern(setup.seed, most + 1);
        let memory = pair.receiver.memory(before.clone());
        let key = pair.sender.key_to(&memory);
        let data = vec![0x55; most + 1];
        let answer = pair
            .retry("a start", || way.start(&pair.sender, &pair.to, &data, memory.address(), &key))
            .map(drop);
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{way:?} of a byte more than its limit");
        pair.settle();
        check_bytes("memory after what was refused", &memory.to_vec(), &before);
    }
    let memory = target(&pair, 3, 1000);
    let key = pair.sender.key_to(&memory);
    let local = pair.sender.memory(vec![0; 1000]);
    let entries =
        |count: usize| -> Vec<MemorySlice> { (0..count).map(|at| local.slice(at..at + 1)).collect() };
    let completion = pair.sender.completion();
    let refused = |what: &str, answer: uct_host::Result<Posted>| {
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{what} of an entry more than max_iov");
    };
    if pair.sender.iface.capabilities().contains(Capabilities::PUT_ZCOPY) {
        let slices = entries(attributes.put.max_iov + 1);
        refused(
            "put_zcopy",
            pair.retry("a put", || pair.to.put_zcopy(&slices, memory.address(), &key, &completion)),
        );
    }
    if pair.sender.iface.capabilities().contains(Capabilities::GET_ZCOPY) {
        let slices = entries(attributes.get.max_iov + 1);
        refused(
            "get_zcopy",
            pair.retry("a get", || pair.to.get_zcopy(&slices, memory.address(), &key, &completion)),
        );
    }
    pair.settle();
    check_bytes("memory after what was refused", &memory.to_vec(), &pattern(3, 1000));
    pair.to.check_alive();
}

fn held(setup: &Setup) {
    let pair = Pair::new(setup);
    let get = pair.sender.attributes().get;
    let size = (1 << 20).min(get.max_zcopy).max(get.min_zcopy);
    let memory = target(&pair, setup.seed, size);
    let key = pair.sender.key_to(&memory);
    for _ in 0..10 {
        let local = pair.sender.memory(vec![0; size]);
        let completion = pair.sender.completion();
        let start = || pair.to.get_zcopy(&[local.slice(..)], memory.address(), &key, &completion);
        let posted = pair.retry("get_zcopy", start).expect("a get");
        let local = match (posted, local.into_bytes()) {
            (Posted::Done, Ok(bytes)) => {
                check_bytes("what was read", &bytes, &memory.to_vec());
                continue;
            }
            (Posted::Done, Err(_)) => panic!("memory of an operation that is done is not given back"),
            (Posted::InProgress, Ok(_)) => panic!("memory of an outstanding operation was given back"),
            (Posted::InProgress, Err(local)) => local,
        };
        pair.until("the get", || completion.is_done());
        completion.result().expect("a get");
        let bytes = local.into_bytes().expect("the operation has ended");
        check_bytes("what was read", &bytes, &memory.to_vec());
    }
}

const PUT: Capabilities =
    Capabilities::PUT_SHORT.union(Capabilities::PUT_BCOPY).union(Capabilities::PUT_ZCOPY);
const GET: Capabilities =
    Capabilities::GET_SHORT.union(Capabilities::GET_BCOPY).union(Capabilities::GET_ZCOPY);
const ANY: Needs = Needs::any(PUT.union(GET));

pub(super) const CASES: &[Case] = &[
    case("put_short of every size lands where it should", Needs::all(Capabilities::PUT_SHORT), put_short),
    case("put_bcopy of every size lands where it should", Needs::all(Capabilities::PUT_BCOPY), put_bcopy),
    case("put_zcopy of every size lands where it should", Needs::all(Capabilities::PUT_ZCOPY), put_zcopy),
    case("put_from of every size lands where it should", Needs::all(Capabilities::PUT_SHORT), put_from),
    case("get_short of every size reads what is there", Needs::all(Capabilities::GET_SHORT), get_short),
    case("get_bcopy of every size reads what is there", Needs::all(Capabilities::GET_BCOPY), get_bcopy),
    case("get_zcopy of every size reads what is there", Needs::all(Capabilities::GET_ZCOPY), get_zcopy),
    case("put_zcopy gathers vectors and strided blocks", Needs::all(Capabilities::PUT_ZCOPY), put_vectors),
    case(
        "get_zcopy scatters to vectors and strided blocks",
        Needs::all(Capabilities::GET_ZCOPY),
        get_vectors,
    ),
    case("many puts and gets at once do not mix", ANY, many_at_once),
    case("both ends put and get at once", ANY, both_directions),
    case("put and get reach allocated memory", ANY, allocated),
    case("put and get beyond their limits are refused", ANY, beyond_the_limits),
    case(
        "memory of get_zcopy is not given back ahead of the completion",
        Needs::all(Capabilities::GET_ZCOPY),
        held,
    ),
];
