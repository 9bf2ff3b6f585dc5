//! Code of the application, such as wakers, does not run inside the progress of `uct_net::local`. Handlers that the application sets
//! on an interface do: with them the test checks that it detects such a call.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::support::{LIMIT, pair, pair_with, patient, skip, transports};
use futures_util::future::join;
use uct_core::AmId;
use uct_net::NetOptions;
use uct_net::local::Connection;

/// The id of the application's own messages.
const OWN: AmId = AmId::new(6).unwrap();

/// Whether this is called by the progress of a worker.
fn is_in_progress() -> bool {
    let stack = stack_with_inlined_functions();
    ["Worker::progress", "callbackq"].iter().any(|frame| stack.contains(frame))
}

#[inline(always)]
fn stack_with_inlined_functions() -> String {
    Backtrace::force_capture().to_string()
}

/// Whether the stack names functions that were inlined, as progress may be. If it does not, the test is skipped, since nothing would be detected.
fn has_debug_information() -> bool {
    let has_some = stack_with_inlined_functions().contains("stack_with_inlined_functions");
    if !has_some {
        skip::skip("debug", "the program has no debug information, so a stack does not name progress");
    }
    has_some
}

/// How often the application's code ran.
#[derive(Default)]
struct Calls {
    wakes: AtomicU32,
    inside: AtomicU32,
}

impl Calls {
    fn note(&self) {
        if is_in_progress() {
            self.inside.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A waker that notes where it is woken and dropped.
struct Probe {
    calls: Arc<Calls>,
    waker: Waker,
}

impl Wake for Probe {
    fn wake(self: Arc<Self>) {
        self.calls.wakes.fetch_add(1, Ordering::Relaxed);
        self.calls.note();
        self.waker.wake_by_ref();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.calls.note();
    }
}

/// The output of a future whose waker is a [`Probe`], a new one for each poll.
async fn probed<F: Future>(calls: &Arc<Calls>, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        calls.note();
        let probe = Arc::new(Probe { calls: Arc::clone(calls), waker: context.waker().clone() });
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(probe)))
    })
    .await
}

/// As [`probed`], and does something when the future has been polled for the first time. Its waker must be woken.
async fn woken<F: Future>(calls: &Arc<Calls>, future: F, act: impl AsyncFnOnce()) -> F::Output {
    let before = calls.wakes.load(Ordering::Relaxed);
    let (output, ()) = join(probed(calls, future), act()).await;
    assert!(calls.wakes.load(Ordering::Relaxed) > before, "no waker was used");
    output
}

async fn said(connection: &Connection, word: &[u8]) {
    assert_eq!(&*connection.recv().within(LIMIT).await.expect("a message"), word);
}

async fn say(connection: &Connection, word: &[u8]) {
    connection.send(word).within(LIMIT).await.expect("sent");
}

#[test]
fn wakers_of_messages_and_memory_run_outside_of_progress() {
    if !has_debug_information() {
        return;
    }
    for transport in transports() {
        let calls = Arc::new(Calls::default());
        let own = transport.clone();
        // The listener has a small window, so the client's messages wait for it.
        let listener = NetOptions { window: 16_384, ..patient() };
        pair_with(
            (listener, patient()),
            async |net, mut listener| {
                let connection =
                    probed(&Arc::default(), async { listener.accept().await?.accept().await }).await?;
                said(&connection, b"send").await;
                say(&connection, b"sent").await;
                said(&connection, b"share").await;
                let memory = connection.allocate(4096)?;
                connection.share(&memory).await?;
                said(&connection, b"read").await;
                for _ in 0..8 {
                    assert_eq!(connection.recv().within(LIMIT).await?.len(), 8192);
                }
                said(&connection, b"end").await;
                connection.close().within(LIMIT).await?;
                drop((memory, net));
                Ok(())
            },
            async |net, address| {
                let connection = probed(&calls, net.connect(address).require(own).into_future()).await?;
                let message =
                    woken(&calls, connection.recv(), async || say(&connection, b"send").await).await?;
                assert_eq!(&*message, b"sent");
                let memory =
                    woken(&calls, connection.shared(), async || say(&connection, b"share").await).await?;
                let local = connection.allocate(4096)?;
                probed(&calls, connection.put(local.slice(..), &memory, 0)).await?;
                probed(&calls, connection.get(local.slice(..), &memory, 0)).await?;
                probed(&calls, connection.fetch_add(&memory, 0, 1)).await?;
                probed(&calls, connection.flush()).await?;
                say(&connection, b"read").await;
                for _ in 0..8 {
                    probed(&calls, connection.send(&[0; 8192])).await?;
                }
                let end = woken(&calls, connection.recv(), async || say(&connection, b"end").await).await;
                assert!(end.expect_err("the peer closes").is_closed_by_peer());
                Ok(())
            },
        );
        assert_eq!(
            calls.inside.load(Ordering::Relaxed),
            0,
            "the application was called inside progress over {transport}"
        );
    }
}

#[test]
fn a_waker_runs_outside_of_progress_when_the_connection_fails() {
    if !has_debug_information() {
        return;
    }
    for transport in transports() {
        let calls = Arc::new(Calls::default());
        let own = transport.clone();
        pair(
            patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                said(&connection, b"abort").await;
                connection.abort("as it was asked to");
                Ok(())
            },
            async |net, address| {
                let connection = net.connect(address).require(own).await?;
                let end = woken(&calls, connection.closed(), async || say(&connection, b"abort").await).await;
                assert!(end.to_string().contains("as it was asked to"), "{end}");
                Ok(())
            },
        );
        assert_eq!(
            calls.inside.load(Ordering::Relaxed),
            0,
            "the application was called inside progress over {transport}"
        );
    }
}

#[test]
fn a_handler_of_the_application_runs_inside_progress_and_is_detected() {
    if !has_debug_information() {
        return;
    }
    for transport in transports() {
        let own = transport.clone();
        pair(
            patient(),
            async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                said(&connection, b"call").await;
                connection.when_room(|| connection.endpoint().am_short(OWN, 0, b"")).await?;
                said(&connection, b"end").await;
                Ok(())
            },
            async |net, address| {
                let inside = Rc::new(Cell::new(None));
                let connection = net.connect(address).require(own).await?;
                let noted = Rc::clone(&inside);
                connection.iface().set_am_handler(OWN, move |_message| noted.set(Some(is_in_progress())));
                say(&connection, b"call").await;
                let called = std::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    inside.get().map_or(Poll::Pending, Poll::Ready)
                });
                assert_eq!(net.within(LIMIT, called).await, Some(true), "over {transport}");
                say(&connection, b"end").await;
                Ok(())
            },
        );
    }
}
