//! How the failures of the protocol are reported.

use uct_plugin::Error;

use crate::proto;

/// The status of a failure.
pub(crate) fn status(failure: proto::Failure) -> Error {
    match failure {
        proto::Failure::Silent => Error::ENDPOINT_TIMEOUT,
        proto::Failure::Reset => Error::CONNECTION_RESET,
        proto::Failure::OtherVersion(..) | proto::Failure::AccessRefused => Error::REJECTED,
        proto::Failure::AccessForbidden | proto::Failure::Malformed | proto::Failure::Broken => {
            Error::IO_ERROR
        }
    }
}
