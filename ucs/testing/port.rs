//! Ports for servers that a test starts.
//!
//! Used by tests of programs, which include this file by its path.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// A port without a listener at this moment, below those that the system hands out itself: whatever opens a socket meanwhile does
/// not get it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = (std::process::id() % 4001 * 5) as u16;
    (0..20_000)
        .map(|_| 10_000 + own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000)
        .find(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok())
        .expect("no port from 10000 to 29999 is free")
}
