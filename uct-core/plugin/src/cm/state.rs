//! How far one end of a connection is, without input or output: which call is permitted, and which event is due.

use ucs::{Error, Result};

use crate::completion::Outcome;

/// How far an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Client: the address is being resolved.
    Resolving,
    /// Client: the application is to send its request.
    Resolved,
    /// Client: the server's answer is awaited.
    Requested,
    /// Server: accepted, the client is to notify.
    Accepted,
    /// Client: connected, the application is to notify.
    Connected,
    /// Both ends know.
    Established,
    /// The last event was due.
    Over,
}

/// What comes from the peer, the network or the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The address is resolved.
    Resolved,
    /// The server has accepted.
    Accepted,
    /// The server has rejected.
    Rejected,
    /// The client has notified.
    Notified,
    /// The peer has disconnected.
    Disconnected,
    /// The connection is lost, a limit of time is over, or the peer broke the protocol.
    Lost,
}

/// What is to be reported for an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The event of that name: resolved, connected, notified.
    Next,
    /// The peer of an established connection has disconnected, or is lost.
    Disconnected,
    /// The connection is not established.
    Failed,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct CmState {
    phase: Phase,
    /// It was established, as far as this side knows.
    was_connected: bool,
    /// This side has called [`CmState::disconnect`].
    disconnected_here: bool,
    is_lost: bool,
}

impl CmState {
    /// Of an end that begins to connect.
    pub const fn client() -> CmState {
        CmState::at(Phase::Resolving)
    }

    /// Of an end that has accepted a request.
    pub const fn server() -> CmState {
        CmState::at(Phase::Accepted)
    }

    const fn at(phase: Phase) -> CmState {
        CmState { phase, was_connected: false, disconnected_here: false, is_lost: false }
    }

    /// The client's request leaves.
    ///
    /// # Errors
    /// [`Error::BUSY`]: not resolved yet. [`Error::NOT_CONNECTED`]: failed. [`Error::INVALID_PARAM`]: sent before, or a server.
    pub fn send(&mut self) -> Result {
        match self.phase {
            Phase::Resolving => Err(Error::BUSY),
            Phase::Resolved => {
                self.phase = Phase::Requested;
                Ok(())
            }
            Phase::Over => Err(Error::NOT_CONNECTED),
            _ => Err(Error::INVALID_PARAM),
        }
    }

    /// The client's notification leaves.
    ///
    /// # Errors
    /// [`Error::BUSY`]: not connected yet. [`Error::NOT_CONNECTED`]: failed, or disconnected by either side.
    /// [`Error::INVALID_PARAM`]: notified before, or a server.
    pub fn notify(&mut self) -> Result {
        match self.phase {
            Phase::Resolving | Phase::Resolved | Phase::Requested => Err(Error::BUSY),
            Phase::Connected if self.disconnected_here => Err(Error::NOT_CONNECTED),
            Phase::Connected => {
                self.phase = Phase::Established;
                Ok(())
            }
            Phase::Accepted | Phase::Established => Err(Error::INVALID_PARAM),
            Phase::Over => Err(Error::NOT_CONNECTED),
        }
    }

    /// This side disconnects: [`Outcome::Done`] the first time, also in response to the peer's; [`Outcome::InProgress`] if it has
    /// before, and the peer has not.
    ///
    /// # Errors
    /// [`Error::BUSY`]: neither connected nor notified yet. [`Error::NOT_CONNECTED`]: both sides have, or the connection has failed.
    pub fn disconnect(&mut self) -> Result<Outcome> {
        match self.phase {
            Phase::Resolving | Phase::Resolved | Phase::Requested | Phase::Accepted => Err(Error::BUSY),
            Phase::Over if !self.was_connected || self.is_lost || self.disconnected_here => {
                Err(Error::NOT_CONNECTED)
            }
            _ if self.disconnected_here => Ok(Outcome::InProgress),
            _ => {
                self.disconnected_here = true;
                Ok(Outcome::Done)
            }
        }
    }

