//! A system call that failed: what was tried, and why it did not work.
//!
//! For the control path, where a person reads the error. No dependencies. The modules of `sys`, `memory`,
//! `event_set` and `async_context` return it.

use std::borrow::Cow;
use std::fmt;

use rustix::io::Errno;

/// A failed system call with the thing it was about.
#[derive(Clone, PartialEq, Eq)]
pub struct SystemError {
    /// What was tried, as a phrase that follows "cannot": "bind to 10.0.0.1:80".
    pub operation: Cow<'static, str>,
    /// The kernel's error.
    pub errno: i32,
    /// What to do about it, if that is known.
    pub advice: Option<Cow<'static, str>>,
}

crate::debug_as_display!(SystemError);

impl SystemError {
    /// A failure of `operation`.
    pub fn new(operation: impl Into<Cow<'static, str>>, errno: impl Into<RawErrno>) -> SystemError {
        SystemError { operation: operation.into(), errno: errno.into().0, advice: None }
    }

    /// The failure that the calling thread's `errno` names.
    pub fn last(operation: impl Into<Cow<'static, str>>) -> SystemError {
        SystemError::new(operation, std::io::Error::last_os_error())
    }

    /// The same; if the kernel does not know the system call, or a filter refuses it, with advice that names it.
    pub fn of_call(self, call: &str) -> SystemError {
        let refusals = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EAFNOSUPPORT];
        match self.errno {
            errno if refusals.contains(&errno) => self.advise(format!(
                "the kernel has no {call}, or a sandbox refuses it: permit it there (seccomp; systemd: SystemCallFilter, \
                 RestrictAddressFamilies)"
            )),
            _ => self,
        }
    }

    /// The same with advice, a sentence without its full stop.
    pub fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> SystemError {
        self.advice = Some(advice.into());
        self
    }
}

/// An error number, from whichever library reports it.
pub struct RawErrno(i32);

impl From<Errno> for RawErrno {
    fn from(errno: Errno) -> RawErrno {
        RawErrno(errno.raw_os_error())
    }
}

impl From<i32> for RawErrno {
    fn from(errno: i32) -> RawErrno {
        RawErrno(errno)
    }
}

impl From<std::io::Error> for RawErrno {
    fn from(error: std::io::Error) -> RawErrno {
        RawErrno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.operation, std::io::Error::from_raw_os_error(self.errno))?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SystemError {}

impl From<&SystemError> for crate::Error {
    fn from(error: &SystemError) -> crate::Error {
        crate::Error::from_errno(error.errno)
    }
}

impl From<SystemError> for crate::Error {
    fn from(error: SystemError) -> crate::Error {
        (&error).into()
    }
}

impl From<SystemError> for std::io::Error {
    fn from(error: SystemError) -> std::io::Error {
        std::io::Error::from_raw_os_error(error.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_failed_why_and_what_to_do() {
        let error = SystemError::new("bind to [::1]:80", Errno::ACCESS).advise("take a port above 1023");
        assert_eq!(
            error.to_string(),
            "cannot bind to [::1]:80: Permission denied (os error 13); take a port above 1023"
        );
        assert_eq!(crate::Error::from(error), crate::Error::IO_ERROR);
    }

    #[test]
    fn a_call_that_is_refused_is_named_and_one_that_fails_otherwise_is_not() {
        let refused = |errno| SystemError::new("create a thing", errno).of_call("thing_create").to_string();
        for errno in [Errno::PERM, Errno::NOSYS, Errno::AFNOSUPPORT] {
            assert!(
                refused(errno).contains("no thing_create, or a sandbox refuses it"),
                "{}",
                refused(errno)
            );
        }
        assert!(!refused(Errno::MFILE).contains("thing_create"));
    }
}
