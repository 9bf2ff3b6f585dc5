//! Alignment, quotas, growth, order, hooks, cookies, and elements that do not come back.

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use proptest::prelude::*;
use ucs::datastruct::mpool::{
    ChunkAllocator, ChunkMemory, ElementHooks, HeapChunks, Mpool, MpoolError, MpoolParams, ObjectPool,
};

use crate::page::printed;

fn heap_pool(params: MpoolParams) -> Mpool {
    Mpool::new(params, HeapChunks, ()).unwrap()
}

fn put(pool: &Mpool, element: NonNull<u8>) {
    // SAFETY: the tests put what they got, once.
    unsafe { pool.put(element) };
}

fn fill(element: NonNull<u8>, byte: u8, size: usize) {
    // SAFETY: the element is the test's, and `size` bytes long.
    unsafe { element.write_bytes(byte, size) };
}

fn holds(element: NonNull<u8>, byte: u8, size: usize) -> bool {
    // SAFETY: the element is the test's, and `size` bytes long, all of them written.
    unsafe { std::slice::from_raw_parts(element.as_ptr(), size) }.iter().all(|found| *found == byte)
}

/// What a [`Recorder`] saw.
#[derive(Default)]
struct Record {
    asked: RefCell<Vec<usize>>,
    live: Cell<usize>,
    initialized: RefCell<HashSet<usize>>,
    cleaned: RefCell<HashSet<usize>>,
    fails: Cell<bool>,
}

/// Chunks that begin at odd addresses, are longer than asked for by `surplus`, and have their number for a cookie.
struct Recorder {
    record: Rc<Record>,
    surplus: usize,
    skew: usize,
}

// SAFETY: the memory is the global allocator's, the caller's alone.
unsafe impl ChunkAllocator for Recorder {
    fn alloc(&self, min_len: usize) -> ucs::Result<ChunkMemory> {
        if self.record.fails.get() {
            return Err(ucs::Error::NO_MEMORY);
        }
        let len = min_len + self.surplus;
        let layout = Layout::from_size_align(len + self.skew, 4096).unwrap();
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc::alloc(layout) }).unwrap();
        // SAFETY: the skew is inside.
        let ptr = unsafe { base.add(self.skew) };
        self.record.asked.borrow_mut().push(min_len);
        self.record.live.set(self.record.live.get() + 1);
        let number = self.record.asked.borrow().len();
        Ok(ChunkMemory { ptr, len, cookie: ptr::without_provenance_mut(number) })
    }

    unsafe fn free(&self, chunk: ChunkMemory) {
        self.record.live.set(self.record.live.get() - 1);
        let layout = Layout::from_size_align(chunk.len + self.skew, 4096).unwrap();
        // SAFETY: `alloc` added the skew.
        let base = unsafe { chunk.ptr.sub(self.skew) };
        // SAFETY: `alloc` allocated it with this layout.
        unsafe { alloc::dealloc(base.as_ptr(), layout) };
    }
}

/// Hooks that write into a record.
struct Recording(Rc<Record>);

impl ElementHooks for Recording {
    unsafe fn init(&self, element: NonNull<u8>, cookie: *mut c_void) {
        assert!(!cookie.is_null());
        assert!(self.0.initialized.borrow_mut().insert(element.addr().get()), "initialized twice");
        // SAFETY: elements of the tests that use this have at least one byte.
        unsafe { element.write(0x5a) };
    }

    unsafe fn cleanup(&self, element: NonNull<u8>) {
        assert!(self.0.initialized.borrow().contains(&element.addr().get()), "never initialized");
        assert!(self.0.cleaned.borrow_mut().insert(element.addr().get()), "cleaned twice");
    }
}

fn recorded(params: MpoolParams, surplus: usize, skew: usize) -> (Mpool, Rc<Record>) {
    let record = Rc::new(Record::default());
    let allocator = Recorder { record: record.clone(), surplus, skew };
    (Mpool::new(params, allocator, Recording(record.clone())).unwrap(), record)
}

