//! The steps of one connection over rdma_cm, without I/O: an event leads to what has to be done and what is reported.
//!
//! [`CmState`] of the SDK decides what the application may call, and which events it gets. This adds what rdma_cm wants in between.

use ucs::{Error, Result};
use uct_plugin::Outcome;
use uct_plugin::cm::{CmState, Due, Input as Heard};

use super::refusal::Refusal;

/// The step in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Client: the peer's address is being resolved.
    Address,
    /// Client: the route is being resolved.
    Route,
    /// Client: the application's request is awaited.
    Idle,
    /// Client: the server's answer is awaited.
    Asked,
    /// Client: the server has accepted, and the queue pair is being prepared.
    Preparing,
    /// Client: prepared, and the server was not notified yet.
    Prepared,
    /// Server: accepted, and the client's answer is awaited.
    Accepted,
    /// rdma_cm takes it as established.
    Established,
    /// The peer has disconnected, and was not answered yet.
    Unanswered,
    /// rdma_cm has nothing more to say.
    Over,
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The peer's address is resolved.
    AddressResolved,
    /// It is not, for now: there was no answer yet.
    AddressLate,
    /// The route is resolved.
    RouteResolved,
    /// The server has accepted, with readable private data.
    Response,
    /// The queue pair works.
    Prepared,
    /// The client's answer has arrived.
    Established,
    /// The peer has disconnected, or has answered that this side did.
    Disconnected,
    /// It is over, and why: a rejection, an error, a deadline, a device that is gone.
    Broken(Refusal),
}

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Resolve the address (once more).
    ResolveAddress,
    /// Resolve the route.
    ResolveRoute,
    /// Send the request.
    Connect,
    /// Move the queue pair to RTS; then comes [`Input::Prepared`].
    Prepare,
    /// Notify the server that the connection is established.
    Establish,
    /// Disconnect, or answer that the peer did.
    Disconnect,
    /// Stop the queue pair.
    Stop,
}

/// What is reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Client: the peer's address and the route are resolved.
    Resolved,
    /// Client: the server has accepted.
    Connected,
    /// Server: the client is connected.
    Notified,
    /// The peer has disconnected.
    Disconnected,
    /// The peer of an established connection is lost.
    Lost(Refusal),
    /// The connection is not established.
    Failed(Refusal),
}

/// What follows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Next {
    /// To be done in this order. If one fails, the rest is left out and [`Input::Broken`] comes.
    pub acts: Vec<Act>,
    /// To be reported afterwards, in this order.
    pub reports: Vec<Report>,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Machine {
    phase: Phase,
    state: CmState,
}

impl Machine {
    /// A client that resolves the peer's address.
    pub fn client() -> Machine {
        Machine { phase: Phase::Address, state: CmState::client() }
    }

    /// A server that has accepted.
    pub fn server() -> Machine {
        Machine { phase: Phase::Accepted, state: CmState::server() }
    }

    /// The step in progress.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the peer, the network or an answer of this side is due, so that a limit of time holds.
    pub fn is_timed(&self) -> bool {
        self.state.awaits_peer() || self.phase == Phase::Unanswered || self.is_leaving()
    }

    /// Whether this side has disconnected and awaits the peer's answer.
    pub fn is_leaving(&self) -> bool {
        self.phase == Phase::Established && self.state.has_disconnected()
    }

