//! Memory: what may be locked, shared and read by others, and the size of its pages.

use rustix::fs::{Access, access};
use uct_core::system::pages::TransparentHugePages;
use uct_core::system::process::PtraceScope;

use super::finding::{Finding, Verdict};
use crate::files::Files;

const VERBS: &str = "rc_verbs, ud_verbs";
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_PTRACE: u32 = 19;
/// Less than the receive buffers of an interface take.
const LOCKED_AT_LEAST: u64 = 8 << 20;
/// Enough for the buffers of some interfaces, and little of an application's memory.
const LOCKED_MODEST: u64 = 256 << 20;

/// What a device may have of the memory of this process.
pub(crate) fn locked(files: &Files, limit: Option<u64>, has_devices: bool) -> Finding {
    let Some(limit) = limit else {
        return Finding::fine(VERBS, "memory may be locked, and so registered with a device, without limit");
    };
    let words = format!(
        "{limit} bytes of memory may be locked (ulimit -l); memory that is registered with a device counts"
    );
    if files.has_capability(CAP_IPC_LOCK) {
        return Finding::fine(VERBS, format!("{words}, but not for this process, which has CAP_IPC_LOCK"));
    }
    let verdict = match limit {
        0..LOCKED_AT_LEAST if has_devices => Verdict::Obstacle,
        0..LOCKED_MODEST => Verdict::Limit,
        _ => Verdict::Fine,
    };
    let words = match limit {
        0..LOCKED_AT_LEAST => format!("{words}, and an interface needs more for its own buffers"),
        _ => words,
    };
    match verdict {
        Verdict::Fine => Finding::fine(VERBS, words),
        verdict => Finding::new(verdict, VERBS, words).with_remedy(
            "`* - memlock unlimited` in /etc/security/limits.conf and a new login; LimitMEMLOCK=infinity for a service of systemd; \
             --ulimit memlock=-1 for a container",
        ),
    }
}

/// Whether processes may copy each other's memory. `permits` is the key `cma.ptracer`.
pub(crate) fn of_others(files: &Files, scope: PtraceScope, permits: bool) -> Finding {
    const REMEDY: &str = "sysctl kernel.yama.ptrace_scope=0, also in /etc/sysctl.d";
    match scope {
        PtraceScope::SameUser => Finding::fine("cma", "processes of a user may read each other's memory (kernel.yama.ptrace_scope)"),
        _ if files.has_capability(CAP_SYS_PTRACE) => {
            Finding::fine("cma", "this process has CAP_SYS_PTRACE, and may read the memory of others")
        }
        PtraceScope::Restricted if permits => Finding::fine(
            "cma",
            "kernel.yama.ptrace_scope is 1, and this process permits others to read its memory (UCT_CMA_PTRACER), as its peers must",
        ),
        PtraceScope::Restricted => Finding::new(
            Verdict::Limit,
            "cma",
            "kernel.yama.ptrace_scope is 1: a process may read the memory of another one only if that permits it",
        )
        .with_remedy(format!("UCT_CMA_PTRACER=y in both processes; or {REMEDY}")),
        PtraceScope::AdminOnly | PtraceScope::Nobody => Finding::new(
            Verdict::Obstacle,
            "cma",
            "kernel.yama.ptrace_scope permits no process of a user to read the memory of another one",
        )
        .with_remedy(match scope {
            PtraceScope::Nobody => format!("{REMEDY}, and start the machine again: 3 cannot be changed while it runs"),
            _ => format!("{REMEDY}; or give the program CAP_SYS_PTRACE"),
        }),
    }
}

/// The directory of sockets for peers in other network namespaces. `configured` is the key `shm.dir`.
pub(crate) fn shared(files: &Files, configured: &str) -> Finding {
    const SUBJECT: &str = "posix, sysv, cma";
    const LOST: &str = "processes in other network namespaces, such as containers, cannot connect";
    let directory = match configured {
        "" | "none" => {
            return Finding::new(Verdict::Absent, SUBJECT, format!("UCT_SHM_DIR names no directory: {LOST}"));
        }
        "auto" => "/dev/shm",
        directory => directory,
    };
    match access(files.path(directory), Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::fine(SUBJECT, format!("{directory} is writable")),
        Err(errno) => {
            Finding::new(Verdict::Limit, SUBJECT, format!("{directory} is not writable ({errno}): {LOST}"))
                .with_remedy(
                    "mount a tmpfs there with mode 1777; or name a directory that both see in UCT_SHM_DIR",
                )
        }
    }
}

/// Pages of large memory that is not shared.
pub(crate) fn pages(transparent: TransparentHugePages, free_huge_pages: u64) -> Finding {
    const SUBJECT: &str = "memory";
    match transparent {
        TransparentHugePages::Never if free_huge_pages == 0 => Finding::new(
            Verdict::Limit,
            SUBJECT,
            "there are no huge pages: large memory takes longer to register and to access",
        )
        .with_remedy(
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; or sysctl vm.nr_hugepages=512, with \
             UCT_ALLOC_PRIO=huge",
        ),
        TransparentHugePages::Never => {
            Finding::fine(SUBJECT, format!("{free_huge_pages} huge pages are free, for alloc_prio = huge"))
        }
        _ => Finding::fine(SUBJECT, "large memory that is not shared gets transparent huge pages"),
    }
}

