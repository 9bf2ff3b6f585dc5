//! Ends: of connections, nets and peers.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uct_net_c::exports::*;

use crate::alone::is_alone;
use crate::compiled::{Place, run};
use crate::program::*;

/// Makes this program the peer that is killed; names the address of the listener.
const VICTIM: &str = "UCT_TEST_VICTIM_OF";

#[test]
fn a_net_is_closed_with_operations_in_flight() {
    let pair = Pair::new();
    let mut place = vec![7_u8; 1 << 16];
    let (net, conn) = (pair.nets[0], pair.conns[0]);
    // SAFETY: the memory is there until the net is closed.
    assert_ne!(unsafe { uct_recv_into(conn, place.as_mut_ptr().cast(), place.len(), 0) }, 0);
    assert_ne!(uct_recv(conn, 0), 0);
    assert_ne!(uct_accept(pair.listener, 0), 0);
    assert_ne!(connect(net, c"127.0.0.1:1"), 0);
    let memory = uct_memory_allocate(net, 1 << 20);
    assert_ne!(uct_share(conn, memory, 0, 100, 0), 0);
    let start = Instant::now();
    assert_eq!(uct_net_close(net), OK);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(uct_recv(conn, 0), 0);
    // What comes now is not written to the memory, which belongs to the program again.
    let _ = send(pair.conns[1], &[1; 1 << 16], 0);
    let end = ended(pair.nets[1], uct_recv(pair.conns[1], 0));
    assert!(end.status < 0);
    assert!(place.iter().all(|&byte| byte == 7));
    // So that the pair closes a net that is open.
    let mut pair = pair;
    pair.nets[0] = open(&[]);
}

#[test]
fn a_connection_is_closed_with_receives_in_flight() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let waiting = [uct_recv(conn, 0), uct_shared(conn, 0), uct_notified(conn, 0)];
    done(net, send(conn, b"last", 0));
    let closing = uct_conn_close(conn, 8);
    for op in waiting {
        let end = ended(net, op);
        assert_eq!(end.status, CANCELED, "{}", reason(net, op));
    }
    assert_eq!(done(net, closing).user, 8);
    let message = done(peer_net, uct_recv(peer, 0));
    assert_eq!(bytes(&message), b"last");
    // SAFETY: a text.
    assert_eq!(unsafe { uct_conn_abort(peer, c"enough".as_ptr()) }, OK);
}

#[test]
fn a_listener_that_is_closed_gives_its_port_back() {
    let net = open(&[]);
    let listener = listen(net, "127.0.0.1:0");
    let place = address(listener);
    let accept = uct_accept(listener, 0);
    assert_eq!(uct_listener_close(listener), OK);
    assert_eq!(ended(net, accept).status, CANCELED);
    let anew = listen(net, place.to_str().unwrap());
    assert_eq!(address(anew), place);
    assert_eq!(uct_net_close(net), OK);
}

#[test]
fn a_peer_that_is_killed_ends_what_waits_for_it() {
    if let Ok(place) = std::env::var(VICTIM) {
        return victim(&place);
    }
    if !is_alone() {
        return;
    }
    for tls in ["tcp", "posix"] {
        let net = open(&[("tls", tls)]);
        let listener = listen(net, "127.0.0.1:0");
        let accept = uct_accept(listener, 0);
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["closing::a_peer_that_is_killed_ends_what_waits_for_it", "--exact", "--nocapture"]);
        process.env(VICTIM, address(listener).to_str().unwrap()).env("UCT_TLS", tls);
        let mut process = process.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("connected")), "the victim is there");
        let conn = handle(&done(net, accept));
        let waits = uct_recv(conn, 0);
        process.kill().unwrap();
        process.wait().unwrap();
        let end = ended(net, waits);
        assert!(end.status < 0);
        let text = reason(net, waits);
        assert!(text.contains("use the connection") || text.contains("close"), "{text}");
        let later = ended(net, send(conn, b"x", 0));
        assert!(later.status < 0, "a connection that has failed sends nothing");
        assert_eq!(uct_net_close(net), OK);
    }
}

fn victim(place: &str) {
    let net = open(&[]);
    let place = std::ffi::CString::new(place).unwrap();
    done(net, connect(net, &place));
    println!("connected");
    // Until it is killed.
    let _ = std::io::stdin().read(&mut [0]);
    std::thread::sleep(Duration::from_secs(600));
}

/// A caller hangs up before it is accepted. In a program that has left SIGPIPE as it is, unlike one in Rust, what the library sends then must not
/// end the program.
const LATE: &str = r#"
#include <signal.h>
#include <uct.h>

int main(void) {
    uct_net *net;
    uct_options *options = uct_options_create();
    uct_event event;
    uct_listener *listener;
    char address[128];
    int i;
    signal(SIGPIPE, SIG_DFL);
    uct_options_set(options, "timeout", "100ms");
    if (!(net = uct_net_open(NULL)) || uct_wait(net, uct_listen(net, "127.0.0.1:0", NULL, 0), -1, &event) != UCT_OK) return 2;
    listener = event.result.listener;
    uct_listener_address(listener, address, sizeof(address));
    for (i = 0; i < 3; i++) {
        if (uct_wait(net, uct_connect(net, address, options, 0), -1, NULL) != UCT_ERR_TIMED_OUT) return 3;
    }
    /* They are looked at now, and are gone. */
    if (!uct_accept(listener, 0) || uct_net_wait(net, &event, 1, 500000000) != 0) return 4;
    return uct_net_close(net) == UCT_OK ? 0 : 5;
}
"#;

#[test]
fn a_caller_that_has_hung_up_ends_no_program() {
    let place = Place::new();
    let Some(program) = place.compile_text("late", LATE) else { return };
    run(&mut Command::new(program));
}
