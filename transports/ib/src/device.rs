//! Devices by name, and what is made once per open device.
//!
//! For the components of the verbs transports, which list and open devices. Built on the device list and a context.

use std::path::Path;
use std::sync::Arc;

use crate::error::IbError;
use crate::events::EventStream;
use crate::verbs::{Context, Device, DeviceList, Verbs};

/// The adapters that use InfiniBand or RoCE, in the library's order.
///
/// # Errors
/// [`IbError::NoDevices`] if there are none, [`IbError::NoProvider`] if the library does not show them.
pub fn devices(verbs: Verbs) -> Result<Vec<Device>, IbError> {
    let devices: Vec<_> = DeviceList::new(verbs)?.devices().filter(Device::is_channel_adapter).collect();
    if devices.is_empty() { Err(IbError::NoDevices) } else { Ok(devices) }
}

/// Opens the device of this name.
///
/// # Errors
/// [`IbError::NoSuchDevice`] with the names that exist, or why it cannot be opened.
pub fn open(verbs: Verbs, name: &str) -> Result<IbDevice, IbError> {
    let devices = devices(verbs)?;
    let Some(device) = devices.iter().find(|device| device.name() == name) else {
        return Err(IbError::NoSuchDevice {
            name: name.to_owned(),
            known: devices.iter().map(Device::name).collect(),
        });
    };
    let context = Context::open(device)?;
    Ok(IbDevice { events: EventStream::new(&context), context })
}

/// An open device.
#[derive(Clone)]
pub struct IbDevice {
    /// The context that everything is made on.
    pub context: Arc<Context>,
    /// The asynchronous events.
    pub events: Arc<EventStream>,
}

impl IbDevice {
    /// How many ports there are, at least 1; they are numbered from 1.
    pub fn ports(&self) -> u8 {
        self.context.attr().phys_port_cnt.max(1)
    }

    /// Whether the device does 64-bit atomics on remote memory.
    pub fn has_atomics(&self) -> bool {
        self.context.attr().atomic_cap > 0
    }

    /// Whether the device is made of software inside this process, and is none of the machine's.
    pub fn is_software(&self) -> bool {
        self.context.is_software()
    }

    /// Whether the device is the kernel's software RoCE (`rdma_rxe`), which has faults of its own.
    pub fn is_software_roce(&self) -> bool {
        self.context.is_software_roce()
    }

    /// The NUMA node that the device is attached to, if the kernel knows one.
    pub fn numa_node(&self) -> Option<u32> {
        if self.is_software() {
            return None;
        }
        let file =
            Path::new("/sys/class/infiniband").join(self.context.device_name()).join("device/numa_node");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}

/// Splits `mlx5_0:1` into device and port.
///
/// # Errors
/// A sentence with what was expected.
pub fn parse_device_name(name: &str) -> Result<(&str, u8), String> {
    name.split_once(':')
        .filter(|(device, _)| !device.is_empty())
        .and_then(|(device, port)| Some((device, port.parse::<u8>().ok().filter(|&port| port > 0)?)))
        .ok_or_else(|| {
            format!("`{name}` is not a verbs device: expected DEVICE:PORT with a port from 1, like mlx5_0:1")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_device_name_has_a_port_from_one() {
        assert_eq!(parse_device_name("mlx5_0:1"), Ok(("mlx5_0", 1)));
        for bad in ["", "mlx5_0", "mlx5_0:", ":1", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1:2"] {
            let error = parse_device_name(bad).expect_err(bad);
            assert!(error.contains("expected DEVICE:PORT"), "{error}");
        }
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn any_name_is_parsed_without_a_panic(name in ".*") {
            if let Ok((device, port)) = parse_device_name(&name) {
                prop_assert!(!device.is_empty() && port > 0);
            }
        }
    }
}
