//! Workers, and the objects that are closed from inside a callback.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::rc::Rc;

use ucs::Error;
use uct_core::raw;

use crate::call::{guarded, not_opened, put, refuse, status};
use crate::component::context;

/// `UCS_THREAD_MODE_SERIALIZED`, the last mode that is there.
const SERIALIZED: c_int = 1;
/// `UCS_THREAD_MODE_MULTI`.
const MULTI: c_int = 2;

/// What the handle points to.
pub struct Worker {
    pub inner: uct_core::Worker,
    /// Calls that callbacks may run in, one inside the other, but for handlers of messages, which the host counts.
    depth: Cell<u32>,
    /// Whether there is something in `closing`.
    is_closing: Cell<bool>,
    /// Objects that were closed meanwhile, in their order: what the transport is just using stays until it has
    /// returned.
    closing: RefCell<Vec<Box<dyn Any>>>,
}

/// A call that callbacks may run in, until this is dropped.
pub struct Inside<'a>(&'a Worker);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.depth.set(self.0.depth.get() - 1);
    }
}

impl Worker {
    /// Such a call begins.
    #[inline]
    pub fn enter(&self) -> Inside<'_> {
        self.depth.set(self.depth.get() + 1);
        Inside(self)
    }

    /// Whether a transport is on the stack.
    fn is_in_use(&self) -> bool {
        self.depth.get() > 0 || raw::is_on_stack(&self.inner)
    }

    /// Drops an object, as soon as no transport is on the stack.
    pub fn close(self: &Rc<Self>, object: Box<dyn Any>) {
        // What is dropped may be the last that has the worker.
        let worker = Rc::clone(self);
        worker.closing.borrow_mut().push(object);
        worker.is_closing.set(true);
        worker.close_all();
    }

    #[cold]
    fn close_all(&self) {
        if self.is_in_use() {
            return;
        }
        // Closing cancels operations, whose callbacks may close more.
        let _inside = self.enter();
        loop {
            let closing = self.closing.take();
            if closing.is_empty() {
                break;
            }
            guarded((), || drop(closing));
        }
        self.is_closing.set(false);
    }
}

/// `uct_worker_create`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_worker_create(
    _context: *mut c_void,
    mode: c_int,
    handle: *mut *const Worker,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { put(handle, std::ptr::null(), "worker_p") }?;
        match mode {
            0..=SERIALIZED => {}
            MULTI => {
                let reason = "UCS_THREAD_MODE_MULTI: a worker serves one thread at a time; use one for each";
                return Err(refuse(Error::UNSUPPORTED, reason));
            }
            _ => {
                return Err(refuse(
                    Error::INVALID_PARAM,
                    format_args!("no thread mode has the number {mode}"),
                ));
            }
        }
        let inner = uct_core::Worker::new(context()?).map_err(|error| not_opened(&error))?;
        let (depth, is_closing, closing) = (Cell::new(0), Cell::new(false), RefCell::default());
        let worker = Rc::new(Worker { inner, depth, is_closing, closing });
        // SAFETY: as above.
        unsafe { put(handle, Rc::into_raw(worker), "worker_p") }
    })
}

/// `uct_worker_destroy`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_worker_destroy(worker: *const Worker) {
    // SAFETY: the caller's promise.
    let Some(open) = (unsafe { worker.as_ref() }) else { return };
    if open.is_in_use() {
        ucs::log::error!("a worker is not destroyed from inside of its own callback");
        return;
    }
    // SAFETY: a handle of `uctc_worker_create`, by the caller's promise.
    let worker = unsafe { Rc::from_raw(worker) };
    guarded((), || {
        worker.close_all();
        drop(worker);
    });
}

/// `uct_worker_progress`.
///
/// # Safety
/// As the header says.
// SAFETY: no other code of this library has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uctc_worker_progress(worker: *const Worker) -> c_uint {
    // SAFETY: a handle, by the caller's promise.
    let worker = unsafe { &*worker };
    let inside = worker.enter();
    let count = guarded(0, || worker.inner.progress());
    drop(inside);
    if worker.is_closing.get() {
        worker.close_all();
    }
    count
}
