//! The server's side of a handshake.

use smallvec::{SmallVec, smallvec};
use ucs::text::{PeerLines, PeerText};
use uct_host::select::PeerAddresses;

use super::auth::{self, Nonce, Side};
use super::frames::{End, Frame, Proposal, Way};
use super::step::{Awaits, Failure, RawFrame, Wire};

/// What the server is told.
#[derive(Clone, Debug)]
pub(crate) enum Input<'a> {
    Received(&'a RawFrame),
    /// The answer to [`Action::Introduced`]: the caller is accepted.
    Accepted(Acceptance),
    /// The caller is refused: in place of any other input.
    Rejected(&'a str),
    /// The answer to [`Action::Open`]: this side's end of the lane is open, or, over the socket of the handshake, can be.
    Opened(End),
    /// The other answer.
    Unable(String),
    /// The client's message has come over the lane.
    Asked,
}

/// What a caller that is accepted is sent.
#[derive(Clone, Debug)]
pub(crate) struct Acceptance {
    pub(crate) private: Vec<u8>,
    pub(crate) addresses: PeerAddresses,
    pub(crate) explanation: PeerLines,
    /// This side's end of the first lane.
    pub(crate) end: End,
}

/// What the server has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send(Vec<u8>),
    /// This is the caller: accept or reject it.
    Introduced {
        private: Vec<u8>,
        addresses: PeerAddresses,
    },
    /// Open this side's end of a lane, of the connection of the end in the Welcome or of a new one. Over the socket of the handshake: find out
    /// whether that is possible.
    Open(Way, Proposal),
    /// Make the socket of the handshake the lane that was to be opened last. No frame is sent or received any more.
    Take,
    /// Both sides are connected.
    Done,
    /// The handshake is over.
    Fail(Failure),
}

pub(crate) type Actions = SmallVec<[Action; 2]>;

/// The server.
pub(crate) struct Server {
    wire: Wire,
    state: State,
    key: Option<(Vec<u8>, Nonce)>,
    /// Lanes that the client may still propose.
    lanes_left: usize,
    is_first: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    First,
    /// With the client's number.
    Answer(Nonce),
    Hello,
    Decision,
    Choice,
    Opening(Way),
    Use,
    Message {
        over_socket: bool,
    },
    Over,
}

impl Server {
    /// A server with a shared key and a fresh number if it requires one, and with so many lanes that a client may propose.
    pub(crate) fn new(key: Option<(&[u8], Nonce)>, lanes: usize) -> Server {
        Server {
            wire: Wire::default(),
            state: State::First,
            key: key.map(|(key, nonce)| (key.to_vec(), nonce)),
            lanes_left: lanes,
            is_first: true,
        }
    }

    /// What it waits for.
    pub(crate) fn awaits(&self) -> Awaits {
        match self.state {
            State::First | State::Hello => Awaits::Frame("send its first frame"),
            State::Answer(_) => Awaits::Frame("prove that it knows the shared key"),
            State::Choice if self.is_first => Awaits::Frame("choose a transport"),
            State::Choice => Awaits::Frame("choose another transport"),
            State::Use => Awaits::Use,
            State::Message { .. } => Awaits::Message { or_frame: false },
            State::Decision | State::Opening(_) => Awaits::Decision,
            State::Over => Awaits::Nothing,
        }
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) -> Actions {
        let outcome = match input {
            Input::Received(frame) => self.receive(frame),
            Input::Accepted(acceptance) => self.accept(acceptance),
            Input::Rejected(reason) => Ok(self.refuse(reason)),
            Input::Opened(end) => self.opened(end),
            Input::Unable(reason) => self.unable(reason),
            Input::Asked => self.asked(),
        };
        outcome.unwrap_or_else(|failure| self.fail(failure))
    }

    /// A failure is the last action. A caller that has not given up itself is sent it.
    fn fail(&mut self, failure: Failure) -> Actions {
        let mut actions = match &failure {
            Failure::GaveUp(_) => Actions::new(),
            _ => self.refuse(&failure.to_string()),
        };
        self.state = State::Over;
        actions.push(Action::Fail(failure));
        actions
    }

    /// The end. A caller that still takes frames is sent the reason.
    fn refuse(&mut self, reason: &str) -> Actions {
        let takes_frames = match self.state {
            State::Opening(Way::Takeover) | State::Over => false,
            State::Message { over_socket } => !over_socket,
            _ => true,
        };
        self.state = State::Over;
        let refusal = Frame::Refused { reason: PeerText::new(reason) };
        if takes_frames { self.send(&refusal).unwrap_or_default() } else { Actions::new() }
    }

