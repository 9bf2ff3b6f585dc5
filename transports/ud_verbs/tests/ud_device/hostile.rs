//! A queue pair of the test's own that sends forged, changed and repeated packets at an interface, as fast as it can, while
//! an honest pair is served.

use std::time::{Duration, Instant};

use uct_ib::DeviceAddress;
use uct_ib::verbs::{Ah, InlineData, InlineWr, QpKind, SendFlags, WcBuffer};

use crate::raw::{BUFFER, End};
use crate::support::{ID, Link, Random, Side, connect, context, devices, until};

/// The key of the transport's queue pairs.
const QKEY: u32 = 0x1d_c0_d5_17;
/// Packets of CONNECT and CHALLENGE.
const CONNECT: u8 = 0x80;
const CHALLENGE: u8 = 0x86;
/// Connections that the interface lets a port make.
const PER_PORT: u64 = 16;
/// Bytes of a receive buffer, and how many there are.
const SLOT: usize = 2048;
const SLOTS: usize = BUFFER / SLOT;

/// The hostile queue pair.
struct Hostile {
    end: End,
    way: std::sync::Arc<Ah>,
    qp: u32,
    /// Identity of the interface that it names as the sender.
    identity: u64,
    /// What it has said and heard, to be said again.
    known: Vec<Vec<u8>>,
    challenges: u64,
}

impl Hostile {
    fn new(device: &str, victim: &Side, other: &Side) -> Hostile {
        let end = End::new(device.split(':').next().expect("a name"), QpKind::Ud);
        end.qp.start_ud(1, end.port.pkey_index(), QKEY).expect("RTS");
        (0..SLOTS).for_each(|slot| end.post_receive(slot as u64, slot * SLOT));
        let at = victim.iface.address().expect("an address");
        let peer = DeviceAddress::parse(&at.device).expect("a device address");
        let vector = end.port.vector_to(&peer).expect("reachable");
        let way = Ah::new(end.qp.pd(), &vector).expect("a handle");
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let qp = word(&at.iface[..8]) >> 32;
        let identity = word(&other.iface.address().expect("an address").iface[8..16]);
        Hostile { end, way, qp: qp as u32, identity, known: Vec::new(), challenges: 0 }
    }

    /// A request for a connection, as this interface's own or in another's name.
    fn request(&self, identity: u64, key: u32, cookie: u64) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[0] = CONNECT;
        bytes.extend(b"udrv\x04\0\x10\0");
        bytes.extend(key.to_le_bytes());
        bytes.extend([0, 0, 16, 0, 0, 0, 0, 0]);
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(identity.to_le_bytes());
        bytes.push(28);
        bytes.extend(self.end.port.device_address().pack());
        bytes.extend(self.end.qp.number().to_le_bytes());
        bytes.extend(cookie.to_le_bytes());
        bytes
    }

    fn say(&mut self, bytes: &[u8]) {
        let pieces = [InlineData::new(&bytes[..bytes.len().min(128)])];
        let request = InlineWr::send(u64::MAX, &pieces, SendFlags::SIGNALED);
        let posted = self.end.qp.post_inline(request.to(&self.way, self.qp, QKEY));
        assert!(posted.is_ok() || posted.is_err_and(|error| error.is_full()));
        if self.known.len() < 256 {
            self.known.push(bytes.to_vec());
        }
    }

    /// Takes in what came, and answers challenges.
    fn listen(&mut self) {
        let mut buffer = WcBuffer::<16>::new();
        let ended = self.end.cq.poll(&mut buffer).expect("the queue works").to_vec();
        for wc in ended.iter().filter(|wc| wc.is_ok() && wc.is_receive()) {
            let slot = wc.wr_id() as usize * SLOT;
            let packet = self.end.read(slot + 40, wc.byte_length().saturating_sub(40));
            self.end.post_receive(wc.wr_id(), slot);
            if packet.first() == Some(&CHALLENGE) && packet.len() == 32 {
                let key = u32::from_le_bytes(packet[4..8].try_into().expect("4 bytes"));
                let cookie = u64::from_le_bytes(packet[24..].try_into().expect("8 bytes"));
                self.challenges += 1;
                let identity = if key.is_multiple_of(2) { self.identity } else { key.into() };
                self.say(&self.request(identity, key, cookie));
            } else if self.known.len() < 512 {
                self.known.push(packet);
            }
        }
    }

    /// One packet of any kind.
    fn babble(&mut self, random: &mut Random) {
        let key = random.next() as u32;
        let mut bytes = match random.next() % 3 {
            // Every other one in the honest peer's name.
            0 => self.request(if key.is_multiple_of(2) { self.identity } else { key.into() }, key, 0),
            _ => match self.known.get(random.next() as usize % self.known.len().max(1)) {
                Some(packet) => packet.clone(),
                None => vec![key as u8; 40],
            },
        };
        for _ in 0..random.next() % 4 {
            let place = random.next() as usize % bytes.len().max(1);
            match bytes.get_mut(place) {
                Some(byte) if random.next().is_multiple_of(2) => *byte = random.next() as u8,
                _ => bytes.truncate(place.max(1)),
            }
        }
        if random.next().is_multiple_of(8)
            && let Some(first) = bytes.first_mut()
        {
            *first = CONNECT + random.next() as u8 % 8;
        }
        self.say(&bytes);
    }
}

fn counter(side: &Side, name: &str) -> u64 {
    let counters = side.iface.transport_counters();
    counters.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

#[test]
fn forged_changed_and_repeated_packets_do_not_touch_an_honest_pair() {
    let Some((_turn, names)) = devices() else { return };
    let seconds = std::env::var("UCT_TEST_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let mut random = Random::from_environment();
    let context = context(&[("max_connections_per_port", &PER_PORT.to_string())]);
    let victim = Side::new(&context, &names[0]);
    let honest = Side::new(&context, names.last().expect("a device"));
    let mut hostile = Hostile::new(&names[0], &victim, &honest);
    let (near, far) = connect(&honest, &victim);
    let mut sent = 0;
    let send = |link: &Link| u64::from(link.ep.am_short(ID, 0, b"message").is_ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(3));
    while Instant::now() < end {
        for _ in 0..8 {
            hostile.babble(&mut random);
        }
        hostile.listen();
        sent += send(&near);
        victim.worker.progress();
        honest.worker.progress();
        let connections = counter(&victim, "connections");
        assert!(connections <= PER_PORT + 2, "{connections} connections");
    }
    println!(
        "{} messages beside {} challenges; {} connections, {} packets discarded",
        sent,
        hostile.challenges,
        counter(&victim, "connections"),
        counter(&victim, "discarded")
    );
    assert!(hostile.challenges > PER_PORT, "it was asked to show that it receives");
    assert!(sent > 0);
    until(&[&honest, &victim], "the honest peer's messages", || victim.received.get() == sent);
    assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
    // The interface that it names reaches the victim, and is reached, all the same; unless it is behind the same port, which has all that
    // it may have.
    if names.len() > 1 {
        let before = honest.received.get();
        let there = victim.iface.connect(&honest.iface.address().expect("an address")).expect("reachable");
        let back = honest.iface.connect(&victim.iface.address().expect("an address")).expect("reachable");
        until(&[&honest, &victim], "a message to the honest peer", || {
            there.am_short(ID, 0, b"message").is_ok()
        });
        until(&[&honest, &victim], "its delivery", || honest.received.get() > before);
        until(&[&honest, &victim], "a message from it", || back.am_short(ID, 0, b"message").is_ok());
        until(&[&honest, &victim], "its delivery", || victim.received.get() > sent);
    }
}
