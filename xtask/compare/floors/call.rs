//! The floor of a transport that sends to itself: two indirect calls and a copy of a header and 8 bytes.
//! Prints nanoseconds per message, the median of batches. Compiled by `cargo xtask compare`; needs std alone.

use std::hint::black_box;
use std::time::Instant;

const BATCH: u64 = 10_000;
const BATCHES: usize = 500;

type Handler = fn(&[u8]) -> i32;
type Send = fn(&mut [u8; 64], u64, &[u8], Handler) -> i32;

#[inline(never)]
fn send(buffer: &mut [u8; 64], header: u64, payload: &[u8], handler: Handler) -> i32 {
    buffer[..8].copy_from_slice(&header.to_ne_bytes());
    let Some(place) = buffer.get_mut(8..8 + payload.len()) else { return -1 };
    place.copy_from_slice(payload);
    handler(&buffer[..8 + payload.len()])
}

#[inline(never)]
fn receive(message: &[u8]) -> i32 {
    black_box(message);
    0
}

fn main() {
    let mut buffer = [0; 64];
    let payload = [1; 8];
    let mut nanoseconds = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let start = Instant::now();
        for header in 0..BATCH {
            let (send, handler): (Send, Handler) = (black_box(send), black_box(receive));
            black_box(send(&mut buffer, header, black_box(&payload), handler));
        }
        nanoseconds.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    println!("{:.2}", nanoseconds[BATCHES / 2]);
}
