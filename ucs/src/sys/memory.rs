//! How much memory the process can have before the system kills it for taking more.
//!
//! Used ahead of making pages present. Built on /proc/meminfo, /proc/self/cgroup and the files of control groups. Nothing here changes a
//! setting.

use std::fmt;
use std::path::Path;

use super::read;

/// Memory that is left, and whose limit it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// The limit, human-readable: "this machine", "control group /jobs/7".
    pub of: String,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has {} bytes left", self.of, self.bytes)
    }
}

/// The least of what the machine and each control group of the process have left, counting memory that the system takes back from its
/// caches and, for the machine, swap. An estimate: others take memory at the same time. `None` if the system reports nothing.
pub fn room() -> Option<Room> {
    room_below(Path::new("/"))
}

/// As [`room`], with the files of /proc and /sys below another root.
fn room_below(root: &Path) -> Option<Room> {
    groups(root).into_iter().chain(machine(root)).min_by_key(|room| room.bytes)
}

fn machine(root: &Path) -> Option<Room> {
    let text = read::text(root.join("proc/meminfo"))?;
    let bytes = |name| field(&text, name).map(|kilobytes| kilobytes.saturating_mul(1024));
    let bytes = bytes("MemAvailable:")?.saturating_add(bytes("SwapFree:").unwrap_or(0));
    Some(Room { bytes, of: "this machine".to_owned() })
}

/// Each control group of the process with a limit, of either version.
fn groups(root: &Path) -> Vec<Room> {
    let text = read::text(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut rooms = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, files) = if controllers.is_empty() {
            ("sys/fs/cgroup", ["memory.max", "memory.current", "inactive_file", "active_file"])
        } else if controllers.split(',').any(|controller| controller == "memory") {
            let old = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
            ("sys/fs/cgroup/memory", [old[0], old[1], "total_inactive_file", "total_active_file"])
        } else {
            continue;
        };
        // In a container the mount may show the group itself as its root.
        for group in Path::new(path).ancestors() {
            let directory = root.join(mount).join(group.strip_prefix("/").unwrap_or(group));
            rooms.extend(of_group(&directory, group, files));
        }
    }
    rooms
}

fn of_group(directory: &Path, group: &Path, [limit, usage, caches @ ..]: [&str; 4]) -> Option<Room> {
    // Without a limit it is the word "max", or in the old version more than there can be.
    let limit: u64 = read::value(directory.join(limit))?;
    let usage: u64 = read::value(directory.join(usage))?;
    let stat = read::text(directory.join("memory.stat")).unwrap_or_default();
    let cached: u64 = caches.iter().filter_map(|name| field(&stat, name)).sum();
    let bytes = limit.saturating_sub(usage.saturating_sub(cached));
    Some(Room { bytes, of: format!("control group {}", group.display()) })
}

/// The number behind the name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine_with(kilobytes: u64) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let text = format!("MemTotal: 999 kB\nMemAvailable: {kilobytes} kB\nSwapFree: 1 kB\n");
        write(root.path(), "proc/meminfo", &text);
        root
    }

    #[test]
    fn a_machine_has_what_is_available_and_its_swap() {
        let root = machine_with(7);
        assert_eq!(room_below(root.path()).unwrap().bytes, 8 << 10);
        assert_eq!(room_below(&root.path().join("nothing")), None);
        assert!(room().is_some_and(|room| room.bytes > 0));
    }

    #[test]
    fn the_narrowest_group_counts_without_the_caches_that_it_gives_back() {
        let root = machine_with(1 << 20);
        let group = |path: &str, limit: &str| {
            write(root.path(), &format!("sys/fs/cgroup/{path}/memory.max"), limit);
            write(root.path(), &format!("sys/fs/cgroup/{path}/memory.current"), "1000\n");
            let stat = "anon 1\ninactive_file 300\nactive_file 200\n";
            write(root.path(), &format!("sys/fs/cgroup/{path}/memory.stat"), stat);
        };
        write(root.path(), "proc/self/cgroup", "0::/jobs/7\n");
        group("jobs/7", "max\n");
        assert_eq!(room_below(root.path()).unwrap().of, "this machine");
        group("jobs", "1500\n");
        let room = room_below(root.path()).unwrap();
        assert_eq!((room.bytes, &*room.of), (1000, "control group /jobs"));
        group("jobs/7", "100\n");
        let room = room_below(root.path()).unwrap();
        assert_eq!((room.bytes, &*room.of), (0, "control group /jobs/7"));
    }

    #[test]
    fn groups_of_the_old_version_count_too() {
        let root = machine_with(1 << 20);
        write(root.path(), "proc/self/cgroup", "5:devices:/x\n4:cpu,memory:/box\n0::/\n");
        write(root.path(), "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000");
        write(root.path(), "sys/fs/cgroup/memory/box/memory.usage_in_bytes", "4000");
        write(
            root.path(),
            "sys/fs/cgroup/memory/box/memory.stat",
            "inactive_file 9\ntotal_inactive_file 500\n",
        );
        assert_eq!(room_below(root.path()).unwrap().bytes, 1500);
    }
}
