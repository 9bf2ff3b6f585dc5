//! Memory that several domains register: the keys of all of them reach the same bytes, over `self`, `posix` and `tcp`.

use std::time::Duration;

use uct_core::configuration::Sources;
use uct_core::{
    Access, Completion, Context, Ep, Error, Flush, Iface, MemoryDomain, MemoryKind, MultiDomainMemory,
    PackedKeys, Posted, RemoteKey, Result, Worker,
};

const LIMIT: Duration = Duration::from_secs(60);
const SIZE: usize = 4096;

/// The owner of the memory and the initiator, each with a context of its own, and so with its own domains. `self` only
/// connects an interface with itself, so that one is the owner's.
struct Sides {
    workers: [Worker; 2],
    /// The owner's interfaces: `self`, `posix`, `tcp`.
    own: [Iface; 3],
    /// An endpoint of the initiator to each of them.
    eps: [Ep; 3],
}

impl Sides {
    fn open() -> Sides {
        let sources = Sources::default().set("modules", "self,tcp,shm").set("net_devices", "lo");
        let worker = || {
            let context = Context::builder().sources(sources.clone()).build().expect("a context");
            Worker::new(&context).expect("a worker")
        };
        let workers = [worker(), worker()];
        let names = [("self", "memory"), ("posix", "memory"), ("tcp", "lo")];
        let open = |worker: &Worker, (transport, device): (&str, &str)| {
            worker.open(transport, device).unwrap_or_else(|error| panic!("{error}"))
        };
        let own = names.map(|name| open(&workers[0], name));
        let [local, posix, tcp] = own.each_ref().map(|iface| iface.address().expect("an address"));
        let initiator = [own[0].clone(), open(&workers[1], names[1]), open(&workers[1], names[2])];
        let [by_self, by_posix, by_tcp] = initiator;
        let eps = [(by_self, local), (by_posix, posix), (by_tcp, tcp)]
            .map(|(iface, peer)| iface.connect(&peer).unwrap_or_else(|refused| panic!("{refused}")));
        Sides { workers, own, eps }
    }

    /// Memory that `posix` has allocated.
    fn memory(&self) -> MultiDomainMemory {
        let memory = self.own[1].memory_domain().allocate(SIZE, Access::ALL, MemoryKind::Host);
        MultiDomainMemory::new(memory.unwrap_or_else(|refused| panic!("{refused}")))
    }

    fn domains(&self) -> [&MemoryDomain; 3] {
        self.own.each_ref().map(Iface::memory_domain)
    }

    fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut answer = attempt();
        self.workers[0].progress_until(LIMIT, || {
            self.workers[1].progress();
            if matches!(answer, Err(Error::NO_RESOURCE)) {
                answer = attempt();
            }
            !matches!(answer, Err(Error::NO_RESOURCE))
        });
        answer
    }

    /// The outcome of a put, flush included.
    fn put(&self, ep: &Ep, bytes: &[u8], address: u64, key: &RemoteKey) -> Result {
        self.retry(|| ep.put_from(bytes, address, key))?;
        self.retry(|| match ep.flush(Flush::REMOTE, None)? {
            Posted::Done => Ok(()),
            Posted::InProgress => Err(Error::NO_RESOURCE),
        })
    }
}

/// The initiator's keys, one for each of its endpoints.
fn unpacked(sides: &Sides, packed: &[u8]) -> [RemoteKey; 3] {
    let keys = PackedKeys::parse(packed).unwrap_or_else(|refused| panic!("{refused}"));
    sides
        .eps
        .each_ref()
        .map(|ep| keys.unpack(ep.iface().memory_domain()).unwrap_or_else(|refused| panic!("{refused}")))
}

