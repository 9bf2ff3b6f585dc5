//! Processes in different namespaces: what works between them, and why the rest does not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, skip, unhex, until};
use uct_core::{
    Access, AmId, AtomicOp, Capabilities, Completion, Ep, Error, Iface, IfaceAddress, Memory, MemoryKind,
    Posted, RemoteKey, SendFlags, Worker,
};

const ID: AmId = AmId::new(3).unwrap();
const SIZE: usize = 300_000;

/// The other process: offers memory, counts messages, replies to questions.
fn serve(transport: &str, settings: &[&str]) {
    let (worker, iface) = open(transport, settings);
    let bytes = Rc::new(Cell::new(0u64));
    let sum = Rc::clone(&bytes);
    iface.set_am_handler(ID, move |message| {
        sum.set(sum.get() + message.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    });
    let md = iface.memory_domain();
    let mut shared = Some(md.allocate(SIZE, Access::ALL, MemoryKind::Host).expect("memory"));
    let mut heap = Some(md.register(vec![0; SIZE], Access::ALL).expect("a registration"));
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    for memory in [&shared, &heap].into_iter().flatten() {
        say(&format!("{} {} {}", memory.address(), memory.len(), hex(&memory.packed_key().expect("a key"))));
    }
    let lines = heard();
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        worker.progress();
        let Ok(line) = lines.try_recv() else { continue };
        match line.as_str() {
            "sum" => say(&bytes.get().to_string()),
            "memory" => {
                let total = |memory: &Option<Memory>| {
                    memory
                        .as_ref()
                        .map_or(0, |memory| memory.to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>())
                };
                say(&format!("{} {}", total(&shared), total(&heap)));
            }
            "deregister" => {
                shared = None;
                heap = None;
                say("done");
            }
            other => panic!("{other}"),
        }
    }
}

struct Remote {
    address: u64,
    length: u64,
    key: RemoteKey,
}

fn remote(iface: &Iface, line: &str) -> Remote {
    let words: Vec<&str> = line.split(' ').collect();
    let [address, length, key] = words[..] else { panic!("{line}") };
    let key = iface.memory_domain().unpack(&unhex(key)).unwrap_or_else(|error| panic!("{error}"));
    Remote { address: address.parse().expect("a number"), length: length.parse().expect("a number"), key }
}

/// Waits for an operation that was started.
fn finish(worker: &Worker, posted: Result<Posted, Error>, completion: &Completion) -> Result<(), Error> {
    if posted? == Posted::InProgress {
        assert!(worker.progress_until(LIMIT, || completion.is_done()), "the operation does not end");
    }
    completion.result()
}

fn flush(worker: &Worker, ep: &Ep) -> Result<(), Error> {
    let completion = Completion::new(worker);
    let posted = until(worker, || ep.flush(uct_core::Flush::REMOTE, Some(&completion)));
    finish(worker, posted, &completion)
}

