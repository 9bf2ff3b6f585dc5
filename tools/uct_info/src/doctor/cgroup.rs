//! The control groups of this process, of version 1 and 2: where the files of a limit are.
//!
//! Used by `processors` and `memory_limit`. A limit of an outer group counts for the inner ones as well.

use crate::files::Files;

const MOUNT: &str = "/sys/fs/cgroup";

/// The directories of a controller, from the group of this process outwards, and the version of the files in them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) is_first_version: bool,
    pub(super) directories: Vec<String>,
}

impl Groups {
    /// Those of this process.
    pub(super) fn of(files: &Files, controller: &str) -> Groups {
        Groups::parse(&files.text("/proc/self/cgroup").unwrap_or_default(), controller)
    }

    /// From /proc/self/cgroup: `0::/a/b` of version 2, or `4:cpu,cpuacct:/a/b` of version 1. Directories that are not mounted here are among
    /// them.
    fn parse(membership: &str, controller: &str) -> Groups {
        let lines = || membership.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let first = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
        let (mount, path) = match first {
            Some((_, path)) => (format!("{MOUNT}/{controller}"), path),
            None => (
                MOUNT.to_owned(),
                lines().find(|(controllers, _)| controllers.is_empty()).map_or("", |it| it.1),
            ),
        };
        // A group outside of the namespace begins with dots.
        let names = path.split('/').filter(|name| !name.is_empty() && *name != "..");
        let mut directories = vec![mount];
        for name in names {
            directories.push(format!("{}/{name}", directories.last().expect("the mount is there")));
        }
        directories.reverse();
        Groups { is_first_version: first.is_some(), directories }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(membership: &str, controller: &str) -> (bool, Vec<String>) {
        let groups = Groups::parse(membership, controller);
        (groups.is_first_version, groups.directories)
    }

    #[test]
    fn groups_of_both_versions_are_found_from_the_inner_to_the_outer_one() {
        let second = "0::/system.slice/app.service\n";
        let expected =
            ["/sys/fs/cgroup/system.slice/app.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"];
        assert_eq!(directories(second, "cpu"), (false, expected.map(str::to_owned).to_vec()));
        let first = "9:name=systemd:/\n4:memory:/docker/ab\n1:cpu,cpuacct:/\n0::/\n";
        let expected =
            ["/sys/fs/cgroup/memory/docker/ab", "/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/memory"];
        assert_eq!(directories(first, "memory"), (true, expected.map(str::to_owned).to_vec()));
        assert_eq!(directories(first, "cpu"), (true, vec!["/sys/fs/cgroup/cpu".to_owned()]));
        assert_eq!(directories("0::/../other\n", "cpu").1[1..], ["/sys/fs/cgroup"]);
        assert_eq!(directories("", "cpu"), (false, vec!["/sys/fs/cgroup".to_owned()]));
    }
}
