//! A net inside a tokio runtime, and streams with tokio's traits.

use std::time::Duration;

use crate::support::{self, LIMIT, net, transports};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uct_net::{NetOptions, Wait};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_stream_carries_bytes_and_ends_each_way_by_itself() {
    for transport in transports() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let net = net(support::patient());
            runtime().block_on(async {
                net.run_until(async {
                    let mut listener = net.listen("127.0.0.1:0").await?;
                    sender.send(listener.address()).expect("the client waits");
                    let mut stream = listener.accept().await?.accept().await?.into_stream();
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).await?;
                    // The other way is still open.
                    stream.write_all(&bytes).await?;
                    stream.shutdown().await
                })
                .await?
            })
        });
        let address = receiver.recv_timeout(LIMIT).expect("the server listens");
        let net = net(support::patient());
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
        let received = runtime().block_on(async {
            net.run_until(async {
                let mut stream = net.connect(address).require(transport).await?.into_stream();
                for chunk in sent.chunks(70_001) {
                    stream.write_all(chunk).await?;
                }
                stream.shutdown().await?;
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await?;
                Ok::<_, std::io::Error>(bytes)
            })
            .await
        });
        let received = received.expect("a driver").expect("the client's side");
        assert!(received == sent, "{} of {} bytes came back", received.len(), sent.len());
        drop(net);
        server.join().expect("the server's thread").expect("the server's side");
    }
}

#[test]
fn tasks_of_the_runtime_share_a_net_and_its_timers_while_it_sleeps() {
    let net = net(NetOptions { wait: Wait::Sleep, ..support::patient() });
    let local = tokio::task::LocalSet::new();
    let runtime = runtime();
    local
        .block_on(&runtime, async {
            net.run_until(async {
                let mut listener = net.listen("127.0.0.1:0").await?;
                let address = listener.address();
                let server = tokio::task::spawn_local(async move {
                    let connection = listener.accept().await?.accept().await?;
                    let silence = connection.recv().within(Duration::from_millis(20)).await;
                    assert!(silence.expect_err("nothing yet").is_timeout());
                    connection.send(b"ready").await?;
                    loop {
                        match connection.recv().await {
                            Ok(message) => connection.send(&message).await?,
                            Err(error) if error.is_closed_by_peer() => return Ok::<_, uct_net::Error>(()),
                            Err(error) => return Err(error),
                        }
                    }
                });
                let connection = net.connect(address).await?;
                connection.recv().within(LIMIT).await?;
                for number in 0..200_u32 {
                    connection.send(&number.to_le_bytes()).await?;
                    assert_eq!(*connection.recv().within(LIMIT).await?, number.to_le_bytes());
                    if number % 50 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                drop(connection);
                server.await.expect("the task")
            })
            .await
        })
        .expect("a driver")
        .expect("both sides");
}

#[test]
fn a_driver_that_ends_or_is_dropped_leaves_the_net_to_another_one() {
    let net = std::rc::Rc::new(net(NetOptions { wait: Wait::Sleep, ..support::patient() }));
    let drive = |time: Duration| {
        let net = std::rc::Rc::clone(&net);
        tokio::task::spawn_local(async move { net.run_until(tokio::time::sleep(time)).await })
    };
    tokio::task::LocalSet::new().block_on(&runtime(), async {
        let _first = drive(LIMIT * 2);
        for is_dropped in [false, true] {
            let second = drive(if is_dropped { LIMIT } else { Duration::from_millis(20) });
            tokio::time::sleep(Duration::from_millis(10)).await;
            if is_dropped {
                second.abort();
            }
            let _ = second.await;
            // Only the first one is left to drive the timer.
            tokio::select! {
                biased;
                () = tokio::time::sleep(LIMIT) => panic!("nothing drives the net"),
                () = net.sleep(Duration::from_millis(5)) => {}
            }
        }
    });
}