/// Pages of large shared memory, which has settings of its own. `takes_pool`: the key `posix.hugetlb_mode` is not `no`.
pub(crate) fn shared_pages(
    transparent: TransparentHugePages,
    free_huge_pages: u64,
    takes_pool: bool,
) -> Finding {
    const SUBJECT: &str = "posix, sysv";
    if takes_pool && free_huge_pages > 0 {
        return Finding::fine(SUBJECT, format!("{free_huge_pages} huge pages are free for shared memory"));
    }
    if transparent != TransparentHugePages::Never {
        return Finding::fine(SUBJECT, "large shared memory gets transparent huge pages");
    }
    let pool = match free_huge_pages {
        0 if takes_pool => "there are none in the pool (UCT_POSIX_HUGETLB_MODE)".to_owned(),
        0 => "there are none in the pool".to_owned(),
        free => format!("the {free} free ones of the pool are not used (UCT_POSIX_HUGETLB_MODE is no)"),
    };
    Finding::new(
        Verdict::Limit,
        SUBJECT,
        format!("shared memory has small pages: shmem_enabled permits no huge ones, and {pool}; mapping 1 GiB takes longer"),
    )
    .with_remedy(
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled; or sysctl vm.nr_hugepages=512, with \
         UCT_POSIX_HUGETLB_MODE=try in all processes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A process with these capabilities.
    fn files(capabilities: u64) -> (tempfile::TempDir, Files) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/status"), format!("Name:\tx\nCapEff:\t{capabilities:016x}\n"))
            .unwrap();
        let files = Files::below(root.path());
        (root, files)
    }

    #[test]
    fn locked_memory_is_an_obstacle_only_to_devices_that_are_there() {
        let (_root, plain) = files(0);
        let verdict = |limit, has_devices| locked(&plain, limit, has_devices).verdict;
        assert_eq!(verdict(Some(0), true), Verdict::Obstacle);
        assert_eq!(verdict(Some(0), false), Verdict::Limit);
        assert_eq!(verdict(Some(LOCKED_AT_LEAST), true), Verdict::Limit);
        assert_eq!(verdict(Some(LOCKED_MODEST), true), Verdict::Fine);
        assert_eq!(verdict(None, true), Verdict::Fine);
        let found = locked(&plain, Some(0), true);
        assert!(found.words.starts_with("0 bytes") && found.remedy.unwrap().contains("memlock"));
        let (_root, privileged) = files(1 << CAP_IPC_LOCK);
        assert_eq!(locked(&privileged, Some(0), true).verdict, Verdict::Fine);
    }

    #[test]
    fn each_ptrace_scope_has_its_remedy() {
        let (_root, plain) = files(1 << CAP_IPC_LOCK);
        let found = |scope| of_others(&plain, scope, false);
        assert_eq!(found(PtraceScope::SameUser).verdict, Verdict::Fine);
        assert_eq!(found(PtraceScope::Restricted).verdict, Verdict::Limit);
        assert!(found(PtraceScope::Restricted).remedy.unwrap().contains("UCT_CMA_PTRACER"));
        assert_eq!(of_others(&plain, PtraceScope::Restricted, true).verdict, Verdict::Fine);
        assert_eq!(of_others(&plain, PtraceScope::AdminOnly, true).verdict, Verdict::Obstacle);
        assert_eq!(found(PtraceScope::AdminOnly).verdict, Verdict::Obstacle);
        assert!(found(PtraceScope::Nobody).remedy.unwrap().contains("start the machine again"));
        let (_root, privileged) = files(1 << CAP_SYS_PTRACE);
        assert_eq!(of_others(&privileged, PtraceScope::AdminOnly, false).verdict, Verdict::Fine);
    }

    #[test]
    fn the_directory_that_is_examined_is_the_configured_one() {
        let (root, plain) = files(0);
        fs::create_dir_all(root.path().join("dev/shm")).unwrap();
        assert_eq!(shared(&plain, "/run/other").verdict, Verdict::Limit);
        fs::create_dir_all(root.path().join("run/other")).unwrap();
        let found = shared(&plain, "/run/other");
        assert!(found.verdict == Verdict::Fine && found.words.contains("/run/other"), "{found}");
        assert_eq!(shared(&plain, "").verdict, Verdict::Absent);
    }

    #[test]
    fn a_missing_directory_and_missing_huge_pages_are_limits() {
        let (root, plain) = files(0);
        assert_eq!(shared(&plain, "auto").verdict, Verdict::Limit);
        fs::create_dir_all(root.path().join("dev/shm")).unwrap();
        assert_eq!(shared(&plain, "auto").verdict, Verdict::Fine);
        assert_eq!(pages(TransparentHugePages::Never, 0).verdict, Verdict::Limit);
        assert_eq!(pages(TransparentHugePages::Never, 1).verdict, Verdict::Fine);
        assert_eq!(pages(TransparentHugePages::OnRequest, 0).verdict, Verdict::Fine);
    }

    #[test]
    fn shared_memory_is_limited_by_its_own_setting_and_by_a_pool_that_is_not_used() {
        let found = shared_pages(TransparentHugePages::Never, 0, false);
        assert!(found.verdict == Verdict::Limit && found.words.contains("shmem_enabled"), "{found}");
        assert!(found.remedy.unwrap().contains("shmem_enabled"));
        let found = shared_pages(TransparentHugePages::Never, 0, true);
        assert!(found.verdict == Verdict::Limit && found.words.contains("none in the pool"), "{found}");
        let found = shared_pages(TransparentHugePages::Never, 8, false);
        assert!(found.verdict == Verdict::Limit && found.words.contains("not used"), "{found}");
        assert_eq!(shared_pages(TransparentHugePages::Never, 8, true).verdict, Verdict::Fine);
        assert_eq!(shared_pages(TransparentHugePages::OnRequest, 0, false).verdict, Verdict::Fine);
    }
}
