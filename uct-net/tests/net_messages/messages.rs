//! Messages between two threads, over every transport of this machine.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::{self, LIMIT, net, pair, transports};
use futures_util::StreamExt;
use futures_util::future::{FutureExt, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use uct_core::Error as Status;
use uct_net::local::Connection;
use uct_net::{NetOptions, Stage, Wait};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

/// Sends back what comes until the peer closes.
async fn echo(connection: Connection) -> uct_net::Result {
    loop {
        match connection.recv().within(LIMIT).await {
            Ok(message) => connection.send(&message).await?,
            Err(error) if error.is_closed_by_peer() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn messages_of_every_size_come_back_whole_over_every_transport() {
    for transport in transports() {
        let wanted = transport.clone();
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                echo(connection).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(&*wanted).await?;
                assert_eq!(connection.explanation().chosen, wanted);
                let sizes = (0..130).chain([1000, 4095, 4096, 8192, 8193, 65_536, 262_144, 1 << 20, 5 << 20]);
                for size in sizes {
                    connection.send(&pattern(size)).await?;
                    let answer = connection.recv().within(LIMIT).await?;
                    assert!(*answer == *pattern(size), "{size} bytes over {wanted}");
                }
                connection.close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn many_messages_pass_a_small_window_in_order() {
    let options = NetOptions { window: 4096, ..support::patient() };
    for transport in transports() {
        pair(
            options.clone(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                for number in 0..5000_u32 {
                    let message = connection.recv().within(LIMIT).await?;
                    assert_eq!(message[..4], number.to_le_bytes());
                    assert_eq!(message.len(), 4 + number as usize % 9000);
                }
                connection.send(b"done").await?;
                connection.close().within(LIMIT).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(transport).await?;
                for number in 0..5000_u32 {
                    let mut message = number.to_le_bytes().to_vec();
                    message.resize(4 + number as usize % 9000, 7);
                    connection.send(&message).await?;
                }
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"done");
                Ok(())
            },
        );
    }
}

#[test]
fn a_stream_of_long_and_short_writes_passes_a_small_window_in_order() {
    const LENGTH: usize = 3 << 20;
    let options = NetOptions { window: 4096, ..support::patient() };
    for transport in transports() {
        pair(
            options.clone(),
            async |_net, mut listener| {
                let mut stream = listener.accept().await?.accept().await?.into_stream();
                let (mut came, mut buffer) = (Vec::new(), vec![0; 10_000]);
                loop {
                    match poll_fn(|context| stream.poll_read(context, &mut buffer)).await? {
                        0 => break,
                        count => came.extend_from_slice(&buffer[..count]),
                    }
                }
                assert!(came == pattern(LENGTH), "{} bytes", came.len());
                Ok(())
            },
            async move |net, address| {
                let mut stream = net.connect(address).require(transport).await?.into_stream();
                let sent = pattern(LENGTH);
                let (mut rest, mut number) = (&*sent, 0);
                while !rest.is_empty() {
                    let most = [1, 100, 3000, 65_536][number % 4].min(rest.len());
                    let count = poll_fn(|context| stream.poll_write(context, &rest[..most])).await?;
                    assert!((1..=most).contains(&count), "{count} of {most}");
                    (rest, number) = (&rest[count..], number + 1);
                }
                poll_fn(|context| stream.poll_shutdown(context)).await?;
                let refused = stream.connection().send(b"late").await.expect_err("this side has ended");
                assert_eq!((refused.stage, refused.status), (Stage::Close, Status::CANCELED), "{refused}");
                stream.connection().close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn a_reader_that_does_not_read_stops_its_sender_alone() {
    pair(
        NetOptions { window: 8192, ..support::patient() },
        async |_net, mut listener| {
            let slow = listener.accept().await?.accept().await?;
            let fast = listener.accept().await?.accept().await?;
            for _ in 0..1000 {
                fast.recv().within(LIMIT).await?;
            }
            fast.send(b"all of them").await?;
            fast.recv().within(LIMIT).await?;
            let mut count = 0;
            while slow.recv().within(LIMIT).await.is_ok() {
                count += 1;
            }
            assert_eq!(count, 8192 / 164, "what the window takes, and nothing that was withdrawn");
            Ok(())
        },
        async |net, address| {
            let slow = net.connect(&address).await?;
            let fast = net.connect(&address).await?;
            let mut sent = 0;
            while slow.send(&[1; 100]).within(Duration::from_millis(50)).await.is_ok() {
                sent += 1;
            }
            assert_eq!(sent, 8192 / 164, "a message of 100 bytes costs 164");
            for _ in 0..1000 {
                fast.send(&[2; 100]).within(LIMIT).await?;
            }
            assert_eq!(&*fast.recv().within(LIMIT).await?, b"all of them");
            fast.send(b"go on").await?;
            slow.close().within(LIMIT).await
        },
    );
}

#[test]
fn a_message_that_is_longer_than_the_peer_takes_ends_the_connection_with_that_reason() {
    pair(
        NetOptions { max_message: 100_000, ..support::patient() },
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(connection.recv().within(LIMIT).await?.len(), 100_000);
            let error = connection.recv().within(LIMIT).await.expect_err("too long");
            assert!(error.reason.ends_with("100001 bytes: max_message is 100000"), "{error}");
            assert!(!error.reason.contains("protocol"), "{error}");
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).await?;
            connection.send(&pattern(100_000)).await?;
            let _ = connection.send(&pattern(100_001)).await;
            let error = connection.recv().within(LIMIT).await.expect_err("aborted");
            assert!(error.reason.ends_with("100001 bytes: max_message is 100000\""), "{error}");
            assert_eq!(error.status, Status::CONNECTION_RESET);
            Ok(())
        },
    );
}

#[test]
fn what_was_sent_arrives_though_the_sender_drops_everything_at_once() {
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                for number in 0..100_u8 {
                    assert_eq!(&*connection.recv().within(LIMIT).await?, &vec![number; 3000]);
                }
                let end = connection.recv().within(LIMIT).await.expect_err("the end");
                assert!(end.is_closed_by_peer(), "{end}");
                assert!(connection.closed().await.is_closed_by_peer());
                Ok(())
            },
            async move |net, address| {
                let connection = net.connect(address).require(transport).await?;
                for number in 0..100 {
                    connection.send(&vec![number; 3000]).await?;
                }
                Ok(())
            },
        );
    }
}

#[test]
fn an_aborted_connection_has_the_reason_on_both_sides() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            let error = connection.recv().within(LIMIT).await.expect_err("aborted");
            assert!(error.to_string().contains("aborted by the peer: \"out of paper\""), "{error}");
            assert!(connection.send(b"x").await.is_err());
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).await?;
            connection.abort("out of paper");
            let error = connection.recv().await.expect_err("aborted");
            assert!(error.to_string().contains("aborted by this side: out of paper"), "{error}");
            Ok(())
        },
    );
}

