//! Entries for fuzzing: what a peer sends or writes, as arbitrary bytes.
//!
//! Used by `fuzz/`. Built on the parsers and on the ring. For any bytes, nothing panics, and nothing outside of shared memory is accessed.

use std::ptr::NonNull;

use uct_plugin::memory::Allocation;
use zerocopy::IntoBytes;

use crate::proto::addr::{DeviceAddress, IfaceAddress};
use crate::proto::ring::{
    BODY_WORDS, Body, Control, Delivery, Geometry, INLINE_BYTES, Layout, MappedRing, MappedTurnLine, Place,
    Pool, Receiver, Sender, Short, TURN_LINE_BYTES, TurnLine,
};
use crate::proto::wire;

/// Addresses of a peer.
pub fn fuzz_address(bytes: &[u8]) {
    if let Ok(address) = DeviceAddress::parse(bytes) {
        assert_eq!(address.as_bytes(), bytes, "what is read is what was written");
    }
    if let Ok(address) = IfaceAddress::parse(bytes) {
        assert_eq!(address.as_bytes(), bytes, "what is read is what was written");
    }
}

/// A message over the socket.
pub fn fuzz_control(bytes: &[u8]) {
    if let Ok((kind, body)) = wire::parse_control(bytes) {
        assert_eq!(wire::control(kind, body), bytes, "what is read is what was written");
    }
}

/// Runs both sides of a ring while a third writes into its memory. `bytes` selects the steps.
pub fn fuzz_ring(bytes: &[u8]) {
    let pool = |stride| Pool { count: 4, stride };
    let geometry = Geometry { slots: 8, first: 3, small: pool(128), bulk: pool(1024) };
    let Ok(layout) = Layout::new(geometry) else { panic!("a valid shape") };
    let Ok(memory) = Allocation::new(layout.size()) else { return };
    // SAFETY: the allocation has whole, zeroed pages, and lives longer than both sides.
    let sender = Sender::new(unsafe { MappedRing::new(memory.address(), layout) }, || 0);
    // SAFETY: as above; one sender and one receiver.
    let receiver = Receiver::new(unsafe { MappedRing::new(memory.address(), layout) });
    sender.prepare();
    // SAFETY: inside the allocation.
    let line = unsafe { memory.address().add(layout.turn_line()) };
    // SAFETY: a line that only these two use, and lives longer than both.
    let [near, far] =
        [true, false].map(|is_near| unsafe { TurnLine::new(MappedTurnLine::new(line, is_near), is_near) });
    let mut held = Vec::new();
    let mut steps = bytes.iter().copied();
    while let Some(step) = steps.next() {
        let argument = steps.next().unwrap_or(0);
        match step % 10 {
            0..=2 => {
                let offset = usize::from(argument) | usize::from(steps.next().unwrap_or(0)) << 8;
                let value = std::array::from_fn(|_| steps.next().unwrap_or(0));
                scribble(&memory, offset, u64::from_le_bytes(value));
            }
            3 => {
                let length = usize::from(argument) % (INLINE_BYTES + 1);
                // SAFETY: a body has room for INLINE_BYTES bytes.
                let fill = |body: *mut u8| unsafe { body.write_bytes(argument, length) };
                let _ = sender.send_inline(argument, length, fill);
            }
            4 => {
                let place = if argument & 1 == 0 { Place::Small } else { Place::Bulk };
                if let Some(block) = sender.reserve(place) {
                    let _ = sender.send_block(argument, block, usize::from(argument) % 64);
                }
            }
            5 => {
                let each = |short: Short, data: &[u8]| {
                    assert!(
                        short.tag() < 32 && data.len() <= INLINE_BYTES,
                        "{short:?}: {} bytes",
                        data.len()
                    );
                    std::hint::black_box(data.iter().map(|byte| u32::from(*byte)).sum::<u32>());
                };
                receiver.take_shorts(argument.into(), each);
            }
            6 => {
                let mut inline = [0; BODY_WORDS];
                match receiver.next(&mut inline) {
                    Ok(Some(message)) => held.extend(received(&receiver, &layout, message.data)),
                    Ok(None) => {}
                    // The end of this ring, and of nothing else.
                    Err(_) => return,
                }
            }
            7 if near.is_owner() && argument >= 128 => {
                let place = if argument & 1 == 0 { Place::Small } else { Place::Bulk };
                if let Some(block) = sender.reserve(place) {
                    let _ = sender.send_block_out_of_ring(block, |position, place, index| {
                        let control = Control::block_in_line(position, argument % 32, place, index);
                        near.send_block(control, usize::from(argument) % 64);
                    });
                }
            }
            7 if near.is_owner() => {
                let length = usize::from(argument) % (TURN_LINE_BYTES + 1);
                let _ = sender.try_out_of_ring(|position| {
                    // SAFETY: a body has room for TURN_LINE_BYTES bytes.
                    let fill = |body: *mut u8| unsafe { body.write_bytes(argument, length) };
                    near.send(Control::short(position, argument % 32, length), fill);
                });
            }
            8 if !far.is_owner() => {
                let mut copy = Body::new();
                let is_taken = if let Some(short) = far.take(receiver.position(), &mut copy) {
                    receiver.pass();
                    assert!(short.tag() < 32 && copy.bytes(short).len() <= TURN_LINE_BYTES);
                    std::hint::black_box(copy.bytes(short).iter().map(|byte| u32::from(*byte)).sum::<u32>());
                    true
                } else if let Some(in_block) = far.take_block(receiver.position()) {
                    assert!(in_block.tag < 32);
                    match receiver.accept_out_of_ring(in_block) {
                        Ok(message) => held.extend(received(&receiver, &layout, message.data)),
                        Err(_) => return,
                    }
                    true
                } else {
                    false
                };
                if is_taken {
                    // A reply to nothing: the near end owns the line again.
                    far.send(Control::short(u64::from(argument), 0, 0), |_| ());
                    if !near.is_owner() {
                        near.take(u64::from(argument), &mut copy);
                    }
                }
            }
            _ => {
                if let Some((place, index)) = held.pop() {
                    receiver.release(place, index);
                }
                if sender.attend().is_err() {
                    return;
                }
            }
        }
    }
}

