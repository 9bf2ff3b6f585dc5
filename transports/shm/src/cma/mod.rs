//! Copies between the memories of two processes, made by the kernel: process_vm_readv and process_vm_writev.
//!
//! For: put and get to memory that was not allocated for sharing. Stands on `libc`. Whether the kernel permits it depends
//! on users, namespaces, security modules and filters, so a probe tries: it reads a number at an address that the peer
//! has told, which also shows that the process number means that peer and no other.

use std::io;

use ucs::sys::process::{PtraceScope, ptrace_scope};
use uct_plugin::{Error, Iov};

/// What the kernel takes in one call (UIO_MAXIOV).
const MAX_VECTOR: usize = 1024;

/// What a probe looks for: a number that only this process has, at an address that it tells.
#[derive(Debug)]
pub struct Beacon(Box<u64>);

/// A process whose memory may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(libc::pid_t);

impl Beacon {
    /// A beacon that shows `number`.
    pub fn new(number: u64) -> Beacon {
        Beacon(Box::new(number))
    }

    /// Where it stands.
    pub fn address(&self) -> u64 {
        &raw const *self.0 as u64
    }
}

/// Tries to read `expected` at `address` of process `pid`; the refusal says why it cannot be.
pub fn probe(pid: u32, address: u64, expected: u64) -> Result<Process, String> {
    let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else {
        return Err("the peer is in a pid namespace that is not visible from here; run both in one, or the other in a \
                    child of this one's"
            .to_owned());
    };
    let mut found = 0u64;
    let local = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 8 };
    // SAFETY: the kernel writes at most 8 bytes to `found`; the remote address is checked by it.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if copied == 8 && found == expected {
        return Ok(Process(pid));
    }
    if copied >= 0 {
        return Err(format!("process {pid} is not the peer that it was said to be"));
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EPERM) if ptrace_scope() != PtraceScope::SameUser => format!(
            "the Yama module forbids to read process {pid} (kernel.yama.ptrace_scope is {:?}); set UCT_CMA_PTRACER=y \
             in the peer, or the sysctl to 0",
            ptrace_scope()
        ),
        Some(libc::EPERM) => format!(
            "reading process {pid} is forbidden: it runs as another user or in another user namespace, or a seccomp \
             filter forbids process_vm_readv; CAP_SYS_PTRACE in the peer's user namespace would help"
        ),
        Some(libc::ENOSYS) => "the kernel has no process_vm_readv, or a seccomp filter hides it".to_owned(),
        _ => format!("cannot read process {pid}: {error}"),
    })
}

/// Whether the kernel will presumably copy between this process and others of its user, as far as this process can tell:
/// nothing hides the system calls, and Yama's setting is met. `permitted` is whether processes let others in by
/// [`permit_any_tracer`]. Which peers can be reached in the end, only [`probe`] tells.
pub fn is_likely(permitted: bool) -> bool {
    let beacon = Beacon::new(1);
    probe(std::process::id(), beacon.address(), 1).is_ok()
        && yama_permits(ptrace_scope(), permitted, has_sys_ptrace())
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
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
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

/// Which way bytes go.
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
        let mut vector = Vec::with_capacity(iov.entries().len());
        for (block, length) in iov.blocks() {
            vector.push(libc::iovec { iov_base: block.cast(), iov_len: length });
            if vector.len() == MAX_VECTOR {
                // SAFETY: the caller vouches for the blocks.
                offset +=
                    unsafe { self.transfer(direction, &mut vector, remote_address.wrapping_add(offset))? };
                vector.clear();
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
        let mut vector = [libc::iovec { iov_base: block.cast(), iov_len: length }];
        // SAFETY: the caller's promise.
        let moved = unsafe { self.call(direction, &vector, remote_address, length)? };
        if moved != length {
            let rest = advance(&mut vector, moved);
            // SAFETY: as above.
            unsafe { self.transfer(direction, rest, remote_address.wrapping_add(moved as u64))? };
        }
        Ok(())
    }

    /// Moves a whole vector; answers its length.
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
        let total: usize = vector.iter().map(|block| block.iov_len).sum();
        let mut done = 0;
        let mut vector = vector;
        while done < total {
            let remote_address = remote_address.wrapping_add(done as u64);
            // SAFETY: the vector holds valid blocks by the caller's promise.
            let moved = unsafe { self.call(direction, vector, remote_address, total - done)? };
            if moved == 0 {
                return Err(Error::IO_ERROR);
            }
            done += moved;
            vector = advance(vector, moved);
        }
        Ok(total as u64)
    }

    /// One call of the kernel, for `length` bytes in all; answers how many it moved.
    ///
    /// # Safety
    ///
    /// As [`copy`](Process::copy).
    #[inline(always)]
    unsafe fn call(
        self,
        direction: Direction,
        vector: &[libc::iovec],
        remote_address: u64,
        length: usize,
    ) -> Result<usize, Error> {
        let remote = libc::iovec { iov_base: remote_address as *mut libc::c_void, iov_len: length };
        let call = match direction {
            Direction::Put => libc::process_vm_writev,
            Direction::Get => libc::process_vm_readv,
        };
        // SAFETY: the blocks are valid by the caller's promise; the kernel checks the remote side.
        let moved = unsafe { call(self.0, vector.as_ptr(), vector.len() as u64, &raw const remote, 1, 0) };
        usize::try_from(moved).map_err(|_| refusal())
    }
}

/// What the kernel's last refusal means for the operation.
#[cold]
fn refusal() -> Error {
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ESRCH) => Error::CONNECTION_RESET,
        Some(libc::EFAULT) => Error::INVALID_PARAM,
        _ => Error::IO_ERROR,
    }
}

/// Drops the first `count` bytes of a vector.
fn advance(mut vector: &mut [libc::iovec], mut count: usize) -> &mut [libc::iovec] {
    while let [first, ..] = vector {
        if count < first.iov_len {
            first.iov_base = first.iov_base.cast::<u8>().wrapping_add(count).cast();
            first.iov_len -= count;
            break;
        }
        count -= first.iov_len;
        vector = &mut vector[1..];
    }
    vector
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_oneself_succeeds_and_one_of_a_stranger_says_why() {
        let own = std::process::id();
        let beacon = Beacon::new(0x1234_5678_9abc_def0);
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
    fn a_fault_in_the_middle_is_an_error_and_leaves_what_was_copied() {
        const PAGE: usize = 4096;
        let beacon = Beacon::new(7);
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
        // SAFETY: the first page is mapped, and nobody writes to it.
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
    fn a_vector_goes_on_where_it_stopped() {
        let block =
            |base: usize, length| libc::iovec { iov_base: base as *mut libc::c_void, iov_len: length };
        let mut vector = [block(100, 10), block(200, 5), block(300, 7)];
        let rest = advance(&mut vector, 12);
        assert_eq!((rest.len(), rest[0].iov_base as usize, rest[0].iov_len), (2, 202, 3));
        assert_eq!(advance(&mut vector[2..], 7).len(), 0);
    }
}
