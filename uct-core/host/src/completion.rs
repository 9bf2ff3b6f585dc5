//! Completions: they report to the application that operations have ended, and keep their memory alive until then.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use ucs::{Error, Result, Status};
use uct_abi::{UCT_INPROGRESS, UCT_OK, UctCompletion, UctStatus};

use crate::latency::{Histograms, Kind, Timer};
use crate::md::{Memory, RemoteKey, RkeyInner};
use crate::worker::{Worker, WorkerInner};

/// How an operation was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is done; the completion is not involved, and its callback is not called: see [`Posted::notify`]. docs/completion.md has what this
    /// means for the peer.
    Done,
    /// It is in flight; the completion reports the end.
    InProgress,
}

impl Posted {
    /// Calls the callback of `completion`, which the operation was started with, if it was done at once and no other operation of the
    /// completion is outstanding. So what follows an operation is in one place, however it ends:
    /// `ep.put_zcopy(…, &completion)?.notify(&completion)`. The callback runs inside this call then, not from progress.
    pub fn notify(self, completion: &Completion) -> Posted {
        if self == Posted::Done
            && completion.is_done()
            && let Some(callback) = &completion.inner.callback
        {
            callback(completion.result());
        }
        self
    }
}

/// How an atomic with a result was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the old value is in here, or comes with the completion"]
pub enum Fetched {
    /// It is done, and this is the old value; the completion is not involved.
    Done(u64),
    /// It is in flight; the completion reports the end and then has the old value.
    InProgress,
}

impl Fetched {
    /// What the status of an atomic means that was started with this completion.
    #[inline]
    pub(crate) fn of(status: UctStatus, completion: &Completion) -> Result<Fetched> {
        if status == UCT_INPROGRESS {
            return Ok(Fetched::InProgress);
        }
        Status::from_raw(status).into_result().map(|()| Fetched::Done(completion.fetched()))
    }

    /// The old value of an atomic that has ended; `completion` is what it was started with.
    #[inline]
    pub fn old_value(self, completion: &Completion) -> u64 {
        match self {
            Fetched::Done(old) => old,
            Fetched::InProgress => completion.fetched(),
        }
    }

    /// Waits for the old value, as [`Completion::wait`]. Blocks.
    ///
    /// # Errors
    /// As [`Completion::wait`].
    pub fn wait(self, completion: &Completion, limit: Duration) -> Result<u64> {
        if self == Fetched::InProgress {
            completion.wait(limit)?;
        }
        Ok(self.old_value(completion))
    }
}

/// Reports that operations have ended. One completion may serve many operations: it is done when all of them are, and
/// keeps the first error. Cheap to clone; it can be used again once it is done.
#[derive(Clone)]
pub struct Completion {
    inner: Rc<Inner>,
}

#[repr(C)]
struct Inner {
    /// First, so that a pointer to it is a pointer to the whole.
    abi: UnsafeCell<UctCompletion>,
    /// [`HELD`], [`MORE`], [`CALLS`] and [`TIMED`].
    state: Cell<u8>,
    /// What the operations use: usually a key and one more resource.
    key: Cell<Option<Rc<RkeyInner>>>,
    first: Cell<Option<Held>>,
    /// Resources beyond these two.
    more: RefCell<Vec<Held>>,
    room: Room,
    /// Where a fetching atomic leaves its result.
    fetched: Cell<u64>,
    callback: Option<Box<dyn Fn(Result)>>,
    /// Of the first operation in flight, if the interface has latency histograms.
    timer: Cell<Option<Timer>>,
    worker: Rc<WorkerInner>,
}

/// Outstanding operations keep the completion itself: one reference is theirs. Without it nothing else is held.
const HELD: u8 = 1;
/// There is something in `more`.
const MORE: u8 = 2;
/// There is a callback.
const CALLS: u8 = 4;
/// There is a `timer`.
const TIMED: u8 = 8;

/// A resource that an outstanding operation uses.
#[allow(dead_code, reason = "what is held is only ever dropped")]
pub(crate) enum Held {
    Memory(Memory),
    Key(Rc<RkeyInner>),
    Unpack(Owned),
}

