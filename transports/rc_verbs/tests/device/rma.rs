//! Puts and gets at the limits of an interface: bytes in flight, the requests of one operation, the longest operation.

use std::cell::RefCell;
use std::rc::Rc;

use uct_core::{Access, Completion, Error, Memory, Posted, RemoteKey};

use crate::support::{Side, connect, context, counter, devices, until};

/// Memory of the right side, and the left side's key to it.
fn remote(left: &Side, right: &Side, bytes: Vec<u8>) -> (Memory, RemoteKey) {
    let memory = right.iface.memory_domain().register(bytes, Access::all()).expect("memory");
    let key = left.iface.memory_domain().unpack(&memory.packed_key().expect("a key")).expect("unpacked");
    (memory, key)
}

fn own(side: &Side, bytes: Vec<u8>) -> Memory {
    side.iface.memory_domain().register(bytes, Access::all()).expect("memory")
}

/// Bytes that show where they are from.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn gets_beyond_the_bytes_that_may_be_in_flight_wait_and_one_is_always_taken() {
    const MOST: usize = 8 << 10;
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("max_get_bytes", "8k")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let links = [connect(&left, &right), connect(&left, &right)];
    let [one, other] = [&links[0].0, &links[1].0];
    let (memory, key) = remote(&left, &right, pattern(2 * MOST));
    let place = own(&left, vec![0; 2 * MOST]);
    let [first, second, third] = [(); 3].map(|()| Completion::new(&left.worker));

    let copied = Rc::new(RefCell::new(Vec::new()));
    let copy = |link: &crate::support::Link, length, completion| {
        let to = Rc::clone(&copied);
        let unpack = move |bytes: &[u8]| to.borrow_mut().extend_from_slice(bytes);
        link.ep.get_bcopy(length, memory.address(), &key, completion, unpack)
    };
    let read = |link: &crate::support::Link, length, completion| {
        link.ep.get_zcopy(&[place.slice(..length)], memory.address(), &key, completion)
    };
    assert_eq!(read(one, 5000, &first), Ok(Posted::InProgress));
    // All that is left, on another endpoint.
    assert_eq!(copy(other, MOST - 5000, &second), Ok(Posted::InProgress));
    assert_eq!(counter(&left, "read_bytes"), MOST as u64);
    for link in [one, other] {
        assert_eq!(read(link, 1, &third), Err(Error::NO_RESOURCE));
        assert_eq!(copy(link, 1, &third), Err(Error::NO_RESOURCE));
    }
    until(&left, &right, "the gets", || first.is_done() && second.is_done());
    assert_eq!((first.result(), second.result()), (Ok(()), Ok(())));
    assert_eq!(copied.borrow()[..], pattern(MOST - 5000));
    assert_eq!(counter(&left, "read_bytes"), 0);

    // One that is longer is taken where it is alone, and nothing beside it.
    assert_eq!(read(one, 2 * MOST, &third), Ok(Posted::InProgress));
    assert_eq!(copy(other, 1, &first), Err(Error::NO_RESOURCE));
    until(&left, &right, "the long get", || third.is_done());
    assert_eq!((third.result(), place.to_vec()), (Ok(()), pattern(2 * MOST)));
    assert_eq!(counter(&left, "read_bytes"), 0);
}

#[test]
fn an_operation_of_more_requests_than_a_send_queue_has_is_refused_for_good() {
    // Two blocks a request.
    const MOST: u32 = 16 * 2;
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("tx_queue_len", "16"), ("max_iov", "2")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let (near, _far) = connect(&left, &right);
    let (memory, key) = remote(&left, &right, vec![0; 64]);
    let place = own(&left, pattern(128));
    let blocks = |count| [place.slice(..).strided(1, 3, count)];
    let completion = Completion::new(&left.worker);
    let put = |count| near.ep.put_zcopy(&blocks(count), memory.address(), &key, &completion);
    let get = |count| near.ep.get_zcopy(&blocks(count), memory.address(), &key, &completion);

    assert_eq!([put(MOST + 1), get(MOST + 1)], [Err(Error::INVALID_PARAM); 2]);
    assert_eq!(counter(&left, "tx_under_way"), 0, "nothing of it is posted");
    assert_eq!(put(MOST), Ok(Posted::InProgress));
    assert_eq!(counter(&left, "tx_under_way"), 16);
    // It waits where there is no room at the moment.
    assert_eq!([put(3), get(3)], [Err(Error::NO_RESOURCE); 2]);
    until(&left, &right, "the put", || completion.is_done());
    let expected: Vec<u8> = (0..MOST).map(|block| block as u8 * 3).collect();
    assert_eq!((completion.result(), &memory.to_vec()[..MOST as usize]), (Ok(()), &expected[..]));

    near.ep.put_short(b"x", memory.address() + 63, &key).expect("there is room");
    assert_eq!([put(MOST), get(MOST)], [Err(Error::NO_RESOURCE); 2]);
    assert_eq!(counter(&left, "tx_under_way"), 1, "nothing of it is posted");
    assert_eq!(get(MOST - 2), Ok(Posted::InProgress));
    until(&left, &right, "the get", || completion.is_done());
    let found: Vec<u8> = blocks(MOST - 2)[0].to_vec();
    assert_eq!((completion.result(), found), (Ok(()), expected[..MOST as usize - 2].to_vec()));
}

