//! Copies between the memories of two processes, made by the kernel: process_vm_readv and process_vm_writev.
//!
//! Used for put and get on memory that was not allocated for sharing. Built on `libc`. Whether the kernel permits copies depends on users,
//! namespaces, security modules and filters. A probe therefore tries one: it reads a number at an address that the peer has sent. This also
//! shows that the process id belongs to the peer.
//!
//! A process keeps its id when it executes another program, and an id is used again when a process has died. Therefore each copy begins at
//! the peer's beacon, in the same system call: the kernel looks up the memory once for each call, and if the beacon does not exist, the call
//! accesses nothing else.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};
use ucs::sys::SystemError;
use ucs::sys::process::{PtraceScope, ptrace_scope};
use uct_plugin::{Error, Iov};

/// What the kernel takes in one call (UIO_MAXIOV).
const MAX_VECTOR: usize = 1024;
/// Bytes at the beacon with which each copy begins.
const WORD: usize = size_of::<u64>();
/// Bytes of the beacon's page that are used: the number, and where puts begin.
const BEACON_BYTES: usize = 4096;
/// Range of addresses for beacons: no program uses them by itself, and the range is too large for a chance hit.
const BEACON_RANGE: std::ops::Range<u64> = 1 << 45..1 << 46;

/// The target of probes: a number that only this process has, at an address that it sends to peers. No other program has it at that
/// address, including a program that this process executes later.
#[derive(Debug)]
pub struct Beacon(NonNull<u64>);

// SAFETY: the beacon is only an address.
unsafe impl Send for Beacon {}
// SAFETY: as for `Send`.
unsafe impl Sync for Beacon {}

/// A process whose memory may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pid: libc::pid_t,
    beacon: u64,
    number: u64,
}

impl Beacon {
    /// A beacon that shows `number`, at an address that cannot be predicted.
    pub fn new(number: u64) -> Result<Beacon, SystemError> {
        let wish = BEACON_RANGE.start
            | RandomState::new().hash_one(number) & (BEACON_RANGE.start - 1) & !(BEACON_BYTES as u64 - 1);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping; without MAP_FIXED the address is a wish, and no memory that is in use is touched.
        let page = unsafe { rustix::mm::mmap_anonymous(wish as *mut _, BEACON_BYTES, access, flags) }
            .map_err(|errno| SystemError::new("map a page for other processes to find", errno))?;
        let word = NonNull::new(page.cast::<u64>()).expect("the kernel maps at addresses above 0");
        // SAFETY: the page was just mapped, and is aligned.
        unsafe { word.write(number) };
        Ok(Beacon(word))
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no pointer to it was given away but to other processes.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BEACON_BYTES) };
    }
}

/// Tries to read `expected` at `address` of process `pid`. The error describes why that is not possible.
pub fn probe(pid: u32, address: u64, expected: u64) -> Result<Process, String> {
    let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else {
        return Err("the peer's pid namespace is not visible from here → run both processes in one pid namespace, or the peer in \
                    a child of this one"
            .to_owned());
    };
    let mut found = 0u64;
    let local = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: WORD };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: WORD };
    // SAFETY: the kernel writes at most 8 bytes to `found`; the remote address is checked by it.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if copied == 8 && found == expected {
        return Ok(Process { pid, beacon: address, number: expected });
    }
    if copied >= 0 {
        return Err(format!("process {pid} is not the peer that its address names"));
    }
    Err(unreadable(pid, &io::Error::last_os_error(), ptrace_scope()))
}

/// Why a process cannot be read, and what to do about it.
fn unreadable(pid: libc::pid_t, error: &io::Error, scope: PtraceScope) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) if scope != PtraceScope::SameUser => format!(
            "the Yama module forbids to read process {pid} (kernel.yama.ptrace_scope is {scope:?}) → set UCT_CMA_PTRACER=y \
             in the peer, or the sysctl to 0"
        ),
        Some(libc::EPERM) => format!(
            "reading process {pid} is forbidden: it runs as another user or in another user namespace, or a seccomp \
             filter forbids process_vm_readv → give this process CAP_SYS_PTRACE in the peer's user namespace"
        ),
        Some(libc::ENOSYS) => "the kernel has no process_vm_readv, or a seccomp filter hides it".to_owned(),
        _ => format!("cannot read process {pid}: {error}"),
    }
}

