//! Processors: how many, which one this is, and staying on one.
//!
//! For pinning in benchmarks, per-processor decisions, `uct_info`. Built on the scheduler's calls and /sys.
//! Nothing in `ucs` depends on it.

use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::{SystemError, read};

/// Bytes that move between caches as one. 64 on every x86-64; 64-bit ARM servers have 64 or 128 and share by
/// 64 at least.
pub const CACHE_LINE: usize = 64;

/// Processors that this thread may run on, in ascending order. Numbers above 1023 are not seen.
pub fn affinity() -> Result<Vec<usize>, SystemError> {
    let set =
        sched_getaffinity(None).map_err(|errno| SystemError::new("read the processor affinity", errno))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// The number of processors that this thread may run on; 1 if the system does not report it.
pub fn count() -> usize {
    affinity().map_or(1, |cpus| cpus.len().max(1))
}

/// Restricts this thread, and threads that it starts later, to the given processors.
pub fn pin(cpus: &[usize]) -> Result<(), SystemError> {
    let mut set = CpuSet::new();
    let operation = || format!("pin the thread to processors {cpus:?}");
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            let advice = format!("processor numbers lie below {}", CpuSet::MAX_CPU);
            return Err(SystemError::new(operation(), libc::EINVAL).advise(advice));
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|errno| {
        let error = SystemError::new(operation(), errno);
        match affinity() {
            Ok(allowed) => error.advise(format!("this thread may use {allowed:?}")),
            Err(_) => error,
        }
    })
}

/// The processor that the thread is on. It may be on another one when this returns.
pub fn current() -> usize {
    sched_getcpu()
}

/// The NUMA node of a processor; `None` where the system has none or hides them.
pub fn numa_node_of(cpu: usize) -> Option<u32> {
    let directory = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}"));
    let entries = std::fs::read_dir(directory).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).next()
}

/// The NUMA node that the thread is on.
pub fn numa_node() -> Option<u32> {
    numa_node_of(current())
}

/// The processor's name as its maker has it; the architecture's name where /proc does not contain it.
pub fn model_name() -> String {
    let text = read::text("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_where_it_was_put() {
        let allowed = affinity().unwrap();
        assert_eq!(count(), allowed.len());
        let last = *allowed.last().unwrap();
        let thread = std::thread::spawn(move || {
            pin(&[last]).unwrap();
            (affinity().unwrap(), current())
        });
        assert_eq!(thread.join().unwrap(), (vec![last], last));
        assert_eq!(affinity().unwrap(), allowed, "pinning one thread moved another");
    }

    #[test]
    fn pinning_to_nothing_or_to_a_missing_processor_is_named() {
        assert_eq!(pin(&[]).unwrap_err().errno, libc::EINVAL);
        let missing = pin(&[1023]).unwrap_err().to_string();
        assert!(missing.contains("[1023]") && missing.contains("may use"), "{missing}");
        assert!(pin(&[usize::MAX]).unwrap_err().to_string().contains("1024"));
    }

    #[test]
    fn the_processor_has_a_name_and_at_most_one_node() {
        assert!(!model_name().is_empty());
        assert_eq!(numa_node_of(1 << 20), None);
        assert!(numa_node().is_none_or(|node| node < 1024));
    }
}
