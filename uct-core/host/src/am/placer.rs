//! What takes long messages of an interface where it likes them, ahead of the handlers.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::rc::{Rc, Weak};
use std::slice;

use uct_abi::{UCT_ERR_NO_ELEM, UCT_OK, UctAmPlacer, UctStatus};

use crate::stats::Counter;
use crate::worker::WorkerInner;

/// Memory that a transport writes what it receives to.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    start: NonNull<u8>,
    length: usize,
}

impl Space {
    /// `length` bytes from `start` on.
    ///
    /// # Safety
    /// They are writable, and nothing refers to them, until the transport to which a [`Placer`] gives the space calls again, or
    /// [`crate::Worker::progress`] returns.
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> Space {
        Space { start, length }
    }

    /// Its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Takes long messages of a transport that receives from a stream, and has by then only their beginnings: the rest is received where the placer
/// likes it, which saves a copy. See [`crate::Iface::set_am_placer`].
///
/// Its functions are called inside the transport. They make no progress, send nothing and close nothing.
pub trait Placer {
    /// The bytes of `head` have arrived, of a message of `length` bytes. The name by which the placer knows the message from now on, if it
    /// takes it; then it copies of the head what it needs. A message that it does not take goes to the handler of its id when it is whole, as
    /// all others do.
    fn begin(&self, head: &[u8], length: usize) -> Option<u64>;

    /// Where the bytes from `offset` on go, as many as have room there; called before each receive. `None` for bytes that nobody wants, and for a name
    /// that the placer does not know.
    fn place(&self, arrival: u64, offset: usize) -> Option<Space>;

    /// All `length` bytes of the message have arrived. It is not called if the connection is lost before, which a protocol learns by its endpoint's
    /// failure.
    fn end(&self, arrival: u64, length: usize);
}

/// The placer of an interface, and the table by which the transport calls it.
pub(crate) struct PlacerSlot {
    table: Cell<UctAmPlacer>,
    placer: RefCell<Option<Rc<dyn Placer>>>,
    /// The interface holds it, and so does what is left of an interface.
    worker: NonNull<WorkerInner>,
    received: Counter,
}

impl PlacerSlot {
    /// Without a placer, of an interface that the worker drives.
    pub(super) fn new(worker: NonNull<WorkerInner>) -> Rc<PlacerSlot> {
        Rc::new_cyclic(|slot: &Weak<PlacerSlot>| {
            let table = UctAmPlacer {
                size: size_of::<UctAmPlacer>(),
                argument: slot.as_ptr().cast_mut().cast(),
                ids: 0,
                begin: Some(begin),
                place: Some(place),
                end: Some(end),
            };
            PlacerSlot {
                table: Cell::new(table),
                placer: RefCell::default(),
                worker,
                received: Counter::default(),
            }
        })
    }

    /// The table as the transport has it.
    pub(crate) fn as_ptr(&self) -> *const UctAmPlacer {
        self.table.as_ptr()
    }

    /// Messages that placers have received.
    pub(super) fn received(&self) -> &Counter {
        &self.received
    }

    pub(super) fn clear(&self) {
        self.set(0, None);
    }

    pub(super) fn set(&self, ids: u32, placer: Option<Rc<dyn Placer>>) {
        self.table.set(UctAmPlacer { ids, ..self.table.get() });
        let replaced = self.placer.replace(placer);
        // It may be running, which holds it.
        drop(replaced);
    }

    /// Calls the placer, if there is one. Its panic is kept until the transport's frames are left.
    fn call<T>(&self, call: impl FnOnce(&dyn Placer) -> T) -> Option<T> {
        let placer = self.placer.borrow().clone()?;
        let mut answer = None;
        // SAFETY: the worker is there as long as the interface, which is open while the transport calls.
        unsafe { self.worker.as_ref() }.call_application(|| answer = Some(call(&*placer)));
        answer
    }
}

/// The slot that the transport's argument points to.
///
/// # Safety
/// It is the argument of a [`PlacerSlot`]'s table, whose interface is open.
unsafe fn slot<'a>(argument: *mut c_void) -> &'a PlacerSlot {
    // SAFETY: the caller's promise.
    unsafe { &*argument.cast::<PlacerSlot>() }
}

/// [`UctAmPlacer::begin`].
unsafe extern "C" fn begin(
    argument: *mut c_void,
    _id: u32,
    head: *const c_void,
    head_length: usize,
    length: usize,
    arrival: *mut u64,
) -> UctStatus {
    // SAFETY: called with the table's argument, while the interface is open.
    let slot = unsafe { slot(argument) };
    let head = match NonNull::new(head.cast_mut().cast::<u8>()) {
        // SAFETY: the head is readable for the call, and nothing writes to it meanwhile.
        Some(head) => unsafe { slice::from_raw_parts(head.as_ptr(), head_length) },
        None => &[],
    };
    match slot.call(|placer| placer.begin(head, length)).flatten() {
        Some(name) => {
            // SAFETY: the transport's place for the answer.
            unsafe { arrival.write(name) };
            UCT_OK
        }
        None => UCT_ERR_NO_ELEM,
    }
}

/// [`UctAmPlacer::place`].
unsafe extern "C" fn place(
    argument: *mut c_void,
    arrival: u64,
    offset: usize,
    room: *mut usize,
) -> *mut c_void {
    // SAFETY: called with the table's argument, while the interface is open.
    let slot = unsafe { slot(argument) };
    let Some(space) = slot.call(|placer| placer.place(arrival, offset)).flatten() else {
        return null_mut();
    };
    // SAFETY: the transport's place for the answer.
    unsafe { room.write(space.len()) };
    space.start().as_ptr().cast()
}

/// [`UctAmPlacer::end`].
unsafe extern "C" fn end(argument: *mut c_void, arrival: u64, length: usize) {
    // SAFETY: called with the table's argument, while the interface is open.
    let slot = unsafe { slot(argument) };
    slot.received.add(length);
    slot.call(|placer| placer.end(arrival, length));
}
