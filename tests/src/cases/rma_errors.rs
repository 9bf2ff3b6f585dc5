//! A wrong address or key is an error at the initiator: the target's memory stays as it is, and others go on.

use uct_host::{Access, Capabilities, Error, Memory, RemoteKey};

use super::case;
use crate::access::{Way, is_refusal, perform};
use crate::case::{Case, Needs};
use crate::pair::{Link, Pair, connect};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const SIZE: usize = 4096;

/// A target between guards in one buffer: only the middle is registered.
struct Target {
    /// The whole buffer, registered as well, so that its bytes stay valid and can be read.
    whole: Memory,
    middle: Memory,
    before: Vec<u8>,
}

impl Target {
    fn new(pair: &Pair, seed: u64, access: Access) -> Target {
        let before = pattern(seed, 3 * SIZE);
        let whole = pair.receiver.memory(before.clone());
        let start = std::ptr::NonNull::new(whole.as_ptr().wrapping_add(SIZE)).expect("inside of a buffer");
        let domain = pair.receiver.iface.memory_domain();
        // SAFETY: `whole` owns the bytes and is dropped behind `middle` (fields drop in order, and `whole` is kept by
        // `Drop` below); it hands out no references.
        let middle = unsafe { domain.register_raw(start, SIZE, access, uct_host::MemoryKind::Host) };
        Target { whole, middle: middle.unwrap_or_else(|refused| panic!("{refused}")), before }
    }

    fn check_untouched(&self, what: &str) {
        check_bytes(&format!("memory after {what}"), &self.whole.to_vec(), &self.before);
    }
}

/// Accesses with something wrong about it, on an endpoint of its own, which may fail; a second endpoint goes on.
fn refused(pair: &Pair, witness: &Link, way: Way, what: &str, length: usize, remote: u64, key: &RemoteKey) {
    let (link, _back) = connect(&pair.sender, &pair.receiver);
    let data = vec![0xcc; length];
    let answer = perform(way, &pair.sender, &link, &data, remote, key, || pair.progress());
    match answer {
        Ok(_) => panic!("{way:?} {what}: no error came back"),
        Err(error) => assert!(is_refusal(error), "{way:?} {what}: {error} is no refusal"),
    }
    assert!(link.failures().len() <= 1, "the error handler was called more than once");
    drop(link);
    pair.settle();
    assert!(
        witness.failures().is_empty(),
        "{way:?} {what}: another endpoint failed: {:?}",
        witness.failures()
    );
}

/// The other endpoints of the interface still work.
fn goes_on(pair: &Pair, witness: &Link) {
    let target = Target::new(pair, 77, Access::ALL);
    let key = pair.sender.key_to(&target.middle);
    for way in Way::of(&pair.sender) {
        let (least, most) = way.limits(pair.sender.attributes());
        let data = vec![0x11; least.max(64).min(most)];
        let remote = target.middle.address();
        let answer = perform(way, &pair.sender, witness, &data, remote, &key, || pair.progress());
        answer.unwrap_or_else(|error| panic!("{way:?} afterwards: {error}"));
    }
    let mut first = [0; 64];
    target.middle.read(0, &mut first);
    if Way::of(&pair.sender).iter().any(|way| way.is_put()) {
        check_bytes("a put afterwards", &first, &[0x11; 64]);
    }
}

/// Every way, with a word, which may have a way of its own, and with more.
fn ways(pair: &Pair) -> Vec<(Way, usize)> {
    let of = |way: Way| {
        let (least, most) = way.limits(pair.sender.attributes());
        [8, 64].map(|length: usize| (way, length.max(least).min(most)))
    };
    Way::of(&pair.sender).into_iter().flat_map(of).collect()
}

fn outside(setup: &Setup) {
    let pair = Pair::new(setup);
    let witness = connect(&pair.sender, &pair.receiver);
    for (way, length) in ways(&pair) {
        let target = Target::new(&pair, setup.seed, Access::ALL);
        let key = pair.sender.key_to(&target.middle);
        let base = target.middle.address();
        let size = SIZE as u64;
        for (what, remote) in [
            ("one byte beyond the end", base + size - length as u64 + 1),
            ("one byte ahead of the start", base - 1),
            ("right behind the end", base + size),
            ("right ahead of the start", base - length as u64),
            ("at address 0", 0),
            ("around the end of the address space", u64::MAX - 3),
        ] {
            refused(&pair, &witness.0, way, what, length, remote, &key);
            target.check_untouched(&format!("{way:?} {what}"));
        }
    }
    goes_on(&pair, &witness.0);
}

fn not_granted(setup: &Setup) {
    let pair = Pair::new(setup);
    let witness = connect(&pair.sender, &pair.receiver);
    for (way, length) in ways(&pair) {
        let granted = if way.is_put() { Access::REMOTE_GET } else { Access::REMOTE_PUT };
        let target = Target::new(&pair, setup.seed, granted);
        let key = pair.sender.key_to(&target.middle);
        let remote = target.middle.address();
        refused(&pair, &witness.0, way, "without permission", length, remote, &key);
        target.check_untouched(&format!("{way:?} without permission"));
    }
    goes_on(&pair, &witness.0);
}

