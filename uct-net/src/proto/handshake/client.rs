//! The client's side of a handshake.

use smallvec::{SmallVec, smallvec};
use ucs::text::{PeerLines, PeerText};
use uct_host::select::PeerAddresses;

use super::auth::{self, Nonce, Side};
use super::frames::{End, Frame, Proposal, Way};
use super::step::{Awaits, Failure, RawFrame, Wire};

/// What the client is told.
#[derive(Clone, Debug)]
pub(crate) enum Input<'a> {
    Received(&'a RawFrame),
    /// The answer to [`Action::Choose`]: this pair of interfaces, over the socket of the handshake or beside it.
    Chosen {
        over_socket: bool,
        proposal: Proposal,
    },
    /// The other answer: there is no lane left.
    NoneLeft(&'a str),
    /// The answer to this side's message has come over the lane.
    Replied,
    /// No message crossed the lane both ways, or this side cannot open it.
    LaneFailed(String),
}

/// What the client has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send(Vec<u8>),
    /// The server takes the connection, and this is what it has.
    Welcomed {
        private: Vec<u8>,
        addresses: PeerAddresses,
        explanation: PeerLines,
    },
    /// Choose a lane; the reason is that of the one before, which has failed.
    Choose(Option<String>),
    /// Open the lane to the server's end, and send a message over it.
    Open(End),
    /// The same over the socket of the handshake. No frame is sent or received any more.
    Take(End),
    /// Both sides are connected.
    Done,
    /// The handshake is over.
    Fail(Failure),
}

pub(crate) type Actions = SmallVec<[Action; 2]>;

/// The client.
pub(crate) struct Client {
    wire: Wire,
    state: State,
    key: Option<(Vec<u8>, Nonce)>,
    /// What is sent once the server has proved that it knows the key.
    hello: Option<Frame>,
    /// The server's end of the first lane, until a lane was chosen.
    first: Option<End>,
    /// The server's answer about the first lane may still come.
    has_given_up_first: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Challenge,
    Welcome,
    Choice,
    Ready(Way),
    Message(Way),
    Over,
}

impl Client {
    /// A client with private data, addresses, and a shared key and a fresh number if there is a key.
    pub(crate) fn new(
        private: Vec<u8>,
        addresses: PeerAddresses,
        key: Option<(&[u8], Nonce)>,
    ) -> (Client, Actions) {
        let hello = Frame::Hello { private, addresses };
        let mut client = Client {
            wire: Wire::default(),
            state: State::Welcome,
            key: key.map(|(key, nonce)| (key.to_vec(), nonce)),
            hello: Some(hello),
            first: None,
            has_given_up_first: false,
        };
        let actions = match key {
            Some((_, nonce)) => {
                client.state = State::Challenge;
                client.send(&Frame::Ask { nonce })
            }
            None => client.say_hello(),
        };
        let actions = client.or_fail(actions);
        (client, actions)
    }

    /// What it waits for.
    pub(crate) fn awaits(&self) -> Awaits {
        match self.state {
            State::Challenge => Awaits::Frame("prove that it knows the shared key"),
            State::Welcome => Awaits::Frame("take the connection"),
            State::Choice => Awaits::Decision,
            State::Ready(way) if way.takes_socket() => Awaits::Frame("take over the socket"),
            State::Ready(_) => Awaits::Frame("open its end of the lane"),
            State::Message(way) => Awaits::Message { or_frame: !way.takes_socket() },
            State::Over => Awaits::Nothing,
        }
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) -> Actions {
        let outcome = match input {
            Input::Received(frame) => self.receive(frame),
            Input::Chosen { over_socket, proposal } => self.propose(over_socket, proposal),
            Input::NoneLeft(reason) => self.give_up(reason),
            Input::Replied => self.replied(),
            Input::LaneFailed(reason) => self.lane_failed(reason),
        };
        self.or_fail(outcome)
    }

    /// A failure is the last action. A frame of a newer peer is answered with the reason.
    fn or_fail(&mut self, outcome: Result<Actions, Failure>) -> Actions {
        outcome.unwrap_or_else(|failure| {
            let mut actions = Actions::new();
            if let Failure::Bad(bad) = &failure
                && bad.is_newer
                && let Ok(farewell) =
                    self.send(&Frame::Unable { reason: PeerText::new(&bad.reason), of_first: false })
            {
                actions = farewell;
            }
            self.state = State::Over;
            actions.push(Action::Fail(failure));
            actions
        })
    }

    fn send(&mut self, frame: &Frame) -> Result<Actions, Failure> {
        Ok(smallvec![Action::Send(self.wire.write(frame).map_err(Failure::TooLong)?)])
    }

