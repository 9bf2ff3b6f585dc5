//! Programs that call a listener and do not go on, until they are dropped.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::LIMIT;

pub struct Attackers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attackers {
    /// They send random bytes, half a frame or nothing.
    pub fn of_any_kind(address: &str) -> Attackers {
        let words = ["GET / HTTP/1.1\r\n\r\n", "UCTN\x06\x01", ""];
        let words = words.map(|words| words.as_bytes().to_vec()).to_vec();
        Attackers::run(address, 20, Duration::from_millis(1), words, |_| true)
    }

    /// So many that send this and then nothing, and stay until the listener closes them. Another one comes then: fifty a second, so that a busy
    /// machine has time for a handshake before as many have come as there are places.
    pub fn that_stall(address: &str, held: usize, words: Vec<u8>) -> Attackers {
        Attackers::run(address, held, Duration::from_millis(20), vec![words], |attacker| {
            attacker.set_nonblocking(true).expect("set");
            // An answer, and then the end.
            loop {
                match attacker.read(&mut [0; 1 << 12]) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    _ => return true,
                }
            }
        })
    }

    /// One more than `held` of them at a time; the oldest goes when it `may`.
    fn run(
        address: &str,
        held: usize,
        pause: Duration,
        words: Vec<Vec<u8>>,
        may: impl Fn(&mut Socket) -> bool + Send + 'static,
    ) -> Attackers {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, is_over) = (address.to_owned(), Arc::clone(&stop));
        let (all, are_there) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut open = VecDeque::new();
            let mut round = 0;
            // SYNC: pairs with the store in `drop`.
            while !is_over.load(Ordering::Acquire) {
                if open.len() > held {
                    let _ = all.send(());
                    thread::sleep(pause);
                    if !open.front_mut().is_some_and(&may) {
                        continue;
                    }
                    open.pop_front();
                }
                if let Ok(mut attacker) = call(&address) {
                    let _ = attacker.write_all(&words[round % words.len()]);
                    open.push_back(attacker);
                }
                round += 1;
            }
        });
        are_there.recv_timeout(LIMIT).expect("as many attackers as there are to be");
        Attackers { stop, thread: Some(thread) }
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // SYNC: pairs with the load of the thread.
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A socket that is connected to a listener.
fn call(address: &str) -> std::io::Result<Socket> {
    let (domain, address) = match address.strip_prefix("unix:") {
        Some(path) => (Domain::UNIX, SockAddr::unix(path)?),
        None => {
            let address: SocketAddr = address.parse().expect("an address");
            (Domain::for_address(address), address.into())
        }
    };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.connect(&address)?;
    Ok(socket)
}
