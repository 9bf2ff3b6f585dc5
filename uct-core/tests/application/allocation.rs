//! Memory is allocated by the first method of `alloc_prio` that works, in its order; a failure contains the reason of each.

use uct_core::configuration::Sources;
use uct_core::{Access, Context, Iface, Memory, MemoryKind, Refused, Worker};

/// Far too little for a huge page, so that both methods with huge pages refuse on every system.
const LENGTH: usize = 100;

fn allocate(order: &str) -> Result<Memory, Refused> {
    let sources = Sources::default().set("alloc_prio", order).set("modules", "self");
    let context = Context::builder().sources(sources).build().expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let iface = worker.open("self", "memory").expect("an interface");
    iface.memory_domain().allocate(LENGTH, Access::ALL, MemoryKind::Host)
}

#[test]
fn the_first_method_that_works_is_taken() {
    // The heap gives what was asked for, pages are rounded up.
    for (order, whole_pages) in [
        ("heap,mmap", false),
        ("mmap,heap", true),
        ("huge,heap", false),
        ("thp,mmap", true),
        ("md,heap", true),
    ] {
        let memory = allocate(order).unwrap_or_else(|refused| panic!("{order}: {refused}"));
        assert_eq!(memory.len().is_multiple_of(4096), whole_pages, "{order}: {} bytes", memory.len());
        assert_eq!(whole_pages, memory.len() != LENGTH, "{order}: {} bytes", memory.len());
        memory.write(0, &[1; LENGTH]);
    }
}

#[test]
fn when_none_works_each_says_why_in_their_order() {
    let words = |order| allocate(order).expect_err("less than half of a huge page").to_string();
    for (order, first, second) in [("huge,thp", " as huge", " as thp"), ("thp,huge", " as thp", " as huge")] {
        let words = words(order);
        let (first, second) = (words.find(first), words.find(second));
        assert!(first.is_some() && first < second, "{order}: {words}");
    }
    let words = words("");
    assert!(words.contains("alloc_prio names no method"), "{words}");
}

#[test]
fn a_method_that_is_none_is_told_with_those_there_are() {
    let sources = Sources::default().set("alloc_prio", "md,stack");
    let words = Context::builder().sources(sources).build().expect_err("no such method").to_string();
    for word in ["alloc_prio", "\"stack\"", "thp"] {
        assert!(words.contains(word), "{words}");
    }
}

/// The domain of an interface, with these keys.
fn iface((transport, device): (&str, &str), keys: &[(&str, &str)]) -> Iface {
    let sources = Sources::default().set("modules", "self,shm,tcp").set("net_devices", "lo");
    let sources = keys.iter().fold(sources, |sources, (key, value)| sources.set(*key, *value));
    let context = Context::builder().sources(sources).build().expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    worker.open(transport, device).unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes of the memory whose pages are present, as the kernel reports it.
fn present(memory: &Memory) -> usize {
    const PAGE: usize = 4096;
    let first = memory.as_ptr().wrapping_sub(memory.as_ptr().addr() % PAGE);
    let mut present = vec![0_u8; memory.len() / PAGE];
    // SAFETY: the vector has a byte for each page that is examined; nothing else is read.
    let status = unsafe { libc::mincore(first.cast(), present.len() * PAGE, present.as_mut_ptr()) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    present.iter().filter(|&&page| page & 1 == 1).count() * PAGE
}

/// The domains that allocate in different ways, and each way of the host.
const WAYS: [((&str, &str), &str); 7] = [
    (("posix", "memory"), "md"),
    (("sysv", "memory"), "md"),
    (("cma", "memory"), "md"),
    (("tcp", "lo"), "md,thp,heap,mmap,huge"),
    (("tcp", "lo"), "heap"),
    (("self", "memory"), "mmap"),
    (("self", "memory"), "thp,mmap"),
];

#[test]
fn the_pages_of_allocated_memory_are_present_unless_it_is_configured_otherwise() {
    // More than the allocator keeps and hands out again.
    const LENGTH: usize = 40 << 20;
    for (way, methods) in WAYS {
        let allocate = |populate| {
            let iface = iface(way, &[("alloc_prio", methods), ("populate", populate)]);
            let memory = iface.memory_domain().allocate(LENGTH, Access::ALL, MemoryKind::Host);
            memory.unwrap_or_else(|refused| panic!("{way:?}: {refused}"))
        };
        let memory = allocate("yes");
        assert_eq!(present(&memory), memory.len(), "{way:?} by {methods}");
        assert!(memory.to_vec().iter().all(|&byte| byte == 0));
        drop(memory);
        if methods == "heap" {
            // The allocator zeroes what is aligned to pages itself.
            continue;
        }
        let memory = allocate("no");
        assert_eq!(present(&memory), 0, "{way:?} by {methods}");
        memory.write(LENGTH / 2, &[1]);
        assert!(present(&memory) > 0, "{way:?} by {methods}");
    }
}

#[test]
fn more_than_the_machine_has_is_an_error_and_kills_nobody() {
    const LENGTH: usize = 1 << 42;
    for (way, methods) in WAYS {
        let iface = iface(way, &[("alloc_prio", methods)]);
        let refused = iface.memory_domain().allocate(LENGTH, Access::ALL, MemoryKind::Host);
        let refused = refused.map(|memory| memory.len()).expect_err("4 TiB");
        let words = refused.to_string();
        assert_eq!(refused.status, uct_core::Error::NO_MEMORY, "{way:?}: {words}");
        assert!(words.contains("bytes left") && words.contains("populate = no"), "{way:?}: {words}");
    }
    // Where pages are made at their first access, more can be mapped.
    let iface = iface(("posix", "memory"), &[("populate", "no")]);
    let memory = iface.memory_domain().allocate(LENGTH, Access::ALL, MemoryKind::Host);
    memory.unwrap_or_else(|refused| panic!("{refused}")).write(LENGTH - 1, &[1]);
}
