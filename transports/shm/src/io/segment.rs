//! Creates segments, and maps segments of a peer.
//!
//! Used by channels and for allocated memory. Built on memfd_create, O_TMPFILE and shmget. A descriptor from a peer is mapped only if its
//! file cannot shrink, because an access beyond the end of a file causes SIGBUS.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{
    FileType, FsWord, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use ucs::sys::SystemError;
use ucs::sys::process::credentials;

use super::Mapping;
use super::socket::Credentials;

const HUGE_PAGE: usize = 2 << 20;
/// What the system calls the file system of huge pages.
const HUGETLBFS_MAGIC: FsWord = 0x9584_58f6;
/// Of a System V segment's mode: it goes with its last user.
const SHM_DEST: u32 = 0o1000;

/// Where segments come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// memfd.
    Memfd,
    /// Unlinked files in a directory.
    Directory(PathBuf),
    /// System V, with access for the owner or for all users.
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
                check_file_size(length)?;
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
        check_file_size(length)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let flags = if huge { flags | MemfdFlags::HUGETLB } else { flags };
        let fd = memfd_create("uct", flags).map_err(|errno| {
            SystemError::new(format!("make a memfd of {length} bytes"), errno).of_call("memfd_create")
        })?;
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

/// What is taken from a peer besides memfds that cannot shrink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trust {
    /// Files of this user on this device, which could shrink: segments are configured to be files there.
    pub files_of: Option<u64>,
    /// Huge pages, which can be taken away from under a mapping: they are configured here too.
    pub huge: bool,
}

impl Trust {
    /// Nothing else.
    pub const SEALED: Trust = Trust { files_of: None, huge: false };

    /// The kinds of segments that a domain accepts, from how it creates its own.
    pub fn new(origin: &Origin, huge: bool) -> Trust {
        let files_of = match origin {
            Origin::Directory(directory) => std::fs::metadata(directory).ok().map(|found| found.dev()),
            _ => None,
        };
        Trust { files_of, huge }
    }
}

/// Maps a segment whose descriptor came from a peer.
///
/// Refused, with `EPERM`, are descriptors that may shrink, but for those that `trust` names. Huge pages are refused with `ENOTSUP`
/// unless they are trusted: a hole in such a file is filled from a pool that can be empty, and that is SIGBUS.
pub fn accept(
    fd: BorrowedFd<'_>,
    length: usize,
    writable: bool,
    trust: Trust,
) -> Result<Mapping, SystemError> {
    let refuse = |what: &str| SystemError::new(format!("accept a segment of the peer: {what}"), libc::EPERM);
    // Seals come first: what holds for the size of a file that cannot shrink holds from then on.
    let sealed = fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let look = |errno: Errno| SystemError::new("check a segment of the peer", errno);
    let stat = fstat(fd).map_err(look)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refuse("it is not a regular file"));
    }
    let is_trusted = trust.files_of == Some(stat.st_dev) && stat.st_uid == credentials().effective_uid;
    if !sealed && !is_trusted {
        return Err(refuse(match trust.files_of {
            None => "the peer could shrink it (UCT_POSIX_SEGMENTS=dir here trusts that it does not)",
            Some(_) => {
                "the peer could shrink it, and it is no file of this user in the file system of UCT_POSIX_DIR"
            }
        }));
    }
    if !trust.huge && fstatfs(fd).map_err(look)?.f_type == HUGETLBFS_MAGIC {
        let what = "accept a segment of the peer: it has huge pages";
        return Err(SystemError::new(what, libc::ENOTSUP)
            .advise("set UCT_POSIX_HUGETLB_MODE=try here too, or to no in the peer"));
    }
    if u64::try_from(stat.st_size).unwrap_or(0) < length as u64 {
        return Err(refuse("it is shorter than announced"));
    }
    Mapping::file(fd, length, writable)
}

