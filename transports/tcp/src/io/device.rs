//! Devices: which interfaces of the system can be used, and what they cost.

use std::net::SocketAddr;

use ucs::Error;
use ucs::sys::net::{self, Kind, Origin};
use ucs::units::{Bandwidth, Time};
use uct_plugin::abi::{
    UCT_ORIGIN_CONFIG, UCT_ORIGIN_DEFAULT, UCT_ORIGIN_DEVICE, UCT_ORIGIN_MODEL, UctFigure,
};
use uct_plugin::{Device, DeviceKind, Failure};

/// Seconds from a send to its receipt over loopback or another device of software: the way through the kernel's stack twice,
/// without a wake-up and without the send (measured: 2.9 to 5 µs between two cores, of which 1.2 to 2 µs are the send).
const STACK_LATENCY: f64 = 2.5e-6;
/// Seconds that a wire and two adapters add: what UCX's model has for tcp beyond the stack.
const WIRE_LATENCY: f64 = 6e-6;
/// Seconds of processor time of one send: a system call through the stack (measured: 1.2 to 2 µs).
const OVERHEAD: f64 = 1.5e-6;
/// Bytes ahead of the payload in each packet: Ethernet with preamble and gap, IPv4, TCP with time stamps.
const PACKET_HEADERS: f64 = 38.0 + 20.0 + 32.0;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The families of these names (`af_prio`), the preferred first.
pub(crate) fn families(names: &[String]) -> Result<Vec<Family>, Failure> {
    let mut families = Vec::new();
    for name in names {
        let family = match name.to_ascii_lowercase().as_str() {
            "inet" => Family::V4,
            "inet6" => Family::V6,
            _ => {
                return Err(Failure::new(
                    Error::INVALID_PARAM,
                    format!("af_prio: unknown address family {name:?}, expected inet or inet6"),
                ));
            }
        };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.is_empty() {
        return Err(Failure::new(Error::INVALID_PARAM, "af_prio is empty, expected inet, inet6 or both"));
    }
    Ok(families)
}

/// The devices that are up and have an address of one of the families.
pub(crate) fn list(families: &[Family]) -> Result<Vec<Device>, Failure> {
    let all = net::devices().map_err(system)?;
    let usable: Vec<Device> = all
        .iter()
        .filter(|device| device.is_up && is_nameable(&device.name) && !addresses(device, families).is_empty())
        .map(|device| Device {
            name: device.name.clone(),
            kind: DeviceKind::Network,
            numa_node: device.numa_node,
            is_software: false,
        })
        .collect();
    if usable.is_empty() {
        let names: Vec<_> = all.iter().map(|device| device.name.as_str()).collect();
        let seen = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let reason = format!("no network device is up and has an address (seen: {seen})");
        let remedy = "bring one up, for example `ip link set lo up`";
        return Err(Failure::new(Error::NO_DEVICE, reason).with_remedy(remedy));
    }
    Ok(usable)
}

/// Whether a device can be chosen by its name, in lists too. The system permits more names than the plugin boundary does; other
/// devices are left out without a warning, because a user who did not choose them is not affected.
fn is_nameable(name: &str) -> bool {
    let usable = |byte: u8| byte.is_ascii_graphic() && byte != b',' && byte != b'^';
    (1..=32).contains(&name.len()) && name.bytes().all(usable)
}

/// The device of that name, up and with an address.
pub(crate) fn find(name: &str, families: &[Family]) -> Result<net::Device, Failure> {
    let device = net::device(name)
        .map_err(system)?
        .ok_or_else(|| Failure::new(Error::NO_DEVICE, format!("there is no network device {name:?}")))?;
    if !device.is_up {
        let down = Failure::new(Error::NO_DEVICE, format!("the network device {name:?} is down"));
        return Err(down.with_remedy(format!("ip link set {name} up")));
    }
    if addresses(&device, families).is_empty() {
        let reason = format!("the network device {name:?} has no address of a family that af_prio permits");
        let remedy =
            format!("ip address add ADDRESS/LENGTH dev {name}, or name its family in UCT_TCP_AF_PRIO");
        return Err(Failure::new(Error::NO_DEVICE, reason).with_remedy(remedy));
    }
    Ok(device)
}

/// The addresses to listen on: the best of each family, in the order of the families.
pub(crate) fn addresses(device: &net::Device, families: &[Family]) -> Vec<net::Address> {
    families
        .iter()
        .filter_map(|&family| {
            let own = device.addresses.iter().filter(|own| own.address.is_ipv4() == (family == Family::V4));
            // One that is valid on its link only is the last resort: the peer needs to know the link.
            own.min_by_key(|own| own.scope_id != 0).copied()
        })
        .collect()
}

/// The socket address of an address of this machine.
pub(crate) fn socket_address(own: &net::Address, port: u16) -> SocketAddr {
    with_scope(SocketAddr::new(own.address, port), own.scope_id)
}

/// The same address on a link.
pub(crate) fn with_scope(mut address: SocketAddr, scope: u32) -> SocketAddr {
    if let SocketAddr::V6(address) = &mut address {
        address.set_scope_id(scope);
    }
    address
}

/// Bandwidth in bytes per second, unless it is configured.
pub(crate) fn bandwidth(device: &net::Device, configured: Bandwidth) -> UctFigure {
    if !configured.is_auto() {
        return UctFigure { value: configured.bytes_per_second(), origin: UCT_ORIGIN_CONFIG };
    }
    let packet = f64::from(device.mtu);
    let payload = match device.kind {
        Kind::Loopback => 1.0,
        _ => ((packet - 52.0) / (packet + PACKET_HEADERS - 52.0)).clamp(0.1, 1.0),
    };
    let origin = match device.speed.origin {
        Origin::Reported => UCT_ORIGIN_DEVICE,
        Origin::NamedDefault(_) => UCT_ORIGIN_DEFAULT,
    };
    UctFigure { value: device.speed.bytes_per_second() * payload, origin }
}

/// Latency in seconds, unless it is configured.
pub(crate) fn latency(device: &net::Device, configured: Time) -> UctFigure {
    if configured.seconds() > 0.0 {
        return UctFigure { value: configured.seconds(), origin: UCT_ORIGIN_CONFIG };
    }
    let wire = if device.is_virtual() {
        0.0
    } else {
        // A small packet has to pass the wire as a whole.
        WIRE_LATENCY + (64.0 + PACKET_HEADERS) / device.speed.bytes_per_second()
    };
    UctFigure { value: STACK_LATENCY + wire, origin: UCT_ORIGIN_MODEL }
}

/// Processor time of a send, in seconds.
pub(crate) fn overhead() -> UctFigure {
    UctFigure { value: OVERHEAD, origin: UCT_ORIGIN_MODEL }
}

/// The device that the default route leads through.
pub(crate) fn is_default(device: &net::Device) -> bool {
    // A documentation address: no machine has it, so the way there is the default one. Nothing is sent.
    let anywhere = SocketAddr::from(([198, 51, 100, 1], 9));
    net::route_source(anywhere).is_ok_and(|route| route.device.as_deref() == Some(device.name.as_str()))
}

fn system(error: ucs::sys::SystemError) -> Failure {
    Failure::new(Error::from(&error), error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ucs::sys::net::Speed;

    use super::*;

    /// A device with a reported speed of so many megabits and these addresses, each with the link that it is valid on.
    fn device(kind: Kind, megabits: u32, mtu: u32, addresses: &[(&str, u32)]) -> net::Device {
        net::Device {
            name: "eth9".to_owned(),
            index: 9,
            kind,
            is_up: true,
            is_running: true,
            speed: Speed { megabits, origin: Origin::Reported },
            mtu,
            addresses: addresses
                .iter()
                .map(|(address, scope_id)| net::Address {
                    address: address.parse().unwrap(),
                    prefix_length: 24,
                    scope_id: *scope_id,
                })
                .collect(),
            numa_node: None,
            driver: None,
            pci_path: None,
        }
    }

    #[test]
    fn a_device_costs_what_its_speed_less_headers_and_its_kind_say() {
        let figures = |kind, megabits, mtu| {
            let device = device(kind, megabits, mtu, &[]);
            let (bandwidth, latency) =
                (bandwidth(&device, Bandwidth::AUTO), latency(&device, Time::from_seconds(0.0)));
            assert_eq!([bandwidth.origin, latency.origin], [UCT_ORIGIN_DEVICE, UCT_ORIGIN_MODEL]);
            [bandwidth.value / 1e5, latency.value * 1e9].map(|figure| figure.round() as u32)
        };
        // Of each packet 52 bytes are headers of IPv4 and TCP, and 38 more are on the wire: 1448 of 1538, 8948 of 9038.
        assert_eq!(figures(Kind::Physical, 10_000, 1500), [11_769, 8623]);
        assert_eq!(figures(Kind::Physical, 10_000, 9000), [12_376, 8623]);
        assert_eq!(figures(Kind::Wireless, 80, 1500), [94, 23_900]);
        // Software has no wire, and loopback no packets.
        assert_eq!(figures(Kind::Virtual, 10_000, 1500), [11_769, 2500]);
        assert_eq!(figures(Kind::Loopback, 10_000, 1500), [12_500, 2500]);
        // A nonsensical size of packets leaves a bandwidth.
        assert_eq!(figures(Kind::Physical, 10_000, 10)[0], 1250);
    }

    #[test]
    fn families_are_tried_in_their_order_and_addresses_of_one_link_come_last() {
        let both = families(&["INET6".to_owned(), "inet".to_owned(), "inet6".to_owned()]).unwrap();
        assert_eq!(both, [Family::V6, Family::V4]);
        for (names, words) in
            [(vec!["inet5".to_owned()], "\"inet5\", expected inet or inet6"), (vec![], "empty")]
        {
            let refused = families(&names).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let device = device(
            Kind::Physical,
            1,
            1500,
            &[("fe80::1", 9), ("10.0.0.1", 0), ("fd00::1", 0), ("10.0.0.2", 0)],
        );
        let chosen = |families: &[Family]| -> Vec<String> {
            addresses(&device, families).iter().map(|own| socket_address(own, 7).to_string()).collect()
        };
        assert_eq!(chosen(&both), ["[fd00::1]:7", "10.0.0.1:7"]);
        assert_eq!(chosen(&[Family::V4]), ["10.0.0.1:7"]);
        let link: IpAddr = "fe80::1".parse().unwrap();
        let own = net::Address { address: link, prefix_length: 64, scope_id: 9 };
        assert_eq!(socket_address(&own, 7).to_string(), "[fe80::1%9]:7");
    }

    #[test]
    fn a_device_that_nobody_can_name_in_a_list_is_left_out() {
        for name in ["lo", "eth0", "veth-1@if3", "br_0.100", "=x*?[a]\"", "0123456789abcde"] {
            assert!(is_nameable(name), "{name}");
        }
        for name in ["", "a,b", "^lo", "\u{fc}n\u{ef}", "two words", "tab\tbed", &"x".repeat(33)] {
            assert!(!is_nameable(name), "{name}");
        }
    }
}
