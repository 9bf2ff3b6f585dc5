//! Wrong handles and arguments: each is an error with its reason.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use uct_net_c::abi::*;
use uct_net_c::exports::*;

use crate::program::*;

/// What is no handle: NULL, an address, and numbers.
fn garbage() -> [*mut c_void; 5] {
    let address = Box::leak(Box::new(0_u64)) as *mut u64;
    let number = std::ptr::without_provenance_mut::<c_void>;
    [null_mut(), address.cast(), number(1), number(usize::MAX), number(3 << 60 | 5)]
}

#[test]
fn every_function_refuses_what_is_no_handle_of_its_kind() {
    let pair = Pair::new();
    let memory = uct_memory_allocate(pair.nets[0], 100);
    let options = options(&[]);
    // Of each kind a function gets all but its own.
    let all = [pair.nets[0], pair.listener, pair.conns[0], memory, options];
    let others = |own: *mut c_void| {
        garbage().into_iter().chain(all.into_iter().filter(move |handle| *handle != own)).collect::<Vec<_>>()
    };
    let mut event = uct_event::default();
    for net in others(pair.nets[0]) {
        // SAFETY: the arguments are valid but for the handle.
        unsafe {
            assert_eq!(uct_net_wait(net, &raw mut event, 1, 0), INVALID_PARAM);
            assert_eq!(uct_wait(net, 5, 0, &raw mut event), INVALID_PARAM);
            assert_eq!(uct_listen(net, c"127.0.0.1:0".as_ptr(), null(), 0), 0);
            assert_eq!(uct_connect(net, c"127.0.0.1:1".as_ptr(), null(), 0), 0);
        }
        assert_eq!((uct_net_fd(net), uct_cancel(net, 5)), (INVALID_PARAM, INVALID_PARAM));
        assert!(uct_memory_allocate(net, 8).is_null());
        assert_eq!(uct_block_status(net, 5, 0), INVALID_PARAM);
        assert_eq!(uct_net_close(net), INVALID_PARAM);
        assert_ne!(reason(net, 5), "none");
    }
    for listener in others(pair.listener) {
        assert_eq!((uct_accept(listener, 0), uct_listener_close(listener)), (0, INVALID_PARAM));
        // SAFETY: no room.
        assert_eq!(unsafe { uct_listener_address(listener, null_mut(), 0) }, INVALID_PARAM);
    }
    for conn in others(pair.conns[0]) {
        assert_eq!((send(conn, b"x", 0), uct_recv(conn, 0), uct_flush(conn, 0)), (0, 0, 0));
        assert_eq!((uct_shared(conn, 0), uct_notified(conn, 0), uct_conn_close(conn, 0)), (0, 0, 0));
        assert_eq!((uct_share(conn, memory, 0, 1, 0), uct_send_memory(conn, memory, 0, 1, 0)), (0, 0));
        let mut place = [0_u8; 8];
        // SAFETY: the arguments are valid but for the handle.
        unsafe {
            assert_eq!(uct_recv_into(conn, place.as_mut_ptr().cast(), 8, 0), 0);
            assert_eq!(uct_conn_peer(conn, null_mut(), 0), INVALID_PARAM);
            assert_eq!(uct_conn_abort(conn, c"no".as_ptr()), INVALID_PARAM);
        }
    }
    for memory in others(memory) {
        assert!(uct_memory_data(memory).is_null());
        assert_eq!((uct_memory_size(memory), uct_memory_free(memory)), (0, INVALID_PARAM));
        assert_eq!(uct_share(pair.conns[0], memory, 0, 1, 0), 0);
    }
    for other in all.into_iter().chain(garbage()) {
        assert_eq!((uct_message_release(other), uct_remote_release(other)), (INVALID_PARAM, INVALID_PARAM));
        assert_eq!(uct_remote_size(other), 0);
        assert_eq!(uct_put(pair.conns[0], memory, 0, 1, other, 0, 0), 0);
    }
    for options in others(options) {
        // SAFETY: texts.
        assert_eq!(unsafe { uct_options_set(options, c"a".as_ptr(), c"b".as_ptr()) }, INVALID_PARAM);
        if !options.is_null() {
            assert!(uct_net_open(options).is_null());
        }
    }
    assert_eq!(uct_options_free(options), OK);
    assert_eq!(uct_options_free(options), INVALID_PARAM);
    refused("closed already");
}