/// Overwrites a word, as a peer may at any time.
fn scribble(memory: &Allocation, offset: usize, value: u64) {
    let offset = offset * size_of::<u64>() % memory.length();
    // SAFETY: inside the allocation.
    let word: NonNull<u64> = unsafe { memory.address().add(offset) }.cast();
    // SAFETY: valid, and aligned, as the allocation and the offset are.
    unsafe { word.write(value) };
}

/// Checks that a delivery lies where it may, and returns the block that is now held.
fn received(receiver: &Receiver<MappedRing>, layout: &Layout, data: Delivery) -> Option<(Place, u32)> {
    match data {
        Delivery::Inline { length } => {
            assert!(length <= INLINE_BYTES, "an inline message of {length} bytes");
            None
        }
        Delivery::Block { place, index, length } => {
            let is_bulk = place == Place::Bulk;
            let capacity = if is_bulk { layout.bulk_capacity() } else { layout.small_capacity() };
            assert!(length <= capacity, "{length} bytes in a block of {capacity}");
            // SAFETY: the length was just checked against the block's; the sum keeps the reads.
            let sum = receiver.block(place, index, |data| unsafe { sum(data, length) });
            std::hint::black_box(sum);
            Some((place, index))
        }
    }
}

/// # Safety
/// `data` is readable for `length` bytes.
unsafe fn sum(data: *const u8, length: usize) -> u32 {
    // SAFETY: the caller's promise; nothing writes meanwhile, because the other side is in this thread.
    unsafe { std::slice::from_raw_parts(data, length) }.iter().map(|byte| u32::from(*byte)).sum()
}
