//! An event loop of asyncio: a descriptor that wakers of a net make readable, and the tasks that were woken.
//!
//! The future that a task waits for is held by the task alone; a waker knows it by a weak reference, so that nothing
//! keeps a loop or task that Python has given up.

use std::future::poll_fn;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Wake};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use ucs::event_set::EventFd;
use uct_net::Net;

use crate::lock;
use crate::patience::Patience;

/// How long a loop polls in one of its rounds.
const SLICE: Duration = Duration::from_micros(20);

type Future = Py<PyWeakrefReference>;

/// A net, as its event loops use it.
pub(crate) trait Driven: Send + Sync {
    /// The net, until it is closed.
    fn open_net(&self) -> Option<Net>;

    /// Whether loops may poll.
    fn may_poll(&self) -> bool;
}

/// The event loops whose tasks have waited for a net: mostly one.
#[derive(Default)]
pub(crate) struct EventLoops(Mutex<Vec<(Py<PyWeakrefReference>, Py<EventLoop>)>>);

impl EventLoops {
    /// The one that runs in this thread.
    pub(crate) fn current<'py>(
        &self,
        py: Python<'py>,
        driven: impl FnOnce() -> Weak<dyn Driven>,
    ) -> PyResult<Bound<'py, EventLoop>> {
        static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let running = RUNNING.import(py, "asyncio", "get_running_loop")?.call0()?;
        let known = self.known(py);
        let is_it = |weak: &Bound<'_, PyWeakrefReference>| weak.upgrade().is_some_and(|it| it.is(&running));
        if let Some((_, known)) = known.iter().find(|(weak, _)| is_it(weak)) {
            return Ok(known.clone());
        }
        let made = EventLoop::new(py, &running, driven())?;
        let weak = PyWeakrefReference::new(&running)?;
        let open =
            known.into_iter().filter(|(weak, _)| weak.upgrade().is_some()).chain([(weak, made.clone())]);
        let open = open.map(|(weak, event_loop)| (weak.unbind(), event_loop.unbind())).collect();
        let before = std::mem::replace(&mut *lock(&self.0), open);
        drop(before);
        Ok(made)
    }

    /// All of them. Under the lock no object is asked or dropped: that may run code of Python, and threads that wait
    /// for the lock.
    fn known<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyWeakrefReference>, Bound<'py, EventLoop>)> {
        lock(&self.0).iter().map(|(weak, it)| (weak.bind(py).clone(), it.bind(py).clone())).collect()
    }

    /// The net has ended: wakes whom that concerns, and takes the descriptor out of the loop that runs in this thread.
    /// Other loops keep theirs until they end.
    pub(crate) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let all = std::mem::take(&mut *lock(&self.0));
        for (weak, event_loop) in all {
            let Some(known) = weak.bind(py).upgrade() else { continue };
            let asyncio = py.import(intern!(py, "asyncio"))?;
            let running = asyncio.call_method0(intern!(py, "_get_running_loop"))?;
            if known.is(&running) {
                EventLoop::wake(py, event_loop.get().queue.take())?;
                leave_soon(event_loop.bind(py), &running)?;
            }
        }
        Ok(())
    }
}

/// A net's tasks in one event loop.
#[pyclass(frozen, module = "uct.aio")]
pub(crate) struct EventLoop {
    queue: Arc<Queue>,
    event_loop: Py<PyWeakrefReference>,
    driven: Weak<dyn Driven>,
    patience: Mutex<Patience>,
    /// Operations that wait.
    waits: AtomicUsize,
}

/// What an operation waits for.
pub(crate) struct Wait {
    pub(crate) future: Py<PyAny>,
    event_loop: Py<EventLoop>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SYNC: a count; it is read in the thread of the loop, where operations end.
        self.event_loop.get().waits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EventLoop {
    fn new<'py>(
        py: Python<'py>,
        event_loop: &Bound<'py, PyAny>,
        driven: Weak<dyn Driven>,
    ) -> PyResult<Bound<'py, EventLoop>> {
        let event = EventFd::new().map_err(|refused| PyOSError::new_err(refused.to_string()))?;
        let fd = event.as_fd().as_raw_fd();
        let made = EventLoop {
            queue: Arc::new(Queue { event, woken: Mutex::default() }),
            event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
            driven,
            patience: Mutex::default(),
            waits: AtomicUsize::new(0),
        };
        let made = Bound::new(py, made)?;
        event_loop.call_method1(intern!(py, "add_reader"), (fd, &made))?;
        Ok(made)
    }

    /// A future of the loop that ends when the waker is woken, for the task to yield. `None` if it was woken already.
    pub(crate) fn wait(slf: &Bound<'_, Self>, wakeup: &Wakeup) -> PyResult<Option<Wait>> {
        let (this, py) = (slf.get(), slf.py());
        if wakeup.is_woken() {
            return Ok(None);
        }
        let Some(event_loop) = this.event_loop.bind(py).upgrade() else { return Ok(None) };
        let future = event_loop.call_method0(intern!(py, "create_future"))?;
        // What `Future.__await__` says to its task.
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        if !wakeup.bind(&this.queue, PyWeakrefReference::new(&future)?.unbind()) {
            return Ok(None);
        }
        let driven = this.driven.upgrade();
        let may_poll = driven.as_ref().is_some_and(|driven| driven.may_poll());
        if may_poll && lock(&this.patience).begins() {
            poll_soon(slf, &event_loop)?;
        }
        if !lock(&this.patience).is_polling()
            && let Some(net) = driven.and_then(|driven| driven.open_net())
        {
            net.rest();
        }
        // SYNC: as in the drop.
        this.waits.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Wait { future: future.unbind(), event_loop: slf.clone().unbind() }))
    }

    /// Wakes the tasks of these futures.
    fn wake(py: Python<'_>, woken: Vec<Future>) -> PyResult<()> {
        for future in woken {
            let Some(future) = future.bind(py).upgrade() else { continue };
            if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
                future.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
        }
        Ok(())
    }
}