#[test]
fn the_byte_at_the_offset_is_aligned_and_elements_do_not_overlap() {
    for alignment in [1, 2, 8, 64, 128, 4096] {
        for (elem_size, align_offset) in
            [(1, 0), (1, 1), (8, 0), (30, 30), (100, 13), (64, 16), (if cfg!(miri) { 80 } else { 8192 }, 24)]
        {
            for skew in [0, 1, 8, 63] {
                let params = MpoolParams {
                    alignment,
                    align_offset,
                    elems_per_chunk: 5,
                    max_elems: 12,
                    ..MpoolParams::new("alignment", elem_size)
                };
                let (pool, _) = recorded(params, 0, skew);
                let elements: Vec<_> = std::iter::from_fn(|| pool.get()).collect();
                assert_eq!(elements.len(), 12);
                for (byte, element) in (0..).zip(&elements) {
                    assert_eq!((element.addr().get() + align_offset) % alignment, 0);
                    fill(*element, byte, elem_size);
                }
                for (byte, element) in (0..).zip(&elements) {
                    assert!(holds(*element, byte, elem_size));
                }
                elements.into_iter().for_each(|element| put(&pool, element));
            }
        }
    }
}

#[test]
fn the_element_put_last_comes_first() {
    let pool = heap_pool(MpoolParams::new("lifo", 32));
    let elements: Vec<_> = (0..10).map(|_| pool.get().unwrap()).collect();
    // A new chunk is handed out in the order of its addresses.
    assert!(elements.is_sorted());
    for element in &elements {
        put(&pool, *element);
    }
    for element in elements.iter().rev() {
        assert_eq!(pool.get(), Some(*element));
    }
    elements.into_iter().for_each(|element| put(&pool, element));
}

#[test]
fn the_quota_holds_whatever_the_chunks() {
    for (elems_per_chunk, grow_factor, max_elems) in
        [(1, 1.0, 1), (8, 1.0, 20), (128, 1.0, 20), (4, 2.0, 101)]
    {
        for surplus in [0, 10_000] {
            let params =
                MpoolParams { elems_per_chunk, grow_factor, max_elems, ..MpoolParams::new("quota", 100) };
            let (pool, _) = recorded(params, surplus, 0);
            let elements: Vec<_> = std::iter::from_fn(|| pool.get()).collect();
            assert_eq!(elements.len(), max_elems as usize);
            assert_eq!((pool.capacity(), pool.available(), pool.outstanding()), (max_elems, 0, max_elems));
            put(&pool, elements[0]);
            assert_eq!(pool.get(), Some(elements[0]));
            assert_eq!(pool.get(), None);
            assert!(matches!(pool.reserve(1), Err(MpoolError::Quota { .. })));
            elements.into_iter().for_each(|element| put(&pool, element));
        }
    }
}

#[test]
fn each_chunk_grows_by_the_factor() {
    let chunk_sizes = |grow_factor, max_elems| {
        let params =
            MpoolParams { elems_per_chunk: 10, grow_factor, max_elems, ..MpoolParams::new("growth", 64) };
        let (pool, _) = recorded(params, 0, 0);
        let mut sizes = Vec::new();
        while pool.reserve(pool.available() + 1).is_ok() {
            sizes.push(pool.capacity() - sizes.iter().sum::<u32>());
        }
        sizes
    };
    assert_eq!(chunk_sizes(1.0, 35), [10, 10, 10, 5]);
    assert_eq!(chunk_sizes(2.0, 150), [10, 20, 40, 80]);
    assert_eq!(chunk_sizes(1.5, 100), [10, 15, 23, 35, 17]);
}

#[test]
fn a_growing_chunk_stays_below_its_limit() {
    let params = MpoolParams {
        elems_per_chunk: 4,
        grow_factor: 16.0,
        max_elems: 2000,
        max_chunk_size: 10_000,
        ..MpoolParams::new("limit", 64)
    };
    let (pool, record) = recorded(params, 0, 0);
    pool.reserve(2000).unwrap();
    assert_eq!(pool.capacity(), 2000);
    assert!(record.asked.borrow().iter().all(|asked| *asked <= 10_000));
    assert!(record.asked.borrow().iter().any(|asked| *asked > 9_000));
}

#[test]
fn what_an_allocator_gives_beyond_the_request_is_used() {
    let params = MpoolParams { elems_per_chunk: 2, ..MpoolParams::new("surplus", 64) };
    let (pool, record) = recorded(params, 128 * 50, 0);
    pool.reserve(1).unwrap();
    assert_eq!(pool.capacity(), 52);
    assert_eq!(record.live.get(), 1);
}