/// Every operation once. Returns the sum of the bytes that the memory should hold afterwards.
fn work_on(worker: &Worker, iface: &Iface, ep: &Ep, at: &Remote) -> u64 {
    let Remote { address, length, ref key } = *at;
    let completion = Completion::new(worker);
    let mut model = vec![0u8; SIZE];
    until(worker, || ep.put_short(&[7; 8], address, key)).expect("put_short");
    model[..8].fill(7);
    until(worker, || {
        ep.put_bcopy(address + 100, key, |buffer| {
            buffer[..1000].fill(9);
            1000
        })
    })
    .expect("put_bcopy");
    model[100..1100].fill(9);
    let source = iface
        .memory_domain()
        .register((0..200_000).map(|at| at as u8).collect(), Access::ALL)
        .expect("memory");
    let posted = until(worker, || ep.put_zcopy(&[source.slice(..)], address + 2000, key, &completion));
    finish(worker, posted, &completion).expect("put_zcopy");
    model[2000..202_000].copy_from_slice(&source.to_vec());
    work_on_many_blocks(worker, &source, ep, at, &mut model);
    work_at_the_limit(worker, iface, ep, at, &mut model);
    flush(worker, ep).expect("flush");

    let mut short = [0; 8];
    until(worker, || ep.get_short(&mut short, address, key)).expect("get_short");
    assert_eq!(short, [7; 8]);
    let got = Rc::new(Cell::new(Vec::new()));
    let place = Rc::clone(&got);
    let mut posted = Err(Error::NO_RESOURCE);
    let start = Instant::now();
    while posted == Err(Error::NO_RESOURCE) {
        assert!(start.elapsed() < LIMIT);
        worker.progress();
        let place = Rc::clone(&place);
        posted = ep.get_bcopy(1200, address, key, &completion, move |data| place.set(data.to_vec()));
    }
    finish(worker, posted, &completion).expect("get_bcopy");
    assert_eq!(got.take(), model[..1200], "get_bcopy");
    let target = iface.memory_domain().register(vec![0; SIZE], Access::ALL).expect("memory");
    let posted = until(worker, || ep.get_zcopy(&[target.slice(..)], address, key, &completion));
    finish(worker, posted, &completion).expect("get_zcopy");
    assert!(target.to_vec() == model, "get_zcopy brought other bytes");

    let cell = address + 250_000;
    until(worker, || ep.atomic64_post(AtomicOp::Add, 5, cell, key)).expect("atomic64_post");
    let fetched = until(worker, || ep.atomic64_fetch(AtomicOp::Add, 3, cell, key, &completion))
        .expect("atomic64_fetch");
    assert_eq!(fetched.wait(&completion, LIMIT), Ok(5));
    let fetched =
        until(worker, || ep.atomic64_cswap(8, 0x0101, cell, key, &completion)).expect("atomic64_cswap");
    assert_eq!(fetched.wait(&completion, LIMIT), Ok(8));
    until(worker, || ep.atomic32_post(AtomicOp::Or, 0x10, cell + 8, key)).expect("atomic32_post");
    let fetched = until(worker, || ep.atomic32_fetch(AtomicOp::Swap, 0x20, cell + 8, key, &completion))
        .expect("atomic32_fetch");
    assert_eq!(fetched.wait(&completion, LIMIT), Ok(0x10));
    let fetched =
        until(worker, || ep.atomic32_cswap(0, 0x30, cell + 8, key, &completion)).expect("atomic32_cswap");
    assert_eq!(fetched.wait(&completion, LIMIT), Ok(0x20));
    flush(worker, ep).expect("flush");

    // What lies outside, by a byte or wholly, is an error here, and nothing happens there.
    let end = address + length;
    assert!(until(worker, || ep.put_short(&[1; 8], end - 7, key)).is_err());
    assert!(until(worker, || ep.put_short(&[1; 8], address - 1, key)).is_err());
    assert!(until(worker, || ep.get_short(&mut short, end, key)).is_err());
    assert!(until(worker, || ep.atomic64_post(AtomicOp::Add, 1, cell + 4, key)).is_err(), "not aligned");
    model.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 2 + 0x20
}

/// A vector of more blocks than the kernel takes at a time.
fn work_on_many_blocks(worker: &Worker, source: &Memory, ep: &Ep, at: &Remote, model: &mut [u8]) {
    const START: usize = 205_000;
    let completion = Completion::new(worker);
    for count in [1024, 1025, 2049] {
        let blocks = || [source.slice(..).strided(2, 3, count as u32)];
        let bytes: Vec<u8> =
            source.to_vec().chunks(3).take(count).flat_map(|block| block[..2].to_vec()).collect();
        let place = at.address + START as u64;
        let posted = until(worker, || ep.put_zcopy(&blocks(), place, &at.key, &completion));
        finish(worker, posted, &completion).unwrap_or_else(|error| panic!("{count} blocks: {error}"));
        flush(worker, ep).expect("flush");
        model[START..START + bytes.len()].copy_from_slice(&bytes);
        let back = source.domain().register(vec![0; 3 * count], Access::ALL).expect("memory");
        let blocks = || [back.slice(..).strided(2, 3, count as u32)];
        let posted = until(worker, || ep.get_zcopy(&blocks(), place, &at.key, &completion));
        finish(worker, posted, &completion).unwrap_or_else(|error| panic!("{count} blocks: {error}"));
        let got: Vec<u8> = back.to_vec().chunks(3).flat_map(|block| block[..2].to_vec()).collect();
        assert!(got == bytes, "{count} blocks came back otherwise");
    }
}

