//! The memory that the control groups of this process may use.

use super::cgroup::Groups;
use super::finding::{Finding, Verdict};
use crate::files::Files;

const SUBJECT: &str = "memory";
/// Less than this left is little: some connections over shared memory, and some large messages.
const MODEST: u64 = 256 << 20;
/// Version 1 writes a number that no machine has where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// Bytes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    most: u64,
    /// Without what the kernel can drop.
    used: u64,
}

impl Limit {
    /// From the files of a group: the limit, which is `max` or a huge number if there is none; the use; and `memory.stat`, with the name that
    /// the pages of files that the kernel can drop have there.
    fn parse(most: &str, used: &str, stat: &str, droppable: &str) -> Option<Limit> {
        let most = most.parse().ok().filter(|most| *most < NO_LIMIT)?;
        let line = stat.lines().find_map(|line| line.strip_prefix(droppable)?.strip_prefix(' '));
        let droppable: u64 = line.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
        Some(Limit { most, used: used.parse::<u64>().ok()?.saturating_sub(droppable) })
    }

    fn left(self) -> u64 {
        self.most.saturating_sub(self.used)
    }
}

/// The group in which the least is left.
pub(crate) fn examine(files: &Files) -> Finding {
    let Groups { is_first_version, directories } = Groups::of(files, "memory");
    let [most, used, droppable] = match is_first_version {
        true => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
        false => ["memory.max", "memory.current", "inactive_file"],
    };
    let limits = directories.iter().filter_map(|directory| {
        let read = |name: &str| files.text(&format!("{directory}/{name}"));
        let stat = read("memory.stat").unwrap_or_default();
        Some((format!("{directory}/{most}"), Limit::parse(&read(most)?, &read(used)?, &stat, droppable)?))
    });
    let Some((file, limit)) = limits.min_by_key(|(_, limit)| limit.left()) else {
        return Finding::fine(SUBJECT, "no control group limits the memory of this process");
    };
    let megabytes = |bytes: u64| bytes >> 20;
    let words = format!(
        "the control group of this process may use {} MiB ({file}), of which {} are left",
        megabytes(limit.most),
        megabytes(limit.left())
    );
    if limit.left() >= MODEST {
        return Finding::fine(SUBJECT, words);
    }
    let words = format!(
        "{words}: rings of shared memory, files in /dev/shm, buffers and registered memory count, and beyond the limit the kernel ends a process"
    );
    Finding::new(Verdict::Limit, SUBJECT, words).with_remedy(
        "raise the limit (docker --memory, resources.limits.memory of Kubernetes, MemoryMax= of systemd), or use less: docs/limits.md has what connections take",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_limit_is_what_is_left_without_what_the_kernel_can_drop() {
        let stat = "anon 9\ninactive_file_other 7\ninactive_file 300\n";
        let limit = |most, used| Limit::parse(most, used, stat, "inactive_file");
        assert_eq!(limit("1000", "500"), Some(Limit { most: 1000, used: 200 }));
        assert_eq!(limit("1000", "1200").map(Limit::left), Some(100));
        assert_eq!(limit("1000", "2000").map(Limit::left), Some(0));
        assert_eq!(limit("max", "500"), None);
        assert_eq!(limit("9223372036854771712", "500"), None, "version 1 without a limit");
        assert_eq!([limit("", "5"), limit("5", "")], [None; 2]);
    }

    #[test]
    fn the_group_with_the_least_left_counts_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::below(root.path());
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(examine(&files).verdict, Verdict::Fine);
        write("proc/self/cgroup", "0::/pod/app\n");
        for (group, most, used) in
            [("pod/app", 2048 << 20, 100 << 20), ("pod", 4096_u64 << 20, 4000_u64 << 20)]
        {
            write(&format!("sys/fs/cgroup/{group}/memory.max"), &format!("{most}\n"));
            write(&format!("sys/fs/cgroup/{group}/memory.current"), &format!("{used}\n"));
        }
        let found = examine(&files);
        assert_eq!(found.verdict, Verdict::Limit, "{found:?}");
        let words = "may use 4096 MiB (/sys/fs/cgroup/pod/memory.max), of which 96 are left: ";
        assert!(found.words.contains(words) && found.remedy.is_some(), "{found:?}");

        write("proc/self/cgroup", "4:memory:/docker/ab\n0::/\n");
        write("sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "1073741824\n");
        write("sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "1000000000\n");
        write("sys/fs/cgroup/memory/docker/ab/memory.stat", "total_inactive_file 900000000\n");
        let found = examine(&files);
        assert_eq!(found.verdict, Verdict::Fine, "{found:?}");
        assert!(found.words.contains("may use 1024 MiB"), "{found:?}");
    }
}