#[test]
fn a_receiver_that_gives_up_loses_nothing() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            let begun = Instant::now();
            let error = connection.recv().within(Duration::from_millis(30)).await.expect_err("nothing yet");
            assert!(error.is_timeout(), "{error}");
            assert!(begun.elapsed() >= Duration::from_millis(30));
            connection.send(b"go").await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"late");
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).await?;
            connection.recv().within(LIMIT).await?;
            connection.send(b"late").await
        },
    );
}

#[test]
fn memory_that_a_side_shares_is_read_written_and_counted_by_the_other() {
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(4096)?;
                memory.write(100, b"from the server");
                connection.share(&memory).await?;
                connection.recv().within(LIMIT).await?;
                let mut there = [0; 15];
                memory.read(200, &mut there);
                assert_eq!(&there, b"from the client");
                assert_eq!(memory.load_u64(8), 42);
                connection.close().within(LIMIT).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                assert_eq!(remote.len(), 4096);
                let local = connection.allocate(64)?;
                connection.get(local.slice(..15), &remote, 100).await?;
                assert_eq!(&local.to_vec()[..15], b"from the server");
                local.write(0, b"from the client");
                connection.put(local.slice(..15), &remote, 200).await?;
                assert_eq!(connection.fetch_add(&remote, 8, 40).await?, 0);
                assert_eq!(connection.fetch_add(&remote, 8, 2).await?, 40);
                connection.flush().await?;
                let error =
                    connection.put(local.slice(..15), &remote, 4090).await.expect_err("beyond the end");
                assert!(error.to_string().contains("are not part of the 4096 bytes"), "{error}");
                connection.send(b"look").await?;
                connection.close().within(LIMIT).await
            },
        );
    }
}

#[test]
fn all_ways_to_wait_work() {
    for wait in [Wait::Spin, Wait::Sleep, Wait::Adaptive(Duration::from_micros(20))] {
        pair(
            NetOptions { wait, ..support::patient() },
            async |_net, mut listener| echo(listener.accept().await?.accept().await?).await,
            async |net, address| {
                let connection = net.connect(address).await?;
                for number in 0..200_u32 {
                    connection.send(&number.to_le_bytes()).await?;
                    assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
                }
                Ok(())
            },
        );
    }
}

