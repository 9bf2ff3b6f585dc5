//! Awaited messages of `uct_net::local`: a pair of connections in this thread. Beside `am_short` and `progress_message` of the transport
//! they show what the connection and its futures add.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use uct_core::select::Selector;
use uct_core::{IfaceOptions, Memory, Worker};
use uct_net::local::{Connection, Net, RemoteMemory};
use uct_net::{Block, Blocks, NetOptions, Wait};

use crate::{BURST, PATIENCE, RING, STREAM, STREAMS, count, count_loop, in_two_parts};

const TRANSPORT: (&str, &str) = ("posix", "memory");
pub type Operation = fn(&Pair, u64);

/// The name, whether the count has the loop in it, what to run, and how many are in one call of `measured`.
pub const OPERATIONS: &[(&str, bool, Operation, u64)] = &[
    ("posix.send_await", true, send, RING),
    ("posix.recv_await", false, receive, BURST),
    ("posix.deliver", false, deliver, BURST),
    ("posix.recv_delivered", true, receive_delivered, RING),
    ("posix.get_block", false, get_blocks, BLOCKS),
];
/// Blocks of one transfer, the bytes of each, and from one to the next: they are no neighbours, which would be moved as one.
const BLOCKS: u64 = 4096;
const BLOCK: u64 = 8;
const DISTANCE: u64 = 64;

/// Two nets, and a connection between them. It goes before its net, which drives until it has ended.
pub struct Pair {
    sender: Connection,
    receiver: Connection,
    nets: [Net; 2],
    memory: OnceCell<Shared>,
}

/// Memory of the receiver, the sender's way to it, and where the sender reads it to.
struct Shared {
    remote: RemoteMemory,
    local: Memory,
    /// Shared for as long as it lives.
    _owned: Memory,
}

pub fn run(name: &str, count: &str) -> Result<(), Box<dyn std::error::Error>> {
    let known = OPERATIONS.iter().find(|known| known.0 == name).ok_or("no such operation")?;
    let (_, _, run, batch) = known;
    let pair = Pair::new()?;
    pair.stream();
    in_two_parts(count, *batch, |batch| run(&pair, batch))?;
    // The end of a connection takes both sides, which are in this thread.
    std::mem::forget(pair);
    Ok(())
}

impl Pair {
    fn new() -> Result<Pair, Box<dyn std::error::Error>> {
        let context = uct_core::Context::builder().sources(Default::default()).build()?;
        let net = || -> Result<Net, Box<dyn std::error::Error>> {
            let worker = Worker::new(&context)?;
            let resource = context.find(TRANSPORT.0, TRANSPORT.1)?;
            let iface = worker.open_resource(&resource, IfaceOptions::default())?;
            let options = NetOptions { wait: Wait::Spin, ..NetOptions::default() };
            Ok(Net::over(&worker, Selector::of(&worker, vec![iface]), options)?)
        };
        let nets = [net()?, net()?];
        let mut listener = nets[1].block_on(nets[1].listen("127.0.0.1:0"))?;
        let address = listener.address();
        let mut accept = pin!(async { listener.accept().await?.accept().await });
        let mut connect = pin!(nets[0].connect(address).into_future());
        let (mut sender, mut receiver) = (None, None);
        let begun = Instant::now();
        while sender.is_none() || receiver.is_none() {
            advance(&nets[0], connect.as_mut(), &mut sender);
            advance(&nets[1], accept.as_mut(), &mut receiver);
            if begun.elapsed() > PATIENCE {
                return Err("the two sides do not connect".into());
            }
        }
        let (sender, receiver) = (sender.ok_or("no connection")??, receiver.ok_or("no connection")??);
        Ok(Pair { sender, receiver, nets, memory: OnceCell::new() })
    }

    /// Sends many messages in a row, several times: the ring grows, and is active from then on.
    fn stream(&self) {
        for _ in 0..STREAMS {
            let sent = (0..STREAM).take_while(|_| poll(self.sender.send(&[])).is_some()).count();
            self.drain(sent as u64);
        }
    }

