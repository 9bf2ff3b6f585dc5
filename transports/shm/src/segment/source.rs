//! Making segments, and taking them from a peer.
//!
//! For: channels and allocated memory. Stands on memfd_create, O_TMPFILE and shmget. A descriptor from a peer is
//! mapped only when it cannot shrink under us: touching memory beyond the end of a file is SIGBUS.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use ucs::sys::SystemError;

use super::Mapping;

const HUGE_PAGE: usize = 2 << 20;

/// Where segments come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// memfd.
    Memfd,
    /// Unlinked files in a directory.
    Directory(PathBuf),
    /// System V, with access for the owner or for everybody.
    Sysv {
        /// Whether any user may attach.
        public: bool,
    },
}

/// How a peer gets at a segment.
#[derive(Debug)]
pub enum Source {
    /// By its descriptor.
    File(OwnedFd),
    /// By its number.
    Sysv(i32),
}

/// A segment of this process.
#[derive(Debug)]
pub struct Segment {
    /// Its memory, zeroed.
    pub mapping: Mapping,
    /// How a peer gets at it.
    pub source: Source,
}

impl Segment {
    /// Makes a segment of `length` bytes, a multiple of 4096, on huge pages if wanted.
    pub fn new(origin: &Origin, length: usize, huge: bool) -> Result<Segment, SystemError> {
        let length = if huge { length.next_multiple_of(HUGE_PAGE) } else { length };
        match origin {
            Origin::Memfd => Segment::memfd(length, huge, SealFlags::empty()),
            Origin::Directory(directory) => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
                    .mode(0o600)
                    .open(directory)
                    .map_err(|error| {
                        SystemError::new(format!("make a file in {}", directory.display()), error)
                            .advise("set UCT_POSIX_DIR to a directory of a tmpfs that you may write to")
                    })?;
                // Sparse files would be SIGBUS when the file system is full: ask for the space now.
                rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length as u64).map_err(
                    |errno| {
                        SystemError::new(format!("reserve {length} bytes in {}", directory.display()), errno)
                            .advise("enlarge that file system, or set UCT_POSIX_SEGMENTS=memfd")
                    },
                )?;
                let fd = OwnedFd::from(file);
                Ok(Segment { mapping: Mapping::file(fd.as_fd(), length, true)?, source: Source::File(fd) })
            }
            Origin::Sysv { public } => Segment::sysv(length, huge, *public),
        }
    }

    /// Makes a memfd that can neither grow nor shrink, with further seals once it is mapped.
    pub fn memfd(length: usize, huge: bool, seals: SealFlags) -> Result<Segment, SystemError> {
        let length = if huge { length.next_multiple_of(HUGE_PAGE) } else { length };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let flags = if huge { flags | MemfdFlags::HUGETLB } else { flags };
        let fd = memfd_create("uct", flags)
            .map_err(|errno| SystemError::new(format!("make a memfd of {length} bytes"), errno))?;
        ftruncate(&fd, length as u64)
            .map_err(|errno| SystemError::new(format!("give a memfd {length} bytes"), errno))?;
        let mapping = Mapping::file(fd.as_fd(), length, true)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | seals)
            .map_err(|errno| SystemError::new("seal a memfd", errno))?;
        Ok(Segment { mapping, source: Source::File(fd) })
    }

    fn sysv(length: usize, huge: bool, public: bool) -> Result<Segment, SystemError> {
        let flags =
            libc::IPC_CREAT | if public { 0o666 } else { 0o600 } | if huge { libc::SHM_HUGETLB } else { 0 };
        // SAFETY: shmget takes numbers and touches no memory of ours.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, length, flags) };
        if id < 0 {
            return Err(SystemError::last(format!("make a System V segment of {length} bytes"))
                .advise("see the limits in /proc/sys/kernel/shmmax, shmall and shmmni"));
        }
        let mapping = Mapping::sysv(id, length);
        // Marked at once: the segment goes with its last user, whatever kills it. Linux lets peers attach meanwhile.
        // SAFETY: IPC_RMID uses no buffer.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        Ok(Segment { mapping: mapping?, source: Source::Sysv(id) })
    }
}

