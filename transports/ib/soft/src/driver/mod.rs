//! What makes a device go on: its lock, its socket, its clock, and the thread that works when no application does.
//!
//! For `abi`. Calls of the application drive the device themselves; the thread takes over when they stop, so that a peer's
//! requests are served while the application sleeps or computes.

mod notices;
mod port;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use ucs::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::engine::Nanos;

pub use notices::{Acknowledgements, Notices};
pub use port::{CqTarget, EventTarget, Port, Targets};

/// For so long the thread leaves the device to an application that polls it.
const STAND_BACK: Nanos = 1_000_000;
/// The thread looks at least so often, whatever the deadlines say.
const LONGEST_SLEEP: Nanos = 1_000_000_000;

/// How a driver is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device's address; otherwise it has one of the loopback network for itself.
    pub address: Option<IpAddr>,
    /// Whether no thread is started: then the device works in calls of the application only.
    pub is_inline: bool,
    /// What goes wrong, and from which seed.
    pub faults: crate::network::faults::Rates,
    /// The seed of what goes wrong.
    pub seed: u64,
}

/// A device that works.
pub struct Driver {
    port: Mutex<Port>,
    begin: Instant,
    /// When an application last drove the device.
    driven: AtomicU64,
    /// When the thread looks by itself.
    thread_looks: AtomicU64,
    /// Wakes the thread.
    wake: OwnedFd,
    is_ended: AtomicBool,
    address: IpAddr,
}

impl Driver {
    /// A device on a socket of its own.
    ///
    /// # Errors
    /// The socket or the thread cannot be made.
    pub fn start(options: &Options) -> io::Result<Arc<Driver>> {
        let port = Port::open(options)?;
        let socket = port.descriptor()?;
        let driver = Arc::new(Driver {
            address: port.address(),
            port: Mutex::new(port),
            begin: Instant::now(),
            driven: AtomicU64::new(0),
            thread_looks: AtomicU64::new(if options.is_inline { 0 } else { Nanos::MAX }),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_ended: AtomicBool::new(false),
        });
        if !options.is_inline {
            let (wake, weak) = (driver.wake.try_clone()?, Arc::downgrade(&driver));
            std::thread::Builder::new()
                .name("softverbs".to_owned())
                .spawn(move || serve(&weak, &wake, &socket))?;
        }
        Ok(driver)
    }

    /// The device, and nobody else has it meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Port> {
        // A panic in the device is a mistake of it; what follows is no worse than without the poison.
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the device work: what has arrived, what is due, what can leave.
    pub fn drive(&self, port: &mut Port) {
        let now = self.now();
        // SYNC: a hint for the thread; nothing is read by it.
        self.driven.store(now, Ordering::Relaxed);
        port.work(now);
        // The thread finds out by itself within the time that it stands back.
        let next = port.next_deadline(now);
        if next.is_some_and(|next| next + STAND_BACK < self.thread_looks.load(Ordering::Relaxed)) {
            self.thread_looks.store(now, Ordering::Relaxed);
            self.wake();
        }
    }

    /// The application will not drive the device for a while: the thread does, from now on.
    pub fn hand_over(&self) {
        self.driven.store(0, Ordering::Relaxed);
        if self.thread_looks.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// The address of the device's port.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    fn now(&self) -> Nanos {
        // The clock lasts for 584 years.
        self.begin.elapsed().as_nanos() as Nanos
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SYNC: pairs with the load of `serve`, which the write to the descriptor wakes.
        self.is_ended.store(true, Ordering::Release);
        self.wake();
    }
}

/// The thread: it works when something arrives or is due, unless an application does.
fn serve(driver: &Weak<Driver>, wake: &OwnedFd, socket: &OwnedFd) {
    let mut sleep = LONGEST_SLEEP;
    let mut watches_socket = true;
    loop {
        let timeout = Duration::from_nanos(sleep.min(LONGEST_SLEEP));
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut watched = [PollFd::new(wake, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
        let count = if watches_socket { 2 } else { 1 };
        let _ = poll(&mut watched[..count], Some(&timeout));
        if watched[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(wake.as_fd(), &mut [0; 8]);
        }
        let Some(driver) = driver.upgrade() else { return };
        if driver.is_ended.load(Ordering::Acquire) {
            return;
        }
        let now = driver.now();
        let idle = now.saturating_sub(driver.driven.load(Ordering::Relaxed));
        watches_socket = idle >= STAND_BACK;
        if watches_socket {
            let mut port = driver.lock();
            port.work(now);
            sleep = port
                .next_deadline(now)
                .map_or(LONGEST_SLEEP, |deadline| deadline.saturating_sub(driver.now()));
            // Under the lock, so that no application compares its deadline with an older time.
            driver.thread_looks.store(now + sleep, Ordering::Relaxed);
        } else {
            sleep = STAND_BACK - idle;
            driver.thread_looks.store(now + sleep, Ordering::Relaxed);
        }
    }
}
