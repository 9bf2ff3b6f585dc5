//! Metrics over HTTP, by the key `prometheus` of a context.

#![cfg(feature = "prometheus")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use uct_core::configuration::Sources;
use uct_core::{AmId, Context, Worker};

const ID: AmId = AmId::new(3).expect("an id");
const LIMIT: Duration = Duration::from_secs(60);

fn context(address: &str) -> Context {
    let sources = Sources::default().set("prometheus", address).set("modules", "self");
    Context::builder().sources(sources).build().expect("a context")
}

/// The body of the response to a request for metrics.
fn read(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    body.to_owned()
}

/// The samples by name and labels. Fails if the text breaks a rule of its format.
fn samples(text: &str) -> BTreeMap<String, String> {
    let (mut samples, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut kind = ("", "");
    assert!(text.ends_with('\n'), "the last line ends");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help");
            assert!(seen.insert(name) && !help.is_empty() && !help.contains('\\'), "{line}");
            let of = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("the type of a help");
            kind = of.split_once(' ').expect("a type");
            assert_eq!(kind.0, name);
            assert_eq!(kind.1 == "counter", name.ends_with("_total"), "{of}");
            assert!(["counter", "gauge", "untyped"].contains(&kind.1), "{of}");
            continue;
        }
        let (key, value) = line.rsplit_once(' ').expect("a value");
        assert_eq!(key.split('{').next(), Some(kind.0), "all samples of a metric are together");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert_eq!(samples.insert(key.to_owned(), value.to_owned()), None, "{key} is there twice");
    }
    samples
}

#[test]
fn the_metrics_of_an_interface_are_those_of_its_operations() {
    let (stop, stopped) = channel::<()>();
    let (ready, is_ready) = channel();
    let run = move || {
        let context = context("127.0.0.1:0");
        let worker = Worker::new(&context).expect("a worker");
        let gone = worker.open("self", "memory").expect("an interface");
        let iface = worker.open("self", "memory").expect("an interface");
        drop(gone);
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let address = iface.address().expect("an address");
        let connect = || iface.connect(&address).expect("an endpoint");
        let (ep, closed) = (connect(), connect());
        (0..5).for_each(|_| ep.am_short(ID, 0, b"12345678").expect("it is sent"));
        (0..2).for_each(|_| closed.am_short(ID, 0, b"").expect("it is sent"));
        drop(closed);
        assert_eq!(received.get(), 7);
        ready.send(context.prometheus_address()).expect("the test waits");
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            worker.wait(Duration::from_millis(50)).expect("it sleeps");
            worker.progress();
        }
    };
    let thread = Builder::new().name("a \"b\" \\".to_owned()).spawn(run).expect("a thread");
    let address = is_ready.recv_timeout(LIMIT).expect("it gets ready").expect("it is bound");
    assert!(address.ip().is_loopback() && address.port() != 0);

    let text = read(address);
    let samples = samples(&text);
    let of = |name: &str| {
        let iface = "worker=\"1\",interface=\"2\",transport=\"self\",device=\"memory\"";
        let key = match name.split_once('|') {
            Some((name, label)) => format!("uct_interface_{name}{{{iface},{label}}}"),
            None => format!("uct_interface_{name}{{{iface}}}"),
        };
        samples.get(&key).unwrap_or_else(|| panic!("{key} in {text}")).as_str()
    };
    let (bytes, counted) = ((5 * 16 + 2 * 8).to_string(), "7");
    for (name, expected) in [
        ("endpoints", "1"),
        ("endpoints_closed_total", "1"),
        ("endpoints_failed_total", "0"),
        ("pending_requests", "0"),
        ("no_resource_total", "0"),
        ("operations_total|kind=\"am_short\"", counted),
        ("operation_bytes_total|kind=\"am_short\"", &bytes),
        ("operations_total|kind=\"put\"", "0"),
        ("received_messages_total", counted),
        ("received_bytes_total", &bytes),
    ] {
        assert_eq!(of(name), expected, "{name}");
    }
    assert!(!text.contains("interface=\"1\""), "a closed interface is not shown: {text}");
    let worker = samples.keys().find(|key| key.starts_with("uct_worker_info{")).expect("the worker");
    assert!(worker.ends_with(r#",thread_name="a \"b\" \\"}"#), "{worker}");
    assert_eq!(samples["uct_worker_responsive{worker=\"1\"}"], "1");
    let pid = format!("pid=\"{}\"", std::process::id());
    assert!(samples.keys().any(|key| key.starts_with("uct_process_info{") && key.contains(&pid)), "{text}");
    drop(stop);
    thread.join().expect("no panic");
    assert!(TcpStream::connect(address).is_err(), "it listens after its context has gone");
}

/// Collects warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.push_str(&format!("{value:?}"));
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = String::new();
        event.record(&mut Words(&mut words));
        self.0.lock().expect("no panic").push(words);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn an_address_in_use_is_one_warning_and_the_context_is_made() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("its address").to_string();
    let warnings = Warnings::default();
    let made = tracing::subscriber::with_default(warnings.clone(), || context(&address));
    assert_eq!(made.prometheus_address(), None);
    let warnings = warnings.0.lock().expect("no panic");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("key prometheus") && warning.contains(&address) && warning.contains("in use"),
        "{warning}"
    );
}

#[test]
fn what_is_no_address_is_refused_with_an_example() {
    for wrong in ["localhost:9464", "127.0.0.1", ":9464", "127.0.0.1:65536", "::1:9464 "] {
        let sources = Sources::default().set("prometheus", wrong).set("modules", "self");
        let error = Context::builder().sources(sources).build().expect_err(wrong).to_string();
        assert!(error.contains("prometheus") && error.contains("127.0.0.1:9464"), "{error}");
    }
}
