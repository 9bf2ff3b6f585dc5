//! Keys to memory of another process: what they open, and with which rights.

use std::time::{Duration, Instant};

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{Access, Error, IfaceAddress, MemoryKind, Worker};

/// Bytes of the memory that peers may write, and of that which they may read: sizes that nothing else has.
const WRITTEN: usize = 7 * 4096;
const READ: usize = 11 * 4096;
/// Bytes of the memory of the other tests, each of which counts its own mappings.
const ANEW: usize = 13 * 4096;
const UNUSED: usize = 17 * 4096;

/// Allocates memory of both kinds, and makes progress until the test ends.
fn serve(transport: &str) {
    let (worker, iface) = open(transport, &[]);
    let domain = iface.memory_domain();
    let allocate = |length, access, value| {
        let memory = domain.allocate(length, access, MemoryKind::Host).expect("memory");
        memory.fill(0, length, value);
        memory
    };
    let written = allocate(WRITTEN, Access::ALL, 1);
    let read = allocate(READ, Access::REMOTE_GET, 2);
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    for memory in [&written, &read] {
        say(&memory.address().to_string());
        say(&hex(&memory.packed_key().expect("a key")));
    }
    let lines = heard();
    let start = Instant::now();
    while start.elapsed() < LIMIT && lines.try_recv().is_err() {
        worker.progress();
        std::thread::yield_now();
    }
}

/// Allocates memory whenever the test says so, the one before being freed, and makes progress until the test ends.
fn serve_anew(transport: &str, length: usize) {
    let (worker, iface) = open(transport, &[]);
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    let lines = heard();
    let (start, mut memory, mut value) = (Instant::now(), None, 0);
    while start.elapsed() < LIMIT {
        match lines.try_recv().as_deref() {
            Ok("allocate") => {
                // The registration ends first, so that its number is used again.
                drop(memory.take());
                value += 1;
                let fresh =
                    iface.memory_domain().allocate(length, Access::ALL, MemoryKind::Host).expect("memory");
                fresh.fill(0, length, value);
                say(&fresh.address().to_string());
                say(&hex(&fresh.packed_key().expect("a key")));
                memory = Some(fresh);
            }
            Ok("free") => {
                drop(memory.take());
                say("freed");
            }
            Ok(_) => return,
            Err(_) => {}
        }
        // Requests for segments are found once in 1024 calls.
        for _ in 0..256 {
            worker.progress();
        }
        std::thread::yield_now();
    }
}

/// The protection with which this process has segments of a length mapped.
fn mapped(length: usize) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let mut found: Vec<(usize, usize, &str, &str)> = Vec::new();
    for line in maps.lines().filter(|line| line.contains("memfd:uct") || line.contains("SYSV")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').expect("a range");
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).expect("an address"));
        let (rights, inode) = (words[1], words[4]);
        match found.last_mut() {
            // The kernel lists a mapping in parts where advice was given about some of its pages.
            Some(last) if (last.1, last.2, last.3) == (start, rights, inode) => last.1 = end,
            _ => found.push((start, end, rights, inode)),
        }
    }
    let of_length = found.into_iter().filter(|(start, end, ..)| end - start == length);
    of_length.map(|(_, _, rights, _)| rights.to_owned()).collect()
}

/// Makes progress, for some epochs at a time because the list of mappings is long, until no segment of a length is mapped.
fn is_unmapped_soon(worker: &Worker, length: usize) -> bool {
    let start = Instant::now();
    while !mapped(length).is_empty() {
        if start.elapsed() > LIMIT / 2 {
            return false;
        }
        for _ in 0..4096 {
            worker.progress();
        }
    }
    true
}

#[test]
fn a_key_opens_nothing_by_itself_and_its_memory_comes_with_its_rights_over_the_connection() {
    const TEST: &str =
        "a_key_opens_nothing_by_itself_and_its_memory_comes_with_its_rights_over_the_connection";
    if let Some(role) = role() {
        return serve(&role);
    }
    for transport in ["posix", "sysv", "cma"] {
        let peer = Peer::start(&[], TEST, transport);
        let (worker, iface) = open(transport, &[]);
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        let key = || {
            let address: u64 = peer.line().parse().expect("an address");
            (address, iface.memory_domain().unpack(&unhex(&peer.line())).expect("a key"))
        };
        let (written, read) = (key(), key());
        for (length, (address, key)) in [(WRITTEN, &written), (READ, &read)] {
            assert_eq!(mapped(length), Vec::<String>::new(), "{transport}: unpacking a key mapped memory");
            assert!(key.local_ptr(*address).is_err(), "{transport}");
        }
        let ep = iface.connect(&address).expect("a connection");
        let mut word = [0; 8];
        until(&worker, || ep.get_short(&mut word, written.0, &written.1)).expect("a get");
        assert_eq!((word, mapped(WRITTEN)), ([1; 8], vec!["rw-s".to_owned()]), "{transport}");
        until(&worker, || ep.put_short(&[3; 8], written.0, &written.1)).expect("a put");
        let local = written.1.local_ptr(written.0).expect("it is mapped");
        // SAFETY: the key has the memory mapped.
        assert_eq!(unsafe { local.as_ptr().read_volatile() }, 3, "{transport}");
        until(&worker, || ep.get_short(&mut word, read.0, &read.1)).expect("a get");
        assert_eq!(word, [2; 8], "{transport}");
        // A System V segment has no seals: memory that peers only read is not lent.
        let expected = if transport == "sysv" { vec![] } else { vec!["r--s".to_owned()] };
        assert_eq!(mapped(READ), expected, "{transport}");
        assert_eq!(until(&worker, || ep.put_short(&[3; 8], read.0, &read.1)), Err(Error::INVALID_PARAM));
    }
}

