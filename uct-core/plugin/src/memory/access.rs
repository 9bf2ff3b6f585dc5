//! Access to registered memory of this process, which its owner may take back at any time.
//!
//! For target sides in software, and endpoints whose remote memory lies in this process. Built on `ucs`'s sections: a region is found
//! and checked inside of one, and accessed before it ends, for which the end of the registration waits. No callback of the application's
//! runs inside: what it packs and unpacks passes through memory of the transport's.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::LazyLock;

use ucs::Error;
use ucs::barrier::{self, Among};
use ucs::memory::accesses::{Accesses, Section};
use ucs::sync::atomic::AtomicU64;

use super::direct;
use super::served::Served;
use crate::atomic::Atomic;
use crate::iov::Iov;

/// All accessors of this image. One list for all tables of regions: a key of one domain may be used by an interface of another.
static ACCESSES: LazyLock<Accesses> = LazyLock::new(|| {
    barrier::register(Among::Threads);
    Accesses::default()
});

/// Whether accessors have to make full barriers, since the kernel makes none for them.
fn is_fenced() -> bool {
    LazyLock::force(&ACCESSES);
    !barrier::is_registered(Among::Threads)
}

/// Waits for all accesses in flight. For the end of a registration, once no access can begin.
pub fn wait_for_all() {
    ACCESSES.wait_for_all();
}

/// Counts the host's accesses through windows, under a number that is the caller's; returns false where they cannot be waited for.
///
/// # Safety
/// The counter is even, and valid until [`remove_host`] for this number.
pub(crate) unsafe fn add_host(number: usize, counter: NonNull<u64>) -> bool {
    if is_fenced() {
        // The host makes no barriers.
        return false;
    }
    // SAFETY: the caller's promise; an atomic has the layout of its number.
    unsafe { ACCESSES.add(number, counter.cast()) };
    true
}

/// Ends what [`add_host`] has begun, if it has.
pub(crate) fn remove_host(number: usize) {
    ACCESSES.remove(number);
}

/// What accesses registered memory: an interface has one. In one thread at a time.
#[derive(Debug)]
pub struct Accessor {
    counts: Box<Counts>,
    fenced: bool,
    thread: PhantomData<Cell<()>>,
}

/// What an accessor counts. Apart from it, so that an interface stays small.
#[derive(Debug, Default)]
struct Counts {
    /// Odd while an access is in flight.
    accesses: AtomicU64,
    served: Served,
}

impl Default for Accessor {
    fn default() -> Accessor {
        let fenced = is_fenced();
        let counts = Box::<Counts>::default();
        // SAFETY: the counter lives until `drop` has removed it.
        unsafe { ACCESSES.add(Accessor::number(&counts.accesses), NonNull::from(&counts.accesses)) };
        Accessor { counts, fenced, thread: PhantomData }
    }
}

impl Accessor {
    /// Begins an access. Whether the memory is still registered is to be found out afterwards, and holds until this is dropped.
    ///
    /// # Panics
    /// While another access of this accessor is in flight.
    #[inline(always)]
    pub fn enter(&self) -> Section<'_> {
        // SAFETY: an accessor is not shared between threads.
        unsafe { Section::enter(&self.counts.accesses, self.fenced) }
    }

    /// What peers have had it do, by [`crate::rma::Target`].
    #[inline]
    pub fn served(&self) -> &Served {
        &self.counts.served
    }

    fn number(counter: &AtomicU64) -> usize {
        std::ptr::from_ref(counter).addr()
    }
}

impl Drop for Accessor {
    fn drop(&mut self) {
        ACCESSES.remove(Accessor::number(&self.counts.accesses));
    }
}

/// Registered memory that was found live and checked, and that stays valid as long as this is there. Its owner may read and write it
/// meanwhile, as other peers may, so there is no reference to its bytes.
#[derive(Debug)]
pub struct Access<'a> {
    start: NonNull<u8>,
    length: usize,
    _section: Section<'a>,
}

impl<'a> Access<'a> {
    /// # Safety
    /// The memory is valid for reads and writes as long as the section is there, and nothing holds a reference to it.
    #[inline(always)]
    pub unsafe fn new(section: Section<'a>, start: NonNull<u8>, length: usize) -> Access<'a> {
        Access { start, length, _section: section }
    }

    /// First byte: valid for reads and writes, of [`Access::length`] bytes, until this is dropped. For system calls.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes at `offset`.
    ///
    /// # Panics
    /// If it ends outside.
    #[inline(always)]
    pub fn write(&self, offset: usize, data: &[u8]) {
        let target = self.part(offset, data.len());
        // SAFETY: as many bytes are the section's from there on.
        unsafe { direct::write(target, data) };
    }

    /// Reads at `offset`.
    ///
    /// # Panics
    /// If it ends outside.
    #[inline(always)]
    pub fn read(&self, offset: usize, buffer: &mut [u8]) {
        let source = self.part(offset, buffer.len());
        // SAFETY: as in `write`.
        unsafe { direct::read(source, buffer) };
    }

    /// Writes all bytes of a vector, in order.
    ///
    /// # Panics
    /// If they are more than these.
    pub fn gather(&self, iov: Iov<'_>) {
        let target = self.part(0, iov.total());
        // SAFETY: as in `write`.
        unsafe { direct::gather(target, iov) };
    }

    /// Reads into all of a vector, in order.
    ///
    /// # Panics
    /// If it holds more than these bytes.
    ///
    /// # Safety
    /// The vector's memory is writable, as that of a get is.
    pub unsafe fn scatter(&self, iov: Iov<'_>) {
        let source = self.part(0, iov.total());
        // SAFETY: as in `read`, and the caller's promise.
        unsafe { direct::scatter(source, iov) };
    }

    /// Carries out an atomic on the first bytes; returns the old value.
    ///
    /// # Errors
    /// [`Error::INVALID_PARAM`] if they are not aligned to its width.
    ///
    /// # Panics
    /// If they are fewer.
    #[inline(always)]
    pub fn atomic(&self, atomic: Atomic) -> Result<u64, Error> {
        atomic.check_alignment(self.start.as_ptr() as u64)?;
        self.part(0, atomic.width.bytes());
        // SAFETY: as in `write`, and aligned.
        Ok(unsafe { atomic.carry_out(self.start) })
    }

    #[inline(always)]
    fn part(&self, offset: usize, length: usize) -> *mut u8 {
        if offset > self.length || length > self.length - offset {
            outside(offset, length, self.length);
        }
        // SAFETY: within the memory, as just checked.
        unsafe { self.start.add(offset) }.as_ptr()
    }
}

#[cold]
#[inline(never)]
fn outside(offset: usize, length: usize, all: usize) -> ! {
    panic!("an access to {length} bytes at {offset}, of which {all} were checked");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryAccess, Regions};

