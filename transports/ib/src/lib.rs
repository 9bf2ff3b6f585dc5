//! What the verbs transports share.
//!
//! For `rc_verbs`, `ud_verbs` and `rdmacm`. Built on libibverbs, which is loaded at run time: building this crate needs no RDMA
//! package. `uct-ib-abi` declares the library's structures and functions.
//! `verbs` owns the objects and all unsafe code; around it are devices, ports, GIDs, addresses, events and human-readable errors.

pub mod addr;
pub mod component;
pub mod config;
pub mod device;
pub mod error;
pub mod events;
pub mod gid;
pub mod memlock;
pub mod port;
pub mod port_address;
#[cfg(test)]
#[path = "../../../ucs/testing/property.rs"]
mod property;
pub mod verbs;
pub mod wc_status;

pub use addr::{AddressError, DEVICE_ADDRESS_LENGTH, DeviceAddress, Unreachable};
pub use config::IbConfig;
pub use device::IbDevice;
pub use error::IbError;
pub use events::{EventListener, EventStream};
pub use gid::{Gid, GidChoice, GidEntry, GidKind};
pub use port::{LinkLayer, Mtu, Port};
pub use port_address::{PortAddress, PortPreferences};
pub use uct_ib_abi::{function_table, library};
pub use wc_status::WcStatus;
