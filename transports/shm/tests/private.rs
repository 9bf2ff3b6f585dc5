//! No code of the application sees memory that a peer can write.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{LIMIT, open, until};
use uct_core::{AmId, SendFlags};

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
