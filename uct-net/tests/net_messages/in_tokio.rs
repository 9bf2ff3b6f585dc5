//! The flavour for any thread, driven by a task of a tokio runtime: it has no thread of its own, sleeps in the runtime's event loop, and
//! outlives the runtime.

use std::time::Duration;

use crate::support::alone::is_alone;
use crate::support::{self, LIMIT, context, transports};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use uct_net::{Connection, Net, NetOptions, Wait};

fn runtimes() -> [Runtime; 2] {
    let several = Builder::new_multi_thread().worker_threads(3).enable_all().build();
    let one = Builder::new_current_thread().enable_all().build();
    [several.expect("a runtime"), one.expect("a runtime")]
}

/// Threads of nets in this process, by their name.
fn own_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted").flatten();
    // One that has just ended has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name == "uct-net\n").count()
}

fn in_tokio(wait: Wait) -> Net {
    Net::in_tokio(&context(), NetOptions { wait, ..support::patient() }).expect("a net")
}

/// Two nets of the current runtime, and a connection between them.
async fn pair(transport: &str, wait: Wait) -> (Net, Connection, Net, Connection) {
    let (left, right) = (in_tokio(wait), in_tokio(wait));
    let mut listener = left.listen("127.0.0.1:0").await.expect("it listens");
    let address = listener.address().to_owned();
    let accepting = tokio::spawn(async move { listener.accept().await?.accept().await });
    let there = right.connect(address).require(transport).await.expect("a connection");
    (left, accepting.await.expect("the task").expect("a connection"), right, there)
}

async fn echo(connection: Connection) {
    while let Ok(message) = connection.recv().await {
        connection.send(&message).await.expect("it lives");
    }
}

