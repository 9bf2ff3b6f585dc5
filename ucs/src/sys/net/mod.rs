//! Network devices: which there are, how fast they are, and which one leads to a peer.
//!
//! Used by the tcp transport, the RDMA transports' choice of address, reachability and the cost model. Built on
//! `getifaddrs`, /sys/class/net, /proc/net and a UDP socket that sends nothing. The lists are read again when the kernel has reported a change
//! (`snapshot`).
//!
//! All results are about the calling thread's network namespace. /sys may show another one (that of
//! the process that mounted it), so its data on a device are used only if index and hardware address agree.

mod address;
mod device;
mod interfaces;
mod ioctl;
mod link;
mod parse;
mod route;
mod services;
mod snapshot;
mod speed;
mod table;
mod watch;
mod without_netlink;

pub use address::Address;
pub use device::{Device, Reach, device, device_name, devices, holder, reach};
pub use parse::{BadAddress, ParsedAddress, Purpose, look_up};
pub use route::{Route, route_source, route_source_via};
#[doc(hidden)]
pub use snapshot::readings;
pub use speed::{
    Kind, LOOPBACK_MEGABITS, Origin, PHYSICAL_MEGABITS, Speed, VIRTUAL_MEGABITS, WIRELESS_MEGABITS,
};
