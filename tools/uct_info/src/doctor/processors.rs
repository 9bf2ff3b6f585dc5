//! Processors: how many programs want one, how many this process may use and for how long, and how fast they run.
//!
//! A transport is fast while the threads at both ends run. A thread that polls and is stopped by the scheduler goes on some milliseconds later.

use super::cgroup::Groups;
use super::finding::{Finding, Verdict};
use crate::files::Files;

const SUBJECT: &str = "processors";
const SLEEP: &str = "let programs sleep between messages instead of polling (Worker::wait)";

/// `usable` are those that this process may run on.
pub(crate) fn examine(files: &Files, usable: &[usize]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let online = files.text("/sys/devices/system/cpu/online").and_then(|list| count(&list));
    if let Some(load) = files.text("/proc/loadavg") {
        findings.extend(of_load(&load, online.unwrap_or(usable.len())));
    }
    findings.push(of_affinity(usable));
    findings.push(of_quota(quota(files), usable.len()));
    findings.extend(of_governors(files, usable));
    findings
}

/// The number of processors in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        Some((last + 1).saturating_sub(first))
    });
    ranges.sum()
}

/// From /proc/loadavg: how many threads have run or wanted to, on average of the last minute.
fn of_load(loadavg: &str, processors: usize) -> Option<Finding> {
    let load: f64 = loadavg.split_whitespace().next()?.parse().ok()?;
    let words = format!("load of the last minute {load:.1}, on {processors} processors");
    if load <= processors as f64 {
        return Some(Finding::fine(SUBJECT, words));
    }
    let words = format!(
        "{words}: threads wait for a processor, and one that polls loses its own for milliseconds at a time"
    );
    Some(Finding::new(Verdict::Limit, SUBJECT, words).with_remedy(format!(
        "end other programs or move them to another machine (top shows them), or {SLEEP}"
    )))
}

/// The processors that the affinity of this process permits.
fn of_affinity(usable: &[usize]) -> Finding {
    let [only] = usable else {
        return Finding::fine(SUBJECT, format!("this process may run on {} of them", usable.len()));
    };
    let words = format!(
        "this process may run on processor {only} alone: if the other side of a connection runs there too, each message waits until the scheduler \
         changes from one to the other"
    );
    Finding::new(Verdict::Limit, SUBJECT, words).with_remedy(format!(
        "give each side a processor of its own: taskset -c, numactl, docker --cpuset-cpus, or the launcher's binding; or {SLEEP}"
    ))
}

/// Processor time that a control group may use.
#[derive(Debug, PartialEq)]
struct Quota {
    /// Of how many processors.
    processors: f64,
    /// Microseconds for which it is counted.
    period: u64,
    /// How often it was used up.
    throttled: u64,
    /// The file, and what docker and Kubernetes call it.
    file: String,
}

/// From `cpu.max` of version 2: `max 100000`, or `200000 100000`. `None` if there is no limit.
fn second_version(max: &str) -> Option<(f64, u64)> {
    let (quota, period) = max.split_once(' ')?;
    let (quota, period) = (quota.parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?);
    (period > 0).then(|| (quota as f64 / period as f64, period))
}

/// From `cpu.cfs_quota_us`, which is -1 without a limit, and `cpu.cfs_period_us` of version 1.
fn first_version(quota: &str, period: &str) -> Option<(f64, u64)> {
    second_version(&format!("{quota} {period}"))
}