/// Short puts of as much as fits into a message between the two, and of a byte more.
fn work_at_the_limit(worker: &Worker, iface: &Iface, ep: &Ep, at: &Remote, model: &mut [u8]) {
    const START: usize = 100_000;
    let piece = iface.attributes().put.max_bcopy;
    assert!(START + piece < 200_000, "{piece} bytes do not fit ahead of the other places");
    for (length, value) in [(piece + 1, 3), (piece, 4), (piece - 1, 5)] {
        let data = vec![value; length];
        until(worker, || ep.put_short(&data, at.address + START as u64, &at.key))
            .unwrap_or_else(|error| panic!("put_short of {length} bytes: {error}"));
        flush(worker, ep).unwrap_or_else(|error| panic!("put_short of {length} bytes: {error}"));
        model[START..START + length].fill(value);
    }
}

/// How remote memory was reached: (by the kernel, by the peer).
fn ways(iface: &Iface) -> (u64, u64) {
    let counters = iface.transport_counters();
    let value = |name| counters.iter().find(|(known, _)| known == name).expect("a counter").1;
    (value("rma_by_kernel"), value("rma_by_peer"))
}

/// The side that works: reaches the other, does everything, and reports how heap memory was accessed, or why nothing was.
fn work(transport: &str, settings: &[&str]) {
    let lines = heard();
    let next = |worker: &Worker| {
        let start = Instant::now();
        loop {
            worker.progress();
            match lines.try_recv() {
                Ok(line) => return line,
                Err(_) => assert!(start.elapsed() < LIMIT, "nobody tells anything"),
            }
        }
    };
    let (worker, iface) = open(transport, settings);
    let ask = |what: &str| {
        say(&format!("ask {what}"));
        next(&worker)
    };
    let (address, _) = IfaceAddress::unpack(&unhex(&next(&worker))).expect("an address");
    let (shared, heap) = (next(&worker), next(&worker));
    let connected = iface.is_reachable(&address).and_then(|()| iface.connect(&address));
    let ep = match connected {
        Ok(ep) => ep,
        Err(refused) => return say(&format!("result {refused}")),
    };

    until(&worker, || ep.am_short(ID, 1, &[2; 8])).expect("am_short");
    until(&worker, || ep.am_short(ID, 0, &[1; 1000])).expect("am_short in a block");
    until(&worker, || {
        ep.am_bcopy(ID, SendFlags::empty(), |buffer| {
            buffer[..60_000].fill(1);
            60_000
        })
    })
    .expect("am_bcopy");
    let start = Instant::now();
    while ask("sum") != (1 + 16 + 1000 + 60_000).to_string() {
        assert!(start.elapsed() < LIMIT, "the messages do not arrive");
    }

    let shared = remote(&iface, &shared);
    let in_shared = work_on(&worker, &iface, &ep, &shared);
    assert_eq!(ways(&iface), (0, 0), "allocated memory could be mapped");
    let heap = remote(&iface, &heap);
    let in_heap = work_on(&worker, &iface, &ep, &heap);
    let by_kernel = ways(&iface).0 > 0;
    assert_eq!(ask("memory"), format!("{in_shared} {in_heap}"), "the memory at the peer is another");

    // A key that has outlived its memory is an error, and the endpoint is as good as before.
    ask("deregister");
    let mut bytes = [0; 8];
    for gone in [&shared, &heap] {
        let answer = until(&worker, || ep.get_short(&mut bytes, gone.address, &gone.key));
        assert_eq!(answer, Err(Error::INVALID_PARAM));
    }
    until(&worker, || ep.am_short(ID, 1, &[])).expect("the endpoint goes on");
    say(if by_kernel { "result kernel" } else { "result ring" });
}

/// A setup: its name, how the two processes are started, what they are configured with, and what is expected.
struct Setup {
    name: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
    settings: &'static [&'static str],
    expected: Expect,
}

