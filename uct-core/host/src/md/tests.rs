//! What is asked of a memory domain, and when: by one that notes it.

use std::cmp::Ordering as Order;
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use ucs::Error;
use ucs::memory::allocate::Method;
use uct_abi::{
    UCT_ADVICE_NORMAL, UCT_ADVICE_WILLNEED, UCT_ERR_BUSY, UCT_ERR_NO_MEMORY, UCT_ERR_NO_RESOURCE,
    UCT_ERR_UNSUPPORTED, UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_REG, UCT_OK, UctMdAttr, UctMemh, UctRkey,
    UctStatus, UctText, UctWindow,
};

use super::*;

/// A domain of four words, which are all that its keys open. Its keys and registrations are numbers.
struct Fake {
    flags: u64,
    rkey_packed_size: usize,
    /// What `rkey_window` answers.
    window: AtomicI32,
    windows: AtomicU32,
    words: [AtomicU64; 4],
    live: AtomicU64,
    closed: AtomicU32,
    released: AtomicU32,
    /// What `mem_dereg` returns.
    deregister: AtomicI32,
    /// Registrations that have not ended.
    registered: AtomicU32,
    /// What was asked about registrations: the question, the number of the registration, the bytes and the flags.
    asked: Mutex<Vec<Asked>>,
}