/// From `cpu.stat`.
fn throttled(stat: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// The smallest of this process's groups.
fn quota(files: &Files) -> Option<Quota> {
    let Groups { is_first_version, directories } = Groups::of(files, "cpu");
    let quotas = directories.iter().filter_map(|directory| {
        let read = |name: &str| files.text(&format!("{directory}/{name}"));
        let (name, (processors, period)) = match is_first_version {
            true => {
                ("cpu.cfs_quota_us", first_version(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)?)
            }
            false => ("cpu.max", second_version(&read("cpu.max")?)?),
        };
        let throttled = throttled(&read("cpu.stat").unwrap_or_default());
        Some(Quota { processors, period, throttled, file: format!("{directory}/{name}") })
    });
    quotas.min_by(|left, right| left.processors.total_cmp(&right.processors))
}

fn of_quota(quota: Option<Quota>, usable: usize) -> Finding {
    let Some(Quota { processors, period, throttled, file }) = quota else {
        return Finding::fine(SUBJECT, "no control group limits the processor time of this process");
    };
    let words =
        format!("the control group of this process may use the time of {processors:.2} processors ({file})");
    if processors >= usable as f64 {
        return Finding::fine(SUBJECT, words);
    }
    let so_far = match throttled {
        0 => String::new(),
        times => format!("; so far {times} times"),
    };
    let milliseconds = period as f64 / 1000.0;
    let words = format!(
        "{words} of {usable}: once it is used up, all threads stop until the next period of {milliseconds} ms begins{so_far}; polling uses it up"
    );
    Finding::new(Verdict::Limit, SUBJECT, words).with_remedy(format!(
        "raise the limit (docker --cpus, resources.limits.cpu of Kubernetes, CPUQuota= of systemd), or {SLEEP}"
    ))
}

/// How the kernel chooses the frequency; nothing where it does not, as in virtual machines.
fn of_governors(files: &Files, usable: &[usize]) -> Option<Finding> {
    let mut governors: Vec<(String, String)> = Vec::new();
    for cpu in usable {
        let read = |name: &str| files.text(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"));
        let Some(governor) = read("scaling_governor") else { continue };
        let found = (governor, read("scaling_driver").unwrap_or_default());
        if !governors.contains(&found) {
            governors.push(found);
        }
    }
    let names: Vec<&str> = governors.iter().map(|(governor, _)| governor.as_str()).collect();
    let words = format!("frequency governor {}", names.join(", "));
    match governors.iter().find(|(governor, driver)| is_slow(governor, driver)) {
        _ if governors.is_empty() => None,
        None => Some(Finding::fine(SUBJECT, words)),
        Some(_) => {
            let words = format!(
                "{words}: the processor's frequency follows its load, so a program that sleeps between messages begins slowly"
            );
            Some(
                Finding::new(Verdict::Limit, SUBJECT, words)
                    .with_remedy("cpupower frequency-set -g performance"),
            )
        }
    }
}

/// The drivers intel_pstate and amd-pstate-epp leave it to the processor, whatever the governor is called.
fn is_slow(governor: &str, driver: &str) -> bool {
    governor != "performance" && !matches!(driver, "intel_pstate" | "amd-pstate-epp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[track_caller]
    fn expect(found: &Finding, verdict: Verdict, words: &str) {
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.words.contains(words), "{found:?}");
        assert_eq!(found.remedy.is_some(), verdict == Verdict::Limit, "{found:?}");
    }

    #[test]
    fn processors_are_counted_in_lists_of_ranges() {
        assert_eq!(
            ["0", "0-1", "0-3,8", "0-3,8-9,12", "3-1"].map(count),
            [Some(1), Some(2), Some(5), Some(7), Some(0)]
        );
        assert_eq!(["", "a-b", "0-", "0,,1"].map(count), [None; 4]);
    }

    #[test]
    fn a_load_above_the_number_of_processors_is_a_limit() {
        let load = |text| of_load(text, 2).unwrap();
        expect(&load("10.12 10.32 9.53 4/125 15992"), Verdict::Limit, "10.1, on 2 processors: threads wait");
        expect(&load("2.00 0.10 0.05 1/125 15992"), Verdict::Fine, "2.0, on 2 processors");
        assert!(of_load("", 2).is_none() && of_load("many", 2).is_none());
    }

    #[test]
    fn a_single_processor_for_both_sides_is_a_limit() {
        expect(&of_affinity(&[3]), Verdict::Limit, "processor 3 alone");
        expect(&of_affinity(&[0, 3]), Verdict::Fine, "2 of them");
    }

    #[test]
    fn a_quota_is_read_in_both_versions() {
        assert_eq!(second_version("max 100000"), None);
        assert_eq!(second_version("50000 100000"), Some((0.5, 100_000)));
        assert_eq!(first_version("-1", "100000"), None);
        assert_eq!(first_version("300000", "100000"), Some((3.0, 100_000)));
        for broken in ["", "max", "1", "1 0", "a b", "-5 100000"] {
            assert_eq!(second_version(broken), None, "{broken:?}");
        }
        assert_eq!(throttled("nr_periods 9\nnr_throttled 4\nthrottled_usec 7\n"), 4);
        assert_eq!(throttled("usage_usec 1\n"), 0);
    }

    #[test]
    fn the_smallest_quota_of_all_groups_counts_and_is_a_limit_below_the_processors() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::below(root.path());
        expect(&of_quota(quota(&files), 2), Verdict::Fine, "no control group limits");
        write(root.path(), "proc/self/cgroup", "0::/kube/pod/app\n");
        write(root.path(), "sys/fs/cgroup/kube/pod/app/cpu.max", "max 100000\n");
        write(root.path(), "sys/fs/cgroup/kube/pod/cpu.max", "150000 100000\n");
        write(root.path(), "sys/fs/cgroup/kube/pod/cpu.stat", "usage_usec 1\nnr_throttled 12\n");
        write(root.path(), "sys/fs/cgroup/kube/cpu.max", "400000 100000\n");
        let found = of_quota(quota(&files), 2);
        expect(&found, Verdict::Limit, "1.50 processors (/sys/fs/cgroup/kube/pod/cpu.max) of 2");
        assert!(found.words.contains("100 ms begins; so far 12 times"), "{found:?}");
        expect(&of_quota(quota(&files), 1), Verdict::Fine, "1.50 processors");

        write(root.path(), "proc/self/cgroup", "2:cpu,cpuacct:/docker/ab\n0::/\n");
        write(root.path(), "sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "50000\n");
        write(root.path(), "sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000\n");
        write(root.path(), "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        expect(
            &of_quota(quota(&files), 1),
            Verdict::Limit,
            "0.50 processors (/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us)",
        );
    }

    #[test]
    fn a_governor_that_follows_the_load_is_a_limit_unless_the_processor_itself_decides() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::below(root.path());
        assert!(of_governors(&files, &[0, 1]).is_none(), "a virtual machine has none");
        let set = |cpu: usize, governor: &str, driver: &str| {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            write(root.path(), &format!("{directory}/scaling_governor"), governor);
            write(root.path(), &format!("{directory}/scaling_driver"), driver);
        };
        set(0, "performance\n", "acpi-cpufreq\n");
        set(1, "schedutil\n", "acpi-cpufreq\n");
        expect(&of_governors(&files, &[0]).unwrap(), Verdict::Fine, "governor performance");
        expect(&of_governors(&files, &[0, 1]).unwrap(), Verdict::Limit, "governor performance, schedutil");
        set(1, "powersave\n", "intel_pstate\n");
        expect(&of_governors(&files, &[1]).unwrap(), Verdict::Fine, "governor powersave");
        set(1, "powersave\n", "acpi-cpufreq\n");
        expect(&of_governors(&files, &[1]).unwrap(), Verdict::Limit, "governor powersave");
    }
}
