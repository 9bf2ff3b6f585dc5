//! The pending queue: what to do when the transport is out of resources.
//!
//!     pending_queue                 the receiver; it prints how to start the sender
//!     pending_queue HOST:PORT       the sender
//!
//! `NO_RESOURCE` is no failure: nothing was sent, and nothing was lost. Instead of trying again and again, queue a request: progress
//! calls it when there is room, endpoint by endpoint in turn, and nothing overtakes it. `Connection::send` does this for its
//! messages; the messages here are sent over the endpoint of the connection.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use uct_core::{AmId, Context, Ep, Error, Pending};
use uct_net::local::{Connection, Net};
use uct_net::{NetOptions, Wait};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const NUMBER: AmId = AmId::new(4).unwrap();
const MESSAGES: u64 = 200_000;
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result {
    let options = NetOptions { wait: Wait::Adaptive(Duration::from_millis(1)), ..NetOptions::default() };
    let net = Net::new(&Context::builder().build()?, options)?;
    match std::env::args().nth(1) {
        None => net.block_on(receiver(&net)),
        Some(address) => net.block_on(sender(&net, &address)),
    }
}

async fn sender(net: &Net, address: &str) -> Result {
    let connection = net.connect(address).await?;
    println!("over {}", connection.explanation().chosen);
    connection.recv().await?;

    let numbers = Rc::new(Numbers::default());
    numbers.send_from(&connection)?;
    let sent = net.worker().progress_until(LIMIT, || numbers.next.get() == MESSAGES);
    if !sent || connection.endpoint().failure().is_some() {
        return Err(format!("only {} of {MESSAGES} messages were sent", numbers.next.get()).into());
    }
    println!("{MESSAGES} messages, {} times out of room", numbers.waits.get());
    connection.closed().await;
    Ok(())
}

/// The numbers that are still to be sent.
#[derive(Default)]
struct Numbers {
    next: Cell<u64>,
    waits: Cell<u32>,
}

impl Numbers {
    fn send_from(self: &Rc<Self>, connection: &Connection) -> Result {
        let ep = connection.endpoint();
        loop {
            match self.send(ep) {
                Ok(()) => return Ok(()),
                Err(Error::NO_RESOURCE) => {}
                Err(error) => return Err(error.into()),
            }
            let numbers = Rc::clone(self);
            let request = move |ep: &Ep| match numbers.send(ep) {
                Err(Error::NO_RESOURCE) => Pending::Wait,
                // Any other error is the end of the endpoint, which the sender checks.
                Ok(()) | Err(_) => Pending::Done,
            };
            match ep.pending_add(request) {
                // Progress goes on from here.
                Ok(()) => return Ok(()),
                // There is room again already: go on sending.
                Err((Error::BUSY, _request)) => {
                    connection.iface().worker().progress();
                }
                Err((error, _request)) => return Err(error.into()),
            }
        }
    }

    /// Sends as many as there is room for.
    fn send(&self, ep: &Ep) -> uct_core::Result<()> {
        while self.next.get() < MESSAGES {
            let sent = ep.am_short(NUMBER, self.next.get(), &[]);
            if matches!(sent, Err(Error::NO_RESOURCE)) {
                self.waits.set(self.waits.get() + 1);
            }
            sent?;
            self.next.set(self.next.get() + 1);
        }
        Ok(())
    }
}

async fn receiver(net: &Net) -> Result {
    let mut listener = net.listen("[::]:0").await?;
    println!("now start: pending_queue localhost:{}", listener.port().unwrap_or_default());
    let connection = listener.accept().await?.accept().await?;
    let (expected, in_order) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(true)));
    let (next, order) = (Rc::clone(&expected), Rc::clone(&in_order));
    connection.iface().set_am_handler(NUMBER, move |message| {
        order.set(order.get() && message.header() == Some(next.get()));
        next.set(next.get() + 1);
    });
    connection.send(b"begin").await?;
    if !net.worker().progress_until(LIMIT, || expected.get() == MESSAGES) {
        return Err(format!("only {} of {MESSAGES} messages came", expected.get()).into());
    }
    if !in_order.get() {
        return Err("a message overtook another".into());
    }
    println!("{MESSAGES} messages, in order");
    Ok(connection.close().await?)
}
