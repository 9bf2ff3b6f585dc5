//! Fill: bytes without meaning ahead of a frame, which move its data within a page of the system's memory.
//!
//! The system copies what is sent to pages of its own, from the first byte of a page on if no other data wait. Many processors copy
//! whole blocks (`rep movsb`) up to 17 times slower if the destination lies 1 to 31 bytes behind the source within a page, because reads
//! then seem to depend on the last writes. Data that begin a page, behind a frame's head of 16 or 24 bytes, are such a case, and the
//! memory that applications register often begins a page.

use crate::proto::wire::{FRAME_HEADER, control, frame_header};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Fewer bytes than so many between a source and a destination ahead of it, within a page, are too few.
const NEAR: usize = 32;
/// Payload of the longest fill.
pub(crate) const MAX_FILL: usize = NEAR - FRAME_HEADER;

/// Frames of 8, 16, 24 and 32 bytes; the payloads are zeros.
static FRAMES: [[u8; NEAR]; NEAR / FRAME_HEADER] = frames();

/// The fill ahead of a head of so many bytes, behind which data from this address follow.
pub(crate) fn ahead_of(head: usize, data: usize) -> &'static [u8] {
    match head.wrapping_sub(data) % PAGE {
        0 | NEAR.. => &[],
        distance => {
            let units = (NEAR - distance).div_ceil(FRAME_HEADER);
            &FRAMES[units - 1][..units * FRAME_HEADER]
        }
    }
}

const fn frames() -> [[u8; NEAR]; NEAR / FRAME_HEADER] {
    let mut frames = [[0; NEAR]; NEAR / FRAME_HEADER];
    let mut units = 0;
    while units < frames.len() {
        let header = frame_header(control::FILL, units * FRAME_HEADER).to_ne_bytes();
        let mut byte = 0;
        while byte < header.len() {
            frames[units][byte] = header[byte];
            byte += 1;
        }
        units += 1;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::parse_frame;

    #[test]
    fn behind_a_fill_no_destination_is_a_little_ahead_of_its_source() {
        for head in [8, 16, 24, 31, 32, 40, 264] {
            for data in (0..2 * PAGE).map(|offset| 0x7000_0000 + offset) {
                let fill = ahead_of(head, data);
                let without = head.wrapping_sub(data) % PAGE;
                let with = (head + fill.len()).wrapping_sub(data) % PAGE;
                assert!(with == 0 || with >= NEAR, "head {head}, data {data:x}: {with}");
                assert_eq!(fill.is_empty(), without == 0 || without >= NEAR);
                assert!(fill.len() <= NEAR && fill.len().is_multiple_of(FRAME_HEADER));
            }
        }
    }

    #[test]
    fn a_fill_is_a_whole_frame() {
        for data in 1..NEAR {
            let fill = ahead_of(NEAR, data);
            let header = u64::from_ne_bytes(fill[..FRAME_HEADER].try_into().unwrap());
            assert_eq!(parse_frame(header), (control::FILL, fill.len() - FRAME_HEADER));
            assert!(fill[FRAME_HEADER..].iter().all(|byte| *byte == 0));
            assert!(fill.len() - FRAME_HEADER <= MAX_FILL);
        }
    }
}
