//! Any bytes as datagrams: the entry of the fuzz target, which the tests run too.
//!
//! Built on the whole of `proto`.

use super::header::{HEADER_SIZE, kind};
use super::{Body, ConnectionId, Handles, Header, Origin, Ready, Received, Settings, Table, Time};

struct Numbers;

impl Handles for Numbers {
    type Send = u32;
    type Receive = u32;
    type Path = u8;

    fn origin(address: &[u8]) -> Option<Origin> {
        SIDES.iter().position(|side| *side == address).map(origin)
    }
}

/// The addresses of the two interfaces.
const SIDES: [&[u8]; 2] = [b"left", b"right"];

/// Where datagrams of an interface come from.
fn origin(side: usize) -> Origin {
    Origin { port: [side as u8 + 1; 16], qp: 1 }
}

/// Two interfaces with a connection between them; `data` determines what is sent, what of it arrives, how it is damaged, and
/// what else arrives. Whatever it is, nothing panics, and each handle that the table gets comes back.
pub fn fuzz_packets(data: &[u8]) {
    let settings =
        Settings { connections_max: 8, held_max: 16, seed: data.len() as u128 + 2, ..Settings::default() };
    let table = |settings, side: usize| Table::new(settings, SIDES[side]).expect("settings in their ranges");
    let left = table(Settings { seed: 1, ..settings.clone() }, 0);
    let right = table(settings, 1);
    let mut lab =
        Lab { tables: [left, right], now: Time::from_nanos(1), packets: 0, returned: 0, wire: Vec::new() };
    let identity = lab.tables[1].identity();
    let first = lab.tables[0].connect(lab.now, identity, origin(1), || Ok::<u8, ()>(1));
    let first = first.expect("the first connection has room");
    let mut input = data;
    while let Some((step, rest)) = input.split_first() {
        input = lab.step(*step, rest, first);
    }
    lab.finish();
}

struct Lab {
    tables: [Table<Numbers>; 2],
    now: Time,
    packets: u32,
    returned: u32,
    /// Datagrams in flight: to which table, and what.
    wire: Vec<(usize, Vec<u8>)>,
}

impl Lab {
    /// One step; returns what is left of the input.
    fn step<'a>(&mut self, step: u8, input: &'a [u8], first: ConnectionId) -> &'a [u8] {
        let side = usize::from(step >> 7);
        let argument = input.first().copied().unwrap_or(0);
        let rest = input.get(1..).unwrap_or(&[]);
        match step & 7 {
            0 => self.flow(),
            1 => self.send(side, argument),
            2 => {
                self.now = self.now.plus(u64::from(argument) << (step >> 3 & 15));
                self.tables[side].handle_timeout(self.now);
            }
            3 => {
                self.wire.pop();
            }
            4 => {
                // Damage one byte of the packet that is next to arrive.
                if let Some((_, packet)) = self.wire.last_mut() {
                    let place = usize::from(argument) % packet.len().max(1);
                    if let Some(byte) = packet.get_mut(place) {
                        *byte ^= 1 << (step >> 3 & 7);
                    }
                }
            }
            5 => self.wire.extend(self.wire.last().cloned()),
            6 => {
                // Bytes of the input as a packet, for a key that exists if so chosen.
                let (packet, rest) = rest.split_at(usize::from(argument).min(rest.len()));
                self.wire.push((side, packet.to_vec()));
                self.flow();
                return rest;
            }
            _ if argument & 15 == 0 => {
                self.tables[0].close(self.now, first);
            }
            _ if argument & 15 == 1 => self.tables[side].shutdown(self.now),
            _ => {
                let identity = self.tables[1 - side].identity();
                let _ = self.tables[side].connect(self.now, identity, origin(1 - side), || Ok::<u8, ()>(0));
            }
        }
        self.collect();
        rest
    }

    fn send(&mut self, side: usize, argument: u8) {
        let ids: Vec<_> = self.tables[side].ids().collect();
        let Some(id) = ids.get(usize::from(argument) % ids.len().max(1)).copied() else { return };
        if let Some(next) = self.tables[side].next(id) {
            let header = next.header(argument & 31, 0);
            next.sent(self.now, argument & 31, 0, self.packets);
            self.packets += 1;
            self.wire.push((1 - side, header.to_vec()));
        }
    }

    /// Lets both sides send, and the newest few datagrams arrive.
    fn flow(&mut self) {
        for side in 0..2 {
            for _ in 0..8 {
                let Some(transmit) = self.tables[side].poll_transmit(self.now) else { break };
                let packet = match transmit.body {
                    Body::Control(packet) => packet.to_vec(),
                    Body::Message(header, _) => header.to_vec(),
                };
                self.wire.push((1 - side, packet));
            }
        }
        for _ in 0..12 {
            let Some((side, packet)) = self.wire.pop() else { break };
            self.arrive(side, &packet);
        }
        self.wire.truncate(64);
        self.collect();
    }

    fn arrive(&mut self, side: usize, packet: &[u8]) {
        let table = &mut self.tables[side];
        let from = origin(1 - side);
        let Some(header) = Header::read(packet) else { return };
        if header.kind() >= kind::CONTROL {
            table.receive_control(self.now, &from, packet, |address| address.first().copied());
            return;
        }
        debug_assert!(packet.len() >= HEADER_SIZE);
        self.packets += 1;
        if self.packets.is_multiple_of(2) && table.receive_plain(&from, header, |_| false).is_some() {
            self.returned += 1;
            table.complete_plain(self.now, header);
            return;
        }
        match table.receive(self.now, &from, header, 0) {
            Received::Deliver(id, _) => {
                self.returned += 1;
                while let Some(ready) = table.pop_ready(id) {
                    let (Ready::Deliver(_) | Ready::Free(_)) = ready;
                    self.returned += 1;
                }
            }
            Received::Discard(Some(id), ..) => {
                self.returned += 1;
                while table.pop_ready(id).is_some() {
                    self.returned += 1;
                }
            }
            Received::Discard(None, ..) => self.returned += 1,
            Received::Held(_) => {}
        }
    }

    /// Fetches what the tables return.
    fn collect(&mut self) {
        for table in &mut self.tables {
            while let Some(event) = table.poll_event() {
                let (super::Event::Connected(id)
                | super::Event::Ready(id)
                | super::Event::Failed(id, _)
                | super::Event::Over(id)) = event;
                while table.pop_undelivered(id).is_some() {
                    self.returned += 1;
                }
                while table.pop_abandoned(id).is_some() {
                    self.returned += 1;
                }
                table.remove(id);
            }
            for id in table.ids().collect::<Vec<_>>() {
                while table.pop_acknowledged(id).is_some() {
                    self.returned += 1;
                }
            }
        }
    }

    /// Ends both sides: every packet must have come back exactly once.
    fn finish(mut self) {
        for side in 0..2 {
            let table = &mut self.tables[side];
            table.shutdown(self.now);
            for id in table.ids().collect::<Vec<_>>() {
                while table.pop_acknowledged(id).is_some() {
                    self.returned += 1;
                }
                while table.pop_abandoned(id).is_some() {
                    self.returned += 1;
                }
                while table.pop_undelivered(id).is_some() {
                    self.returned += 1;
                }
                table.close(self.now, id);
            }
        }
        assert_eq!(self.packets, self.returned, "every packet comes back once");
        self.now = self.now.plus(1 << 40);
        for table in &mut self.tables {
            table.handle_timeout(self.now);
        }
        self.collect();
        assert!(self.tables.iter().all(Table::is_empty), "nothing stays");
    }
}
