//! Messages there and back: awaited in either flavour, or by `Worker::progress` alone.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use uct_core::{AmId, Ep, Error, Worker};
use uct_net::local;

use crate::figures::{Figure, Phase, Times, half_round_trips};
use crate::sides::{self, Server};
use crate::way::{Engine, Listener, Way};
use crate::{By, Options, Outcome};

const RAW: AmId = AmId::new(1).unwrap();

/// Exchanges messages with the other process.
trait Messages {
    async fn send(&self, message: &[u8]) -> Outcome;

    /// Returns the length.
    async fn receive(&self) -> Outcome<usize>;
}

impl Messages for local::Connection {
    async fn send(&self, message: &[u8]) -> Outcome {
        Ok(self.send(message).await?)
    }

    async fn receive(&self) -> Outcome<usize> {
        Ok(self.recv().await?.len())
    }
}

impl Messages for uct_net::Connection {
    async fn send(&self, message: &[u8]) -> Outcome {
        Ok(self.send(message).await?)
    }

    async fn receive(&self) -> Outcome<usize> {
        Ok(self.recv().await?.len())
    }
}

/// The endpoint of a connection, without the connection: short active messages and progress.
struct Raw<'a> {
    ep: &'a Ep,
    worker: &'a Worker,
    inbox: Rc<Inbox>,
    taken: Cell<u64>,
}

#[derive(Default)]
struct Inbox {
    received: Cell<u64>,
    length: Cell<usize>,
}

impl Inbox {
    /// Receives the raw messages of a net, from now on.
    fn of(net: &local::Net) -> Rc<Inbox> {
        let inbox = Rc::new(Inbox::default());
        for iface in net.ifaces() {
            let inbox = Rc::clone(&inbox);
            iface.set_am_handler(RAW, move |message| {
                inbox.received.set(inbox.received.get() + 1);
                inbox.length.set(message.payload().len());
            });
        }
        inbox
    }
}

impl<'a> Raw<'a> {
    fn new(net: &'a local::Net, connection: &'a local::Connection, inbox: Rc<Inbox>) -> Raw<'a> {
        Raw { ep: connection.endpoint(), worker: net.worker(), inbox, taken: Cell::new(0) }
    }
}

impl Messages for Raw<'_> {
    async fn send(&self, message: &[u8]) -> Outcome {
        loop {
            match self.ep.am_short(RAW, 0, message) {
                Err(Error::NO_RESOURCE) => self.worker.progress(),
                sent => return Ok(sent?),
            };
        }
    }

    async fn receive(&self) -> Outcome<usize> {
        let next = self.taken.get() + 1;
        while self.inbox.received.get() < next {
            self.worker.progress();
        }
        self.taken.set(next);
        Ok(self.inbox.length.get())
    }
}

pub fn serve(way: &Way, options: &Options) -> Outcome {
    let inbox = match &way.engine {
        Engine::Local(net, _) if options.by == By::Raw => Some((net, Inbox::of(net))),
        _ => None,
    };
    way.run(async {
        let (listener, address) = way.listen().await?;
        sides::announce(&address)?;
        match listener {
            Listener::Local(mut listener) => {
                let connection = listener.accept().await?.accept().await?;
                match inbox {
                    Some((net, inbox)) => answer(&Raw::new(net, &connection, inbox), options).await,
                    None => answer(&connection, options).await,
                }
            }
            Listener::Threads(mut listener) => {
                answer(&listener.accept().await?.accept().await?, options).await
            }
            Listener::Tcp(_) | Listener::Unix(_) => Err("a socket has no messages: ping-pong".into()),
        }
    })
}

pub fn ask(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let times = way.run(async {
        match &way.engine {
            Engine::Local(net, name) => {
                let inbox = (options.by == By::Raw).then(|| Inbox::of(net));
                let connection = net.connect(&server.address).require(name).await?;
                match inbox {
                    Some(inbox) => exchange(&Raw::new(net, &connection, inbox), options).await,
                    None => exchange(&connection, options).await,
                }
            }
            Engine::Threads(net, name) => {
                exchange(&net.connect(&server.address).require(name).await?, options).await
            }
            Engine::TcpSocket | Engine::UnixSocket => Err("a socket has no messages: ping-pong".into()),
        }
    })?;
    half_round_trips(times)
}

/// Until the client has gone.
async fn answer(client: &impl Messages, options: &Options) -> Outcome {
    let message = vec![1; options.size];
    while client.receive().await.is_ok() {
        client.send(&message).await?;
    }
    Ok(())
}

async fn exchange(server: &impl Messages, options: &Options) -> Outcome<Times> {
    let message = vec![1; options.size];
    let (mut times, phase) = (Times::default(), Phase::new(options));
    let mut begun = Instant::now();
    while !phase.is_over(begun) {
        server.send(&message).await?;
        if server.receive().await? != message.len() {
            return Err("a message of another length".into());
        }
        let now = Instant::now();
        if phase.has_begun(begun) {
            times.add(now - begun);
        }
        begun = now;
    }
    Ok(times)
}
