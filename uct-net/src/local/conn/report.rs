//! What a connection reports: to `uct_info --attach`, and to its program by `Context::report`.
//!
//! Counts are those that endpoint and connection keep anyway; sends touch nothing for this.

use uct_host::Counters;
use uct_host::attach::{ConnectionReport, Sent};

use super::Conn;
use super::operations::age;
use super::state::State;

impl Conn {
    /// What it has done so far. Not to be called while its state is borrowed.
    pub(crate) fn report(&self) -> ConnectionReport {
        let ep = self.lane().map(|lane| &lane.ep);
        let iface = ep.map(|ep| ep.iface());
        let resource = iface.as_ref().map(|iface| iface.resource());
        let state = self.state.borrow();
        let transfers: Vec<_> = self.moves.borrow().iter().map(|moves| moves.report()).collect();
        let begun = [state.outgoing.front().map(|message| message.since), self.operations.oldest()];
        let oldest = begun.into_iter().flatten().map(age).chain(transfers.iter().map(|it| it.age_ns)).max();
        ConnectionReport {
            number: self.number,
            peer: self.peer.clone(),
            peer_pid: self.peer_pid.get(),
            transport: resource.map_or_else(String::new, |resource| resource.transport.clone()),
            device: resource.map_or_else(String::new, |resource| resource.device.clone()),
            #[cfg(feature = "tls")]
            inside_tls: self.pump.get().is_some(),
            #[cfg(not(feature = "tls"))]
            inside_tls: false,
            interface: iface.as_ref().map_or(0, |iface| iface.number()),
            state: state.name(ep.is_some()).to_owned(),
            failure: state.failure.as_ref().map(|failure| failure.reason.clone()),
            sent: ep.map_or_else(Vec::new, |ep| sent(ep.counters())),
            received: state.arrived.operations,
            received_bytes: state.arrived.bytes,
            unread: state.received.len() as u64,
            in_flight: (state.outgoing.len() + self.operations.len() + transfers.len()) as u64,
            waiting_ns: oldest,
            transfers,
        }
    }
}

impl State {
    /// For people, and programs.
    fn name(&self, has_lane: bool) -> &'static str {
        match () {
            () if self.failure.is_some() => "failed",
            () if !has_lane => "connecting",
            () if self.fin.wanted.is_some() || self.fin.has_come => "closing",
            () => "open",
        }
    }
}

fn sent(counters: Counters) -> Vec<Sent> {
    let sent = counters.iter().map(|(kind, count)| Sent {
        kind: kind.to_owned(),
        operations: count.operations,
        bytes: count.bytes,
    });
    sent.collect()
}