type Asked = (&'static str, usize, usize, usize, u32);

impl Fake {
    fn note(&self, asked: Asked) {
        self.asked.lock().expect("nobody panics meanwhile").push(asked);
    }
}

const BASE: u64 = 0x1000;
const LIVE: u64 = 3;

unsafe fn fake<'a>(md: *mut UctMd) -> &'a Fake {
    // SAFETY: what `open` leaked.
    unsafe { &*md.cast::<Fake>() }
}

unsafe extern "C" fn close(md: *mut UctMd) {
    // SAFETY: the domain is a fake.
    unsafe { fake(md) }.closed.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn query_fake(md: *mut UctMd, attr: *mut UctMdAttr) -> UctStatus {
    // SAFETY: the domain is a fake.
    let fake = unsafe { fake(md) };
    // SAFETY: the caller's place for the answer, which nobody else uses meanwhile.
    let attr = unsafe { &mut *attr };
    attr.flags = fake.flags;
    attr.rkey_packed_size = fake.rkey_packed_size;
    UCT_OK
}

unsafe extern "C" fn register(
    md: *mut UctMd,
    address: *mut c_void,
    length: usize,
    flags: u32,
    memh: *mut *mut UctMemh,
    _: *mut UctText,
) -> UctStatus {
    // SAFETY: the domain is a fake.
    let fake = unsafe { fake(md) };
    fake.registered.fetch_add(1, Ordering::Relaxed);
    let number = 1 + fake.asked.lock().expect("nobody panics meanwhile").len();
    fake.note(("register", number, address.addr(), length, flags));
    // SAFETY: the caller's place for the answer.
    unsafe { *memh = ptr::without_provenance_mut(number) };
    UCT_OK
}

unsafe extern "C" fn deregister(md: *mut UctMd, memh: *mut UctMemh) -> UctStatus {
    // SAFETY: the domain is a fake.
    let fake = unsafe { fake(md) };
    fake.note(("deregister", memh.addr(), 0, 0, 0));
    let status = fake.deregister.load(Ordering::Relaxed);
    fake.registered.fetch_sub(u32::from(status == UCT_OK), Ordering::Relaxed);
    status
}

unsafe extern "C" fn allocate(
    _: *mut UctMd,
    _: *mut usize,
    _: u32,
    _: *mut *mut c_void,
    _: *mut *mut UctMemh,
    _: *mut UctText,
) -> UctStatus {
    UCT_ERR_NO_MEMORY
}

unsafe extern "C" fn advise(
    md: *mut UctMd,
    memh: *mut UctMemh,
    address: *mut c_void,
    length: usize,
    advice: u32,
) -> UctStatus {
    // SAFETY: the domain is a fake.
    unsafe { fake(md) }.note(("advise", memh.addr(), address.addr(), length, advice));
    UCT_OK
}

/// The key is the number of the registration.
unsafe extern "C" fn pack(_: *mut UctMd, memh: *mut UctMemh, buffer: *mut u8) -> UctStatus {
    // SAFETY: the keys of those that are asked have a byte at least.
    unsafe { *buffer = memh.addr() as u8 };
    UCT_OK
}

/// The key is the first byte.
unsafe extern "C" fn unpack(
    _: *mut UctMd,
    buffer: *const u8,
    _: usize,
    rkey: *mut *mut UctRkey,
    _: *mut UctText,
) -> UctStatus {
    // SAFETY: the tests pass a byte.
    let number = unsafe { *buffer };
    // SAFETY: the caller's place for the answer.
    unsafe { *rkey = ptr::without_provenance_mut(usize::from(number)) };
    UCT_OK
}

unsafe extern "C" fn release(md: *mut UctMd, _: *mut UctRkey) {
    // SAFETY: the domain is a fake.
    unsafe { fake(md) }.released.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn compare(
    _: *mut UctMd,
    left: *mut UctRkey,
    right: *mut UctRkey,
    result: *mut i32,
) -> UctStatus {
    // SAFETY: the caller's place for the answer.
    unsafe { *result = 10 * (left.addr() as i32 - right.addr() as i32) };
    UCT_OK
}

/// Three words may be written, two read, and one changed by atomics.
unsafe extern "C" fn window(md: *mut UctMd, _: *mut UctRkey, window: *mut UctWindow) -> UctStatus {
    // SAFETY: the domain is a fake.
    let fake = unsafe { fake(md) };
    fake.windows.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's place for the answer, which nobody else uses meanwhile.
    let window = unsafe { &mut *window };
    window.base = BASE;
    window.local = fake.words.as_ptr().cast_mut().cast();
    (window.put_words, window.get_words, window.atomic_words) = (3, 2, 1);
    (window.live, window.value) = (fake.live.as_ptr(), LIVE);
    fake.window.load(Ordering::Relaxed)
}

static OPS: UctMdOps = UctMdOps {
    size: size_of::<UctMdOps>(),
    close: Some(close),
    query: Some(query_fake),
    mem_reg: Some(register),
    mem_dereg: Some(deregister),
    mem_alloc: Some(allocate),
    mem_free: Some(deregister),
    mem_advise: Some(advise),
    mkey_pack: Some(pack),
    rkey_unpack: Some(unpack),
    rkey_release: Some(release),
    rkey_ptr: None,
    rkey_compare: Some(compare),
    rkey_window: Some(window),
};

/// A domain with these flags, which allocates by `method`.
fn open(flags: u64, rkey_packed_size: usize, method: AllocMethod) -> (&'static Fake, MemoryDomain) {
    let fake: &'static Fake = Box::leak(Box::new(Fake {
        flags,
        rkey_packed_size,
        window: AtomicI32::new(UCT_OK),
        windows: AtomicU32::new(0),
        words: [10, 11, 12, 13].map(AtomicU64::new),
        live: AtomicU64::new(LIVE),
        closed: AtomicU32::new(0),
        released: AtomicU32::new(0),
        deregister: AtomicI32::new(UCT_OK),
        registered: AtomicU32::new(0),
        asked: Mutex::default(),
    }));
    let raw = ptr::from_ref(fake).cast_mut().cast();
    (
        fake,
        MemoryDomain {
            inner: Arc::new(MdInner::new(&OPS, raw, "fake/fake".to_owned(), (vec![method], true))),
        },
    )
}

fn heap() -> AllocMethod {
    AllocMethod::Host(Method::from_name("heap").expect("there is one"))
}

fn registering() -> (&'static Fake, MemoryDomain) {
    open(UCT_MD_REG | UCT_MD_NEED_RKEY, 1, heap())
}

/// A gate of the domain that a transport has opened.
fn gate(md: &MemoryDomain) -> Gate {
    let gate = Gate::new(md);
    set_open(&gate, 1);
    gate
}

fn set_open(gate: &Gate, is_open: u32) {
    // SAFETY: the gate is this thread's.
    unsafe { (*gate.as_raw()).is_open = is_open };
}