    fn send(&mut self, frame: &Frame) -> Result<Actions, Failure> {
        Ok(smallvec![Action::Send(self.wire.write(frame).map_err(Failure::TooLong)?)])
    }

    fn receive(&mut self, received: &RawFrame) -> Result<Actions, Failure> {
        if !matches!(self.awaits(), Awaits::Frame(_) | Awaits::Use) {
            return Err(Failure::NotAwaited);
        }
        let frame = self.wire.read(received)?;
        match (self.state, frame) {
            (State::First, Frame::Ask { nonce: client }) => {
                let Some((key, server)) = &self.key else {
                    let reason = "this side has no shared key: set shared_key on both or on neither";
                    return Err(Failure::OneKey(reason));
                };
                let proof = auth::prove(key, Side::Server, &client, server);
                let challenge = Frame::Challenge { nonce: *server, proof };
                let (_, own) = auth::seals(key, &client, server);
                self.state = State::Answer(client);
                let actions = self.send(&challenge)?;
                // The caller has the keys once it has read this one.
                self.wire.seal(own);
                Ok(actions)
            }
            (State::First, Frame::Hello { .. }) if self.key.is_some() => {
                Err(Failure::OneKey("this side requires a shared key: set shared_key"))
            }
            (State::Answer(client), Frame::Answer { proof }) => {
                let (key, server) = self.key.take().ok_or(Failure::NotAwaited)?;
                if !auth::check(&key, Side::Client, &client, &server, &proof) {
                    return Err(Failure::NoKey(Side::Client));
                }
                let (clients, _) = auth::seals(&key, &client, &server);
                self.wire.require_seal(clients);
                self.state = State::Hello;
                Ok(Actions::new())
            }
            (State::First | State::Hello, Frame::Hello { private, addresses }) => {
                self.state = State::Decision;
                Ok(smallvec![Action::Introduced { private, addresses }])
            }
            (State::Choice | State::Use, Frame::Propose(way, proposal)) => self.open(way, proposal),
            (State::Choice | State::Use, Frame::Unable { reason, .. }) => Err(Failure::GaveUp(reason)),
            (State::Use, Frame::Connected) => {
                self.state = State::Message { over_socket: false };
                Ok(Actions::new())
            }
            (_, other) => Err(Failure::OutOfOrder(other.name())),
        }
    }

    fn open(&mut self, way: Way, proposal: Proposal) -> Result<Actions, Failure> {
        let is_first = std::mem::take(&mut self.is_first);
        if way.is_first() && !is_first {
            return Err(Failure::OutOfOrder(Frame::Propose(way, proposal).name()));
        }
        self.lanes_left = self.lanes_left.checked_sub(1).ok_or(Failure::TooManyLanes)?;
        self.state = State::Opening(way);
        Ok(smallvec![Action::Open(way, proposal)])
    }

    fn accept(&mut self, acceptance: Acceptance) -> Result<Actions, Failure> {
        let State::Decision = self.state else { return Err(Failure::NotAwaited) };
        self.state = State::Choice;
        let Acceptance { private, addresses, explanation, end } = acceptance;
        self.send(&Frame::Welcome { private, addresses, explanation, end })
    }

    fn opened(&mut self, end: End) -> Result<Actions, Failure> {
        let State::Opening(way) = self.state else { return Err(Failure::NotAwaited) };
        let mut actions = if way.is_first() { Actions::new() } else { self.send(&Frame::Ready { end })? };
        if way.takes_socket() {
            actions.push(Action::Take);
            // The client's message comes behind this side's part of the transport's handshake: each side knows the other.
            self.state = State::Message { over_socket: true };
        } else {
            self.state = State::Use;
        }
        Ok(actions)
    }

    fn unable(&mut self, reason: String) -> Result<Actions, Failure> {
        match self.state {
            // The client sends no frame any more.
            State::Opening(Way::Takeover) => Err(Failure::Lane(reason)),
            State::Opening(way) => {
                self.state = State::Choice;
                self.send(&Frame::Unable { reason: PeerText::new(reason), of_first: way.is_first() })
            }
            _ => Err(Failure::NotAwaited),
        }
    }

    fn asked(&mut self) -> Result<Actions, Failure> {
        let State::Message { .. } = self.state else { return Err(Failure::NotAwaited) };
        self.state = State::Over;
        Ok(smallvec![Action::Done])
    }
}
