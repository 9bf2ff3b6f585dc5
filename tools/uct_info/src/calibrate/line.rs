//! Messages between the side that measures and the side that replies: between two threads, or between two programs over a TCP connection.
//!
//! A message of a program is its length (4 bytes, little-endian) and JSON. The connection is apart from what is measured, so it works whatever
//! the configuration permits. What comes out of it is untrusted: its length is bounded, memory is only used for bytes that have arrived,
//! and every wait has a limit. Used by everything beside it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uct_core::IfaceAddress;
use uct_core::select::{Operation, RemoteMemory};
use uct_tools_common::Failure;

/// Longest wait for the other side.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest message of a caller, and of one of a listener: more than the addresses of as many interfaces as are taken.
pub(super) const OF_CALLER: u32 = 64 << 10;
pub(super) const OF_LISTENER: u32 = 4 << 20;
/// Messages that have arrived and were not read.
const WAITING: usize = 4;
/// Characters of a reason that are shown.
const MAX_REASON: usize = 400;

const GONE: &str = "the other side has ended";

/// What one side says to the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Message {
    /// The first message of a caller: the version of these messages.
    Hello { version: u32 },
    /// The interfaces of the listener, as `PeerAddresses::pack` makes them.
    Offer(Vec<u8>),
    /// To the listener: open interface number so and so of the offer. What was said before is void.
    Open(usize),
    /// The listener begins to.
    Opening,
    /// What leads to an interface that was opened.
    Introduction(Introduction),
    /// To the side that replies.
    Command(Command),
    /// It has begun, or what was awaited has arrived.
    Done,
    /// This side gives up; the reason.
    Failed(String),
    /// The caller needs no more.
    Bye,
}

/// What the side that replies is to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Command {
    /// Reply to each message or put of this kind and size.
    Reply(Operation, usize),
    /// Only make progress.
    Serve,
    /// Put to, and let the other side put to and get from, this memory from now on.
    Use(RemoteMemory),
    /// Report when so many messages have arrived.
    Await(u64),
    /// All is measured.
    End,
}

/// What each side lets the other one know before they begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Introduction {
    /// The interface's address, packed.
    pub iface: Vec<u8>,
    /// The endpoint's, if endpoints are connected to each other.
    pub ep: Option<Vec<u8>>,
    /// Where the other side puts to, and gets from.
    pub memory: u64,
    pub key: Vec<u8>,
    /// The same of memory that the transport did not allocate, if that is reached in another way.
    pub registered: Option<(u64, Vec<u8>)>,
    /// The largest size of each operation that this side takes.
    pub limits: BTreeMap<Operation, usize>,
}

impl Introduction {
    /// The interface's address.
    pub(super) fn address(&self) -> Result<IfaceAddress, Failure> {
        match IfaceAddress::unpack(&self.iface)? {
            (address, []) => Ok(address),
            _ => Err("the other side's address is followed by something else".into()),
        }
    }
}

/// One end of it.
pub(super) struct Line {
    received: Receiver<Result<Message, String>>,
    to: Way,
}

enum Way {
    Thread(SyncSender<Result<Message, String>>),
    Program(TcpStream),
}

impl Line {
    /// Both ends, for two threads.
    pub(super) fn pair() -> (Line, Line) {
        let ((to_one, one), (to_other, other)) = (mpsc::sync_channel(WAITING), mpsc::sync_channel(WAITING));
        (Line { received: one, to: Way::Thread(to_other) }, Line { received: other, to: Way::Thread(to_one) })
    }

