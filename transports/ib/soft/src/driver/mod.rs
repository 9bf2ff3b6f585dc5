//! What makes a device go on: its lock, its socket, its clock, and the thread that works when no application does.
//!
//! For `abi`. Calls of the application drive the device themselves; the thread takes over when they stop, so that a peer's
//! requests are served while the application sleeps or computes.

mod hand_over;
mod notices;
mod port;
mod stand_back;

use std::io;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use ucs::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Nanos;
use crate::script::Script;

use hand_over::HandOver;
pub use notices::{Acknowledgements, Notices};
pub use port::{CqTarget, EventTarget, Port, Targets};
use stand_back::StandBack;

/// The thread looks at least so often, whatever the deadlines say.
const LONGEST_SLEEP: Nanos = 1_000_000_000;

/// How a driver is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device's address, which it may share with other processes of this user; otherwise it has one of the loopback network for
    /// itself.
    pub address: Option<IpAddr>,
    /// Whether no thread is started: then the device works in calls of the application only.
    pub is_inline: bool,
    /// What goes wrong.
    pub faults: Script,
}

/// A device that works.
pub struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread; a child of it has not.
    process: u32,
    address: IpAddr,
}

/// What applications and the thread share.
struct Shared {
    port: Mutex<Port>,
    begin: Instant,
    hand_over: HandOver,
    /// Wakes the thread.
    wake: OwnedFd,
    is_ended: AtomicBool,
}

impl Driver {
    /// A device on a socket of its own.
    ///
    /// # Errors
    /// The socket or the thread cannot be made.
    pub fn start(options: &Options) -> io::Result<Arc<Driver>> {
        let port = Port::open(options)?;
        let sockets = port.descriptors()?;
        let address = port.address();
        let shared = Arc::new(Shared {
            port: Mutex::new(port),
            begin: Instant::now(),
            hand_over: HandOver::new(!options.is_inline),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_ended: AtomicBool::new(false),
        });
        let thread = if options.is_inline {
            None
        } else {
            let shared = shared.clone();
            let builder = std::thread::Builder::new().name("softverbs".to_owned());
            Some(builder.spawn(move || serve(&shared, &sockets))?)
        };
        Ok(Arc::new(Driver { shared, thread, process: std::process::id(), address }))
    }

    /// The device, and nobody else has it meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Port> {
        self.shared.lock()
    }

    /// Lets the device work: what has arrived, what is due, what can leave.
    pub fn drive(&self, port: &mut Port) {
        let shared = &self.shared;
        let now = shared.now();
        shared.hand_over.is_driven(now);
        port.work(now);
        if port.next_deadline(now).is_some_and(|next| shared.hand_over.must_wake(now, next)) {
            shared.wake();
        }
    }

    /// The application will not drive the device for a while: the thread does, from now on.
    pub fn hand_over(&self) {
        if self.shared.hand_over.hand_over() {
            self.shared.wake();
        }
    }

    /// The address of the device's port.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

/// The thread has ended with it, and the socket is free.
impl Drop for Driver {
    fn drop(&mut self) {
        // SYNC: pairs with the load of `serve`, which the write to the descriptor wakes.
        self.shared.is_ended.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take()
            && std::process::id() == self.process
        {
            // It has said why, if it failed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Port> {
        // A panic in the device is a mistake of it; what follows is no worse than without the poison.
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        // The clock lasts for 584 years.
        self.begin.elapsed().as_nanos() as Nanos
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The thread: it works when something arrives or is due, unless an application does.
fn serve(shared: &Shared, sockets: &[OwnedFd]) {
    // Otherwise the system may add 50 us to each of the short waits.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // The first look is at once: something may be planned for soon.
    let mut sleep = 0;
    let mut watches_socket = true;
    let mut stand_back = StandBack::default();
    loop {
        let timeout = Duration::from_nanos(sleep.min(LONGEST_SLEEP));
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let count = if watches_socket { sockets.len() } else { 0 };
        let descriptors = [&shared.wake].into_iter().chain(&sockets[..count]);
        let mut watched: Vec<PollFd<'_>> = descriptors.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let _ = poll(&mut watched, Some(&timeout));
        if watched[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(shared.wake.as_fd(), &mut [0; 8]);
        }
        if shared.is_ended.load(Ordering::Acquire) {
            return;
        }
        let now = shared.now();
        let aside = shared.hand_over.stands_back(&mut stand_back, now);
        watches_socket = aside.is_none();
        if let Some(interval) = aside {
            sleep = interval;
        } else {
            let mut port = shared.lock();
            // An application may have driven the device while this waited for the lock: time does not go back.
            let now = shared.now();
            port.work(now);
            sleep = port
                .next_deadline(now)
                .map_or(LONGEST_SLEEP, |deadline| deadline.saturating_sub(shared.now()));
            shared.hand_over.looks_at(now + sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{FaultPlan, Incident, Moment};
    use crate::network::slot::NUMBER_BITS;
    use std::collections::HashSet;

    /// A device without its thread, which it may take for started.
    fn without_its_thread(seems_to_have_it: bool) -> Arc<Driver> {
        let options = Options { is_inline: true, ..Options::default() };
        let mut driver = Driver::start(&options).expect("a device");
        let own = Arc::get_mut(&mut driver).expect("nobody else has it");
        let shared = Arc::get_mut(&mut own.shared).expect("there is no thread");
        shared.hand_over = HandOver::new(seems_to_have_it);
        driver
    }

    /// Whether the thread was woken since this was asked last.
    fn is_woken(driver: &Driver) -> bool {
        rustix::io::read(&driver.shared.wake, &mut [0; 8]).is_ok()
    }

    #[test]
    fn the_thread_is_woken_when_an_application_hands_over_and_when_something_gets_due() {
        let driver = without_its_thread(true);
        driver.drive(&mut driver.lock());
        assert!(!is_woken(&driver), "nothing is due");
        driver.hand_over();
        assert!(is_woken(&driver));
        let incidents = vec![(Moment::Time(LONGEST_SLEEP << 20), Incident::PortDown)];
        driver.lock().device.plan(FaultPlan { incidents, ..FaultPlan::default() });
        driver.drive(&mut driver.lock());
        assert!(is_woken(&driver), "it would sleep for ever");
        driver.drive(&mut driver.lock());
        assert!(!is_woken(&driver), "it is about to look");
    }

    #[test]
    fn without_a_thread_nobody_is_woken() {
        let driver = without_its_thread(false);
        driver.hand_over();
        driver.drive(&mut driver.lock());
        assert!(!is_woken(&driver));
    }

    #[test]
    fn its_part_of_an_address_is_free_when_a_device_has_ended() {
        // Not one that a test beside this takes as its own.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = IpAddr::from([127, 32 + high % 32, middle, low]);
        for is_inline in [false, true] {
            let options = Options { address: Some(address), is_inline, ..Options::default() };
            let mut firsts = HashSet::new();
            for _ in 0..50 {
                let driver = Driver::start(&options).expect("a device");
                let first = driver.lock().device.config().first_qp;
                assert_eq!(first >> NUMBER_BITS, 0, "the first slot");
                firsts.insert(first);
            }
            assert!(firsts.len() > 25, "numbers of queue pairs begin anywhere: {firsts:?}");
        }
        let made = format!("/dev/shm/softverbs-{}/{}", rustix::process::geteuid().as_raw(), address);
        std::fs::remove_dir_all(made).expect("it was this test's");
    }
}
