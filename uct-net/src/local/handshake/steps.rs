//! The steps of a handshake over its socket: each has a limit, and all of them have one.

use std::borrow::Cow;
use std::cell::Cell;
use std::task::Poll;
use std::time::{Duration, Instant};

use ucs::Error as Status;

use super::super::conn::Conn;
use super::super::net::NetHandle;
#[cfg(feature = "tls")]
use super::super::session::Session;
use super::super::socket::FrameSocket;
#[cfg(feature = "tls")]
use super::super::span::{Instrument, stage};
#[cfg(feature = "tls")]
use crate::TlsPeer;
use crate::error::{Error, Result, Stage};
use crate::proto::handshake::auth::{self, Nonce, Side};
use crate::proto::handshake::{Failure, RawFrame};

/// The remedy for a peer that was reached and does not continue.
const NOT_CONTINUED: &str = "check that the peer is a program with uct-net whose Net is driven, that it accepts if it listens, and that the network drops no packets, nor long ones (MTU)";
/// What a peer does that takes no bytes.
const TAKE: &str = "take what this side sends";
/// Steps that may take their whole limit.
const SLOW_STEPS: u32 = 2;
/// Lanes that may take twice their limit each.
const SLOW_LANES: u32 = 4;

/// A handshake over a socket.
pub(super) struct Steps<'a> {
    pub(super) net: &'a NetHandle,
    pub(super) socket: &'a FrameSocket,
    begun: Instant,
    /// The limit of all steps together; `None` on the side that calls, whose limit is that of connecting as a whole.
    whole: Cell<Option<Duration>>,
    lanes: Cell<u32>,
}

/// A limit, and the option that it comes from.
#[derive(Clone, Copy)]
struct Limit {
    time: Duration,
    option: &'static str,
}

