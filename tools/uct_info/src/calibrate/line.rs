//! Messages between the thread that measures and the thread that replies. Used by everything beside it.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::Duration;

use uct_core::IfaceAddress;
use uct_core::select::Operation;
use uct_tools_common::Failure;

/// Longest wait for the other side.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Messages that have arrived and were not read.
const WAITING: usize = 4;

const GONE: &str = "the other side has ended";

/// What one side says to the other.
#[derive(Debug)]
pub(super) enum Message {
    /// What leads to an interface that was opened.
    Introduction(Introduction),
    /// To the side that replies.
    Command(Command),
    /// It has begun, or what was awaited has arrived.
    Done,
    /// This side gives up; the reason.
    Failed(String),
}

/// What the side that replies is to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Command {
    /// Reply to each message or put of this kind and size.
    Reply(Operation, usize),
    /// Only make progress.
    Serve,
    /// Report when so many messages have arrived.
    Await(u64),
    /// All is measured.
    End,
}

/// What each side lets the other one know before they begin.
#[derive(Debug)]
pub(super) struct Introduction {
    pub iface: IfaceAddress,
    /// The endpoint's address, if endpoints are connected to each other.
    pub ep: Option<Vec<u8>>,
    /// Where the other side puts to, and gets from.
    pub memory: u64,
    pub key: Vec<u8>,
}

/// One end of it.
pub(super) struct Line {
    received: Receiver<Message>,
    to: SyncSender<Message>,
}

impl Line {
    /// Both ends.
    pub(super) fn pair() -> (Line, Line) {
        let ((to_one, one), (to_other, other)) = (mpsc::sync_channel(WAITING), mpsc::sync_channel(WAITING));
        (Line { received: one, to: to_other }, Line { received: other, to: to_one })
    }

    /// Sends a message. Waits while the other side reads nothing.
    pub(super) fn send(&self, message: Message) -> Result<(), Failure> {
        self.to.send(message).map_err(|_| GONE.into())
    }

    /// Lets the other side know why this one gives up. It may have gone itself.
    pub(super) fn give_up(&self, failure: &Failure) {
        let _ = self.send(Message::Failed(failure.to_string()));
    }

    /// The next message, which has to come within [`PATIENCE`]. An error if the other side has given up, with its reason.
    pub(super) fn receive(&self) -> Result<Message, Failure> {
        match self.received.recv_timeout(PATIENCE) {
            Ok(message) => checked(message),
            Err(RecvTimeoutError::Timeout) => {
                Err("the other side does not send what is expected in time".into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(GONE.into()),
        }
    }

    /// A message that has arrived, as [`Line::receive`]; does not wait.
    pub(super) fn poll(&self) -> Result<Option<Message>, Failure> {
        match self.received.try_recv() {
            Ok(message) => checked(message).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(GONE.into()),
        }
    }
}

/// What came in place of a message that was expected.
pub(super) fn unexpected(message: &Message) -> Failure {
    format!("the other side is out of step: it sent {message:?}").into()
}

fn checked(message: Message) -> Result<Message, Failure> {
    match message {
        Message::Failed(reason) => Err(format!("the other side: {reason}").into()),
        message => Ok(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_and_a_side_that_gives_up_says_why() {
        let (one, other) = Line::pair();
        assert!(matches!(one.poll(), Ok(None)));
        other.send(Message::Command(Command::Await(9))).expect("there is room");
        other.send(Message::Done).expect("there is room");
        assert!(matches!(one.receive(), Ok(Message::Command(Command::Await(9)))));
        assert!(matches!(one.poll(), Ok(Some(Message::Done))));
        other.give_up(&"all is lost".into());
        assert_eq!(one.receive().expect_err("given up").to_string(), "the other side: all is lost");
        drop(other);
        assert_eq!(one.receive().expect_err("it is gone").to_string(), GONE);
        assert!(one.poll().is_err() && one.send(Message::Done).is_err());
    }
}