/// What a client does that gets a key with each reply of a server.
#[test]
fn a_key_that_is_unpacked_for_each_get_maps_its_memory_once_and_never_reaches_other_memory() {
    const TEST: &str =
        "a_key_that_is_unpacked_for_each_get_maps_its_memory_once_and_never_reaches_other_memory";
    if let Some(role) = role() {
        return serve_anew(&role, ANEW);
    }
    for transport in ["posix", "sysv", "cma"] {
        let mut peer = Peer::start(&[], TEST, transport);
        // Long enough that time ends no mapping.
        let (worker, iface) = open(transport, &["shm.trim_timeout=1h"]);
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        let ep = iface.connect(&address).expect("a connection");
        let mut allocated = |worker: &Worker| {
            peer.tell("allocate");
            let address: u64 = peer.line_with(worker).parse().expect("an address");
            (address, unhex(&peer.line_with(worker)))
        };
        let get = |(address, packed): &(u64, Vec<u8>)| {
            let key = iface.memory_domain().unpack(packed).expect("a key");
            let mut word = [0; 8];
            until(&worker, || ep.get_short(&mut word, *address, &key)).map(|()| word)
        };
        let mut known = Vec::new();
        for value in 1..=5 {
            let fresh = allocated(&worker);
            for _ in 0..3 {
                assert_eq!(get(&fresh), Ok([value; 8]), "{transport}");
            }
            assert!(!mapped(ANEW).is_empty(), "{transport}: unmapped with the last key");
            for old in &known {
                assert_eq!(get(old), Err(Error::INVALID_PARAM), "{transport}: memory that is gone");
            }
            known.push(fresh);
        }
        peer.tell("free");
        assert_eq!(peer.line_with(&worker), "freed");
        let is_unmapped = is_unmapped_soon(&worker, ANEW);
        assert!(is_unmapped, "{transport}: memory that is not registered any more stays mapped");
        peer.tell("allocate");
        let last = (peer.line_with(&worker).parse().expect("an address"), unhex(&peer.line_with(&worker)));
        assert_eq!(get(&last), Ok([6; 8]), "{transport}");
        peer.kill();
        let is_unmapped = is_unmapped_soon(&worker, ANEW);
        assert!(is_unmapped, "{transport}: memory of a dead peer stays mapped");
    }
}

#[test]
fn memory_that_no_key_was_used_to_for_a_while_is_unmapped_also_while_the_worker_sleeps() {
    const TEST: &str = "memory_that_no_key_was_used_to_for_a_while_is_unmapped_also_while_the_worker_sleeps";
    if let Some(role) = role() {
        return serve_anew(&role, UNUSED);
    }
    for (settings, is_kept) in
        [(&["shm.trim_timeout=200ms"][..], true), (&["shm.max_cached_segments=0"], false)]
    {
        let mut peer = Peer::start(&[], TEST, "posix");
        let (worker, iface) = open("posix", settings);
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        peer.tell("allocate");
        let (written, packed) = (peer.line().parse().expect("an address"), unhex(&peer.line()));
        let ep = iface.connect(&address).expect("a connection");
        let key = iface.memory_domain().unpack(&packed).expect("a key");
        until(&worker, || ep.get_short(&mut [0; 8], written, &key)).expect("a get");
        drop(key);
        assert_eq!(mapped(UNUSED).len(), usize::from(is_kept));
        let start = Instant::now();
        while !mapped(UNUSED).is_empty() {
            // Far fewer calls of progress than begin an epoch.
            worker.wait(Duration::from_secs(1)).expect("a sleep");
            worker.progress();
            assert!(start.elapsed() < LIMIT / 2, "it stays mapped");
        }
    }
}
