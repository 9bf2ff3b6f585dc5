//! Network devices: which there are, how fast they are, and which one leads to a peer.
//!
//! Used by the tcp transport, the RDMA transports' choice of address, reachability and the cost model. Built on
//! `getifaddrs`, /sys/class/net, /proc/net and a UDP socket that sends nothing.
//!
//! All results are about the calling thread's network namespace. /sys may show another one (that of
//! the process that mounted it), so its data on a device are used only if index and hardware address agree.

mod address;
mod device;
mod interfaces;
mod parse;
mod route;
mod services;
mod speed;
mod table;

pub use address::Address;
pub use device::{Device, device, devices};
pub use parse::{BadAddress, ParsedAddress, Purpose, look_up};
pub use route::{Route, route_source, route_source_via};
pub use speed::{
    Kind, LOOPBACK_MEGABITS, Origin, PHYSICAL_MEGABITS, Speed, VIRTUAL_MEGABITS, WIRELESS_MEGABITS,
};
