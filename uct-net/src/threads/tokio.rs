//! The driver as a task of a tokio runtime, in place of the engine's own thread.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::core::Core;
use super::driver::{self, Driver, Step};
use crate::async_fd::Readable;
use crate::error::{Error, Result, Stage};
use crate::local::net::Idle;
use crate::options::NetOptions;

/// Passes of one poll in which nothing happens.
const PASSES: u32 = 16;
/// How long the task delivers what was sent last after all handles are gone.
const CLOSING: Duration = Duration::from_secs(1);

/// Opens a net that a task of the current runtime drives. A transport that is bound to a thread gets a thread after all.
pub(super) fn start(context: &uct_host::Context, options: NetOptions) -> Result<Arc<Core>> {
    let failed = |reason: String| {
        Error::new(Stage::Choose, "this process", ucs::Error::INVALID_PARAM, reason)
            .hint("call it inside a tokio runtime that was built with enable_all(), or use Net::new")
    };
    let runtime = Handle::try_current().map_err(|error| failed(error.to_string()))?;
    let core = Core::open(context, options.clone(), false)?;
    if core.jobs.is_some() {
        drop(core);
        return driver::start(context.clone(), options, false);
    }
    let watched = Readable::new(core.fd()).map_err(|error| failed(error.to_string()))?;
    core.set_in_task(true);
    core.enter().begin();
    runtime.spawn(drive(Task { core: Arc::clone(&core), is_asleep: false, is_late: false }, watched));
    Ok(core)
}

async fn drive(mut task: Task, watched: Readable) {
    let mut idle = Idle::new(task.core.wait);
    let mut timer = pin!(tokio::time::sleep_until(Instant::now().into()));
    let mut closing = None;
    std::future::poll_fn(|context| {
        task.wake_up();
        for _ in 0..PASSES {
            if task.core.is_closing() {
                let since = *closing.get_or_insert_with(Instant::now);
                task.is_late = since.elapsed() >= CLOSING;
                if task.is_late || task.is_quiet() {
                    return Poll::Ready(());
                }
            }
            match task.core.step(&mut idle, Driver::Task(context.waker())) {
                // The tasks that were woken have their turn.
                Step::Busy => break,
                Step::Early => {}
                Step::Aside => {
                    task.is_asleep = true;
                    idle.reset();
                    return Poll::Pending;
                }
                Step::Sleep(until) => {
                    task.is_asleep = true;
                    // What is armed makes an edge with the next event, since all that was there is processed.
                    let until = closing.map(|since| since + CLOSING).into_iter().chain(until).min();
                    if watched.poll(context) || is_due(timer.as_mut(), until, context) {
                        context.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
            }
        }
        yield_to_others(context);
        Poll::Pending
    })
    .await;
}

/// Has the task polled again after the others. One that wakes itself would run up to 61 times ahead of the runtime's event loop and of the
/// future of `Runtime::block_on`.
fn yield_to_others(context: &mut Context<'_>) {
    let _pending = pin!(tokio::task::yield_now()).poll(context);
}

/// Whether it is time; has the task woken then if not.
fn is_due(
    mut timer: Pin<&mut tokio::time::Sleep>,
    until: Option<Instant>,
    context: &mut Context<'_>,
) -> bool {
    until.is_some_and(|until| {
        timer.as_mut().reset(until.into());
        timer.poll(context).is_ready()
    })
}

/// The task's share of the engine. It ends with the handles, or with the runtime.
struct Task {
    core: Arc<Core>,
    is_asleep: bool,
    /// What was sent last was not taken in time.
    is_late: bool,
}

impl Task {
    /// Whether all that was sent has arrived. No handle is left.
    fn is_quiet(&self) -> bool {
        let mut entered = self.core.enter();
        entered.returns();
        entered.is_quiet()
    }

    fn wake_up(&mut self) {
        if std::mem::take(&mut self.is_asleep) {
            self.core.doorbell.set_task(None);
            self.core.enter().begin();
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.core.check_fork().is_err() {
            // The engine is the parent's, and so is its runtime.
            return;
        }
        self.wake_up();
        self.core.set_in_task(false);
        if self.core.is_closing() && !self.is_late {
            driver::finish(&self.core);
        } else {
            // There are handles left; or the rest blocks, which a runtime does not.
            driver::take_over(&self.core);
        }
    }
}
