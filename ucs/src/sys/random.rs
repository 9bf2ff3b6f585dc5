//! Numbers that cannot be guessed.
//!
//! For keys and identities that are proof of something. Built on the kernel's random numbers, of which each thread draws several at a time: a
//! system call takes longer than what a secret is used for.

use std::cell::RefCell;
use std::io;

use super::SystemError;
use crate::memory::fork::ForkGuard;

/// Secrets that are drawn at once: the kernel returns up to 256 bytes whole.
const DRAWN: usize = 32;

thread_local! {
    static AHEAD: RefCell<Ahead> = const { RefCell::new(Ahead { secrets: [0; DRAWN], left: 0, drawn_in: None }) };
}

/// Secrets that were drawn and not given out: the first `left`.
struct Ahead {
    secrets: [u64; DRAWN],
    left: usize,
    /// The process that drew them. A child of a fork has the same ones, and uses none of them.
    drawn_in: Option<ForkGuard>,
}

/// 64 random bits of the kernel's, different each time, in every thread and process. Blocks only as long as the machine has not gathered any since
/// it was started.
///
/// # Errors
/// The kernel has no such call, or forbids it.
pub fn secret() -> Result<u64, SystemError> {
    AHEAD.with_borrow_mut(Ahead::next)
}

impl Ahead {
    fn next(&mut self) -> Result<u64, SystemError> {
        if self.left == 0 || self.drawn_in.is_none_or(|process| process.check().is_err()) {
            let process = ForkGuard::new();
            draw(&mut self.secrets)?;
            self.left = DRAWN;
            self.drawn_in = Some(process);
        }
        self.left -= 1;
        // None is left behind where it is given out a second time, or read later.
        Ok(std::mem::take(&mut self.secrets[self.left]))
    }
}

/// Fills `secrets`, of at most 256 bytes, with bits of the kernel's.
fn draw(secrets: &mut [u64]) -> Result<(), SystemError> {
    let length = size_of_val(secrets);
    loop {
        // SAFETY: the buffer is writable for its length.
        let got = unsafe { libc::getrandom(secrets.as_mut_ptr().cast(), length, 0) };
        // So few bytes come at once or not at all.
        if usize::try_from(got) == Ok(length) {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(SystemError::new("draw a random number", error).of_call("getrandom"));
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::collections::HashSet;
    use std::io::{PipeReader, Read, Write};

    use super::*;
    use crate::memory::fork::in_child;

    /// More than are left of any draw.
    const MANY: usize = 3 * DRAWN;

    fn many() -> Vec<u64> {
        (0..MANY).map(|_| secret().unwrap()).collect()
    }

    #[test]
    fn no_secret_is_like_another() {
        let secrets: HashSet<u64> = (0..100).map(|_| secret().unwrap()).collect();
        assert_eq!(secrets.len(), 100);
        // Each bit is set in some and not in others; that it is not, has odds of one in 2^93.
        assert_eq!(secrets.iter().fold(0, |all, secret| all | secret), u64::MAX);
        assert_eq!(secrets.iter().fold(u64::MAX, |all, secret| all & secret), 0);
    }

    #[test]
    fn a_secret_that_was_given_out_is_left_nowhere() {
        let given = secret().unwrap();
        AHEAD.with_borrow(|ahead| assert!(!ahead.secrets.contains(&given)));
    }

    #[test]
    fn threads_have_secrets_of_their_own() {
        let threads = [(); 2].map(|()| std::thread::spawn(many));
        let secrets: HashSet<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(secrets.len(), 2 * MANY);
    }

    fn read(mut pipe: PipeReader) -> Vec<u64> {
        let mut bytes = [0; MANY * size_of::<u64>()];
        pipe.read_exact(&mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|secret| u64::from_ne_bytes(*secret)).collect()
    }

    #[test]
    fn a_child_of_a_fork_and_its_child_use_none_of_what_was_drawn_before() {
        let (from_child, mut child) = io::pipe().unwrap();
        let (from_grandchild, mut grandchild) = io::pipe().unwrap();
        let tell = |pipe: &mut io::PipeWriter| {
            let bytes: Vec<u8> = many().iter().flat_map(|secret| secret.to_ne_bytes()).collect();
            pipe.write_all(&bytes).is_ok()
        };
        // Some are left in the parent, and in the child.
        let before = secret().unwrap();
        assert!(in_child(|| secret().is_ok() && in_child(|| tell(&mut grandchild)) && tell(&mut child)));
        let mut secrets: HashSet<u64> = many().into_iter().chain([before]).collect();
        secrets.extend(read(from_child));
        secrets.extend(read(from_grandchild));
        assert_eq!(secrets.len(), 3 * MANY + 1);
    }
}
