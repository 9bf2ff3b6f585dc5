//! Waiting for the transport's room. One pending request of the transport serves all waiting tasks.
//!
//! Operations of a connection wait in a queue. Room wakes the first of them, and one that could start wakes the next: so many tasks run as there is
//! room for, however many wait. One that is dropped after it was woken wakes the next as well.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use ucs::Error as Status;
use uct_host::Pending;

use super::super::lane::Lane;
use super::Conn;
use crate::wake::wake;

/// Operations that wait for room, in the order in which they came.
#[derive(Default)]
pub(super) struct RoomQueue {
    waiting: BTreeMap<u64, Waker>,
    made: u64,
}

impl RoomQueue {
    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }

    /// Has a task wait: at its old place, or behind the others. Returns the place.
    fn add(&mut self, number: Option<u64>, waker: &Waker) -> u64 {
        let number = number.unwrap_or_else(|| {
            self.made += 1;
            self.made
        });
        self.waiting.insert(number, waker.clone());
        number
    }
}

/// The place of an operation that waits for the transport's room. It is given up by the drop.
pub(crate) struct RoomPlace {
    conn: Rc<Conn>,
    number: Option<u64>,
}

impl RoomPlace {
    /// Of an operation that has not waited yet.
    pub(crate) fn new(conn: &Rc<Conn>) -> RoomPlace {
        RoomPlace { conn: Rc::clone(conn), number: None }
    }

    /// Registers the caller for when it is its turn and the transport has room.
    pub(crate) fn wait(&mut self, context: &Context<'_>) {
        let conn = &self.conn;
        let Some(lane) = conn.lane.get() else { return };
        let number = conn.room.borrow_mut().add(self.number, context.waker());
        self.number = Some(number);
        if !conn.waits_for_room.get() && !conn.wait_for_transport(lane) {
            conn.become_due();
        }
    }
}

impl Drop for RoomPlace {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // Its turn, if it was woken, is that of the next one now: at once, since all that there is room for are to start in one turn of the engine.
        // Operations end in tasks, never inside a transport.
        if self.conn.room.borrow_mut().waiting.remove(&number).is_none() {
            self.conn.next_for_room().into_iter().for_each(wake);
        }
    }
}

impl Conn {
    /// Has the engine wake the operation that is the next to start, if there may be room for it.
    pub(super) fn wake_for_room(&self) {
        self.agenda.wake_later(self.next_for_room());
    }

    fn next_for_room(&self) -> Option<Waker> {
        if self.waits_for_room.get() {
            return None;
        }
        self.room.borrow_mut().waiting.pop_first().map(|(_, waker)| waker)
    }

    /// Registers the caller for when something has left or the connection has failed.
    pub(crate) fn wait_for_room(&self, context: &Context<'_>) {
        self.state.borrow_mut().writers.add(context);
    }

    /// Registers the caller for when the transport has room. One pending request of the transport serves all waiting tasks.
    pub(crate) fn wait_for_transport_room(self: &Rc<Conn>, context: &Context<'_>) {
        let Some(lane) = self.lane.get() else { return };
        self.wait_for_room(context);
        self.is_awaited.set(true);
        if !self.waits_for_room.get() && !self.wait_for_transport(lane) {
            self.become_due();
        }
    }

    /// Has the transport report when there is room; false if there is already.
    pub(super) fn wait_for_transport(self: &Rc<Conn>, lane: &Lane) -> bool {
        let conn = Rc::downgrade(self);
        let request = move |_ep: &uct_host::Ep| {
            if let Some(conn) = conn.upgrade() {
                conn.waits_for_room.set(false);
                conn.become_due();
            }
            Pending::Done
        };
        match lane.ep.pending_add(request) {
            Ok(()) => {
                self.waits_for_room.set(true);
                true
            }
            Err((Status::BUSY, _)) => false,
            Err((status, _)) => {
                self.fail_by_status(status);
                true
            }
        }
    }
}
