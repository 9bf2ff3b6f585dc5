//! Protocols of libraries on the engine: their state, used under the engine's lock, and their share of each turn.

#![expect(unsafe_code, reason = "what is not Send moves between threads under a lock")]

use std::fmt;
use std::rc::Rc;

use ucs::memory::fork::Forked;

use super::confined::Confined;
use super::core::Hook;
use super::net::Net;
use super::tasks::Tasks;
use crate::error::{Error, Result, Stage, THIS_PROCESS};
use crate::local;
use crate::wake::guarded;

/// A protocol of a library's own: state that lies beside the engine of a [`Net`] and takes part in its turns. See [`Installed`].
pub trait Protocol: 'static {
    /// Does what is due: called in each turn of the engine, after the transports have made progress, by whichever thread makes the turn. Returns
    /// whether it did anything; a thread that finds nothing to do several times in a row goes to sleep.
    ///
    /// No transport is on the stack, so everything of the [`local`] flavour may be used except what blocks ([`local::Net::block_on`]).
    /// It is short and never waits: other threads wait for the lock meanwhile. A panic is logged, and the engine goes on.
    fn turn(&self, engine: &Engine) -> bool;
}

/// The engine, for code that runs under its lock.
#[derive(Clone)]
pub struct Engine {
    net: local::Net,
    tasks: Rc<Tasks>,
}

impl Engine {
    /// The net. What is made with it belongs to the lock as it does itself.
    pub fn net(&self) -> &local::Net {
        &self.net
    }

    /// Has turns poll a future, the next one first, until it is ready. It may await everything of the [`local`] flavour, and may be woken from any
    /// thread: a sleeping one is woken for it then. Futures that are left are dropped with the protocol, ahead of its state.
    ///
    /// May be called inside a transport.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(future);
    }

    /// Has another turn follow, though nothing else is due. May be called inside a transport.
    pub fn request_turn(&self) {
        self.tasks.request_turn();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// A protocol on the engine of a [`Net`], used from any thread and driven by all that drive the net: the thread of the net itself, threads in
/// [`Net::block_on`], and those that call [`Installed::progress`].
///
/// Under the lock of the engine no handle of this crate's `Send` flavour may be used: it would wait for that lock for ever.
///
/// Dropping it drops the futures of [`Engine::spawn`] and then the protocol, both under the lock: before the drop returns, or when the thread
/// that has the lock leaves.
pub struct Installed<P: Protocol> {
    inner: Confined<Rc<Seat<P>>>,
}

/// A protocol and its access to the engine.
struct Seat<P: Protocol> {
    protocol: P,
    engine: Engine,
}

impl<P: Protocol> Drop for Seat<P> {
    fn drop(&mut self) {
        self.engine.tasks.close();
    }
}

impl<P: Protocol> Hook for Seat<P> {
    fn turn(&self) -> bool {
        let mut is_busy = self.engine.tasks.run();
        guarded(|| is_busy |= self.protocol.turn(&self.engine));
        is_busy
    }

    fn is_due(&self) -> bool {
        self.engine.tasks.is_due()
    }
}

impl<P: Protocol> Installed<P> {
    /// Makes a protocol under the lock of the engine, and installs it.
    ///
    /// # Safety
    /// Code of the protocol and of its futures runs in any thread, one at a time, and so do the closures that [`Installed::with`] is given. What they
    /// reach there and is not `Send` (the [`Engine`], everything that was made with it, what the protocol consists of, and what any of these shares
    /// with others, such as the count of an `Rc`) is used and dropped under the lock of this engine alone. So none of it is put where code
    /// outside of the lock finds it, such as in a thread-local; and nothing bound to a thread is part of it.
    ///
    /// # Errors
    /// The process is a child of a fork.
    pub unsafe fn new(net: &Net, make: impl FnOnce(&Engine) -> P + Send) -> Result<Installed<P>> {
        let made = net.engine.enter(|entered| {
            let tasks = Rc::new(Tasks::new(entered.core()));
            let engine = Engine { net: local::Net { inner: entered.net().clone() }, tasks };
            let seat = Rc::new(Seat { protocol: make(&engine), engine });
            let hook: Rc<dyn Hook> = Rc::<Seat<P>>::clone(&seat);
            entered.add_hook(Rc::downgrade(&hook));
            Installed { inner: entered.confine(seat) }
        });
        made.map_err(refused)
    }

    /// Does something with the protocol under the lock. As with [`Protocol::turn`], it is short and never waits. No turn is made.
    ///
    /// # Errors
    /// The process is a child of a fork.
    pub fn with<R: Send>(&self, work: impl FnOnce(&P, &Engine) -> R + Send) -> Result<R> {
        self.inner.with(|_entered, seat| work(&seat.protocol, &seat.engine)).map_err(refused)
    }

    /// Makes one turn of the engine. Returns whether there was anything to do.
    ///
    /// While a thread calls this in a loop, the net's own thread sleeps, and no call makes a system call of the engine's. When the calls stop, that
    /// thread takes over within a few milliseconds, or at once with [`Installed::rest`].
    ///
    /// # Errors
    /// The process is a child of a fork.
    pub fn progress(&self) -> Result<bool> {
        let turned = self.inner.with(|entered, _seat| {
            entered.note_poll();
            entered.turn_without_looks()
        });
        turned.map_err(refused)
    }

    /// Says that the calling thread calls no more for now, for instance because it waits for a descriptor that the protocol makes readable: the
    /// net's own thread takes over at once.
    ///
    /// # Errors
    /// The process is a child of a fork.
    pub fn rest(&self) -> Result {
        self.inner.with(|entered, _seat| entered.hand_over()).map_err(refused)
    }
}

fn refused(forked: Forked) -> Error {
    Error::forked(Stage::Choose, THIS_PROCESS, forked)
}

impl<P: Protocol> fmt::Debug for Installed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installed").finish_non_exhaustive()
    }
}
