//! Memory of a net: one piece for connections over every transport, and keys to parts of it.

use crate::support::{self, LIMIT, pair, patient, threads, transports};
use uct_core::Error as Status;
use uct_net::local::{Connection, RemoteMemory};
use uct_net::{Block, Blocks, Error};

const LENGTH: usize = 1 << 20;
/// The part that each connection gets a key of its own to.
const PART: usize = 100;
/// Long enough to be read in place where that is possible.
const MESSAGE: usize = 300_000;

/// What is wrong with a key that has ended.
const KEY_ENDED: &str = "the peer has freed the memory or taken back the key";

fn place(number: usize) -> usize {
    (number + 1) * 4096
}

/// What put, get, `fetch_add` and a transfer of this part come to.
async fn outcomes(
    connection: &Connection,
    local: &uct_core::Memory,
    part: &RemoteMemory,
) -> [Result<(), Error>; 4] {
    let block = Blocks::from_iter([Block { local: 0, remote: 0, length: 8 }]);
    let transfer = async { connection.put_blocks(local, part, &block).start()?.await.map(drop) };
    [
        connection.put(local.slice(..8), part, 0).await,
        connection.get(local.slice(..8), part, 0).await,
        connection.fetch_add(part, 0, 1).await.map(drop),
        transfer.await,
    ]
}