#[test]
fn reserve_allocates_ahead_and_get_does_not_then() {
    let (pool, record) = recorded(MpoolParams { elems_per_chunk: 16, ..MpoolParams::new("ahead", 64) }, 0, 0);
    assert_eq!((pool.capacity(), pool.chunks()), (0, 0));
    pool.reserve(40).unwrap();
    assert_eq!((pool.capacity(), pool.chunks()), (48, 3));
    let elements: Vec<_> = (0..48).map(|_| pool.get().unwrap()).collect();
    assert_eq!(record.asked.borrow().len(), 3);
    elements.into_iter().for_each(|element| put(&pool, element));
}

#[test]
fn hooks_see_each_element_once() {
    let params = MpoolParams { elems_per_chunk: 3, max_elems: 10, ..MpoolParams::new("hooks", 24) };
    let (pool, record) = recorded(params, 0, 0);
    for _ in 0..5 {
        let elements: Vec<_> = std::iter::from_fn(|| pool.get()).collect();
        assert!(elements.iter().all(|element| holds(*element, 0x5a, 1)));
        elements.into_iter().for_each(|element| put(&pool, element));
    }
    assert_eq!(record.initialized.borrow().len(), 10);
    drop(pool);
    assert_eq!(*record.cleaned.borrow(), *record.initialized.borrow());
    assert_eq!(record.live.get(), 0);
}

#[test]
fn every_element_finds_the_cookie_of_its_chunk() {
    let params =
        MpoolParams { elems_per_chunk: 4, max_elems: 16, align_offset: 7, ..MpoolParams::new("cookie", 24) };
    let (pool, _) = recorded(params, 0, 3);
    let elements: Vec<_> = std::iter::from_fn(|| pool.get()).collect();
    for (index, element) in elements.iter().enumerate() {
        fill(*element, 0xff, 24);
        // SAFETY: it came from a pool.
        assert_eq!(unsafe { Mpool::cookie(*element) }.addr(), index / 4 + 1);
    }
    elements.into_iter().for_each(|element| put(&pool, element));
}

#[test]
fn a_pool_whose_allocator_fails_gives_nothing_and_recovers() {
    let (pool, record) = recorded(MpoolParams::new("starved", 24), 0, 0);
    record.fails.set(true);
    assert_eq!(pool.get(), None);
    assert_eq!(pool.get(), None);
    let error = pool.reserve(1).unwrap_err();
    assert!(matches!(error, MpoolError::Allocation { error: ucs::Error::NO_MEMORY, .. }));
    assert!(error.to_string().contains("starved"));
    record.fails.set(false);
    put(&pool, pool.get().unwrap());
}

#[test]
fn a_pool_logs_its_first_failure_until_it_recovers_and_never_its_quota() {
    let params = MpoolParams { elems_per_chunk: 1, max_elems: 2, ..MpoolParams::new("starved", 24) };
    let (pool, record) = recorded(params, 0, 0);
    let failures = |count: usize| {
        printed("error", || (0..count).for_each(|_| assert_eq!(pool.get(), None))).lines().count()
    };
    record.fails.set(true);
    assert_eq!((failures(1), failures(2)), (1, 0));
    record.fails.set(false);
    let first = pool.get().unwrap();
    record.fails.set(true);
    assert_eq!((failures(1), failures(2)), (1, 0));
    record.fails.set(false);
    let second = pool.get().unwrap();
    assert_eq!(failures(2), 0, "a quota is no failure");
    [first, second].into_iter().for_each(|element| put(&pool, element));
}

#[test]
fn what_is_free_is_given_without_a_new_chunk() {
    let (pool, record) = recorded(MpoolParams { elems_per_chunk: 2, ..MpoolParams::new("lazy", 24) }, 0, 0);
    assert_eq!(pool.get_free(), None);
    assert_eq!((pool.chunks(), record.asked.borrow().len()), (0, 0));
    pool.reserve(1).unwrap();
    let elements = [pool.get_free().unwrap(), pool.get_free().unwrap()];
    assert_eq!((pool.get_free(), pool.chunks()), (None, 1));
    put(&pool, elements[0]);
    assert_eq!(pool.get_free(), Some(elements[0]));
    elements.into_iter().for_each(|element| put(&pool, element));
}