#[test]
fn one_list_of_keys_serves_endpoints_of_every_domain() {
    let sides = Sides::open();
    let memory = sides.memory();
    let packed = memory.packed_keys_for(sides.domains()).expect("keys");
    assert_eq!(memory.packed_keys().map(|all| all.len()), Ok(packed.len()), "it is registered with these");
    let keys = unpacked(&sides, &packed);
    let address = memory.memory().address();
    for (number, (ep, key)) in sides.eps.iter().zip(&keys).enumerate() {
        let bytes = [number as u8 + 1; 1000];
        let place = address + 1000 * number as u64;
        sides.put(ep, &bytes, place, key).unwrap_or_else(|error| panic!("{ep:?}: {error}"));
        let mut there = [0; 1000];
        memory.memory().read(1000 * number, &mut there);
        assert_eq!(there, bytes, "{ep:?}");
    }
    // What one has written the next one reads.
    for (number, (ep, key)) in sides.eps.iter().zip(&keys).enumerate() {
        let other = (number + 1) % 3;
        let mut read = [0; 1000];
        let place = address + 1000 * other as u64;
        sides.retry(|| ep.get_short(&mut read, place, key)).unwrap_or_else(|error| panic!("{ep:?}: {error}"));
        assert_eq!(read, [other as u8 + 1; 1000], "{ep:?}");
    }
}

#[test]
fn the_memory_of_each_domain_is_for_operations_of_its_endpoints() {
    let sides = Sides::open();
    let [source, target] = [sides.memory(), sides.memory()];
    source.memory().fill(0, SIZE, 7);
    let keys = unpacked(&sides, &target.packed_keys_for(sides.domains()).expect("keys"));
    for (ep, key) in sides.eps.iter().zip(&keys) {
        target.memory().fill(0, SIZE, 0);
        let local =
            source.for_domain(ep.iface().memory_domain()).unwrap_or_else(|refused| panic!("{refused}"));
        let done = Completion::new(&ep.iface().worker());
        let slices = [local.slice(..100)];
        let posted = sides.retry(|| ep.put_zcopy(&slices, target.memory().address(), key, &done));
        assert!(posted.is_ok(), "{ep:?}: {posted:?}");
        sides.retry(|| if done.is_done() { done.result() } else { Err(Error::NO_RESOURCE) }).expect("a put");
        assert_eq!(target.memory().to_vec()[..101], [&[7; 100][..], &[0]].concat(), "{ep:?}");
    }
    // The initiator's domains of `posix` and `tcp` are others than the owner's.
    assert_eq!((source.domains().len(), target.domains().len()), (4, 3));
}

#[test]
fn a_list_without_the_key_of_a_domain_is_an_error_that_names_those_it_has() {
    let sides = Sides::open();
    let [local, posix, tcp] = sides.domains();
    let packed = sides.memory().packed_keys_for([local, posix]).expect("keys");
    let keys = PackedKeys::parse(&packed).expect("a list");
    let refused = keys.unpack(tcp).expect_err("there is no key for tcp");
    assert_eq!(refused.status, Error::NO_ELEM);
    for name in [local.name(), posix.name()] {
        assert!(refused.reason.contains(name), "{refused}");
    }
    // A key of another component is judged by the domain, and is none of it.
    let refused = keys.unpack_of(tcp, posix.name()).expect_err("a key of posix");
    assert_eq!(refused.status, Error::INVALID_PARAM, "{refused}");
}

#[test]
fn keys_of_all_domains_end_with_the_memory_and_not_before() {
    let sides = Sides::open();
    let memory = sides.memory();
    let keys = unpacked(&sides, &memory.packed_keys_for(sides.domains()).expect("keys"));
    let address = memory.memory().address();
    let slice = memory.for_domain(sides.own[2].memory_domain()).expect("memory of tcp").slice(..8);
    drop(memory);
    for (ep, key) in sides.eps.iter().zip(&keys) {
        sides.put(ep, &[9; 8], address, key).expect("the slice holds all registrations and the bytes");
    }
    drop(slice);
    for (ep, key) in sides.eps.iter().zip(&keys) {
        let error = sides.put(ep, &[9; 8], address, key).expect_err("the registration has ended");
        assert_ne!(error, Error::NO_RESOURCE, "{ep:?}");
    }
}

