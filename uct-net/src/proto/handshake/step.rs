//! What both machines have in common: their frames as bytes, what they wait for, and how they fail.

use ucs::text::PeerText;

use super::auth::{Seal, Side};
use super::frames::Frame;
use crate::proto::frame::{self, BadFrame};

/// The reason of a server that ends a handshake which nothing is wrong with. It fits into that of an abort.
pub(crate) const GAVE_WAY: &str = "its place was needed, or the listener has ended; try again";

/// A frame as it has arrived: what it is, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) what: u8,
    pub(crate) body: Vec<u8>,
}

/// What the next input has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// A frame; what the peer has to do, for errors.
    Frame(&'static str),
    /// A frame, once the peer has used the lane.
    Use,
    /// The peer's message over the lane; with `or_frame` a frame may come in its place.
    Message { or_frame: bool },
    /// Something that this side decides or opens.
    Decision,
    /// Nothing more.
    Nothing,
}

/// Why a handshake has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Bad(BadFrame),
    /// What this side has to send is longer than a peer accepts.
    #[error("{0}")]
    TooLong(BadFrame),
    /// This frame of the peer's is not one that may come now.
    #[error("the peer sent {0} out of order")]
    OutOfOrder(&'static str),
    #[error("the peer rejected the connection: {0}")]
    Rejected(PeerText),
    /// This side of the two does not know the shared key.
    #[error("the {} does not know the shared key", if *.0 == Side::Server { "peer" } else { "caller" })]
    NoKey(Side),
    /// One side has a shared key and the other one has none: what the peer was told.
    #[error("{0}")]
    OneKey(&'static str),
    /// The client has no lane left.
    #[error("the peer gave up: {0}")]
    GaveUp(PeerText),
    #[error("the peer tries one lane after the other")]
    TooManyLanes,
    /// What this side could not open, where no other lane may follow.
    #[error("{0}")]
    Lane(String),
    /// An input that was not awaited.
    #[error("a frame came that was not awaited")]
    NotAwaited,
}

impl From<BadFrame> for Failure {
    fn from(bad: BadFrame) -> Failure {
        Failure::Bad(bad)
    }
}

/// The frames of both directions. Once a direction has a key, each of its frames has a seal.
#[derive(Default)]
pub(crate) struct Wire {
    own: Option<Seal>,
    peers: Option<Seal>,
}

impl Wire {
    /// Seals what this side sends from now on.
    pub(crate) fn seal(&mut self, own: Seal) {
        self.own = Some(own);
    }

    /// Accepts only what the peer has sealed from now on.
    pub(crate) fn require_seal(&mut self, peers: Seal) {
        self.peers = Some(peers);
    }

    /// A frame to be sent.
    pub(crate) fn write(&mut self, frame: &Frame) -> Result<Vec<u8>, BadFrame> {
        let mut body = frame.body()?;
        if let Some(own) = &mut self.own {
            let seal = own.seal(frame.number(), &body);
            body.extend_from_slice(&seal);
        }
        frame::to_bytes(frame.number(), &body)
    }

    /// A frame that was received.
    pub(crate) fn read(&mut self, received: &RawFrame) -> Result<Frame, BadFrame> {
        let RawFrame { what, body } = received;
        let fields = match &mut self.peers {
            Some(peers) => peers.open(*what, body).ok_or_else(|| {
                let reason = "a frame is not the peer's, or not in its order: a program between both sides has changed, left out or \
                              repeated one";
                BadFrame::new(reason)
            })?,
            None => body,
        };
        Frame::parse(*what, fields)
    }
}
