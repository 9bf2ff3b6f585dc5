//! `receive`: messages that handlers keep, and the bytes ahead of them that are the keeper's.

use super::*;

/// A message that was delivered: where, and how long it is.
type Place = (*mut u8, usize);

/// What the keeper writes ahead of its messages.
const MARK: u8 = 0xAA;

/// Keeps the messages that are chosen by their number, and writes all of the headroom of each; the places of all.
fn keep(bed: &Bed, headroom: usize, chosen: fn(usize) -> bool) -> Rc<RefCell<Vec<Place>>> {
    let places = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&places);
    *bed.inbox.keeper.borrow_mut() = Some(Box::new(move |place, length| {
        noted.borrow_mut().push((place, length));
        let keeps = chosen(noted.borrow().len() - 1);
        if keeps {
            // SAFETY: the headroom of a message is its keeper's.
            unsafe { place.wrapping_sub(headroom).write_bytes(MARK, headroom) };
        }
        keeps
    }));
    places
}

/// A kept message with its headroom; it is given back.
fn give_back(bed: &Bed, (place, length): Place, headroom: usize) -> Vec<u8> {
    // SAFETY: the message was kept, with its headroom.
    let bytes =
        unsafe { std::slice::from_raw_parts(place.wrapping_sub(headroom), headroom + length) }.to_vec();
    // SAFETY: as above, and it is not used any more.
    unsafe { bed.iface.shared.rx_pool().release_kept(place) };
    bytes
}

#[test]
fn messages_that_are_kept_one_by_one_share_a_buffer_until_half_of_it_is_used() {
    let bed = Bed::with_headroom(&[("rx_seg_size", "16k")], 0);
    let places = keep(&bed, 0, |_| true);
    for _ in 0..8 {
        bed.write(&frame(1, &[7; 16]));
    }
    *bed.inbox.keeper.borrow_mut() = None;
    let places = places.take();
    let addresses = places.iter().map(|(place, _)| place.addr());
    let (first, last) = (addresses.clone().min().unwrap(), addresses.max().unwrap());
    assert!(places.len() == 8 && last - first < 8 << 10, "{places:?}");
    for place in places {
        assert_eq!(give_back(&bed, place, 0), [7; 16]);
    }
}

#[test]
fn a_kept_message_and_its_headroom_stay_as_they_are_whatever_comes_behind() {
    let lengths = [16, 0, 50, 3, 800, 1, 64, 15_000, 40_000, 8, 7, 2000];
    let chosen: [fn(usize) -> bool; 4] =
        [|_| true, |number| number.is_multiple_of(2), |number| !number.is_multiple_of(3), |_| false];
    for headroom in [0, 1, 8, 24, 64, 200, 1000] {
        for chosen in chosen {
            let bed = Bed::with_headroom(&[("rx_seg_size", "16k")], headroom);
            let places = keep(&bed, headroom, chosen);
            let messages: Vec<_> =
                (0..60).map(|number| vec![number as u8 + 1; lengths[number % lengths.len()]]).collect();
            bed.write(&messages.iter().flat_map(|message| frame(1, message)).collect::<Vec<_>>());
            let came: Vec<_> = bed.messages().into_iter().map(|(_, message)| message).collect();
            assert!(came == messages, "headroom {headroom}");
            *bed.inbox.keeper.borrow_mut() = None;
            for (number, place) in places.take().into_iter().enumerate().filter(|(number, _)| chosen(*number))
            {
                let kept = give_back(&bed, place, headroom);
                assert!(
                    kept == [vec![MARK; headroom], messages[number].clone()].concat(),
                    "message {number}"
                );
            }
        }
    }
}

/// Where the second of two messages lies, seen from the first one.
fn second_from_first(headroom: usize, first: usize, keeps_first: bool) -> isize {
    let bed = Bed::with_headroom(&[], headroom);
    let places = keep(&bed, headroom, if keeps_first { |number| number == 0 } else { |_| false });
    bed.write(&[frame(1, &pattern(first)), frame(2, b"second")].concat());
    let places = places.take();
    let distance = places[1].0.addr().wrapping_sub(places[0].0.addr()).cast_signed();
    if keeps_first {
        give_back(&bed, places[0], headroom);
    }
    distance
}

#[test]
fn a_message_is_copied_only_where_a_kept_one_leaves_no_room_for_its_headroom() {
    // A header, and zeros up to a multiple of eight bytes, lie between two messages.
    for (headroom, first) in [(8, 16), (7, 16), (15, 17), (1, 24)] {
        let in_place = padded(first).cast_signed() + 8;
        assert_eq!(second_from_first(headroom, first, true), in_place, "headroom {headroom}");
        assert_eq!(second_from_first(headroom, first, false), in_place, "headroom {headroom}");
    }
    for (headroom, first) in [(9, 16), (16, 17), (16, 16), (64, 24)] {
        let in_place = padded(first).cast_signed() + 8;
        assert_ne!(second_from_first(headroom, first, true), in_place, "headroom {headroom}");
        assert_eq!(second_from_first(headroom, first, false), in_place, "headroom {headroom}");
    }
}

#[test]
fn copies_of_messages_share_a_buffer_while_it_has_room() {
    const BUFFER: usize = 16 << 10;
    const HEADROOM: usize = 1000;
    let bed = Bed::with_headroom(&[("rx_seg_size", "16k")], HEADROOM);
    let places = keep(&bed, HEADROOM, |_| true);
    bed.write(&(0..40).flat_map(|number| frame(1, &[number; 24])).collect::<Vec<_>>());
    // The first one is where it was received, and leaves no room for the headroom of those behind it.
    let places = places.take();
    let mut buffers: Vec<_> = places[1..=28].iter().map(|(place, _)| place.addr() / BUFFER).collect();
    buffers.dedup();
    assert!(!buffers.contains(&(places[0].0.addr() / BUFFER)));
    // A buffer has room for 13 of them, with their heads.
    assert!((2..=3).contains(&buffers.len()), "28 copies are in {} buffers", buffers.len());
    for (number, place) in places.into_iter().enumerate() {
        let kept = give_back(&bed, place, HEADROOM);
        assert_eq!(kept, [[MARK; HEADROOM].as_slice(), &[number as u8; 24]].concat(), "message {number}");
    }
}
