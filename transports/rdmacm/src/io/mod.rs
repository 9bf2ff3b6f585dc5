//! librdmacm: its structures, its functions, and the objects that own what it makes. No decision of a protocol is here.

pub mod abi;
mod address;
mod channel;
mod error;
mod event;
mod id;
pub mod netdevs;
mod table;

pub use channel::Channel;
pub use error::CmError;
pub use event::{Event, EventParam};
pub use id::{ConnParam, Id, QpStep};
pub use table::load;
#[cfg(feature = "testing")]
pub use table::{CmTable, load_from};

/// The current thread's `errno`.
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
