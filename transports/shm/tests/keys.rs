//! Keys to memory of another process: what they open, and with which rights.

mod common;

use std::time::Instant;

use common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{Access, Error, IfaceAddress, MemoryKind};

/// Bytes of the memory that peers may write, and of that which they may read: sizes that nothing else has.
const WRITTEN: usize = 7 * 4096;
const READ: usize = 11 * 4096;

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
