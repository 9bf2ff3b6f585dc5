//! What fails below the protocol: the library is not there, or one of its calls returned an error.

use std::io;

use uct_ib::library::LibraryError;

/// A failure of librdmacm. The text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// librdmacm could not be loaded.
    #[error(
        "librdmacm.so.1 cannot be loaded ({reason}) → install the packages librdmacm1 and ibverbs-providers (Debian, Ubuntu) \
         or librdmacm (Fedora, RHEL, SUSE: rdma-core)"
    )]
    LibraryMissing {
        /// The loader's message.
        reason: String,
    },
    /// A library was loaded that lacks a function.
    #[error(
        "{library} has no function {symbol} ({reason}): it is not librdmacm, or older than rdma-core 20, from which \
         rdma_establish and rdma_init_qp_attr (version RDMACM_1.2) are → install a newer rdma-core"
    )]
    LibrarySymbol {
        /// File name of the library.
        library: String,
        /// The function that is missing.
        symbol: &'static str,
        /// The loader's message.
        reason: String,
    },
    /// A call failed.
    #[error("{call} failed: {}", io::Error::from_raw_os_error(*errno))]
    Call {
        /// The function.
        call: &'static str,
        /// Its `errno`.
        errno: i32,
    },
}

impl From<LibraryError> for CmError {
    fn from(error: LibraryError) -> CmError {
        match error {
            LibraryError::Missing { reason } => CmError::LibraryMissing { reason },
            LibraryError::Symbol { library, symbol, reason } => {
                CmError::LibrarySymbol { library, symbol, reason }
            }
        }
    }
}

impl CmError {
    /// The error of `call` that the calling thread's `errno` names.
    pub(super) fn last(call: &'static str) -> CmError {
        CmError::Call { call, errno: super::errno() }
    }
}
