//! Forks of a program with open nets.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use uct_net_c::abi::uct_event;
use uct_net_c::exports::*;

use crate::alone::is_alone;
use crate::program::*;

/// Seconds until a child that hangs is ended by the system.
const CHILD_LIMIT: u32 = 60;

/// Runs `work` in a child of a fork; how it has ended.
fn in_child(work: impl FnOnce()) -> c_int {
    // SAFETY: the child is one thread, has a copy of all memory, and ends in `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::alarm(CHILD_LIMIT) };
        let outcome = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: always permitted.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the place of the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_child_of_a_fork_is_refused_in_words_and_opens_nets_of_its_own() {
    if !is_alone() {
        return;
    }
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let waits = uct_recv(conn, 0);
    let parents = options(&[]);
    let status = in_child(|| {
        let mut event = uct_event::default();
        assert_eq!(send(conn, b"from the child", 0), 0);
        refused("child of a fork");
        // SAFETY: room for one event.
        unsafe {
            assert_eq!(uct_net_wait(net, &raw mut event, 1, -1), INVALID_PARAM);
            assert_eq!(uct_wait(net, waits, -1, &raw mut event), INVALID_PARAM);
        }
        refused("child of a fork");
        assert_eq!((uct_recv(conn, 0), uct_cancel(net, waits)), (0, INVALID_PARAM));
        assert!(uct_memory_allocate(net, 8).is_null());
        assert_eq!((uct_net_fd(net), uct_net_close(net)), (INVALID_PARAM, INVALID_PARAM));
        assert!(uct_net_open(parents).is_null());

        let own = Pair::new();
        done(own.nets[0], send(own.conns[0], b"mine", 0));
        let message = done(own.nets[1], uct_recv(own.conns[1], 0));
        assert_eq!(bytes(&message), b"mine");
        // The parent's handles are still none.
        assert_eq!((uct_recv(conn, 0), uct_net_close(net)), (0, INVALID_PARAM));
    });
    assert_eq!(status, 0, "how the child ended: status, or the signal ({}: it hung)", libc::SIGALRM);
    done(peer_net, send(peer, b"from the parent", 0));
    let message = done(net, waits);
    assert_eq!(bytes(&message), b"from the parent");
    assert_eq!(uct_options_free(parents), OK);
    assert_eq!(reason(null_mut(), 0), "none");
}