/// Owns a value that a transport has a pointer to: in a box, or in the inline storage
/// of a completion.
pub(crate) struct Owned {
    place: NonNull<c_void>,
    free: unsafe fn(NonNull<c_void>),
}

impl Owned {
    /// Of a box.
    fn boxed<T: 'static>(value: T) -> (Owned, NonNull<T>) {
        /// # Safety
        /// The place is a box of this type, and nothing uses it any more.
        unsafe fn free<T>(place: NonNull<c_void>) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(place.cast::<T>().as_ptr()) });
        }
        let place = NonNull::from(Box::leak(Box::new(value)));
        (Owned { place: place.cast(), free: free::<T> }, place)
    }
}

/// Room for one value that is owned, so that an operation needs no allocation for a small closure.
struct Room {
    is_taken: Cell<bool>,
    bytes: UnsafeCell<[MaybeUninit<u64>; Room::WORDS]>,
}

impl Room {
    /// A closure over four words and what goes with it.
    const WORDS: usize = 6;

    const fn new() -> Room {
        Room { is_taken: Cell::new(false), bytes: UnsafeCell::new([MaybeUninit::uninit(); Room::WORDS]) }
    }

    /// Takes the room for a value; gives the value back if it does not fit or the room is taken.
    #[inline]
    fn take<T: 'static>(&self, value: T) -> Result<(Owned, NonNull<T>), T> {
        /// # Safety
        /// The place is a room with a value of this type, which nothing uses any more.
        unsafe fn leave<T>(place: NonNull<c_void>) {
            // SAFETY: the caller's promise.
            let room = unsafe { place.cast::<Room>().as_ref() };
            // SAFETY: as above. The room is still taken: what is dropped may run code that wants one.
            unsafe { room.bytes.get().cast::<T>().drop_in_place() };
            room.is_taken.set(false);
        }
        let fits = size_of::<T>() <= Room::WORDS * size_of::<u64>() && align_of::<T>() <= align_of::<u64>();
        if !fits || self.is_taken.replace(true) {
            return Err(value);
        }
        let place = self.bytes.get().cast::<T>();
        // SAFETY: it fits, and the room is this value's until `leave`.
        unsafe { place.write(value) };
        // SAFETY: a cell's address is not null.
        let place = unsafe { NonNull::new_unchecked(place) };
        Ok((Owned { place: NonNull::from(self).cast(), free: leave::<T> }, place))
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
    /// first error. Operations that are [`Posted::Done`] at once do not count, unless [`Posted::notify`] is called for them.
    pub fn with_callback(worker: &Worker, callback: impl Fn(Result) + 'static) -> Completion {
        Completion::build(worker, Some(Box::new(callback)))
    }

