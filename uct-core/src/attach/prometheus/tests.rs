//! A server whose workers are those of the tests, and clients that behave, are slow, or send what they like.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::http::{MOST_HEAD, Request};
use super::server::MOST_CLIENTS;
use super::text::{MOST_BYTES, render};
use super::{Server, http};
use crate::attach::reply::{
    IfaceReport, LatencyReport, Sent, Snapshot, TransportCounter, WorkerReport, WorkerState,
};
use crate::property;

/// Of every wait for something that happens.
const LIMIT: Duration = Duration::from_secs(60);
const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn server() -> Server {
    Server::start(loopback()).expect("it starts")
}

fn connect(server: &Server) -> TcpStream {
    let client = TcpStream::connect(server.address()).expect("it listens");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    client
}

/// A client that has sent this.
fn client(server: &Server, request: &str) -> TcpStream {
    let mut client = connect(server);
    client.write_all(request.as_bytes()).expect("it is sent");
    client
}

/// All that the server sends to a client until it closes.
fn rest(mut client: TcpStream) -> String {
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response and its end");
    response
}

fn response_to(server: &Server, request: &str) -> String {
    rest(client(server, request))
}

/// Whether the server has neither sent anything nor closed the connection.
fn is_kept(client: &mut TcpStream) -> bool {
    client.set_nonblocking(true).expect("its mode");
    let kind = client.read(&mut [0; 16]).map_err(|error| error.kind());
    client.set_nonblocking(false).expect("its mode");
    kind == Err(ErrorKind::WouldBlock)
}

fn is_metrics(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("\nuct_process_info{")
}

fn iface(transport: &str, counters: Vec<TransportCounter>) -> IfaceReport {
    IfaceReport {
        number: 3,
        transport: transport.to_owned(),
        device: "lo".to_owned(),
        memory_domain: "md".to_owned(),
        is_driven: true,
        endpoints: 1,
        closed: 2,
        failed: 3,
        pending_requests: 4,
        no_resource: 5,
        sent: vec![Sent { kind: "put".to_owned(), operations: 6, bytes: 7 }],
        received: 8,
        received_bytes: 9,
        counters,
        latencies: Vec::new(),
    }
}

fn report(interfaces: Vec<IfaceReport>) -> WorkerReport {
    WorkerReport { delay_ns: 1_000_000_020, callbacks: 1, async_handlers: 0, closing: 0, interfaces }
}

fn counter(name: impl Into<String>, value: u64) -> TransportCounter {
    TransportCounter { name: name.into(), value }
}

fn snapshot(thread_name: &str, report: Option<WorkerReport>) -> Snapshot {
    let worker = WorkerState { number: 1, thread: 7, thread_name: thread_name.to_owned(), report };
    Snapshot { schema: 1, pid: 5, program: "test".into(), version: "0".into(), workers: vec![worker] }
}

#[test]
fn quotes_backslashes_and_line_feeds_of_labels_are_escaped() {
    let counters = vec![counter("a\"b", 1), counter("é\t", 2)];
    let text =
        render(&snapshot("a \"b\" \\c\nd", Some(report(vec![iface("t\\", counters)])))).expect("it fits");
    let lines: Vec<&str> = text.lines().collect();
    for expected in [
        r#"uct_worker_info{worker="1",thread="7",thread_name="a \"b\" \\c\nd"} 1"#,
        r#"uct_interface_transport_counter{worker="1",interface="3",transport="t\\",device="lo",counter="a\"b"} 1"#,
        "uct_interface_transport_counter{worker=\"1\",interface=\"3\",transport=\"t\\\\\",device=\"lo\",counter=\"é\t\"} 2",
        r#"uct_worker_delay_seconds{worker="1"} 1.000000020"#,
    ] {
        assert!(lines.contains(&expected), "{expected} in {text}");
    }
}

#[test]
fn a_worker_without_progress_has_no_samples_but_that() {
    let text = render(&snapshot("", None)).expect("it fits");
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        r#"uct_process_info{pid="5",program="test",version="0"} 1"#,
        r#"uct_worker_info{worker="1",thread="7",thread_name=""} 1"#,
        r#"uct_worker_responsive{worker="1"} 0"#,
    ];
    assert_eq!(samples, expected);
}