#[test]
fn a_long_operation_is_several_requests_and_a_short_one_is_one() {
    /// The shortest part that an operation is cut into.
    const PART: usize = 256 << 10;
    let Some((_turn, names)) = devices() else { return };
    let longest = Side::new(&context(&[]), &names[0]).iface.attributes().put.max_zcopy;
    // The longest operation is half a send queue.
    let queue = (2 * longest.div_ceil(PART)).to_string();
    let context = context(&[("tx_queue_len", &queue), ("max_iov", "4")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let (near, _far) = connect(&left, &right);
    let (memory, key) = remote(&left, &right, vec![0; 2 * PART + 1]);
    let place = own(&left, pattern(2 * PART + 1));
    let completion = Completion::new(&left.worker);
    let whole = |length| vec![place.slice(..length)];
    let halves = |length: usize| vec![place.slice(..PART / 2), place.slice(PART / 2..length)];
    for (vector, requests) in [
        (whole(PART), 1),
        (whole(PART + 1), 2),
        (whole(2 * PART), 2),
        (whole(2 * PART + 1), 3),
        (halves(PART), 1),
        (halves(PART + 1), 2),
    ] {
        let length: usize = vector.iter().map(|slice| slice.len()).sum();
        let put = near.ep.put_zcopy(&vector, memory.address(), &key, &completion);
        assert_eq!(
            (put, counter(&left, "tx_under_way")),
            (Ok(Posted::InProgress), requests),
            "{length} bytes"
        );
        until(&left, &right, "the put", || completion.is_done());
        let get = near.ep.get_zcopy(&vector, memory.address(), &key, &completion);
        assert_eq!(
            (get, counter(&left, "tx_under_way")),
            (Ok(Posted::InProgress), requests),
            "{length} bytes"
        );
        until(&left, &right, "the get", || completion.is_done());
        completion.result().expect("it ends well");
        assert_eq!(memory.to_vec()[..length], pattern(length), "{length} bytes");
    }
}

#[test]
fn one_byte_more_than_the_longest_operation_is_refused_as_such() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("max_iov", "32")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let (near, _far) = connect(&left, &right);
    let (memory, key) = remote(&left, &right, vec![0; 64]);
    let put = left.iface.attributes().put;
    let each = put.max_zcopy / put.max_iov;
    let place = own(&left, vec![0; put.max_zcopy - each * (put.max_iov - 1) + 1]);
    let completion = Completion::new(&left.worker);
    // More than the peer's memory has, which is another error.
    for (beyond, error) in [(0, Error::OUT_OF_RANGE), (1, Error::INVALID_PARAM)] {
        let mut vector = vec![place.slice(..each); put.max_iov - 1];
        vector.push(place.slice(..place.len() - 1 + beyond));
        let put = near.ep.put_zcopy(&vector, memory.address(), &key, &completion);
        let get = near.ep.get_zcopy(&vector, memory.address(), &key, &completion);
        assert_eq!([put, get], [Err(error); 2], "{beyond} bytes more");
    }
}

#[test]
fn a_short_get_waits_for_its_own_end_whatever_else_ends_meanwhile() {
    let Some((_turn, names)) = devices() else { return };
    // So many packets that what is ahead of it ends much sooner.
    let context = context(&[("seg_size", "256k"), ("path_mtu", "256"), ("timeout", "1s")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let links = [(); 3].map(|()| connect(&left, &right));
    let [other, failing, one] = [&links[0].0, &links[1].0, &links[2].0];
    let length = left.iface.attributes().get.max_short;
    let (memory, key) = remote(&left, &right, pattern(length));
    let (gone, stale) = remote(&left, &right, vec![0; 64]);
    let beyond = gone.address();
    drop(gone);
    let (target, target_key) = remote(&left, &right, vec![0; 64]);
    let place = own(&left, vec![7; 64]);
    let completions = [(); 8].map(|()| Completion::new(&left.worker));
    let [failed, rest @ ..] = &completions;
    for (index, completion) in rest.iter().enumerate() {
        let link = if index == 0 { one } else { other };
        let put = link.ep.put_zcopy(&[place.slice(..)], target.address(), &target_key, completion);
        assert_eq!(put, Ok(Posted::InProgress));
    }
    let put = failing.ep.put_zcopy(&[place.slice(..)], beyond, &stale, failed);
    assert_eq!(put, Ok(Posted::InProgress));

    let mut found = vec![0; length];
    assert_eq!(one.ep.get_short(&mut found, memory.address(), &key), Ok(()));
    assert!(found == pattern(length), "it returned ahead of its end");
    // What has ended meanwhile is not lost.
    until(&left, &right, "the puts", || completions.iter().all(|it| it.is_done()));
    assert!(rest.iter().all(|it| it.result().is_ok()) && failed.result().is_err());
    until(&left, &right, "the failure", || !failing.failures.borrow().is_empty());
    assert!(one.failures.borrow().is_empty() && other.failures.borrow().is_empty());
}
