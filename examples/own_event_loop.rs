//! An event loop of the application's own: one `poll` for the standard input and for all transports.
//!
//!     own_event_loop                 waits for the other side; it prints how to start it
//!     own_event_loop HOST:PORT       each side prints the lines that are typed at the other
//!
//! `Worker::event_fd` becomes readable when an armed worker has something to do. `Worker::arm` says `BUSY` while there is something
//! to do already: make progress first. `uct-net` connects; the lines are active messages of the endpoint below.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::future::IntoFuture;
use std::io::Read;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use uct_core::{AmId, Context, Error, SendFlags};
use uct_net::local::{Connection, Net};
use uct_net::{NetOptions, Wait};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LINE: AmId = AmId::new(6).unwrap();
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes that are read and sent at once; every transport takes as many.
const CHUNK: usize = 1024;

fn main() -> Result {
    let net =
        Net::new(&Context::builder().build()?, NetOptions { wait: Wait::Sleep, ..NetOptions::default() })?;
    // A message without bytes is the other side's last one. It may come as soon as there is a connection.
    let is_over = Rc::new(Cell::new(false));
    for iface in net.ifaces() {
        let is_over = Rc::clone(&is_over);
        iface.set_am_handler(LINE, move |message| {
            print!("{}", String::from_utf8_lossy(&message));
            is_over.set(is_over.get() || message.is_empty());
        });
    }
    let connection = match std::env::args().nth(1) {
        Some(address) => net.block_on(net.connect(address).into_future())?,
        None => net.block_on(wait_for_the_other_side(&net))?,
    };
    talk(&net, &connection, &is_over)?;
    Ok(net.block_on(connection.close())?)
}

async fn wait_for_the_other_side(net: &Net) -> uct_net::Result<Connection> {
    let mut listener = net.listen("[::]:0").await?;
    println!("now start: own_event_loop localhost:{}", listener.port().unwrap_or_default());
    listener.accept().await?.accept().await
}

/// The event loop, until both sides have had their last line.
fn talk(net: &Net, connection: &Connection, is_over: &Cell<bool>) -> Result {
    let (worker, input) = (net.worker(), std::io::stdin());
    let mut is_typing = true;
    while is_typing || !is_over.get() {
        if let Some(failure) = connection.endpoint().failure() {
            return Err(failure.to_string().into());
        }
        if worker.progress() > 0 {
            continue;
        }
        match worker.arm() {
            Ok(()) => {}
            Err(Error::BUSY) => continue,
            Err(error) => return Err(error.into()),
        }
        let (transports, typed) = (worker.event_fd(), input.as_fd());
        let mut fds = [PollFd::new(&transports, PollFlags::IN), PollFd::new(&typed, PollFlags::IN)];
        let watched = if is_typing { 2 } else { 1 };
        poll(&mut fds[..watched], None)?;
        if is_typing && !fds[1].revents().is_empty() {
            let mut bytes = [0; CHUNK];
            let count = input.lock().read(&mut bytes)?;
            is_typing = count > 0;
            worker.retry(LIMIT, || {
                connection.endpoint().am_bcopy(LINE, SendFlags::empty(), |buffer| {
                    buffer[..count].copy_from_slice(&bytes[..count]);
                    count
                })
            })?;
        }
    }
    Ok(())
}
