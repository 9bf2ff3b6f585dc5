//! Memory is allocated by the first method of `alloc_prio` that works, in its order; a failure contains the reason of each.

use uct_core::configuration::Sources;
use uct_core::{Access, Context, Memory, MemoryKind, Refused, Worker};

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