#[test]
fn memory_is_allocated_by_a_domain_that_allocates_or_registers_and_by_no_other() {
    let refused = |flags, method| open(flags, 1, method).1.allocate(8, Access::ALL, MemoryKind::Host).err();
    for flags in [0, UCT_MD_NEED_RKEY] {
        let Refused { status, reason, .. } = refused(flags, heap()).expect("it does neither");
        assert_eq!(status, Error::UNSUPPORTED);
        assert_eq!(reason, "the memory domain neither allocates nor registers memory");
    }
    for flags in [UCT_MD_REG, UCT_MD_ALLOC, UCT_MD_REG | UCT_MD_ALLOC] {
        assert_eq!(refused(flags, heap()), None);
        assert_eq!(refused(flags, AllocMethod::Md).map(|refused| refused.status), Some(Error::NO_MEMORY));
    }
}

#[test]
fn memory_of_another_kind_than_the_hosts_is_refused() {
    let (_fake, md) = registering();
    for kind in [MemoryKind::Cuda, MemoryKind::Rocm] {
        let Refused { operation, subject, status, reason } =
            md.allocate(8, Access::ALL, kind).expect_err("it is not the host's");
        assert_eq!(
            (operation, subject.as_str(), status),
            ("allocate memory", "fake/fake", Error::UNSUPPORTED)
        );
        assert_eq!(reason, format!("memory of kind {kind:?} is not supported; only host memory is"));
    }
}

#[test]
fn registered_memory_is_put_around_a_domain_that_has_neither_memory_nor_keys() {
    for (flags, rkey_packed_size, expected) in [(0, 0, true), (0, 1, false), (UCT_MD_REG, 0, false)] {
        let (fake, md) = open(flags, rkey_packed_size, heap());
        assert_eq!(md.inner.is_composed(), expected);
        let plugins = ptr::from_ref(fake).cast_mut().cast();
        assert_eq!((md.inner.plugin_raw() == plugins, md.inner.raw() == plugins), (true, !expected));
        assert_eq!(md.allocate(64, Access::ALL, MemoryKind::Host).is_ok(), expected || flags != 0);
    }
}

#[test]
fn a_domain_is_closed_and_a_key_released_when_the_last_holder_is_gone() {
    let (fake, md) = registering();
    let count = || (fake.released.load(Ordering::Relaxed), fake.closed.load(Ordering::Relaxed));
    let key = md.unpack(&[1]).expect("a key");
    let clone = key.clone();
    drop((md, key));
    assert_eq!(count(), (0, 0), "a clone of the key holds both");
    drop(clone);
    assert_eq!(count(), (1, 1));
}

#[test]
fn keys_are_ordered_as_their_domain_has_them_and_those_of_two_domains_are_not() {
    let (_fake, md) = registering();
    let [one, two] = [1, 2].map(|number| md.unpack(&[number]).expect("a key"));
    assert_eq!(one.compare(&two), Ok(Order::Less));
    assert_eq!(two.compare(&one), Ok(Order::Greater));
    assert_eq!(one.compare(&one.clone()), Ok(Order::Equal));
    let (_other_fake, other) = registering();
    assert_eq!(one.compare(&other.unpack(&[1]).expect("a key")), Err(Error::INVALID_PARAM));
}

#[test]
fn the_host_accesses_whole_words_of_a_window_as_far_as_each_operation_may() {
    let (_fake, md) = registering();
    let (gate, key) = (gate(&md), md.unpack(&[1]).expect("a key"));
    let value = |word: &AtomicU64| word.load(Ordering::Relaxed);
    for (offset, put, get, atomic) in [
        (0, Some(10), Some(10), Some(10)),
        (8, Some(11), Some(11), None),
        (16, Some(12), None, None),
        (24, None, None, None),
        (1, None, None, None),
        (4, None, None, None),
        (12, None, None, None),
        (-8, None, None, None),
    ] {
        let address = BASE.wrapping_add_signed(offset);
        assert_eq!(key.put_word(&gate, address, value), put, "put at {offset}");
        assert_eq!(key.get_word(&gate, address, value), get, "get at {offset}");
        assert_eq!(key.atomic_word(&gate, address, value), atomic, "atomic at {offset}");
    }
}