    /// Has the receiver share memory for many blocks.
    fn share(&self) -> Shared {
        let bytes = (BLOCKS * DISTANCE) as usize;
        let owned = self.receiver.allocate(bytes).expect("memory");
        owned.fill(0, bytes, 7);
        let remote = {
            let (mut share, mut receive) = (pin!(self.receiver.share(&owned)), pin!(self.sender.shared()));
            let (mut sent, mut received) = (None, None);
            while sent.is_none() || received.is_none() {
                advance(&self.nets[1], share.as_mut(), &mut sent);
                advance(&self.nets[0], receive.as_mut(), &mut received);
            }
            received.and_then(Result::ok).expect("the peer shares memory")
        };
        Shared { remote, local: self.sender.allocate(bytes).expect("memory"), _owned: owned }
    }

    /// Has the receiver take so many messages, outside of what is counted, and the sender its credit.
    fn drain(&self, messages: u64) {
        for _ in 0..messages {
            while poll(self.receiver.recv()).is_none() {
                turn(&self.nets[1]);
            }
        }
        turn(&self.nets[0]);
    }
}

/// Polls what has no output yet, and drives its net.
fn advance<F: Future>(net: &Net, mut future: Pin<&mut F>, output: &mut Option<F::Output>) {
    if output.is_none() {
        let polled = net.block_on(poll_fn(|context| Poll::Ready(future.as_mut().poll(context))));
        if let Poll::Ready(ready) = polled {
            *output = Some(ready);
        }
    }
    turn(net);
}

/// Drives a net for one pass.
fn turn(net: &Net) {
    let mut is_over = false;
    net.block_on(poll_fn(|context| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
}

/// The output of a future that is ready; its error is a failure.
#[inline(always)]
fn poll<T>(future: impl Future<Output = uct_net::Result<T>>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output.expect("the connection lives")),
        Poll::Pending => None,
    }
}

/// As [`poll`], of a future that is ready unless it is the turn of other tasks first.
#[inline(always)]
fn output<T>(future: impl Future<Output = uct_net::Result<T>>) -> Option<T> {
    let (mut future, mut context) = (pin!(future), Context::from_waker(Waker::noop()));
    for _ in 0..2 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output.expect("the connection lives"));
        }
    }
    None
}

/// One transfer of many blocks from the peer's memory, from its start to its end.
fn get_blocks(pair: &Pair, batch: u64) {
    let (reader, net) = (&pair.sender, &pair.nets[0]);
    let Shared { remote, local, .. } = pair.memory.get_or_init(|| pair.share());
    let block = |number| Block { local: number * DISTANCE, remote: number * DISTANCE, length: BLOCK };
    let blocks: Blocks = (0..batch).map(block).collect();
    let mut moved = 0;
    count(&mut || {
        let transfer = reader.get_blocks(local, remote, &blocks).start().expect("they are in the memory");
        moved = net.block_on(transfer).expect("the peer lives").blocks;
    });
    assert_eq!(moved as u64, batch);
}

/// There is credit, and room in the ring.
fn send(pair: &Pair, batch: u64) {
    let sender = &pair.sender;
    let payload: &[u8] = black_box(&[1; 8]);
    // One that pauses for other tasks has sent its message: the receiver waits for all of them below.
    count_loop!(batch, [sender], black_box(poll(sender.send(payload))));
    pair.drain(batch);
}

/// The message is in the ring and has not been received.
fn receive(pair: &Pair, batch: u64) {
    for _ in 0..batch {
        output(pair.sender.send(&[1; 8])).expect("one message fits");
        // It looks into the ring, or into the line beside it, in one of a few passes.
        count(&mut || while black_box(poll(pair.receiver.recv())).is_none() {});
        turn(&pair.nets[0]);
    }
}

/// The message is in the ring, and a pass of the net puts it into the connection's queue.
fn deliver(pair: &Pair, batch: u64) {
    let net = &pair.nets[1];
    for _ in 0..batch {
        output(pair.sender.send(&[1; 8])).expect("one message fits");
        count(&mut || turn(net));
        pair.drain(1);
    }
}

/// The messages have been delivered to the connection.
fn receive_delivered(pair: &Pair, batch: u64) {
    for _ in 0..batch {
        output(pair.sender.send(&[1; 8])).expect("a batch fits");
    }
    for _ in 0..batch {
        turn(&pair.nets[1]);
    }
    let receiver = &pair.receiver;
    let mut received = 0;
    count_loop!(batch, [receiver], {
        if let Some(message) = poll(receiver.recv()) {
            black_box(message);
            received += 1;
        }
    });
    // Those behind which the task paused for others.
    pair.drain(batch - received);
}