/// Whether the kernel is expected to copy between this process and others of its user: the system calls are available, and Yama's setting
/// permits them. `permitted`: processes permit others by [`permit_any_tracer`]. Only [`probe`] shows whether one peer can be accessed.
pub fn is_likely(permitted: bool) -> bool {
    probe_self().is_ok() && yama_permits(ptrace_scope(), permitted, has_sys_ptrace())
}

/// Whether the kernel copies between this process and itself, which it does unless something hides the calls.
///
/// # Errors
/// Why it does not.
pub fn probe_self() -> Result<(), String> {
    let beacon = Beacon::new(1).map_err(|error| error.to_string())?;
    probe(std::process::id(), beacon.address(), 1).map(drop)
}

/// Yama's rule for processes that are not each other's children.
fn yama_permits(scope: PtraceScope, permitted: bool, is_admin: bool) -> bool {
    match scope {
        PtraceScope::SameUser => true,
        PtraceScope::Restricted => permitted || is_admin,
        PtraceScope::AdminOnly => is_admin,
        PtraceScope::Nobody => false,
    }
}

/// Whether this process has CAP_SYS_PTRACE.
fn has_sys_ptrace() -> bool {
    grants_sys_ptrace(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// Whether the `status` of a process says that it has CAP_SYS_PTRACE.
fn grants_sys_ptrace(status: &str) -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits & CAP_SYS_PTRACE != 0)
}

/// Permits any process of this user to reach this one's memory where Yama asks for that.
pub fn permit_any_tracer() {
    // SAFETY: PR_SET_PTRACER takes a number. An error means that there is no Yama, so nothing to permit.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Put,
    /// From the peer.
    Get,
}