#[test]
fn a_counter_that_a_transport_has_twice_is_one_sample() {
    let counters = vec![counter("a", 1), counter("b", 2), counter("a", 3)];
    let text = render(&snapshot("", Some(report(vec![iface("t", counters)])))).expect("it fits");
    let values = text.lines().filter(|line| line.starts_with("uct_interface_transport_counter{"));
    assert_eq!(values.map(|line| &line[line.len() - 1..]).collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn the_times_of_operations_are_a_summary_in_seconds_that_only_processes_with_histograms_have() {
    let name = "uct_interface_operation_duration_seconds";
    let mut iface = iface("t", Vec::new());
    let text = render(&snapshot("", Some(report(vec![iface.clone()])))).expect("it fits");
    assert!(!text.contains(name), "{text}");
    iface.latencies = vec![LatencyReport {
        kind: "get".to_owned(),
        operations: 4,
        p50_ns: 1_000,
        p90_ns: 2_000,
        p99_ns: 3_000,
        p999_ns: 2_000_000_000,
        max_ns: 5,
        mean_ns: 500,
    }];
    let text = render(&snapshot("", Some(report(vec![iface])))).expect("it fits");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(name)).skip(1).collect();
    let labels = r#"worker="1",interface="3",transport="t",device="lo",kind="get""#;
    let expected = [
        format!("# TYPE {name} summary"),
        format!(r#"{name}{{{labels},quantile="0.5"}} 0.000001000"#),
        format!(r#"{name}{{{labels},quantile="0.9"}} 0.000002000"#),
        format!(r#"{name}{{{labels},quantile="0.99"}} 0.000003000"#),
        format!(r#"{name}{{{labels},quantile="0.999"}} 2.000000000"#),
        format!("{name}_sum{{{labels}}} 0.000002000"),
        format!("{name}_count{{{labels}}} 4"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn other_paths_and_methods_and_what_is_no_http_are_refused_with_the_reason() {
    let server = server();
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
    let long = format!("GET /metrics HTTP/1.1\r\nlong: {}", "a".repeat(2 * MOST_HEAD));
    for (request, status, words) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found", "/metrics"),
        ("GET /metrics/x HTTP/1.1\r\n\r\n", "404 Not Found", "/metrics"),
        ("POST /other HTTP/1.1\r\n\r\n", "404 Not Found", "/metrics"),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405 Method Not Allowed",
            "\r\nAllow: GET\r\n",
        ),
        ("\u{16}\u{3}\u{1}", "400 Bad Request", "not an HTTP/1.1 request"),
        ("GET /metrics HTTP/2.0\r\n\r\n", "400 Bad Request", "version"),
        (&many, "431 Request Header Fields Too Large", "64 headers"),
        (&long, "431 Request Header Fields Too Large", "8192 bytes"),
    ] {
        let response = response_to(&server, request);
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}\r\n")) && response.contains(words),
            "{request:.40}: {response}"
        );
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{response}");
    }
    let head = response_to(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.ends_with("\r\n\r\n"), "{head}");
    for accepted in [GET, "GET /metrics HTTP/1.0\n\n", "GET /metrics?a=b HTTP/1.1\r\n\r\n"] {
        assert!(is_metrics(&response_to(&server, accepted)), "{accepted}");
    }
}

#[test]
fn silent_and_slow_clients_do_not_delay_another_and_are_dropped() {
    let server = server();
    let (mut silent, mut slow) = (connect(&server), client(&server, "GET /met"));
    assert!(is_metrics(&response_to(&server, GET)));
    slow.write_all(b"rics HT").expect("it is sent");
    assert!(is_metrics(&response_to(&server, GET)));
    assert!(is_kept(&mut silent) && is_kept(&mut slow), "others are served only after they were dropped");
    // Bytes that arrive do not prolong the time for the request.
    let trickle = std::thread::spawn(move || {
        let until = Instant::now() + LIMIT;
        while slow.write_all(b"T").is_ok() {
            assert!(Instant::now() < until, "a client that sends a byte now and then is kept");
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    assert_eq!(rest(silent), "", "a silent client is dropped without a response");
    trickle.join().expect("it is dropped");
}

#[test]
fn a_client_that_does_not_read_delays_nobody_and_is_dropped() {
    let server = server();
    let name = "n".repeat(1 << 20);
    let worker = server.workers().register(move |reply| {
        let counters = (0..6).map(|number| counter(format!("{name}{number}"), number)).collect();
        reply.send(report(vec![iface("t", counters)])).is_ok()
    });
    // The sender's and the receiver's buffers do not take the rest.
    let mut deaf: Vec<TcpStream> = (0..2).map(|_| client(&server, GET)).collect();
    let whole = response_to(&server, GET);
    assert!(is_metrics(&whole) && whole.len() > 6 << 20);
    let deadline = Instant::now() + LIMIT;
    for client in &mut deaf {
        // Once the server has closed it, writing fails.
        while client.write_all(b"x").is_ok() {
            assert!(Instant::now() < deadline, "a client that does not read is kept");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    drop(worker);
}

#[test]
fn two_clients_at_once_are_both_served() {
    let server = server();
    let (first, second) = GET.split_at(10);
    let (mut one, mut two) = (client(&server, first), client(&server, first));
    two.write_all(second.as_bytes()).expect("it is sent");
    assert!(is_metrics(&rest(two)));
    one.write_all(second.as_bytes()).expect("it is sent");
    assert!(is_metrics(&rest(one)));
}

#[test]
fn requests_that_come_while_workers_are_asked_get_one_response() {
    let server = server();
    let ((requests, asked), (open, gate)) = (channel(), channel());
    let worker = server.workers().register(move |reply| {
        requests.send(()).expect("the test counts");
        gate.recv_timeout(LIMIT).expect("the test goes on");
        reply.send(report(Vec::new())).is_ok()
    });
    let first = client(&server, GET);
    asked.recv_timeout(LIMIT).expect("the worker is asked");
    // The server waits at the gate.
    let others: Vec<TcpStream> = (0..4).map(|_| client(&server, GET)).collect();
    (0..5).for_each(|_| open.send(()).expect("the server waits"));
    for client in others.into_iter().chain([first]) {
        let response = rest(client);
        assert!(
            is_metrics(&response) && response.contains("uct_worker_responsive{worker=\"1\"} 1\n"),
            "{response}"
        );
    }
    assert_eq!(asked.try_iter().count(), 1, "the worker is asked for each client");
    drop(worker);
}

#[test]
fn beyond_the_limit_a_client_takes_the_place_of_the_oldest_silent_one() {
    let server = server();
    let mut silent: Vec<TcpStream> = (0..MOST_CLIENTS).map(|_| connect(&server)).collect();
    assert!(is_metrics(&response_to(&server, GET)));
    assert!(silent[1..].iter_mut().all(is_kept), "more than one had to go");
    assert_eq!(rest(silent.remove(0)), "");
}

#[test]
fn metrics_beyond_the_limit_are_an_error_of_the_server() {
    let server = server();
    let name = "n".repeat(MOST_BYTES);
    let _worker = server
        .workers()
        .register(move |reply| reply.send(report(vec![iface("t", vec![counter(name.clone(), 1)])])).is_ok());
    let response = response_to(&server, GET);
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("8388608 bytes"), "{response:.300}");
}

#[test]
fn an_address_in_use_is_an_error_with_address_and_reason() {
    let other = TcpListener::bind(loopback()).expect("a port");
    let address = other.local_addr().expect("its address");
    let error = Server::start(address).err().expect("it is in use").to_string();
    assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
}

#[test]
fn a_server_that_is_dropped_stops_listening_at_once() {
    let server = server();
    let address = server.address();
    let waiting = connect(&server);
    drop(server);
    assert_eq!(
        TcpStream::connect(address).map_err(|error| error.kind()).err(),
        Some(ErrorKind::ConnectionRefused)
    );
    let again = Server::start(address).expect("the address is free");
    assert!(is_metrics(&response_to(&again, GET)));
    let mut waiting = waiting;
    // Closed, or reset where it was not accepted yet.
    assert!(matches!(waiting.read(&mut [0; 16]), Ok(0) | Err(_)));
}

#[test]
fn contexts_of_a_process_share_the_server_of_an_address() {
    let address = TcpListener::bind(loopback()).and_then(|it| it.local_addr()).expect("a port");
    let one = Server::shared(address).expect("it starts");
    let two = Server::shared(address).expect("it is there");
    drop(one);
    assert!(is_metrics(&response_to(&two, GET)));
    drop(two);
    let again = Server::shared(address).expect("it starts again");
    assert!(is_metrics(&response_to(&again, GET)));
}

/// What the parser makes of these bytes: 0 incomplete, 1 metrics, 2 refused.
fn verdict(bytes: &[u8]) -> u8 {
    match Request::parse(bytes) {
        Request::Incomplete => 0,
        Request::Metrics => 1,
        Request::Refused(_) => 2,
    }
}

proptest! {
    #![proptest_config(property::config())]

    #[test]
    fn no_request_makes_the_parser_panic_or_wait_for_ever(
        bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..GET.len() + 1, fill in any::<u8>()
    ) {
        let mut head = [&GET.as_bytes()[..at], &bytes].concat();
        verdict(&head);
        head.resize(MOST_HEAD, fill);
        prop_assert_ne!(verdict(&head), 0);
        let mut alone = bytes.clone();
        verdict(&alone);
        alone.resize(MOST_HEAD, fill);
        prop_assert_ne!(verdict(&alone), 0);
    }
}

#[test]
fn a_response_has_its_length_and_type() {
    let response = String::from_utf8(http::metrics("a 1\n").to_vec()).expect("text");
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 4\r\n\
                    Connection: close\r\n\r\na 1\n";
    assert_eq!(response, expected);
}
