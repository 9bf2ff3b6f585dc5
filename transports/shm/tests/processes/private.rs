//! No code of the application sees memory that a peer can write.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{
    Access, AmId, Completion, Ep, IfaceAddress, MemoryKind, Posted, RemoteKey, SendFlags, Worker,
};

const ID: AmId = AmId::new(3).unwrap();

/// Whether an address lies in memory that is shared with other processes.
fn is_shared(address: *const u8) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let number = |text| usize::from_str_radix(text, 16).expect("hex");
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("a range");
        (number(start)..number(end)).contains(&address.addr()) && rest.as_bytes()[3] == b's'
    })
}

#[test]
fn what_is_packed_and_what_is_received_lies_in_private_memory() {
    for transport in ["posix", "sysv", "cma"] {
        let ((from, near), (to, far)) = (open(transport, &[]), open(transport, &[]));
        let received = Rc::new(Cell::new((0, 0)));
        let (seen, kept) = (Rc::clone(&received), Rc::new(Cell::new(None)));
        let keep = Rc::clone(&kept);
        far.set_am_handler(ID, move |message| {
            let (count, shared) = seen.get();
            seen.set((count + 1, shared + u32::from(is_shared(message.as_ptr()))));
            let kept = message.keep();
            seen.set((seen.get().0, seen.get().1 + u32::from(is_shared(kept.as_ptr()))));
            keep.set(Some(kept));
        });
        let ep = near.connect(&far.address().expect("an address")).expect("a connection");
        let packed = Cell::new(0);
        for (index, length) in [8, 200, 2000, 8192, 60_000].into_iter().cycle().take(40).enumerate() {
            let pack = |place: &mut [u8]| {
                packed.set(packed.get() + u32::from(is_shared(place.as_ptr())));
                place[..length].fill(index as u8);
                length
            };
            until(&from, || ep.am_bcopy(ID, SendFlags::empty(), pack)).expect("a message");
            assert!(to.progress_until(LIMIT, || received.get().0 == index + 1), "{transport}: no message");
            let kept = kept.take().expect("it was kept");
            assert!(kept.len() == length && kept.iter().all(|&byte| byte == index as u8), "{transport}");
        }
        assert_eq!(
            (packed.get(), received.get().1),
            (0, 0),
            "{transport}: packed and received in shared memory"
        );
    }
}

#[test]
fn kept_messages_are_in_the_memory_of_those_that_were_dropped() {
    let ((from, near), (to, far)) = (open("posix", &[]), open("posix", &[]));
    let kept = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&kept);
    far.set_am_handler(ID, move |message| {
        // Its handler has read it, as most do.
        assert_eq!(message[0], message[message.len() - 1]);
        list.borrow_mut().push(message.keep());
    });
    let ep = near.connect(&far.address().expect("an address")).expect("a connection");
    let receive = |byte: u8, length: usize| {
        let pack = |place: &mut [u8]| {
            place[..length].fill(byte);
            length
        };
        until(&from, || ep.am_bcopy(ID, SendFlags::empty(), pack)).expect("a message");
        assert!(to.progress_until(LIMIT, || !kept.borrow().is_empty()), "no message");
        let copy = kept.take().pop().and_then(|kept| kept.into_copy().ok()).expect("a copy");
        assert_eq!(copy[..], vec![byte; length]);
        copy
    };
    let burst: Vec<_> = (0..20).map(|byte| receive(byte, 30_000)).collect();
    let places: Vec<*const u8> = burst.iter().map(|copy| copy.as_ptr()).collect();
    drop(burst);
    let again: Vec<_> = (20..40).map(|byte| receive(byte, 20_000)).collect();
    assert!(again.iter().all(|copy| places.contains(&copy.as_ptr())), "in other memory");
    drop(again);
    // A short one takes none of the large.
    assert!(receive(1, 3000).capacity() < 8192);
    assert_eq!(to.buffers().spare_bytes(), 20 * 32_768 + 4096);
}

/// Allocates memory and registers memory, and makes progress until the test ends.
fn serve(role: &str) {
    let (transport, setting) = role.split_once(' ').expect("two words");
    let (worker, iface) = open(transport, &[setting]);
    let domain = iface.memory_domain();
    let allocated = domain.allocate(4096, Access::ALL, MemoryKind::Host).expect("memory");
    let registered = domain.register(vec![0; 4096], Access::ALL).expect("memory");
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    for (address, key) in
        [(allocated.address(), allocated.packed_key()), (registered.address(), registered.packed_key())]
    {
        say(&address.to_string());
        say(&hex(&key.expect("a key")));
    }
    let lines = heard();
    let start = Instant::now();
    while start.elapsed() < LIMIT && lines.try_recv().is_err() {
        // Connections and requests for segments are found once in 1024 calls.
        for _ in 0..256 {
            worker.progress();
        }
        std::thread::yield_now();
    }
}

/// Puts and gets a value in one piece each. Returns how many of pack and unpack were given shared memory.
fn put_and_get(worker: &Worker, ep: &Ep, (address, key): (u64, &RemoteKey), value: u8) -> u32 {
    let shared = Rc::new(Cell::new(0));
    let pack = |place: &mut [u8]| {
        shared.set(shared.get() + u32::from(is_shared(place.as_ptr())));
        place[..4096].fill(value);
        4096
    };
    until(worker, || ep.put_bcopy(address, key, pack)).expect("a put");
    let read = Rc::new(Cell::new(None));
    let completion = Completion::new(worker);
    let posted = until(worker, || {
        let (read, shared) = (Rc::clone(&read), Rc::clone(&shared));
        ep.get_bcopy(4096, address, key, &completion, move |place| {
            shared.set(shared.get() + u32::from(is_shared(place.as_ptr())));
            read.set(Some(place.to_vec()));
        })
    });
    if posted.expect("a get") == Posted::InProgress {
        assert!(worker.progress_until(LIMIT, || completion.is_done()), "no end of the get");
    }
    assert!(read.take().is_some_and(|read| read == [value; 4096]), "another value than {value} was read");
    shared.get()
}

#[test]
fn what_is_put_and_what_is_got_lies_in_private_memory() {
    if let Some(role) = role() {
        return serve(&role);
    }
    // Memory that is not mapped here is accessed by the peer on request, or the kernel copies it.
    for (transport, setting) in [("posix", "shm.cma=n"), ("sysv", "shm.cma=n"), ("cma", "shm.cma=try")] {
        let role = format!("{transport} {setting}");
        let peer = Peer::start(&[], "what_is_put_and_what_is_got_lies_in_private_memory", &role);
        let (worker, iface) = open(transport, &[setting]);
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        let ep = iface.connect(&address).expect("a connection");
        for is_mapped in [true, false] {
            let place = peer.line().parse().expect("an address");
            let key = iface.memory_domain().unpack(&unhex(&peer.line())).expect("a key");
            for value in 1..=4 {
                assert_eq!(put_and_get(&worker, &ep, (place, &key), value), 0, "{transport}: shared memory");
            }
            assert_eq!(key.local_ptr(place).is_ok(), is_mapped, "{transport}");
        }
    }
}