#[test]
fn the_host_copies_bytes_that_are_inside_the_words_of_a_window_and_no_others() {
    let (fake, md) = registering();
    let (gate, key) = (gate(&md), md.unpack(&[1]).expect("a key"));
    let memory = || fake.words.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let before = memory();
    let data = [5; 40];
    for (offset, length, put, get) in [
        (0, 16, true, true),
        (0, 17, true, false),
        (3, 13, true, true),
        (0, 24, true, false),
        (0, 25, false, false),
        (1, 24, false, false),
        (23, 1, true, false),
        (24, 1, false, false),
        (24, 0, false, false),
        (-1, 1, false, false),
        (-8, 24, false, false),
    ] {
        let address = BASE.wrapping_add_signed(offset);
        for (word, value) in fake.words.iter().zip(before) {
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        let mut buffer = vec![0; length];
        assert_eq!(key.get_bytes(&gate, address, &mut buffer).is_some(), get, "{length} bytes at {offset}");
        let mut expected = before;
        let range = usize::try_from(offset).unwrap_or(0)..;
        assert!(!get || buffer == before.as_flattened()[range.clone()][..length]);
        assert_eq!(
            key.put_bytes(&gate, address, &data[..length]).is_some(),
            put,
            "{length} bytes at {offset}"
        );
        if put {
            expected.as_flattened_mut()[range][..length].fill(5);
        }
        assert_eq!(memory(), expected, "{length} bytes at {offset}");
    }
    for address in [0, u64::MAX - 1, u64::MAX] {
        assert_eq!(key.put_bytes(&gate, address, &[1; 2]), None, "{address:#x}");
    }
}

#[test]
fn no_byte_is_accessed_through_a_key_without_a_window() {
    let (fake, md) = registering();
    fake.window.store(UCT_ERR_UNSUPPORTED, Ordering::Relaxed);
    let key = md.unpack(&[1]).expect("a key");
    let gate = gate(&md);
    gate.revoke();
    for length in [0, 1, 8] {
        assert_eq!(key.put_bytes(&gate, 0, &[1; 8][..length]), None, "{length}");
    }
}

#[test]
fn an_atomic_of_four_bytes_changes_its_half_of_a_word() {
    let (fake, md) = registering();
    let (gate, key) = (gate(&md), md.unpack(&[1]).expect("a key"));
    let set = |offset, value| {
        key.atomic_half(&gate, BASE + offset, |half| half.swap(value, ucs::sync::fixed::Ordering::Relaxed))
    };
    assert_eq!((set(0, 0x5555), set(4, 0x7777)), (Some(u64::to_ne_bytes(10)[0].into()), Some(0)));
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&0x5555_u32.to_ne_bytes());
    bytes[4..].copy_from_slice(&0x7777_u32.to_ne_bytes());
    assert_eq!(fake.words[0].load(Ordering::Relaxed).to_ne_bytes(), bytes);
    for offset in [1, 2, 6, 8, 12] {
        assert_eq!(set(offset, 1), None, "{offset}");
    }
    assert_eq!(fake.words[1].load(Ordering::Relaxed), 11);
}

#[test]
fn the_host_accesses_nothing_through_a_gate_that_is_closed_revoked_or_anothers() {
    let (fake, md) = registering();
    let (_other_fake, other) = registering();
    let key = md.unpack(&[1]).expect("a key");
    let is_accessed = |gate: &Gate| {
        let word = key.get_word(gate, BASE, |_| ()).is_some();
        assert_eq!(key.get_bytes(gate, BASE, &mut [0; 3]).is_some(), word);
        assert_eq!(key.put_bytes(gate, BASE, &[1; 3]).is_some(), word);
        word
    };
    let own = Gate::new(&md);
    assert!(!is_accessed(&own), "closed at first");
    set_open(&own, 1);
    assert!(is_accessed(&own));
    set_open(&own, 0);
    assert!(!is_accessed(&own), "closed again");
    set_open(&own, 1);
    assert!(!is_accessed(&gate(&other)));
    fake.live.store(LIVE + 1, Ordering::Relaxed);
    assert!(!is_accessed(&own), "the registration has ended");
    fake.live.store(LIVE, Ordering::Relaxed);
    assert!(is_accessed(&own));
    own.revoke();
    assert!(!is_accessed(&own));
}

