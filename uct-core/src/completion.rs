//! Completions: how an application learns that operations have ended, and what keeps their memory alive until then.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use ucs::{Error, Result, Status};
use uct_abi::{UCT_OK, UctCompletion};

use crate::memory::MemorySlice;
use crate::rkey::{RemoteKey, RkeyInner};
use crate::worker::{Worker, WorkerInner};

/// How an operation was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is done; the completion is not involved.
    Done,
    /// It goes on; the completion will tell.
    InProgress,
}

/// Tells when operations have ended. One completion may serve many operations: it is done when all of them are, and
/// keeps the first error. Cheap to clone; it can be used again once it is done.
#[derive(Clone)]
pub struct Completion {
    inner: Rc<Inner>,
}

#[repr(C)]
struct Inner {
    /// First, so that a pointer to it is a pointer to the whole.
    abi: UnsafeCell<UctCompletion>,
    /// The key that outstanding operations use: mostly there is one.
    key: Cell<Option<Rc<RkeyInner>>>,
    /// What else they use.
    held: RefCell<Vec<Held>>,
    /// Outstanding operations keep the completion itself: one reference is theirs.
    is_held: Cell<bool>,
    /// Where a fetching atomic leaves its result.
    fetched: Cell<u64>,
    callback: Option<Box<dyn Fn(Result)>>,
    worker: Rc<WorkerInner>,
}

/// Something that an outstanding operation uses.
#[allow(dead_code, reason = "what is held is only ever dropped")]
pub(crate) enum Held {
    Memory(MemorySlice),
    Key(Rc<RkeyInner>),
    Unpack(Owned),
}

/// The owner of a box that a transport has a pointer to, and that only this pointer leads to.
pub(crate) struct Owned {
    place: NonNull<c_void>,
    free: unsafe fn(NonNull<c_void>),
}

impl Owned {
    /// Of something that is to be freed when the operation has ended, and the pointer for the transport.
    #[inline(always)]
    pub(crate) fn new<T: 'static>(value: T) -> (Owned, NonNull<T>) {
        /// # Safety
        /// The place is a box of this type, and nobody uses it any more.
        unsafe fn free<T>(place: NonNull<c_void>) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(place.cast::<T>().as_ptr()) });
        }
        let place = NonNull::from(Box::leak(Box::new(value)));
        (Owned { place: place.cast(), free: free::<T> }, place)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `new` made place and function for each other, and the transport is done with the operation.
        unsafe { (self.free)(self.place) };
    }
}

impl Completion {
    /// A completion for operations of this worker.
    pub fn new(worker: &Worker) -> Completion {
        Completion::build(worker, None)
    }

    /// A completion that also calls `callback` whenever all outstanding operations have ended, from progress, with the
    /// first error. Operations that are [`Posted::Done`] at once do not count.
    pub fn with_callback(worker: &Worker, callback: impl Fn(Result) + 'static) -> Completion {
        Completion::build(worker, Some(Box::new(callback)))
    }

    fn build(worker: &Worker, callback: Option<Box<dyn Fn(Result)>>) -> Completion {
        Completion {
            inner: Rc::new(Inner {
                abi: UnsafeCell::new(UctCompletion { func: finished, count: 0, status: UCT_OK }),
                key: Cell::new(None),
                held: RefCell::default(),
                is_held: Cell::new(false),
                fetched: Cell::new(0),
                callback,
                worker: Rc::clone(&worker.inner),
            }),
        }
    }

