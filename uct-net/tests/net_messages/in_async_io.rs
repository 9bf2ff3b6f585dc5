//! A net inside an executor that uses async-io's event loop.

use std::time::Duration;

use crate::support::{self, LIMIT, net, transports};
use async_io::{Timer, block_on};
use futures_util::future::join;
use uct_net::{NetOptions, Result, Wait, local::Connection};

/// Two connections of one net, to each other.
async fn pair(net: &uct_net::local::Net, transport: &str) -> Result<(Connection, Connection)> {
    let mut listener = net.listen("127.0.0.1:0").await?;
    let address = listener.address();
    let accept = async { listener.accept().await?.accept().await };
    let (here, there) = join(accept, net.connect(address).require(transport).into_future()).await;
    Ok((here?, there?))
}

#[test]
fn messages_cross_however_the_net_waits() {
    for wait in [Wait::Sleep, Wait::Spin, support::patient().wait] {
        for transport in transports() {
            let net = net(NetOptions { wait, ..support::patient() });
            let exchange = async {
                let (here, there) = pair(&net, &transport).await?;
                let echo = async {
                    while let Ok(message) = here.recv().await {
                        here.send(&message).await?;
                    }
                    Ok::<_, uct_net::Error>(())
                };
                let ask = async {
                    for round in 0..200_u32 {
                        let message = vec![round as u8; round as usize * 37 % 3000];
                        there.send(&message).within(LIMIT).await?;
                        assert!(*there.recv().within(LIMIT).await? == *message, "{round} over {transport}");
                        if round % 50 == 0 {
                            // Long enough for all to sleep.
                            Timer::after(Duration::from_millis(2)).await;
                        }
                    }
                    there.close().within(LIMIT).await
                };
                let (echoed, asked) = join(echo, ask).await;
                echoed.and(asked)
            };
            block_on(net.run_in_async_io(exchange)).expect("a driver").expect("both sides");
        }
    }
}

#[test]
fn limits_end_while_nothing_comes_and_the_net_sleeps() {
    let net = net(NetOptions { wait: Wait::Sleep, ..support::patient() });
    let wait = async {
        let (here, there) = pair(&net, "posix").await?;
        for _ in 0..3 {
            let error = here.recv().within(Duration::from_millis(5)).await.expect_err("nothing comes");
            assert!(error.is_timeout(), "{error}");
        }
        there.send(b"after the limits").await?;
        here.recv().within(LIMIT).await
    };
    let message = block_on(net.run_in_async_io(wait)).expect("a driver").expect("a message");
    assert_eq!(*message, *b"after the limits");
}

/// Of this thread, which drives the net: other tests of the process run meanwhile.
fn own_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn an_idle_net_takes_no_processor() {
    const IDLE: Duration = Duration::from_millis(300);
    let net = net(support::patient());
    let idle = async {
        let (_here, _there) = pair(&net, "posix").await?;
        Timer::after(IDLE).await;
        let before = own_processor_time();
        Timer::after(IDLE).await;
        Ok::<_, uct_net::Error>(own_processor_time() - before)
    };
    let time = block_on(net.run_in_async_io(idle)).expect("a driver").expect("a pair");
    assert!(time < IDLE / 10, "{time:?} in {IDLE:?}");
}