#[test]
fn an_access_of_the_hosts_is_counted_while_it_lasts() {
    let (_fake, md) = registering();
    let (gate, key) = (gate(&md), md.unpack(&[1]).expect("a key"));
    // SAFETY: the counter lives as long as the gate.
    let count = || unsafe { *gate.accesses() };
    assert_eq!(count(), 0);
    for round in 0..3 {
        let inside = key.put_word(&gate, BASE, |_| count()).expect("it may be written");
        assert_eq!((inside, count()), (2 * round + 1, 2 * round + 2));
    }
    let before = count();
    key.put_bytes(&gate, BASE, &[1; 3]).expect("they may be written");
    assert_eq!(count(), before + 2);
    key.get_bytes(&gate, BASE, &mut [0; 3]).expect("they may be read");
    assert_eq!(count(), before + 4);
}

#[test]
fn a_window_that_may_come_is_asked_for_again_until_it_is_there_and_another_is_not() {
    for (first, asked) in [(UCT_ERR_NO_RESOURCE, 3), (UCT_ERR_UNSUPPORTED, 1)] {
        let (fake, md) = registering();
        fake.window.store(first, Ordering::Relaxed);
        let (gate, key) = (gate(&md), md.unpack(&[1]).expect("a key"));
        let is_accessed = || key.get_word(&gate, BASE, |_| ()).is_some();
        key.look_again();
        assert!(!is_accessed());
        fake.window.store(UCT_OK, Ordering::Relaxed);
        assert!(!is_accessed(), "nobody has asked again");
        for _ in 0..3 {
            key.look_again();
            assert_eq!(is_accessed(), first == UCT_ERR_NO_RESOURCE);
        }
        assert_eq!(fake.windows.load(Ordering::Relaxed), asked);
    }
}

#[test]
fn a_part_of_memory_is_copied_from_where_it_begins_and_block_behind_block() {
    let (_, md) = registering();
    let memory = md.register((0..20).collect(), Access::ALL).expect("memory");
    let part = memory.slice(3..);
    let blocks = part.clone().strided(2, 5, 3);
    assert_eq!((part.to_vec(), part.address()), ((3..20).collect(), Some(memory.address() + 3)));
    assert_eq!((part.len(), part.is_empty()), (17, false));
    assert_eq!((blocks.to_vec(), blocks.address()), (vec![3, 4, 8, 9, 13, 14], None));
    assert_eq!((blocks.len(), blocks.is_empty()), (6, false));
    let nothing = memory.slice(20..);
    assert_eq!((nothing.to_vec(), nothing.is_empty()), (vec![], true));
}

#[test]
fn what_is_asked_about_memory_names_its_registration_and_the_bytes_that_are_meant() {
    let (fake, md) = registering();
    let [other, memory] =
        [16, 8].map(|length| md.register(vec![7; length], Access::REMOTE_GET).expect("memory"));
    let handles = [crate::raw::memh(&memory), memory.slice(3..).iov().memh];
    assert_eq!(handles.map(|handle| handle.addr()), [2; 2]);
    assert_eq!([&other, &memory].map(|memory| memory.packed_key()), [Ok(vec![1]), Ok(vec![2])]);
    let [before, start] = [&other, &memory].map(|memory| memory.as_ptr().addr());
    assert_eq!([memory.advise(3, 4, true), memory.advise(0, 8, false)], [Ok(()); 2]);
    drop((memory, other));
    let flags = Access::REMOTE_GET.bits();
    let expected = [
        ("register", 1, before, 16, flags),
        ("register", 2, start, 8, flags),
        ("advise", 2, start + 3, 4, UCT_ADVICE_WILLNEED),
        ("advise", 2, start, 8, UCT_ADVICE_NORMAL),
        ("deregister", 2, 0, 0, 0),
        ("deregister", 1, 0, 0, 0),
    ];
    assert_eq!(*fake.asked.lock().expect("nobody panics meanwhile"), expected);
}

/// How many registrations each of the domains has.
fn registrations(fakes: [&Fake; 2]) -> [u32; 2] {
    fakes.map(|fake| fake.registered.load(Ordering::Relaxed))
}

