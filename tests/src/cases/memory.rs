//! Memory domains: registering, allocating, keys, advice, and all that is refused.

use std::cmp::Ordering;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use uct_host::{
    Access, Error, IfaceOptions, MdFlags, Memory, MemoryKind, MultiDomainMemory, PackedKeys, RemoteKey,
    Resource,
};

use super::case;
use crate::access::{Way, is_refusal, perform};
use crate::case::{Case, Needs};
use crate::pair::{Pair, Side, connect};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

/// Whether the domain registers memory at all.
fn registers(setup: &Setup, side: &Side) {
    if let Err(refused) = side.iface.memory_domain().register(vec![0; 8], Access::ALL) {
        assert_eq!(refused.status, Error::UNSUPPORTED, "{refused}");
        setup.skip("its memory domain registers nothing");
    }
}

fn given_back(setup: &Setup) {
    let side = setup.open(Default::default());
    registers(setup, &side);
    for size in [1, 2, 4095, 4096, 4097, 1 << 20] {
        let bytes = pattern(setup.seed, size);
        let memory = side.memory(bytes.clone());
        assert_eq!((memory.len(), memory.is_shared()), (size, false));
        check_bytes("registered memory", &memory.to_vec(), &bytes);
        let slice = memory.slice(..1);
        let memory = memory.into_bytes().expect_err("a slice holds it");
        drop(slice);
        let clone = memory.clone();
        let memory = memory.into_bytes().expect_err("a clone holds it");
        drop(clone);
        check_bytes("memory that was given back", &memory.into_bytes().expect("nobody holds it"), &bytes);
    }
}

fn allocated(setup: &Setup) {
    let side = setup.open(Default::default());
    let domain = side.iface.memory_domain();
    if let Err(refused) = domain.allocate(1, Access::ALL, MemoryKind::Host) {
        assert_eq!(refused.status, Error::UNSUPPORTED, "{refused}");
        setup.skip("its memory domain allocates nothing");
    }
    let mut all = Vec::new();
    for size in [1, 4095, 4096, 4097, 1 << 20, 5 << 20] {
        let memory = side.allocate(size);
        assert!(memory.len() >= size);
        assert!(memory.to_vec().iter().all(|&byte| byte == 0), "allocated memory is not zeroed");
        memory.write(0, &pattern(size as u64, size));
        assert!(memory.clone().into_bytes().is_err(), "allocated memory is no vector's");
        all.push((size, memory));
    }
    for (size, memory) in &all {
        check_bytes("allocated memory", &memory.to_vec()[..*size], &pattern(*size as u64, *size));
    }
    let refused = domain.allocate(1 << 60, Access::ALL, MemoryKind::Host).expect_err("an exabyte");
    assert!(!refused.to_string().is_empty() && refused.reason.len() > 5, "no reason: {refused:?}");
    let refused = domain.allocate(usize::MAX, Access::ALL, MemoryKind::Host).expect_err("all there is");
    assert!(refused.reason.len() > 5, "no reason: {refused:?}");
}

fn other_kinds(setup: &Setup) {
    let side = setup.open(Default::default());
    let domain = side.iface.memory_domain();
    for kind in [MemoryKind::Cuda, MemoryKind::CudaManaged, MemoryKind::Rocm, MemoryKind::RocmManaged] {
        let refused = domain.allocate(64, Access::ALL, kind).expect_err("memory of another kind");
        assert_eq!(refused.status, Error::UNSUPPORTED);
        assert!(refused.reason.contains("only host memory"), "{refused}");
    }
}

