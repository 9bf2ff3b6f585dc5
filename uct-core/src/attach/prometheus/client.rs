//! One connection: a request, a response, and the end. No call waits.
//!
//! Used by `server`. Built on `http`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use ucs::clock::Deadline;
use ucs::event_set::{EventSet, Events};
use ucs::sys::SystemError;

use super::http::{MOST_HEAD, Request};

/// How long a client may take to send its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long it may take to read the response and to close its side.
const RESPONSE_LIMIT: Duration = Duration::from_secs(5);
/// Bytes behind the head of the request that are discarded: a connection that is closed with unread bytes is reset, and the response
/// with it.
const MOST_DISCARDED: usize = 64 << 10;

/// A client of the server.
pub(super) struct Client {
    /// In the event set.
    pub(super) number: u64,
    socket: TcpStream,
    stage: Stage,
    deadline: Deadline,
}

enum Stage {
    /// The head of the request, as far as it has arrived.
    Request(Vec<u8>),
    /// The request is complete.
    WantsMetrics,
    /// Bytes of the response were sent.
    Response(Rc<[u8]>, usize),
    /// The response was sent. What still arrives is discarded: so many bytes so far.
    Closing(usize),
    Ended,
}

impl Client {
    /// Adds a new connection to `events`, each change of which calls for [`Client::advance`].
    pub(super) fn new(number: u64, socket: TcpStream, events: &EventSet) -> Result<Client, SystemError> {
        let nonblocking = socket.set_nonblocking(true);
        nonblocking.map_err(|error| SystemError::new("make a socket nonblocking", error))?;
        events.add(&socket, Events::READ | Events::WRITE | Events::EDGE_TRIGGERED, number)?;
        let deadline = Deadline::after(REQUEST_LIMIT);
        Ok(Client { number, socket, stage: Stage::Request(Vec::new()), deadline })
    }

    /// Whether its request is complete, and [`Client::respond`] is due.
    pub(super) fn wants_metrics(&self) -> bool {
        matches!(self.stage, Stage::WantsMetrics)
    }

    /// Whether it has sent a request to which the response is not sent.
    pub(super) fn waits_for_response(&self) -> bool {
        matches!(self.stage, Stage::WantsMetrics | Stage::Response(..))
    }

    /// When it is dropped, whatever it does.
    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Whether there is nothing left to do.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended) || self.deadline.expired()
    }

    /// Starts to send the response.
    pub(super) fn respond(&mut self, response: Rc<[u8]>) {
        self.enter(Stage::Response(response, 0));
        self.advance();
    }

    /// Receives and sends as much as the system takes now.
    pub(super) fn advance(&mut self) {
        while !matches!(self.stage, Stage::WantsMetrics | Stage::Ended) {
            match self.step() {
                Ok(Some(stage)) => self.enter(stage),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.stage = Stage::Ended,
            }
        }
    }

    /// Closes the connection, also if a forked child has a copy of the socket.
    pub(super) fn close(self, events: &EventSet) {
        let _ = events.remove(&self.socket);
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn enter(&mut self, stage: Stage) {
        if matches!(stage, Stage::Response(..)) {
            self.deadline = Deadline::after(RESPONSE_LIMIT);
        }
        self.stage = stage;
    }

    /// One system call; returns the stage that follows, if the present one has ended.
    fn step(&mut self) -> io::Result<Option<Stage>> {
        let mut part = [0; 1024];
        match &mut self.stage {
            Stage::Request(head) => {
                let room = part.len().min(MOST_HEAD - head.len());
                match self.socket.read(&mut part[..room])? {
                    0 => return Ok(Some(Stage::Ended)),
                    length => head.extend_from_slice(&part[..length]),
                }
                Ok(match Request::parse(head) {
                    Request::Incomplete => None,
                    Request::Metrics => Some(Stage::WantsMetrics),
                    Request::Refused(response) => Some(Stage::Response(response, 0)),
                })
            }
            Stage::Response(response, sent) => {
                *sent += self.socket.write(&response[*sent..])?;
                if *sent < response.len() {
                    return Ok(None);
                }
                self.socket.shutdown(Shutdown::Write)?;
                Ok(Some(Stage::Closing(0)))
            }
            Stage::Closing(discarded) => match self.socket.read(&mut part)? {
                0 => Ok(Some(Stage::Ended)),
                length => {
                    *discarded += length;
                    Ok((*discarded > MOST_DISCARDED).then_some(Stage::Ended))
                }
            },
            Stage::WantsMetrics | Stage::Ended => Ok(None),
        }
    }
}
