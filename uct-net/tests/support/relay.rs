//! A host on the path between a client and a listener, which records what it passes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes on the bytes of every caller.
pub struct Relay {
    pub address: String,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// In front of a listener. Its threads end with the sockets that they serve.
    pub fn before(listener: &str) -> Relay {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let (listener, seen) = (listener.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let record = Arc::clone(&seen);
        thread::spawn(move || {
            let near = socket.accept().expect("a caller").0;
            let far = TcpStream::connect(listener).expect("the listener lives");
            let (near_too, far_too) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
            let back = Arc::clone(&record);
            thread::spawn(move || copy(far_too, near_too, &back));
            copy(near, far, &record);
        });
        Relay { address, seen }
    }

    /// Whether these bytes went past, in one piece of what was read at once.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.seen.lock().expect("no panic").windows(bytes.len()).any(|window| window == bytes)
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        seen.lock().expect("no panic").extend_from_slice(&chunk[..length]);
        if to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