/// Starts both, passes lines from one to the other, and returns the result.
fn between(test: &str, transport: &str, setup: &Setup) -> String {
    let role = |side| [&[side, transport][..], setup.settings].concat().join(" ");
    let mut server = Peer::start(setup.server, test, &role("serve"));
    let mut client = Peer::start(setup.client, test, &role("work"));
    for _ in 0..3 {
        client.tell(&server.line());
    }
    loop {
        let line = client.line();
        match line.split_once(' ') {
            Some(("ask", what)) => {
                server.tell(what);
                client.tell(&server.line());
            }
            Some(("result", result)) => return result.to_owned(),
            _ => panic!("{line}"),
        }
    }
}

/// Whether this user may start a program behind `wrapper`. Namespaces take privileges, which root lacks in some containers.
fn works(wrapper: &[&str]) -> bool {
    let Some((program, arguments)) = wrapper.split_first() else { return true };
    let mut probe = std::process::Command::new(program);
    probe.args(arguments).arg("true").stderr(std::process::Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

fn table(test: &str, transport: &str, setups: &[Setup]) {
    if let Some(role) = role() {
        let words: Vec<&str> = role.split(' ').collect();
        return if words[0] == "serve" { serve(words[1], &words[2..]) } else { work(words[1], &words[2..]) };
    }
    for setup in setups {
        if let Some(wrapper) = [setup.server, setup.client].into_iter().find(|wrapper| !works(wrapper)) {
            let command = wrapper.join(" ");
            skip::skip(
                "root",
                format_args!("{transport}: {}: `{command}` is not permitted here", setup.name),
            );
            continue;
        }
        let result = between(test, transport, setup);
        println!("{transport}: {}: {result}", setup.name);
        let as_expected = match setup.expected {
            Way(way) => result == way,
            Reason(words) => words.iter().all(|word| result.contains(word)),
        };
        assert!(as_expected, "{transport}: {}: expected {:?}, found {result}", setup.name, setup.expected);
    }
}

#[derive(Debug, Clone, Copy)]
enum Expect {
    /// All operations work; heap memory is reached so.
    Way(&'static str),
    /// The peer is not reachable, for a reason with these words.
    Reason(&'static [&'static str]),
}
use Expect::{Reason, Way};

/// One setup: `name, server, client, settings => expected`.
macro_rules! setups {
    ($($name:literal, [$($server:literal)*], [$($client:literal)*], [$($setting:literal)*] => $expected:expr;)*) => {
        &[$(Setup {
            name: $name,
            server: &[$($server),*],
            client: &[$($client),*],
            settings: &[$($setting),*],
            expected: $expected,
        }),*]
    };
}

#[test]
fn posix_across_namespaces() {
    let setups = setups! {
        "same namespaces", [], [], [] => Way("kernel");
        "same namespaces, cma switched off", [], [], ["shm.cma=n"] => Way("ring");
        "files in a directory", [], [], ["posix.segments=dir"] => Way("kernel");
        "other ipc", ["unshare" "--ipc"], [], [] => Way("kernel");
        "other mount", ["unshare" "--mount"], [], [] => Way("kernel");
        "other pid, a child's", ["unshare" "--pid" "--fork"], [], [] => Way("kernel");
        "other pid, a parent's", [], ["unshare" "--pid" "--fork"], [] => Way("ring");
        "other pid, siblings", ["unshare" "--pid" "--fork"], ["unshare" "--pid" "--fork"], [] => Way("ring");
        "other user, a child's", ["unshare" "--user" "--map-root-user"], [], [] => Way("kernel");
        "other user, a parent's", [], ["unshare" "--user" "--map-root-user"], [] => Way("ring");
        "other net, directory shared", ["unshare" "--net"], [], [] => Way("kernel");
        "other net, nothing shared", ["unshare" "--net"], [], ["shm.dir="] => Reason(&["net:[", "UCT_SHM_DIR"]);
        "two containers, common net",
            ["unshare" "--ipc" "--mount" "--uts" "--user" "--map-root-user" "--pid" "--fork"],
            ["unshare" "--ipc" "--mount" "--uts" "--user" "--map-root-user" "--pid" "--fork"], [] => Way("ring");
        "two containers, common directory",
            ["unshare" "--ipc" "--net" "--uts" "--user" "--map-root-user" "--pid" "--fork"],
            ["unshare" "--ipc" "--net" "--uts" "--user" "--map-root-user" "--pid" "--fork"], [] => Way("ring");
        "other user id", ["setpriv" "--reuid=65534" "--clear-groups"], [], ["shm.dir="] => Reason(&["UCT_SHM_PEERS"]);
        "other user id, permitted",
            ["setpriv" "--reuid=65534" "--clear-groups"], [], ["shm.dir=" "shm.peers=any"] => Way("ring");
        "other user id, the other way",
            [], ["setpriv" "--reuid=65534" "--clear-groups"], ["shm.dir=" "shm.peers=any"] => Way("ring");
    };
    table("posix_across_namespaces", "posix", setups);
}

#[test]
fn sysv_across_namespaces() {
    let setups = setups! {
        "same namespaces", [], [], [] => Way("kernel");
        "same namespaces, cma switched off", [], [], ["shm.cma=n"] => Way("ring");
        "other pid, siblings", ["unshare" "--pid" "--fork"], ["unshare" "--pid" "--fork"], [] => Way("ring");
        "other mount", ["unshare" "--mount"], [], [] => Way("kernel");
        "other net, directory shared", ["unshare" "--net"], [], [] => Way("kernel");
        "other ipc", ["unshare" "--ipc"], [], [] => Reason(&["ipc:["]);
    };
    table("sysv_across_namespaces", "sysv", setups);
}

#[test]
fn cma_across_namespaces() {
    let setups = setups! {
        "same namespaces", [], [], [] => Way("kernel");
        "other ipc", ["unshare" "--ipc"], [], [] => Way("kernel");
        "other pid", ["unshare" "--pid" "--fork"], [], [] => Reason(&["pid:["]);
    };
    table("cma_across_namespaces", "cma", setups);
}

/// Has the kernel refuse copies between processes from now on, as a container's filter does.
fn forbid_copies() {
    let code = |class: u32, rest: u32| (class | rest) as u16;
    let load = code(libc::BPF_LD, libc::BPF_W | libc::BPF_ABS);
    let is_equal = code(libc::BPF_JMP, libc::BPF_JEQ | libc::BPF_K);
    let answer = code(libc::BPF_RET, libc::BPF_K);
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut filter = [
        // The number of the system call comes first in what a filter sees.
        step(load, 0, 0),
        step(is_equal, 2, libc::SYS_process_vm_readv as u32),
        step(is_equal, 1, libc::SYS_process_vm_writev as u32),
        step(answer, 0, libc::SECCOMP_RET_ALLOW),
        step(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter live through the call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}

/// Where the kernel may not copy, zero copy is marked as emulated, which its cost and `uct_info --matrix` show.
#[test]
fn zero_copy_is_emulated_where_the_kernel_may_not_copy() {
    if let Some(role) = role() {
        forbid_copies();
        let (_worker, iface) = open(&role, &[]);
        return say(&format!("{:?}", iface.emulated()));
    }
    let zcopy = Capabilities::PUT_ZCOPY | Capabilities::GET_ZCOPY;
    for transport in ["posix", "sysv"] {
        let (_worker, iface) = open(transport, &["shm.cma=n"]);
        assert_eq!(iface.emulated(), zcopy, "{transport} without cma");
        assert!(iface.capabilities().contains(zcopy), "it is there all the same");
        let filtered = Peer::start(&[], "zero_copy_is_emulated_where_the_kernel_may_not_copy", transport);
        assert_eq!(filtered.line(), format!("{zcopy:?}"), "{transport} behind a filter");
        let (_worker, iface) = open(transport, &[]);
        let may_copy = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
            .map_or(true, |scope| scope.trim() == "0");
        if may_copy {
            assert_eq!(iface.emulated(), Capabilities::empty(), "{transport}, where nothing forbids it");
        }
    }
}
