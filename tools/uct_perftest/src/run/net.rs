//! What programs over `uct-net` see: the time to connect, messages that are awaited, streams of bytes.
//!
//! Connections of their own are measured, over the interface of the one that found the peer.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use uct_net::local::{Connection, Incoming, Listener, Net, Stream};
use uct_net::{Error, Result};
use uct_tools_common::Failure;

use super::buffer::Buffer;
use super::record::Recorder;
use super::side::{Role, Side};
use crate::kind::{Class, Wait};
use crate::peer::{Peer, Way};
use crate::plan::{Case, Plan};

/// Room for what is read from a stream at once, in bytes.
const LEAST_BUFFER: usize = 4 << 10;
const LARGEST_BUFFER: usize = 1 << 20;
/// How often a side checks whether anything has moved.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// The second connection to the peer, which is measured.
pub(super) enum Data {
    /// The endpoint of the first one is measured.
    None,
    Messages(Connection),
    Stream(std::cell::RefCell<Stream>),
}

impl Data {
    /// Opens it, if the test needs one.
    pub(super) fn open(peer: &mut Peer, plan: &Plan) -> Result<Data, Failure> {
        let class = plan.test.class();
        if class.is_net() {
            peer.net().set_wait(match plan.wait {
                Wait::Poll => uct_net::Wait::Spin,
                Wait::Event => uct_net::Wait::Sleep,
                Wait::Adaptive => uct_net::NetOptions::default().wait,
            });
        }
        if !matches!(class, Class::Await | Class::Stream) {
            return Ok(Data::None);
        }
        let connection = peer.open()?;
        Ok(match class {
            Class::Stream => Data::Stream(connection.into_stream().into()),
            _ => Data::Messages(connection),
        })
    }
}

impl Side {
    /// Connects and closes, again and again; the server accepts.
    pub(super) fn connections(&self, count: u64, recorder: &mut Recorder<'_>) -> Result<(), Failure> {
        let mut peer = self.driver.peer().ok_or("connect needs two sides")?;
        let (net, moved) = (peer.net().clone(), Cell::new(0));
        let further = peer.further();
        let most = self.plan.outstanding as usize;
        match peer.way() {
            Way::Called(called) => {
                let one = || async { further.connect(&net, called).await?.close().await };
                let all = call(count, most, one, || {
                    moved.set(moved.get() + 1);
                    recorder.tick();
                });
                self.guarded(&net, &moved, all)
            }
            Way::Listener(listener) => self.guarded(&net, &moved, serve(count, listener, &moved)),
        }
    }

    /// Messages there and back.
    pub(super) fn awaited(
        &self,
        case: &Case,
        count: u64,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Failure> {
        let Data::Messages(connection) = &self.data else { return Err("there is no connection".into()) };
        let net = self.driver.peer().ok_or("await_lat needs two sides")?.net().clone();
        let (payload, moved) = (&self.buffers.payload[..case.size], Cell::new(0));
        let receive = async || {
            let message = connection.recv().await?;
            if message.len() != case.size {
                self.inbox.wrong.set(self.inbox.wrong.get() + 1);
            }
            moved.set(moved.get() + 1);
            Result::Ok(())
        };
        self.guarded(&net, &moved, async {
            for _ in 0..count {
                if self.role == Role::Passive {
                    receive().await?;
                    connection.send(payload).await?;
                } else {
                    connection.send(payload).await?;
                    receive().await?;
                    recorder.tick();
                }
            }
            Ok(())
        })
    }

    /// Bytes there and back, or one way until the server confirms that all have come.
    pub(super) fn streamed(
        &self,
        case: &Case,
        count: u64,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Failure> {
        let Data::Stream(stream) = &self.data else { return Err("there is no stream".into()) };
        let net = self.driver.peer().ok_or("a stream needs two sides")?.net().clone();
        let mut stream = stream.borrow_mut();
        let (payload, moved) = (&self.buffers.payload[..case.size], Cell::new(0));
        let mut bytes = Bytes {
            stream: &mut stream,
            buffer: Buffer::new(case.size.clamp(LEAST_BUFFER, LARGEST_BUFFER))?,
            moved: &moved,
        };
        let (is_passive, size) = (self.role == Role::Passive, case.size as u64);
        self.guarded(&net, &moved, async {
            match (self.plan.test.is_ping_pong(), is_passive) {
                (true, false) => {
                    for _ in 0..count {
                        bytes.write(payload).await?;
                        bytes.read(size).await?;
                        recorder.tick();
                    }
                }
                (true, true) => {
                    for _ in 0..count {
                        bytes.read(size).await?;
                        bytes.write(payload).await?;
                    }
                }
                (false, false) => {
                    for _ in 0..count {
                        bytes.write(payload).await?;
                        recorder.tick();
                    }
                    bytes.read(1).await?;
                }
                (false, true) => {
                    bytes.read(size * count).await?;
                    bytes.write(&[1]).await?;
                }
            }
            poll_fn(|context| bytes.stream.poll_flush(context)).await
        })
    }

    /// Drives a phase until it is done, or nothing has moved for longer than there is patience.
    fn guarded(
        &self,
        net: &Net,
        moved: &Cell<u64>,
        phase: impl Future<Output = Result>,
    ) -> Result<(), Failure> {
        let patience = self.driver.patience();
        let watch = async {
            let (mut last, mut still) = (moved.get(), Duration::ZERO);
            while still <= patience {
                net.sleep(WATCH_INTERVAL).await;
                let now = moved.get();
                still = if now == last { still + WATCH_INTERVAL } else { Duration::ZERO };
                last = now;
            }
        };
        match net.block_on(unless(phase, watch)) {
            Some(outcome) => outcome.map_err(|error| format!("{error}: see also the peer's output").into()),
            None => {
                let seconds = patience.as_secs_f64();
                Err(format!("nothing came from the peer for {seconds} s; allow more with --timeout").into())
            }
        }
    }
}

/// The output of `phase`, or `None` if `watch` ends first. `watch` is polled when it is due alone, since a poll of a timer takes as long as
/// a message.
async fn unless<T>(phase: impl Future<Output = T>, watch: impl Future<Output = ()>) -> Option<T> {
    let (mut phase, mut watch) = (pin!(phase), pin!(watch));
    let mut due: Option<Arc<Due>> = None;
    poll_fn(|context| {
        if let Poll::Ready(output) = phase.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let due = due.get_or_insert_with(|| {
            Arc::new(Due { is_due: AtomicBool::new(true), parent: context.waker().clone() })
        });
        // SYNC: pairs with the store in `wake`, which is of this thread.
        if due.is_due.load(Ordering::Relaxed) {
            due.is_due.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(due));
            return watch.as_mut().poll(&mut Context::from_waker(&waker)).map(|()| None);
        }
        Poll::Pending
    })
    .await
}

/// Wakes the task, and notes for whom.
struct Due {
    is_due: AtomicBool,
    parent: Waker,
}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::Relaxed);
        self.parent.wake_by_ref();
    }
}

