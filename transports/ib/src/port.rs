//! A port of a device: state, link layer, MTU and speed.
//!
//! For `port_address.rs` and the attributes of interfaces. Built on the context's port query.

use std::fmt;

use crate::error::IbError;
use crate::verbs::Context;
use crate::verbs::abi::{IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, IBV_PORT_ACTIVE_DEFER, ibv_port_attr};

/// The link layer of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// InfiniBand: peers are found by LID.
    InfiniBand,
    /// Ethernet (RoCE): peers are found by GID.
    Ethernet,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
        })
    }
}

/// A maximum transfer unit that packets of the wire can have: 256 to 4096 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mtu(u8);

impl Mtu {
    /// 256 bytes.
    pub const SMALLEST: Mtu = Mtu(1);
    /// 4096 bytes.
    pub const LARGEST: Mtu = Mtu(5);

    /// From the verbs' code: 1 is 256 bytes, 5 is 4096.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code >= 1 && code <= 5 { Some(Self(code)) } else { None }
    }

    /// From a number of bytes that is exactly an MTU.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self(1)),
            512 => Some(Self(2)),
            1024 => Some(Self(3)),
            2048 => Some(Self(4)),
            4096 => Some(Self(5)),
            _ => None,
        }
    }

    /// The verbs' code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// In bytes.
    pub const fn bytes(self) -> u32 {
        128 << self.0
    }
}

/// A port as it was when it was asked.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name of its device.
    pub device: String,
    /// Its number, from 1.
    pub number: u8,
    /// Whether the device is made of software inside this process.
    pub is_software: bool,
    /// Whether the device is the kernel's software RoCE.
    pub is_software_roce: bool,
    /// Whether it carries traffic.
    pub is_active: bool,
    /// The state as text.
    pub state: &'static str,
    /// The link layer.
    pub link_layer: LinkLayer,
    /// The MTU in use.
    pub active_mtu: Mtu,
    /// The LID; 0 on Ethernet.
    pub lid: u16,
    /// Low bits of the LID that select a path.
    pub lid_mask_bits: u8,
    /// Length of the GID table.
    pub gid_table_length: u32,
    /// Length of the partition key table.
    pub pkey_table_length: u16,
    /// Longest message in bytes.
    pub max_message: u32,
    /// The number of lanes, as the attributes code it.
    pub width_code: u8,
    /// The rate of a lane, as the attributes code it.
    pub speed_code: u16,
}

/// Seconds that a message takes through software RoCE: twice through the kernel's stack, and its threads (measured: 8 to 9 µs).
const SOFTWARE_ROCE_LATENCY: f64 = 9e-6;
/// Seconds that a message takes through a device inside this process: through the kernel's stack, and the device's thread.
const SOFTWARE_LATENCY: f64 = 10e-6;
/// Bytes per second of such a device, which copies each packet and passes it to the kernel.
const SOFTWARE_BANDWIDTH: f64 = 500e6;

impl Port {
    /// Asks the kernel.
    ///
    /// # Errors
    /// [`IbError::NoSuchPort`], or the failed verb.
    pub fn query(context: &Context, number: u8) -> Result<Self, IbError> {
        let ports = context.attr().phys_port_cnt;
        if number == 0 || number > ports {
            return Err(IbError::NoSuchPort {
                device: context.device_name().to_owned(),
                port: number,
                ports,
            });
        }
        let attr = context.query_port(number)?;
        Ok(Self::from_attr(context, number, &attr))
    }

    fn from_attr(context: &Context, number: u8, attr: &ibv_port_attr) -> Self {
        Self {
            device: context.device_name().to_owned(),
            number,
            is_software: context.is_software(),
            is_software_roce: context.is_software_roce(),
            is_active: matches!(attr.state, IBV_PORT_ACTIVE | IBV_PORT_ACTIVE_DEFER),
            state: match attr.state {
                1 => "down",
                2 => "initialising",
                3 => "armed",
                4 => "active",
                5 => "active, deferred",
                _ => "in an unknown state",
            },
            // Unspecified is what old InfiniBand providers say.
            link_layer: if attr.link_layer == IBV_LINK_LAYER_ETHERNET {
                LinkLayer::Ethernet
            } else {
                LinkLayer::InfiniBand
            },
            active_mtu: u8::try_from(attr.active_mtu).ok().and_then(Mtu::from_code).unwrap_or(Mtu::SMALLEST),
            lid: attr.lid,
            lid_mask_bits: attr.lmc,
            gid_table_length: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            pkey_table_length: attr.pkey_tbl_len,
            max_message: attr.max_msg_sz,
            width_code: attr.active_width,
            speed_code: u16::from(attr.active_speed),
        }
    }

    /// An error unless the port carries traffic.
    ///
    /// # Errors
    /// [`IbError::PortDown`].
    pub fn require_active(&self) -> Result<(), IbError> {
        if self.is_active {
            return Ok(());
        }
        Err(IbError::PortDown {
            device: self.device.clone(),
            port: self.number,
            state: self.state,
            hint: match self.link_layer {
                _ if self.is_software => "the device is made of software, and was told so".to_owned(),
                LinkLayer::InfiniBand => "`ibstat` shows more; InfiniBand needs a subnet manager".to_owned(),
                LinkLayer::Ethernet => format!("`rdma link show {}/{}` shows more", self.device, self.number),
            },
        })
    }