#[test]
fn messages_cross_without_a_thread_however_the_net_waits() {
    if !is_alone() {
        return;
    }
    for wait in [Wait::Sleep, Wait::Spin, support::patient().wait] {
        for transport in transports() {
            for runtime in runtimes() {
                runtime.block_on(async {
                    let (left, here, right, there) = pair(&transport, wait).await;
                    let answers = tokio::spawn(echo(here));
                    for round in 0..300_u32 {
                        let message = vec![round as u8; round as usize * 37 % 3000];
                        there.send(&message).within(LIMIT).await.expect("sent");
                        let answer = there.recv().within(LIMIT).await.expect("an answer");
                        assert!(*answer == *message, "{round} over {transport}");
                        if round % 100 == 0 {
                            // Long enough for all to sleep.
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                    }
                    assert_eq!(own_threads(), 0, "a net has a thread of its own");
                    there.close().within(LIMIT).await.expect("it closes");
                    answers.await.expect("the task");
                    // Both ends are in this runtime, and its end would drive one at a time: they have a moment to agree on it.
                    drop((left, right, there));
                    tokio::time::sleep(Duration::from_millis(5)).await;
                });
            }
        }
    }
}

#[test]
fn limits_end_while_nothing_comes_and_all_sleep() {
    if !is_alone() {
        return;
    }
    for runtime in runtimes() {
        runtime.block_on(async {
            let (_left, here, _right, _there) = pair("posix", Wait::Sleep).await;
            for _ in 0..3 {
                let error = here.recv().within(Duration::from_millis(5)).await.expect_err("nothing comes");
                assert!(error.is_timeout(), "{error}");
            }
        });
    }
}

#[test]
fn an_idle_net_takes_no_processor() {
    const IDLE: Duration = Duration::from_millis(300);
    if !is_alone() {
        return;
    }
    for runtime in runtimes() {
        runtime.block_on(async {
            for wait in [Wait::Sleep, support::patient().wait] {
                let (_left, here, _right, there) = pair("posix", wait).await;
                there.send(b"the last one").within(LIMIT).await.expect("sent");
                here.recv().within(LIMIT).await.expect("a message");
                tokio::time::sleep(IDLE).await;
                let before = support::processor_time();
                tokio::time::sleep(IDLE).await;
                let time = support::processor_time() - before;
                assert!(time < IDLE / 10, "{time:?} in {IDLE:?}, {wait:?}");
            }
        });
    }
}

#[test]
fn many_connections_of_tasks_share_a_net() {
    if !is_alone() {
        return;
    }
    for runtime in runtimes() {
        runtime.block_on(async {
            let (server, client) = (in_tokio(Wait::Sleep), in_tokio(Wait::Sleep));
            let mut listener = server.listen("127.0.0.1:0").await.expect("it listens").into_streams();
            let address = listener.address().to_owned();
            let serving = tokio::spawn(async move {
                loop {
                    let mut stream = listener.next().await;
                    tokio::spawn(async move {
                        let mut bytes = Vec::new();
                        stream.read_to_end(&mut bytes).await?;
                        stream.write_all(&bytes).await?;
                        stream.shutdown().await
                    });
                }
            });
            let tasks: Vec<_> = (0..50_usize)
                .map(|number| {
                    let connect = client.connect(&address);
                    tokio::spawn(async move {
                        let mut stream = connect.await?.into_stream();
                        let sent = vec![number as u8; number * 1000];
                        stream.write_all(&sent).await?;
                        stream.shutdown().await?;
                        let mut came = Vec::new();
                        stream.read_to_end(&mut came).await?;
                        assert!(came == sent);
                        Ok::<_, std::io::Error>(())
                    })
                })
                .collect();
            for task in tasks {
                let outcome = tokio::time::timeout(LIMIT, task).await.expect("in time");
                outcome.expect("a task").expect("a stream");
            }
            serving.abort();
        });
    }
}

#[test]
fn a_net_outlives_its_runtime_and_other_threads_drive_it() {
    if !is_alone() {
        return;
    }
    for runtime in runtimes() {
        let (left, here, right, there) = runtime.block_on(pair("posix", Wait::Sleep));
        // In the foreground of another thread, while the runtime's task stands aside.
        let (left, here) = std::thread::spawn(move || {
            left.block_on(async {
                here.send(b"from a thread").await.expect("sent");
            });
            (left, here)
        })
        .join()
        .expect("a thread");
        let message = runtime.block_on(there.recv().within(LIMIT)).expect("a message");
        assert_eq!(&*message, b"from a thread");
        drop((message, runtime));
        // Threads have taken over: any executor works.
        let other = Builder::new_current_thread().build().expect("a runtime");
        other.block_on(async {
            for round in 0..100_u8 {
                there.send(&[round]).within(LIMIT).await.expect("sent");
                assert_eq!(*here.recv().within(LIMIT).await.expect("a message"), [round]);
            }
        });
        drop((left, right));
    }
}

#[test]
fn what_was_sent_last_arrives_though_handles_and_runtime_end_at_once() {
    if !is_alone() {
        return;
    }
    for transport in transports() {
        for runtime in runtimes() {
            let server = Net::new(&context(), support::patient()).expect("a net");
            let mut listener = server.block_on(server.listen("127.0.0.1:0")).expect("it listens");
            let address = listener.address().to_owned();
            let receiving = std::thread::spawn(move || {
                server.block_on(async {
                    let connection =
                        listener.accept().await.expect("a caller").accept().await.expect("taken");
                    for number in 0..20_u8 {
                        let message = connection.recv().within(LIMIT).await.expect("a message");
                        assert!(message.len() == 5000 && message.iter().all(|byte| *byte == number));
                    }
                    connection.recv().within(LIMIT).await.expect_err("the end")
                })
            });
            runtime.block_on(async {
                let net = in_tokio(Wait::Sleep);
                let connection = net.connect(address).require(&*transport).await.expect("a connection");
                for number in 0..20_u8 {
                    connection.send(&[number; 5000]).within(LIMIT).await.expect("sent");
                }
            });
            drop(runtime);
            let end = receiving.join().expect("the server's thread");
            assert!(end.is_closed_by_peer(), "over {transport}: {end}");
        }
    }
}

#[test]
fn outside_of_a_runtime_it_is_refused_with_a_remedy() {
    let error = Net::in_tokio(&context(), support::patient()).expect_err("there is no runtime");
    assert!(error.to_string().contains("inside a tokio runtime"), "{error}");
}