fn bad_arguments(setup: &Setup) {
    let side = setup.open(Default::default());
    registers(setup, &side);
    let domain = side.iface.memory_domain();
    let byte = Box::new(0_u8);
    let start = NonNull::from(&*byte);
    for length in [usize::MAX, usize::MAX - 4096, isize::MAX as usize] {
        // SAFETY: a registration accesses nothing by itself, and no operation is given this memory; that the transport
        // refuses is what is tested.
        let answer = unsafe { domain.register_raw(start, length, Access::ALL, MemoryKind::Host) };
        if let Err(refused) = answer {
            assert!(refused.reason.len() > 5, "no reason: {refused:?}");
        } else {
            assert!(
                length <= isize::MAX as usize,
                "{length} bytes around the end of the address space are taken"
            );
        }
    }
    // Nothing at all: taken or refused, but without harm.
    drop(domain.register(Vec::new(), Access::ALL));
}

fn keys(setup: &Setup) {
    let pair = Pair::new(setup);
    registers(setup, &pair.receiver);
    let memories: Vec<Memory> = (0..3).map(|seed| pair.receiver.memory(pattern(seed, 100))).collect();
    if memories[0].packed_key() == Err(Error::UNSUPPORTED) {
        setup.skip("its memory domain has no keys");
    }
    let keys: Vec<RemoteKey> = memories.iter().map(|memory| pair.sender.key_to(memory)).collect();
    for (left_index, left) in keys.iter().enumerate() {
        for (right_index, right) in keys.iter().enumerate() {
            let Ok(order) = left.compare(right) else {
                assert_eq!(left.compare(right), Err(Error::UNSUPPORTED));
                continue;
            };
            assert_eq!(order == Ordering::Equal, left_index == right_index);
            assert_eq!(right.compare(left), Ok(order.reverse()));
        }
    }
    let again = pair.sender.key_to(&memories[0]);
    assert!(matches!(again.compare(&keys[0]), Ok(Ordering::Equal) | Err(Error::UNSUPPORTED)));
}

fn aliases(setup: &Setup) {
    let pair = Pair::new(setup);
    registers(setup, &pair.receiver);
    let bytes = pattern(setup.seed, 200);
    // Some reach only memory that the domain allocated.
    let memory = match pair.receiver.iface.memory_domain().allocate(200, Access::ALL, MemoryKind::Host) {
        Ok(memory) => memory,
        Err(_) => pair.receiver.memory(vec![0; 200]),
    };
    memory.write(0, &bytes);
    if memory.packed_key().is_err() {
        setup.skip("its memory domain has no keys");
    }
    let key = pair.sender.key_to(&memory);
    let local = match key.local_ptr(memory.address() + 50) {
        Ok(local) => local,
        Err(error) => {
            assert_eq!(error, Error::UNSUPPORTED);
            setup.skip("remote memory is not directly reachable");
        }
    };
    // SAFETY: the key promises memory of 150 bytes from there on, while `memory` and `key` live.
    assert_eq!(unsafe { local.as_ptr().read() }, bytes[50]);
    // SAFETY: as above.
    unsafe { local.as_ptr().write(!bytes[50]) };
    assert_eq!(memory.to_vec()[50], !bytes[50], "the alias is a copy");
    let outside = memory.address() + memory.len() as u64 + 1;
    assert!(key.local_ptr(outside).is_err(), "an address outside is reachable");
    assert!(key.local_ptr(memory.address() - 1).is_err(), "an address outside is reachable");
}

fn advice(setup: &Setup) {
    let side = setup.open(Default::default());
    registers(setup, &side);
    let flags = MdFlags::from_bits_retain(side.iface.memory_domain().attributes().flags);
    let advises = flags.contains(MdFlags::ADVISE);
    let memory = side.memory(pattern(setup.seed, 20_000));
    for (offset, length) in [(0, 20_000), (0, 0), (5000, 100), (19_999, 1)] {
        for will_need in [true, false] {
            let answer = memory.advise(offset, length, will_need);
            let expected = if advises { Ok(()) } else { Err(Error::UNSUPPORTED) };
            assert_eq!(answer, expected, "{offset} + {length}");
        }
    }
    for (offset, length) in [(0, 20_001), (20_000, 1), (usize::MAX, 2), (1, usize::MAX)] {
        assert_eq!(memory.advise(offset, length, true), Err(Error::OUT_OF_RANGE), "{offset} + {length}");
    }
    check_bytes("memory after advice", &memory.to_vec(), &pattern(setup.seed, 20_000));
}