    /// Whether nothing is outstanding.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.outstanding() == 0
    }

    /// Operations that are outstanding.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        // SAFETY: the completion belongs to this thread, and no reference into the cell is ever held.
        let count = unsafe { (*self.inner.abi.get()).count };
        count as u32
    }

    /// The first error since the completion was made or [`Completion::reset`].
    pub fn result(&self) -> Result {
        // SAFETY: as above.
        let status = unsafe { (*self.inner.abi.get()).status };
        Status::from_raw(status).into_result()
    }

    /// Makes progress until nothing is outstanding, for `limit` at most; then the result. Blocks, and looks all the time: to
    /// sleep meanwhile, see [`Worker::wait`].
    ///
    /// # Errors
    /// [`Error::TIMED_OUT`] while operations are outstanding, which go on; else as [`Completion::result`].
    pub fn wait(&self, limit: Duration) -> Result {
        let worker = Worker { inner: Rc::clone(&self.inner.worker) };
        if worker.progress_until(limit, || self.is_done()) { self.result() } else { Err(Error::TIMED_OUT) }
    }

    /// Forgets the result, for the next use.
    ///
    /// # Errors
    /// [`Error::BUSY`] while operations are outstanding.
    pub fn reset(&self) -> Result {
        if !self.is_done() {
            return Err(Error::BUSY);
        }
        // SAFETY: as above.
        unsafe { (*self.inner.abi.get()).status = UCT_OK };
        Ok(())
    }

    /// The former value that the last fetching atomic brought; meaningful once it has ended without an error.
    #[inline]
    pub fn fetched(&self) -> u64 {
        self.inner.fetched.get()
    }

    /// Keeps the result of a fetching atomic that was done at once.
    #[inline(always)]
    pub(crate) fn set_fetched(&self, former: u64) {
        self.inner.fetched.set(former);
    }

    /// Where a fetching atomic leaves its result: 8 bytes, of which it may write the first 4.
    #[inline(always)]
    pub(crate) fn cleared_place(&self) -> *mut u64 {
        self.inner.fetched.set(0);
        self.inner.fetched.as_ptr()
    }

    /// Counts an operation that is about to start, and answers the pointer for it.
    #[inline(always)]
    pub(crate) fn begin(&self) -> *mut UctCompletion {
        let abi = self.inner.abi.get();
        // SAFETY: as in `outstanding`.
        unsafe { (*abi).count += 1 };
        abi
    }

    /// As [`Completion::begin`], for an operation whose result has one place only.
    ///
    /// # Errors
    /// [`Error::BUSY`] while others are outstanding.
    #[inline(always)]
    pub(crate) fn begin_alone(&self) -> Result<*mut UctCompletion> {
        if self.is_done() { Ok(self.begin()) } else { Err(Error::BUSY) }
    }

    /// Takes back the count of an operation that was done at once.
    #[inline(always)]
    pub(crate) fn ended_at_once(&self) {
        // SAFETY: as in `outstanding`.
        unsafe { (*self.inner.abi.get()).count -= 1 };
    }

    /// Accounts for how the operation was started: if it goes on, what it uses is held until it has ended.
    #[inline(always)]
    pub(crate) fn started<I>(
        &self,
        status: i32,
        key: Option<&RemoteKey>,
        held: impl FnOnce() -> I,
    ) -> Result<Posted>
    where
        I: IntoIterator<Item = Held>,
    {
        if status == uct_abi::UCT_INPROGRESS {
            if self.outstanding() > 0 {
                self.hold(key, held());
            }
            return Ok(Posted::InProgress);
        }
        self.ended_at_once();
        Status::from_raw(status).into_result().map(|()| Posted::Done)
    }

    fn hold(&self, key: Option<&RemoteKey>, held: impl IntoIterator<Item = Held>) {
        let inner = &*self.inner;
        if !inner.is_held.replace(true) {
            // `finished` lets go of it.
            std::mem::forget(Rc::clone(&self.inner));
        }
        if let Some(key) = key.map(RemoteKey::shared) {
            match inner.key.take() {
                Some(same) if Rc::ptr_eq(&same, key) => inner.key.set(Some(same)),
                other => {
                    inner.key.set(Some(Rc::clone(key)));
                    inner.held.borrow_mut().extend(other.map(Held::Key));
                }
            }
        }
        inner.held.borrow_mut().extend(held);
    }
}

/// Called by the transport when the last outstanding operation has ended.
unsafe extern "C" fn finished(completion: *mut UctCompletion) {
    let inner = completion.cast::<Inner>().cast_const();
    // SAFETY: whoever called has the completion alive: `hold` kept it, or the call that started the operation still runs.
    let was_held = unsafe { (*inner).is_held.replace(false) };
    if !was_held {
        // SAFETY: as above.
        unsafe { Rc::increment_strong_count(inner) };
    }
    // SAFETY: this takes the reference just added, or the one that `hold` forgot.
    let inner = unsafe { Rc::from_raw(inner) };
    let key = inner.key.take();
    let mut held = inner.held.take();
    if let Some(callback) = &inner.callback {
        // SAFETY: the completion belongs to this thread, and no reference into the cell is ever held.
        let status = unsafe { (*inner.abi.get()).status };
        let result = Status::from_raw(status).into_result();
        inner.worker.call_application(|| callback(result));
    }
    // What is let go of may be the last of its kind, and run code of others. The room serves the next operations.
    drop(key);
    if held.capacity() == 0 {
        return;
    }
    held.clear();
    let mut place = inner.held.borrow_mut();
    if place.capacity() == 0 {
        *place = held;
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("outstanding", &self.outstanding())
            .field("result", &self.result())
            .finish()
    }
}
