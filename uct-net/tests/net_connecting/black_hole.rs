//! A network that loses every reply from some moment on: each stage ends at its own limit, and not when the system gives up. With
//! `--nocapture` it prints by how much each attempt was late. `UCT_TEST_HOSTILE` makes 20 attempts for each stage.

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::support::namespaces::{ABSENT, Cable, DEVICE, FAR, lose_packets};
use crate::support::raw::Raw;
use crate::support::{LIMIT, namespaces, patient, raw, skip, with};
use uct_net::local::Net;
use uct_net::{Error, NetOptions};

/// The limit of the stage that is tried; all others have [`LIMIT`].
const STAGE_LIMIT: Duration = Duration::from_millis(250);
/// The system gives up later than this, at each stage.
const SYSTEM: Duration = Duration::from_secs(20);

/// What is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    Call,
    Handshake,
    Lane,
    Close,
}

impl Unanswered {
    /// Options in which the stage has its limit.
    fn options(self) -> NetOptions {
        let mut options = patient();
        match self {
            Unanswered::Call => options.connect_timeout = STAGE_LIMIT,
            Unanswered::Handshake => options.handshake_timeout = STAGE_LIMIT,
            Unanswered::Lane => options.lane_timeout = STAGE_LIMIT,
            Unanswered::Close => {}
        }
        options
    }

    /// A part of the error.
    fn words(self) -> &'static str {
        match self {
            Unanswered::Call => "not connected within 250ms",
            Unanswered::Handshake => "the peer did not take the connection within 250ms (handshake_timeout)",
            Unanswered::Lane => "no message came over the lane within 250ms (lane_timeout)",
            Unanswered::Close => "250ms",
        }
    }
}

/// What the far end reports: its address, and when it had what the stage sends.
struct Reports {
    address: Sender<String>,
    begun: Sender<Instant>,
}

/// Loses packets from now on.
fn begin(reports: &Reports) {
    let begun = Instant::now();
    lose_packets(true);
    reports.begun.send(begun).expect("the near end waits");
}

fn net(options: NetOptions) -> Net {
    let context = with(&[("tls", "tcp"), ("net_devices", DEVICE), ("tcp.linger_timeout", "10ms")]);
    Net::new(&context, options).expect("a net")
}

/// The listener at the far end, until `ended`.
fn listen(unanswered: Unanswered, reports: &Reports, ended: &Receiver<()>) {
    let raw_caller = || {
        let socket = TcpListener::bind((FAR, 0)).expect("a port");
        reports.address.send(socket.local_addr().expect("an address").to_string()).expect("it is awaited");
        socket.accept().expect("a caller").0
    };
    match unanswered {
        Unanswered::Call => {
            reports.address.send(format!("{ABSENT}:7000")).expect("it is awaited");
            reports.begun.send(Instant::now()).expect("it is awaited");
            let _ = ended.recv_timeout(LIMIT);
        }
        Unanswered::Handshake => {
            let _caller = raw_caller();
            begin(reports);
            let _ = ended.recv_timeout(LIMIT);
        }
        Unanswered::Lane => {
            let raw = Raw::new();
            let mut caller = raw_caller();
            assert_eq!(raw.welcome(&mut caller), raw::TAKEOVER);
            begin(reports);
            let _ = ended.recv_timeout(LIMIT);
        }
        Unanswered::Close => {
            let net = net(patient());
            net.block_on(async {
                let mut listener = net.listen(format!("{FAR}:0")).await.expect("a listener");
                reports.address.send(listener.address()).expect("it is awaited");
                let incoming = listener.accept().await.expect("a caller");
                let connection = incoming.accept().await.expect("a connection");
                assert_eq!(&*connection.recv().within(LIMIT).await.expect("a message"), b"begin");
                begin(reports);
                while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    net.sleep(Duration::from_millis(1)).await;
                }
            });
        }
    }
    lose_packets(false);
}

