//! A process that executes another program keeps its process id, and the id of one that has ended is given to another: no copy for the first
//! program reaches the memory of the second.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, skip, unhex, until};
use uct_core::{Access, Ep, Error, Iface, IfaceAddress, MemoryKind, RemoteKey, Worker};

/// Where both programs have memory.
const ADDRESS: usize = 0x6000_0000_0000;
const LENGTH: usize = 1 << 16;
const PUT: [u8; 100] = [3; 100];

/// Maps memory at the address, filled.
fn map(value: u8) -> NonNull<u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
    // SAFETY: a new mapping where there is none.
    let memory =
        unsafe { mmap_anonymous(ADDRESS as *mut _, LENGTH, access, flags) }.expect("the place is free");
    // SAFETY: it was just mapped, with this length.
    unsafe { memory.cast::<u8>().write_bytes(value, LENGTH) };
    NonNull::new(memory.cast()).expect("an address")
}

/// Registers memory, and executes this program again, as [`other`].
fn one(transport: &str) {
    let (worker, iface) = open(transport, &[]);
    let memory = map(1);
    // SAFETY: the memory stays for as long as the program runs, and there is no reference to it.
    let memory = unsafe { iface.memory_domain().register_raw(memory, LENGTH, Access::ALL, MemoryKind::Host) }
        .expect("a registration");
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    say(&hex(&memory.packed_key().expect("a key")));
    let lines = heard();
    worker.progress_until(LIMIT, || lines.try_recv().is_ok());
    let program = std::env::current_exe().expect("this program has a path");
    let error = Command::new(program).args(std::env::args().skip(1)).env("SHM_TEST_ROLE", "other").exec();
    panic!("this program is not executed again: {error}");
}

/// Has other memory where the first program had it.
fn other() {
    let memory = map(2);
    let lines = heard();
    say("another");
    lines.recv_timeout(LIMIT).expect("a line");
    // SAFETY: the memory is this program's alone.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), LENGTH) };
    say(if bytes.iter().all(|&byte| byte == 2) { "untouched" } else { "changed" });
}

#[test]
fn a_process_that_executes_another_program_is_not_the_peer_any_more() {
    const TEST: &str = "a_process_that_executes_another_program_is_not_the_peer_any_more";
    match role().as_deref() {
        None => {}
        Some("other") => return other(),
        Some(transport) => return one(transport),
    }
    for transport in ["cma", "posix"] {
        let (worker, iface) = open(transport, &[]);
        let mut peer = Peer::start(&[], TEST, transport);
        let (ep, key) = use_memory_of(&peer, &worker, &iface);
        peer.tell("go");
        assert_eq!(peer.line(), "another");
        is_out_of_reach(&ep, &key);
        peer.tell("look");
        assert_eq!(peer.line(), "untouched", "{transport}");
    }
}

/// Accesses the memory of [`one`], which the kernel copies.
fn use_memory_of(peer: &Peer, worker: &Worker, iface: &Iface) -> (Ep, RemoteKey) {
    let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
    let key = iface.memory_domain().unpack(&unhex(&peer.line())).expect("a key");
    let ep = iface.connect_with(&address, |_| ()).expect("a connection");
    let mut got = [0; 100];
    until(worker, || ep.put_short(&PUT, ADDRESS as u64, &key)).expect("a put");
    until(worker, || ep.get_short(&mut got, ADDRESS as u64, &key)).expect("a get");
    assert_eq!(got, PUT);
    let by_kernel = |(name, count): &(_, u64)| *name == "rma_by_kernel" && *count > 0;
    assert!(iface.transport_counters().iter().any(by_kernel), "the kernel does not copy here");
    (ep, key)
}

/// Asserts that no copy is made. This side has not looked at the connection since its peer has gone.
fn is_out_of_reach(ep: &Ep, key: &RemoteKey) {
    assert_eq!(ep.put_short(&PUT, ADDRESS as u64, key), Err(Error::CONNECTION_RESET));
    assert_eq!(ep.get_short(&mut [0; 100], ADDRESS as u64, key), Err(Error::CONNECTION_RESET));
}

/// The last process id that the kernel has given in this process's namespace, which root may set.
const LAST_ID: &str = "/proc/sys/kernel/ns_last_pid";

/// Ends the peer, and gives its id to another program.
fn in_a_namespace(test: &str, transport: &str) {
    let (worker, iface) = open(transport, &[]);
    let mut peer = Peer::start(&[], test, transport);
    let (ep, key) = use_memory_of(&peer, &worker, &iface);
    let id = peer.id();
    peer.kill();
    fs::write(LAST_ID, (id - 1).to_string()).expect("root of this namespace may set it");
    let mut other = Peer::start(&[], test, "other");
    assert_eq!((other.id(), &*other.line()), (id, "another"), "no other process has taken the id");
    is_out_of_reach(&ep, &key);
    other.tell("look");
    say(&other.line());
}

#[test]
fn a_process_with_the_id_of_one_that_has_ended_is_not_the_peer() {
    const TEST: &str = "a_process_with_the_id_of_one_that_has_ended_is_not_the_peer";
    match role().as_deref().map(|role| role.split_once(' ').unwrap_or(("", role))) {
        None => {}
        Some(("", "other")) => return other(),
        Some(("", transport)) => return one(transport),
        Some((_, transport)) => return in_a_namespace(TEST, transport),
    }
    if !skip::is_root("choose the id of a process") {
        return;
    }
    if fs::metadata(LAST_ID).is_err() {
        return skip::skip("ns_last_pid", format_args!("this kernel has no {LAST_ID}"));
    }
    for transport in ["cma", "posix"] {
        let wrapper = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let namespace = Peer::start(&wrapper, TEST, &format!("namespace {transport}"));
        assert_eq!(namespace.line(), "untouched", "{transport}");
    }
}
