//! Errors of the control path, with a remedy.
//!
//! For everything in this crate and the verbs transports. Built on `ucs::Status`.
//! The data path does not use it: it returns a status or a work completion.

use std::fmt;
use std::path::{Path, PathBuf};

use ucs::Status;
use ucs::sys::trust::Writer;
use uct_ib_abi::library::LibraryError;

use crate::memlock;

/// A failed control operation. The text is one line: what failed, on which device, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IbError {
    /// libibverbs could not be loaded.
    #[error(
        "libibverbs.so.1 cannot be loaded ({reason}) → install the packages libibverbs1 and ibverbs-providers \
         (Debian, Ubuntu) or libibverbs (Fedora, RHEL, SUSE: rdma-core); for tests without an adapter set UCT_IB_LIBRARY=soft"
    )]
    LibraryMissing {
        /// The loader's message.
        reason: String,
    },
    /// A library was loaded that is not the libibverbs this crate knows.
    #[error(
        "{library} has no function {symbol} ({reason}): it is not libibverbs, or older than 1.1 → install rdma-core"
    )]
    LibrarySymbol {
        /// File name of the library.
        library: String,
        /// The function that is missing.
        symbol: &'static str,
        /// The loader's message.
        reason: String,
    },
    /// The value of the key `library` is none.
    #[error(
        "library = `{value}` in [ib] is neither auto, nor soft, nor an absolute path of a file with the functions of libibverbs"
    )]
    LibraryValue {
        /// The value.
        value: String,
    },
    /// The file of the key `library` cannot be loaded.
    #[error(
        "{path} cannot be loaded ({reason}) → name a file with the functions of libibverbs, or set library in [ib] to auto"
    )]
    LibraryFile {
        /// The file.
        path: String,
        /// The system's message, or the loader's.
        reason: String,
    },
    /// The file of the key `library` may be written by other users.
    #[error(
        "{path} is not loaded: {}{writer} → let nobody but this user or root write to it, or set library in [ib] to auto",
        Place(path, at)
    )]
    LibraryNotTrusted {
        /// The file.
        path: String,
        /// The file, directory or link.
        at: PathBuf,
        /// The users that may write to it.
        writer: Writer,
    },
    /// The kernel has no InfiniBand or RoCE device to show.
    #[error(
        "no InfiniBand or RoCE device on this machine → load the driver of the adapter, or make a software device with \
         `rdma link add mlx5_0 type rxe netdev NETDEV`, and ib_uverbs (`modprobe ib_uverbs`); for tests without \
         an adapter set UCT_IB_LIBRARY=soft"
    )]
    NoDevices,
    /// The kernel has devices, and the library shows none.
    #[error(
        "libibverbs shows none of the kernel's RDMA devices: {} → install the package ibverbs-providers (Debian, Ubuntu) or \
         libibverbs (Fedora, RHEL, SUSE: rdma-core), which has their providers; their files /dev/infiniband/uverbs* must exist",
        List(hidden)
    )]
    NoProvider {
        /// The kernel's devices.
        hidden: Vec<String>,
    },
    /// No device has this name.
    #[error("no RDMA device `{name}`: there is {}", List(known))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The device's file may not be opened by this user.
    #[error(
        "no permission to open /dev/infiniband/{uverbs} of device `{device}` → give the user read and write access to \
         it (mode 0666 is usual, from a udev rule of rdma-core), or pass the device into the container"
    )]
    NoPermission {
        /// Device name.
        device: String,
        /// Name of the file under /dev/infiniband.
        uverbs: String,
    },
    /// The device's file does not exist.
    #[error(
        "/dev/infiniband/{uverbs} of device `{device}` does not exist → load ib_uverbs (`modprobe ib_uverbs`), or pass \
         the file into the container"
    )]
    NoDeviceFile {
        /// Device name.
        device: String,
        /// Name of the file under /dev/infiniband.
        uverbs: String,
    },
    /// A port number that the device does not have.
    #[error("device `{device}` has no port {port}: its ports are 1 to {ports}")]
    NoSuchPort {
        /// Device name.
        device: String,
        /// The port asked for.
        port: u8,
        /// How many ports there are.
        ports: u8,
    },
    /// The port cannot carry traffic.
    #[error(
        "port {port} of device `{device}` is {state}, not active → set its network device up, and check the cable ({hint})"
    )]
    PortDown {
        /// Device name.
        device: String,
        /// Port number.
        port: u8,
        /// State as text.
        state: &'static str,
        /// A command that shows more.
        hint: String,
    },
    /// The GID index asked for is outside the port's table.
    #[error("GID index {index} is out of range: port {port} of device `{device}` has indices 0 to {}", length - 1)]
    GidIndexRange {
        /// Device name.
        device: String,
        /// Port number.
        port: u8,
        /// The index asked for.
        index: u32,
        /// Length of the table.
        length: u32,
    },
    /// The GID index asked for holds no address.
    #[error("GID index {index} of port {port} of device `{device}` is empty; in use: {}", List(used))]
    GidEmpty {
        /// Device name.
        device: String,
        /// Port number.
        port: u8,
        /// The index asked for.
        index: u32,
        /// What is in use.
        used: Vec<String>,
    },
    /// No GID of the port can be used.
    #[error(
        "port {port} of device `{device}` has no GID that can be used ({}) → give its network device an IP address and \
         set it up",
        List(seen)
    )]
    NoGid {
        /// Device name.
        device: String,
        /// Port number.
        port: u8,
        /// Every entry with what is wrong with it.
        seen: Vec<String>,
    },
    /// The MTU asked for is more than the port's.
    #[error(
        "path MTU {wanted} is more than the active MTU {active} of port {port} of device `{device}` → ask for at most \
         {active}, or raise the MTU of the network device"
    )]
    MtuTooBig {
        /// Device name.
        device: String,
        /// Port number.
        port: u8,
        /// Bytes asked for.
        wanted: u32,
        /// Bytes active.
        active: u32,
    },
    /// Memory could not be pinned because of the limit on locked memory.
    #[error(
        "{verb}{} on device `{device}` failed: not enough memory, for which there may be this cause: {}",
        Pinned(*length),
        memlock::advice(*limit)
    )]
    Memlock {
        /// The verb that failed.
        verb: &'static str,
        /// Device name.
        device: String,
        /// How many bytes were to be pinned; 0 if the provider chooses.
        length: usize,
        /// `RLIMIT_MEMLOCK`, soft limit in bytes.
        limit: u64,
    },
    /// A verb failed for another reason.
    #[error("{verb} on device `{device}` failed: {}{}", Errno(*errno), Detail(detail))]
    Verb {
        /// The verb that failed.
        verb: &'static str,
        /// Device name.
        device: String,
        /// `errno`.
        errno: i32,
        /// What was asked for, if it helps.
        detail: String,
    },
}