#[test]
fn memory_is_registered_with_a_further_domain_once_and_when_that_is_needed() {
    let ((first, md), (second, other)) = (registering(), registering());
    let memory = md.register(vec![7; 8], Access::REMOTE_GET).expect("memory");
    let memory = MultiDomainMemory::new(memory);
    assert_eq!((registrations([first, second]), memory.domains().len()), ([1, 0], 1));
    for _ in 0..2 {
        let same = memory.for_domain(&md).expect("the first domain");
        let also = memory.for_domain(&other).expect("another domain");
        for of_domain in [&same, &also] {
            assert_eq!((of_domain.address(), of_domain.len()), (memory.memory().address(), 8));
            assert_eq!((of_domain.to_vec(), of_domain.access()), (vec![7; 8], Access::REMOTE_GET));
        }
        assert!(same.domain().is_same(&md) && also.domain().is_same(&other));
        assert_eq!((registrations([first, second]), memory.domains().len()), ([1, 1], 2));
    }
    assert!(
        memory.for_domain(&other).expect("memory").into_bytes().is_err(),
        "the bytes are the first one's"
    );
}

#[test]
fn each_registration_ends_with_its_last_user_and_the_first_one_after_all_others() {
    let ((first, md), (second, other)) = (registering(), registering());
    let offer = || {
        let memory = MultiDomainMemory::new(md.register(vec![7; 8], Access::ALL).expect("memory"));
        let also = memory.for_domain(&other).expect("another domain");
        (memory, also)
    };
    let (memory, also) = offer();
    drop(also);
    assert_eq!(registrations([first, second]), [1, 1], "the owner holds both");
    let clone = memory.clone();
    drop(memory);
    assert_eq!(registrations([first, second]), [1, 1], "a clone of the owner holds both");
    drop(clone);
    assert_eq!(registrations([first, second]), [0, 0]);

    let (memory, also) = offer();
    let slice = also.slice(2..4);
    drop((memory, also));
    assert_eq!(registrations([first, second]), [1, 1], "a slice holds its registration and the bytes");
    drop(slice);
    assert_eq!(registrations([first, second]), [0, 0]);

    let (memory, also) = offer();
    let of_first = memory.memory().clone();
    drop((memory, also));
    assert_eq!(registrations([first, second]), [1, 1], "a handle of the first domain is one of all");
    assert_eq!(of_first.into_bytes().expect("nothing else holds it"), [7; 8]);
    assert_eq!(registrations([first, second]), [0, 0]);
}

#[test]
fn bytes_whose_registration_does_not_end_in_a_further_domain_are_never_freed() {
    let ((first, md), (second, other)) = (registering(), registering());
    let memory = MultiDomainMemory::new(md.register(vec![7; 8], Access::ALL).expect("memory"));
    let bytes = memory.memory().as_ptr();
    drop(memory.for_domain(&other).expect("another domain"));
    second.deregister.store(UCT_ERR_BUSY, Ordering::Relaxed);
    drop(memory);
    assert_eq!(registrations([first, second]), [1, 1]);
    // SAFETY: the bytes are there for ever, and this test's alone.
    assert_eq!(unsafe { bytes.read() }, 7);
}

#[test]
fn keys_that_a_peer_would_not_read_are_not_packed() {
    let (first, md) = registering();
    let memory = MultiDomainMemory::new(md.register(vec![7; 8], Access::ALL).expect("memory"));
    let (_fake, fails) = open(UCT_MD_REG | UCT_MD_NEED_RKEY, 2000, heap());
    let refused = memory.packed_keys_for([&fails]).expect_err("its keys are too long");
    assert_eq!((refused.status, refused.operation), (Error::INVALID_PARAM, "pack a key"));
    assert!(refused.reason.contains("2000 bytes, at most 1024"), "{refused}");
    let refused = memory.packed_keys_for([]).expect_err("no domain");
    assert!(refused.reason.contains("0 keys"), "{refused}");
    let (_second, other) = registering();
    let refused = memory.packed_keys_for([&md, &other]).expect_err("two domains of one name");
    assert!(refused.reason.contains("two keys for fake/fake"), "{refused}");
    let packed = memory.packed_keys_for([&md, &md]).expect("one domain, named twice");
    let domains = PackedKeys::parse(&packed).expect("a list").domains().collect::<Vec<_>>();
    assert_eq!(domains, ["fake/fake"]);
    assert_eq!(first.registered.load(Ordering::Relaxed), 1);
}

