//! The thread that serves metrics over HTTP, to a limited number of clients at a time.
//!
//! Contexts with the same address share one server in a process. Built on `client`, `text`, and `Workers`. Clients whose requests are complete
//! at the same time get one and the same response, so a worker without progress delays them all by a second, however many they are.

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use ucs::event_set::{EventBuffer, EventFd, EventSet, Events};
use ucs::memory::fork::ForkGuard;
use ucs::sys::SystemError;

use super::client::Client;
use super::http;
use super::text;
use crate::attach::workers::{Workers, lock};

/// Clients at a time. A further one takes the place of the oldest one that waits for no response.
pub(super) const MOST_CLIENTS: usize = 16;
/// Between two attempts to accept a client while the system is out of descriptors.
const RETRY: Duration = Duration::from_millis(100);
/// The name of the thread.
const THREAD: &str = "uct-prometheus";
/// Numbers in the event set; those of clients follow.
const STOP: u64 = 0;
const LISTENER: u64 = 1;

/// Those of this process, by the addresses that were asked for.
static SHARED: Mutex<Vec<(SocketAddr, Weak<Server>)>> = Mutex::new(Vec::new());

/// The socket stops listening and the thread ends when this is dropped.
pub(crate) struct Server {
    workers: Arc<Workers>,
    stop: Arc<EventFd>,
    /// The thread has it only while it accepts a client: a forked child closes its copy with this.
    listener: Arc<TcpListener>,
    address: SocketAddr,
    fork: ForkGuard,
}

impl Server {
    /// The one at `address` in this process; started if it is not there. It does not wait for clients.
    ///
    /// # Errors
    /// The address cannot be bound, or there is no thread or descriptor left.
    pub(crate) fn shared(address: SocketAddr) -> Result<Arc<Server>, SystemError> {
        let mut shared = lock(&SHARED);
        shared.retain(|(_, server)| server.strong_count() > 0);
        let there = shared.iter().filter(|(asked, _)| *asked == address);
        let found = there.filter_map(|(_, server)| server.upgrade()).find(|it| it.fork.check().is_ok());
        if let Some(server) = found {
            return Ok(server);
        }
        let server = Arc::new(Server::start(address)?);
        shared.push((address, Arc::downgrade(&server)));
        Ok(server)
    }

    /// Starts one.
    pub(super) fn start(address: SocketAddr) -> Result<Server, SystemError> {
        let failure = |error: std::io::Error| SystemError::new(format!("listen on {address}"), error);
        let listener = Arc::new(TcpListener::bind(address).map_err(failure)?);
        listener.set_nonblocking(true).map_err(failure)?;
        let address = listener.local_addr().map_err(failure)?;
        let stop = Arc::new(EventFd::new()?);
        let events = EventSet::new()?;
        events.add(&*stop, Events::READ, STOP)?;
        events.add(&*listener, Events::READ, LISTENER)?;
        let workers = Arc::new(Workers::new());
        let (accepts, seen) = (Arc::downgrade(&listener), Arc::clone(&workers));
        // The thread has the descriptor too: one that is closed behind its signal is not reported any more.
        let signalled = Arc::clone(&stop);
        let thread = thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            serve(&events, &accepts, &seen);
            drop(signalled);
        });
        thread.map_err(failure)?;
        Ok(Server { workers, stop, listener, address, fork: ForkGuard::new() })
    }

    /// The workers that clients see.
    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Where it listens: with a port where 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.fork.check().is_err() {
            // The socket and the thread are the parent's.
            return;
        }
        // At once, even if the thread is busy or a forked child has a copy of the socket.
        let _ = shutdown(&self.listener, Shutdown::Both);
        self.stop.signal();
    }
}

/// The thread.
fn serve(events: &EventSet, listener: &Weak<TcpListener>, workers: &Workers) {
    let mut buffer = EventBuffer::<{ MOST_CLIENTS + 2 }>::new();
    // In the order in which they came.
    let mut clients = Vec::<Client>::new();
    let mut last_number = LISTENER;
    loop {
        let next = clients.iter().map(|client| client.deadline().remaining()).min();
        let happened = match events.wait(&mut buffer, next) {
            Ok(happened) => happened,
            Err(error) => return ucs::log::error!("no metrics are served any more: {error}"),
        };
        for event in happened {
            match event.data {
                STOP => return clients.into_iter().for_each(|client| client.close(events)),
                LISTENER => accept(events, listener, &mut last_number, &mut clients),
                number => {
                    clients.iter_mut().filter(|client| client.number == number).for_each(Client::advance);
                }
            }
        }
        if clients.iter().any(Client::wants_metrics) {
            let response = response(workers);
            let waiting = clients.iter_mut().filter(|client| client.wants_metrics());
            waiting.for_each(|client| client.respond(Rc::clone(&response)));
        }
        let ended = clients.extract_if(.., |client| client.has_ended());
        ended.for_each(|client| client.close(events));
    }
}

/// Takes clients from the listener: as many as there may be.
fn accept(events: &EventSet, listener: &Weak<TcpListener>, last_number: &mut u64, clients: &mut Vec<Client>) {
    let Some(listener) = listener.upgrade() else { return };
    for _ in 0..MOST_CLIENTS {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // The client waits meanwhile. Without the listener, which may have been shut down.
                drop(listener);
                return thread::sleep(RETRY);
            }
        };
        if clients.len() == MOST_CLIENTS {
            let oldest = clients.iter().position(|client| !client.waits_for_response());
            clients.remove(oldest.unwrap_or(0)).close(events);
        }
        *last_number += 1;
        // Without memory for it the connection is closed.
        let Ok(mut client) = Client::new(*last_number, socket, events) else { continue };
        client.advance();
        clients.push(client);
    }
}

fn response(workers: &Workers) -> Rc<[u8]> {
    match text::render(&workers.snapshot()) {
        Ok(text) => http::metrics(&text),
        Err(_) => http::unavailable(&format!("the metrics have more than {} bytes", text::MOST_BYTES)),
    }
}