#[test]
fn null_where_there_has_to_be_something_is_refused() {
    let pair = Pair::new();
    let (net, conn) = (pair.nets[0], pair.conns[0]);
    let options = options(&[]);
    // SAFETY: NULL, which is checked.
    unsafe {
        assert_eq!(uct_send(conn, null(), 1, 0), 0);
        refused("the message is NULL");
        assert_eq!(uct_recv_into(conn, null_mut(), 1, 0), 0);
        refused("NULL");
        assert_eq!(uct_connect(net, null(), null(), 0), 0);
        refused("the address is NULL");
        assert_eq!(uct_listen(net, c"\xff".as_ptr(), null(), 0), 0);
        refused("UTF-8");
        assert_eq!(uct_net_wait(net, null_mut(), 1, 0), INVALID_PARAM);
        assert_eq!(uct_net_wait(net, null_mut(), 0, 0), INVALID_PARAM);
        refused("room for no event");
        assert_eq!(uct_options_set(options, c"key".as_ptr(), null()), INVALID_PARAM);
        refused("the value is NULL");
        assert_eq!(uct_conn_peer(conn, null_mut(), 1), INVALID_PARAM);
        // An empty message needs no bytes.
        assert_ne!(uct_send(conn, null(), 0, 0), 0);
    }
    assert_eq!(uct_options_free(options), OK);
}

#[test]
fn a_handle_is_one_until_it_is_closed() {
    let pair = Pair::new();
    let [net, other] = pair.nets;
    let [conn, peer] = pair.conns;
    let memory = uct_memory_allocate(other, 64);
    assert_eq!(uct_share(conn, memory, 0, 64, 0), 0);
    refused("another net");
    assert_eq!(uct_memory_free(memory), OK);
    assert_eq!(uct_memory_free(memory), INVALID_PARAM);
    refused("no memory has this handle");

    let closing = uct_conn_close(conn, 0);
    assert_eq!(send(conn, b"x", 0), 0);
    refused("no connection has this handle");
    done(net, closing);
    // The peer's handle stays, and its operations have the reason.
    let end = ended(other, uct_recv(peer, 0));
    assert_eq!(end.status, NOT_CONNECTED, "{}", reason(other, end.op));

    assert_eq!(uct_listener_close(pair.listener), OK);
    assert_eq!(uct_accept(pair.listener, 0), 0);
    let closed = open(&[]);
    assert_eq!(uct_net_close(closed), OK);
    assert_eq!(uct_net_fd(closed), INVALID_PARAM);
    let anew = open(&[]);
    assert_eq!(uct_net_fd(closed), INVALID_PARAM, "the new net has the place of the closed one");
    assert_eq!(uct_net_close(anew), OK);
}

#[test]
fn an_option_that_is_wrong_is_named() {
    let net = open(&[]);
    for (pairs, words) in [
        ([("tls", "tcp"), ("wiat", "spin")], "wiat"),
        ([("window", "1"), ("wait", "spin")], "window"),
        ([("connect_timeout", "soon"), ("wait", "spin")], "connect_timeout"),
        (
            [("tls", "psix"), ("wait", "spin")],
            "psix: no transport has this name (tls = psix  # program); there is ",
        ),
    ] {
        let options = options(&pairs);
        assert!(uct_net_open(options).is_null());
        refused(words);
        // SAFETY: a text.
        assert_eq!(unsafe { uct_connect(net, c"127.0.0.1:1".as_ptr(), options, 0) }, 0);
        refused("uct_connect has no option");
        // SAFETY: as above.
        assert_eq!(unsafe { uct_listen(net, c"127.0.0.1:0".as_ptr(), options, 0) }, 0);
        refused("uct_listen has no option");
        assert_eq!(uct_options_free(options), OK);
    }
    let options = options(&[("timeout", "60s"), ("require", "posix"), ("from", "127.0.0.1:0")]);
    // SAFETY: a text.
    let refusal = ended(net, unsafe { uct_connect(net, c"127.0.0.1:1".as_ptr(), options, 7) });
    assert_eq!((refusal.kind, refusal.user, refusal.result), (UCT_EV_CONNECT, 7, 0));
    let text = reason(net, refusal.op);
    assert!(refusal.status < 0 && text.contains("call the listener (127.0.0.1:1)"), "{text}");
    assert_eq!((uct_options_free(options), uct_net_close(net)), (OK, OK));
}
