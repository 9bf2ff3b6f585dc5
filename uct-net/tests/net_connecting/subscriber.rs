//! A subscriber of `tracing` that uses the nets whose lines and spans it gets, for the flavour for any thread. It is global: a net's own thread logs too.

use std::cell::Cell;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::alone::is_alone;
use crate::support::raw::Raw;
use crate::support::spans::Spans;
use crate::support::{self, LIMIT, raw};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use uct_net::Net;

/// Uses the nets whenever it gets something.
#[derive(Clone, Default)]
struct Meddler {
    nets: Arc<Mutex<Vec<Net>>>,
    events: Arc<AtomicUsize>,
    in_a_connection: Arc<AtomicUsize>,
}

thread_local! {
    /// This thread is using them.
    static MEDDLES: Cell<bool> = const { Cell::new(false) };
}

impl Meddler {
    fn meddle(&self) {
        if MEDDLES.replace(true) {
            return;
        }
        let nets = self.nets.lock().expect("no panic").clone();
        for net in &nets {
            let mut sleep = pin!(net.sleep(Duration::ZERO));
            let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        drop(nets);
        MEDDLES.set(false);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Meddler {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: LayerContext<'_, S>) {
        self.meddle();
    }

    fn on_record(&self, _: &Id, _: &Record<'_>, _: LayerContext<'_, S>) {
        self.meddle();
    }

    fn on_event(&self, event: &Event<'_>, context: LayerContext<'_, S>) {
        self.meddle();
        if event.metadata().target().starts_with("uct_") {
            self.events.fetch_add(1, Ordering::SeqCst);
            let mut scope = context.event_scope(event).into_iter().flatten();
            if scope.any(|span| span.name() == "connection") {
                self.in_a_connection.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    fn on_enter(&self, _: &Id, _: LayerContext<'_, S>) {
        self.meddle();
    }

    fn on_exit(&self, _: &Id, _: LayerContext<'_, S>) {
        self.meddle();
    }

    fn on_close(&self, _: Id, _: LayerContext<'_, S>) {
        self.meddle();
    }
}

/// Two connected nets, and what goes wrong at a listener: each logs.
fn talk(nets: &Mutex<Vec<Net>>) -> uct_net::Result {
    let net = || Net::new(&support::context(), support::patient()).expect("a net");
    let (left, right) = (net(), net());
    nets.lock().expect("no panic").extend([left.clone(), right.clone()]);
    let mut listener = left.block_on(left.listen("127.0.0.1:0"))?;
    let address = listener.address().to_owned();
    let accepting = thread::spawn({
        let left = left.clone();
        move || left.block_on(async { listener.accept().await?.accept().await })
    });
    let mut other = TcpStream::connect(&address).expect("it listens");
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let there = right.block_on(right.connect(&address).require("tcp/lo").into_future())?;
    let here = accepting.join().expect("no panic")?;
    // By the nets' own threads as well.
    for _ in 0..10 {
        right.block_on(there.send(b"seen"))?;
        assert_eq!(&*left.block_on(here.recv().within(LIMIT))?, b"seen");
    }
    right.block_on(there.close().within(LIMIT))?;
    assert!(left.block_on(here.recv().within(LIMIT)).expect_err("the end").is_closed_by_peer());
    // A listener that opens no lane: each attempt is a warning of that connection.
    let refusing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = refusing.local_addr().expect("an address");
    let refuses = thread::spawn(move || {
        let raw = Raw::new();
        let mut caller = refusing.accept().expect("a caller").0;
        let mut frame = raw.welcome(&mut caller);
        while frame != raw::UNABLE {
            let unable = raw::frame(raw::UNABLE, &raw::field(raw::REASON, b"not that one"));
            caller.write_all(&unable).expect("sent");
            frame = raw.read(&mut caller).expect("a frame").0;
        }
    });
    assert!(right.block_on(right.connect(address).require("memory").into_future()).is_err());
    refuses.join().expect("no panic");
    drop((here, there));
    nets.lock().expect("no panic").clear();
    Ok(())
}

#[test]
fn a_subscriber_that_uses_the_net_gets_all_lines_and_spans_and_blocks_no_thread() {
    if !is_alone() {
        return;
    }
    let (meddler, spans) = (Meddler::default(), Spans::default());
    let registry = tracing_subscriber::registry().with(spans.clone()).with(meddler.clone());
    tracing::subscriber::set_global_default(registry.with(LevelFilter::DEBUG)).expect("the only one");
    let (sender, ended) = mpsc::channel();
    let nets = Arc::clone(&meddler.nets);
    thread::spawn(move || sender.send(talk(&nets)));
    ended.recv_timeout(LIMIT).expect("no thread blocks").expect("both sides");

    assert!(meddler.events.load(Ordering::SeqCst) > 0);
    let is_over = || spans.0.lock().expect("no panic").0.iter().all(|span| span.closed.is_some());
    let begun = Instant::now();
    // The nets end in threads of their own.
    while !is_over() {
        assert!(begun.elapsed() < LIMIT, "{:?}", spans.0.lock().expect("no panic").0);
        thread::sleep(Duration::from_millis(1));
    }
    for (side, lane, expected) in [
        ("connect", "tcp/lo", &["resolve", "dial", "handshake", "established"][..]),
        ("accept", "tcp/lo", &["hello", "handshake", "established"]),
        ("connect", "", &["resolve", "dial", "handshake"]),
        ("accept", "", &["hello"]),
    ] {
        let stages = spans.stages_of(side, lane);
        assert_eq!(stages, expected, "{side} over {lane:?}: {:?}", spans.0.lock().expect("no panic").0);
    }
    assert!(meddler.in_a_connection.load(Ordering::SeqCst) > 0, "no line belongs to a connection");
}