impl From<LibraryError> for IbError {
    fn from(error: LibraryError) -> IbError {
        match error {
            LibraryError::Missing { reason } => IbError::LibraryMissing { reason },
            LibraryError::Symbol { library, symbol, reason } => {
                IbError::LibrarySymbol { library, symbol, reason }
            }
        }
    }
}

impl IbError {
    /// The status that a transport returns for this error.
    pub fn status(&self) -> Status {
        match self {
            Self::LibraryMissing { .. } | Self::LibrarySymbol { .. } | Self::LibraryFile { .. } => {
                Status::UNSUPPORTED
            }
            Self::LibraryNotTrusted { .. } => Status::REJECTED,
            Self::LibraryValue { .. } => Status::INVALID_PARAM,
            Self::NoDevices
            | Self::NoProvider { .. }
            | Self::NoSuchDevice { .. }
            | Self::NoSuchPort { .. }
            | Self::NoPermission { .. }
            | Self::NoDeviceFile { .. } => Status::NO_DEVICE,
            Self::PortDown { .. } => Status::UNREACHABLE,
            Self::GidIndexRange { .. } | Self::GidEmpty { .. } | Self::MtuTooBig { .. } => {
                Status::INVALID_PARAM
            }
            Self::NoGid { .. } => Status::INVALID_ADDR,
            Self::Memlock { .. } => Status::NO_MEMORY,
            Self::Verb { errno, .. } => match *errno {
                libc::ENOMEM => Status::NO_MEMORY,
                libc::EINVAL | libc::EFAULT => Status::INVALID_PARAM,
                libc::EOPNOTSUPP | libc::ENOSYS => Status::UNSUPPORTED,
                libc::EBUSY => Status::BUSY,
                libc::ETIMEDOUT => Status::TIMED_OUT,
                libc::ENETUNREACH | libc::EHOSTUNREACH => Status::UNREACHABLE,
                libc::ENODEV | libc::EIO => Status::NO_DEVICE,
                _ => Status::IO_ERROR,
            },
        }
    }