/// One attempt at the near end: its error, and when it ended after its begin.
fn attempt(unanswered: Unanswered, address: &str, begun: &Receiver<Instant>) -> (Error, Duration) {
    let net = net(unanswered.options());
    let called = Instant::now();
    let begin = || begun.recv_timeout(LIMIT).expect("the far end is there");
    match unanswered {
        Unanswered::Call => {
            let error = net.block_on(net.connect(address)).expect_err("no such machine");
            (error, called.elapsed())
        }
        Unanswered::Handshake | Unanswered::Lane => {
            let error = net.block_on(net.connect(address)).expect_err("no answer");
            let ended = Instant::now();
            // When the far end had what this stage sends: this side waits from about then on.
            (error, ended.saturating_duration_since(begin()))
        }
        Unanswered::Close => {
            let connection = net.block_on(net.connect(address)).expect("a connection");
            net.block_on(connection.send(b"begin")).expect("sent");
            begin();
            let called = Instant::now();
            let error = net.block_on(connection.close().within(STAGE_LIMIT)).expect_err("no answer");
            let elapsed = called.elapsed();
            connection.abort("over");
            (error, elapsed)
        }
    }
}

/// Long packets are dropped where they arrive, short ones are not.
#[test]
fn a_smaller_mtu_at_the_far_end_is_named_when_the_system_gives_up() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let cable = Cable::new();
    let ((address_to, address), (begun_to, begun)) = (channel(), channel());
    let (end, ended) = channel::<()>();
    let far = cable.far(move || {
        let net = net(patient());
        net.block_on(async {
            let mut listener = net.listen(format!("{FAR}:0")).await.expect("a listener");
            address_to.send(listener.address()).expect("it is awaited");
            let connection = listener.accept().await.expect("a caller").accept().await.expect("a connection");
            assert_eq!(&*connection.recv().within(LIMIT).await.expect("a short one"), b"short");
            namespaces::set_mtu(600);
            begun_to.send(()).expect("it is awaited");
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                net.sleep(Duration::from_millis(1)).await;
            }
        });
    });
    let near = cable.near(move || {
        let context = with(&[("tls", "tcp"), ("net_devices", DEVICE), ("tcp.user_timeout", "1s")]);
        let net = Net::new(&context, patient()).expect("a net");
        net.block_on(async {
            let address = address.recv_timeout(LIMIT).expect("the far end listens");
            let connection = net.connect(address).await.expect("short packets arrive");
            connection.send(b"short").await.expect("sent");
            begun.recv_timeout(LIMIT).expect("the far end is there");
            // One packet: several would be one for the far end's device.
            connection.send(&[1; 1200]).await.expect("the system has it");
            let error = net.within(LIMIT, connection.closed()).await.expect("the system gives up");
            end.send(()).expect("the far end waits");
            error
        })
    });
    let error = near.join().expect("the near end");
    far.join().expect("the far end");
    assert!(error.is_timeout() && error.to_string().contains("the MTU of a link on the way"), "{error}");
}

#[test]
fn each_stage_ends_at_its_limit_while_the_network_loses_every_reply() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let rounds = if std::env::var_os("UCT_TEST_HOSTILE").is_some() { 20 } else { 1 };
    let cable = Cable::new();
    for unanswered in [Unanswered::Call, Unanswered::Handshake, Unanswered::Lane, Unanswered::Close] {
        let mut ends = Vec::new();
        for _ in 0..rounds {
            let ((address_to, address), (begun_to, begun)) = (channel(), channel());
            let (end, ended) = channel();
            let reports = Reports { address: address_to, begun: begun_to };
            let far = cable.far(move || listen(unanswered, &reports, &ended));
            let near = cable.near(move || {
                let address = address.recv_timeout(LIMIT).expect("the far end listens");
                let attempted = attempt(unanswered, &address, &begun);
                end.send(()).expect("the far end waits");
                attempted
            });
            let (error, elapsed) = near.join().expect("the near end");
            far.join().expect("the far end");
            assert!(error.is_timeout() && error.to_string().contains(unanswered.words()), "{error}");
            assert!(elapsed < SYSTEM, "{unanswered:?}: {elapsed:?}");
            ends.push(elapsed);
        }
        ends.sort();
        let (first, median, last) = (ends[0], ends[ends.len() / 2], ends[ends.len() - 1]);
        println!(
            "{unanswered:?}: limit {STAGE_LIMIT:?}; ended after {first:.1?} to {last:.1?}, median {median:.1?}, {rounds} attempts"
        );
    }
}