impl<'a> Steps<'a> {
    /// Those of the side that calls.
    pub(super) fn of_client(net: &'a NetHandle, socket: &'a FrameSocket) -> Steps<'a> {
        Steps { net, socket, begun: Instant::now(), whole: Cell::new(None), lanes: Cell::new(0) }
    }

    /// Those of the side that is called, up to the Hello or from then on. They have a limit together, which nothing that a caller sends renews.
    pub(super) fn of_server(net: &'a NetHandle, socket: &'a FrameSocket) -> Steps<'a> {
        let steps = Steps::of_client(net, socket);
        steps.whole.set(Some(net.options.handshake_timeout.saturating_mul(SLOW_STEPS)));
        steps
    }

    /// This side has opened a lane, which is given time for its first messages.
    pub(super) fn add_lane(&self) {
        if self.lanes.get() < SLOW_LANES {
            self.lanes.set(self.lanes.get() + 1);
            let time = self.lane_limit().time;
            self.whole.set(self.whole.get().map(|whole| whole.saturating_add(time)));
        }
    }

    /// The next frame; `what` the peer has to do, for errors.
    pub(super) async fn frame(&self, what: &str) -> Result<RawFrame> {
        self.limited(self.limit(), what, self.socket.receive()).await
    }

    /// The next frame of a client that has been given a lane to use.
    pub(super) async fn use_of_lane(&self) -> Result<RawFrame> {
        self.limited(self.lane_limit(), "use the lane", self.socket.receive()).await
    }

    /// Sends the bytes of a frame: a peer that reads nothing leaves no room for them.
    pub(super) async fn send(&self, bytes: &[u8]) -> Result {
        self.limited(self.limit(), TAKE, self.socket.send(bytes)).await
    }

    /// Waits until a message has come over a lane, the peer's first or the answer to this side's; or a frame has, which is returned. The outer
    /// error is one of the socket, the inner one of the lane.
    pub(super) async fn message_or_frame(&self, conn: &Conn) -> Result<Result<Option<RawFrame>>> {
        let mut answer = std::pin::pin!(self.message(conn, false));
        let mut frame = std::pin::pin!(self.socket.receive());
        std::future::poll_fn(|context| {
            if let Poll::Ready(answered) = answer.as_mut().poll(context) {
                return Poll::Ready(Ok(answered.map(|()| None)));
            }
            frame.as_mut().poll(context).map(|frame| Ok(Ok(Some(frame?))))
        })
        .await
    }

    /// Waits until a message has come over a lane: the peer's first (`asked`), or the answer to this side's.
    pub(super) async fn message(&self, conn: &Conn, asked: bool) -> Result {
        let limit = self.net.options.lane_timeout;
        let mut sleep = self.net.reactor.sleep(limit);
        std::future::poll_fn(|context| match conn.poll_probe(asked, context) {
            Ok(true) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
            Ok(false) => sleep.poll_due(context).map(|()| {
                let reason = format!("no message came over the lane within {limit:?} (lane_timeout)");
                Err(Error::new(Stage::Open, conn.peer(), Status::TIMED_OUT, reason)
                    .hint("run uct_info --doctor on both sides, and check what the network drops"))
            }),
        })
        .await
    }

    fn limit(&self) -> Limit {
        Limit { time: self.net.options.handshake_timeout, option: "handshake_timeout" }
    }

    fn lane_limit(&self) -> Limit {
        Limit { time: self.net.options.lane_timeout.saturating_mul(2), option: "twice lane_timeout" }
    }

    async fn limited<T>(&self, limit: Limit, what: &str, step: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.whole.get().map(|whole| whole.saturating_sub(self.begun.elapsed()));
        let left = left.filter(|left| *left < limit.time);
        let mut sleep = self.net.reactor.sleep(left.unwrap_or(limit.time));
        let mut step = std::pin::pin!(step);
        std::future::poll_fn(|context| {
            if let Poll::Ready(outcome) = step.as_mut().poll(context) {
                return Poll::Ready(outcome);
            }
            sleep.poll_due(context).map(|()| {
                let reason = match self.whole.get().filter(|_| left.is_some()) {
                    Some(whole) => format!(
                        "the peer did not {what} within {whole:?}, the limit of all steps together (twice handshake_timeout, and twice \
                         lane_timeout for each of {} lanes)",
                        self.lanes.get()
                    ),
                    None => format!("the peer did not {what} within {:?} ({})", limit.time, limit.option),
                };
                Err(self.socket.failed(Status::TIMED_OUT, reason).hint(NOT_CONTINUED))
            })
        })
        .await
    }

    /// The error of a machine that has failed.
    pub(super) fn failed(&self, failure: Failure) -> Error {
        let status = match &failure {
            Failure::Bad(bad) if bad.is_newer => Status::UNSUPPORTED,
            Failure::Bad(_) | Failure::OutOfOrder(_) | Failure::NotAwaited => Status::IO_ERROR,
            Failure::TooLong(_) => Status::INVALID_PARAM,
            Failure::Rejected(_) | Failure::NoKey(_) | Failure::OneKey(_) | Failure::TooManyLanes => {
                Status::REJECTED
            }
            Failure::GaveUp(_) | Failure::Lane(_) => Status::UNREACHABLE,
        };
        let error = self.socket.failed(status, failure.to_string());
        match failure {
            Failure::NoKey(Side::Server) if self.net.options.requires_tls() => {
                error.hint("both sides need the same shared_key, and no program between them may end TLS")
            }
            Failure::NoKey(Side::Server) => error.hint("both sides need the same shared_key"),
            Failure::GaveUp(_) => Error { stage: Stage::Choose, ..error },
            _ => error,
        }
    }

    /// The shared key, if there is one, and a fresh number. Inside TLS it is one of the session.
    pub(super) fn key(&self) -> Result<Option<(Cow<'a, [u8]>, Nonce)>> {
        let Some(key) = &self.net.options.shared_key else { return Ok(None) };
        let key = Cow::Borrowed(&**key);
        #[cfg(feature = "tls")]
        let key = match self.socket.binding()? {
            Some(session) => Cow::Owned(auth::bound(&key, &session)),
            None => key,
        };
        let nonce = auth::nonce().map_err(|error| self.socket.failed(Status::IO_ERROR, error.to_string()))?;
        Ok(Some((key, nonce)))
    }
}

/// Completes TLS, within a limit for all of it.
#[cfg(feature = "tls")]
pub(crate) async fn secure(net: &NetHandle, socket: &FrameSocket, session: Session) -> Result<TlsPeer> {
    let steps = Steps::of_client(net, socket);
    let secured = steps.limited(steps.limit(), "complete TLS", socket.secure(session));
    secured.instrument(stage!("tls")).await.map_err(|error| match error.status {
        Status::CONNECTION_RESET => error.hint("it may not use TLS: set tls on both sides or on neither"),
        _ => error,
    })
}

/// Refuses a caller that expects other security, and waits until it has hung up, within a limit.
pub(super) async fn part(net: &NetHandle, socket: &FrameSocket) {
    let parting = async {
        socket.part().await;
        Ok(())
    };
    let steps = Steps::of_client(net, socket);
    let _ = steps.limited(steps.limit(), "hang up", parting).await;
}
