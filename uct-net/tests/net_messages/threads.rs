//! The flavour for any thread: handles that move, threads that use one net at once, and wakers that use the net themselves.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::support::random::{Random, polled};
use crate::support::threads::{pair, pair_with};
use crate::support::{self, LIMIT, context, rounds, seed, transports};
use uct_net::{Connection, Listener, Message, Net, NetOptions, Stream, Wait};

fn net() -> Net {
    Net::new(&context(), support::patient()).expect("a net")
}

#[test]
fn every_handle_is_for_any_thread() {
    fn is_for_any_thread<T: Send + Sync + 'static>() {}
    is_for_any_thread::<Net>();
    is_for_any_thread::<Listener>();
    is_for_any_thread::<uct_net::Incoming>();
    is_for_any_thread::<Connection>();
    is_for_any_thread::<Message>();
    is_for_any_thread::<Stream>();
    is_for_any_thread::<uct_net::Connecting>();
    fn is_send<T: Send>(_: &T) {}
    let net = net();
    is_send(&net.listen("127.0.0.1:0"));
    is_send(&net.sleep(Duration::ZERO));
}

#[test]
fn messages_of_every_size_come_back_whole_over_every_transport() {
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let echo = thread::spawn(move || {
            left.block_on(async {
                while let Ok(message) = here.recv().await {
                    here.send(&message).await?;
                }
                Ok::<_, uct_net::Error>(())
            })
        });
        right
            .block_on(async {
                for length in [0, 1, 8, 100, 1000, 5000, 100_000, 3_000_000] {
                    let message: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
                    there.send(&message).within(LIMIT).await?;
                    let back = there.recv().within(LIMIT).await?;
                    assert!(*back == *message, "{length} bytes over {transport}");
                }
                there.close().within(LIMIT).await
            })
            .expect("the client's side");
        echo.join().expect("the server's thread").expect("the server's side");
    }
}

#[test]
fn threads_send_and_receive_on_one_net_at_once() {
    let count = rounds(3000);
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let mut threads = Vec::new();
        // In both directions at once: each side sends in one thread and receives in another.
        for (net, connection) in [(left, here), (right, there)] {
            let (sender, sending) = (net.clone(), connection.clone());
            threads.push(thread::spawn(move || {
                for number in 0..count {
                    sender.block_on(sending.send(&number.to_le_bytes())).expect("sent");
                }
            }));
            let transport = transport.clone();
            threads.push(thread::spawn(move || {
                net.block_on(async {
                    for number in 0..count {
                        let message = connection.recv().within(LIMIT).await.expect("a message");
                        assert_eq!(*message, number.to_le_bytes(), "over {transport}");
                    }
                });
            }));
        }
        for thread in threads {
            thread.join().expect("a thread");
        }
    }
}

/// The bytes of a message: which sender, which number, and bytes that show damage.
fn message(sender: u64, number: u64, length: u64) -> Vec<u8> {
    let mut message = [sender.to_le_bytes(), number.to_le_bytes()].concat();
    message.extend((0..length).map(|at| (at * 7 + number + sender) as u8));
    message
}