fn many(setup: &Setup) {
    let side = setup.open(Default::default());
    registers(setup, &side);
    let mut random = setup.random();
    let mut live: Vec<(u64, Memory)> = Vec::new();
    for seed in 0..1500 {
        if live.len() > 200 || (!live.is_empty() && random.below(3) == 0) {
            let (seed, memory) = live.swap_remove(random.below(live.len()));
            let bytes = memory.into_bytes().expect("nobody holds it");
            check_bytes("memory", &bytes, &pattern(seed, bytes.len()));
        } else {
            live.push((seed, side.memory(pattern(seed, 1 + random.below(5000)))));
        }
    }
}

fn twice(setup: &Setup) {
    let pair = Pair::new(setup);
    registers(setup, &pair.receiver);
    let whole = pair.receiver.memory(pattern(setup.seed, 4096));
    let Some(way) = Way::of(&pair.sender).into_iter().next() else {
        setup.skip("it has neither put nor get");
    };
    let start = NonNull::new(whole.as_ptr()).expect("memory");
    let domain = pair.receiver.iface.memory_domain();
    // SAFETY: `whole` owns the bytes, outlives the second registration, and hands out no references.
    let second =
        unsafe { domain.register_raw(start, 4096, Access::ALL, MemoryKind::Host) }.expect("a registration");
    let (first_key, second_key) = (pair.sender.key_to(&whole), pair.sender.key_to(&second));
    let (least, most) = way.limits(pair.sender.attributes());
    let data = vec![1; least.max(16).min(most)];
    let access = |key: &RemoteKey| {
        perform(way, &pair.sender, &pair.to, &data, whole.address(), key, || pair.progress())
    };
    access(&first_key).expect("the first registration");
    access(&second_key).expect("the second registration");
    drop(second);
    access(&first_key).expect("the first registration outlives the second");
}

/// Memory that the test has mapped.
struct Mapped {
    start: NonNull<u8>,
    length: usize,
}

impl Mapped {
    fn new(bytes: &[u8]) -> Mapped {
        let (length, access) = (bytes.len(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping where there was none.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE) };
        let start = NonNull::new(start.expect("memory").cast::<u8>()).expect("a mapping");
        // SAFETY: the mapping has as many bytes, and nothing refers to them.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), length) };
        Mapped { start, length }
    }

    fn protect(&self, access: MprotectFlags) {
        // SAFETY: the mapping is this value's, and nothing refers to its bytes.
        unsafe { mprotect(self.start.as_ptr().cast(), self.length, access) }.expect("another protection");
    }