    /// What follows from an event. One that does not belong to the phase leads to nothing: events overtake calls.
    pub fn on(&mut self, input: Input) -> Next {
        let mut next = Next::default();
        match (self.phase, input) {
            (_, Input::Broken(refusal)) => self.end(Heard::Lost, Some(refusal), &mut next),
            (Phase::Address, Input::AddressResolved) => {
                self.step(Phase::Route, &[Act::ResolveRoute], &mut next)
            }
            (Phase::Address, Input::AddressLate) => next.acts.push(Act::ResolveAddress),
            (Phase::Route, Input::RouteResolved) => {
                self.step(Phase::Idle, &[], &mut next);
                self.hear(Heard::Resolved, Report::Resolved, &mut next);
            }
            (Phase::Asked, Input::Response) => self.step(Phase::Preparing, &[Act::Prepare], &mut next),
            (Phase::Preparing, Input::Prepared) => {
                self.step(Phase::Prepared, &[], &mut next);
                self.hear(Heard::Accepted, Report::Connected, &mut next);
            }
            (Phase::Accepted, Input::Established) => self.establish(&mut next),
            (Phase::Accepted, Input::Disconnected) => {
                // Only a client that has its answer disconnects: what it sent first was lost or overtaken.
                self.establish(&mut next);
                self.end(Heard::Disconnected, None, &mut next);
            }
            (Phase::Prepared | Phase::Established, Input::Disconnected) => {
                self.end(Heard::Disconnected, None, &mut next);
            }
            (
                Phase::Address | Phase::Route | Phase::Idle | Phase::Asked | Phase::Preparing,
                Input::Disconnected,
            ) => {
                let words = "the server disconnected before it accepted";
                self.end(Heard::Lost, Some(Refusal::new(Error::CONNECTION_RESET, words)), &mut next);
            }
            _ => {}
        }
        next
    }

    fn step(&mut self, phase: Phase, acts: &[Act], next: &mut Next) {
        self.phase = phase;
        next.acts.extend(acts);
    }

    fn hear(&mut self, heard: Heard, report: Report, next: &mut Next) {
        if let Ok(Some(Due::Next)) = self.state.on(heard) {
            next.reports.push(report);
        }
    }

    fn establish(&mut self, next: &mut Next) {
        self.step(Phase::Established, &[], next);
        self.hear(Heard::Notified, Report::Notified, next);
    }

    fn end(&mut self, heard: Heard, refusal: Option<Refusal>, next: &mut Next) {
        let is_unanswered = heard == Heard::Disconnected && !self.state.has_disconnected();
        let phase = if is_unanswered { Phase::Unanswered } else { Phase::Over };
        if self.phase != Phase::Over {
            self.step(phase, &[Act::Stop], next);
        }
        let lost = || refusal.unwrap_or_else(|| Refusal::new(Error::CONNECTION_RESET, "the peer is lost"));
        next.reports.extend(match (self.state.on(heard), heard) {
            (Ok(Some(Due::Disconnected)), Heard::Disconnected) => Some(Report::Disconnected),
            (Ok(Some(Due::Disconnected)), _) => Some(Report::Lost(lost())),
            (Ok(Some(Due::Failed)), _) => Some(Report::Failed(lost())),
            _ => None,
        });
    }

    /// The application sends its request.
    ///
    /// # Errors
    /// As [`CmState::send`].
    pub fn send(&mut self) -> Result<Next> {
        self.state.send()?;
        let mut next = Next::default();
        self.step(Phase::Asked, &[Act::Connect], &mut next);
        Ok(next)
    }

    /// The application notifies the server.
    ///
    /// # Errors
    /// As [`CmState::notify`].
    pub fn notify(&mut self) -> Result<Next> {
        self.state.notify()?;
        let mut next = Next::default();
        self.step(Phase::Established, &[Act::Establish], &mut next);
        Ok(next)
    }

    /// The application disconnects.
    ///
    /// # Errors
    /// As [`CmState::disconnect`].
    pub fn disconnect(&mut self) -> Result<(Outcome, Next)> {
        let outcome = self.state.disconnect()?;
        let mut next = Next::default();
        match (outcome, self.phase) {
            (Outcome::InProgress, _) => {}
            // rdma_cm disconnects what is established only.
            (_, Phase::Prepared) => {
                self.step(Phase::Established, &[Act::Establish, Act::Disconnect, Act::Stop], &mut next);
            }
            (_, Phase::Established) => next.acts.extend([Act::Disconnect, Act::Stop]),
            (_, Phase::Unanswered) => self.step(Phase::Over, &[Act::Disconnect], &mut next),
            _ => {}
        }
        Ok((outcome, next))
    }

    /// The application has not disconnected for long after the peer did: the peer is answered, so that it does not wait for more.
    pub fn answer(&mut self) -> Next {
        let mut next = Next::default();
        if self.phase == Phase::Unanswered {
            self.step(Phase::Over, &[Act::Disconnect], &mut next);
        }
        next
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