/// Each was refused for an argument, with these words.
#[track_caller]
fn all_refused(outcomes: [Result<(), Error>; 4], words: &str) {
    for outcome in outcomes {
        let error = outcome.expect_err(words);
        assert_eq!(error.status, Status::INVALID_PARAM, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn one_piece_of_memory_serves_connections_over_every_transport() {
    let transports = transports();
    let names = transports.clone();
    pair(
        patient(),
        async move |net, mut listener| {
            let memory = net.allocate(LENGTH)?;
            memory.fill(LENGTH - MESSAGE, MESSAGE, 5);
            let mut connections = Vec::new();
            for (number, over) in names.iter().enumerate() {
                let connection = listener.accept().await?.accept().await?;
                connection.share(&memory).await?;
                let part = memory.slice(place(number)..place(number) + PART);
                connection.share(&part).await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"written");
                let mut bytes = [0; PART + 1];
                memory.read(place(number), &mut bytes);
                assert_eq!(bytes[..PART], [number as u8 + 1; PART], "over {over}");
                assert_eq!(bytes[PART], 0, "over {over}");
                assert_eq!(memory.load_u64(0), number as u64 + 1, "over {over}");
                connection.send_slice(memory.slice(LENGTH - MESSAGE..)).await?;
                assert!(!connection.unshare(&memory.slice(..)), "over {over}");
                assert!(connection.unshare(&part), "over {over}");
                assert!(!connection.unshare(&part), "over {over}");
                connection.send(b"ended").await?;
                connections.push(connection);
            }
            for connection in connections {
                let end = connection.recv().within(LIMIT).await.expect_err("the end");
                assert!(end.is_closed_by_peer(), "{end}");
            }
            Ok(())
        },
        async move |net, address| {
            let local = net.allocate(LENGTH)?;
            let mut connections = Vec::new();
            for (number, transport) in transports.iter().enumerate() {
                let connection = net.connect(&*address).require(transport).await?;
                let (whole, part) = (connection.shared().await?, connection.shared().await?);
                assert_eq!((whole.len() >= LENGTH as u64, part.len()), (true, PART as u64));
                local.fill(0, PART, number as u8 + 1);
                connection.put(local.slice(..PART), &part, 0).await?;
                connection.fetch_add(&whole, 0, 1).await?;
                connection.flush().await?;
                connection.get(local.slice(PART..2 * PART), &whole, place(number) as u64).await?;
                assert_eq!(local.to_vec()[PART..2 * PART], [number as u8 + 1; PART], "over {transport}");
                let beyond =
                    connection.put(local.slice(..PART), &part, 1).await.expect_err("one byte too far");
                assert_eq!(beyond.status, Status::OUT_OF_RANGE, "over {transport}");
                let block = Block { local: PART as u64, remote: 2048, length: PART as u64 };
                connection
                    .put_blocks(&local, &whole, &Blocks::from_iter([block]))
                    .start()?
                    .await
                    .expect("a transfer");
                connection.get(local.slice(500..500 + PART), &whole, 2048).await?;
                assert_eq!(local.to_vec()[500..500 + PART], [number as u8 + 1; PART], "over {transport}");
                connection.send(b"written").await?;
                let message = connection.recv().within(LIMIT).await?;
                assert_eq!(
                    (message.len(), message[0], message[MESSAGE - 1]),
                    (MESSAGE, 5, 5),
                    "over {transport}"
                );
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"ended");
                if !transport.starts_with("rc_verbs") {
                    // There, an access that the device refuses ends the connection.
                    let ended = outcomes(&connection, &local, &part).await;
                    all_refused(ended, KEY_ENDED);
                    connection.get(local.slice(..8), &whole, 0).await?;
                }
                connections.push(connection);
            }
            for connection in connections {
                let _ = connection.close().within(LIMIT).await;
            }
            Ok(())
        },
    );
}

#[test]
fn a_word_at_an_address_that_is_not_aligned_is_refused_in_words() {
    let transports = transports();
    let rounds = transports.len();
    pair(
        patient(),
        async move |net, mut listener| {
            let memory = net.allocate(4096)?;
            for _ in 0..rounds {
                let connection = listener.accept().await?.accept().await?;
                connection.share(&memory.slice(4..100)).await?;
                let end = connection.recv().within(LIMIT).await.expect_err("the end");
                assert!(end.is_closed_by_peer(), "{end}");
            }
            Ok(())
        },
        async move |net, address| {
            for transport in transports {
                let connection = net.connect(&*address).require(&*transport).await?;
                let part = connection.shared().await?;
                let refused = connection.fetch_add(&part, 0, 1).await.expect_err("4 is no multiple of 8");
                assert_eq!(refused.status, Status::INVALID_PARAM, "{refused}");
                assert!(refused.reason.contains("4 at offset 0, is not a multiple of 8"), "{refused}");
                assert_eq!(connection.fetch_add(&part, 4, 0).await?, 0);
                connection.close().within(LIMIT).await?;
            }
            Ok(())
        },
    );
}

#[test]
fn memory_of_one_transport_is_refused_by_a_connection_over_another_with_what_to_do() {
    pair(
        patient(),
        async |net, mut listener| {
            let near = listener.accept().await?.accept().await?;
            let far = listener.accept().await?.accept().await?;
            let memory = near.allocate(4096)?;
            for part in [memory.slice(..), memory.slice(8..)] {
                let refused = far.share(&part).await.expect_err("memory of posix over tcp");
                assert_eq!(refused.status, Status::INVALID_PARAM);
                let words = refused.to_string();
                assert!(words.contains("posix/posix alone") && words.contains("Net::allocate"), "{words}");
            }
            near.share(&memory).await?;
            far.share(&net.allocate(4096)?).await?;
            for connection in [near, far] {
                let _ = connection.recv().within(LIMIT).await;
            }
            Ok(())
        },
        async |net, address| {
            let near = net.connect(&*address).require("posix/memory").await?;
            let far = net.connect(&*address).require("tcp/lo").await?;
            let (whole, other) = (near.shared().await?, far.shared().await?);
            let local = near.allocate(64)?;
            near.put(local.slice(..8), &whole, 0).await?;
            let refused = far.put(local.slice(..8), &other, 0).await.expect_err("memory of posix over tcp");
            assert_eq!(refused.status, Status::INVALID_PARAM);
            assert!(refused.to_string().contains("Net::allocate"), "{refused}");
            let received = "was received over posix/posix, and this connection uses tcp/tcp";
            all_refused(outcomes(&far, &net.allocate(64)?, &whole).await, received);
            for connection in [near, far] {
                connection.close().within(LIMIT).await?;
            }
            Ok(())
        },
    );
}

#[test]
fn a_key_to_a_part_ends_with_the_connection_that_it_was_sent_over_and_that_to_the_whole_does_not() {
    for transport in ["posix/memory", "tcp/lo"] {
        let (server, address) =
            support::serve(&support::context(), patient(), support::LOOPBACK, async |net, mut listener| {
                let memory = net.allocate(8192)?;
                let connection = listener.accept().await?.accept().await?;
                connection.share(&memory).await?;
                connection.share(&memory.slice(4096..)).await?;
                connection.recv().within(LIMIT).await?;
                let ended = connection.recv().within(LIMIT).await.expect_err("the end");
                assert!(ended.is_closed_by_peer());
                drop(connection);
                // The peer's keys are of use only as long as it has a connection: another one of the same transport.
                let second = listener.accept().await?.accept().await?;
                second.send(b"dropped").await?;
                second.recv().within(LIMIT).await?;
                drop(memory);
                Ok(())
            });
        let net = support::net(patient());
        let outcome = net.block_on(async {
            let connection = net.connect(&*address).require(transport).await?;
            let (whole, part) = (connection.shared().await?, connection.shared().await?);
            let local = net.allocate(64)?;
            for remote in [&whole, &part] {
                connection.put(local.slice(..8), remote, 0).await?;
            }
            connection.flush().await?;
            connection.send(b"done").await?;
            connection.close().within(LIMIT).await?;
            drop(connection);
            let second = net.connect(&*address).require(transport).await?;
            assert_eq!(&*second.recv().within(LIMIT).await?, b"dropped");
            second.put(local.slice(..8), &whole, 0).await?;
            second.flush().await?;
            all_refused(outcomes(&second, &local, &part).await, KEY_ENDED);
            second.send(b"done").await?;
            second.close().within(LIMIT).await
        });
        outcome.unwrap_or_else(|error: uct_net::Error| panic!("over {transport}: {error}"));
        server.join().expect("the server");
    }
}

#[test]
fn memory_of_a_net_for_any_thread_serves_every_transport_and_its_parts_are_apart() {
    for transport in transports() {
        let (left, here, right, there) = threads::pair(&transport);
        let memory = left.allocate(LENGTH).expect("memory");
        let part = memory.slice(4096..4096 + PART);
        left.block_on(here.share(&memory)).expect("a key");
        left.block_on(here.share(&part)).expect("a key to a part");
        let foreign = right.allocate(64).expect("memory");
        let refused = left.block_on(here.share(&foreign)).expect_err("memory of another net");
        assert!(refused.to_string().contains("another Net"), "{refused}");
        right.block_on(async {
            let (whole, part) = (there.shared().await.unwrap(), there.shared().await.unwrap());
            assert_eq!(part.len(), PART as u64);
            let local = right.allocate(4096).unwrap();
            local.write(0, &[7; PART]);
            there.put(local.slice(..PART), &part, 0).await.unwrap();
            there.flush().await.unwrap();
            there.get(local.slice(1000..1000 + PART), &whole, 4096).await.unwrap();
            assert_eq!(local.to_vec()[1000..1000 + PART], [7; PART], "over {transport}");
            let beyond = there.get(local.slice(..1), &part, PART as u64).await.expect_err("outside");
            assert_eq!(beyond.status, Status::OUT_OF_RANGE, "over {transport}");
            assert!(here.unshare(&memory.slice(4096..4096 + PART)), "over {transport}");
            if !transport.starts_with("rc_verbs") {
                let put = async {
                    there.put(local.slice(..8), &part, 0).await?;
                    there.flush().await
                };
                let ended = put.await.expect_err("the key has ended");
                assert_eq!(ended.status, Status::INVALID_PARAM, "over {transport}");
            }
        });
        let mut bytes = [0; PART + 2];
        memory.read(4095, &mut bytes);
        assert_eq!((bytes[0], bytes[1], bytes[PART], bytes[PART + 1]), (0, 7, 7, 0), "over {transport}");
    }
}