fn stale(setup: &Setup) {
    let pair = Pair::new(setup);
    let witness = connect(&pair.sender, &pair.receiver);
    for (way, length) in ways(&pair) {
        let Target { whole, middle, before } = Target::new(&pair, setup.seed, Access::ALL);
        let key = pair.sender.key_to(&middle);
        let packed = middle.packed_key().expect("a key");
        let remote = middle.address();
        drop(middle);
        refused(&pair, &witness.0, way, "with a stale key", length, remote, &key);
        check_bytes("memory after the stale key", &whole.to_vec(), &before);
        // Neither does the key come to life when the same memory is registered anew, nor when it is unpacked again.
        let again = Target::new(&pair, setup.seed, Access::ALL);
        refused(&pair, &witness.0, way, "with a stale key, its place used again", length, remote, &key);
        refused(
            &pair,
            &witness.0,
            way,
            "with a stale key at new memory",
            length,
            again.middle.address(),
            &key,
        );
        if let Ok(key) = pair.sender.iface.memory_domain().unpack(&packed) {
            refused(&pair, &witness.0, way, "with a stale key, unpacked late", length, remote, &key);
        }
        again.check_untouched("a stale key");
        check_bytes("memory after the stale key", &whole.to_vec(), &before);
    }
    goes_on(&pair, &witness.0);
}

fn of_another_region(setup: &Setup) {
    let pair = Pair::new(setup);
    let witness = connect(&pair.sender, &pair.receiver);
    for (way, length) in ways(&pair) {
        let (first, second) = (Target::new(&pair, 1, Access::ALL), Target::new(&pair, 2, Access::ALL));
        let key = pair.sender.key_to(&second.middle);
        let remote = first.middle.address();
        refused(&pair, &witness.0, way, "with the key of another region", length, remote, &key);
        first.check_untouched("the key of another region");
        second.check_untouched("the key of another region");
    }
    goes_on(&pair, &witness.0);
}

fn foreign_domain(setup: &Setup) {
    let pair = Pair::new(setup);
    let foreign = crate::Target::context(setup.target.linkage, &setup.config, &[]).expect("a context");
    let domain =
        foreign.memory_domain(&setup.target.resource(&foreign).expect("it is there")).expect("a domain");
    let target = Target::new(&pair, setup.seed, Access::ALL);
    let packed = target.middle.packed_key().expect("a key");
    let Ok(key) = domain.unpack(&packed) else {
        setup.skip("a second domain does not even unpack the key");
    };
    for (way, length) in ways(&pair) {
        let data = vec![1; length];
        let answer = way.start(&pair.sender, &pair.to, &data, target.middle.address(), &key).map(drop);
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{way:?} with a key that another domain unpacked");
    }
    pair.settle();
    target.check_untouched("a key that another domain unpacked");
}

fn no_keys(setup: &Setup) {
    let pair = Pair::new(setup);
    let target = Target::new(&pair, setup.seed, Access::ALL);
    let packed = target.middle.packed_key().expect("a key");
    let domain = pair.sender.iface.memory_domain();
    assert_eq!(packed.len(), domain.attributes().rkey_packed_size);
    let mut random = setup.random();
    let mut wrong: Vec<Vec<u8>> = (0..packed.len()).map(|length| packed[..length].to_vec()).collect();
    wrong.push([packed.as_slice(), &[0]].concat());
    wrong.extend((0..50).map(|_| random.bytes(packed.len())));
    wrong.extend((0..50).map(|length| random.bytes(length)).filter(|bytes| bytes.len() != packed.len()));
    wrong.push(vec![0; packed.len()]);
    wrong.push(vec![0xff; packed.len()]);
    for bytes in &wrong {
        match domain.unpack(bytes) {
            Ok(_) => panic!("{} bytes are taken for a key: {bytes:02x?}", bytes.len()),
            Err(refused) => {
                assert_eq!(refused.status, Error::INVALID_PARAM, "{refused}");
                assert!(refused.reason.len() > 5, "no reason for {bytes:02x?}");
            }
        }
    }
    // A key with one bit changed may be one or not; either way it is judged without harm.
    for at in 0..packed.len() * 8 {
        let mut changed = packed.clone();
        changed[at / 8] ^= 1 << (at % 8);
        drop(domain.unpack(&changed));
    }
    domain.unpack(&packed).expect("the key itself is one");
}

const ANY: Needs = Needs::any(
    Capabilities::PUT_SHORT
        .union(Capabilities::PUT_BCOPY)
        .union(Capabilities::PUT_ZCOPY)
        .union(Capabilities::GET_SHORT)
        .union(Capabilities::GET_BCOPY)
        .union(Capabilities::GET_ZCOPY),
);

/// What fails an endpoint may be logged at the target's end.
const fn loud(name: &'static str, run: fn(&Setup)) -> Case {
    Case { logs: None, ..case(name, ANY, run) }
}

pub(super) const CASES: &[Case] = &[
    loud("an address outside of the region is refused and nothing is touched", outside),
    loud("access that was not granted is refused and nothing is touched", not_granted),
    loud("a stale key is refused and nothing is touched", stale),
    loud("the key of another region is refused and nothing is touched", of_another_region),
    case("a key that another domain unpacked is refused", ANY, foreign_domain),
    case("bytes that are no key are refused with a reason", ANY, no_keys),
];
