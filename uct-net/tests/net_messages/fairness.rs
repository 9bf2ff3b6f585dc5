//! Who has a turn when: loops that never wait, many operations at once, and many transfers at once. Counted, not timed.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::support::random::Random;
use crate::support::{self, LIMIT, pair, seed, transports};
use uct_net::local::Connection;
use uct_net::{Blocks, Result, Stride};

/// Most operations of one connection until another one has its turn, as docs/net.md says.
const TURN: u64 = 128;
/// Within a datagram.
const BLOCK: usize = 2048;

/// Shares memory until the peer closes.
async fn share(listener: &mut uct_net::local::Listener, length: usize) -> Result<()> {
    let connection = listener.accept().await?.accept().await?;
    let memory = connection.allocate(length)?;
    connection.share(&memory).await?;
    connection.recv().await.map(drop)
}

/// Counts operations until `other`, which is polled behind them, has had its turn so often.
async fn greedy(mut operation: impl AsyncFnMut() -> Result<()>, turns: u64) -> Result<u64> {
    let done = Cell::new(0);
    let is_over = Cell::new(false);
    let mut most = 0;
    let greedy = async {
        while !is_over.get() {
            operation().await?;
            done.set(done.get() + 1);
            assert!(done.get() < 1_000_000, "no other task has its turn");
        }
        Ok(())
    };
    let (mut before, mut left) = (0, turns);
    let mut greedy = std::pin::pin!(greedy);
    poll_fn(|context| {
        let polled = greedy.as_mut().poll(context);
        most = most.max(done.get() - before);
        before = done.get();
        left -= u64::from(left > 0);
        is_over.set(left == 0);
        context.waker().wake_by_ref();
        polled
    })
    .await
    .map(|()| most)
}

#[test]
fn a_loop_that_never_waits_leaves_others_their_turn() {
    pair(
        support::patient(),
        async |_net, mut listener| share(&mut listener, BLOCK).await,
        async |net, address| {
            let connection = net.connect(address).require("posix/memory").await?;
            let remote = connection.shared().await?;
            let local = connection.allocate(BLOCK)?;
            let puts = greedy(async || connection.put(local.slice(..8), &remote, 0).await, 50);
            let gets = greedy(async || connection.get(local.slice(..8), &remote, 0).await, 50);
            for most in [puts.await?, gets.await?] {
                assert!(most <= TURN, "{most} operations in a row");
                assert!(most > TURN / 2, "{most} operations: a turn is worth its price");
            }
            connection.send(b"done").await
        },
    );
}

#[test]
fn a_loop_of_messages_leaves_others_their_turn() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            while connection.send(b"message").await.is_ok() {}
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).require("posix/memory").await?;
            let most = greedy(async || connection.recv().within(LIMIT).await.map(drop), 100).await?;
            assert!(most <= TURN, "{most} messages in a row");
            connection.abort("done");
            Ok(())
        },
    );
}

#[test]
fn a_loop_of_short_writes_leaves_others_their_turn() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let mut stream = listener.accept().await?.accept().await?.into_stream();
            let mut buffer = [0; 4096];
            while poll_fn(|context| stream.poll_read(context, &mut buffer)).await? > 0 {}
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).require("posix/memory").await?;
            let mut stream = connection.into_stream();
            let write = async || poll_fn(|context| stream.poll_write(context, &[7; 64])).await.map(drop);
            let most = greedy(write, 50).await?;
            // 16 of them count as one operation.
            assert!(most <= 16 * TURN, "{most} writes in a row");
            Ok(())
        },
    );
}

/// A future that is polled when its own waker was called, and how often that was.
struct Task<'a> {
    future: Option<Pin<Box<dyn Future<Output = Result<()>> + 'a>>>,
    flag: Arc<Flag>,
}

struct Flag {
    is_woken: AtomicBool,
    outer: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.outer.wake_by_ref();
    }
}

/// Runs futures at once, and drops those that `keep` says no to after a poll. Returns how often any was polled.
async fn at_once<'a>(
    futures: impl Iterator<Item = impl Future<Output = Result<()>> + 'a>,
    mut keep: impl FnMut() -> bool,
) -> Result<usize> {
    let outer = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    let mut tasks: Vec<Task<'a>> = futures
        .map(|future| Task {
            future: Some(Box::pin(future)),
            flag: Arc::new(Flag { is_woken: AtomicBool::new(true), outer: outer.clone() }),
        })
        .collect();
    let mut polls = 0;
    poll_fn(|_context| {
        for task in &mut tasks {
            let Some(future) = &mut task.future else { continue };
            if !task.flag.is_woken.swap(false, Ordering::SeqCst) {
                continue;
            }
            polls += 1;
            let waker = Waker::from(Arc::clone(&task.flag));
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => {
                    outcome?;
                    task.future = None;
                }
                Poll::Pending if !keep() => task.future = None,
                Poll::Pending => {}
            }
        }
        if tasks.iter().all(|task| task.future.is_none()) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await?;
    Ok(polls)
}

/// A get of one block of many.
fn get<'a>(
    connection: &'a Connection,
    local: &uct_core::Memory,
    remote: &'a uct_net::local::RemoteMemory,
    number: usize,
) -> impl Future<Output = Result<()>> + use<'a> {
    let slice = local.slice(number * BLOCK..(number + 1) * BLOCK);
    async move { connection.get(slice, remote, (number * BLOCK) as u64).await }
}