/// Maps a segment whose descriptor came from a peer.
///
/// Refused, with `EPERM`, are descriptors that may shrink, unless `trusted`: those of segments in a directory that was
/// configured.
pub fn accept(
    fd: BorrowedFd<'_>,
    length: usize,
    writable: bool,
    trusted: bool,
) -> Result<Mapping, SystemError> {
    let refuse = |what: &str| SystemError::new(format!("take a segment from the peer: {what}"), libc::EPERM);
    let stat = fstat(fd).map_err(|errno| SystemError::new("look at a segment of the peer", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refuse("it is no regular file"));
    }
    if u64::try_from(stat.st_size).unwrap_or(0) < length as u64 {
        return Err(refuse("it is shorter than announced"));
    }
    let sealed = fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    if !sealed && !trusted {
        return Err(refuse("the peer could shrink it (UCT_POSIX_SEGMENTS=dir here trusts that it does not)"));
    }
    Mapping::file(fd, length, writable)
}

/// Attaches a System V segment that a peer names.
pub fn attach_sysv(id: i32, length: usize) -> Result<Mapping, SystemError> {
    // SAFETY: all fields of the structure are numbers, for which zero is a value.
    let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: IPC_STAT fills the structure.
    if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) } < 0 {
        return Err(SystemError::last(format!("look at System V segment {id}")));
    }
    if status.shm_segsz < length {
        return Err(SystemError::new(
            format!(
                "attach System V segment {id}: it has {} bytes, announced were {length}",
                status.shm_segsz
            ),
            libc::EPERM,
        ));
    }
    Mapping::sysv(id, length)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn write(mapping: &Mapping, at: usize, value: u8) {
        assert!(at < mapping.length());
        // SAFETY: inside the mapping.
        let byte = unsafe { mapping.base().add(at) };
        // SAFETY: the mapping is writable and this test's alone.
        unsafe { byte.write_volatile(value) };
    }

    fn read(mapping: &Mapping, at: usize) -> u8 {
        assert!(at < mapping.length());
        // SAFETY: inside the mapping.
        let byte = unsafe { mapping.base().add(at) };
        // SAFETY: as above.
        unsafe { byte.read_volatile() }
    }

    #[test]
    fn two_mappings_of_a_segment_show_the_same_memory() {
        let directory = tempfile::tempdir().unwrap();
        let origins =
            [Origin::Memfd, Origin::Directory(directory.path().to_owned()), Origin::Sysv { public: false }];
        for origin in origins {
            let segment = Segment::new(&origin, 8192, false).unwrap();
            let peer = match &segment.source {
                Source::File(fd) => accept(fd.as_fd(), 8192, true, true).unwrap(),
                Source::Sysv(id) => attach_sysv(*id, 8192).unwrap(),
            };
            assert_eq!(read(&peer, 8191), 0, "{origin:?} is not zeroed");
            write(&segment.mapping, 8191, 7);
            assert_eq!(read(&peer, 8191), 7, "{origin:?}");
            drop(segment);
            assert_eq!(read(&peer, 8191), 7, "{origin:?} went with its maker");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a name stayed behind");
    }

    #[test]
    fn a_segment_that_could_shrink_or_is_too_short_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let segment = Segment::new(&Origin::Directory(directory.path().to_owned()), 4096, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a directory gives files") };
        let error = accept(fd.as_fd(), 4096, true, false).unwrap_err();
        assert!(error.to_string().contains("could shrink"), "{error}");
        let segment = Segment::new(&Origin::Memfd, 4096, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a memfd is a file") };
        assert!(ftruncate(fd, 0).is_err(), "the seal does not hold");
        let error = accept(fd.as_fd(), 4097, true, false).unwrap_err();
        assert!(error.to_string().contains("shorter than announced"), "{error}");
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        let error = accept(pipe.as_fd(), 1, true, false).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }

    #[test]
    fn a_system_v_segment_is_gone_with_its_users() {
        let segment = Segment::new(&Origin::Sysv { public: false }, 4096, false).unwrap();
        let Source::Sysv(id) = segment.source else { panic!("not System V") };
        let error = attach_sysv(id, 4097).unwrap_err();
        assert!(error.to_string().contains("4096 bytes, announced were 4097"), "{error}");
        drop(segment);
        assert!(attach_sysv(id, 4096).is_err());
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let error = Segment::new(&Origin::Directory("/no/such/place".into()), 4096, false).unwrap_err();
        assert!(error.to_string().contains("/no/such/place"), "{error}");
        assert!(error.to_string().contains("UCT_POSIX_DIR"), "{error}");
    }
}
