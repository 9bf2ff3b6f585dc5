//! Threads that drive the engine: one of its own, and those in `block_on`, for which that one stands aside.

use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use ucs::event_set::EventFd;

use super::core::Core;
use super::jobs::Jobs;
use super::polls::{OFTEN, Polls};
use super::sleeper::wait_for;
use crate::error::{Error, Result, Stage};
use crate::local::net::Idle;
use crate::local::reactor::CHILD_SLEEP;
use crate::options::{NetOptions, Wait};

/// How long the driver's thread sleeps at most while handles use the engine: each use may take back what was armed. Also the time from one
/// `block_on` to the next up to which it leaves the engine to these calls.
const NAP: Duration = Duration::from_micros(100);
/// How long it sleeps at a time while another thread polls: at first, and at most.
const POLLED_NAP: Duration = Duration::from_millis(1);
const LONG_NAP: Duration = Duration::from_millis(2);
/// Enough for progress and for wakers of a runtime.
const STACK_SIZE: usize = 1 << 20;

/// Starts a thread that opens a net and drives it.
pub(super) fn start(context: uct_host::Context, options: NetOptions, is_bound: bool) -> Result<Arc<Core>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        let core = match Core::open(&context, options, is_bound) {
            Ok(core) => core,
            Err(error) => return drop(sender.send(Err(error))),
        };
        core.become_own_thread();
        // No other thread has it yet: it is awake when the first handle is used.
        core.enter().begin();
        drop(sender.send(Ok(Arc::clone(&core))));
        drive(&core);
        finish(&core);
    };
    let failed = |reason: String| Error::new(Stage::Choose, "this process", ucs::Error::IO_ERROR, reason);
    thread().spawn(run).map_err(|error| failed(format!("no thread to drive it: {error}")))?;
    receiver.recv().unwrap_or_else(|_gone| Err(failed("its thread panicked".to_owned())))
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("uct-net".to_owned()).stack_size(STACK_SIZE)
}

/// Ends the net. What was sent last goes out here: dropping the net drives it.
pub(super) fn finish(core: &Core) {
    let net = core.enter().take_net();
    drop(net);
    core.has_ended();
}

/// A thread drives from now on, in place of a task that has ended; the task counts as awake.
#[cfg(feature = "tokio")]
pub(super) fn take_over(core: &Arc<Core>) {
    let own = Arc::clone(core);
    let run = move || {
        own.become_own_thread();
        drive(&own);
        finish(&own);
    };
    if let Err(error) = thread().spawn(run) {
        ucs::log::error!("no thread drives the net whose tokio runtime has ended: {error}");
    }
}