/// Runs `one` so many times, up to `most` at once.
async fn call<F: Future<Output = Result>>(
    count: u64,
    most: usize,
    one: impl Fn() -> F,
    mut done: impl FnMut(),
) -> Result {
    let mut running = FuturesUnordered::new();
    let mut left = count;
    loop {
        while left > 0 && running.len() < most {
            left -= 1;
            running.push(one());
        }
        match running.next().await {
            Some(outcome) => outcome?,
            None => return Ok(()),
        }
        done();
    }
}

/// Accepts so many callers, and waits until each has closed.
async fn serve(count: u64, listener: &mut Listener, moved: &Cell<u64>) -> Result {
    let mut running = FuturesUnordered::new();
    let (mut taken, mut ended) = (0, 0);
    poll_fn(|context| {
        while ended < count {
            if taken < count
                && let Poll::Ready(incoming) = pin!(listener.accept()).poll(context)
            {
                taken += 1;
                running.push(until_closed(incoming?));
                continue;
            }
            match running.poll_next_unpin(context) {
                Poll::Ready(Some(outcome)) => outcome?,
                _ => return Poll::Pending,
            }
            moved.set(moved.get() + 1);
            ended += 1;
        }
        Poll::Ready(Ok(()))
    })
    .await
}

async fn until_closed(incoming: Incoming) -> Result {
    let error = incoming.accept().await?.closed().await;
    if error.is_closed_by_peer() { Ok(()) } else { Err(error) }
}

/// A stream, and what it was read into.
struct Bytes<'a> {
    stream: &'a mut Stream,
    buffer: Buffer,
    moved: &'a Cell<u64>,
}

impl Bytes<'_> {
    async fn write(&mut self, mut bytes: &[u8]) -> Result {
        while !bytes.is_empty() {
            let count = poll_fn(|context| self.stream.poll_write(context, bytes)).await?;
            bytes = &bytes[count..];
            self.moved.set(self.moved.get() + 1);
        }
        Ok(())
    }

    async fn read(&mut self, mut length: u64) -> Result {
        while length > 0 {
            let room = self.buffer.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            let buffer = &mut self.buffer[..room];
            let count = poll_fn(|context| self.stream.poll_read(context, buffer)).await?;
            if count == 0 {
                return Err(self.ended());
            }
            length -= count as u64;
            self.moved.set(self.moved.get() + 1);
        }
        Ok(())
    }

    fn ended(&self) -> Error {
        Error {
            stage: uct_net::Stage::Close,
            peer: self.stream.connection().peer().to_owned(),
            status: uct_core::Error::NOT_CONNECTED,
            reason: "the peer ended the stream too early".to_owned(),
            hint: None,
        }
    }
}
