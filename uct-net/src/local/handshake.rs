//! The shell around the two machines of a [handshake](crate::proto::handshake): its socket, or what a connection manager has connected, the
//! limits, the choice of a lane, and endpoints.

mod call;
mod caller;
mod forget;
mod lane;
mod steps;
mod take;

pub(crate) use self::call::call;
pub(crate) use self::caller::Caller;
pub(super) use self::forget::Forget;
#[cfg(feature = "tls")]
pub(crate) use self::steps::secure;
pub(crate) use self::take::{read_hello, take};