    fn build(worker: &Worker, callback: Option<Box<dyn Fn(Result)>>) -> Completion {
        Completion {
            inner: Rc::new(Inner {
                abi: UnsafeCell::new(UctCompletion { func: finished, count: 0, status: UCT_OK }),
                state: Cell::new(if callback.is_some() { CALLS } else { 0 }),
                key: Cell::new(None),
                first: Cell::new(None),
                more: RefCell::default(),
                room: Room::new(),
                fetched: Cell::new(0),
                callback,
                timer: Cell::new(None),
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

    /// Makes progress until nothing is outstanding, for `limit` at most; then the result. Blocks: polls until there was no event for
    /// [`Worker::SPIN`], then sleeps until the next one. Where an interface of the worker cannot wake it, it polls all the time, as
    /// [`Worker::progress_until`] with [`Completion::is_done`] does everywhere.
    ///
    /// # Errors
    /// [`Error::TIMED_OUT`] while operations are outstanding, which continue; else as [`Completion::result`].
    pub fn wait(&self, limit: Duration) -> Result {
        let worker = Worker::of(&self.inner.worker);
        if worker.wait_or_poll(limit, || self.is_done()) { self.result() } else { Err(Error::TIMED_OUT) }
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

    /// The old value of the last atomic that was [`Fetched::InProgress`], once it has ended without an error.
    #[inline]
    pub fn fetched(&self) -> u64 {
        self.inner.fetched.get()
    }

    /// Where a fetching atomic leaves its result: 8 bytes, of which it may write the first 4.
    #[inline]
    pub(crate) fn cleared_result(&self) -> *mut u64 {
        self.inner.fetched.set(0);
        self.inner.fetched.as_ptr()
    }

    /// Counts an operation that is about to start, and returns the pointer for it.
    #[inline]
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
    #[inline]
    pub(crate) fn begin_alone(&self) -> Result<*mut UctCompletion> {
        if self.is_done() { Ok(self.begin()) } else { Err(Error::BUSY) }
    }

    /// Takes back the count of an operation that was done at once.
    #[inline]
    pub(crate) fn ended_at_once(&self) {
        // SAFETY: as in `outstanding`.
        unsafe { (*self.inner.abi.get()).count -= 1 };
    }

    /// Accounts for the status of an operation. While it is in flight, everything that it uses is held.
    #[inline]
    pub(crate) fn started<I>(
        &self,
        status: i32,
        key: Option<&RemoteKey>,
        held: impl FnOnce() -> I,
    ) -> Result<Posted>
    where
        I: IntoIterator<Item = Held>,
    {
        if status == UCT_INPROGRESS {
            if self.outstanding() > 0 {
                self.hold(key, held());
            }
            return Ok(Posted::InProgress);
        }
        self.ended_at_once();
        Status::from_raw(status).into_result().map(|()| Posted::Done)
    }

    /// As [`Completion::started`] for all operations that were begun behind a first [`Completion::begin`], which stands for the call that
    /// starts them: the completion does not end meanwhile.
    pub(crate) fn started_all(&self, key: &RemoteKey, held: Held, in_flight: bool) -> Posted {
        self.ended_at_once();
        if self.outstanding() > 0 {
            if in_flight {
                self.hold(Some(key), [held]);
            }
            return if in_flight { Posted::InProgress } else { Posted::Done };
        }
        if self.inner.state.get() & HELD == 0 {
            return Posted::Done;
        }
        // The last of earlier operations ended during the call.
        // SAFETY: nothing is outstanding, and this value keeps the completion.
        unsafe { finished(self.inner.abi.get()) };
        Posted::Done
    }

    /// Measures the time of an operation that is in flight, where the interface has histograms.
    #[inline]
    pub(crate) fn measure(&self, posted: Result<Posted>, kind: Kind, histograms: Option<&Rc<Histograms>>) {
        if let Some(histograms) = histograms
            && posted == Ok(Posted::InProgress)
        {
            self.start_timer(kind, histograms);
        }
    }

    /// Measures the time until all operations in flight have ended, unless that is measured already.
    #[cold]
    fn start_timer(&self, kind: Kind, histograms: &Rc<Histograms>) {
        let inner = &*self.inner;
        if !self.is_done() && inner.state.get() & TIMED == 0 {
            inner.timer.set(Some(Timer::start(kind, histograms)));
            inner.state.set(inner.state.get() | TIMED);
        }
    }

    /// Keeps `value` for an operation until it has ended, together with the answer; returns the pointer for the transport.
    #[inline]
    pub(crate) fn own<T: 'static>(&self, value: T) -> (Owned, NonNull<T>) {
        self.inner.room.take(value).unwrap_or_else(Owned::boxed)
    }

    #[inline]
    fn hold(&self, key: Option<&RemoteKey>, held: impl IntoIterator<Item = Held>) {
        let inner = &*self.inner;
        let mut held = held.into_iter();
        if inner.state.get() & HELD != 0 {
            return inner.hold_more(key, &mut held);
        }
        inner.state.set(inner.state.get() | HELD);
        // `finished` lets go of it.
        std::mem::forget(Rc::clone(&self.inner));
        // The places are empty, so there is nothing to drop in them, nor anything to write where there is nothing to hold.
        if let Some(key) = key {
            std::mem::forget(inner.key.replace(Some(Rc::clone(key.shared()))));
        }
        if let Some(first) = held.next() {
            std::mem::forget(inner.first.replace(Some(first)));
        }
        if let Some(second) = held.next() {
            inner.hold_more(None, &mut std::iter::once(second).chain(held));
        }
    }
}

impl Inner {
    /// Holds what an operation uses while others are outstanding, or beyond the first resource.
    #[cold]
    #[inline(never)]
    fn hold_more(&self, key: Option<&RemoteKey>, held: &mut dyn Iterator<Item = Held>) {
        self.state.set(self.state.get() | MORE);
        let mut more = self.more.borrow_mut();
        if let Some(key) = key.map(RemoteKey::shared) {
            // Mostly they all use the same.
            let first = self.key.take();
            if !first.as_ref().is_some_and(|first| Rc::ptr_eq(first, key)) {
                more.push(Held::Key(Rc::clone(key)));
            }
            self.key.set(first);
        }
        more.extend(held);
    }

    /// Calls the callback, which may start operations, and releases what the operations that have ended used.
    fn notify(&self) {
        let (key, first) = (self.key.take(), self.first.take());
        let mut more = self.more.take();
        if let Some(callback) = &self.callback {
            // SAFETY: the completion belongs to this thread, and no reference into the cell is ever held.
            let status = unsafe { (*self.abi.get()).status };
            let result = Status::from_raw(status).into_result();
            self.worker.call_application(|| callback(result));
        }
        // What is released may be the last reference, whose drop runs other code. The room serves the next operations.
        drop(key);
        drop(first);
        more.clear();
        let mut place = self.more.borrow_mut();
        if place.capacity() == 0 {
            *place = more;
        }
    }

    fn stop_timer(&self) {
        // SAFETY: the completion belongs to this thread, and no reference into the cell is ever held.
        let status = unsafe { (*self.abi.get()).status };
        if let Some(timer) = self.timer.take()
            && status == UCT_OK
        {
            timer.stop();
        }
    }

    /// Releases what an operation used. It may be the last reference, whose drop runs other code.
    #[inline]
    fn release(&self) {
        drop(self.key.take());
        // SAFETY: the completion belongs to this thread, and no reference into the cell is kept.
        let has_first = unsafe { (*self.first.as_ptr()).is_some() };
        // An atomic has none: a look costs less than taking it out.
        if has_first {
            drop(self.first.take());
        }
    }
}

/// Called by the transport when the last outstanding operation has ended.
unsafe extern "C" fn finished(completion: *mut UctCompletion) {
    let pointer = completion.cast::<Inner>().cast_const();
    // SAFETY: the completion is alive: `hold` kept it, or the call that started the operation still runs.
    let inner = unsafe { &*pointer };
    if inner.state.get() != HELD {
        // SAFETY: as above.
        return unsafe { finished_otherwise(pointer) };
    }
    inner.state.set(0);
    inner.release();
    // SAFETY: this gives up the reference that `hold` forgot.
    unsafe { Rc::decrement_strong_count(pointer) };
}

/// As [`finished`], where operations use more than one thing, there is a callback, or nothing is held.
///
/// # Safety
/// The completion is alive.
#[cold]
#[inline(never)]
unsafe fn finished_otherwise(pointer: *const Inner) {
    // SAFETY: the caller's promise.
    let inner = unsafe { &*pointer };
    let state = inner.state.replace(inner.state.get() & CALLS);
    if state & HELD == 0 {
        // SAFETY: as above.
        unsafe { Rc::increment_strong_count(pointer) };
    }
    // SAFETY: this takes the reference just added, or the one that `hold` forgot.
    let inner = unsafe { Rc::from_raw(pointer) };
    if state & TIMED != 0 {
        inner.stop_timer();
    }
    if state & (MORE | CALLS) != 0 { inner.notify() } else { inner.release() }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("outstanding", &self.outstanding())
            .field("result", &self.result())
            .finish()
    }
}

/// Starts a flush or a check of an endpoint or interface, with or without a completion.
pub(crate) fn flushed(
    histograms: Option<&Rc<Histograms>>,
    completion: Option<&Completion>,
    slot: impl FnOnce(*mut uct_abi::UctCompletion) -> UctStatus,
) -> Result<Posted> {
    match completion {
        Some(completion) => {
            let status = slot(completion.begin());
            let posted = completion.started(status, None, std::iter::empty);
            completion.measure(posted, Kind::Flush, histograms);
            posted
        }
        None => match slot(std::ptr::null_mut()) {
            uct_abi::UCT_INPROGRESS => Ok(Posted::InProgress),
            status => Status::from_raw(status).into_result().map(|()| Posted::Done),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Sources;
    use crate::context::Context;

    fn worker() -> Worker {
        let context = Context::builder().sources(Sources::default()).build().unwrap();
        Worker::new(&context).unwrap()
    }

    #[test]
    fn what_an_operation_owns_is_dropped_once_wherever_it_lies() {
        let counted = Rc::new(());
        let completion = Completion::new(&worker());
        let (first, room) = completion.own(Rc::clone(&counted));
        let (second, elsewhere) = completion.own(Rc::clone(&counted));
        let (large, _) = completion.own((Rc::clone(&counted), [0u64; 2 * Room::WORDS]));
        assert_ne!(room, elsewhere);
        assert_eq!(Rc::strong_count(&counted), 4);
        for (owned, left) in [(second, 3), (first, 2), (large, 1)] {
            drop(owned);
            assert_eq!(Rc::strong_count(&counted), left);
        }
        let (again, place) = completion.own(Rc::clone(&counted));
        assert_eq!(place, room, "the room serves again");
        drop(again);
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn the_old_value_of_an_atomic_is_what_it_returned_or_what_its_completion_has() {
        let worker = worker();
        let completion = Completion::new(&worker);
        assert_eq!(Fetched::Done(7).wait(&completion, Duration::ZERO), Ok(7));
        let begun = completion.begin();
        let started = completion.started(uct_abi::UCT_INPROGRESS, None, std::iter::empty);
        assert_eq!(started, Ok(Posted::InProgress));
        assert_eq!(Fetched::InProgress.wait(&completion, Duration::ZERO), Err(Error::TIMED_OUT));
        completion.inner.fetched.set(9);
        // SAFETY: the completion is alive, and this thread's.
        unsafe { (*begun).count = 0 };
        // SAFETY: the last operation has ended.
        unsafe { finished(begun) };
        assert_eq!(Fetched::InProgress.wait(&completion, Duration::ZERO), Ok(9));
    }

    #[test]
    fn the_room_takes_one_value_of_six_words_at_most() {
        #[repr(align(16))]
        struct Aligned(#[expect(dead_code, reason = "its size counts")] u64);

        let room = Room::new();
        let (words, place) = room.take([7u64; 6]).expect("it fits");
        assert!(room.take(()).is_err(), "the room is taken");
        // SAFETY: the place has the value until its owner is dropped.
        assert_eq!(unsafe { place.read() }, [7; 6]);
        drop(words);
        assert!(room.take([7u8; 48]).is_ok(), "the room is free again");
        assert!(room.take([7u64; 7]).is_err());
        assert!(room.take([7u8; 49]).is_err());
        assert!(room.take(Aligned(7)).is_err(), "the room is aligned to words");
        assert!(room.take(7u64).is_ok(), "what does not fit takes no room");
    }

    #[test]
    fn what_operations_use_is_held_until_the_last_has_ended_the_callback_included() {
        for operations in 1..4 {
            let worker = worker();
            let counted = Rc::new(());
            let called = Rc::new(Cell::new(0));
            let (own, times) = (Rc::clone(&counted), Rc::clone(&called));
            for completion in [
                Completion::new(&worker),
                Completion::with_callback(&worker, move |_| {
                    assert!(Rc::strong_count(&own) > 2);
                    times.set(times.get() + 1);
                }),
            ] {
                let others = Rc::strong_count(&counted);
                let begun = completion.begin();
                (1..operations).for_each(|_| assert_eq!(completion.begin(), begun));
                for _ in 0..operations {
                    let held = || [0; 2].map(|_| Held::Unpack(completion.own(Rc::clone(&counted)).0));
                    let posted = completion.started(uct_abi::UCT_INPROGRESS, None, held);
                    assert_eq!(posted, Ok(Posted::InProgress));
                }
                assert_eq!(Rc::strong_count(&counted), others + 2 * operations);
                assert_eq!(Rc::strong_count(&completion.inner), 2, "outstanding operations keep it");
                // SAFETY: the completion is alive, and this thread's.
                unsafe { (*begun).count = 0 };
                // SAFETY: the last operation has ended.
                unsafe { finished(begun) };
                assert_eq!(Rc::strong_count(&counted), others);
                assert_eq!(Rc::strong_count(&completion.inner), 1);
            }
            assert_eq!(called.get(), 1);
        }
    }

    #[test]
    fn the_status_of_an_atomic_says_whether_its_old_value_is_there() {
        let completion = Completion::new(&worker());
        let result = completion.cleared_result();
        // SAFETY: the completion is alive, and this thread's.
        unsafe { *result = 5 };
        assert_eq!(Fetched::of(UCT_OK, &completion), Ok(Fetched::Done(5)));
        assert_eq!(Fetched::of(UCT_INPROGRESS, &completion), Ok(Fetched::InProgress));
        assert_eq!(Fetched::of(uct_abi::UCT_ERR_NO_RESOURCE, &completion), Err(Error::NO_RESOURCE));
        assert_eq!(completion.cleared_result(), result);
        assert_eq!(completion.fetched(), 0, "of four bytes the others are zero");
    }

    #[test]
    fn an_error_stays_until_it_is_forgotten_which_an_outstanding_operation_forbids() {
        let completion = Completion::new(&worker());
        assert_eq!(completion.result(), Ok(()));
        let begun = completion.begin_alone().expect("nothing is outstanding");
        assert_eq!(completion.outstanding(), 1);
        assert_eq!(completion.begin_alone(), Err(Error::BUSY));
        // SAFETY: the completion is alive, and this thread's.
        unsafe { (*begun).status = uct_abi::UCT_ERR_NO_MEMORY };
        assert_eq!(completion.reset(), Err(Error::BUSY));
        completion.ended_at_once();
        assert_eq!(completion.result(), Err(Error::NO_MEMORY));
        assert_eq!(completion.wait(Duration::ZERO), Err(Error::NO_MEMORY));
        assert_eq!(completion.reset(), Ok(()));
        assert_eq!(completion.result(), Ok(()));
    }

    #[test]
    fn an_operation_that_ended_while_it_was_started_holds_nothing() {
        let completion = Completion::new(&worker());
        let begun = completion.begin();
        // SAFETY: the completion is alive, and this thread's.
        unsafe { (*begun).count = 0 };
        let counted = Rc::new(());
        let held = || [Held::Unpack(completion.own(Rc::clone(&counted)).0)];
        assert_eq!(completion.started(UCT_INPROGRESS, None, held), Ok(Posted::InProgress));
        assert_eq!((Rc::strong_count(&completion.inner), Rc::strong_count(&counted)), (1, 1));
    }

    #[test]
    fn each_key_of_outstanding_operations_is_held_once_and_the_list_for_them_serves_again() {
        let worker = worker();
        let iface = worker.open("self", "memory").unwrap();
        let memory = iface.memory_domain().register(vec![0; 8], crate::Access::ALL).unwrap();
        let packed = memory.packed_key().unwrap();
        let [one, other] = [0, 1].map(|_| iface.memory_domain().unpack(&packed).unwrap());
        let completion = Completion::new(&worker);
        for _ in 0..2 {
            let begun = completion.begin();
            (0..3).for_each(|_| assert_eq!(completion.begin(), begun));
            for key in [&one, &one, &other, &one] {
                let started = completion.started(UCT_INPROGRESS, Some(key), std::iter::empty);
                assert_eq!(started, Ok(Posted::InProgress));
            }
            assert_eq!([&one, &other].map(|key| Rc::strong_count(key.shared())), [2, 2]);
            // SAFETY: the completion is alive, and this thread's.
            unsafe { (*begun).count = 0 };
            // SAFETY: the last operation has ended.
            unsafe { finished(begun) };
            assert_eq!([&one, &other].map(|key| Rc::strong_count(key.shared())), [1, 1]);
            assert!(completion.inner.more.borrow().capacity() > 0);
        }
    }
}