#[test]
fn the_key_of_the_same_component_is_unpacked_and_among_several_the_one_that_is_named() {
    let (_fake, md) = registering();
    let list = |keys: &[(&str, u8)]| {
        let mut packed = b"UCTK\x01".to_vec();
        packed.push(keys.len() as u8);
        for (name, key) in keys {
            packed.extend([name.len() as u8, 1, 0]);
            packed.extend(name.bytes().chain([*key]));
        }
        packed
    };
    let number = |key: Result<RemoteKey, Refused>| key.expect("a key").raw().addr();
    let packed = list(&[("other/fake", 1), ("fake/there", 2), ("fak/e", 3)]);
    let keys = PackedKeys::parse(&packed).expect("a list");
    assert_eq!((number(keys.unpack(&md)), number(keys.unpack_of(&md, "fake/there"))), (2, 2));
    let refused = keys.unpack_of(&md, "fake/fake").expect_err("there is none");
    assert_eq!((refused.status, refused.subject.as_str()), (Error::NO_ELEM, "fake/fake"));

    let packed = list(&[("fake/one", 1), ("fake/two", 2), ("other/one", 3)]);
    let keys = PackedKeys::parse(&packed).expect("a list");
    let refused = keys.unpack(&md).expect_err("there are two");
    assert_eq!(refused.status, Error::INVALID_PARAM);
    assert!(refused.reason.contains("fake/one, fake/two, other/one"), "{refused}");
    assert_eq!(["fake/one", "fake/two"].map(|name| number(keys.unpack_of(&md, name))), [1, 2]);

    let packed = list(&[("other/one", 1), ("third/one", 2)]);
    let refused = PackedKeys::parse(&packed).expect("a list").unpack(&md).expect_err("there is none");
    assert_eq!(refused.status, Error::NO_ELEM);
    assert!(
        refused.reason.contains("no key is for fake, the keys are for other/one, third/one"),
        "{refused}"
    );
}

#[test]
fn a_child_of_a_fork_is_refused_and_leaves_what_is_its_parents_alone() {
    let (fake, md) = registering();
    let memory = md.register(vec![7; 8], Access::ALL).expect("memory");
    let pool = md.pool(64, 64, Access::ALL).expect("a pool");
    let (other_fake, other) = registering();
    let shared = MultiDomainMemory::new(md.register(vec![7; 8], Access::ALL).expect("memory"));
    drop(shared.for_domain(&other).expect("another domain"));
    assert!(memory.packed_key().is_ok() && memory.advise(0, 8, true).is_ok());
    drop(pool.take(8).expect("a piece"));
    let before = registrations([fake, other_fake]);
    // SAFETY: the child allocates and compares, and ends itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it ends a child that hangs.
        unsafe { libc::alarm(20) };
        let refused = |refused: Option<Refused>, words| {
            refused.is_some_and(|it| (it.operation, it.status) == (words, Error::INVALID_PARAM))
        };
        let checks = [
            refused(md.allocate(8, Access::ALL, MemoryKind::Host).err(), "allocate memory"),
            matches!(md.try_register(vec![5; 3], Access::ALL), Err((it, bytes))
                if it.operation == "register memory" && bytes == [5; 3]),
            refused(md.unpack(&[1]).err(), "unpack a remote key"),
            refused(pool.take(8).err(), "take a piece of registered memory"),
            memory.packed_key() == Err(Error::INVALID_PARAM),
            memory.advise(0, 8, true) == Err(Error::INVALID_PARAM),
            memory.into_bytes().is_err(),
            refused(shared.for_domain(&other).err(), "register memory"),
            refused(shared.packed_keys().err(), "pack a key"),
            {
                drop(shared);
                registrations([fake, other_fake]) == before
            },
            {
                drop((pool, md));
                fake.closed.load(Ordering::Relaxed) == 0
            },
        ];
        let failed = checks.iter().position(|check| !check).map_or(0, |index| index as i32 + 1);
        // SAFETY: nothing of the parent's runs in the child.
        unsafe { libc::_exit(failed) };
    }
    let mut status = 0;
    // SAFETY: the child is this test's, and the place of the answer is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the number of the check that failed");
    drop((memory, pool, shared, md));
    assert_eq!(registrations([fake, other_fake]), [0, 0]);
    assert_eq!(fake.closed.load(Ordering::Relaxed), 1, "the parent's is as before");
}