    #[test]
    fn an_access_ends_where_it_was_checked_to_end() {
        let regions = Regions::default();
        let accessor = Accessor::default();
        let mut memory = [7_u8; 32];
        let base = NonNull::from(&mut memory).cast();
        // SAFETY: it is removed below, ahead of the end of the memory.
        let region = unsafe { regions.insert(base, 16, MemoryAccess::all()) }.unwrap();
        let address = base.as_ptr() as u64;
        let panics = |body: &dyn Fn(&Access<'_>)| {
            let access = region.access(&accessor, address, 16, MemoryAccess::REMOTE_PUT).unwrap();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&access))).is_err()
        };
        assert!(!panics(&|access| access.write(8, &[1; 8])));
        assert!(panics(&|access| access.write(9, &[1; 8])));
        assert!(panics(&|access| access.write(usize::MAX, &[1; 8])));
        assert!(panics(&|access| access.read(1, &mut [0; 16])));
        regions.remove(&region);
        assert_eq!(memory[..8], [7; 8]);
        assert_eq!(memory[8..16], [1; 8]);
        assert_eq!(memory[16..], [7; 16]);
    }

    #[test]
    fn a_second_access_of_an_accessor_is_refused_and_leaves_the_first_alone() {
        let accessor = Accessor::default();
        let first = accessor.enter();
        let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(accessor.enter())));
        assert!(second.is_err());
        drop(first);
        drop(accessor.enter());
        wait_for_all();
    }

    #[test]
    fn a_registration_that_is_dropped_has_ended_like_one_that_was_deregistered() {
        let regions = Regions::default();
        let accessor = Accessor::default();
        let register = || {
            let (address, _, registration) = regions.allocate(64, MemoryAccess::all()).unwrap();
            let region = registration.region();
            let place = (region.key() as u32, region.secret());
            (registration, move || {
                regions
                    .access(&accessor, place, address.as_ptr() as u64, 64, MemoryAccess::REMOTE_GET)
                    .is_ok()
            })
        };
        let (registration, is_live) = register();
        assert!(is_live());
        drop(registration);
        assert!(!is_live());
    }

    /// As that of a message whose bytes the kernel has copied.
    #[test]
    fn the_end_of_a_registration_that_was_never_looked_up_waits_for_no_access() {
        let regions = Regions::default();
        let mut memory = [0_u8; 64];
        let base = NonNull::from(&mut memory).cast();
        // SAFETY: removed below, ahead of the end of the memory.
        let [first, second] =
            [(); 2].map(|()| unsafe { regions.insert(base, 64, MemoryAccess::all()) }.unwrap());
        let place = (second.key() as u32, second.secret());
        let (is_inside, inside) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let is_early = threads.spawn(move || {
                let accessor = Accessor::default();
                let section = accessor.enter();
                is_inside.send(()).unwrap();
                let is_early = ended.recv_timeout(std::time::Duration::from_secs(60)).is_ok();
                drop(section);
                is_early
            });
            inside.recv().unwrap();
            regions.remove(&first);
            assert!(regions.find(first.key() as u32, first.secret()).is_err());
            end.send(()).unwrap();
            assert!(is_early.join().unwrap(), "it has waited for an access of something else");
        });
        // What was looked up is waited for, which a debug build refuses inside of an access.
        assert!(regions.find(place.0, place.1).is_ok());
        let accessor = Accessor::default();
        let section = accessor.enter();
        let removed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| regions.remove(&second)));
        assert_eq!(removed.is_err(), cfg!(debug_assertions));
        drop(section);
    }

    #[test]
    fn the_end_of_a_registration_waits_for_the_access_of_another_thread() {
        let regions = Regions::default();
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        let (offer, offers) = std::sync::mpsc::sync_channel(0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let offers = offers;
                let accessor = Accessor::default();
                for (region, address) in &offers {
                    let region: std::sync::Arc<super::super::Region> = region;
                    // As long as it is live; how often that is does not matter.
                    while let Ok(access) = region.access(&accessor, address, 64, MemoryAccess::REMOTE_PUT) {
                        access.write(0, &[1; 64]);
                    }
                }
            });
            for _ in 0..rounds {
                let mut memory = vec![0_u8; 64];
                let base = NonNull::new(memory.as_mut_ptr()).unwrap();
                // SAFETY: as above.
                let region = unsafe { regions.insert(base, 64, MemoryAccess::all()) }.unwrap();
                offer.send((std::sync::Arc::clone(&region), base.as_ptr() as u64)).unwrap();
                std::thread::yield_now();
                regions.remove(&region);
                memory.fill(2);
                std::thread::yield_now();
                assert!(memory.iter().all(|&byte| byte == 2), "a write came late");
            }
            drop(offer);
        });
    }
}