    /// The end of a connection to another program, whose messages have up to so many bytes. A thread reads them until the connection ends, or this
    /// is dropped.
    pub(super) fn over(stream: TcpStream, longest: u32) -> Result<Line, Failure> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut reading = stream.try_clone()?;
        let (to_this, received) = mpsc::sync_channel(WAITING);
        thread::Builder::new().name("uct-line".to_owned()).spawn(move || {
            loop {
                let message = read(&mut reading, longest);
                let is_last = message.is_err();
                // It blocks while nobody reads, and so does the other side then.
                if to_this.send(message).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Line { received, to: Way::Program(stream) })
    }

    /// Whether the other end is another program.
    pub(super) fn leads_to_program(&self) -> bool {
        matches!(self.to, Way::Program(_))
    }

    /// Sends a message. Waits while the other side reads nothing, up to [`PATIENCE`].
    pub(super) fn send(&self, message: Message) -> Result<(), Failure> {
        match &self.to {
            Way::Thread(sender) => sender.send(Ok(message)).map_err(|_| GONE.into()),
            Way::Program(stream) => {
                write(stream, &message).map_err(|error| format!("nothing can be sent to it: {error}").into())
            }
        }
    }

    /// Lets the other side know why this one gives up. It may have gone itself.
    pub(super) fn give_up(&self, failure: &Failure) {
        let _ = self.send(Message::Failed(failure.to_string()));
    }

    /// The next message, which has to come within [`PATIENCE`]. An error if the other side has given up, with its reason.
    pub(super) fn receive(&self) -> Result<Message, Failure> {
        self.receive_within(PATIENCE)
    }

    /// As [`Line::receive`], with another limit.
    pub(super) fn receive_within(&self, limit: Duration) -> Result<Message, Failure> {
        checked(self.next(Instant::now() + limit)?)
    }

    /// The first message for which `wanted` returns a value, within this limit; the others are dropped.
    pub(super) fn find<T>(
        &self,
        limit: Duration,
        wanted: impl Fn(Message) -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + limit;
        loop {
            if let Some(found) = wanted(self.next(until)?) {
                return Ok(found);
            }
        }
    }

    /// A message that has arrived, as [`Line::receive`]; does not wait.
    pub(super) fn poll(&self) -> Result<Option<Message>, Failure> {
        match self.received.try_recv() {
            Ok(message) => checked(message.map_err(|problem| shown(&problem))?).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(GONE.into()),
        }
    }

    fn next(&self, until: Instant) -> Result<Message, Failure> {
        match self.received.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => Ok(message.map_err(|problem| shown(&problem))?),
            Err(RecvTimeoutError::Timeout) => {
                Err("the other side does not send what is expected in time".into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(GONE.into()),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Way::Program(stream) = &self.to {
            // Ends the thread that reads.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What came in place of a message that was expected.
pub(super) fn unexpected(message: &Message) -> Failure {
    let text: String = format!("{message:?}").chars().take(40).collect();
    format!("the other side is out of step: it sent {}", shown(&text)).into()
}

fn checked(message: Message) -> Result<Message, Failure> {
    match message {
        Message::Failed(reason) => Err(format!("the other side: {}", shown(&reason)).into()),
        message => Ok(message),
    }
}

/// A text of the other side, as it is printed: in one line, and not longer than that.
fn shown(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(printable).take(MAX_REASON).collect()
}

fn write(mut stream: impl Write, message: &Message) -> std::io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes(), &*body].concat())
}

/// Reads untrusted bytes.
fn read(mut stream: impl Read, longest: u32) -> Result<Message, String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => GONE.to_owned(),
        _ => format!("{GONE}: {error}"),
    })?;
    let length = u32::from_le_bytes(length);
    if length > longest {
        return Err(format!(
            "the other side announces a message of {length} bytes: it is no uct_info --calibrate"
        ));
    }
    let mut body = Vec::new();
    let read = stream.take(length.into()).read_to_end(&mut body);
    match read {
        Ok(read) if read == length as usize => {}
        Ok(_) => return Err(format!("{GONE} within a message")),
        Err(error) => return Err(format!("{GONE} within a message: {error}")),
    }
    serde_json::from_slice(&body)
        .map_err(|error| format!("the other side's message cannot be parsed: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn introduction() -> Message {
        let limits = BTreeMap::from([(Operation::AmShort, 88), (Operation::GetZcopy, usize::MAX)]);
        let (iface, ep, key) = (vec![0, 255], Some(Vec::new()), vec![7; 40]);
        let registered = Some((1 << 40, vec![9; 40]));
        Message::Introduction(Introduction { iface, ep, memory: u64::MAX, key, registered, limits })
    }

    fn messages() -> Vec<Message> {
        let commands = [
            Command::Reply(Operation::PutZcopy, 8),
            Command::Serve,
            Command::Use(RemoteMemory::Registered),
            Command::Await(9),
            Command::End,
        ];
        let mut messages = vec![
            Message::Hello { version: 1 },
            Message::Offer(vec![1, 2, 3]),
            Message::Open(3),
            Message::Opening,
            introduction(),
            Message::Done,
            Message::Bye,
            Message::Failed("no\nmore".to_owned()),
        ];
        messages.extend(commands.map(Message::Command));
        messages
    }

    fn bytes(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).expect("it is short");
        bytes
    }

