//! An endpoint, for the calls of a program.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use uct_net::protocol::Engine;

use super::domain::Domain;
use super::inside::{State, Stop};
use super::not_opened::{NotOpened, not_opened};
use super::{Atomic, EndpointOptions, Errno, Peek, Receive, Rma, Send};

/// How long closing delivers what was sent.
const CLOSING: Duration = Duration::from_secs(2);
/// How long opening may take.
const OPENING: Duration = Duration::from_secs(10);

/// An endpoint: messages, and memory of peers. Every call returns at once, with `AGAIN` if it has to be made again after progress.
pub struct Endpoint {
    domain: Arc<Domain>,
    number: usize,
    name: SocketAddr,
    is_closed: AtomicBool,
}

impl Endpoint {
    /// Opens an endpoint, which peers can call from then on.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn open(domain: &Arc<Domain>, options: EndpointOptions) -> Result<Endpoint, NotOpened> {
        let EndpointOptions { listen, bindings } = options;
        let (sender, receiver) = mpsc::channel();
        let begin = move |state: &State, engine: &Engine| {
            let (state, own) = (state.clone(), engine.clone());
            engine.spawn(async move {
                let outcome = own.net().listen(listen).await;
                let outcome = outcome.map_err(|error| not_opened(Errno(libc::EADDRNOTAVAIL), &error));
                let outcome = outcome.map(|listener| {
                    let mut name = listen;
                    name.set_port(listener.port().unwrap_or(0));
                    let stop = Rc::new(Stop::default());
                    let number = state.add(name, bindings, &stop);
                    state.accept(&own, number, listener, &stop);
                    (number, name)
                });
                let _ = sender.send(outcome);
            });
        };
        domain.with(begin).map_err(|errno| not_opened(errno, &"the domain is the parent's"))?;
        let limit = Instant::now() + OPENING;
        let (number, name) = loop {
            match receiver.try_recv() {
                Ok(outcome) => break outcome?,
                Err(_) if Instant::now() > limit => {
                    return Err(not_opened(Errno::TIMED_OUT, &"the net does not listen in time"));
                }
                Err(_) => {
                    domain.progress();
                }
            }
        };
        Ok(Endpoint { domain: Arc::clone(domain), number, name, is_closed: AtomicBool::new(false) })
    }

    /// Where peers call it.
    pub fn name(&self) -> SocketAddr {
        self.name
    }

    /// How many peers it has places for.
    #[cfg(test)]
    pub fn peers(&self) -> usize {
        self.domain.with(|state, _| state.peers(self.number)).unwrap_or(0)
    }

    /// Its domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `AGAIN`; `INVALID`: no such peer, or too many buffers; `TOO_LONG`: of bytes to be copied.
    #[inline]
    pub fn send(&self, send: &Send<'_>) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.send(engine, self.number, send))?
    }

    /// Posts a receive of one message.
    ///
    /// # Errors
    /// `INVALID`: no such peer, or too many buffers.
    #[inline]
    pub fn receive(&self, receive: &Receive<'_>) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.receive(engine, self.number, receive))?
    }

    /// Posts a receive of many messages, until less than `minimum` bytes are left.
    ///
    /// # Errors
    /// As [`Endpoint::receive`].
    pub fn receive_many(&self, receive: &Receive<'_>, minimum: usize) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.receive_many(engine, self.number, receive, minimum))?
    }

    /// Looks for a message that no receive has taken.
    ///
    /// # Errors
    /// `INVALID`: no such peer; `BUSY`: the context has claimed another message.
    pub fn peek(&self, peek: &Peek) -> Result<(), Errno> {
        self.domain.progress();
        self.domain.with(|state, engine| state.peek(engine, self.number, peek))?
    }

    /// Receives the message that the same context has claimed, or throws it away with `discard`.
    ///
    /// # Errors
    /// `NO_MESSAGE`: it has claimed none.
    pub fn claim(&self, receive: &Receive<'_>, discard: bool) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.claim(engine, self.number, receive, discard))?
    }

    /// Cancels a posted receive, or a message of which nothing has left: its entry is an error, `CANCELED`.
    ///
    /// # Errors
    /// `NOT_FOUND`: there is none with this context, or it has got its message, or has left.
    pub fn cancel(&self, context: usize) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.cancel(engine, self.number, context))?
    }

    /// Writes to a region of a peer.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn write(&self, rma: &Rma<'_>) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.write(engine, self.number, rma))?
    }

    /// Reads from a region of a peer.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn read(&self, rma: &Rma<'_>) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.read(engine, self.number, rma))?
    }

    /// Updates elements of a region of a peer.
    ///
    /// # Errors
    /// As [`Endpoint::send`]; `INVALID`: buffers that are shorter than the elements, or more than 16 MiB.
    pub fn atomic(&self, atomic: &Atomic<'_>) -> Result<(), Errno> {
        self.domain.with(|state, engine| state.atomic(engine, self.number, atomic))?
    }

    /// Delivers what was sent, for up to 2 s, and ends. Blocks meanwhile. What it has not completed by then makes no entry.
    pub fn close(&self) {
        // SYNC: only for calls one after the other.
        if self.is_closed.swap(true, Ordering::SeqCst) || self.domain.is_of_parent() {
            return;
        }
        let number = self.number;
        let _ = self.domain.with(|state, _| state.stop(number));
        let limit = Instant::now() + CLOSING;
        let is_handed_over = || self.domain.with(|state, _| state.is_handed_over(number)).unwrap_or(true);
        while Instant::now() < limit && !is_handed_over() {
            if !self.domain.progress() {
                std::thread::yield_now();
            }
        }
        let _ = self.domain.with(|state, engine| state.close(engine, number));
        let is_over = || self.domain.with(|state, _| state.is_closed(number)).unwrap_or(true);
        while Instant::now() < limit && !is_over() {
            if !self.domain.progress() {
                std::thread::yield_now();
            }
        }
        let _ = self.domain.with(|state, _| state.remove(number));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}
