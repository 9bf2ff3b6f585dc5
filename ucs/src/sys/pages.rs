//! Page sizes, huge pages, transparent huge pages, and how much memory may be locked.
//!
//! Used by `memory` and registration in RDMA transports. Built on /sys/kernel/mm and `getrlimit`. Nothing here
//! changes a setting.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::read;

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Bytes of an ordinary page.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// One size of huge page and the state of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of a page.
    pub size: usize,
    /// Pages in the pool.
    pub total: u64,
    /// Pages of the pool that are not in use.
    pub free: u64,
}

/// The sizes of huge pages that the kernel has, smallest first; empty if it has none or hides them.
pub fn huge_pages() -> Vec<HugePages> {
    let Ok(entries) = std::fs::read_dir(HUGE_PAGES) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut sizes: Vec<HugePages> = names.filter_map(|name| huge_pages_of(&name)).collect();
    sizes.sort_unstable_by_key(|pages| pages.size);
    sizes
}

fn huge_pages_of(name: &str) -> Option<HugePages> {
    let kilobytes: usize = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let directory = Path::new(HUGE_PAGES).join(name);
    let number = |file: &str| read::value(directory.join(file)).unwrap_or(0);
    Some(HugePages {
        size: kilobytes.checked_mul(1024)?,
        total: number("nr_hugepages"),
        free: number("free_hugepages"),
    })
}

/// The size that a huge page has by default: 2 MiB on x86-64. `None` without huge pages.
pub fn default_huge_page_size() -> Option<usize> {
    let text = read::text("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// When the kernel backs ordinary memory with huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransparentHugePages {
    /// Wherever it can.
    Always,
    /// Where it is asked to by `madvise`.
    OnRequest,
    /// Never, or the kernel does not report it.
    Never,
}

/// The system's setting of transparent huge pages.
pub fn transparent_huge_pages() -> TransparentHugePages {
    let text = read::text(TRANSPARENT).unwrap_or_default();
    if text.contains("[always]") {
        TransparentHugePages::Always
    } else if text.contains("[madvise]") {
        TransparentHugePages::OnRequest
    } else {
        TransparentHugePages::Never
    }
}

/// Bytes that the process may lock in memory; `None` is without limit. Registering memory with a device
/// counts, unless the process has `CAP_IPC_LOCK`.
pub fn memlock_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_sizes_that_are_powers_of_two() {
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
        let sizes = huge_pages();
        assert!(sizes.iter().all(|pages| pages.size.is_power_of_two() && pages.size > page_size()));
        assert!(sizes.iter().all(|pages| pages.free <= pages.total));
        assert!(sizes.is_sorted_by_key(|pages| pages.size));
        if let Some(default) = default_huge_page_size() {
            assert!(sizes.is_empty() || sizes.iter().any(|pages| pages.size == default));
        }
    }

    #[test]
    fn a_name_that_is_no_size_is_passed_over() {
        assert_eq!(huge_pages_of("hugepages-manykB"), None);
        assert_eq!(huge_pages_of("power"), None);
    }

    #[test]
    fn limits_are_those_of_the_system() {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
        let soft = line.split_whitespace().nth(3).unwrap();
        assert_eq!(memlock_limit().map_or("unlimited".to_owned(), |limit| limit.to_string()), soft);
        let _ = transparent_huge_pages();
    }
}
