//! A key-value server for many clients. Requests are messages; values move by get and put, over whatever transport a client has.
//!
//!     key_value serve ADDRESS SECONDS                the server, for so many seconds
//!     key_value ADDRESS put KEY VALUE get KEY ...    a client: one request after the other
//!
//! A client shares one buffer. To store a value it writes the value there and sends `put LENGTH KEY`; the server gets the bytes and
//! replies `stored`. To read one it sends `get KEY`; the server puts the bytes there and replies `found LENGTH`. The server shares
//! nothing, so no client can read or write its memory. docs/key-value.md explains the program.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use rustix::time::{ClockId, clock_gettime};
use uct_core::select::{Operation, Request};
use uct_core::{Context, Memory};
use uct_net::NetOptions;
use uct_net::local::{Connection, Incoming, Listener, Net, RemoteMemory};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of a client's buffer, and of the largest value.
const BUFFER: usize = 1 << 20;
/// Bytes of all keys and values together.
const CAPACITY: usize = 1 << 30;
/// How long a client waits for a reply.
const LIMIT: Duration = Duration::from_secs(10);
/// How long each side waits for the other to take the end of a connection.
const CLOSING: Duration = Duration::from_secs(1);
const USAGE: &str = "expected serve ADDRESS SECONDS, or ADDRESS put KEY VALUE get KEY …";

fn main() -> Result {
    // With the default options a thread polls for 20 µs after the last event, and then sleeps.
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address, seconds] => net.block_on(serve(&net, address, seconds.parse()?)),
        ["serve", ..] | [] => Err(USAGE.into()),
        [address, ref requests @ ..] => net.block_on(ask(&net, address, requests)),
    }
}

/// What is stored.
#[derive(Default)]
struct Store {
    values: HashMap<String, Vec<u8>>,
    bytes: usize,
}

impl Store {
    fn put(&mut self, key: &str, value: Vec<u8>) -> &'static str {
        let old = self.values.get(key).map_or(0, |old| key.len() + old.len());
        let bytes = self.bytes - old + key.len() + value.len();
        if bytes > CAPACITY {
            return "refused: the server is full";
        }
        self.bytes = bytes;
        self.values.insert(key.to_owned(), value);
        "stored"
    }
}

async fn serve(net: &Net, address: &str, seconds: u32) -> Result {
    let mut listener = net.listen(address).await?;
    println!("listening on {}", listener.address());
    let (begin, used) = (Instant::now(), processor_time());
    let end = begin + Duration::from_secs(seconds.into());
    let store = RefCell::new(Store::default());
    let mut clients = FuturesUnordered::new();
    // `within` drops what it waits for when the time is over.
    while let Some(incoming) = net.within(until(end), next(&mut listener, &mut clients)).await {
        clients.push(client(net, incoming?, &store, end));
    }
    // The clients' time is over as well: each connection is closing.
    while clients.next().await.is_some() {}
    let (time, used) = (begin.elapsed().as_millis(), (processor_time() - used).as_micros());
    println!("{} keys after {time} ms, {used} us of a processor", store.borrow().values.len());
    Ok(())
}

/// The next caller. Meanwhile the clients are served. `accept` loses no caller when it is dropped.
async fn next(
    listener: &mut Listener,
    clients: &mut FuturesUnordered<impl Future<Output = ()>>,
) -> uct_net::Result<Incoming> {
    loop {
        match select(pin!(listener.accept()), clients.next()).await {
            Either::Left((incoming, _)) => return incoming,
            Either::Right((Some(()), _)) => {}
            Either::Right((None, accept)) => return accept.await,
        }
    }
}

/// Serves one client until it closes the connection or the time is over. Its failure is not the server's.
async fn client(net: &Net, incoming: Incoming, store: &RefCell<Store>, end: Instant) {
    let peer = incoming.peer().to_owned();
    let served = async {
        let connection = net.within(until(end), incoming.accept()).await.ok_or("the time is over")??;
        let finished = net.within(until(end), serve_requests(&connection, store)).await.transpose()?;
        connection.close().within(CLOSING).await?;
        let side = if finished.is_some() { "client" } else { "server" };
        Result::Ok(format!("over {}, closed by the {side}", connection.explanation().chosen))
    };
    println!("{peer}: {}", served.await.unwrap_or_else(|error| error.to_string()));
}

async fn serve_requests(connection: &Connection, store: &RefCell<Store>) -> Result {
    // The peer's key is unpacked once, and the local buffer registered once: both cost more than many a get.
    let theirs = connection.shared().await?;
    let ours = connection.allocate(BUFFER)?;
    loop {
        let request = match connection.recv().await {
            Ok(request) => String::from_utf8_lossy(&request).into_owned(),
            Err(error) if error.is_closed_by_peer() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let reply = carry_out(connection, (&ours, &theirs), store, &request).await?;
        connection.send(reply.as_bytes()).await?;
    }
}

/// Carries out one request, and returns the reply. The request is the peer's: nothing in it is trusted.
async fn carry_out(
    connection: &Connection,
    (ours, theirs): (&Memory, &RemoteMemory),
    store: &RefCell<Store>,
    request: &str,
) -> Result<String> {
    match request.splitn(3, ' ').collect::<Vec<_>>()[..] {
        ["put", length, key] => match length.parse() {
            Ok(length @ 0..=BUFFER) => {
                connection.get(ours.slice(..length), theirs, 0).await?;
                let mut value = vec![0; length];
                ours.read(0, &mut value);
                Ok(store.borrow_mut().put(key, value).to_owned())
            }
            _ => Ok(format!("refused: a value has 0 to {BUFFER} bytes")),
        },
        ["get", key] => {
            let Some(value) = store.borrow().values.get(key).cloned() else {
                return Ok("missing".to_owned());
            };
            ours.write(0, &value);
            connection.put(ours.slice(..value.len()), theirs, 0).await?;
            // When the flush is done, the client's buffer has the bytes.
            connection.flush().await?;
            Ok(format!("found {}", value.len()))
        }
        _ => Ok("refused: expected `put LENGTH KEY` or `get KEY`".to_owned()),
    }
}

/// A client: carries out the requests of the command line.
async fn ask(net: &Net, address: &str, mut requests: &[&str]) -> Result {
    // The server gets and puts, so the transport has to have both.
    let put = Operation::PutZcopy.capability();
    let request = Request { capabilities: put, ..Request::new(Operation::GetZcopy, BUFFER) };
    let connection = net.connect(address).request(request).await?;
    println!("over {}", connection.explanation().chosen);
    let buffer = connection.allocate(BUFFER)?;
    connection.share(&buffer).await?;
    while !requests.is_empty() {
        let (key, request);
        (key, request, requests) = match requests {
            ["put", key, value, rest @ ..] if value.len() <= BUFFER => {
                buffer.write(0, value.as_bytes());
                (key, format!("put {} {key}", value.len()), rest)
            }
            ["get", key, rest @ ..] => (key, format!("get {key}"), rest),
            _ => return Err(format!("{requests:?}: expected put KEY VALUE or get KEY").into()),
        };
        connection.send(request.as_bytes()).await?;
        let reply = String::from_utf8_lossy(&connection.recv().within(LIMIT).await?).into_owned();
        match reply.strip_prefix("found ").map(str::parse) {
            Some(Ok(length @ 0..=BUFFER)) => {
                println!("{key} = {}", String::from_utf8_lossy(&buffer.to_vec()[..length]));
            }
            _ => println!("{key}: {reply}"),
        }
    }
    Ok(connection.close().within(CLOSING).await?)
}

fn until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Time that this thread has spent on a processor.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