/// Several threads send on one connection, several receive on it; all of them drop futures wherever they wait. What was sent for
/// sure arrives once, and each sender's messages in order as each receiver sees them.
#[test]
fn futures_that_several_threads_drop_lose_nothing_and_double_nothing() {
    const SENDERS: u64 = 3;
    const RECEIVERS: u64 = 2;
    let (seed, count) = (seed::printed() | 1, rounds(500));
    for transport in transports() {
        let options = NetOptions { window: 16_384, ..support::patient() };
        let (left, here, right, there) = pair_with(&transport, options);
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (net, connection) = (right.clone(), there.clone());
                thread::spawn(move || {
                    let mut random = Random(seed ^ (sender + 1) << 8);
                    let mut sent = Vec::new();
                    for number in 0..count {
                        let length =
                            if random.below(8) == 0 { random.below(40_000) } else { random.below(300) };
                        let message = message(sender, number, length);
                        let is_sent = match random.below(3) {
                            0 => {
                                let polls = random.below(4);
                                net.block_on(polled(polls, connection.send(&message)))
                                    .transpose()
                                    .expect("it lives")
                                    .is_some()
                            }
                            1 => {
                                let limit = Duration::from_micros(random.below(200));
                                net.block_on(connection.send(&message).within(limit)).is_ok()
                            }
                            _ => {
                                net.block_on(connection.send(&message).within(LIMIT)).expect("it is sent");
                                true
                            }
                        };
                        if is_sent {
                            sent.push((sender, number));
                        }
                    }
                    sent
                })
            })
            .collect();
        let receivers: Vec<_> = (0..RECEIVERS)
            .map(|receiver| {
                let (net, connection) = (left.clone(), here.clone());
                thread::spawn(move || {
                    let mut random = Random(seed ^ (receiver + 1) << 16);
                    let mut received = Vec::new();
                    loop {
                        let polls = random.below(30);
                        let outcome = net.block_on(async {
                            if random.below(4) == 0 {
                                let limit = Duration::from_micros(random.below(300));
                                Some(connection.recv().within(limit).await)
                            } else {
                                polled(polls, connection.recv()).await
                            }
                        });
                        match outcome {
                            Some(Ok(came)) => {
                                let word =
                                    |at: usize| u64::from_le_bytes(came[at..at + 8].try_into().expect("8"));
                                let (sender, number) = (word(0), word(8));
                                let length = came.len() as u64 - 16;
                                assert!(*came == *message(sender, number, length), "{number} is damaged");
                                received.push((sender, number));
                            }
                            Some(Err(error)) if error.is_closed_by_peer() => return received,
                            Some(Err(error)) if error.is_timeout() => {}
                            Some(Err(error)) => panic!("{error}"),
                            None => {}
                        }
                    }
                })
            })
            .collect();
        let sent: Vec<_> = senders.into_iter().flat_map(|thread| thread.join().expect("a sender")).collect();
        right.block_on(there.close().within(LIMIT)).expect("it closes");
        let mut all = Vec::new();
        for thread in receivers {
            let received = thread.join().expect("a receiver");
            for sender in 0..SENDERS {
                let numbers = received.iter().filter(|(of, _)| *of == sender).map(|(_, number)| *number);
                assert!(numbers.is_sorted_by(|one, next| one < next), "out of order over {transport}");
            }
            all.extend(received);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a message came twice over {transport}");
        for message in sent {
            assert!(all.binary_search(&message).is_ok(), "{message:?} was sent and is lost over {transport}");
        }
    }
}