#[test]
fn both_ends_may_be_in_one_thread() {
    let net = net(support::patient());
    let outcome = net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await?;
        let address = listener.address();
        let server = async { listener.accept().await?.accept().await };
        let client = async { net.connect(address).await };
        let (server, client) = both(server, client).await;
        let (server, client) = (server?, client?);
        client.send(b"to myself").await?;
        assert_eq!(&*server.recv().within(LIMIT).await?, b"to myself");
        let (closed, ended) = both(client.close(), async { server.recv().await }).await;
        closed?;
        assert!(ended.expect_err("the end").is_closed_by_peer());
        Ok::<_, uct_net::Error>(())
    });
    outcome.expect("one thread is enough");
}

/// Both at once.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    use std::task::Poll;
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(move |context| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            second = Some(output);
        }
        if first.is_none() || second.is_none() {
            return Poll::Pending;
        }
        Poll::Ready((first.take().expect("just seen"), second.take().expect("just seen")))
    })
    .await
}

#[test]
fn an_option_out_of_range_is_refused_by_name() {
    let context = support::context();
    let refused = |options| uct_net::local::Net::new(&context, options).expect_err("refused").to_string();
    assert!(refused(NetOptions { window: 100, ..support::patient() }).contains("window = 100"));
    assert!(refused(NetOptions { max_half_open: 0, ..support::patient() }).contains("max_half_open = 0"));
    assert_eq!(Stage::Choose.to_string(), "choose a transport");
}

#[test]
fn operations_that_wait_for_room_are_all_done_when_there_is_some() {
    for transport in transports() {
        pair(
            support::patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                let memory = connection.allocate(8)?;
                connection.share(&memory).await?;
                connection.recv().within(LIMIT).await?;
                assert_eq!(memory.load_u64(0), 64 * 100);
                connection.close().within(LIMIT).await
            },
            async move |net, address| {
                let connection = net.connect(address).require(&*transport).await?;
                let remote = connection.shared().await?;
                let mut adders: Vec<_> = (0..64)
                    .map(|_| {
                        let (connection, remote) = (connection.clone(), remote.clone());
                        Box::pin(async move {
                            for _ in 0..100 {
                                connection.fetch_add(&remote, 0, 1).await?;
                            }
                            Ok::<_, uct_net::Error>(())
                        })
                    })
                    .collect();
                // All of them at once: each poll asks every one that is left.
                std::future::poll_fn(|context| {
                    let mut outcome = Ok(());
                    adders.retain_mut(|adder| match adder.as_mut().poll(context) {
                        std::task::Poll::Pending => true,
                        std::task::Poll::Ready(done) => {
                            outcome = outcome.clone().and(done);
                            false
                        }
                    });
                    if adders.is_empty() || outcome.is_err() {
                        std::task::Poll::Ready(outcome)
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await?;
                connection.flush().await?;
                connection.send(b"look").await?;
                connection.close().within(LIMIT).await
            },
        );
    }
}

/// Counted in passes, since a busy machine makes each of them longer.
#[test]
fn a_timer_is_in_time_beside_a_task_that_computes() {
    let net = net(support::patient());
    let passes = Cell::new(0);
    let computes = poll_fn(|context| {
        // A millisecond of work in each pass.
        std::thread::sleep(Duration::from_millis(1));
        passes.set(passes.get() + 1);
        context.waker().wake_by_ref();
        if passes.get() < 1000 { Poll::Pending } else { Poll::Ready("the task") }
    });
    let timer = net.sleep(Duration::from_millis(5)).map(|()| "the timer");
    // Each is polled when it was woken only.
    let tasks: [LocalBoxFuture<'_, &str>; 2] = [computes.boxed_local(), timer.boxed_local()];
    let mut tasks = FuturesUnordered::from_iter(tasks);
    assert_eq!(net.block_on(tasks.next()), Some("the timer"));
    assert!(passes.get() <= 16, "a timer of 5 ms was due behind {} passes of 1 ms", passes.get());
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[derive(Default)]
struct Counts(AtomicU32);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waker_that_panics_ends_no_driver_and_delays_no_other_task() {
    pair(
        support::patient(),
        async |_net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            connection.recv().within(LIMIT).await?;
            connection.send(b"an event").await?;
            connection.recv().within(LIMIT).await.expect_err("the end");
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(&address).await?;
            let counts = Arc::new(Counts::default());
            let wakers = [Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&counts))];
            let mut tasks = [Box::pin(connection.recv()), Box::pin(connection.recv())];
            for (task, waker) in tasks.iter_mut().zip(&wakers) {
                assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
            connection.send(b"go").await?;
            let woken = async {
                while counts.0.load(Ordering::Relaxed) == 0 {
                    net.sleep(Duration::from_millis(1)).await;
                }
            };
            net.within(LIMIT, woken).await.expect("the other task is woken");
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"an event");
            Ok(())
        },
    );
}
