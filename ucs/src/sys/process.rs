//! Processes: the identity of this one, the start time of others, and notification of their end.
//!
//! Used by shared-memory transports, which must notice that a peer dies and must not mistake a successor for it.
//! Built on /proc and pidfd.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, getegid, geteuid, getgid, getuid, pidfd_open};

use super::{SystemError, read};

/// The users and groups the process runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real user.
    pub uid: u32,
    /// Effective user, whose permissions count.
    pub effective_uid: u32,
    /// Real group.
    pub gid: u32,
    /// Effective group.
    pub effective_gid: u32,
}

/// The credentials of this process, in its user namespace.
pub fn credentials() -> Credentials {
    Credentials {
        uid: getuid().as_raw(),
        effective_uid: geteuid().as_raw(),
        gid: getgid().as_raw(),
        effective_gid: getegid().as_raw(),
    }
}

/// When a process started, in clock ticks (1/100 s) since boot. With the process number it names a process
/// for good, because a number that is used again has a later start.
pub fn start_time(pid: u32) -> Result<u64, SystemError> {
    let failure = |errno: i32| SystemError::new(format!("read when process {pid} started"), errno);
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|error| failure(error.raw_os_error().unwrap_or(libc::EIO)))?;
    parse_start_time(&text).ok_or_else(|| failure(libc::EPROTO))
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses and may contain anything, parentheses too.
    let (_, after_name) = stat.rsplit_once(')')?;
    const START_TIME_FIELD: usize = 22;
    const FIELDS_BEFORE: usize = 3;
    after_name.split_whitespace().nth(START_TIME_FIELD - FIELDS_BEFORE)?.parse().ok()
}

/// A descriptor that becomes readable when the process ends. Closed on `exec`.
///
/// Fails with `ESRCH` if there is no such process in this pid namespace, and with `ENOSYS` before Linux 5.3.
pub fn open_pidfd(pid: u32) -> Result<OwnedFd, SystemError> {
    let failure = |errno: i32| SystemError::new(format!("watch process {pid}"), errno);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| failure(libc::ESRCH))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| failure(errno.raw_os_error()))
}

/// Whether processes may read each other's memory, as far as the Yama security module decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceScope {
    /// Processes of one user may.
    SameUser,
    /// A parent may, or a process that was permitted by `prctl(PR_SET_PTRACER)`.
    Restricted,
    /// Administrators may.
    AdminOnly,
    /// No process may.
    Nobody,
}

/// The Yama module's setting; [`PtraceScope::SameUser`] where the module is absent. Other checks apply on
/// top.
pub fn ptrace_scope() -> PtraceScope {
    match read::value("/proc/sys/kernel/yama/ptrace_scope") {
        None | Some(0) => PtraceScope::SameUser,
        Some(1) => PtraceScope::Restricted,
        Some(2) => PtraceScope::AdminOnly,
        Some(_) => PtraceScope::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_set::{EventBuffer, EventSet, Events};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn a_start_time_is_later_for_a_child_and_stays_the_same() {
        let own = start_time(std::process::id()).unwrap();
        assert_eq!(start_time(std::process::id()).unwrap(), own);
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let childs = start_time(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(childs.unwrap() >= own);
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_parser() {
        let tail = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse_start_time(&format!("7 (evil) R) 1 (x) S {tail}")), Some(22));
        assert_eq!(parse_start_time("7 (short) S 1 2"), None);
        assert_eq!(parse_start_time(""), None);
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pidfd = open_pidfd(child.id()).unwrap();
        let set = EventSet::new().unwrap();
        set.add(&pidfd, Events::READ, 5).unwrap();
        let wait = |limit| set.wait(&mut EventBuffer::<1>::new(), Some(limit)).unwrap().len();
        assert_eq!(wait(Duration::ZERO), 0);
        child.kill().unwrap();
        assert_eq!(wait(Duration::from_secs(10)), 1);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_is_named() {
        assert_eq!(open_pidfd(i32::MAX.unsigned_abs()).unwrap_err().errno, libc::ESRCH);
        assert_eq!(open_pidfd(0).unwrap_err().errno, libc::ESRCH);
        assert_eq!(open_pidfd(u32::MAX).unwrap_err().errno, libc::ESRCH);
        assert!(start_time(u32::MAX).unwrap_err().to_string().contains("4294967295"));
    }

    #[test]
    fn credentials_are_those_of_the_process() {
        use std::os::unix::fs::MetadataExt;
        let owner = std::fs::metadata("/proc/self").unwrap();
        assert_eq!(credentials().effective_uid, owner.uid());
        assert_eq!(credentials().effective_gid, owner.gid());
        let _ = ptrace_scope();
    }
}