impl Process {
    /// Copies all bytes of `iov` to or from `remote_address` on. The kernel does it in one go; a fault in the middle leaves
    /// what was copied.
    ///
    /// # Safety
    ///
    /// The memory of `iov` is readable, for a get also writable.
    #[inline]
    pub unsafe fn copy(self, direction: Direction, iov: Iov<'_>, remote_address: u64) -> Result<(), Error> {
        if let [entry] = iov.entries()
            && entry.count == 1
        {
            // Most are one block, and need no list.
            // SAFETY: the caller's promise.
            return unsafe { self.copy_block(direction, entry.buffer.cast(), entry.length, remote_address) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_blocks(direction, iov, remote_address) }
    }

    /// As [`copy`](Process::copy), for any number of blocks.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Process::copy).
    unsafe fn copy_blocks(
        self,
        direction: Direction,
        iov: Iov<'_>,
        remote_address: u64,
    ) -> Result<(), Error> {
        let mut offset = 0u64;
        let mut vector = Vec::with_capacity(1 + iov.entries().len());
        vector.push(NOWHERE);
        for (block, length) in iov.blocks() {
            vector.push(libc::iovec { iov_base: block.cast(), iov_len: length });
            if vector.len() == MAX_VECTOR {
                // SAFETY: the caller vouches for the blocks.
                offset +=
                    unsafe { self.transfer(direction, &mut vector, remote_address.wrapping_add(offset))? };
                vector.truncate(1);
            }
        }
        // SAFETY: as above.
        unsafe { self.transfer(direction, &mut vector, remote_address.wrapping_add(offset))? };
        Ok(())
    }

    /// As [`copy`](Process::copy), for one block.
    ///
    /// # Safety
    ///
    /// `block` is readable, for a get also writable, for `length` bytes.
    #[inline]
    pub unsafe fn copy_block(
        self,
        direction: Direction,
        block: *mut u8,
        length: usize,
        remote_address: u64,
    ) -> Result<(), Error> {
        let mut vector = [NOWHERE, libc::iovec { iov_base: block.cast(), iov_len: length }];
        // SAFETY: the caller's promise.
        unsafe { self.transfer(direction, &mut vector, remote_address) }.map(drop)
    }

    /// Moves a whole vector behind its first entry, which is for the beacon. Returns its length.
    ///
    /// # Safety
    ///
    /// As [`copy`](Process::copy).
    unsafe fn transfer(
        self,
        direction: Direction,
        vector: &mut [libc::iovec],
        remote_address: u64,
    ) -> Result<u64, Error> {
        let total: usize = vector[1..].iter().map(|block| block.iov_len).sum();
        let mut done = 0;
        let mut first = 0;
        loop {
            let remote_address = remote_address.wrapping_add(done as u64);
            // SAFETY: the vector holds valid blocks by the caller's promise.
            let moved = unsafe { self.call(direction, &mut vector[first..], remote_address, total - done)? };
            done += moved;
            if done == total {
                return Ok(total as u64);
            }
            if moved == 0 {
                return Err(Error::INVALID_PARAM);
            }
            // The entry ahead of what is left is done with, and serves for the beacon.
            first += advance(&mut vector[first + 1..], moved);
        }
    }

    /// One call of the kernel, for `length` bytes in all behind the first entry of the vector, which is overwritten. Returns the number of
    /// copied bytes.
    ///
    /// # Safety
    ///
    /// As [`copy`](Process::copy).
    #[inline(always)]
    unsafe fn call(
        self,
        direction: Direction,
        vector: &mut [libc::iovec],
        remote_address: u64,
        length: usize,
    ) -> Result<usize, Error> {
        let mut found = 0u64;
        vector[0] = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: WORD };
        // A get reads the number. A put writes behind it.
        let (call, beacon): (unsafe extern "C" fn(_, _, _, _, _, _) -> _, u64) = match direction {
            Direction::Put => (libc::process_vm_writev, self.beacon + WORD as u64),
            Direction::Get => (libc::process_vm_readv, self.beacon),
        };
        let part = |address: u64, iov_len| libc::iovec { iov_base: address as *mut libc::c_void, iov_len };
        let remote = [part(beacon, WORD), part(remote_address, length)];
        // SAFETY: the blocks are valid by the caller's promise, and so is the word; the kernel checks the remote side.
        let moved = unsafe { call(self.pid, vector.as_ptr(), vector.len() as u64, remote.as_ptr(), 2, 0) };
        let Ok(moved) = usize::try_from(moved) else { return Err(refusal()) };
        if direction == Direction::Get && found != self.number {
            return Err(Error::CONNECTION_RESET);
        }
        moved.checked_sub(WORD).ok_or(Error::CONNECTION_RESET)
    }
}

/// Room for an entry.
const NOWHERE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// What the kernel's last refusal means for the operation. The beacon comes first, so an address at which nothing is means that the process
/// is not the peer any more.
#[cold]
fn refusal() -> Error {
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ESRCH | libc::EFAULT) => Error::CONNECTION_RESET,
        _ => Error::IO_ERROR,
    }
}

