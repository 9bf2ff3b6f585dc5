//! Asynchronous events for everyone on a device: each interface has a queue of its own.
//!
//! For interfaces, which learn that a port or queue pair failed. Built on the context's events and `ucs::event_set`.
//! A device has one stream of events and many listeners: the listener that reads an event passes it to all.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crossbeam_queue::ArrayQueue;
use ucs::event_set::{EventFd, EventSet, Events};

use crate::verbs::{AsyncEvent, Context};

/// The stream of one open device. One per context.
pub struct EventStream {
    context: Arc<Context>,
    queues: Mutex<Vec<Weak<Queue>>>,
}

struct Queue {
    events: ArrayQueue<AsyncEvent>,
    wake: EventFd,
}

/// The queue of one listener. Dropping it ends the listening.
pub struct EventListener {
    stream: Arc<EventStream>,
    queue: Arc<Queue>,
    // Readable when the device has events or the queue holds some.
    set: EventSet,
}

/// A listener that reads nothing keeps at most this many events; older ones go first.
const KEPT: usize = 1024;

impl EventStream {
    /// The stream of a context. Make only one per context: each event is read once.
    pub fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), queues: Mutex::new(Vec::new()) })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn listen(self: &Arc<Self>) -> Result<EventListener, ucs::sys::SystemError> {
        let set = EventSet::new()?;
        let queue = Arc::new(Queue { events: ArrayQueue::new(KEPT), wake: EventFd::new()? });
        set.add(self.context.async_fd(), Events::READ, 0)?;
        set.add(queue.wake.as_fd(), Events::READ, 1)?;
        lock(&self.queues).push(Arc::downgrade(&queue));
        Ok(EventListener { stream: self.clone(), queue, set })
    }

    /// Hands what has happened to all listeners. Bounded; does not block but for the lock.
    fn dispatch(&self) {
        let mut queues = lock(&self.queues);
        for _ in 0..KEPT {
            let Some(event) = self.context.next_event() else { return };
            ucs::log::debug!(device = self.context.device_name(), ?event, "asynchronous event");
            queues.retain(|queue| queue.upgrade().is_some_and(|queue| queue.push(event)));
        }
    }
}

impl Queue {
    fn push(&self, event: AsyncEvent) -> bool {
        let _oldest = self.events.force_push(event);
        self.wake.signal();
        true
    }

    /// The oldest event. Without one it is no longer readable until the next is pushed.
    fn pop(&self) -> Option<AsyncEvent> {
        self.events.pop().or_else(|| {
            self.wake.drain();
            // One that was pushed ahead of the drain is here, one that comes later signals again.
            self.events.pop()
        })
    }
}

impl EventListener {
    /// Readable while there are events for [`EventListener::next`], until that has returned `None`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// The next event of the device; `None` if there is none now. Does not block.
    pub fn next(&self) -> Option<AsyncEvent> {
        self.stream.dispatch();
        self.queue.pop()
    }
}

/// A poisoned lock holds a plain list, which is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
