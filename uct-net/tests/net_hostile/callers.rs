//! Callers of a listener that send anything at any time: the listener lives, and honest callers are served meanwhile. So are other tasks while
//! one reads what such a caller sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{self, LIMIT, pair, seed};
use uct_net::NetOptions;

/// A small generator of its own, so that a seed repeats a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// How many honest callers there are among them.
const HONEST: usize = 20;

fn options() -> NetOptions {
    NetOptions { handshake_timeout: Duration::from_millis(300), max_half_open: 16, ..support::patient() }
}

/// A header of the protocol with anything behind it.
fn frame(random: &mut Random) -> Vec<u8> {
    let length = random.below(400);
    let announced = if random.below(3) == 0 { random.next() as u32 } else { length as u32 };
    let mut bytes = b"UCTN".to_vec();
    bytes.extend_from_slice(&[6, random.below(14) as u8, 0, 0]);
    bytes.extend_from_slice(&announced.to_le_bytes());
    bytes.extend((0..length).map(|_| random.next() as u8));
    bytes
}

#[test]
fn callers_that_send_random_bytes_do_not_keep_honest_ones_away() {
    let seed = seed::printed() | 1;
    let rounds = if std::env::var_os("UCT_TEST_HOSTILE").is_some() { 20_000 } else { 400 };
    pair(
        options(),
        async |_net, mut listener| {
            for _ in 0..HONEST {
                let connection = listener.accept().await?.accept().await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"honest");
            }
            Ok(())
        },
        async move |net, address| {
            let mut random = Random(seed);
            let mut open = Vec::new();
            for round in 0..rounds {
                let mut attacker = TcpStream::connect(&address).expect("the listener lives");
                let words = match random.below(4) {
                    0 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
                    1 => (0..random.below(2000)).map(|_| random.next() as u8).collect(),
                    2 => frame(&mut random),
                    _ => Vec::new(),
                };
                let _ = attacker.write_all(&words);
                if random.below(2) == 0 {
                    open.push(attacker);
                }
                if open.len() > 100 {
                    open.swap_remove(random.below(100));
                }
                if round % (rounds / HONEST) == rounds / HONEST - 1 {
                    let connection = net.connect(&address).within(LIMIT).await?;
                    connection.send(b"honest").await?;
                    connection.close().within(LIMIT).await?;
                }
            }
            Ok(())
        },
    );
}

#[test]
fn messages_without_bytes_keep_no_task_in_one_poll_of_a_stream() {
    const COUNT: usize = 1000;
    pair(
        support::patient(),
        async |net, mut listener| {
            let connection = listener.accept().await?.accept().await?;
            // All messages come ahead of it.
            net.within(LIMIT, connection.shared()).await.expect("it comes")?;
            let (mut stream, mut byte, mut polls) = (connection.into_stream(), [0], 0);
            let read = std::future::poll_fn(|context| {
                polls += 1;
                stream.poll_read(context, &mut byte)
            });
            assert_eq!(net.within(LIMIT, read).await.expect("a byte comes")?, 1);
            assert_eq!(&byte, b"x");
            assert!(polls > COUNT / 100, "{COUNT} messages in {polls} polls");
            Ok(())
        },
        async |net, address| {
            let connection = net.connect(address).await?;
            for _ in 0..COUNT {
                connection.send(b"").await?;
            }
            connection.send(b"x").await?;
            let memory = connection.allocate(64)?;
            connection.share(&memory).await?;
            net.within(LIMIT, connection.closed()).await.expect("the end");
            Ok(())
        },
    );
}

#[test]
fn a_silent_caller_is_disconnected() {
    pair(
        options(),
        async |_net, mut listener| listener.accept().await?.accept().await.map(|_| ()),
        async |net, address| {
            let begun = Instant::now();
            let mut silent = TcpStream::connect(&address).expect("the listener lives");
            silent.set_read_timeout(Some(LIMIT)).expect("a limit");
            let mut told = Vec::new();
            let _ = silent.read_to_end(&mut told).expect("hung up on, not left");
            assert!(begun.elapsed() >= options().handshake_timeout);
            let told = String::from_utf8_lossy(&told);
            assert!(told.contains("send its first frame within 300ms (handshake_timeout)"), "{told}");
            net.connect(&address).within(LIMIT).await.map(|_| ())
        },
    );
}

/// A Hello without private data and with no interface.
fn empty_hello() -> Vec<u8> {
    let mut bytes = b"UCTN\x06\x01\0\0".to_vec();
    let body = [&b"\x01\x80\0\0\0\0\x02\x80"[..], &7_u32.to_le_bytes(), b"UCTA\x01\0\0"].concat();
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

#[test]
fn a_caller_that_leaves_in_the_middle_is_an_error_of_that_caller_alone() {
    pair(
        options(),
        async |_net, mut listener| {
            let incoming = listener.accept().await?;
            let error = incoming.accept().await.expect_err("the caller is gone");
            assert!(error.to_string().contains("hung up") || error.to_string().contains("gone"), "{error}");
            listener.accept().await?.accept().await.map(|_| ())
        },
        async |net, address| {
            let mut caller = TcpStream::connect(&address).expect("the listener lives");
            caller.write_all(&empty_hello()).expect("sent");
            drop(caller);
            net.connect(&address).within(LIMIT).await.map(|_| ())
        },
    );
}

#[test]
fn a_caller_that_has_reset_its_connection_is_of_its_source_still() {
    let options = NetOptions { max_connections_per_source: 1, ..support::patient() };
    let net = support::net(options);
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await?;
        let address = listener.address();
        let (opened, ends) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let to_end = ends.0;
        let holder = std::thread::spawn(move || {
            let net = support::net(support::patient());
            net.block_on(async {
                let connection = net.connect(&address).await?;
                let mut second = TcpStream::connect(&address).expect("the listener lives");
                second.write_all(&empty_hello()).expect("sent");
                opened.0.send(second).expect("the listener waits");
                let _ = ends.1.recv_timeout(LIMIT);
                drop(connection);
                Ok::<_, uct_net::Error>(())
            })
        });
        let held = listener.accept().await?.accept().await?;
        let incoming = listener.accept().await?;
        let second = socket2::Socket::from(opened.1.recv_timeout(LIMIT).expect("a caller"));
        second.set_linger(Some(Duration::ZERO)).expect("set");
        drop(second);
        let error = incoming.accept().await.expect_err("the caller is gone");
        drop((to_end, held));
        holder.join().expect("the holder's thread")?;
        assert!(error.to_string().contains("max_connections_per_source"), "{error}");
        Ok::<_, uct_net::Error>(())
    })
    .expect("the listener goes on");
}
