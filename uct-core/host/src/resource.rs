//! What can be opened: a transport on a device.

#![forbid(unsafe_code)]

use std::fmt;

use uct_abi::{UCT_DEVICE_ACC, UCT_DEVICE_SELF, UCT_DEVICE_SHM};

use crate::loader::PluginOrigin;

/// One transport on one device, as discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The component that offers it.
    pub component: String,
    /// The memory domain it works on.
    pub md: String,
    /// The transport.
    pub transport: String,
    /// The device: `eth0`, `mlx5_0:1`, `memory`.
    pub device: String,
    /// What the device connects.
    pub kind: DeviceKind,
    /// The NUMA node the device is attached to, where there is one.
    pub numa_node: Option<u32>,
    /// Whether software inside this process does what an adapter would do: a device for tests.
    pub is_software: bool,
    /// The file the transport came from, or that it is built in.
    pub origin: PluginOrigin,
    /// Index of the component in the context.
    pub(crate) component_index: usize,
    /// Index of the transport in the component.
    pub(crate) transport_index: usize,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.transport, self.device)
    }
}

/// What a device connects; the order is that from near to far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A process with itself.
    Myself,
    /// Processes of one machine.
    SharedMemory,
    /// Accelerators.
    Accelerator,
    /// Machines.
    Network,
}

impl DeviceKind {
    /// All of them, from near to far.
    pub(crate) const ALL: [DeviceKind; 4] =
        [DeviceKind::Myself, DeviceKind::SharedMemory, DeviceKind::Accelerator, DeviceKind::Network];

    /// The kind of a number; an unknown one counts as a network.
    pub(crate) fn from_abi(kind: u32) -> DeviceKind {
        match kind {
            UCT_DEVICE_SELF => DeviceKind::Myself,
            UCT_DEVICE_SHM => DeviceKind::SharedMemory,
            UCT_DEVICE_ACC => DeviceKind::Accelerator,
            _ => DeviceKind::Network,
        }
    }

    /// As UCX prints it.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Myself => "self",
            DeviceKind::SharedMemory => "shm",
            DeviceKind::Accelerator => "acc",
            DeviceKind::Network => "net",
        }
    }
}