/// Drops the first `count` bytes of a vector. Returns the number of entries that are complete.
fn advance(vector: &mut [libc::iovec], mut count: usize) -> usize {
    for (index, entry) in vector.iter_mut().enumerate() {
        if count < entry.iov_len {
            entry.iov_base = entry.iov_base.cast::<u8>().wrapping_add(count).cast();
            entry.iov_len -= count;
            return index;
        }
        count -= entry.iov_len;
    }
    vector.len()
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_this_process_succeeds_and_one_of_another_has_a_reason() {
        let own = std::process::id();
        let beacon = Beacon::new(0x1234_5678_9abc_def0).unwrap();
        let process = match probe(own, beacon.address(), 0x1234_5678_9abc_def0) {
            Ok(process) => process,
            Err(reason) => panic!("{reason}"),
        };
        let error = probe(own, beacon.address(), 1).unwrap_err();
        assert!(error.contains("not the peer"), "{error}");
        assert!(probe(0, beacon.address(), 1).unwrap_err().contains("pid namespace"));
        assert!(probe(i32::MAX as u32, beacon.address(), 1).unwrap_err().contains("No such process"));
        let mut source = *b"from here";
        let mut target = [0u8; 9];
        // SAFETY: `source` has 9 bytes.
        let put =
            unsafe { process.copy_block(Direction::Put, source.as_mut_ptr(), 9, target.as_mut_ptr() as u64) };
        assert_eq!((put, &target), (Ok(()), b"from here"));
        // SAFETY: `source` has 9 writable bytes.
        let get = unsafe { process.copy_block(Direction::Get, source.as_mut_ptr(), 9, 8) };
        assert_eq!(get, Err(Error::INVALID_PARAM), "nothing is mapped at 8");
    }

    #[test]
    fn a_refusal_names_what_forbids_the_copy() {
        use PtraceScope::*;
        let rows = [
            (libc::EPERM, SameUser, "runs as another user"),
            (libc::EPERM, Restricted, "ptrace_scope is Restricted"),
            (libc::EPERM, Nobody, "ptrace_scope is Nobody"),
            (libc::ENOSYS, SameUser, "no process_vm_readv"),
            (libc::ESRCH, Restricted, "cannot read process 7: No such process"),
        ];
        for (errno, scope, words) in rows {
            let reason = unreadable(7, &io::Error::from_raw_os_error(errno), scope);
            assert!(reason.contains(words), "{errno}, {scope:?}: {reason}");
        }
    }

    #[test]
    fn a_fault_in_the_middle_is_an_error_and_leaves_what_was_copied() {
        const PAGE: usize = 4096;
        let beacon = Beacon::new(7).unwrap();
        let process =
            probe(std::process::id(), beacon.address(), 7).unwrap_or_else(|reason| panic!("{reason}"));
        // SAFETY: new memory, at a place of the kernel's choice.
        let pages = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(pages, libc::MAP_FAILED);
        let second = pages.wrapping_byte_add(PAGE);
        // SAFETY: the second page, to which there is no reference.
        assert_eq!(unsafe { libc::munmap(second, PAGE) }, 0);
        let mut source = vec![7; 2 * PAGE];
        // SAFETY: `source` has so many bytes.
        let put = unsafe { process.copy_block(Direction::Put, source.as_mut_ptr(), 2 * PAGE, pages as u64) };
        assert_eq!(put, Err(Error::INVALID_PARAM));
        // SAFETY: the first page is mapped, and nothing writes to it.
        let first = unsafe { std::slice::from_raw_parts(pages.cast::<u8>(), PAGE) };
        assert_eq!(first, &source[..PAGE]);
        // SAFETY: the page is not used any more.
        unsafe { libc::munmap(pages, PAGE) };
    }

    #[test]
    fn yama_permits_all_or_those_who_were_let_in_or_administrators_or_nobody() {
        use PtraceScope::*;
        let rows = [
            (SameUser, [true, true, true, true]),
            (Restricted, [false, true, true, true]),
            (AdminOnly, [false, false, true, true]),
            (Nobody, [false; 4]),
        ];
        for (scope, expected) in rows {
            let found = [(false, false), (true, false), (false, true), (true, true)]
                .map(|(permitted, is_admin)| yama_permits(scope, permitted, is_admin));
            assert_eq!(found, expected, "{scope:?}");
        }
    }

    #[test]
    fn one_effective_capability_makes_a_process_an_administrator() {
        let with = |bits: &str| grants_sys_ptrace(&format!("CapPrm:\t{}\nCapEff:\t{bits}\n", "f".repeat(16)));
        let rows = [("0000000000080000", true), ("000001ffffffffff", true), ("000001fffff7ffff", false)];
        for (bits, expected) in rows.into_iter().chain([("0000000000000000", false), ("none", false)]) {
            assert_eq!(with(bits), expected, "{bits}");
        }
        assert!(!grants_sys_ptrace(""));
        // The kernel's own text is understood.
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let own = own.lines().find(|line| line.starts_with("CapEff:")).unwrap();
        let digit = own.as_bytes()[own.len() - 5];
        assert_eq!(has_sys_ptrace(), b"89abcdef".contains(&digit), "{own}");
    }

    #[test]
    fn a_vector_goes_on_where_it_stopped() {
        let block =
            |base: usize, length| libc::iovec { iov_base: base as *mut libc::c_void, iov_len: length };
        let mut vector = [block(100, 10), block(200, 5), block(300, 7)];
        assert_eq!(advance(&mut vector, 12), 1);
        assert_eq!((vector[1].iov_base as usize, vector[1].iov_len), (202, 3));
        assert_eq!(advance(&mut vector[1..], 10), 2);
    }

    /// The kernel takes 1024 in one call, and one of them is the beacon's.
    #[test]
    fn any_number_of_blocks_is_copied_in_their_order() {
        use uct_plugin::abi::UctIov;
        let beacon = Beacon::new(7).unwrap();
        let process = probe(std::process::id(), beacon.address(), 7).unwrap();
        for count in [1, 2, 1022, 1023, 1024, 2046, 2047, 3000] {
            // Blocks of three bytes, two apart, behind a single one.
            let (mut head, mut blocks) = ([9u8; 4], vec![0u8; 5 * count]);
            blocks.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 256) as u8);
            let data: Vec<u8> =
                head.into_iter().chain(blocks.chunks(5).flat_map(|block| block[..3].to_vec())).collect();
            let mut there = vec![0u8; data.len()];
            let iov = |head: &mut [u8], blocks: &mut [u8]| {
                let entry = |buffer: *mut u8, length, stride, count| UctIov {
                    buffer: buffer.cast(),
                    length,
                    memh: std::ptr::null_mut(),
                    stride,
                    count,
                };
                [entry(head.as_mut_ptr(), 4, 0, 1), entry(blocks.as_mut_ptr(), 3, 5, count as u32)]
            };
            let entries = iov(&mut head, &mut blocks);
            // SAFETY: two entries, whose memory lives through the copy.
            let all = unsafe { Iov::new(entries.as_ptr(), 2) };
            // SAFETY: as above, and nothing else uses the target.
            unsafe { process.copy(Direction::Put, all, there.as_mut_ptr() as u64) }.unwrap();
            assert!(there == data, "{count} blocks were put");
            let (mut near, mut got) = ([0u8; 4], vec![0u8; 5 * count]);
            let entries = iov(&mut near, &mut got);
            // SAFETY: as above.
            let all = unsafe { Iov::new(entries.as_ptr(), 2) };
            // SAFETY: as above, and the memory is writable.
            unsafe { process.copy(Direction::Get, all, there.as_ptr() as u64) }.unwrap();
            let gaps = got.chunks(5).all(|block| block[3..] == [0, 0]);
            let same = got.chunks(5).zip(blocks.chunks(5)).all(|(got, block)| got[..3] == block[..3]);
            assert!(near == head && gaps && same, "{count} blocks were got");
        }
    }

    /// As after another program was executed: what stood at the beacon is gone, and a number at its address is another one.
    #[test]
    fn where_the_beacon_is_gone_nothing_is_touched() {
        let beacon = Beacon::new(7).unwrap();
        let process = probe(std::process::id(), beacon.address(), 7).unwrap();
        let (mut here, mut there) = ([1u8; 8], [2u8; 8]);
        let (near, far) = (here.as_mut_ptr(), there.as_mut_ptr() as u64);
        let other = Process { number: 8, ..process };
        // SAFETY: `here` has 8 writable bytes.
        let get = unsafe { other.copy_block(Direction::Get, near, 8, far) };
        assert_eq!(get, Err(Error::CONNECTION_RESET));
        here = [1; 8];
        drop(beacon);
        // SAFETY: as above.
        let put = unsafe { process.copy_block(Direction::Put, near, 8, far) };
        assert_eq!((put, there), (Err(Error::CONNECTION_RESET), [2; 8]));
        // SAFETY: as above.
        let get = unsafe { process.copy_block(Direction::Get, near, 8, far) };
        assert_eq!((get, here), (Err(Error::CONNECTION_RESET), [1; 8]));
    }
}