#[test]
fn a_chunk_that_is_too_short_is_refused_and_freed() {
    struct Short(Rc<Cell<i32>>);
    // SAFETY: the memory is the global allocator's.
    unsafe impl ChunkAllocator for Short {
        fn alloc(&self, min_len: usize) -> ucs::Result<ChunkMemory> {
            self.0.set(self.0.get() + 1);
            HeapChunks.alloc(min_len - 1)
        }
        unsafe fn free(&self, chunk: ChunkMemory) {
            self.0.set(self.0.get() - 1);
            // SAFETY: it came from there.
            unsafe { HeapChunks.free(chunk) };
        }
    }
    let live = Rc::new(Cell::new(0));
    let pool = Mpool::new(MpoolParams::new("short", 24), Short(live.clone()), ()).unwrap();
    assert!(matches!(pool.reserve(1), Err(MpoolError::ShortChunk { .. })));
    assert_eq!((pool.get(), live.get()), (None, 0));
}

#[test]
fn parameters_that_no_pool_can_have_are_refused_by_name() {
    let good = || MpoolParams::new("picky", 64);
    let cases = [
        (MpoolParams { elem_size: 0, ..good() }, "elem_size is 0"),
        (MpoolParams { elem_size: usize::MAX - 8, ..good() }, "elem_size is"),
        (MpoolParams { alignment: 0, ..good() }, "alignment is 0, expected a power of two"),
        (MpoolParams { alignment: 48, ..good() }, "alignment is 48"),
        (MpoolParams { align_offset: 65, ..good() }, "align_offset is 65, expected 0 to elem_size (64)"),
        (MpoolParams { elems_per_chunk: 0, ..good() }, "elems_per_chunk is 0"),
        (MpoolParams { max_elems: 0, ..good() }, "max_elems is 0"),
        (MpoolParams { grow_factor: 0.9, ..good() }, "grow_factor is 0.9"),
        (MpoolParams { grow_factor: f64::NAN, ..good() }, "grow_factor is NaN"),
        (MpoolParams { grow_factor: f64::INFINITY, ..good() }, "grow_factor is inf"),
        (MpoolParams { max_chunk_size: 100, ..good() }, "max_chunk_size is 100"),
        (MpoolParams { alignment: 1 << 40, ..good() }, "max_chunk_size is"),
    ];
    for (params, expected) in cases {
        let error = Mpool::new(params, HeapChunks, ()).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("memory pool picky: ") && message.contains(expected), "{message}");
        assert_eq!(ucs::Error::from(error), ucs::Error::INVALID_PARAM);
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_debug_build_notices_an_element_put_twice() {
    let pool = heap_pool(MpoolParams::new("twice", 64));
    let element = pool.get().unwrap();
    put(&pool, element);
    let again = std::panic::AssertUnwindSafe(|| put(&pool, element));
    let panic = std::panic::catch_unwind(again).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("mpool twice"));
}

#[test]
fn objects_are_made_once_and_keep_what_their_last_user_left() {
    let made = Rc::new(Cell::new(0));
    let counter = made.clone();
    let make = move || {
        counter.set(counter.get() + 1);
        Vec::<u8>::with_capacity(100)
    };
    let params = MpoolParams { elems_per_chunk: 4, max_elems: 4, ..ObjectPool::<Vec<u8>>::params("objects") };
    let pool = ObjectPool::new(params, make).unwrap();
    let mut first = pool.get().unwrap();
    first.push(42);
    drop(first);
    assert_eq!(*pool.get().unwrap(), [42]);
    let all: Vec<_> = std::iter::from_fn(|| pool.get()).collect();
    assert_eq!((all.len(), made.get()), (4, 4));
    assert!(pool.get().is_none());
    drop(all);
    let raw = pool.get().unwrap().into_raw();
    assert_eq!(pool.mpool().outstanding(), 1);
    // SAFETY: it came from `into_raw` of this pool.
    drop(unsafe { pool.from_raw(raw) });
    assert_eq!(pool.mpool().outstanding(), 0);
}

#[test]
fn objects_are_dropped_with_their_pool() {
    let alive = Rc::new(());
    let held = alive.clone();
    let pool = ObjectPool::new(ObjectPool::<Rc<()>>::params("dropped"), move || held.clone()).unwrap();
    drop(pool.get().unwrap());
    assert_eq!(Rc::strong_count(&alive), 2 + 128);
    drop(pool);
    assert_eq!(Rc::strong_count(&alive), 1);
}

