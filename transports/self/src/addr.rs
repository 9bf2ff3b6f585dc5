//! The addresses of `self`: the device address names the process, the interface address the interface.
//!
//! | bytes | what |
//! |---|---|
//! | device 0..8 | random number of the process, native order |
//! | iface 0..8 | number of the interface in the process, native order |

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use ucs::sync::fixed::{AtomicU64, Ordering};

/// Bytes of either address.
pub(crate) const LENGTH: usize = 8;

/// A number that no other process has, short of a chance of 2⁻⁶⁴.
pub(crate) fn process() -> u64 {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    *PROCESS
}

/// A number that no other interface of this process has.
pub(crate) fn next_iface() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // SYNC: only uniqueness is needed.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Checks the addresses of a peer against an interface; the refusal is a human-readable reason.
pub(crate) fn is_same(device: &[u8], iface: &[u8], own: u64) -> Result<(), String> {
    let (Ok(device), Ok(iface)) = (<[u8; LENGTH]>::try_from(device), <[u8; LENGTH]>::try_from(iface)) else {
        return Err(format!(
            "not an address of self: {} + {} bytes, expected {LENGTH} + {LENGTH}",
            device.len(),
            iface.len()
        ));
    };
    if u64::from_ne_bytes(device) != process() {
        return Err("the peer is another process; self connects a process with itself".to_owned());
    }
    if u64::from_ne_bytes(iface) != own {
        return Err("the peer is another interface of this process; self connects an interface with itself"
            .to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_interface_reaches_itself_alone() {
        let reason = |device: &[u8], iface: &[u8]| is_same(device, iface, 7).unwrap_err();
        let (device, iface) = (process().to_ne_bytes(), 7u64.to_ne_bytes());
        assert_eq!(is_same(&device, &iface, 7), Ok(()));
        assert!(reason(&(process() ^ 1).to_ne_bytes(), &iface).contains("another process"));
        assert!(reason(&device, &8u64.to_ne_bytes()).contains("another interface"));
        assert!(reason(&device[1..], &iface).contains("7 + 8 bytes"));
        assert!(reason(&device, &[]).contains("8 + 0 bytes"));
    }

    #[test]
    fn another_process_has_another_number() {
        const NAME: &str = "addr::tests::another_process_has_another_number";
        const IS_OTHER: &str = "UCT_SELF_IS_OTHER";
        let own = format!("process {};", process());
        if std::env::var_os(IS_OTHER).is_some() {
            return println!("{own}");
        }
        let mut other = Command::new(std::env::current_exe().unwrap());
        let other = other.args([NAME, "--exact", "--nocapture"]).env(IS_OTHER, "1").output().unwrap();
        let text = String::from_utf8_lossy(&other.stdout);
        assert!(text.contains("process ") && !text.contains(&own), "{own} {text}");
    }
}
