//! The lanes inside TLS of a net, polled when one of their sockets is ready.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use slab::Slab;

use super::conn::Conn;
use super::peer_loss::PeerLoss;
use super::reactor::Reactor;
use super::session::Session;
use super::wrapped::{Spare, Wrapped};

/// All of them.
#[derive(Default)]
pub(crate) struct Pumps {
    lanes: RefCell<Slab<Lane>>,
    due: Arc<Due>,
    spare: Spare,
}

struct Lane {
    wrapped: Wrapped,
    mark: Arc<Mark>,
    waker: Waker,
}

/// Numbers of lanes that have something to do.
#[derive(Default)]
struct Due {
    has_any: AtomicBool,
    numbers: Mutex<Vec<usize>>,
}

/// Puts a lane on that list, once.
struct Mark {
    number: usize,
    is_set: AtomicBool,
    due: Arc<Due>,
}

impl Pumps {
    /// Goes on with a session over its socket as a lane. Returns the end of it that the transport gets.
    pub(crate) fn add(
        &self,
        reactor: &Rc<Reactor>,
        secured: (OwnedFd, Session),
        limits: (&PeerLoss, Duration),
        conn: &Rc<Conn>,
    ) -> std::io::Result<OwnedFd> {
        let (wrapped, transports) = Wrapped::new(reactor, secured, limits, conn)?;
        let mut lanes = self.lanes.borrow_mut();
        let place = lanes.vacant_entry();
        let mark = Mark { number: place.key(), is_set: AtomicBool::new(false), due: Arc::clone(&self.due) };
        let mark = Arc::new(mark);
        let waker = Waker::from(Arc::clone(&mark));
        // Something may have come already.
        waker.wake_by_ref();
        conn.set_pump(waker.clone());
        place.insert(Lane { wrapped, mark, waker });
        reactor.rouse();
        Ok(transports)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.borrow().is_empty()
    }

    /// Whether a lane has something to do that its sockets do not report.
    pub(crate) fn is_due(&self) -> bool {
        // SYNC: pairs with `wake_by_ref`.
        self.due.has_any.load(Ordering::Acquire)
    }

    /// Whether the system has all that transports have sent.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.is_due() && self.lanes.borrow().iter().all(|(_, lane)| lane.wrapped.is_flushed())
    }

    /// Moves what can be moved. Returns whether there was anything.
    pub(crate) fn run(&self) -> bool {
        if !self.is_due() {
            return false;
        }
        // SYNC: a wake from here on raises it again.
        self.due.has_any.store(false, Ordering::Relaxed);
        let numbers = std::mem::take(&mut *self.due.numbers.lock().unwrap_or_else(PoisonError::into_inner));
        let mut lanes = self.lanes.borrow_mut();
        for number in numbers {
            let Some(lane) = lanes.get_mut(number) else { continue };
            // SYNC: a wake from here on puts it on the list again.
            lane.mark.is_set.store(false, Ordering::Release);
            let over = lane.wrapped.poll(&self.spare, &mut Context::from_waker(&lane.waker)).is_ready();
            if over {
                lanes.remove(number);
            }
        }
        true
    }
}

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SYNC: pairs with `run`.
        if !self.is_set.swap(true, Ordering::AcqRel) {
            self.due.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
            // SYNC: pairs with `is_due`.
            self.due.has_any.store(true, Ordering::Release);
        }
    }
}