    /// Both ends of a connection.
    fn programs() -> (Line, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens");
        (Line::over(listener.accept().expect("it was called").0, OF_CALLER).expect("a line"), stream)
    }

    #[test]
    fn every_message_survives_the_way() {
        for message in messages() {
            assert_eq!(read(&*bytes(&message), OF_CALLER), Ok(message));
        }
    }

    #[test]
    fn cut_changed_and_long_messages_are_errors_or_other_messages_and_never_panic() {
        for message in messages() {
            let whole = bytes(&message);
            for length in 0..whole.len() {
                assert!(read(&whole[..length], OF_CALLER).is_err(), "{message:?}, {length} bytes");
            }
            for index in 0..whole.len() {
                for value in [0, b'[', b'"', b'9', b'{', 0x7f, 0x80, 0xff] {
                    let mut changed = whole.clone();
                    changed[index] = value;
                    if let Err(problem) = read(&*changed, OF_CALLER) {
                        assert!(!shown(&problem).contains(char::is_control), "{problem}");
                    }
                }
            }
        }
        let frame = |length: u32| [&length.to_le_bytes()[..], b"1"].concat();
        let refused = |length| read(&*frame(length), OF_CALLER).expect_err("no message");
        assert!(refused(OF_CALLER + 1).contains("announces a message of 65537 bytes"));
        assert!(refused(OF_CALLER).contains("within a message"), "nothing is there but its length");
        let deep = vec![b'['; 100_000];
        let deep = [&(deep.len() as u32).to_le_bytes()[..], &deep].concat();
        assert!(read(&*deep, OF_LISTENER).is_err(), "no depth is followed");
    }

    #[test]
    fn a_reason_of_the_other_side_stays_in_its_line() {
        let (one, other) = Line::pair();
        other.give_up(&"all\nis \u{1b}[2J lost".into());
        assert_eq!(one.receive().expect_err("given up").to_string(), "the other side: all is  [2J lost");
        other.give_up(&"x".repeat(1 << 20).into());
        assert!(one.poll().expect_err("given up").to_string().len() < 2 * MAX_REASON);
        let long = unexpected(&Message::Offer(vec![0; 1 << 20])).to_string();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn messages_cross_between_programs_and_the_end_of_one_is_an_error_at_the_other() {
        let (line, stream) = programs();
        assert_eq!(line.poll().expect("nothing is wrong"), None);
        for message in messages().into_iter().filter(|message| !matches!(message, Message::Failed(_))) {
            write(&stream, &message).expect("it is read");
            assert_eq!(line.receive().expect("it has arrived"), message);
            line.send(message.clone()).expect("it is read");
            assert_eq!(read(&stream, OF_CALLER), Ok(message));
        }
        drop(stream);
        assert_eq!(line.receive().expect_err("it is gone").to_string(), GONE);
        let (line, stream) = programs();
        drop(line);
        assert!(read(&stream, OF_CALLER).is_err(), "the connection is closed");
    }

    #[test]
    fn messages_that_are_not_wanted_are_dropped_until_the_wanted_one() {
        let (one, other) = Line::pair();
        for message in [Message::Done, Message::Failed("void".to_owned()), Message::Open(3)] {
            other.send(message).expect("there is room");
        }
        let number = one.find(PATIENCE, |message| match message {
            Message::Open(number) => Some(number),
            _ => None,
        });
        assert_eq!(number.expect("it has come"), 3);
    }

    #[test]
    fn a_side_that_floods_waits_until_its_messages_are_read() {
        let (line, stream) = programs();
        let flood = thread::spawn(move || {
            let mut sent = 0;
            while write(&stream, &Message::Offer(vec![1; 1 << 14])).is_ok() {
                sent += 1;
            }
            sent
        });
        assert!(matches!(line.receive(), Ok(Message::Offer(_))));
        drop(line);
        // As much as the system and the line hold at most; it ends with the line.
        assert!(flood.join().expect("no panic") < 10_000);
    }
}