    /// What an input leads to; `None` if nothing is reported any more.
    ///
    /// # Errors
    /// [`Error::IO_ERROR`]: the peer breaks the protocol, and nothing has changed. Take [`Input::Lost`] then.
    pub fn on(&mut self, input: Input) -> Result<Option<Due>> {
        use Phase::{Accepted, Connected, Established, Over, Requested, Resolved, Resolving};
        let due = match (self.phase, input) {
            (Over, _) => return Ok(None),
            (Resolving, Input::Resolved) => {
                self.phase = Resolved;
                Due::Next
            }
            (Requested, Input::Accepted) => {
                (self.phase, self.was_connected) = (Connected, true);
                Due::Next
            }
            (Accepted, Input::Notified) => {
                (self.phase, self.was_connected) = (Established, true);
                Due::Next
            }
            (Connected | Established, Input::Disconnected) => self.end(Due::Disconnected, false),
            (Connected | Established, Input::Lost) => self.end(Due::Disconnected, true),
            (Requested, Input::Rejected) | (Accepted, Input::Disconnected) => self.end(Due::Failed, true),
            (_, Input::Lost) => self.end(Due::Failed, true),
            _ => return Err(Error::IO_ERROR),
        };
        Ok(Some(due))
    }

    fn end(&mut self, due: Due, is_lost: bool) -> Due {
        (self.phase, self.is_lost) = (Phase::Over, is_lost);
        due
    }

    /// Whether the peer or the network is at turn, so that a limit of time holds.
    pub fn awaits_peer(&self) -> bool {
        matches!(self.phase, Phase::Resolving | Phase::Requested | Phase::Accepted)
    }

    /// Whether the address is being resolved.
    pub fn is_resolving(&self) -> bool {
        self.phase == Phase::Resolving
    }