/// Who makes a pass.
pub(super) enum Driver<'a> {
    /// A thread in `block_on`.
    Foreground,
    /// The engine's own thread, and how often it saw handles use the engine.
    Thread(&'a mut u64),
    /// A task of a runtime.
    #[cfg(feature = "tokio")]
    Task(&'a Waker),
}

/// What to do next.
pub(super) enum Step {
    /// There was something to do.
    Busy,
    /// There was nothing to do, and it is too early to sleep.
    Early,
    /// Everything is armed, or another thread is awake: until then, if it says when.
    Sleep(Option<Instant>),
    /// Another thread drives in the foreground.
    Aside,
}

fn drive(core: &Core) {
    let mut idle = Idle::new(core.wait);
    let now = Instant::now();
    let (mut polls, mut calls) = (Polls::new(core.polls(), now, OFTEN), Polls::new(core.calls(), now, NAP));
    let mut uses = 0;
    while !core.is_closing() {
        if core.jobs.as_ref().is_some_and(Jobs::work) {
            idle.reset();
        }
        let mut is_served = || core.is_polled(&mut polls) || core.is_called(&mut calls);
        if is_served() && core.enter().nap() {
            stand_by(core, None, is_served);
            core.enter().end_nap();
            idle.reset();
            continue;
        }
        match core.step(&mut idle, Driver::Thread(&mut uses)) {
            Step::Busy | Step::Early => std::hint::spin_loop(),
            Step::Sleep(until) => {
                sleep(core, None, until);
                core.enter().end_nap();
            }
            Step::Aside => {
                core.wait_until_needed();
                core.enter().begin();
                idle.reset();
            }
        }
    }
}

/// Naps while others poll or drive: until that stops, the doorbell is rung, or the thread is woken. It takes no lock meanwhile. The thread
/// does not count as awake meanwhile ([`Inside::nap`](super::core::Inside::nap)).
fn stand_by(core: &Core, own: Option<&EventFd>, mut is_served: impl FnMut() -> bool) {
    let mut nap = POLLED_NAP;
    loop {
        let is_rung = is_ready([Some(core.doorbell.as_fd()), own.map(AsFd::as_fd)], nap);
        nap = LONG_NAP;
        if is_rung || !is_served() {
            break;
        }
        if is_ready([Some(core.fd()), None], Duration::ZERO) {
            core.request_look();
        }
    }
    core.doorbell.drain();
    if let Some(own) = own {
        own.drain();
    }
}

/// Whether one of the descriptors is readable, within this time.
fn is_ready(fds: [Option<BorrowedFd<'_>>; 2], limit: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let limit = Timespec::try_from(limit).ok();
    let mut watched: SmallVec<[PollFd<'_>; 2]> =
        fds.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // An interruption ends the nap: the caller looks and naps again.
    poll(&mut watched, limit.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Sleeps until the engine has something to do, the thread is woken, or it is time.
fn sleep(core: &Core, own: Option<&EventFd>, until: Option<Instant>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let (engine, doorbell) = (core.fd(), core.doorbell.as_fd());
    let own_fd = own.map_or(doorbell, AsFd::as_fd);
    let mut watched = [engine, doorbell, own_fd].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // An interruption ends the sleep: the caller looks and sleeps again.
    let _ = poll(&mut watched, limit.as_ref());
    let [_, is_rung, is_woken] = watched.map(|fd| !fd.revents().is_empty());
    if is_rung {
        core.doorbell.drain();
    }
    if let Some(own) = own.filter(|_| is_woken) {
        own.drain();
    }
}

impl Core {
    /// One pass. Afterwards a driver that is to sleep does not count as awake any more.
    pub(super) fn step(&self, idle: &mut Idle, driver: Driver<'_>) -> Step {
        let mut entered = self.enter();
        if !matches!(driver, Driver::Foreground) && entered.duty().foreground > 0 {
            #[cfg(feature = "tokio")]
            if let Driver::Task(task) = driver {
                entered.duty_mut().aside = Some(task.clone());
            }
            entered.end();
            return Step::Aside;
        }
        if entered.turn() {
            idle.is_busy(entered.net());
            entered.returns();
            return Step::Busy;
        }
        if !idle.is_over(entered.net()) {
            entered.returns();
            return Step::Early;
        }
        let is_last = entered.duty().spinning == 1;
        if entered.look_at_sockets() || is_last && !entered.arm() {
            entered.returns();
            return Step::Busy;
        }
        let mut until = entered.alarm();
        let duty = entered.duty_mut();
        duty.spinning -= 1;
        duty.wakes_at = until;
        match driver {
            Driver::Thread(uses) => {
                if std::mem::replace(uses, duty.uses) != duty.uses {
                    duty.is_napping = true;
                    let nap = Instant::now() + NAP;
                    until = Some(until.map_or(nap, |until| until.min(nap)));
                }
            }
            // It is woken for each use that takes back what was armed: in a runtime that costs less than a thread's sleep.
            #[cfg(feature = "tokio")]
            Driver::Task(task) => self.doorbell.set_task(Some(task.clone())),
            Driver::Foreground => {}
        }
        // It is armed, or another thread is awake.
        entered.returns();
        Step::Sleep(until)
    }
}

/// Drives until the future is ready.
pub(super) fn block_on<F: Future>(core: &Core, future: F) -> F::Output {
    let mut future = pin!(future);
    if core.check_fork().is_err() {
        return block_on_in_child(future);
    }
    let thread = core.sleepers.take();
    let waker = thread.waker();
    let mut context = Context::from_waker(&waker);
    let mut foreground = None;
    let (mut idle, mut polls) = (Idle::new(core.wait), Polls::new(core.polls(), Instant::now(), OFTEN));
    loop {
        if thread.take() {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            idle.reset();
        }
        if !core.is_open() {
            if core.check_fork().is_err() {
                return block_on_in_child(future);
            }
            if core.jobs.is_some() {
                thread.sleep(None, |own, _until| wait_for(own));
                continue;
            }
        }
        // A future that is ready at once needs no driver.
        foreground.get_or_insert_with(|| Foreground::new(core));
        if core.wait != Wait::Spin && core.is_polled(&mut polls) && core.enter().nap() {
            thread.sleep(None, |own, _until| match own {
                Some(_) => stand_by(core, own, || core.is_polled(&mut polls)),
                None => std::thread::sleep(POLLED_NAP),
            });
            core.enter().end_nap();
            continue;
        }
        if let Step::Sleep(until) = core.step(&mut idle, Driver::Foreground) {
            thread.sleep(until, |own, until| sleep(core, own, until));
            core.enter().begin();
        }
    }
}

/// In a child of a fork, where nothing is driven and nothing wakes the thread: it looks again and again.
#[cold]
fn block_on_in_child<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::sleep(CHILD_SLEEP);
    }
}

/// A thread that drives in the foreground. The driver's thread stands aside.
struct Foreground<'a>(&'a Core);

impl Foreground<'_> {
    fn new(core: &Core) -> Foreground<'_> {
        core.enter().begin_call();
        Foreground(core)
    }
}

impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        if self.0.check_fork().is_err() {
            return;
        }
        let mut entered = self.0.enter();
        let is_awaited = entered.end_call();
        #[cfg(feature = "tokio")]
        let task = entered.duty_mut().aside.take();
        drop(entered);
        if is_awaited {
            self.0.stand_in.notify_all();
        }
        #[cfg(feature = "tokio")]
        if let Some(task) = task {
            task.wake();
        }
    }
}