/// Attaches a System V segment that a peer names. Its creator must be `owner` (process 0: not known), and it must
/// be marked for removal, as all segments of this transport are: a peer could name any that this process may attach. Huge pages are
/// refused as in [`accept`].
pub fn attach_sysv(id: i32, length: usize, owner: Credentials, trust: Trust) -> Result<Mapping, SystemError> {
    // Attached first: from then on the number means this segment.
    let mapping = Mapping::sysv(id, length)?;
    // SAFETY: all fields of the structure are numbers, for which zero is a value.
    let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: IPC_STAT fills the structure.
    if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) } < 0 {
        return Err(SystemError::last(format!("check System V segment {id}")));
    }
    let refuse =
        |what: String| Err(SystemError::new(format!("attach System V segment {id}: {what}"), libc::EPERM));
    if status.shm_segsz < length {
        return refuse(format!("it has {} bytes, announced were {length}", status.shm_segsz));
    }
    let creator = u32::try_from(status.shm_cpid).unwrap_or(0);
    let is_other_process = owner.pid != 0 && creator != owner.pid;
    if status.shm_perm.cuid != owner.uid || is_other_process {
        let found = Credentials { pid: creator, uid: status.shm_perm.cuid };
        return refuse(format!("it was made by {found}, the peer is {owner}"));
    }
    if u32::from(status.shm_perm.mode) & SHM_DEST == 0 {
        return refuse("it is not marked for removal, as segments of this transport are".to_owned());
    }
    if !trust.huge && has_huge_pages(&mapping)? {
        let what = format!("attach System V segment {id}: it has huge pages");
        return Err(SystemError::new(what, libc::ENOTSUP)
            .advise("set UCT_SYSV_HUGETLB_MODE=try here too, or to no in the peer"));
    }
    Ok(mapping)
}

/// Whether a fresh mapping has huge pages, of which no part has an attribute of its own: a small page that core dumps leave out is
/// possible in any other.
fn has_huge_pages(mapping: &Mapping) -> Result<bool, SystemError> {
    let base = mapping.base().as_ptr().cast();
    let small = rustix::param::page_size();
    for advice in [libc::MADV_DONTDUMP, libc::MADV_DODUMP] {
        // SAFETY: the mapping has its first page; the advice is about core dumps and changes no memory.
        if unsafe { libc::madvise(base, small, advice) } != 0 {
            let error = SystemError::last("check the pages of a segment of the peer");
            return if error.errno == libc::EINVAL { Ok(true) } else { Err(error) };
        }
    }
    Ok(false)
}

