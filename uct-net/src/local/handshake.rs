//! The shell around the two machines of a [handshake](crate::proto::handshake): its socket, or what a connection manager has connected, the
//! limits, the choice of a lane, and endpoints.

mod call;
mod forget;
mod lane;
mod steps;
mod take;

pub(crate) use self::call::call;
pub(super) use self::forget::Forget;
#[cfg(feature = "tls")]
pub(crate) use self::steps::secure;
pub(crate) use self::steps::{part, refuse};
pub(crate) use self::take::{Caller, read_hello, reject, take};