    fn say_hello(&mut self) -> Result<Actions, Failure> {
        self.state = State::Welcome;
        let hello = self.hello.take().ok_or(Failure::NotAwaited)?;
        self.send(&hello)
    }

    fn receive(&mut self, received: &RawFrame) -> Result<Actions, Failure> {
        if !matches!(self.awaits(), Awaits::Frame(_) | Awaits::Message { .. }) {
            return Err(Failure::NotAwaited);
        }
        let frame = self.wire.read(received)?;
        match (self.state, frame) {
            // Also in place of the transport's part, where the server had not yet learned that its socket is the lane.
            (_, Frame::Refused { reason }) => Err(Failure::Rejected(reason)),
            (State::Challenge, Frame::Challenge { nonce: server, proof }) => {
                let (key, client) = self.key.take().ok_or(Failure::NotAwaited)?;
                if !auth::check(&key, Side::Server, &client, &server, &proof) {
                    return Err(Failure::NoKey(Side::Server));
                }
                let proof = auth::prove(&key, Side::Client, &client, &server);
                let mut actions = self.send(&Frame::Answer { proof })?;
                let (own, servers) = auth::seals(&key, &client, &server);
                self.wire.seal(own);
                self.wire.require_seal(servers);
                actions.extend(self.say_hello()?);
                Ok(actions)
            }
            (State::Welcome, Frame::Welcome { private, addresses, explanation, end }) => {
                self.state = State::Choice;
                self.first = Some(end);
                let welcomed = Action::Welcomed { private, addresses, explanation };
                Ok(smallvec![welcomed, Action::Choose(None)])
            }
            (State::Ready(way), Frame::Ready { end }) => {
                self.state = State::Message(way);
                Ok(smallvec![if way.takes_socket() { Action::Take(end) } else { Action::Open(end) }])
            }
            // That of a lane that this side has given up by itself; the answer to a later one follows.
            (State::Ready(_), Frame::Unable { of_first: true, .. }) if self.has_given_up_first => {
                self.has_given_up_first = false;
                Ok(Actions::new())
            }
            (State::Ready(_) | State::Message(Way::Direct), Frame::Unable { reason, .. }) => {
                Ok(self.choose_again(format!("the peer: {reason}")))
            }
            (_, other) => Err(Failure::OutOfOrder(other.name())),
        }
    }

    fn choose_again(&mut self, reason: String) -> Actions {
        self.state = State::Choice;
        smallvec![Action::Choose(Some(reason))]
    }

    fn propose(&mut self, over_socket: bool, proposal: Proposal) -> Result<Actions, Failure> {
        let State::Choice = self.state else { return Err(Failure::NotAwaited) };
        // The end in the Welcome is that of the first lane, of which neither side needs the other's endpoint.
        let first = self.first.take();
        let first = first.filter(|_| over_socket || proposal.end.endpoint.is_empty());
        let way = match (over_socket, &first) {
            (false, None) => Way::Lane,
            (false, Some(_)) => Way::Direct,
            (true, None) => Way::Over,
            (true, Some(_)) => Way::Takeover,
        };
        let mut actions = self.send(&Frame::Propose(way, proposal))?;
        self.state = match first {
            Some(end) => {
                actions.push(if over_socket { Action::Take(end) } else { Action::Open(end) });
                State::Message(way)
            }
            None => State::Ready(way),
        };
        Ok(actions)
    }

    fn give_up(&mut self, reason: &str) -> Result<Actions, Failure> {
        let State::Choice = self.state else { return Err(Failure::NotAwaited) };
        // The server would only see that this side is gone.
        let mut actions = self.send(&Frame::Unable { reason: PeerText::new(reason), of_first: false })?;
        self.state = State::Over;
        actions.push(Action::Fail(Failure::Lane(reason.to_owned())));
        Ok(actions)
    }

    fn replied(&mut self) -> Result<Actions, Failure> {
        let State::Message(way) = self.state else { return Err(Failure::NotAwaited) };
        self.state = State::Over;
        let mut actions = if way.takes_socket() { Actions::new() } else { self.send(&Frame::Connected)? };
        actions.push(Action::Done);
        Ok(actions)
    }

    fn lane_failed(&mut self, reason: String) -> Result<Actions, Failure> {
        match self.state {
            State::Message(way) if way.takes_socket() => Err(Failure::Lane(reason)),
            State::Message(way) => {
                self.has_given_up_first |= way.is_first();
                Ok(self.choose_again(reason))
            }
            _ => Err(Failure::NotAwaited),
        }
    }
}
