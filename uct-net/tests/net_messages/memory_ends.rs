//! What operations on shared memory return after the end of the peer that shares it: the table of docs/key-value.md.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::support::{self, LIMIT, LOOPBACK, child, context, serve};
use uct_core::Error as Status;
use uct_net::local::{Connection, Net, RemoteMemory};

const TRANSPORTS: [&str; 2] = ["posix/memory", "tcp/lo"];
/// Address and transport for the process that is killed.
const OWNED_BY: &str = "UCT_NET_MEMORY_OWNER";
/// What the owner has written to its memory.
const COLOUR: &[u8; 5] = b"green";

/// The outcomes of get, put and `fetch_add`, each within [`LIMIT`].
async fn outcomes(net: &Net, connection: &Connection, remote: &RemoteMemory) -> [Result<(), Status>; 3] {
    let local = connection.allocate(COLOUR.len()).expect("memory");
    let slice = || local.slice(..COLOUR.len());
    let got = net.within(LIMIT, connection.get(slice(), remote, 0)).await.expect("get ends");
    assert!(got.is_err() || local.to_vec().starts_with(COLOUR), "a get that succeeds has the bytes");
    let put = net.within(LIMIT, connection.put(slice(), remote, 8)).await.expect("put ends");
    let added = net.within(LIMIT, connection.fetch_add(remote, 16, 1)).await.expect("fetch_add ends");
    [got, put, added.map(drop)].map(|outcome| outcome.map_err(|error| error.status))
}

/// Waits for a signal of another thread while the net is driven.
async fn signalled(net: &Net, receiver: &Receiver<()>) {
    let signal = async {
        while receiver.try_recv().is_err() {
            net.sleep(Duration::from_millis(1)).await;
        }
    };
    net.within(LIMIT, signal).await.expect("the other thread goes on");
}

#[test]
fn after_an_orderly_end_memory_is_accessible_until_its_owner_drops_it() {
    for transport in TRANSPORTS {
        let (order, ordered) = mpsc::channel();
        let (done, has_dropped) = mpsc::channel();
        let owner = async move |net: &Net, mut listener: uct_net::local::Listener| {
            let connection = listener.accept().await?.accept().await?;
            let memory = connection.allocate(4096)?;
            memory.write(0, COLOUR);
            connection.share(&memory).await?;
            connection.recv().within(LIMIT).await?;
            connection.close().within(LIMIT).await?;
            drop(connection);
            signalled(net, &ordered).await;
            let mut written = [0; COLOUR.len()];
            memory.read(8, &mut written);
            assert_eq!((&written, memory.load_u64(16)), (COLOUR, 1), "over {transport}");
            drop(memory);
            done.send(()).expect("it is awaited");
            signalled(net, &ordered).await;
            Ok(())
        };
        let (owner, address) = serve(&context(), support::patient(), LOOPBACK, owner);
        let net = support::net(support::patient());
        let accessed = async {
            let connection = net.connect(address).require(transport).await?;
            let remote = connection.shared().await?;
            connection.send(b"ready").await?;
            assert!(connection.recv().within(LIMIT).await.expect_err("the end").is_closed_by_peer());

            assert_eq!(outcomes(&net, &connection, &remote).await, [Ok(()); 3], "over {transport}");
            connection.flush().await?;

            order.send(()).expect("the owner waits");
            signalled(&net, &has_dropped).await;
            let dropped = [Err(Status::INVALID_PARAM); 3];
            assert_eq!(outcomes(&net, &connection, &remote).await, dropped, "over {transport}");
            connection.flush().await?;

            order.send(()).expect("the owner waits");
            owner.join().expect("the owner's thread");
            for outcome in outcomes(&net, &connection, &remote).await {
                let status = outcome.expect_err("the owner has gone");
                let expected = [Status::INVALID_PARAM, Status::CONNECTION_RESET];
                assert!(expected.contains(&status), "over {transport}: {status}");
            }
            Ok::<_, uct_net::Error>(())
        };
        net.block_on(accessed).expect("the side that accesses it");
    }
}

