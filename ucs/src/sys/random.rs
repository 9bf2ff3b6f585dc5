//! Numbers that cannot be guessed.
//!
//! For keys and identities that are proof of something. Built on the kernel's random numbers.

use std::io;

use super::SystemError;

/// 64 random bits of the kernel's, fresh each time. Blocks only as long as the machine has not gathered any since it was started.
///
/// # Errors
/// The kernel has no such call, or forbids it.
pub fn secret() -> Result<u64, SystemError> {
    let mut bytes = [0_u8; size_of::<u64>()];
    loop {
        // SAFETY: the buffer is writable for its length.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        // So few bytes come at once or not at all.
        if usize::try_from(got) == Ok(bytes.len()) {
            return Ok(u64::from_ne_bytes(bytes));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(SystemError::new("draw a random number", error).of_call("getrandom"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_like_another() {
        let secrets: std::collections::HashSet<u64> = (0..100).map(|_| secret().unwrap()).collect();
        assert_eq!(secrets.len(), 100);
        // Each bit is set in some and not in others; that it is not, has odds of one in 2^93.
        assert_eq!(secrets.iter().fold(0, |all, secret| all | secret), u64::MAX);
        assert_eq!(secrets.iter().fold(u64::MAX, |all, secret| all & secret), 0);
    }
}