/// Where the key of a region of software has its first address and its length.
const KEY_BASE: std::ops::Range<usize> = 32..40;
const KEY_LENGTH: std::ops::Range<usize> = 40..48;

/// What accesses to the part, to the byte behind it and to the one ahead of it return, with a key that says it opens everything.
fn with_forged_key(sides: &Sides, number: usize, memory: &MultiDomainMemory) -> [Result; 3] {
    let whole = memory.memory();
    let ep = &sides.eps[number];
    let part = whole.slice(1000..1100);
    let grant = part.grant(sides.domains()[number]).unwrap_or_else(|refused| panic!("{refused}"));
    let mut packed = grant.packed_key().to_vec();
    packed[KEY_BASE].copy_from_slice(&whole.address().to_le_bytes());
    packed[KEY_LENGTH].copy_from_slice(&(whole.len() as u64).to_le_bytes());
    let key = match ep.iface().memory_domain().unpack(&packed) {
        Ok(key) => key,
        // Within a process the key is compared with the registration at once.
        Err(refused) => return [Ok(()), Err(refused.status), Err(refused.status)],
    };
    [(1000, 100), (1000, 101), (999, 1)].map(|(offset, length)| {
        let bytes = vec![9; length];
        sides.put(ep, &bytes, whole.address() + offset, &key)
    })
}

/// The accesses of a peer that keeps to nothing: the owner's side refuses them.
#[test]
fn a_key_to_a_part_opens_no_other_byte_whatever_the_peer_makes_of_it() {
    for number in [0, 2] {
        let sides = Sides::open();
        let memory = sides.memory();
        let [inside, behind, ahead] = with_forged_key(&sides, number, &memory);
        let name = sides.domains()[number].name().to_owned();
        assert_eq!(inside, Ok(()), "{name}");
        assert!(behind.is_err() && ahead.is_err(), "{name}: {behind:?}, {ahead:?}");
        let bytes = memory.memory().to_vec();
        assert!(bytes[..1000].iter().chain(&bytes[1100..]).all(|&byte| byte == 0), "{name}: it was written");
    }
}

#[test]
fn a_key_to_a_part_ends_with_the_grant_or_the_memory_and_not_with_either_alone() {
    for number in 0..3 {
        let sides = Sides::open();
        let memory = sides.memory();
        let (ep, domain) = (&sides.eps[number], sides.domains()[number]);
        let grant = |start: usize| {
            let part = memory.memory().slice(start..start + 64);
            let grant = part.grant(domain).unwrap_or_else(|refused| panic!("{refused}"));
            let key = ep.iface().memory_domain().unpack(grant.packed_key());
            (key.unwrap_or_else(|refused| panic!("{refused}")), grant)
        };
        let [(first, ended), (second, held)] = [0, 64].map(grant);
        let base = memory.memory().address();
        assert_eq!((held.address(), held.len(), held.is_over()), (base + 64, 64, false));
        let name = domain.name();
        for (key, offset) in [(&first, 0), (&second, 64)] {
            assert_eq!(sides.put(ep, &[7; 64], base + offset, key), Ok(()), "{name}");
            // The keys are to parts beside each other.
            assert!(sides.put(ep, &[8; 1], base + (64 - offset), key).is_err(), "{name}");
        }
        assert_eq!(memory.memory().to_vec()[..129], [&[7; 128][..], &[0]].concat(), "{name}");
        drop(ended);
        assert!(sides.put(ep, &[9; 8], base, &first).is_err(), "{name}: its grant has ended");
    }
    let sides = Sides::open();
    let memory = sides.memory();
    let grant = memory.memory().slice(..8).grant(sides.domains()[2]).expect("a key");
    drop(memory);
    assert!(grant.is_over());
    let memory = sides.memory();
    let strided = memory.memory().slice(..).strided(8, 16, 4).grant(sides.domains()[2]);
    assert_eq!(strided.map(drop).expect_err("it has gaps").status, Error::INVALID_PARAM);
}
