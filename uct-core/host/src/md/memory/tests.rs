//! Tests of memory and its slices.

use super::*;
use crate::{Completion, Context, Iface, Posted, Worker};

fn open() -> (Worker, Iface) {
    let worker =
        Worker::new(&Context::builder().sources(ucs::config::Sources::default()).build().unwrap()).unwrap();
    let iface = worker.open("self", "memory").unwrap();
    (worker, iface)
}

fn registered(iface: &Iface, bytes: Vec<u8>) -> Memory {
    iface.memory_domain().register(bytes, Access::ALL).unwrap()
}

fn panics(body: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err()
}

#[test]
fn a_slice_has_the_bytes_of_its_range() {
    let (_worker, iface) = open();
    let memory = registered(&iface, vec![0; 8]);
    assert!(!memory.is_empty());
    let after = (Bound::Excluded(2), Bound::Unbounded);
    let lengths = [
        memory.slice(..).len(),
        memory.slice(3..5).len(),
        memory.slice(3..=5).len(),
        memory.slice(after).len(),
        memory.slice(8..).len(),
    ];
    assert_eq!(lengths, [8, 2, 3, 5, 0]);
    assert!(memory.slice(8..).is_empty() && !memory.slice(7..).is_empty());
    assert!(registered(&iface, Vec::new()).is_empty());
    memory.write(0, &7_u64.to_ne_bytes());
    assert_eq!(memory.load_u64(0), 7);
    for outside in [5..=8, 0..=8, 0..=usize::MAX] {
        assert!(panics(|| drop(memory.slice(outside))));
    }
}

#[test]
fn bytes_are_filled_and_their_neighbours_left_alone() {
    let (_worker, iface) = open();
    for length in (0..=200).chain([4095, 4096]) {
        for offset in [0, 1, 7] {
            let memory = registered(&iface, vec![1; length + 8]);
            memory.fill(offset, length, 5);
            let mut expected = vec![1; length + 8];
            expected[offset..offset + length].fill(5);
            assert_eq!(memory.to_vec(), expected, "{length} bytes at {offset}");
        }
    }
}

#[test]
fn a_vector_comes_back_as_it_was_handed_over() {
    let (_worker, iface) = open();
    let mut bytes = Vec::with_capacity(100);
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    let first = bytes.as_ptr();
    let memory = registered(&iface, bytes);
    memory.write(1, &[9]);
    let bytes = memory.into_bytes().unwrap();
    assert_eq!((bytes.as_ptr(), bytes.capacity()), (first, 100));
    assert_eq!(bytes, [1, 9, 3, 4]);
}

#[test]
fn memory_that_is_still_held_or_is_no_vectors_is_not_given_back() {
    let (_worker, iface) = open();
    let memory = registered(&iface, vec![7; 8]);
    assert!(!memory.is_shared());
    let slice = memory.slice(2..4);
    assert!(memory.is_shared());
    let memory = memory.into_bytes().expect_err("a slice holds it");
    assert_eq!(memory.to_vec(), [7; 8], "it is as good as before");
    drop(slice);
    assert_eq!(memory.into_bytes().unwrap(), [7; 8]);
    let allocated = iface.memory_domain().allocate(8, Access::ALL, MemoryKind::Host).unwrap();
    assert!(allocated.into_bytes().is_err());
}

#[test]
fn a_key_is_of_no_use_when_the_last_holder_is_gone_and_not_before() {
    let (_worker, iface) = open();
    let ep = iface.connect(&iface.address().unwrap()).unwrap();
    let memory = registered(&iface, vec![0; 64]);
    let key = iface.memory_domain().unpack(&memory.packed_key().unwrap()).unwrap();
    let address = memory.address();
    let slice = memory.slice(..);
    drop(memory);
    // By the host's own hand, and by the transport's.
    ep.put_short(&[1; 8], address, &key).unwrap();
    ep.put_short(&[1; 9], address + 8, &key).unwrap();
    drop(slice);
    assert_eq!(ep.put_short(&[1; 8], address, &key), Err(Error::INVALID_PARAM));
    assert_eq!(ep.put_short(&[1; 9], address + 8, &key), Err(Error::INVALID_PARAM));
    assert_eq!(ep.get_short(&mut [0; 8], address, &key), Err(Error::INVALID_PARAM));
    assert_eq!(ep.atomic64_post(crate::AtomicOp::Add, 1, address, &key), Err(Error::INVALID_PARAM));
}

#[test]
fn pack_and_unpack_may_end_the_registration_that_they_are_about() {
    let (worker, iface) = open();
    let ep = iface.connect(&iface.address().unwrap()).unwrap();
    let offer = || {
        let memory = registered(&iface, vec![3; 64]);
        let key = iface.memory_domain().unpack(&memory.packed_key().unwrap()).unwrap();
        (memory.address(), memory, key)
    };
    let (address, memory, key) = offer();
    let put = ep.put_bcopy(address, &key, |buffer| {
        buffer[..64].fill(1);
        drop(memory);
        64
    });
    assert_eq!(put, Err(Error::INVALID_PARAM), "the memory is gone before it could be written");
    let (address, memory, key) = offer();
    let completion = Completion::new(&worker);
    let got = ep.get_bcopy(64, address, &key, &completion, move |bytes| {
        drop(memory);
        assert_eq!(bytes, [3; 64]);
    });
    assert_eq!(got, Ok(Posted::Done));
}

#[test]
fn offsets_outside_are_refused_wherever_they_are_named() {
    let (_worker, iface) = open();
    let memory = registered(&iface, vec![0; 16]);
    memory.write(16, &[]);
    memory.fill(0, 16, 5);
    assert_eq!(memory.to_vec(), [5; 16]);
    assert!(panics(|| memory.write(9, &[0; 8])));
    assert!(panics(|| memory.read(usize::MAX, &mut [0; 2])));
    assert!(panics(|| memory.fill(17, 0, 0)));
    assert!(panics(|| drop(memory.slice(..17))));
    assert!(panics(|| assert_eq!(memory.load_u64(9), 0)));
    assert_ne!(memory.advise(8, 8, true), Err(Error::OUT_OF_RANGE));
    assert_eq!(memory.advise(8, 9, true), Err(Error::OUT_OF_RANGE));
    assert_eq!(memory.advise(usize::MAX, 2, true), Err(Error::OUT_OF_RANGE));
    assert_eq!(memory.to_vec(), [5; 16]);
}

#[test]
fn strided_blocks_lie_within_their_slice_and_do_not_overlap() {
    let (_worker, iface) = open();
    let memory = registered(&iface, vec![0; 16]);
    let blocks = memory.slice(..).strided(4, 6, 3);
    assert_eq!((blocks.len(), blocks.iov().count, blocks.iov().stride), (12, 3, 6));
    assert!(panics(|| drop(memory.slice(..).strided(4, 7, 3))));
    assert!(panics(|| drop(memory.slice(..).strided(4, 3, 2))));
    assert!(panics(|| drop(memory.slice(..).strided(1, usize::MAX, 3))));
    assert!(memory.slice(..).strided(4, 0, 0).is_empty());
    assert_eq!(memory.slice(3..=5).iov().buffer, memory.as_ptr().wrapping_add(3).cast());
}
