//! A host on the path between a client and a listener that records, and does harm when the test asks for it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What it does to the next bytes from the client, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Changes a bit of what goes to the listener.
    Flip,
    /// Sends them twice.
    Replay,
    /// Drops them, and goes on.
    Drop,
    /// Ends the direction to the listener in order, as if the client had sent all.
    Truncate,
    /// Adds bytes of its own.
    Insert,
    /// Resets both connections.
    Reset,
}

#[derive(Default)]
struct State {
    harm: Option<Harm>,
    is_stalled: bool,
    seen: Vec<u8>,
}

/// Passes on the bytes of one caller.
pub struct Path {
    pub address: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Path {
    /// In front of a listener. Its threads end with the sockets that they serve.
    pub fn before(listener: &str) -> Path {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let (listener, shared) = (listener.to_owned(), Arc::<(Mutex<State>, Condvar)>::default());
        let state = Arc::clone(&shared);
        thread::spawn(move || {
            let near = socket.accept().expect("a caller").0;
            let far = TcpStream::connect(listener).expect("the listener lives");
            let (near_too, far_too) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
            let back = Arc::clone(&state);
            thread::spawn(move || pass(far_too, near_too, &back, false));
            pass(near, far, &state, true);
        });
        Path { address, shared }
    }

    /// Does harm to what the client sends next.
    pub fn do_harm(&self, harm: Harm) {
        self.shared.0.lock().expect("no panic").harm = Some(harm);
    }

    /// Passes nothing on any more, or does again.
    pub fn stall(&self, is_stalled: bool) {
        self.shared.0.lock().expect("no panic").is_stalled = is_stalled;
        self.shared.1.notify_all();
    }

    /// Whether these bytes went past.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.shared.0.lock().expect("no panic").seen.windows(bytes.len()).any(|window| window == bytes)
    }

    /// Whether eight bytes like these went past.
    pub fn has_seen_like(&self, is_like: impl Fn(&[u8]) -> bool) -> bool {
        self.shared.0.lock().expect("no panic").seen.windows(8).any(is_like)
    }

    /// How many bytes went past.
    pub fn bytes(&self) -> usize {
        self.shared.0.lock().expect("no panic").seen.len()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &(Mutex<State>, Condvar), is_clients: bool) {
    let mut chunk = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let mut state = shared.1.wait_while(shared.0.lock().expect("no panic"), |state| state.is_stalled);
        let state = state.as_mut().expect("no panic");
        state.seen.extend_from_slice(&chunk[..length]);
        let harm = if is_clients { state.harm.take() } else { None };
        let bytes = match harm {
            None => chunk[..length].to_vec(),
            Some(Harm::Flip) => {
                chunk[length / 2] ^= 1;
                chunk[..length].to_vec()
            }
            Some(Harm::Replay) => chunk[..length].repeat(2),
            Some(Harm::Drop) => continue,
            Some(Harm::Truncate) => {
                // Half of it, perhaps of a record.
                let _ = to.write_all(&chunk[..length / 2]);
                break;
            }
            // A record of application data, of one byte.
            Some(Harm::Insert) => [&chunk[..length], &[23, 3, 3, 0, 1, 0]].concat(),
            Some(Harm::Reset) => {
                for socket in [&from, &to] {
                    let socket = socket2::SockRef::from(socket);
                    let _ = socket.set_linger(Some(std::time::Duration::ZERO));
                    let _ = socket.shutdown(Shutdown::Both);
                }
                return;
            }
        };
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