    /// The error number of a failed verb.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Verb { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the kernel gave up waiting for an answer.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Verb { errno: libc::ETIMEDOUT, .. })
    }

    /// Whether memory was refused because of how it is mapped: it may be read only.
    pub fn is_bad_memory(&self) -> bool {
        matches!(self, Self::Verb { errno: libc::EFAULT | libc::EACCES, .. })
    }

    /// The library shows no device, the kernel these.
    pub(crate) fn none_shown(mut hidden: Vec<String>) -> Self {
        hidden.sort_unstable();
        if hidden.is_empty() { Self::NoDevices } else { Self::NoProvider { hidden } }
    }

    /// A failed verb, or the limit on locked memory where that is the likely cause.
    pub(crate) fn verb(verb: &'static str, device: &str, errno: i32, pinned: usize, detail: String) -> Self {
        // The kernel returns EPERM where the limit is zero, and ENOMEM where it is too low.
        let is_limit = errno == libc::ENOMEM || (errno == libc::EPERM && pinned > 0);
        if is_limit && let Some(limit) = memlock::limit_below(pinned) {
            return Self::Memlock { verb, device: device.to_owned(), length: pinned, limit };
        }
        Self::Verb { verb, device: device.to_owned(), errno, detail }
    }
}

/// Words separated by commas; "none" if there are none.
struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&self.0.join(", "))
    }
}

/// What other users may write to, unless it is the file itself.
struct Place<'a>(&'a str, &'a Path);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if Path::new(self.0) == self.1 { Ok(()) } else { write!(f, "of {}, ", self.1.display()) }
    }
}

/// The system's words for an error number.
struct Errno(i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// How many bytes were to be pinned; nothing if the provider chooses.
struct Pinned(usize);

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " of {} bytes", self.0) }
    }
}

/// Text in brackets; nothing if there is none.
struct Detail<'a>(&'a str);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_to_be_pinned_are_named_if_they_are_known() {
        let error = |length| {
            let (verb, device) = ("ibv_create_cq", "mlx5_0".to_owned());
            IbError::Memlock { verb, device, length, limit: 65536 }.to_string()
        };
        assert!(
            error(0).starts_with("ibv_create_cq on device `mlx5_0` failed: not enough memory"),
            "{}",
            error(0)
        );
        assert!(error(8).starts_with("ibv_create_cq of 8 bytes on device"), "{}", error(8));
    }

    #[test]
    fn devices_that_the_library_does_not_show_are_named_with_what_to_install() {
        assert_eq!(IbError::none_shown(Vec::new()), IbError::NoDevices);
        let error = IbError::none_shown(vec!["mlx5_1".to_owned(), "mlx5_0".to_owned()]);
        assert_eq!(error.status(), Status::NO_DEVICE);
        let text = error.to_string();
        assert!(text.contains("mlx5_0, mlx5_1 → install the package ibverbs-providers"), "{text}");
    }
}
