//! The limit on locked memory, and how to raise it.
//!
//! For the errors of registration and of queue creation. Built on `getrlimit` by rustix.

use rustix::process::{Resource, getrlimit};

/// The soft limit in bytes; `None` if there is no limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// The limit, if pinning `length` more bytes may well have failed because of it.
///
/// How much is locked already is not known for certain (the kernel counts per user and per process), so a limit below
/// 64 MiB is always named: no RDMA program runs well under it.
pub(crate) fn limit_below(length: usize) -> Option<u64> {
    const SUSPICIOUS: u64 = 64 << 20;
    limit().filter(|&limit| limit < SUSPICIOUS.max(length as u64))
}

/// One sentence that names the limit and the ways to raise it.
pub fn advice(limit: u64) -> String {
    format!(
        "the limit on locked memory (RLIMIT_MEMLOCK) is {limit} bytes → raise it with `ulimit -l unlimited`, \
         `* - memlock unlimited` in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, or \
         `--ulimit memlock=-1` for a container"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_the_limit_and_every_place_that_sets_it() {
        let text = advice(65536);
        for part in ["65536 bytes", "ulimit -l", "limits.conf", "LimitMEMLOCK", "--ulimit"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
