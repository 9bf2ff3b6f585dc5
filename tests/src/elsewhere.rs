//! A target in its own thread, which makes progress while the case waits inside a call.
//!
//! For operations that block until the peer's processor has served them, as an emulated `get_short` does. Built on
//! `setup`.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use uct_host::{Capabilities, IfaceAddress, IfaceOptions, Memory};

use crate::pair::{LIMIT, Link, NAP, Side, TURN, recorder};
use crate::setup::Setup;

/// Memory that another thread serves.
pub struct Elsewhere {
    /// First address.
    pub address: u64,
    /// The key, packed.
    pub key: Vec<u8>,
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    thread: JoinHandle<Vec<u8>>,
}

impl Elsewhere {
    /// A thread that opens the transport and registers `bytes`.
    pub fn new(setup: &Setup, bytes: Vec<u8>) -> Elsewhere {
        let (to, inbox) = channel();
        let (outbox, from) = channel();
        let (target, case, config) = (setup.far_target(), setup.case, setup.config.clone());
        let thread = thread::spawn(move || {
            let setup = Setup::new(target, case, config);
            let side = setup.open(IfaceOptions::default());
            let memory = side.memory(bytes);
            serve(&side, memory, &outbox, &inbox)
        });
        let hear = || from.recv_timeout(LIMIT).expect("the thread of the target is there");
        let address = u64::from_le_bytes(hear().try_into().expect("an address"));
        let key = hear();
        Elsewhere { address, key, to, from, thread }
    }

    /// Connects to it.
    pub fn connect(&self, side: &Side) -> Link {
        let hear = || self.from.recv_timeout(LIMIT).expect("the thread of the target is there");
        self.to.send(own_address(side)).expect("the thread of the target is there");
        let (peer, _) = IfaceAddress::unpack(&hear()).expect("an address");
        let (failures, handler) = recorder();
        if side.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
            let ep = side.iface.connect_with(&peer, handler).unwrap_or_else(|refused| panic!("{refused}"));
            return Link::new(ep, failures);
        }
        let ep = side.iface.create_ep(handler).unwrap_or_else(|refused| panic!("{refused}"));
        self.to.send(ep.address().expect("an endpoint address")).expect("the thread of the target is there");
        ep.connect_to_ep(&peer, &hear()).unwrap_or_else(|refused| panic!("{refused}"));
        Link::new(ep, failures)
    }

    /// Ends the thread; what the memory holds in the end.
    pub fn end(self) -> Vec<u8> {
        drop(self.to);
        self.thread.join().unwrap_or_else(|_| panic!("the thread of the target panicked"))
    }
}

fn own_address(side: &Side) -> Vec<u8> {
    let address = side.iface.address().unwrap_or_else(|error| panic!("no address: {error}"));
    address.pack().unwrap_or_else(|error| panic!("{error}"))
}

/// Sends the address of the memory, accepts connections, and makes progress until the case has ended.
fn serve(side: &Side, memory: Memory, outbox: &Sender<Vec<u8>>, inbox: &Receiver<Vec<u8>>) -> Vec<u8> {
    let say = |bytes: Vec<u8>| outbox.send(bytes).expect("the case listens");
    say(memory.address().to_le_bytes().to_vec());
    say(memory.packed_key().unwrap_or_else(|error| panic!("a key does not pack: {error}")));
    let mut links = Vec::new();
    let mut idle = 0_u32;
    loop {
        idle = if side.worker.progress() > 0 { 0 } else { idle + 1 };
        match inbox.try_recv() {
            Err(TryRecvError::Empty) if idle > 0 && idle.is_multiple_of(TURN) => thread::sleep(NAP),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
            Ok(packed) => {
                say(own_address(side));
                let (peer, _) = IfaceAddress::unpack(&packed).expect("an address");
                if side.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
                    continue;
                }
                let (failures, handler) = recorder();
                let ep = side.iface.create_ep(handler).unwrap_or_else(|refused| panic!("{refused}"));
                say(ep.address().expect("an endpoint address"));
                let address = inbox.recv_timeout(LIMIT).expect("the case sends its endpoint's address");
                ep.connect_to_ep(&peer, &address).unwrap_or_else(|refused| panic!("{refused}"));
                links.push(Link::new(ep, failures));
            }
        }
    }
    memory.to_vec()
}
