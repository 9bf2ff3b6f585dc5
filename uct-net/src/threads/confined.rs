//! Values of an engine that are held outside of it: used and dropped under its lock alone.

#![expect(unsafe_code, reason = "what is not Send moves between threads under a lock")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use ucs::memory::fork::Forked;

use super::engine::{Engine, Entered};
use super::held::Held;

/// A value of an engine, used under the engine's lock and dropped under it, from any thread.
pub(crate) struct Confined<T: 'static> {
    engine: Arc<Engine>,
    value: ManuallyDrop<Held<T>>,
}

// SAFETY: a reference to the value is made under the engine's lock alone (`with`), but for `without_lock`, whose caller promises
// what is needed.
unsafe impl<T> Sync for Confined<T> {}

impl<T> Confined<T> {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Uses the value under the engine's lock. What goes in and comes out is `Send`, so nothing of the engine's gets out.
    ///
    /// # Errors
    /// The process is a child of a fork.
    pub(crate) fn with<R: Send>(
        &self,
        work: impl FnOnce(&mut Entered<'_>, &T) -> R + Send,
    ) -> Result<R, Forked> {
        self.engine.enter(move |entered| work(entered, self.value()))
    }

    fn value(&self) -> &T {
        self.value.get()
    }

    /// The value, for a thread that is inside.
    pub(super) fn inside<'a>(&'a self, entered: &'a Entered<'_>) -> &'a T {
        assert!(Arc::ptr_eq(entered.engine(), &self.engine), "a value is used under the lock of its engine");
        self.value.get()
    }

    /// The value, without the lock.
    ///
    /// # Safety
    /// What is done with the reference reads only what is not written, and clones nothing.
    pub(crate) unsafe fn without_lock(&self) -> &T {
        self.value.get()
    }
}

impl Entered<'_> {
    /// A value that leaves the engine. It was made under the lock, since [`Engine::enter`] lets none in from outside.
    pub(crate) fn confine<T>(&self, value: T) -> Confined<T> {
        // SAFETY: all that it shares lies in the engine, whose lock is held whenever it is used (`Confined::with`, `discard`), and
        // whose transports are used as `Core::open` requires.
        let value = unsafe { Held::new(value) };
        Confined { engine: Arc::clone(self.engine()), value: ManuallyDrop::new(value) }
    }
}

impl<T> Drop for Confined<T> {
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes it, and it is not used afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        self.engine.discard(value);
    }
}

impl<T> fmt::Debug for Confined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Confined")
    }
}
