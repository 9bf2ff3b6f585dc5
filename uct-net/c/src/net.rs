//! An open net: calls under the lock of its engine, and threads that wait.

#![expect(unsafe_code, reason = "the state of a protocol is used under the net's lock")]

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use uct_net::Wait;
use uct_net::protocol::{self, Engine};

use super::events::Events;
use super::failure::{Failure, Outcome};
use super::options::Options;
use super::state::{Counters, Installed, State};

/// How long a net that is closed waits for threads that wait in it.
const LEAVING: Duration = Duration::from_secs(3);
/// Turns of the engine between two looks at the clock.
const TURNS: u32 = 16;
/// Waits in a row that polling did not end, before polling is left out; then one wait in so many polls.
const MISSES: u32 = 4;
const ATTEMPTS: u32 = 16;

/// See the module.
pub struct Net {
    /// Ahead of the net, which it is part of.
    installed: protocol::Installed<Installed>,
    net: uct_net::Net,
    pub events: Arc<Events>,
    wait: Wait,
    /// Waits that have ended asleep, since one that has ended while it polled.
    misses: AtomicU32,
}

impl Net {
    /// Opens all permitted transports. Blocks meanwhile.
    pub fn open(number: u8, counters: &'static Counters, options: &Options) -> Outcome<Net> {
        let (context, options) = options.for_net()?;
        let wait = options.wait;
        let net = uct_net::Net::new(&context, options)?;
        let events = Arc::new(Events::default());
        let shared = Arc::clone(&events);
        // SAFETY: the state, its futures and the closures of `with` reach nothing that is not `Send` but what lies in
        // the state, and none of that leaves the lock: what closures return is `Send`.
        let installed = unsafe {
            protocol::Installed::new(&net, move |_engine| Installed(State::new(number, counters, shared)))
        }?;
        Ok(Net { installed, net, events, wait, misses: AtomicU32::new(0) })
    }

    /// Does something with the state, under the lock.
    #[inline]
    pub fn with<T: Send>(&self, work: impl FnOnce(&Rc<State>, &Engine) -> Outcome<T> + Send) -> Outcome<T> {
        self.installed.with(|installed, engine| work(&installed.0, engine))?
    }

    /// What `take` returns, at once or after some events. `None` if the time is over; a negative one is no limit. Makes
    /// progress meanwhile.
    pub fn wait_for<T>(&self, nanoseconds: i64, mut take: impl FnMut() -> Option<T>) -> Outcome<Option<T>> {
        self.installed.progress()?;
        if let Some(taken) = take() {
            return Ok(Some(taken));
        }
        if nanoseconds == 0 {
            if self.events.has_descriptor() {
                // The program may be about to sleep on it.
                self.installed.rest()?;
            }
            return self.still_open().map(|()| None);
        }
        let mut waiting = self.events.wait();
        let limit = u64::try_from(nanoseconds).ok().map(Duration::from_nanos);
        let start = Instant::now();
        if let Some(taken) = self.poll(start, limit, &mut take)? {
            return Ok(Some(taken));
        }
        self.still_open()?;
        let over = poll_fn(|context| {
            let is_open = waiting.register(context.waker());
            match take() {
                None if is_open => Poll::Pending,
                taken => Poll::Ready(taken),
            }
        });
        let taken = match limit.map(|limit| limit.saturating_sub(start.elapsed())) {
            None => self.net.block_on(over),
            Some(limit) => self.net.block_on(self.net.within(limit, over)).flatten(),
        };
        if taken.is_none() {
            self.still_open()?;
        }
        Ok(taken)
    }

    /// Polls for a while, as the options say, if that has helped recently.
    fn poll<T>(
        &self,
        start: Instant,
        limit: Option<Duration>,
        take: &mut impl FnMut() -> Option<T>,
    ) -> Outcome<Option<T>> {
        let most = match self.wait {
            Wait::Sleep => return Ok(None),
            Wait::Spin => Duration::MAX,
            Wait::Adaptive(time) => {
                // SYNC: a count that threads write at once comes out a little higher or lower.
                let misses = self.misses.fetch_add(1, Ordering::Relaxed);
                if misses >= MISSES && !misses.is_multiple_of(ATTEMPTS) {
                    return Ok(None);
                }
                time
            }
        };
        let most = limit.map_or(most, |limit| limit.min(most));
        while start.elapsed() < most && !self.events.is_closed() {
            for _ in 0..TURNS {
                self.installed.progress()?;
                if let Some(taken) = take() {
                    // SYNC: as above.
                    self.misses.store(0, Ordering::Relaxed);
                    return Ok(Some(taken));
                }
            }
        }
        Ok(None)
    }

    fn still_open(&self) -> Outcome {
        if self.events.is_closed() {
            return Err(Failure::canceled("another thread has closed the net"));
        }
        Ok(())
    }

    /// Ends all operations without an event, and wakes threads that wait. None of the program's memory is used
    /// afterwards.
    pub fn close(&self) -> Outcome {
        self.with(|state, _engine| {
            state.clear();
            Ok(())
        })?;
        self.events.close(LEAVING);
        Ok(())
    }
}
