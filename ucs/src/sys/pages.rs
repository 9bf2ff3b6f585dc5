//! Page sizes, huge pages, transparent huge pages, and how much memory may be locked.
//!
//! Used by `memory` and registration in RDMA transports. Built on /sys/kernel/mm and `getrlimit`. Nothing here
//! changes a setting.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::read;

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

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

/// The system's setting of transparent huge pages for ordinary memory.
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

/// The system's setting of transparent huge pages for shared memory: memfds, System V segments and files of /dev/shm. It is apart from that of
/// ordinary memory, and `never` on most systems.
pub fn shared_transparent_huge_pages() -> TransparentHugePages {
    let of_size = default_huge_page_size().and_then(|size| {
        read::text(format!("/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/shmem_enabled", size / 1024))
    });
    shared_setting(&read::text(SHARED).unwrap_or_default(), of_size.as_deref())
}

/// Since Linux 6.11 each size has a setting of its own, which may be that of all.
fn shared_setting(of_all: &str, of_size: Option<&str>) -> TransparentHugePages {
    let chosen =
        |text: &str| text.split_once('[').and_then(|(_, rest)| rest.split(']').next().map(str::to_owned));
    let of_all = chosen(of_all).unwrap_or_default();
    let setting = match of_size.and_then(chosen) {
        Some(own) if own != "inherit" && of_all != "deny" && of_all != "force" => own,
        _ => of_all,
    };
    match setting.as_str() {
        "always" | "within_size" | "force" => TransparentHugePages::Always,
        "advise" => TransparentHugePages::OnRequest,
        _ => TransparentHugePages::Never,
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
    fn shared_memory_has_the_setting_of_its_size_or_else_that_of_all() {
        use TransparentHugePages::{Always, Never, OnRequest};
        let of_all = |chosen: &str| {
            "always within_size advise never deny force".replace(chosen, &format!("[{chosen}]"))
        };
        let of_size =
            |chosen: &str| "always inherit within_size advise never".replace(chosen, &format!("[{chosen}]"));
        for (all, size, expected) in [
            ("never", None, Never),
            ("advise", None, OnRequest),
            ("within_size", None, Always),
            ("advise", Some("inherit"), OnRequest),
            ("never", Some("inherit"), Never),
            ("never", Some("advise"), OnRequest),
            ("always", Some("never"), Never),
            ("deny", Some("always"), Never),
            ("force", Some("never"), Always),
        ] {
            let found = shared_setting(&of_all(all), size.map(of_size).as_deref());
            assert_eq!(found, expected, "{all}, {size:?}");
        }
        assert_eq!(shared_setting("", None), Never);
        let _ = shared_transparent_huge_pages();
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
