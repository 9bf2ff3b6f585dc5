//! Remote memory and transfers of blocks.

use std::ptr::null;

use uct_net_c::abi::*;
use uct_net_c::exports::*;

use crate::program::*;

const SIZE: usize = 1 << 16;

/// Memory of the library as bytes.
fn contents(memory: Raw) -> &'static mut [u8] {
    let start: *mut u8 = uct_memory_data(memory).cast();
    // SAFETY: memory of the library, which these tests free after their last use of it, and write while no operation
    // does.
    unsafe { std::slice::from_raw_parts_mut(start, uct_memory_size(memory)) }
}

/// Memory of the first side as the second side has it, and memory of the second one.
fn shared(pair: &Pair) -> (Raw, Raw, Raw) {
    let [owner, own] = pair.nets.map(|net| uct_memory_allocate(net, SIZE));
    let waits = uct_shared(pair.conns[1], 0);
    done(pair.nets[0], uct_share(pair.conns[0], owner, 0, uct_memory_size(owner), 0));
    let event = done(pair.nets[1], waits);
    assert!(event.length >= SIZE as u64);
    (owner, own, handle(&event))
}

#[test]
fn remote_memory_is_read_written_and_counted_in() {
    for tls in ["tcp", "posix"] {
        let pair = Pair::with(&[("tls", &format!("{tls},self"))]);
        let (net, conn) = (pair.nets[1], pair.conns[1]);
        let (owner, own, remote) = shared(&pair);
        contents(owner)[..5].copy_from_slice(b"hello");
        done(net, uct_get(conn, own, 100, 5, remote, 0, 0));
        assert_eq!(&contents(own)[100..105], b"hello");
        done(net, uct_put(conn, own, 100, 5, remote, 1000, 0));
        assert_eq!(&contents(owner)[1000..1005], b"hello");
        let before = [1, 2].map(|value| done(net, uct_fetch_add(conn, remote, 4096, value, 0)).result);
        assert_eq!(before, [0, 1]);
        assert_eq!(contents(owner)[4096], 3);
        done(net, uct_flush(conn, 0));
        done(net, uct_send_memory(conn, own, 100, 5, 0));
        let message = done(pair.nets[0], uct_recv(pair.conns[0], 0));
        assert_eq!(bytes(&message), b"hello");

        // Beyond its end: here it is refused, and there it is an error of the operation.
        assert_eq!(uct_put(conn, own, SIZE, 1, remote, 0, 0), 0);
        refused("are not part of a memory of");
        assert_eq!(uct_put(conn, own, usize::MAX, 2, remote, 0, 0), 0);
        let end = ended(net, uct_get(conn, own, 0, 8, remote, 1 << 40, 0));
        assert_eq!(end.status, OUT_OF_RANGE);
        assert_eq!(uct_remote_release(remote), OK);
        assert_eq!(uct_get(conn, own, 0, 8, remote, 0, 0), 0);
        refused("no remote memory has this handle");
    }
}

#[test]
fn a_key_to_a_part_opens_that_part_until_it_is_taken_back() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let [owner, own] = pair.nets.map(|net| uct_memory_allocate(net, SIZE));
    contents(owner)[4096] = 7;
    done(net, uct_share(conn, owner, 4096, 512, 0));
    let event = done(peer_net, uct_shared(peer, 0));
    assert_eq!((event.length, uct_remote_size(handle(&event))), (512, 512));
    done(peer_net, uct_get(peer, own, 0, 512, handle(&event), 0, 0));
    assert_eq!(contents(own)[0], 7);
    assert_eq!(uct_unshare(conn, owner, 4096, 512), OK);
    assert_eq!(uct_unshare(conn, owner, 4096, 512), NO_ELEM);
}

#[test]
fn memory_that_there_is_not_is_refused_with_its_bytes() {
    let net = open(&[("tls", "posix,tcp")]);
    assert!(uct_memory_allocate(net, 1 << 62).is_null());
    refused(
        "allocate memory (this process): posix/posix: cannot allocate memory: 4611686018427387904 bytes: ",
    );
    // Each transport has the same reason, which is there once.
    assert_eq!(reason(net, 0).matches("4611686018427387904 bytes").count(), 1, "{}", reason(net, 0));
    assert_eq!(uct_net_close(net), OK);
}

