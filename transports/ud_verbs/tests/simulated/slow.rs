//! Two interfaces of one thread with a slow processor: they receive and send much less than their timers could repeat.
//!
//! Built on the protocol's public interface, and on the addresses of the simulator. Every datagram takes simulated time where it is received and
//! where it is sent.

use std::collections::VecDeque;

use crate::simulator::*;
use uct_ud_verbs::testing::{Body, ConnectionId, Event, Header, Received, Settings, Table, Time};

/// Time that a datagram takes, at each side: that of an emulated machine which shares its processors.
const COST: u64 = 500 * MICROSECOND;
/// Datagrams that progress takes from the device at a time, and that the device has buffers for.
const BATCH: usize = 16;
const BUFFERS: usize = 2048;

struct Slow {
    tables: [Table<Simulated>; 2],
    devices: [VecDeque<Vec<u8>>; 2],
    now: Time,
    connected: usize,
    failed: usize,
    messages: usize,
    acknowledged: usize,
    datagrams: usize,
}

impl Slow {
    fn new(seed: u64) -> Slow {
        let table = |node: u64| {
            let settings = Settings { seed: u128::from(seed * 2 + node), ..Settings::default() };
            Table::new(settings, &node.to_le_bytes()).expect("settings in range")
        };
        Slow {
            tables: [table(0), table(1)],
            devices: [VecDeque::new(), VecDeque::new()],
            now: Time::from_nanos(SECOND),
            connected: 0,
            failed: 0,
            messages: 0,
            acknowledged: 0,
            datagrams: 0,
        }
    }

    fn connect(&mut self, from: usize) -> ConnectionId {
        let to = 1 - from;
        let identity = self.tables[to].identity();
        self.tables[from].connect(self.now, identity, origin(to), || Ok::<_, ()>(to)).expect("a connection")
    }

    /// Sends a message if the connection can.
    fn send(&mut self, from: usize, id: ConnectionId) -> bool {
        let Some(next) = self.tables[from].next(id) else { return false };
        let header = next.header(0, 0);
        next.sent(self.now, 0, 0, Vec::new());
        self.transmit(1 - from, header.to_vec());
        true
    }

    fn transmit(&mut self, to: usize, bytes: Vec<u8>) {
        self.now = self.now.plus(COST);
        self.datagrams += 1;
        if self.devices[to].len() < BUFFERS {
            self.devices[to].push_back(bytes);
        }
    }

    /// As the interface does: datagrams, deadlines, what is to be sent.
    fn progress(&mut self) {
        for node in 0..2 {
            let count = self.devices[node].len().min(BATCH);
            self.tables[node].note_backlog(count as u32, count == BATCH);
            let batch: Vec<_> = self.devices[node].drain(..count).collect();
            for bytes in batch {
                self.now = self.now.plus(COST);
                self.receive(node, bytes);
            }
            self.tables[node].handle_timeout(self.now);
            while let Some(transmit) = self.tables[node].poll_transmit(self.now) {
                let bytes = match transmit.body {
                    Body::Control(bytes) => bytes.to_vec(),
                    Body::Message(header, _) => header.to_vec(),
                };
                self.transmit(1 - node, bytes);
            }
            while let Some(event) = self.tables[node].poll_event() {
                self.connected += usize::from(matches!(event, Event::Connected(_)));
                self.failed += usize::from(matches!(event, Event::Failed(..)));
            }
            // Nothing else takes time.
            self.now = self.now.plus(MICROSECOND);
        }
    }

    fn receive(&mut self, node: usize, bytes: Vec<u8>) {
        let header = Header::read(&bytes).expect("a whole header");
        let table = &mut self.tables[node];
        let id = if header.is_sequenced() {
            match table.receive(self.now, &origin(1 - node), header, bytes) {
                Received::Deliver(id, _) => {
                    self.messages += 1;
                    Some(id)
                }
                Received::Held(id) => Some(id),
                Received::Discard(id, ..) => id,
            }
        } else {
            table.receive_control(self.now, &origin(1 - node), &bytes, node_of)
        };
        let Some(id) = id else { return };
        while table.pop_acknowledged(id).is_some() {
            self.acknowledged += 1;
        }
    }
}

#[test]
fn a_slow_interface_receives_what_has_arrived_before_it_repeats_anything() {
    const PAIRS: usize = 1000;
    for seed in seeds(3) {
        let mut slow = Slow::new(seed);
        let begin = slow.now;
        let mut ids = Vec::new();
        for pair in 0..PAIRS {
            ids.push(slow.connect(0));
            slow.connect(1);
            if pair % 20 == 19 {
                slow.progress();
            }
        }
        while slow.connected < 2 * PAIRS && slow.now.since(begin) < 300 * SECOND {
            slow.progress();
        }
        let (datagrams, took) = (slow.datagrams, slow.now.since(begin) / MILLISECOND);
        println!(
            "seed {seed}: {} of {} ends connected in {took} ms, {datagrams} datagrams, {} failed",
            slow.connected,
            2 * PAIRS,
            slow.failed
        );
        assert_eq!((slow.connected, slow.failed), (2 * PAIRS, 0));
        // Each side sends a request, a challenge, the request again, and an acceptance.
        assert!(datagrams < 2 * 8 * PAIRS, "{datagrams} datagrams");
        for id in &ids {
            while !slow.send(0, *id) {
                slow.progress();
            }
        }
        while slow.acknowledged < PAIRS && slow.now.since(begin) < 600 * SECOND {
            slow.progress();
        }
        let datagrams = slow.datagrams - datagrams;
        println!(
            "    {} messages, {} acknowledged, {datagrams} datagrams, {} failed",
            slow.messages, slow.acknowledged, slow.failed
        );
        assert_eq!((slow.messages, slow.acknowledged, slow.failed), (PAIRS, PAIRS, 0));
        assert!(datagrams < 2 * 2 * PAIRS, "{datagrams} datagrams");
    }
}
