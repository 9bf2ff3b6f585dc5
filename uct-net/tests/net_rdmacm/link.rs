//! A cable that is pulled while a connection by rdmacm is there, and while one is made: each ends with an error by its limit, and another
//! connection works once the cable is back. On a machine with two RDMA devices and a cable; the others skip them.

use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use crate::cable::{Cable, cable};
use crate::support::rdmacm::{CM, Machine, pair};
use crate::support::{self, LIMIT, patient, rdmacm, skip};
use uct_net::Error;
use uct_net::local::{Connection, Net};

/// After this time without a sign of the peer an endpoint fails.
const PEER_LIMIT: &str = "1s";
/// The limit of an attempt that gets no answer.
const ATTEMPT: Duration = Duration::from_secs(2);

/// A machine with a cable, and the turn to use it; `None`: the test is skipped.
fn machine() -> Option<(Machine, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    rdmacm::machine()?;
    if !rdmacm::is_pair() {
        skip::skip("cable", "one device has no cable");
        return None;
    }
    let keys = [
        ("tls", "rc_verbs"),
        ("rc_verbs.linger", "10ms"),
        ("rc_verbs.rx_queue_len", "512"),
        ("rc_verbs.peer_timeout", PEER_LIMIT),
        ("rc_verbs.timeout", "30ms"),
        ("rc_verbs.keepalive_interval", PEER_LIMIT),
    ];
    Some((Machine { context: support::with(&keys) }, turn))
}

async fn connect(net: &Net, address: &str) -> uct_net::Result<Connection> {
    let source = "10.7.0.1:0".parse().expect("an address");
    net.connect(address).by(CM).from(source).within(ATTEMPT).await
}

/// As [`connect`], in as many attempts as the neighbours take to find each other again.
async fn connect_again(net: &Net, address: &str) -> uct_net::Result<Connection> {
    for _ in 0..10 {
        if let Ok(connection) = connect(net, address).await {
            return Ok(connection);
        }
    }
    connect(net, address).await
}

async fn is_echoed(connection: &Connection) -> uct_net::Result {
    connection.send(b"over the cable").await?;
    assert_eq!(&*connection.recv().within(LIMIT).await?, b"over the cable");
    Ok(())
}

/// The next caller that is still there: one whose attempt was over may come first.
async fn serve(listener: &mut uct_net::local::Listener) -> uct_net::Result<Connection> {
    loop {
        let Ok(connection) = listener.accept().await?.accept().await else { continue };
        let Ok(message) = connection.recv().within(LIMIT).await else { continue };
        connection.send(&message).await?;
        return Ok(connection);
    }
}

/// Until the other side has said so, or has failed.
async fn wait_for(net: &Net, is_ended: &mpsc::Receiver<()>) {
    while is_ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
        net.sleep(Duration::from_millis(1)).await;
    }
}

/// The end of a connection by its transport: nothing came back, or, at the end that has no route any more, nothing could be sent.
fn expect_a_loss(error: &Error) {
    let text = error.to_string();
    assert!(!error.is_closed_by_peer() && text.contains("10.7.0."), "{text}");
    let words = ["acknowledged nothing", "could not execute the request"];
    assert!(words.iter().any(|words| text.contains(words)), "{text}");
}

#[test]
fn a_connection_without_a_cable_ends_on_both_sides_and_a_new_one_works_afterwards() {
    let Some((machine, _turn)) = machine() else { return };
    let (ended, is_ended) = mpsc::channel();
    pair(
        &machine,
        (patient(), patient()),
        async move |net, mut listener| {
            let connection = serve(&mut listener).await?;
            let error = net.within(LIMIT, connection.closed()).await.expect("it ends");
            expect_a_loss(&error);
            assert!(connection.recv().await.is_err());
            ended.send(()).expect("the client waits");
            let connection = serve(&mut listener).await?;
            let end = connection.recv().within(LIMIT).await.expect_err("the end");
            assert!(end.is_closed_by_peer(), "{end}");
            Ok(())
        },
        async move |net, address| {
            let connection = connect(net, &address).await?;
            is_echoed(&connection).await?;
            let _cable = Cable;
            cable(false);
            connection.send(b"lost").await?;
            let error = net.within(LIMIT, connection.closed()).await.expect("it ends");
            expect_a_loss(&error);
            assert!(connection.send(b"x").await.is_err());
            wait_for(net, &is_ended).await;
            cable(true);
            let connection = connect_again(net, &address).await?;
            is_echoed(&connection).await?;
            connection.close().within(LIMIT).await
        },
    );
}

#[test]
fn an_attempt_without_a_cable_ends_by_its_limit_and_a_new_one_works_afterwards() {
    let Some((machine, _turn)) = machine() else { return };
    pair(
        &machine,
        (patient(), patient()),
        async |_net, mut listener| {
            let connection = serve(&mut listener).await?;
            let end = connection.recv().within(LIMIT).await.expect_err("the end");
            assert!(end.is_closed_by_peer(), "{end}");
            Ok(())
        },
        async |net, address| {
            let _cable = Cable;
            cable(false);
            let error = connect(net, &address).await.expect_err("there is no cable");
            assert!(error.to_string().contains(&address), "{error}");
            cable(true);
            let connection = connect_again(net, &address).await?;
            is_echoed(&connection).await?;
            connection.close().within(LIMIT).await
        },
    );
}

/// The server has the request. It does nothing without the cable: a device of rdma_rxe that has no route and has to send a message of rdma_cm
/// sends none of them any more.
#[test]
fn an_attempt_whose_cable_is_pulled_ends_by_its_limit_and_a_new_one_works_afterwards() {
    let Some((machine, _turn)) = machine() else { return };
    let (ended, is_ended) = mpsc::channel();
    pair(
        &machine,
        (patient(), patient()),
        async move |_net, mut listener| {
            let incoming = listener.accept().await?;
            let _cable = Cable;
            cable(false);
            is_ended.recv_timeout(LIMIT).expect("the client's attempt ends");
            cable(true);
            let error = incoming.accept().await.expect_err("the client has given up");
            assert!(error.to_string().contains("10.7.0.1"), "{error}");
            let connection = serve(&mut listener).await?;
            let end = connection.recv().within(LIMIT).await.expect_err("the end");
            assert!(end.is_closed_by_peer(), "{end}");
            Ok(())
        },
        async move |net, address| {
            let error = connect(net, &address).await.expect_err("there is no cable");
            assert!(error.to_string().contains(&address), "{error}");
            ended.send(()).expect("the server waits");
            let connection = connect_again(net, &address).await?;
            is_echoed(&connection).await?;
            connection.close().within(LIMIT).await
        },
    );
}
