//! A host on the path between a client and a listener that stops or kills one of them at a frame of the handshake.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::fate::Fate;
use super::victim::Victim;

/// Bytes of a header, whose first ones are the same in all frames.
const HEADER: usize = 12;
const MAGIC: &[u8] = b"UCTN";
/// The client's last frame over a socket that becomes the lane.
const TAKEOVER: u8 = 13;

/// When it happens: at this frame, or at the first bytes of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A frame of the client's.
    Client(u8),
    /// A frame of the listener's.
    Listener(u8),
    /// The client's first bytes over a lane that is this socket.
    Lane,
}

/// Passes on the bytes of one caller.
pub struct Gate {
    pub address: String,
    victim: Sender<Victim>,
    reached: Receiver<()>,
    open: Sender<()>,
    ended: Receiver<()>,
}

/// What happens, to the direction that has the frame.
struct Hook {
    at: At,
    fate: Fate,
    /// Whether the victim has sent the frame: it passes when the victim goes on.
    is_held: bool,
    victim: Receiver<Victim>,
    reached: Sender<()>,
    open: Receiver<()>,
}

impl Gate {
    /// In front of a listener; the victim is the client, or the listener. Its threads end with the sockets that they serve.
    pub fn before(listener: &str, at: At, is_client: bool, fate: Fate) -> Gate {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("an address").to_string();
        let ((victim, to_hook), (reaches, reached)) = (channel(), channel());
        let ((open, opened), (ends, ended)) = (channel(), channel());
        let is_clients = !matches!(at, At::Listener(_));
        let is_held = fate != Fate::Killed && is_client == is_clients;
        let hook = Hook { at, fate, is_held, victim: to_hook, reached: reaches, open: opened };
        let listener = listener.to_owned();
        thread::spawn(move || {
            let near = socket.accept().expect("a caller").0;
            let far = TcpStream::connect(listener).expect("the listener lives");
            let (near_too, far_too) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
            let (forth, back) = if is_clients { (Some(hook), None) } else { (None, Some(hook)) };
            thread::spawn(move || {
                pass(far_too, near_too, back);
                let _ = ends.send(());
            });
            pass(near, far, forth);
        });
        Gate { address, victim, reached, open, ended }
    }

    /// The process that it happens to.
    pub fn set_victim(&self, victim: Victim) {
        self.victim.send(victim).expect("the stage was not reached");
    }

    /// Whether the stage has been reached.
    pub fn is_reached(&self) -> bool {
        self.reached.try_recv().is_ok()
    }

    /// Lets the frame pass.
    pub fn open(&self) {
        // No one waits if the frame was not held.
        let _ = self.open.send(());
    }

    /// Whether the listener has hung up.
    pub fn has_ended(&self) -> bool {
        self.ended.try_recv().is_ok()
    }
}

impl Hook {
    fn is_for(&self, piece: &[u8], is_lane: bool) -> bool {
        match self.at {
            At::Client(kind) | At::Listener(kind) => piece.starts_with(MAGIC) && piece[5] == kind,
            At::Lane => is_lane,
        }
    }

    fn run(self) {
        let victim = self.victim.recv().expect("there is one");
        match self.fate {
            Fate::Killed => victim.kill(),
            Fate::Stopped | Fate::GoesOn => victim.stop(),
        }
        let _ = self.reached.send(());
        if self.is_held {
            let _ = self.open.recv();
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut hook: Option<Hook>) {
    let (mut chunk, mut is_lane) = ([0; 1 << 16], false);
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        let mut rest = &chunk[..length];
        while !rest.is_empty() {
            // A frame and the first bytes of the lane may come at once.
            let is_frame = rest.starts_with(MAGIC) && rest.len() >= HEADER;
            let body = || u32::from_le_bytes(rest[8..HEADER].try_into().expect("four bytes")) as usize;
            let (piece, behind) =
                rest.split_at(if is_frame { rest.len().min(HEADER + body()) } else { rest.len() });
            if let Some(hook) = hook.take_if(|hook| hook.is_for(piece, is_lane)) {
                hook.run();
            }
            is_lane |= is_frame && piece[5] == TAKEOVER;
            if to.write_all(piece).is_err() {
                return;
            }
            rest = behind;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