#[test]
fn a_pool_of_objects_refuses_elements_that_cannot_hold_them() {
    let good = || ObjectPool::<u64>::params("objects");
    for params in [
        MpoolParams { elem_size: 7, ..good() },
        MpoolParams { alignment: 4, ..good() },
        MpoolParams { align_offset: 4, ..good() },
    ] {
        assert!(matches!(ObjectPool::new(params, || 0u64), Err(MpoolError::Parameter { .. })));
    }
}

#[test]
fn an_init_hook_that_asks_its_own_pool_gets_nothing() {
    type Own = Rc<RefCell<Option<Rc<ObjectPool<u64>>>>>;
    let own: Own = Rc::default();
    let again = own.clone();
    let make = move || {
        let pool = again.borrow().clone().unwrap();
        assert!(pool.get().is_none());
        assert!(matches!(pool.mpool().reserve(1), Err(MpoolError::Reentered { .. })));
        7
    };
    let pool = Rc::new(ObjectPool::new(ObjectPool::<u64>::params("own"), make).unwrap());
    *own.borrow_mut() = Some(pool.clone());
    assert_eq!(*pool.get().unwrap(), 7);
    own.take();
}

/// What the property test does to a pool and to its model.
#[derive(Clone, Debug)]
enum Step {
    Get,
    Put(usize),
    Reserve(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => Just(Step::Get),
        4 => (0..100usize).prop_map(Step::Put),
        1 => (0..20u32).prop_map(Step::Reserve),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, ..crate::property::config() })]

    #[test]
    fn it_does_what_a_stack_of_buffers_does(
        steps in proptest::collection::vec(step(), 1..120),
        elem_size in 1..200usize,
        alignment_log in 0..9u32,
        offset in 0..200usize,
        elems_per_chunk in 1..20u32,
        max_elems in 1..60u32,
        grow_factor in 1.0..4.0f64,
        surplus in 0..1000usize,
        skew in 0..64usize,
    ) {
        let alignment = 1 << alignment_log;
        let align_offset = offset.min(elem_size);
        let params = MpoolParams {
            alignment, align_offset, elems_per_chunk, max_elems, grow_factor,
            ..MpoolParams::new("model", elem_size)
        };
        let (pool, record) = recorded(params, surplus, skew);
        let mut out: Vec<(NonNull<u8>, u8)> = Vec::new();
        let mut home: Vec<NonNull<u8>> = Vec::new();
        let mut all: HashMap<NonNull<u8>, ()> = HashMap::new();
        for (byte, step) in (0..=255u8).cycle().zip(steps) {
            match step {
                Step::Get => match pool.get() {
                    None => prop_assert_eq!(out.len(), max_elems as usize),
                    Some(element) => {
                        if let Some(expected) = home.pop() {
                            prop_assert_eq!(element, expected);
                        } else {
                            prop_assert!(all.insert(element, ()).is_none());
                        }
                        prop_assert_eq!((element.addr().get() + align_offset) % alignment, 0);
                        fill(element, byte, elem_size);
                        out.push((element, byte));
                    }
                },
                Step::Put(which) => {
                    if !out.is_empty() {
                        let (element, byte) = out.swap_remove(which % out.len());
                        prop_assert!(holds(element, byte, elem_size));
                        put(&pool, element);
                        home.push(element);
                    }
                }
                Step::Reserve(count) => {
                    let had = pool.available();
                    let result = pool.reserve(count);
                    prop_assert_eq!(result.is_ok(), pool.available() >= count);
                    if pool.available() > had {
                        // New elements come before those that were put back.
                        home.clear();
                        all.clear();
                        all.extend(out.iter().map(|(element, _)| (*element, ())));
                    }
                }
            }
            prop_assert!(pool.capacity() <= max_elems);
            prop_assert_eq!(pool.outstanding() as usize, out.len());
        }
        for (element, byte) in out {
            prop_assert!(holds(element, byte, elem_size));
            put(&pool, element);
        }
        drop(pool);
        prop_assert_eq!(record.live.get(), 0);
        prop_assert_eq!(record.cleaned.borrow().len(), record.initialized.borrow().len());
    }
}