/// Fails if the process may not make a file of `length` bytes, which would end it with a signal.
fn check_file_size(length: usize) -> Result<(), SystemError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < length as u64 => {
            let what = format!(
                "make {length} bytes of shared memory: the limit of this process for a file is {limit} bytes"
            );
            Err(SystemError::new(what, libc::EFBIG).advise("raise that limit (ulimit -f unlimited)"))
        }
        _ => Ok(()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::skip;

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

    fn own() -> Credentials {
        Credentials { pid: std::process::id(), uid: credentials().effective_uid }
    }

    #[test]
    fn two_mappings_of_a_segment_show_the_same_memory() {
        let directory = tempfile::tempdir().unwrap();
        let origins =
            [Origin::Memfd, Origin::Directory(directory.path().to_owned()), Origin::Sysv { public: false }];
        for origin in origins {
            let segment = Segment::new(&origin, 8192, false).unwrap();
            let peer = match &segment.source {
                Source::File(fd) => accept(fd.as_fd(), 8192, true, Trust::new(&origin, false)).unwrap(),
                Source::Sysv(id) => attach_sysv(*id, 8192, own(), Trust::SEALED).unwrap(),
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
    fn a_memfd_keeps_its_size_and_a_file_has_its_room_from_the_start() {
        let segment = Segment::new(&Origin::Memfd, 8192, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a memfd is a file") };
        for size in [4096, 12_288] {
            assert!(ftruncate(fd, size).is_err(), "it has {size} bytes now");
        }
        assert!(fcntl_add_seals(fd, SealFlags::WRITE).is_err(), "a peer can seal it");
        let directory = tempfile::tempdir().unwrap();
        let segment = Segment::new(&Origin::Directory(directory.path().to_owned()), 65_536, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a directory gives files") };
        let found = fstat(fd).unwrap();
        assert_eq!((found.st_size, found.st_mode & 0o777), (65_536, 0o600));
        assert!(
            found.st_blocks * 512 >= 65_536,
            "{} blocks: it may turn out that there is no room",
            found.st_blocks
        );
    }

    #[test]
    fn other_users_may_attach_a_system_v_segment_only_where_that_is_wanted() {
        for (public, expected) in [(false, 0o600), (true, 0o666)] {
            let segment = Segment::new(&Origin::Sysv { public }, 4096, false).unwrap();
            let Source::Sysv(id) = segment.source else { panic!("not System V") };
            // SAFETY: all fields of the structure are numbers, for which zero is a value.
            let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
            // SAFETY: IPC_STAT fills the structure.
            assert_eq!(unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) }, 0);
            assert_eq!(u32::from(status.shm_perm.mode) & 0o777, expected);
        }
    }

    #[test]
    fn a_segment_that_could_shrink_or_is_too_short_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let segment = Segment::new(&Origin::Directory(directory.path().to_owned()), 4096, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a directory gives files") };
        let error = accept(fd.as_fd(), 4096, true, Trust::SEALED).unwrap_err();
        assert!(error.to_string().contains("could shrink"), "{error}");
        let segment = Segment::new(&Origin::Memfd, 4096, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a memfd is a file") };
        assert!(ftruncate(fd, 0).is_err(), "the seal does not hold");
        let error = accept(fd.as_fd(), 4097, true, Trust::SEALED).unwrap_err();
        assert!(error.to_string().contains("shorter than announced"), "{error}");
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        let error = accept(pipe.as_fd(), 1, true, Trust::SEALED).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn accepted_segments_have_their_announced_length_whenever_they_are_cut() {
        let [mut unsealed, mut cut] = [0; 2];
        for turn in 0..4000u32 {
            let fd = memfd_create("uct", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, 8192).unwrap();
            let is_ready = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    is_ready.wait();
                    (0..turn % 64).for_each(|_| std::hint::spin_loop());
                    let _ = ftruncate(&fd, 0);
                    let _ = fcntl_add_seals(&fd, SealFlags::SHRINK);
                });
                is_ready.wait();
                // The peer cuts ahead of the seal: there is no moment at which it has both the seal and the length.
                let Err(error) = accept(fd.as_fd(), 8192, true, Trust::SEALED) else {
                    panic!("in turn {turn} a file was mapped that has {} bytes", fstat(&fd).unwrap().st_size)
                };
                let reason = error.to_string();
                unsealed += u32::from(reason.contains("could shrink"));
                cut += u32::from(reason.contains("shorter than announced"));
            });
        }
        let occurred = format!("{unsealed} had no seal yet, {cut} were cut and had one");
        println!("{occurred}");
        assert!(unsealed > 0 && cut > 0 && unsealed + cut == 4000, "the ends did not meet: {occurred}");
    }

    #[test]
    fn huge_pages_of_a_peer_are_refused_unless_they_were_configured() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let Ok(fd) = memfd_create("uct", flags) else {
            return skip::skip("hugepages", "this system has no huge pages");
        };
        ftruncate(&fd, HUGE_PAGE as u64).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        let error = accept(fd.as_fd(), 4096, true, Trust::SEALED).unwrap_err();
        assert!(error.to_string().contains("HUGETLB_MODE"), "{error}");
        let huge = Trust { huge: true, ..Trust::SEALED };
        if let Err(error) = accept(fd.as_fd(), 4096, true, huge) {
            assert_eq!(error.errno, libc::ENOMEM, "no more than a lack of pages: {error}");
        }
    }

    #[test]
    fn a_system_v_segment_is_gone_with_its_users() {
        let segment = Segment::new(&Origin::Sysv { public: false }, 4096, false).unwrap();
        let Source::Sysv(id) = segment.source else { panic!("not System V") };
        let error = attach_sysv(id, 4097, own(), Trust::SEALED).unwrap_err();
        assert!(error.to_string().contains("4096 bytes, announced were 4097"), "{error}");
        drop(segment);
        assert!(attach_sysv(id, 4096, own(), Trust::SEALED).is_err());
    }

    #[test]
    fn a_segment_that_another_has_created_is_refused() {
        let segment = Segment::new(&Origin::Sysv { public: false }, 4096, false).unwrap();
        let Source::Sysv(id) = segment.source else { panic!("not System V") };
        attach_sysv(id, 4096, own(), Trust::SEALED).unwrap();
        attach_sysv(id, 4096, Credentials { pid: 0, ..own() }, Trust::SEALED).unwrap();
        for other in [Credentials { pid: own().pid + 1, ..own() }, Credentials { uid: own().uid + 1, pid: 0 }]
        {
            let error = attach_sysv(id, 4096, other, Trust::SEALED).unwrap_err();
            assert!(error.to_string().contains("it was made by"), "{error}");
        }
    }

    #[test]
    fn a_system_v_segment_with_huge_pages_is_refused_unless_they_were_configured() {
        let flags = libc::IPC_CREAT | 0o600 | libc::SHM_HUGETLB | libc::SHM_NORESERVE;
        // SAFETY: shmget takes numbers and touches no memory of ours.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, HUGE_PAGE, flags) };
        if id < 0 {
            return skip::skip("hugepages", "this system has no huge pages");
        }
        let used = Mapping::sysv(id, 4096);
        // SAFETY: IPC_RMID uses no buffer.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        let used = used.unwrap();
        let error = attach_sysv(id, 4096, own(), Trust::SEALED).unwrap_err();
        assert!(error.to_string().contains("UCT_SYSV_HUGETLB_MODE"), "{error}");
        assert_eq!(error.errno, libc::ENOTSUP);
        attach_sysv(id, 4096, own(), Trust { huge: true, ..Trust::SEALED }).unwrap();
        drop(used);
    }

    #[test]
    fn a_file_is_taken_from_the_configured_file_system_only() {
        let directory = tempfile::tempdir().unwrap();
        let origin = Origin::Directory(directory.path().to_owned());
        let segment = Segment::new(&origin, 4096, false).unwrap();
        let Source::File(fd) = &segment.source else { panic!("a directory gives files") };
        let trust = Trust::new(&origin, false);
        accept(fd.as_fd(), 4096, true, trust).unwrap();
        let elsewhere = Trust { files_of: trust.files_of.map(|device| device + 1), huge: false };
        let error = accept(fd.as_fd(), 4096, true, elsewhere).unwrap_err();
        assert!(error.to_string().contains("UCT_POSIX_DIR"), "{error}");
        if !skip::is_root("give a file to another user") {
            return;
        }
        let other = rustix::fs::Uid::from_raw(65534);
        rustix::fs::fchown(fd, Some(other), None).unwrap();
        let error = accept(fd.as_fd(), 4096, true, trust).unwrap_err();
        assert!(error.to_string().contains("no file of this user"), "{error}");
    }

    #[test]
    fn a_segment_that_its_creator_has_not_marked_for_removal_is_refused() {
        // SAFETY: shmget takes numbers and touches no memory of ours.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0);
        let attached = attach_sysv(id, 4096, own(), Trust::SEALED);
        // SAFETY: IPC_RMID uses no buffer.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        let error = attached.unwrap_err();
        assert!(error.to_string().contains("marked for removal"), "{error}");
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let error = Segment::new(&Origin::Directory("/no/such/place".into()), 4096, false).unwrap_err();
        assert!(error.to_string().contains("/no/such/place"), "{error}");
        assert!(error.to_string().contains("UCT_POSIX_DIR"), "{error}");
    }
}