/// Has the loop poll in its next round.
fn poll_soon(event_loop: &Bound<'_, EventLoop>, running: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = event_loop.py();
    running.call_method1(intern!(py, "call_soon"), (event_loop.getattr(intern!(py, "poll"))?,))?;
    Ok(())
}

/// Has the loop give up the descriptor, behind the tasks that were woken.
fn leave_soon(event_loop: &Bound<'_, EventLoop>, running: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = event_loop.py();
    running.call_method1(intern!(py, "call_soon"), (event_loop.getattr(intern!(py, "leave"))?,))?;
    Ok(())
}

#[pymethods]
impl EventLoop {
    /// The descriptor is readable.
    fn __call__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        EventLoop::wake(py, this.queue.take())?;
        let is_over = this.driven.upgrade().is_none_or(|driven| driven.open_net().is_none());
        match this.event_loop.bind(py).upgrade() {
            Some(running) if is_over => leave_soon(slf, &running),
            _ => Ok(()),
        }
    }

    /// Takes the descriptor out of the loop, unless an operation still waits for it.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        // SYNC: as in the drop of `Wait`.
        if self.waits.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let Some(event_loop) = self.event_loop.bind(py).upgrade() else { return Ok(()) };
        event_loop.call_method1(intern!(py, "remove_reader"), (self.queue.event.as_fd().as_raw_fd(),))?;
        Ok(())
    }

    /// Drives the net for a moment, while tasks wait and the loop has no more to do: what comes soon then wakes no
    /// second thread.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let net = this.driven.upgrade().and_then(|driven| driven.open_net());
        let Some(net) = net else {
            lock(&this.patience).ended(true);
            return Ok(());
        };
        let queue = &this.queue;
        queue.begin_polling();
        py.detach(|| {
            let end = Instant::now() + SLICE;
            net.block_on(poll_fn(|context| {
                if queue.has_woken() || Instant::now() >= end {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            }));
        });
        let woken = queue.end_polling();
        let has_event = !woken.is_empty();
        let goes_on = lock(&this.patience).ended(has_event);
        if !goes_on && !has_event {
            net.rest();
        }
        EventLoop::wake(py, woken)?;
        match this.event_loop.bind(py).upgrade() {
            Some(running) if goes_on => poll_soon(slf, &running),
            _ => Ok(()),
        }
    }
}

/// The futures of tasks that were woken.
struct Queue {
    event: EventFd,
    woken: Mutex<Woken>,
}

#[derive(Default)]
struct Woken {
    futures: Vec<Future>,
    /// The loop looks by itself: the descriptor is left alone.
    is_polled: bool,
    is_signaled: bool,
}

impl Queue {
    /// From any thread.
    fn put(&self, future: Future) {
        let mut woken = lock(&self.woken);
        woken.futures.push(future);
        if !woken.is_polled && !std::mem::replace(&mut woken.is_signaled, true) {
            self.event.signal();
        }
    }

    fn take(&self) -> Vec<Future> {
        let mut woken = lock(&self.woken);
        if std::mem::take(&mut woken.is_signaled) {
            self.event.drain();
        }
        std::mem::take(&mut woken.futures)
    }

    fn has_woken(&self) -> bool {
        !lock(&self.woken).futures.is_empty()
    }

    fn begin_polling(&self) {
        lock(&self.woken).is_polled = true;
    }

    fn end_polling(&self) -> Vec<Future> {
        lock(&self.woken).is_polled = false;
        self.take()
    }
}

/// The waker of one poll. The future of the task is known only if that poll has to wait.
#[derive(Default)]
pub(crate) struct Wakeup(Mutex<Waiting>);

#[derive(Default)]
enum Waiting {
    /// Nobody waits yet.
    #[default]
    Unbound,
    Woken,
    For(Arc<Queue>, Future),
}

impl Wakeup {
    fn is_woken(&self) -> bool {
        matches!(*lock(&self.0), Waiting::Woken)
    }

    /// Has it wake this future. False if it was woken already.
    fn bind(&self, queue: &Arc<Queue>, future: Future) -> bool {
        let mut waiting = lock(&self.0);
        let is_unbound = matches!(*waiting, Waiting::Unbound);
        if is_unbound {
            *waiting = Waiting::For(Arc::clone(queue), future);
        }
        is_unbound
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waiting = std::mem::replace(&mut *lock(&self.0), Waiting::Woken);
        if let Waiting::For(queue, future) = waiting {
            queue.put(future);
        }
    }
}
