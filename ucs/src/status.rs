//! Status codes, and the error that contains one.
//!
//! Used by every layer that returns a status. No dependencies. Used by all crates of this workspace.
//! The numbers are UCX's (`ucs_status_t`), so that a log of either library reads the same.

use std::fmt;
use std::num::NonZeroI32;

/// What an operation returned: zero is success, positive is "going on", negative is an error.
///
/// A plugin may be newer than its host, so a number without a name is carried unchanged.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(i32);

/// A failed [`Status`], small enough that `Result<(), Error>` is as cheap as the bare number.
///
/// [`Error::NO_RESOURCE`] is an outcome rather than a failure: nothing was sent, try again later.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(NonZeroI32);

/// The result of an operation on the data path.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!("`", stringify!($name), "` (", stringify!($number), "): ", $text, ".")]
            pub const $name: Status = Status($number);)*

            /// Every status that has a name, in the order of the numbers.
            pub const ALL: &'static [Status] = &[$(Status($number)),*];

            /// The name as written in UCX's headers, without the prefix; `None` for a number without a name.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some(stringify!($name)),)* _ => None }
            }

            /// What the status means, as text.
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($number => $text,)*
                    -59..=-40 => "link failure",
                    -89..=-60 => "endpoint failure",
                    _ => "unknown status",
                }
            }
        }
    };
}

statuses! {
    OK = 0, "success";
    INPROGRESS = 1, "operation in progress";
    NO_MESSAGE = -1, "no pending message";
    NO_RESOURCE = -2, "no resources are available to initiate the operation";
    IO_ERROR = -3, "input/output error";
    NO_MEMORY = -4, "out of memory";
    INVALID_PARAM = -5, "invalid parameter";
    UNREACHABLE = -6, "destination is unreachable";
    INVALID_ADDR = -7, "address not valid";
    NOT_IMPLEMENTED = -8, "function not implemented";
    MESSAGE_TRUNCATED = -9, "message truncated";
    NO_PROGRESS = -10, "no progress";
    BUFFER_TOO_SMALL = -11, "provided buffer is too small";
    NO_ELEM = -12, "no such element";
    SOME_CONNECTS_FAILED = -13, "failed to connect some of the requested endpoints";
    NO_DEVICE = -14, "no such device";
    BUSY = -15, "device is busy";
    CANCELED = -16, "request canceled";
    SHMEM_SEGMENT = -17, "shared memory error";
    ALREADY_EXISTS = -18, "element already exists";
    OUT_OF_RANGE = -19, "index out of range";
    TIMED_OUT = -20, "operation timed out";
    EXCEEDS_LIMIT = -21, "user-defined limit was reached";
    UNSUPPORTED = -22, "unsupported operation";
    REJECTED = -23, "operation rejected by remote peer";
    NOT_CONNECTED = -24, "endpoint is not connected";
    CONNECTION_RESET = -25, "connection reset by remote peer";
    FIRST_LINK_FAILURE = -40, "first link failure";
    LAST_LINK_FAILURE = -59, "last link failure";
    FIRST_ENDPOINT_FAILURE = -60, "first endpoint failure";
    ENDPOINT_TIMEOUT = -80, "endpoint timeout";
    LAST_ENDPOINT_FAILURE = -89, "last endpoint failure";
}

impl Status {
    /// The status of a raw number, whatever it is.
    pub const fn from_raw(raw: i32) -> Status {
        Status(raw)
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Whether this is an error, that is negative.
    pub const fn is_error(self) -> bool {
        self.0 < 0
    }

    /// `Ok` for [`Status::OK`], the error otherwise. `INPROGRESS` counts as an error here: a caller that
    /// expects it compares with it first.
    pub const fn into_result(self) -> Result {
        match NonZeroI32::new(self.0) {
            None => Ok(()),
            Some(code) => Err(Error(code)),
        }
    }
}

macro_rules! errors {
    ($($name:ident)*) => {
        impl Error {
            $(#[doc = concat!("[`Status::", stringify!($name), "`] as an error.")]
            pub const $name: Error = Error(NonZeroI32::new(Status::$name.0).expect("an error is not zero"));)*
        }
    };
}

errors! {
    NO_MESSAGE NO_RESOURCE IO_ERROR NO_MEMORY INVALID_PARAM UNREACHABLE INVALID_ADDR NOT_IMPLEMENTED MESSAGE_TRUNCATED
    NO_PROGRESS BUFFER_TOO_SMALL NO_ELEM SOME_CONNECTS_FAILED NO_DEVICE BUSY CANCELED SHMEM_SEGMENT ALREADY_EXISTS
    OUT_OF_RANGE TIMED_OUT EXCEEDS_LIMIT UNSUPPORTED REJECTED NOT_CONNECTED CONNECTION_RESET ENDPOINT_TIMEOUT
}

impl Error {
    /// The status of the error.
    pub const fn status(self) -> Status {
        Status(self.0.get())
    }

    /// The error of a status; [`Error::IO_ERROR`] if the status is no error.
    pub const fn from_status(status: Status) -> Error {
        match NonZeroI32::new(status.0) {
            Some(code) if status.0 < 0 => Error(code),
            _ => Error::IO_ERROR,
        }
    }

    /// The status that comes nearest to an `errno`.
    pub fn from_errno(errno: i32) -> Error {
        match errno {
            libc::ENOMEM | libc::EMFILE | libc::ENFILE => Error::NO_MEMORY,
            libc::EINVAL => Error::INVALID_PARAM,
            libc::ENODEV | libc::ENXIO => Error::NO_DEVICE,
            libc::EBUSY | libc::EADDRINUSE => Error::BUSY,
            libc::ECONNREFUSED | libc::ENETUNREACH | libc::EHOSTUNREACH => Error::UNREACHABLE,
            libc::EADDRNOTAVAIL => Error::INVALID_ADDR,
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Error::CONNECTION_RESET,
            libc::ETIMEDOUT => Error::TIMED_OUT,
            libc::EOPNOTSUPP | libc::ENOSYS => Error::UNSUPPORTED,
            libc::ENOTCONN => Error::NOT_CONNECTED,
            libc::EAGAIN => Error::NO_RESOURCE,
            _ => Error::IO_ERROR,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        error.raw_os_error().map_or(Error::IO_ERROR, Error::from_errno)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        error.status()
    }
}

impl From<Result> for Status {
    #[inline]
    fn from(result: Result) -> Status {
        result.map_or_else(Error::status, |()| Status::OK)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name} {})", self.text(), self.0),
            None => write!(f, "{} ({})", self.text(), self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Status({})", self.0),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.status(), f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_no_larger_than_the_number() {
        assert_eq!(size_of::<Result>(), size_of::<i32>());
    }

    #[test]
    fn a_number_without_a_name_survives_the_round_trip() {
        let status = Status::from_raw(-4242);
        assert_eq!(status.name(), None);
        assert_eq!(status.into_result().unwrap_err().status(), status);
        assert_eq!(status.to_string(), "unknown status (-4242)");
    }

    #[test]
    fn names_and_numbers_are_those_of_ucx() {
        assert_eq!(Status::NO_RESOURCE.raw(), -2);
        assert_eq!(Status::CONNECTION_RESET.raw(), -25);
        assert_eq!(Status::ENDPOINT_TIMEOUT.raw(), -80);
        assert_eq!(Status::UNSUPPORTED.to_string(), "unsupported operation (UNSUPPORTED -22)");
    }

    #[test]
    fn success_is_never_mistaken_for_an_error() {
        assert_eq!(Error::from_status(Status::OK), Error::IO_ERROR);
        assert!(Status::OK.into_result().is_ok());
    }
}
