//! Sending and receiving messages, shared memory and notifications.

use std::pin::pin;
use std::rc::Rc;

use ucs::Error as Status;
use uct_net::local::Message;
use uct_net::protocol::Engine;

use super::line::Serving;
use super::target::Target;
use super::{Done, Link, State};
use crate::abi::*;
use crate::failure::{Failure, Outcome};
use crate::handles::{Handle, Kind};

impl State {
    #[inline]
    pub fn send(self: &Rc<State>, engine: &Engine, conn: Handle, bytes: &[u8], user: u64) -> Outcome<u64> {
        let started = {
            let links = self.links.borrow();
            links.get(conn)?.connection.start_send(bytes)
        };
        match started {
            Ok(None) => Ok(self.sent_at_once(user)),
            Err(error) => Ok(self.ended_at_once(UCT_EV_SEND, user, Err(error.into()))),
            Ok(Some(started)) => {
                let connection = self.link(conn)?.connection.clone();
                let rest = async move { connection.finish_send(started).await };
                Ok(self.start_droppable(engine, (UCT_EV_SEND, user), rest, |_, ()| Ok(Done::default())))
            }
        }
    }

    pub fn recv(self: &Rc<State>, engine: &Engine, conn: Handle, user: u64) -> Outcome<u64> {
        let link = self.link(conn)?;
        if link.messages.is_empty() {
            let message = match link.connection.try_recv() {
                Ok(None) => None,
                Ok(Some(message)) => Some(self.keep(message)),
                Err(error) => Some(Err(error.into())),
            };
            if let Some(outcome) = message {
                return Ok(self.ended_at_once(UCT_EV_RECV, user, outcome));
            }
        }
        Ok(self.wait_for_message(engine, link, UCT_EV_RECV, user, None))
    }

    pub fn recv_into(
        self: &Rc<State>,
        engine: &Engine,
        conn: Handle,
        mut target: Target,
        user: u64,
    ) -> Outcome<u64> {
        let link = self.link(conn)?;
        if link.messages.is_empty() {
            match link.connection.try_recv_into(target.bytes()) {
                Ok(None) => {}
                Ok(Some(length)) => {
                    return Ok(self.ended_at_once(UCT_EV_RECV_INTO, user, Ok(target.filled(length))));
                }
                Err(error) => {
                    let op = self.next_op();
                    let length = too_long(&link, error.status);
                    self.report_failure(op, user, UCT_EV_RECV_INTO, length as u64, error.into());
                    return Ok(op);
                }
            }
        }
        Ok(self.wait_for_message(engine, link, UCT_EV_RECV_INTO, user, Some(target)))
    }

    fn wait_for_message(
        self: &Rc<State>,
        engine: &Engine,
        link: Rc<Link>,
        kind: u32,
        user: u64,
        target: Option<Target>,
    ) -> u64 {
        let (op, is_first) = link.messages.add(self, kind, user, target);
        if is_first {
            let serving = Serving::new(self, &link.messages);
            engine.spawn(serve_messages(serving, link));
        }
        op
    }

    pub fn shared(self: &Rc<State>, engine: &Engine, conn: Handle, user: u64) -> Outcome<u64> {
        let link = self.link(conn)?;
        let (op, is_first) = link.shared.add(self, UCT_EV_SHARED, user, ());
        if is_first {
            let serving = Serving::new(self, &link.shared);
            engine.spawn(serve_shared(serving, link));
        }
        Ok(op)
    }

    pub fn notified(self: &Rc<State>, engine: &Engine, conn: Handle, user: u64) -> Outcome<u64> {
        let link = self.link(conn)?;
        let (op, is_first) = link.notices.add(self, UCT_EV_NOTIFIED, user, ());
        if is_first {
            let serving = Serving::new(self, &link.notices);
            engine.spawn(serve_notices(serving, link));
        }
        Ok(op)
    }

    /// Keeps a message for the program, until it releases it.
    fn keep(&self, message: Message) -> Outcome<Done> {
        let message = Box::new(message);
        let (length, data) = (message.len() as u64, message.as_ptr().expose_provenance() as u64);
        let handle = self.messages.borrow_mut().insert(message)?;
        Ok(Done { length, data, result: handle.raw() })
    }

    pub fn release_message(&self, raw: u64) -> Outcome {
        self.remove(&self.messages, raw, Kind::Message).map(drop)
    }
}

/// The length of the message that had no room; 0 after another error.
fn too_long(link: &Link, status: Status) -> usize {
    if status == Status::MESSAGE_TRUNCATED { link.connection.next_length().unwrap_or(0) } else { 0 }
}

async fn serve_messages(serving: Serving<Option<Target>>, link: Rc<Link>) {
    while let Some((flight, target)) = serving.next().await {
        let Some(mut target) = target else {
            if let Some(received) = serving.race(&flight, pin!(link.connection.recv())).await {
                let state = serving.state();
                serving.end(&flight, received.map_err(Failure::from).and_then(|message| state.keep(message)));
            }
            continue;
        };
        let received = serving.race(&flight, pin!(link.connection.recv_into(target.bytes()))).await;
        match received {
            Some(Ok(length)) => serving.end(&flight, Ok(target.filled(length))),
            Some(Err(error)) => {
                let length = too_long(&link, error.status);
                serving.end_too_long(&flight, length, error.into());
            }
            None => {}
        }
    }
}

async fn serve_shared(serving: Serving<()>, link: Rc<Link>) {
    while let Some((flight, ())) = serving.next().await {
        if let Some(received) = serving.race(&flight, pin!(link.connection.shared())).await {
            let kept = received.map_err(Failure::from).and_then(|remote| {
                let length = remote.len();
                let handle = serving.state().remotes.borrow_mut().insert(remote)?;
                Ok(Done { length, data: 0, result: handle.raw() })
            });
            serving.end(&flight, kept);
        }
    }
}

async fn serve_notices(serving: Serving<()>, link: Rc<Link>) {
    while let Some((flight, ())) = serving.next().await {
        if let Some(received) = serving.race(&flight, pin!(link.connection.notified())).await {
            let state = serving.state();
            serving.end(&flight, received.map_err(Failure::from).and_then(|notice| state.keep(notice)));
        }
    }
}
