//! The state under the lock, the thread that holds the lock, and what drives the engine while the lock is free.
//!
//! A thread that uses a handle takes the lock, does its work in place and leaves. When the lock is free, one of two things holds: some
//! thread is awake that will take it again by itself, or everything is armed and a thread sleeps on the engine's descriptor. So
//! nothing is missed, and an idle engine costs nothing.

#![expect(unsafe_code, reason = "what is not Send moves between threads under a lock")]

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use ucs::memory::fork::{ForkGuard, Forked};
use ucs::pending_work::{PendingWork, WorkSource};
use uct_host::{Context, Iface};

use super::doorbell::Doorbell;
use super::held::Held;
use super::jobs::Jobs;
use super::lock::lock;
use super::outside::Outside;
use super::polls::Polls;
use super::sleeper::Sleepers;
use crate::error::{Error, Result, Stage};
use crate::local::net::{Net, NetHandle};
use crate::options::{NetOptions, Wait};

/// How often a thread that is about to rest makes progress, if it cannot arm since there is something to do.
const TURNS_TO_REST: u32 = 4;
/// How much later than its time a timer may come.
const SLACK: Duration = Duration::from_micros(20);
/// How long the last handle waits until the rest was sent and the thread has ended.
const CLOSING: Duration = Duration::from_secs(3);