    /// Whether the peer may be notified that this side disconnects.
    pub fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected | Phase::Established)
    }

    /// Whether the last event was due.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether this side has disconnected.
    pub fn has_disconnected(&self) -> bool {
        self.disconnected_here
    }

    /// Its state, for messages: what was awaited.
    pub fn stage(&self) -> &'static str {
        match self.phase {
            Phase::Resolving => "resolve",
            Phase::Resolved => "send the request",
            Phase::Requested => "answer the request",
            Phase::Accepted => "notify",
            Phase::Connected | Phase::Established => "stay connected",
            Phase::Over => "end",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What an application or a peer may do.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send,
        Notify,
        Disconnect,
        On(Input),
    }

    fn step() -> impl Strategy<Value = Step> {
        use Input::{Accepted, Disconnected, Lost, Notified, Rejected, Resolved};
        let inputs = [Resolved, Accepted, Rejected, Notified, Disconnected, Lost];
        prop_oneof![
            Just(Step::Send),
            Just(Step::Notify),
            Just(Step::Disconnect),
            proptest::sample::select(inputs.to_vec()).prop_map(Step::On),
        ]
    }

    /// The place of an event in the row of a client or a server.
    fn place(input: Input, due: Due) -> u32 {
        match (input, due) {
            (Input::Resolved, Due::Next) => 1,
            (Input::Accepted | Input::Notified, Due::Next) => 2,
            (_, Due::Next) => panic!("{input:?} is no event"),
            (_, Due::Disconnected | Due::Failed) => 3,
        }
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        /// Events come in their order, each at most once, and nothing follows the last one; calls are permitted where the contract
        /// says so, and nowhere else.
        #[test]
        fn any_order_of_calls_and_inputs_keeps_the_contract(is_client: bool, steps in prop::collection::vec(step(), 0..40)) {
            let mut state = if is_client { CmState::client() } else { CmState::server() };
            let (mut last, mut sent, mut notified, mut disconnected, mut failed, mut lost) = (0, 0, 0, 0, false, false);
            for step in steps {
                let before = state;
                match step {
                    Step::Send => match state.send() {
                        Ok(()) => {
                            sent += 1;
                            prop_assert!(is_client && last == 1, "sent after event {last}");
                        }
                        Err(Error::BUSY) => prop_assert!(is_client && last == 0),
                        Err(Error::NOT_CONNECTED) => prop_assert_eq!(last, 3),
                        Err(error) => prop_assert!(error == Error::INVALID_PARAM && (!is_client || sent == 1)),
                    },
                    Step::Notify => match state.notify() {
                        Ok(()) => {
                            notified += 1;
                            prop_assert!(is_client && last == 2 && disconnected == 0);
                        }
                        Err(Error::BUSY) => prop_assert!(is_client && last < 2),
                        Err(Error::NOT_CONNECTED) => prop_assert!(last == 3 || disconnected == 1),
                        Err(error) => prop_assert!(error == Error::INVALID_PARAM && (!is_client || notified == 1)),
                    },
                    Step::Disconnect => match state.disconnect() {
                        Ok(Outcome::Done) => {
                            disconnected += 1;
                            prop_assert!(last >= 2 && !failed && !lost);
                        }
                        Ok(Outcome::InProgress) => prop_assert!(last == 2 && disconnected == 1),
                        Err(Error::BUSY) => prop_assert!(last < 2),
                        Err(error) => {
                            prop_assert!(error == Error::NOT_CONNECTED && last == 3);
                            prop_assert!(failed || lost || disconnected == 1);
                        }
                    },
                    Step::On(input) => match state.on(input) {
                        Ok(Some(due)) => {
                            let now = place(input, due);
                            prop_assert!(now > last, "event {now} after {last}");
                            let is_established = last == 2;
                            prop_assert!(now != 3 || is_established == (due == Due::Disconnected));
                            failed |= due == Due::Failed;
                            lost |= due == Due::Disconnected && input == Input::Lost;
                            last = now;
                        }
                        Ok(None) => prop_assert_eq!(last, 3),
                        Err(error) => {
                            prop_assert_eq!(error, Error::IO_ERROR);
                            prop_assert!(last < 3 && input != Input::Lost, "a loss is always taken");
                            prop_assert_eq!(state.stage(), before.stage());
                        }
                    },
                }
                prop_assert!(sent <= 1 && notified <= 1 && disconnected <= 1);
                prop_assert_eq!(state.is_over(), last == 3);
                prop_assert_eq!(state.is_connected(), last == 2);
            }
        }
    }

    #[test]
    fn the_statuses_of_disconnect_are_ucxs() {
        let mut client = CmState::client();
        assert_eq!(client.disconnect(), Err(Error::BUSY));
        client.on(Input::Resolved).unwrap();
        client.send().unwrap();
        assert_eq!(client.disconnect(), Err(Error::BUSY));
        assert_eq!(client.on(Input::Accepted), Ok(Some(Due::Next)));
        assert_eq!(client.disconnect(), Ok(Outcome::Done));
        assert_eq!(client.disconnect(), Ok(Outcome::InProgress));
        assert_eq!(client.on(Input::Disconnected), Ok(Some(Due::Disconnected)));
        assert_eq!(client.disconnect(), Err(Error::NOT_CONNECTED));

        let mut server = CmState::server();
        assert_eq!(server.disconnect(), Err(Error::BUSY));
        server.on(Input::Notified).unwrap();
        assert_eq!(server.on(Input::Disconnected), Ok(Some(Due::Disconnected)));
        assert_eq!(server.disconnect(), Ok(Outcome::Done), "the response");
        assert_eq!(server.disconnect(), Err(Error::NOT_CONNECTED));

        let mut failed = CmState::client();
        assert_eq!(failed.on(Input::Lost), Ok(Some(Due::Failed)));
        assert_eq!(failed.disconnect(), Err(Error::NOT_CONNECTED));
        assert_eq!(failed.on(Input::Lost), Ok(None));
    }
}
