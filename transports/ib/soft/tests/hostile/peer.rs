//! A peer whose packets are written by hand. It has the place of side 0; side 1 is the device under attack.

use std::convert::Infallible;

use uct_ib_soft::engine::wire::{Aeth, AtomicEth, Headers, Kind, Part, Reth, Syndrome};
use uct_ib_soft::engine::{Incoming, Psn};

use crate::net::{Pair, Setup, address};

/// The packet that side 1 expects first is this one, and those behind it.
pub fn psn(number: u32) -> Psn {
    Psn::new(0xff_fffe).plus(number)
}

/// A peer that is connected.
pub struct Peer {
    pub pair: Pair,
}

/// An answer without its details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// An acknowledgement, positive or negative, of a packet.
    Told(Psn, Syndrome),
    /// A packet of a read.
    Read(Psn),
    /// The value that an atomic operation found.
    Found(Psn, u64),
}

impl Peer {
    pub fn new(setup: &Setup) -> Peer {
        Peer { pair: setup.pair() }
    }

    /// Headers of a packet for side 1.
    pub fn headers(&self, kind: Kind, part: Part, psn: Psn) -> Headers {
        Headers { wants_ack: true, ..Headers::new(kind, part, self.pair.sides[1].qp, psn) }
    }

    /// Where an operation on side 1's memory goes.
    pub fn reth(&self, offset: usize, length: usize) -> Option<Reth> {
        let target = self.pair.sides[1].target(offset);
        Some(Reth { address: target.address, rkey: target.rkey, length: length as u32 })
    }

    /// Side 1 gets this packet now.
    pub fn inject(&mut self, headers: &Headers, payload: &[u8]) {
        let bytes = headers.encode(payload.len(), |place| {
            place.copy_from_slice(payload);
            Ok::<(), Infallible>(())
        });
        let bytes = bytes.unwrap_or_else(|never| match never {});
        let now = self.pair.net.now();
        let packet = Incoming { source: address(0), destination: address(1), bytes: &bytes };
        self.pair.net.device(1).receive(packet, now);
    }

    pub fn send(&mut self, psn: Psn) {
        let headers = self.headers(Kind::Send, Part::Only, psn);
        self.inject(&headers, &[7; 8]);
    }

    /// A write of no bytes, which needs neither memory nor a receive buffer.
    pub fn write(&mut self, psn: Psn) {
        let headers = Headers { reth: self.reth(0, 0), ..self.headers(Kind::Write, Part::Only, psn) };
        self.inject(&headers, &[]);
    }

    pub fn read(&mut self, psn: Psn, offset: usize, length: usize) {
        let reth = self.reth(offset, length);
        let headers = Headers { reth, ..self.headers(Kind::ReadRequest, Part::Only, psn) };
        self.inject(&headers, &[]);
    }

    /// Adds 1 to the first eight bytes.
    pub fn add(&mut self, psn: Psn) {
        let target = self.pair.sides[1].target(0);
        let atomic = AtomicEth { address: target.address, rkey: target.rkey, operand: 1, compare: 0 };
        let headers = Headers { atomic: Some(atomic), ..self.headers(Kind::FetchAdd, Part::Only, psn) };
        self.inject(&headers, &[]);
    }

    /// What side 1 says now, and its numbers of completed messages.
    pub fn heads(&mut self) -> Vec<Headers> {
        let now = self.pair.net.now();
        let device = self.pair.net.device(1);
        while device.run(now, 1 << 10) {}
        std::iter::from_fn(|| device.next_outgoing())
            .map(|packet| Headers::decode(&packet.bytes).expect("a packet").0)
            .collect()
    }

    /// What side 1 says now.
    pub fn answers(&mut self) -> Vec<Answer> {
        let answer = |headers: &Headers| match (headers.kind, headers.aeth, headers.original) {
            (Kind::Acknowledge, Some(Aeth { syndrome, .. }), _) => Answer::Told(headers.psn, syndrome),
            (Kind::ReadResponse, ..) => Answer::Read(headers.psn),
            (Kind::AtomicAcknowledge, _, Some(value)) => Answer::Found(headers.psn, value),
            _ => panic!("no answer: {headers:?}"),
        };
        self.heads().iter().map(answer).collect()
    }
}
