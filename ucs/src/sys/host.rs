//! The machine's identity: whether two processes run under the same kernel.
//!
//! Used by shared-memory transports and device addresses. Built on /proc and `uname`.

use std::fmt;
use std::sync::OnceLock;

use super::read;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Names a machine from boot to shutdown: equal for all processes under one kernel, whatever containers they
/// are in, and different for two kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(pub [u8; 16]);

/// The identity of this machine. Computed once.
///
/// It is the kernel's boot identifier, 16 random bytes. Where a container hides that, a hash of the host name
/// and the kernel's version is used instead, which is weaker: see [`is_random`](HostId::is_random).
pub fn host_id() -> HostId {
    static ID: OnceLock<HostId> = OnceLock::new();
    *ID.get_or_init(|| boot_id().map_or_else(|| HostId::from_names(&hostname(), &kernel()), HostId))
}

/// The kernel's boot identifier; `None` where it is hidden.
pub fn boot_id() -> Option<[u8; 16]> {
    parse_uuid(&read::text(BOOT_ID)?)
}

/// The host name of this uts namespace.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's release and version.
pub fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.release().to_string_lossy(), name.version().to_string_lossy())
}

impl HostId {
    /// Marks an identity made of names: a version that no random UUID has.
    const NAMED_VERSION: u8 = 0xF0;

    fn from_names(hostname: &str, kernel: &str) -> HostId {
        let low = fnv(0, &[hostname, kernel]).to_le_bytes();
        let high = fnv(1, &[hostname, kernel]).to_le_bytes();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&low);
        id[8..].copy_from_slice(&high);
        id[6] = id[6] & 0x0F | HostId::NAMED_VERSION;
        HostId(id)
    }

    /// Whether it is the kernel's random number, so that two machines cannot have the same.
    pub const fn is_random(self) -> bool {
        self.0[6] & 0xF0 != HostId::NAMED_VERSION
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

/// FNV-1a, which stays the same from build to build, unlike the standard library's hasher.
fn fnv(seed: u64, parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xCBF2_9CE4_8422_2325 ^ seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let mut id = [0; 16];
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_stable_and_that_of_the_boot() {
        assert_eq!(host_id(), host_id());
        if let Some(boot) = boot_id() {
            assert_eq!(host_id().0, boot);
            assert!(host_id().is_random());
            assert_eq!(host_id().to_string().len(), 32);
        }
        assert!(!hostname().is_empty() && !kernel().is_empty());
    }

    #[test]
    fn an_identity_of_names_differs_with_each_name_and_says_what_it_is() {
        let id = HostId::from_names("a", "6.1");
        assert_eq!(id, HostId::from_names("a", "6.1"));
        assert_ne!(id, HostId::from_names("b", "6.1"));
        assert_ne!(HostId::from_names("ab", "c"), HostId::from_names("a", "bc"));
        assert!(!id.is_random());
    }

    #[test]
    fn only_a_whole_uuid_is_one() {
        let id = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!((id[0], id[15]), (0, 0xFF));
        for text in
            ["", "0011", "00112233-4455-6677-8899-aabbccddeefg", "é0112233-4455-6677-8899-aabbccddeeff"]
        {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }
}