#[test]
fn a_side_whose_connection_ends_behind_refused_accesses_knows_that_they_were_refused() {
    let context = support::with(&[("tcp.max_refused", "3")]);
    let owner = async |net: &Net, mut listener: uct_net::local::Listener| {
        let connection = listener.accept().await?.accept().await?;
        let memory = net.allocate(4096)?;
        connection.share(&memory).await?;
        connection.recv().within(LIMIT).await?;
        drop(memory);
        connection.send(b"dropped").await?;
        let end = connection.recv().within(LIMIT).await.expect_err("too many were refused");
        assert!(end.reason.contains("(max_refused)"), "{end}");
        Ok(())
    };
    let (owner, address) = serve(&context, support::patient(), LOOPBACK, owner);
    let net = support::net(support::patient());
    let accessed = async {
        let connection = net.connect(address).require("tcp/lo").await?;
        let remote = connection.shared().await?;
        let local = net.allocate(8)?;
        connection.put(local.slice(..8), &remote, 0).await?;
        connection.send(b"put").await?;
        connection.recv().within(LIMIT).await?;
        let end = loop {
            let put = connection.put(local.slice(..8), &remote, 0);
            let refused = net.within(LIMIT, put).await.expect("it ends").expect_err("it is refused");
            if refused.status != Status::INVALID_PARAM {
                break refused;
            }
        };
        let words = "it had refused accesses to its memory, for a key that has ended or an address outside";
        assert!(end.reason.contains(words), "{end}");
        Ok::<_, uct_net::Error>(())
    };
    net.block_on(accessed).expect("the side that accesses it");
    owner.join().expect("the owner's thread");
}

/// The process that is killed: this program, by the name of this test.
#[test]
fn the_owner_that_is_killed() {
    let Ok(value) = std::env::var(OWNED_BY) else { return };
    let (address, transport) = value.split_once(' ').expect("an address and a transport");
    let net = support::net(support::patient());
    let owner = async {
        let connection = net.connect(address).require(transport).await?;
        let memory = connection.allocate(4096)?;
        memory.write(0, COLOUR);
        connection.share(&memory).await?;
        connection.recv().within(LIMIT).await
    };
    net.block_on(owner).expect_err("it is killed before");
}

#[test]
fn after_the_death_of_the_owner_operations_return_connection_reset() {
    for transport in TRANSPORTS {
        let net = support::net(support::patient());
        let accessed = async {
            let mut listener = net.listen(LOOPBACK).await?;
            let value = format!("{} {transport}", listener.address());
            let owner = child::start(the_owner_that_is_killed, (OWNED_BY, &value));
            let connection = listener.accept().await?.accept().await?;
            let remote = net.within(LIMIT, connection.shared()).await.expect("it is shared")?;
            assert_eq!(outcomes(&net, &connection, &remote).await, [Ok(()); 3], "over {transport}");
            drop(owner);

            for outcome in outcomes(&net, &connection, &remote).await {
                // This side maps shared memory itself, so it may not have noticed yet.
                let is_unnoticed = outcome.is_ok() && transport.starts_with("posix");
                assert!(
                    is_unnoticed || outcome == Err(Status::CONNECTION_RESET),
                    "over {transport}: {outcome:?}"
                );
            }

            let error = connection.recv().within(LIMIT).await.expect_err("it is dead");
            assert_eq!(error.status, Status::CONNECTION_RESET, "over {transport}");
            let dead = [Err(Status::CONNECTION_RESET); 3];
            assert_eq!(outcomes(&net, &connection, &remote).await, dead, "over {transport}");
            let flushed = connection.flush().await.expect_err("it is dead");
            assert_eq!(flushed.status, Status::CONNECTION_RESET, "over {transport}");
            Ok::<_, uct_net::Error>(())
        };
        net.block_on(accessed).expect("the side that accesses it");
    }
}