    fn register(&self, side: &Side, access: Access) -> Result<Memory, uct_host::Refused> {
        let domain = side.iface.memory_domain();
        // SAFETY: the cases drop the registration ahead of this value, and change the protection only while there is none.
        unsafe { domain.register_raw(self.start, self.length, access, MemoryKind::Host) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn mappings(setup: &Setup) {
    let pair = Pair::with(setup, IfaceOptions::default());
    registers(setup, &pair.receiver);
    let bytes = pattern(setup.seed, 8 << 10);
    let mapped = Mapped::new(&bytes);
    let write = [Access::REMOTE_PUT, Access::REMOTE_ATOMIC, Access::ALL];
    let is_refused = |access, words: &str| {
        let refused = mapped.register(&pair.receiver, access).map(drop).expect_err(words);
        assert_eq!(refused.status, Error::INVALID_PARAM, "{refused}");
        assert!(refused.reason.contains(words), "{refused}");
    };
    for access in write {
        let memory = mapped.register(&pair.receiver, access).unwrap_or_else(|refused| panic!("{refused}"));
        assert!(memory.is_writable());
    }
    mapped.protect(MprotectFlags::READ);
    write.into_iter().for_each(|access| is_refused(access, "may only be read"));
    let domain = pair.receiver.iface.memory_domain();
    // SAFETY: as in `Mapped::register`; the mapping may be read.
    let readable = unsafe { domain.register_readable(mapped.start, mapped.length) };
    for memory in [mapped.register(&pair.receiver, Access::REMOTE_GET), readable] {
        let memory = memory.unwrap_or_else(|refused| panic!("{refused}"));
        assert_eq!((memory.is_writable(), memory.access()), (false, Access::REMOTE_GET));
        check_bytes("read-only memory", &memory.to_vec(), &bytes);
        if memory.packed_key() != Err(Error::UNSUPPORTED) {
            let key = pair.sender.key_to(&memory);
            for way in Way::of(&pair.sender).into_iter().filter(|way| !way.is_put()) {
                let (least, most) = way.limits(pair.sender.attributes());
                let wanted = &bytes[..least.max(100).min(most)];
                let read =
                    perform(way, &pair.sender, &pair.to, wanted, memory.address(), &key, || pair.progress());
                check_bytes("read-only memory of a peer", &read.expect("a get"), wanted);
            }
        }
    }
    // As a place for data of a peer it is refused, where it would be written to.
    if Way::of(&pair.sender).contains(&Way::GetZcopy) {
        let own =
            mapped.register(&pair.sender, Access::empty()).unwrap_or_else(|refused| panic!("{refused}"));
        let target = pair.receiver.memory(bytes.clone());
        if target.packed_key().is_ok() {
            let key = pair.sender.key_to(&target);
            let length = pair.sender.attributes().get.min_zcopy.max(64);
            let completion = pair.sender.completion();
            let answer = pair.to.get_zcopy(&[own.slice(..length)], target.address(), &key, &completion);
            assert_eq!(answer.map(drop), Err(Error::INVALID_PARAM));
        }
    }
    mapped.protect(MprotectFlags::empty());
    is_refused(Access::REMOTE_GET, "not mapped");
    is_refused(Access::ALL, "not mapped");
    pair.to.check_alive();
}

/// The second domain is one of another context, as a domain of another transport would be.
fn further_domain(setup: &Setup) {
    let pair = Pair::new(setup);
    registers(setup, &pair.receiver);
    let own = pair.receiver.iface.memory_domain();
    let context = crate::Target::context(setup.target.linkage, &setup.config, &[]).expect("a context");
    // On the device of the receiver, which may be another one than the sender's.
    let there = pair.receiver.iface.resource();
    let is_same = |other: &&Resource| (&other.transport, &other.device) == (&there.transport, &there.device);
    let resource = context.resources().iter().find(is_same).expect("it was there a moment ago");
    let domain = context.memory_domain(resource).unwrap_or_else(|refused| panic!("{refused}"));
    let bytes = pattern(setup.seed, 4096);
    let memory = pair.receiver.memory(bytes.clone());
    let address = memory.address();
    let shared = MultiDomainMemory::new(memory);
    let further = shared.for_domain(&domain).unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!((further.address(), further.len(), further.access()), (address, 4096, Access::ALL));
    check_bytes("memory of a further domain", &further.to_vec(), &bytes);
    if further.packed_key() == Err(Error::UNSUPPORTED) {
        setup.skip("its memory domain has no keys");
    }
    let refused = shared.packed_keys().expect_err("both domains have the same name");
    assert!(refused.reason.contains(own.name()), "{refused}");
    let packed = shared.packed_keys_for([own, own]).unwrap_or_else(|refused| panic!("{refused}"));
    let keys = PackedKeys::parse(&packed).unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(keys.domains().collect::<Vec<_>>(), [own.name()]);
    let key = keys.unpack(pair.sender.iface.memory_domain()).unwrap_or_else(|refused| panic!("{refused}"));
    drop(shared);
    for way in Way::of(&pair.sender) {
        let (least, most) = way.limits(pair.sender.attributes());
        let data = pattern(!setup.seed, least.max(100).min(most));
        perform(way, &pair.sender, &pair.to, &data, address, &key, || pair.progress()).unwrap_or_else(
            |error| panic!("{way:?} while the further registration holds the bytes: {error}"),
        );
    }
    drop(further);
    for way in Way::of(&pair.sender) {
        let (link, _back) = connect(&pair.sender, &pair.receiver);
        let (least, most) = way.limits(pair.sender.attributes());
        let data = vec![0xcc; least.max(100).min(most)];
        let answer = perform(way, &pair.sender, &link, &data, address, &key, || pair.progress());
        let error = answer.map(drop).expect_err("all registrations have ended");
        assert!(is_refusal(error), "{way:?}: {error} is no refusal");
        drop(link);
        pair.settle();
    }
}

/// A key to a part opens that part, and ends with what holds it.
fn granted(setup: &Setup) {
    let pair = Pair::new(setup);
    registers(setup, &pair.receiver);
    let whole = pair.receiver.memory(vec![0; 3 * 4096]);
    if whole.packed_key() == Err(Error::UNSUPPORTED) {
        setup.skip("its memory domain has no keys");
    }
    let domain = pair.receiver.iface.memory_domain();
    let part = whole.slice(1000..1000 + 4096).grant(domain).unwrap_or_else(|refused| panic!("{refused}"));
    let key = pair.sender.iface.memory_domain().unpack(part.packed_key());
    let key = key.unwrap_or_else(|refused| panic!("{refused}"));
    for way in Way::of(&pair.sender) {
        let (least, most) = way.limits(pair.sender.attributes());
        let data = pattern(setup.seed, least.max(64).min(most).min(4096));
        perform(way, &pair.sender, &pair.to, &data, part.address(), &key, || pair.progress())
            .unwrap_or_else(|error| panic!("{way:?} inside of the part: {error}"));
    }
    pair.settle();
    let refused = |what: &str, address: u64| {
        for way in Way::of(&pair.sender) {
            let (link, _back) = connect(&pair.sender, &pair.receiver);
            let (least, most) = way.limits(pair.sender.attributes());
            let data = vec![0xcc; least.max(64).min(most)];
            let answer = perform(way, &pair.sender, &link, &data, address, &key, || pair.progress());
            let error = answer.map(drop).expect_err(what);
            assert!(is_refusal(error), "{way:?}, {what}: {error} is no refusal");
            drop(link);
            pair.settle();
        }
    };
    refused("ahead of the part", part.address() - 1);
    refused("across the end of the part", part.address() + 4096 - 1);
    refused("behind the part", part.address() + 4096);
    let bytes = whole.to_vec();
    let is_untouched = bytes[..1000].iter().chain(&bytes[1000 + 4096..]).all(|&byte| byte == 0);
    assert!(is_untouched, "bytes outside of the part were written");
    let start = part.address();
    drop(part);
    refused("after the end of the grant", start);
}

pub(super) const CASES: &[Case] = &[
    case("registered memory is given back once nobody holds it", Needs::NOTHING, given_back),
    case("allocated memory is zeroed and as long as asked for", Needs::NOTHING, allocated),
    case("memory of another kind than the host's is refused", Needs::NOTHING, other_kinds),
    case("registering nonsense is refused with a reason", Needs::NOTHING, bad_arguments),
    case("keys compare equal exactly where they are of one region", Needs::NOTHING, keys),
    case("a local pointer to remote memory aliases it", Needs::NOTHING, aliases),
    case("advice is taken inside of the memory and refused outside", Needs::NOTHING, advice),
    case("what a mapping does not permit is refused when it is registered", Needs::NOTHING, mappings),
    case("many registrations come and go in any order", Needs::NOTHING, many),
    Case {
        logs: None,
        ..case("a key to a part of memory opens that part and ends with its grant", Needs::NOTHING, granted)
    },
    case("memory registered twice is reachable until the last one ends", Needs::NOTHING, twice),
    Case {
        logs: None,
        ..case(
            "memory that a further domain registers stays until both have ended",
            Needs::NOTHING,
            further_domain,
        )
    },
];