#[test]
fn any_connection_to_the_process_may_use_its_memory_over_the_same_transport() {
    for tls in ["tcp", "posix"] {
        let pair = Pair::with(&[("tls", tls)]);
        let (owner, own, remote) = shared(&pair);
        let (net, accept) = (pair.nets[1], uct_accept(pair.listener, 0));
        let second = handle(&done(net, connect(net, &address(pair.listener))));
        done(pair.nets[0], accept);
        contents(own)[..5].copy_from_slice(b"hello");
        done(net, uct_put(second, own, 0, 5, remote, 8, 0));
        assert_eq!(&contents(owner)[8..13], b"hello", "over {tls}");
        assert_eq!(done(net, uct_fetch_add(second, remote, 0, 1, 0)).result, 0, "over {tls}");
        assert_eq!(contents(owner)[0], 1, "over {tls}");
    }
}

#[test]
fn a_refused_access_says_why() {
    for tls in ["tcp", "posix"] {
        let pair = Pair::with(&[("tls", tls)]);
        let (net, conn) = (pair.nets[1], pair.conns[1]);
        let (owner, own, remote) = shared(&pair);
        let unaligned = uct_fetch_add(conn, remote, 4, 1, 0);
        assert_eq!(ended(net, unaligned).status, INVALID_PARAM);
        assert!(reason(net, unaligned).contains("at offset 4, is not a multiple of 8"));
        assert_eq!(uct_memory_free(owner), OK);
        let put = uct_put(conn, own, 0, 5, remote, 8, 0);
        assert_eq!(ended(net, put).status, INVALID_PARAM, "over {tls}");
        let reason = reason(net, put);
        assert!(reason.contains("the peer has freed the memory or taken back the key"), "{reason}");
        assert!(reason.contains("; the peer has to share the memory until"), "{reason}");
    }
}

#[test]
fn blocks_move_with_one_notification_and_those_that_do_not_are_known() {
    let pair = Pair::new();
    let (net, conn) = (pair.nets[1], pair.conns[1]);
    let (owner, own, remote) = shared(&pair);
    (0..16).for_each(|number| contents(owner)[number * 4096..][..4096].fill(number as u8 + 1));
    let block = |number: u64| uct_block { local: number * 4096, remote: (15 - number) * 4096, length: 4096 };
    let blocks: Vec<uct_block> = (0..16).map(block).collect();
    let waits = uct_notified(pair.conns[0], 6);
    // SAFETY: lists with their lengths.
    let get = unsafe {
        uct_get_blocks(conn, own, remote, blocks.as_ptr(), blocks.len(), b"read".as_ptr().cast(), 4, 0)
    };
    let end = done(net, get);
    assert_eq!((end.length, end.kind), (SIZE as u64, UCT_EV_GET_BLOCKS));
    assert!((0..16).all(|number| contents(own)[number * 4096] == 16 - number as u8));
    let notification = done(pair.nets[0], waits);
    assert_eq!((bytes(&notification), notification.user), (b"read".to_vec(), 6));
    assert_eq!(uct_block_status(net, get, 0), NO_ELEM);

    // SAFETY: as above.
    let put = unsafe { uct_put_blocks(conn, own, remote, blocks.as_ptr(), 4, null(), 0, 0) };
    assert_eq!(done(net, put).length, 4 * 4096);
    let wrong = uct_block { local: 0, remote: 1 << 30, length: 8 };
    // SAFETY: as above.
    let put = unsafe { uct_put_blocks(conn, own, remote, &raw const wrong, 1, null(), 0, 0) };
    assert_eq!(ended(net, put).status, OUT_OF_RANGE);

    // Too many blocks are refused before one of them is read: there is but one.
    // SAFETY: no block is read.
    assert_eq!(unsafe { uct_get_blocks(conn, own, remote, &raw const wrong, 16_777_217, null(), 0, 0) }, 0);
    refused("a transfer of 16777217 blocks; at most 16777216 are moved at once");

    // A transfer to memory whose key has ended: no block moves, and each has its reason.
    assert_eq!(uct_memory_free(owner), OK);
    // SAFETY: as above.
    let put = unsafe { uct_put_blocks(conn, own, remote, blocks.as_ptr(), 16, null(), 0, 0) };
    let end = ended(net, put);
    if end.status != OK {
        assert_eq!(uct_block_status(net, put, 0), end.status);
        assert_eq!(uct_block_status(net, put, 16), OUT_OF_RANGE);
    }
}