/// A waker that uses the net and drops a handle of it, in whatever thread it is called.
struct Meddler {
    net: Net,
    connection: Mutex<Option<Connection>>,
    calls: AtomicU32,
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        let connection = self.connection.lock().expect("no panic").take();
        if let Some(connection) = connection {
            let mut sending = pin!(connection.send(b"from a waker"));
            assert!(sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        let mut sleep = pin!(self.net.sleep(Duration::ZERO));
        let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        // The engine drops wakers as well: here it is used by one of them.
        let mut sleep = pin!(self.net.sleep(Duration::ZERO));
        let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

#[test]
fn a_waker_that_uses_the_net_and_drops_its_handles_blocks_no_thread() {
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let meddler = Arc::new(Meddler {
            net: left.clone(),
            connection: Mutex::new(Some(here.clone())),
            calls: AtomicU32::new(0),
        });
        {
            // Registered by a future that is dropped: the waker stays behind in the engine.
            let waker = Waker::from(Arc::clone(&meddler));
            let mut receiving = pin!(here.recv());
            assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        right.block_on(there.send(b"an event")).expect("sent");
        let answer = right.block_on(there.recv().within(LIMIT)).expect("what the waker sent");
        assert_eq!(&*answer, b"from a waker");
        assert_eq!(&*left.block_on(here.recv().within(LIMIT)).expect("it is still there"), b"an event");
        // Another one is registered, and dropped with the connection.
        let waker = Waker::from(Arc::clone(&meddler));
        assert!(pin!(here.recv()).as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop((waker, meddler, here));
        assert!(right.block_on(there.recv().within(LIMIT)).expect_err("it is closed").is_closed_by_peer());
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

/// Reports that it was woken.
struct Reports(Mutex<mpsc::Sender<()>>);

impl Wake for Reports {
    fn wake(self: Arc<Self>) {
        self.0.lock().expect("no panic").send(()).expect("it is awaited");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_task_from_being_woken() {
    for transport in transports() {
        let (_left, here, right, there) = pair(&transport);
        // Again, since the thread that wakes lives on.
        for _ in 0..2 {
            let (sender, woken) = mpsc::channel();
            let wakers = [Waker::from(Arc::new(Panics)), Waker::from(Arc::new(Reports(Mutex::new(sender))))];
            let mut tasks = [Box::pin(here.recv()), Box::pin(here.recv())];
            for (task, waker) in tasks.iter_mut().zip(&wakers) {
                assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
            right.block_on(there.send(b"an event")).expect("sent");
            woken.recv_timeout(LIMIT).expect("the other task is woken");
            let received = tasks[1].as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(received, Poll::Ready(Ok(message)) if *message == *b"an event"));
        }
    }
}

#[test]
fn what_was_sent_arrives_though_everything_is_dropped_in_several_threads() {
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let threads: Vec<_> = (0..4_u8)
            .map(|number| {
                let (net, connection) = (right.clone(), there.clone());
                thread::spawn(move || {
                    net.block_on(connection.send(&vec![number; 50_000])).expect("sent");
                    drop(net);
                    drop(connection);
                })
            })
            .collect();
        drop((right, there));
        left.block_on(async {
            let mut came = Vec::new();
            for _ in 0..4 {
                let message = here.recv().within(LIMIT).await.expect("a message");
                assert!(message.len() == 50_000 && message.iter().all(|byte| *byte == message[0]));
                came.push(message[0]);
            }
            came.sort_unstable();
            assert_eq!(came, [0, 1, 2, 3]);
            let end = here.recv().within(LIMIT).await.expect_err("nothing follows");
            assert!(end.is_closed_by_peer(), "{end}");
        });
        for thread in threads {
            thread.join().expect("a thread");
        }
    }
}

/// As a runtime uses it: tasks that move between threads, and nothing but the engine's own thread that drives it when they wait.
fn in_a_runtime(wait: Wait, connections: u64, rounds: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().expect("a runtime");
    // What is checked here is not how fast a busy machine connects.
    let options = NetOptions {
        wait,
        handshake_timeout: LIMIT,
        lane_timeout: LIMIT,
        connect_timeout: LIMIT,
        ..support::patient()
    };
    let server = Net::new(&context(), options.clone()).expect("a net");
    let client = Net::new(&context(), options).expect("a net");
    runtime.block_on(async move {
        let mut listener = server.listen("127.0.0.1:0").await.expect("it listens");
        let address = listener.address().to_owned();
        tokio::spawn(async move {
            while let Ok(incoming) = listener.accept().await {
                tokio::spawn(async move {
                    let connection = incoming.accept().await.expect("a connection");
                    while let Ok(message) = connection.recv().await {
                        connection.send(&message).await.expect("it lives");
                    }
                });
            }
        });
        let tasks: Vec<_> = (0..connections)
            .map(|number| {
                let (client, address) = (client.clone(), address.clone());
                tokio::spawn(async move {
                    let connection = client.connect(address).await.expect("a connection");
                    for round in 0..rounds {
                        let message = message(number, round, round * 37 % 3000);
                        connection.send(&message).within(LIMIT).await.expect("sent");
                        let answer = connection.recv().within(LIMIT).await.expect("an answer");
                        assert!(*answer == *message);
                    }
                    connection.close().within(LIMIT).await.expect("it closes");
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task");
        }
    });
}

#[test]
fn many_connections_of_tasks_that_move_between_threads() {
    in_a_runtime(support::patient().wait, 200, 20);
}

#[test]
fn a_net_that_sleeps_at_once_misses_nothing() {
    in_a_runtime(Wait::Sleep, 4, 500);
}

#[test]
fn a_net_that_polls_all_the_time_leaves_the_lock_to_others() {
    in_a_runtime(Wait::Spin, 4, 200);
}

#[test]
fn a_limit_ends_a_wait_that_nothing_else_ends() {
    let (left, here, _right, _there) = pair("posix");
    let error = left.block_on(here.recv().within(Duration::from_millis(20))).expect_err("nothing comes");
    assert!(error.is_timeout(), "{error}");
    // Without a thread in the foreground: the engine's own has to learn of the timer.
    let (sender, receiver) = std::sync::mpsc::channel();
    struct Tell(Mutex<std::sync::mpsc::Sender<()>>);
    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().expect("no panic").send(());
        }
    }
    let waker = Waker::from(Arc::new(Tell(Mutex::new(sender))));
    thread::sleep(Duration::from_millis(50));
    let mut receiving = pin!(here.recv().within(Duration::from_millis(20)));
    assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    receiver.recv_timeout(LIMIT).expect("the time is over");
    while receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        receiver.recv_timeout(LIMIT).expect("the time is over");
    }
}