    /// Payload bytes per second that the wire carries at its MTU.
    pub fn bandwidth(&self) -> f64 {
        if self.is_software {
            return SOFTWARE_BANDWIDTH;
        }
        let lanes = match self.width_code {
            2 => 4.0,
            4 => 8.0,
            8 => 12.0,
            16 => 2.0,
            _ => 1.0,
        };
        let (_, signal, coding) = self.rate();
        let wire = lanes * signal * coding / 8.0;
        // Routing, transport and check headers: LRH 8 or Ethernet with IPv6 and UDP 66, BTH 12, RETH 16, ICRC 4, VCRC 2.
        let headers = match self.link_layer {
            LinkLayer::InfiniBand => 8 + 12 + 16 + 4 + 2,
            LinkLayer::Ethernet => 66 + 12 + 16 + 4,
        };
        let mtu = f64::from(self.active_mtu.bytes());
        wire * mtu / (mtu + f64::from(headers))
    }

    /// Time in seconds that a message of no length takes from send queue to receive queue, by the link's generation.
    pub fn latency(&self) -> f64 {
        if self.is_software {
            return SOFTWARE_LATENCY;
        }
        if self.is_software_roce {
            return SOFTWARE_ROCE_LATENCY;
        }
        let (latency, ..) = self.rate();
        latency + if self.link_layer == LinkLayer::Ethernet { 200e-9 } else { 0.0 }
    }

    /// Latency in seconds, signal rate per lane in bits per second, share of it that is data.
    fn rate(&self) -> (f64, f64, f64) {
        const OLD: f64 = 8.0 / 10.0;
        const NEW: f64 = 64.0 / 66.0;
        match self.speed_code {
            2 => (2500e-9, 5.0e9, OLD),
            // What 10 and 40 gigabit Ethernet report as well, at their own rate.
            4 if self.link_layer == LinkLayer::Ethernet => (1300e-9, 10.3125e9, NEW),
            4 => (1300e-9, 10.0e9, OLD),
            8 => (700e-9, 10.3125e9, NEW),
            16 => (700e-9, 14.0625e9, NEW),
            32 => (600e-9, 25.78125e9, NEW),
            64 => (600e-9, 51.5625e9, NEW),
            128 => (600e-9, 100e9, NEW),
            256 => (600e-9, 200e9, NEW),
            _ => (5000e-9, 2.5e9, OLD),
        }
    }

    /// A port of a made-up device.
    #[cfg(test)]
    pub(crate) fn for_tests(link_layer: LinkLayer) -> Self {
        Self {
            device: "mlx5_0".to_owned(),
            number: 1,
            is_software: false,
            is_software_roce: false,
            is_active: true,
            state: "active",
            link_layer,
            active_mtu: Mtu::LARGEST,
            lid: if link_layer == LinkLayer::InfiniBand { 7 } else { 0 },
            lid_mask_bits: 0,
            gid_table_length: 16,
            pkey_table_length: 1,
            max_message: 1 << 30,
            width_code: 2,
            speed_code: 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_the_mtu_go_both_ways() {
        for code in 0..=255 {
            match Mtu::from_code(code) {
                Some(mtu) => assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(mtu)),
                None => assert!(code == 0 || code > 5),
            }
        }
        assert_eq!(Mtu::LARGEST.bytes(), 4096);
    }

    #[test]
    fn four_lanes_of_edr_carry_about_twelve_gigabytes() {
        let port = Port::for_tests(LinkLayer::InfiniBand);
        assert!((11.9e9..12.5e9).contains(&port.bandwidth()), "{}", port.bandwidth());
        assert_eq!(port.latency(), 600e-9);
    }

    #[test]
    fn software_roce_has_the_latency_of_the_kernel_whatever_rate_it_reports() {
        let port = Port { is_software_roce: true, ..Port::for_tests(LinkLayer::Ethernet) };
        assert_eq!(port.latency(), SOFTWARE_ROCE_LATENCY);
    }

    #[test]
    fn a_device_inside_the_process_costs_what_software_costs_whatever_rate_it_reports() {
        let port = Port { is_software: true, ..Port::for_tests(LinkLayer::Ethernet) };
        assert_eq!((port.latency(), port.bandwidth()), (SOFTWARE_LATENCY, SOFTWARE_BANDWIDTH));
    }

    #[test]
    fn a_port_that_is_down_says_so_and_what_to_run() {
        let port = Port { is_active: false, state: "down", ..Port::for_tests(LinkLayer::Ethernet) };
        let error = port.require_active().expect_err("down");
        assert!(error.to_string().contains("is down"), "{error}");
        assert!(error.to_string().contains("rdma link show mlx5_0/1"), "{error}");
    }
}
