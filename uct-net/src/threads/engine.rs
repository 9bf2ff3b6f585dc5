//! The engine that several threads use: everything of the flavour for one thread, under one lock.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ucs::memory::fork::Forked;
use uct_host::Context;

use super::core::{Core, Inside};
use super::driver;
use super::held::Held;
use super::outside::Outside;
use crate::error::Result;
use crate::options::NetOptions;

/// What all handles share. The last one ends the driver's thread.
pub(crate) struct Engine {
    core: Arc<Core>,
}

/// A thread that holds the lock and came through a handle.
pub(crate) struct Entered<'a> {
    engine: &'a Arc<Engine>,
    inside: Inside<'a>,
}

impl Engine {
    /// Opens a net that any thread may use, and starts its thread.
    pub(crate) fn start(context: &Context, options: NetOptions) -> Result<Arc<Engine>> {
        let core = driver::start(context.clone(), options, false)?;
        Ok(Arc::new(Engine { core }))
    }

    /// As [`Engine::start`], with a task of the current tokio runtime in place of the thread.
    #[cfg(feature = "tokio")]
    pub(super) fn start_in_tokio(context: &Context, options: NetOptions) -> Result<Arc<Engine>> {
        let core = super::tokio::start(context, options)?;
        Ok(Arc::new(Engine { core }))
    }

    /// As [`Engine::start`], as for transports that are bound to a thread.
    #[cfg(test)]
    pub(super) fn start_bound(context: &Context, options: NetOptions) -> Result<Arc<Engine>> {
        let core = driver::start(context.clone(), options, true)?;
        Ok(Arc::new(Engine { core }))
    }

    /// Does work under the lock. The work is short and never waits. What goes in and comes out is `Send`, so nothing of the
    /// engine's gets out but what [`Entered::confine`] returns.
    ///
    /// # Errors
    /// The process is a child of a fork.
    pub(crate) fn enter<R: Send>(
        self: &Arc<Engine>,
        work: impl FnOnce(&mut Entered<'_>) -> R + Send,
    ) -> Result<R, Forked> {
        let core = &*self.core;
        if !core.is_open() {
            core.check_fork()?;
            if let Some(jobs) = core.jobs.as_ref().filter(|_| !core.is_own_thread()) {
                return Ok(jobs.run(&core.doorbell, || self.under_lock(work)));
            }
        }
        Ok(self.under_lock(work))
    }

    /// Does work under the lock, in the calling thread.
    #[inline(always)]
    fn under_lock<R>(self: &Arc<Engine>, work: impl FnOnce(&mut Entered<'_>) -> R) -> R {
        let mut entered = Entered { engine: self, inside: self.core.enter() };
        entered.duty_mut().uses += 1;
        work(&mut entered)
    }

    /// Drives until the future is ready.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        driver::block_on(&self.core, future)
    }

    pub(super) fn outside(&self) -> &Arc<Outside> {
        &self.core.outside
    }

    /// Drops a value under the lock: now, or when the thread that has the lock leaves.
    pub(super) fn discard<T: 'static>(&self, value: Held<T>) {
        self.core.discard(value);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl Entered<'_> {
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.engine
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.engine.core
    }
}

impl<'a> Deref for Entered<'a> {
    type Target = Inside<'a>;

    fn deref(&self) -> &Inside<'a> {
        &self.inside
    }
}

impl<'a> DerefMut for Entered<'a> {
    fn deref_mut(&mut self) -> &mut Inside<'a> {
        &mut self.inside
    }
}