thread_local! {
    /// The core that this thread was started for; null if none.
    static OWN: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// The net, its lock, and what wakes the threads that sleep for it.
pub(crate) struct Core {
    state: Mutex<State>,
    /// Empty while any thread may take the lock. It has the bit of its owner if a transport is bound to the driver's thread, and a child of
    /// a fork, where another thread may have held the lock, finds it wiped.
    restricted: PendingWork,
    fork: ForkGuard,
    /// What other threads have the driver's thread do, if a transport is bound to it.
    pub(super) jobs: Option<Jobs>,
    /// Notified when the driver's thread has to drive, or to end.
    pub(super) stand_in: Condvar,
    pub(super) outside: Arc<Outside>,
    /// Values whose handles were dropped while another thread had the lock.
    gone: Mutex<Vec<Box<dyn Gone>>>,
    has_gone: AtomicBool,
    /// Readable when an armed engine has something to do.
    fd: OwnedFd,
    /// Wakes a thread that sleeps on the descriptor, or the driver's task.
    pub(super) doorbell: Doorbell,
    /// For threads in `block_on`.
    pub(super) sleepers: Sleepers,
    pub(super) wait: Wait,
    /// How often a thread has entered that comes again soon ([`Inside::note_poll`]). Written under the lock.
    polls: AtomicU64,
    /// No such thread comes for now.
    is_handed_over: AtomicBool,
    /// How often a thread has begun to drive in `block_on` since the last one that handed over. Written under the lock.
    calls: AtomicU64,
    /// A socket is ready; the thread that polls looks at them.
    is_look_due: AtomicBool,
    /// A task drives it, and no thread does.
    #[cfg(feature = "tokio")]
    is_in_task: AtomicBool,
    is_closing: AtomicBool,
    ended: Mutex<bool>,
    has_ended: Condvar,
}

trait Gone: Send {}
impl<T> Gone for Held<T> {}

struct State {
    net: Option<Held<NetHandle>>,
    hooks: Held<Vec<Weak<dyn Hook>>>,
    duty: Duty,
}

/// What takes part in each turn.
pub(super) trait Hook {
    /// Does what is due. Returns whether there was anything.
    fn turn(&self) -> bool;

    /// Whether there is something to do before a thread may sleep.
    fn is_due(&self) -> bool;
}

/// What drives the engine while the lock is free.
#[derive(Default)]
pub(super) struct Duty {
    /// Threads inside `block_on`: the driver's thread stands aside for them.
    pub(super) foreground: u32,
    /// The driver's thread waits until there is none.
    is_aside: bool,
    /// Threads that take the lock again at once.
    pub(super) spinning: u32,
    /// The driver's thread sleeps for a moment only.
    pub(super) is_napping: bool,
    /// A sleeping thread was woken and has not come yet.
    pub(super) is_roused: bool,
    /// When the thread that sleeps longest by right wakes by itself; `None`: never.
    pub(super) wakes_at: Option<Instant>,
    /// How often handles have used the engine.
    pub(super) uses: u64,
    /// The driver's task, while threads inside `block_on` take its place.
    #[cfg(feature = "tokio")]
    pub(super) aside: Option<std::task::Waker>,
}

impl State {
    #[inline(never)]
    fn run_hooks(&mut self) -> bool {
        let mut is_busy = false;
        self.hooks.get_mut().retain(|hook| {
            let hook = hook.upgrade();
            is_busy |= hook.as_ref().is_some_and(|hook| hook.turn());
            hook.is_some()
        });
        is_busy
    }
}

impl Core {
    /// Opens a net. The calling thread drives it; it is the only one to use it if a transport is bound to a thread, or `is_bound`.
    pub(super) fn open(context: &Context, options: NetOptions, is_bound: bool) -> Result<Arc<Core>> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(Stage::Choose, "this process", ucs::Error::IO_ERROR, error.to_string())
        };
        let wait = options.wait;
        let net = Net::new(context, options)?;
        let is_bound = is_bound || !net.ifaces().iter().all(Iface::is_for_any_thread);
        let net = net.inner;
        let fd = net.reactor.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let doorbell = Doorbell::new().map_err(|error| failed(&error))?;
        let sleepers = Sleepers::new().map_err(|error| failed(&error))?;
        // SAFETY: the worker was made a moment ago, and no other object has a part of it. From here on all is used under the lock of the
        // core: what leaves it is `Send` or `Confined`. Connection managers are for any thread (`UctCmOps`). Either no transport is
        // bound to a thread, or there are `jobs`: then this thread alone takes the lock (`Engine::enter`, `Core::try_enter`).
        let net = unsafe { Held::new(net) };
        // SAFETY: hooks are used and dropped under the lock alone, as what makes them promises (`Installed::new`).
        let hooks = unsafe { Held::new(Vec::new()) };
        let restricted = PendingWork::new();
        if is_bound {
            restricted.add(WorkSource::Owner);
        }
        Ok(Arc::new(Core {
            state: Mutex::new(State { net: Some(net), hooks, duty: Duty::default() }),
            restricted,
            fork: ForkGuard::new(),
            jobs: is_bound.then(Jobs::default),
            stand_in: Condvar::new(),
            outside: Outside::new(),
            gone: Mutex::default(),
            has_gone: AtomicBool::new(false),
            fd,
            doorbell,
            sleepers,
            wait,
            polls: AtomicU64::new(0),
            is_handed_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            is_look_due: AtomicBool::new(false),
            #[cfg(feature = "tokio")]
            is_in_task: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            ended: Mutex::new(false),
            has_ended: Condvar::new(),
        }))
    }

    /// Whether any thread may take the lock.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.restricted.is_empty()
    }

    /// Whether this is the process that opened the net, and not a child of a fork, which must not take the lock.
    pub(super) fn check_fork(&self) -> std::result::Result<(), Forked> {
        self.fork.check()
    }

    #[inline]
    pub(super) fn enter(&self) -> Inside<'_> {
        let state = lock(&self.state);
        self.entered(state)
    }

    pub(super) fn try_enter(&self) -> Option<Inside<'_>> {
        if !self.is_open() && !self.may_enter() {
            return None;
        }
        match self.state.try_lock() {
            Ok(state) => Some(self.entered(state)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.entered(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether this thread may take the lock though not any may.
    #[cold]
    fn may_enter(&self) -> bool {
        self.check_fork().is_ok() && (self.jobs.is_none() || self.is_own_thread())
    }

    #[inline]
    fn entered<'a>(&'a self, state: MutexGuard<'a, State>) -> Inside<'a> {
        self.outside.enter();
        Inside { core: self, state: Some(state), leaves: Leaves::Used }
    }

    /// Waits until a thread has stopped to drive in the foreground. Another one may have begun by then.
    pub(super) fn wait_until_needed(&self) {
        let mut state = lock(&self.state);
        if state.duty.foreground > 0 && !self.is_closing() {
            state.duty.is_aside = true;
            state = self.stand_in.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.duty.is_aside = false;
        }
    }

    /// The calling thread is the driver's from now on.
    pub(super) fn become_own_thread(&self) {
        OWN.set(self);
    }

    pub(super) fn is_own_thread(&self) -> bool {
        std::ptr::eq(OWN.get(), self)
    }

    /// Drops what others have left for a thread with the lock.
    #[cold]
    fn drop_gone(&self) {
        // SYNC: pairs with `discard`; what is put there meanwhile raises it again.
        self.has_gone.store(false, Ordering::Relaxed);
        let gone = std::mem::take(&mut *lock(&self.gone));
        drop(gone);
    }

    /// Drops a value under the lock: now, or when the thread that has the lock leaves.
    pub(super) fn discard<T: 'static>(&self, value: Held<T>) {
        if let Some(inside) = self.try_enter() {
            drop(value);
            return drop(inside);
        }
        if self.check_fork().is_err() {
            return self.discard_in_child(value);
        }
        lock(&self.gone).push(Box::new(value));
        // SYNC: the doorbell below wakes a thread that checks the flag.
        self.has_gone.store(true, Ordering::Release);
        self.doorbell.ring();
    }

    /// Drops a value in a child of a fork, which closes its copies of descriptors and changes nothing for the parent. What another thread
    /// may have been changing is left as it is.
    fn discard_in_child<T: 'static>(&self, value: Held<T>) {
        match self.state.try_lock() {
            Ok(_state) if self.jobs.is_none() => drop(value),
            _ => std::mem::forget(value),
        }
    }

    /// Ends the driver's thread, and waits until what was sent last has gone out. No handle is left.
    pub(super) fn close(&self) {
        if self.check_fork().is_err() {
            // That thread is the parent's.
            return;
        }
        // SYNC: pairs with `is_closing` of the driver's thread, which is woken for it.
        self.is_closing.store(true, Ordering::Release);
        self.doorbell.ring();
        #[cfg(feature = "tokio")]
        if self.is_in_task() {
            // The task sends the rest: this thread may be the one that runs it.
            return;
        }
        // The driver's thread itself gets here from a waker that it wakes. A thread that is inside has the lock, which that one needs.
        if self.is_own_thread() || self.outside.is_inside() {
            return;
        }
        let ended = lock(&self.ended);
        let waiting = self.has_ended.wait_timeout_while(ended, CLOSING, |has_ended| !*has_ended);
        drop(waiting);
    }

    /// Whether a task drives it.
    #[cfg(feature = "tokio")]
    fn is_in_task(&self) -> bool {
        // SYNC: pairs with `set_in_task`. A stale value costs a handle that is dropped a wait, or its wait.
        self.is_in_task.load(Ordering::Acquire)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn set_in_task(&self, is_in_task: bool) {
        // SYNC: pairs with `is_in_task`.
        self.is_in_task.store(is_in_task, Ordering::Release);
    }

    pub(super) fn is_closing(&self) -> bool {
        // SYNC: pairs with `close`.
        self.is_closing.load(Ordering::Acquire)
    }

    /// How often a thread has entered that comes again soon.
    pub(super) fn polls(&self) -> u64 {
        // SYNC: one that is missed is seen after the next nap.
        self.polls.load(Ordering::Relaxed)
    }

    /// How often a thread has begun to drive in `block_on` since the last one that handed over.
    pub(super) fn calls(&self) -> u64 {
        // SYNC: as in `polls`.
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether threads begin to drive in `block_on` so often that it costs them more to have the driver's thread woken between two calls than that
    /// brings.
    pub(super) fn is_called(&self, calls: &mut Polls) -> bool {
        calls.are_often(self.calls(), Instant::now)
    }

    /// Whether threads that come again soon enter often, and none says that it stops.
    pub(super) fn is_polled(&self, polls: &mut Polls) -> bool {
        // SYNC: as there; a thread that hands over rings the doorbell as well.
        polls.are_often(self.polls(), Instant::now) && !self.is_handed_over.load(Ordering::Relaxed)
    }

    /// Has the thread that polls look at the sockets.
    pub(super) fn request_look(&self) {
        // SYNC: one that is missed is made after the next nap.
        self.is_look_due.store(true, Ordering::Relaxed);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn has_ended(&self) {
        *lock(&self.ended) = true;
        self.has_ended.notify_all();
    }
}

/// How a thread leaves the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// It has used it: what was armed may be armed no more.
    Used,
    /// Everything is armed.
    Armed,
    /// It comes back by itself.
    Returns,
}

/// A thread that holds the engine's lock.
pub(crate) struct Inside<'a> {
    core: &'a Core,
    state: Option<MutexGuard<'a, State>>,
    leaves: Leaves,
}

impl Inside<'_> {
    pub(super) fn duty(&self) -> &Duty {
        &self.state.as_ref().expect("held until it leaves").duty
    }

    #[inline]
    pub(super) fn duty_mut(&mut self) -> &mut Duty {
        &mut self.state.as_mut().expect("held until it leaves").duty
    }

    /// The thread is awake from now on, and comes back by itself.
    pub(super) fn begin(&mut self) {
        let duty = self.duty_mut();
        duty.spinning += 1;
        duty.is_roused = false;
        self.leaves = Leaves::Returns;
    }

    /// As [`Inside::begin`], after a nap.
    pub(super) fn end_nap(&mut self) {
        self.duty_mut().is_napping = false;
        self.begin();
    }

    /// The thread drives in `block_on` from now on.
    pub(super) fn begin_call(&mut self) {
        self.duty_mut().foreground += 1;
        self.begin();
        // SYNC: written under the lock alone, and read by the driver's thread at any time.
        self.core.calls.store(self.core.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.take_back();
    }

    /// The thread leaves `block_on`. Returns whether the driver's thread waits for that.
    pub(super) fn end_call(&mut self) -> bool {
        let duty = self.duty_mut();
        duty.foreground -= 1;
        let is_awaited = duty.foreground == 0 && std::mem::take(&mut duty.is_aside);
        self.end();
        is_awaited
    }

    /// The thread does not come back by itself any more.
    pub(super) fn end(&mut self) {
        self.duty_mut().spinning -= 1;
        self.leaves = Leaves::Used;
    }

    pub(crate) fn net(&self) -> &NetHandle {
        let state = self.state.as_ref().expect("held until it leaves");
        state.net.as_ref().expect("open while a handle is held").get()
    }

    /// Progress. Returns whether there was anything.
    pub(crate) fn turn(&mut self) -> bool {
        self.net().turn() | self.run_hooks()
    }

    /// As [`Inside::turn`], of a thread that polls: it looks at sockets only when the driver's thread has found one ready.
    pub(super) fn turn_without_looks(&mut self) -> bool {
        // SYNC: as in `request_look`. The flag is mostly down, and a load is cheaper than a swap.
        let is_due = self.core.is_look_due.load(Ordering::Relaxed);
        if is_due {
            // SYNC: as above.
            self.core.is_look_due.store(false, Ordering::Relaxed);
        }
        self.net().turn_looking(is_due) | self.run_hooks()
    }

    #[inline]
    fn run_hooks(&mut self) -> bool {
        let state = self.state.as_mut().expect("held until it leaves");
        !state.hooks.get().is_empty() && state.run_hooks()
    }

    pub(super) fn add_hook(&mut self, hook: Weak<dyn Hook>) {
        self.state.as_mut().expect("held until it leaves").hooks.get_mut().push(hook);
    }

    /// The caller comes again soon: the driver's thread leaves the engine to it.
    pub(super) fn note_poll(&mut self) {
        // SYNC: written under the lock alone, and read by the driver's thread at any time.
        self.core.polls.store(self.core.polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.take_back();
    }

    /// There is a caller that comes again soon.
    fn take_back(&self) {
        // SYNC: written under the lock. Mostly it is false, and a load is cheaper than a store.
        if self.core.is_handed_over.load(Ordering::Relaxed) {
            // SYNC: as above.
            self.core.is_handed_over.store(false, Ordering::Relaxed);
        }
    }

    /// No caller comes again soon: the driver's thread takes over at once.
    pub(super) fn hand_over(&mut self) {
        // SYNC: ahead of the doorbell, which this thread rings when it leaves.
        self.core.is_handed_over.store(true, Ordering::Relaxed);
        // SYNC: as above.
        self.core.calls.store(0, Ordering::Relaxed);
        self.duty_mut().is_napping = false;
    }

    /// Wakes those whose sockets and timers are due. Returns whether there was anything.
    pub(super) fn look_at_sockets(&mut self) -> bool {
        self.net().reactor.look()
    }

    /// Whether a thread is awake that makes progress all the time.
    pub(super) fn is_driven(&self) -> bool {
        self.duty().spinning > 0
    }

    /// The caller comes back at once.
    pub(super) fn returns(&mut self) {
        self.leaves = Leaves::Returns;
    }

    /// The caller has something pending and is about to wait: arms everything, unless a thread is awake anyway.
    pub(crate) fn rest(&mut self) {
        if self.is_driven() {
            return;
        }
        for _ in 0..TURNS_TO_REST {
            if self.arm() {
                return;
            }
            self.turn();
        }
    }

    /// Arms everything; false if there is something to do first.
    pub(super) fn arm(&mut self) -> bool {
        if !self.net().prepare_to_sleep() || self.has_due_hook() {
            return false;
        }
        self.leaves = Leaves::Armed;
        true
    }

    fn has_due_hook(&self) -> bool {
        let state = self.state.as_ref().expect("held until it leaves");
        state.hooks.get().iter().any(|hook| hook.upgrade().is_some_and(|hook| hook.is_due()))
    }

    /// The driver's thread naps from now on, while others poll. False if the last one has handed over meanwhile.
    pub(super) fn nap(&mut self) -> bool {
        self.leaves = Leaves::Returns;
        // SYNC: written under the lock, which this thread has.
        if self.core.is_handed_over.load(Ordering::Relaxed) {
            return false;
        }
        let duty = self.duty_mut();
        duty.spinning -= 1;
        duty.is_roused = false;
        duty.is_napping = true;
        true
    }

    /// When a thread that sleeps has to wake by itself.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let net = self.net();
        let limit = net.longest_sleep();
        let limit = (limit < Duration::MAX).then(|| Instant::now() + limit);
        net.reactor.first_timer().into_iter().chain(limit).min()
    }

    /// Whether all that was sent on connections without a handle has arrived.
    #[cfg(feature = "tokio")]
    pub(super) fn is_quiet(&self) -> bool {
        // SYNC: pairs with `discard`: a connection may be about to be dropped.
        !self.core.has_gone.load(Ordering::Acquire) && self.net().is_quiet()
    }

    /// Takes the net out, to end it.
    pub(super) fn take_net(&mut self) -> Option<Held<NetHandle>> {
        self.leaves = Leaves::Returns;
        self.state.as_mut().expect("held until it leaves").net.take()
    }

    /// Whether a thread has to be woken for what this one leaves.
    #[inline]
    fn unlock(&mut self, must_rouse: bool) {
        drop(self.state.take());
        if must_rouse {
            self.core.doorbell.ring();
        }
    }

    /// As [`Inside::unlock`], and then what only a thread without the lock may do.
    #[inline(never)]
    fn unlock_and_wake(&mut self, must_rouse: bool) {
        let left = self.core.outside.take_left();
        self.unlock(must_rouse);
        left.run(&self.core.outside);
    }

    fn must_rouse(&self) -> bool {
        let duty = self.duty();
        if duty.spinning > 0 || duty.is_roused || self.leaves == Leaves::Returns {
            return false;
        }
        match self.leaves {
            Leaves::Armed => {
                // A timer that is earlier than the sleeper knows.
                let first = self.alarm();
                first.is_some_and(|first| duty.wakes_at.is_none_or(|wakes| first + SLACK < wakes))
            }
            _ => !duty.is_napping,
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SYNC: pairs with `discard`, which also wakes a thread that comes here.
        if self.core.has_gone.load(Ordering::Acquire) {
            self.core.drop_gone();
        }
        let must_rouse = self.state.as_ref().is_some_and(|state| state.net.is_some()) && self.must_rouse();
        if must_rouse {
            self.duty_mut().is_roused = true;
        }
        match self.core.outside.leave() {
            false => self.unlock(must_rouse),
            true => self.unlock_and_wake(must_rouse),
        }
    }
}