#[test]
fn room_wakes_the_operations_that_can_start_and_no_others() {
    const MANY: usize = 1024;
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| share(&mut listener, MANY * BLOCK).await,
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let local = connection.allocate(MANY * BLOCK)?;
                let gets = (0..MANY).map(|number| get(&connection, &local, &remote, number));
                let polls = net.within(LIMIT, at_once(gets, || true)).await.expect("all end")?;
                // About 6 each; over a transport that sends again, more. Woken all at once they would be polled some hundred times each.
                assert!(polls <= 32 * MANY, "{polls} polls of {MANY} operations over {transport}");
                connection.send(b"done").await
            },
        );
    }
}

#[test]
fn operations_that_are_dropped_while_they_wait_leave_their_room_to_the_others() {
    const MANY: usize = 512;
    let seed = seed::printed();
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| share(&mut listener, MANY * BLOCK).await,
            async |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let local = connection.allocate(MANY * BLOCK)?;
                let mut random = Random(seed);
                for _ in 0..4 {
                    let gets = (0..MANY).map(|number| get(&connection, &local, &remote, number));
                    let keep = || random.below(3) > 0;
                    net.within(LIMIT, at_once(gets, keep)).await.expect("the others end")?;
                }
                connection.send(b"done").await
            },
        );
    }
}

#[test]
fn transfers_of_several_connections_share_the_time_and_a_message_is_not_kept_waiting() {
    const CONNECTIONS: usize = 10;
    const LENGTH: usize = 512 * BLOCK;
    pair(
        support::patient(),
        async |_net, mut listener| {
            let mut open = Vec::new();
            for _ in 0..CONNECTIONS {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(LENGTH)?;
                connection.share(&memory).await?;
                open.push((connection, memory));
            }
            let echo = listener.accept().await?.accept().await?;
            while let Ok(message) = echo.recv().await {
                echo.send(&message).await?;
            }
            Ok(())
        },
        async |net, address| {
            let mut sides = Vec::new();
            for _ in 0..CONNECTIONS {
                let connection = net.connect(&*address).require("posix/memory").await?;
                let (remote, local) = (connection.shared().await?, connection.allocate(LENGTH)?);
                sides.push((connection, remote, local));
            }
            let ping = net.connect(&*address).require("posix/memory").await?;
            let blocks = Blocks::from(Stride {
                count: LENGTH / BLOCK / 2,
                length: BLOCK as u64,
                local: 0,
                local_stride: 2 * BLOCK as u64,
                remote: BLOCK as u64,
                remote_stride: 2 * BLOCK as u64,
            });
            let mut transfers = sides
                .iter()
                .map(|(connection, remote, local)| connection.get_blocks(local, remote, &blocks).start())
                .collect::<Result<Vec<_>>>()?;
            let operations = || -> u64 {
                sides.iter().map(|(connection, ..)| connection.endpoint().counters().get.operations).sum()
            };
            // The engine's turns, seen by a task that is polled in each.
            let (mut before, mut most) = (operations(), 0);
            let mut first = None;
            poll_fn(|context| {
                most = most.max(operations() - before);
                before = operations();
                let moved: Vec<usize> = transfers.iter().map(|transfer| transfer.moved()).collect();
                if first.is_none() && moved.contains(&blocks.len()) {
                    first = Some(moved);
                }
                context.waker().wake_by_ref();
                if first.is_some() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let first = first.expect("one is over");
            assert!(most <= 2 * 64 * CONNECTIONS as u64, "{most} operations until the next turn");
            assert!(first.iter().all(|moved| 2 * moved >= blocks.len()), "shares of the time: {first:?}");
            ping.send(b"ping").await?;
            assert_eq!(&*ping.recv().within(LIMIT).await?, b"ping");
            for transfer in &mut transfers {
                net.within(LIMIT, transfer).await.expect("it ends")?;
            }
            ping.close().within(LIMIT).await
        },
    );
}
