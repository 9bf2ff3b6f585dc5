//! `-T`: which devices there are, at which NUMA node, with which link, for which transports; and what the namespaces of this process
//! separate it from. As text, as JSON, and as a drawing (`svg`).

mod nodes;
mod svg;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;
use uct_core::system::namespace::{Namespace, Namespaces};
use uct_core::system::{host, net};
use uct_core::{Context, DeviceKind, Resource};
use uct_tools_common::Failure;

use crate::files::Files;
use nodes::Node;

const RDMA: &str = "/sys/class/infiniband";

/// The section.
#[derive(Serialize)]
pub(crate) struct Topology {
    host: String,
    numa_nodes: Vec<Node>,
    devices: Vec<Device>,
    namespaces: Vec<Space>,
}

/// What a transport or the system uses to reach others.
#[derive(Serialize)]
struct Device {
    name: String,
    /// `net`, `rdma`, `shm`, `self`, `acc`, `software`.
    kind: &'static str,
    /// `null` where it belongs to no node, or the system does not tell.
    numa_node: Option<u32>,
    /// Its place on the PCI bus.
    pci: Option<String>,
    driver: Option<String>,
    /// `null` for a device in memory.
    link: Option<Link>,
    /// Those that use it, also those that the configuration excludes.
    transports: Vec<String>,
}

#[derive(Serialize)]
struct Link {
    /// `running`, `no carrier`, `down`; what the port reports of an RDMA device.
    state: String,
    /// Of a network device: 10⁶ bits per second.
    megabits_per_second: Option<u32>,
    /// Of an RDMA device: as the kernel prints it.
    rate: Option<String>,
    mtu: Option<u32>,
    /// The network device of a port of RoCE.
    over: Option<String>,
    addresses: Vec<String>,
}

/// A namespace of this process.
#[derive(Clone, Serialize)]
struct Space {
    kind: &'static str,
    inode: Option<u64>,
    /// Whether it is that of process 1; `null` if that process is not shown.
    is_of_process_1: Option<bool>,
    separates: &'static str,
}

impl Topology {
    pub(crate) fn of(context: &Context) -> Result<Topology, Failure> {
        let files = Files::below("/");
        // By kind, because several transports may call theirs `memory`.
        let mut devices = BTreeMap::new();
        for device in net::devices()? {
            devices.insert((DeviceKind::Network, device.name.clone()), Device::network(device));
        }
        for device in files.names(RDMA) {
            for port in files.names(&format!("{RDMA}/{device}/ports")) {
                let name = format!("{device}:{port}");
                devices.insert((DeviceKind::Network, name), Device::rdma(&files, &device, &port));
            }
        }
        for resource in context.resources() {
            let key = (resource.kind, resource.device.clone());
            let device = devices.entry(key).or_insert_with(|| Device::of(resource));
            device.transports.push(resource.transport.clone());
        }
        Ok(Topology {
            host: host::hostname(),
            numa_nodes: nodes::read(&files),
            devices: devices.into_values().collect(),
            namespaces: spaces(),
        })
    }

    /// Writes the drawing.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), Failure> {
        std::fs::write(path, svg::draw(self))
            .map_err(|error| format!("--svg {}: {error}", path.display()).into())
    }

    /// The devices of a node; with `None` those of no node, or of one that is not listed.
    fn at(&self, node: Option<u32>) -> impl Iterator<Item = &Device> {
        let is_listed = |id: u32| self.numa_nodes.iter().any(|node| node.id == id);
        self.devices.iter().filter(move |device| device.numa_node.filter(|&id| is_listed(id)) == node)
    }
}

impl Device {
    fn network(device: net::Device) -> Device {
        let state = match (device.is_up, device.is_running) {
            (true, true) => "running",
            (true, false) => "no carrier",
            _ => "down",
        };
        let address = |own: &net::Address| format!("{}/{}", own.address, own.prefix_length);
        let link = Link {
            state: state.to_owned(),
            megabits_per_second: Some(device.speed.megabits),
            rate: None,
            mtu: Some(device.mtu),
            over: None,
            addresses: device.addresses.iter().map(address).collect(),
        };
        Device {
            kind: "net",
            numa_node: device.numa_node,
            pci: device.pci_path.as_deref().and_then(pci),
            driver: device.driver,
            link: Some(link),
            transports: Vec::new(),
            name: device.name,
        }
    }

    fn rdma(files: &Files, device: &str, port: &str) -> Device {
        let text = |name: &str| files.text(&format!("{RDMA}/{device}/{name}"));
        let of_port = |name: &str| text(&format!("ports/{port}/{name}"));
        let link = Link {
            // "4: ACTIVE"
            state: of_port("state").map_or("unknown".to_owned(), |state| {
                state.rsplit(' ').next().unwrap_or_default().to_lowercase()
            }),
            megabits_per_second: None,
            rate: of_port("rate"),
            mtu: None,
            over: of_port("gid_attrs/ndevs/0"),
            addresses: of_port("gids/0").into_iter().collect(),
        };
        let directory = files.path(&format!("{RDMA}/{device}/device"));
        Device {
            name: format!("{device}:{port}"),
            kind: "rdma",
            // −1, "no node", does not parse.
            numa_node: text("device/numa_node").and_then(|node| node.parse().ok()),
            pci: directory.canonicalize().ok().as_deref().and_then(pci),
            driver: directory.join("driver").canonicalize().ok().and_then(|driver| last(&driver)),
            link: Some(link),
            transports: Vec::new(),
        }
    }

    /// A device that only its transport knows.
    fn of(resource: &Resource) -> Device {
        Device {
            name: resource.device.clone(),
            kind: if resource.is_software { "software" } else { resource.kind.name() },
            numa_node: resource.numa_node,
            pci: None,
            driver: None,
            link: None,
            transports: Vec::new(),
        }
    }

    /// Its link, and where it is, in a few words.
    fn words(&self) -> String {
        let mut words = vec![self.kind.to_owned()];
        if let Some(Link { state, megabits_per_second, rate, mtu, over, .. }) = &self.link {
            words.push(state.clone());
            words.extend(megabits_per_second.map(|speed| format!("{speed} Mb/s")));
            words.extend(rate.clone());
            words.extend(mtu.map(|mtu| format!("mtu {mtu}")));
            words.extend(over.as_ref().map(|over| format!("over {over}")));
        }
        words.extend(self.driver.as_ref().map(|driver| format!("driver {driver}")));
        words.extend(self.pci.as_ref().map(|pci| format!("PCI {pci}")));
        words.join(", ")
    }

    fn transports(&self) -> String {
        if self.transports.is_empty() { "no transport".to_owned() } else { self.transports.join(", ") }
    }
}

/// The last PCI function of a path of devices: `0000:03:00.0`.
fn pci(path: &Path) -> Option<String> {
    let is_function = |name: &str| {
        name.split(':').count() == 3
            && name.contains('.')
            && name.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
    };
    path.ancestors().filter_map(last).find(|name| is_function(name))
}

fn last(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn spaces() -> Vec<Space> {
    let own = Namespaces::own();
    let first = Namespaces::of(1).ok();
    let space = |kind: Namespace| Space {
        kind: kind.name(),
        inode: Some(own.id(kind)).filter(|&inode| inode != 0),
        is_of_process_1: first
            .as_ref()
            .filter(|first| first.id(kind) != 0)
            .map(|first| own.shares(first, kind)),
        separates: match kind {
            Namespace::Pid => "process numbers, and cma",
            Namespace::Ipc => "segments of sysv",
            Namespace::Net => "network devices, their addresses, abstract sockets",
            Namespace::User => "users and capabilities, and cma",
            Namespace::Mnt => "files, among them /dev/shm",
            Namespace::Uts => "the host name",
        },
    };
    Namespace::ALL.map(space).to_vec()
}

impl Space {
    fn words(&self) -> String {
        let Space { kind, inode, is_of_process_1, separates } = self;
        let inode = inode.map_or_else(|| "not shown".to_owned(), |inode| inode.to_string());
        let whose = match is_of_process_1 {
            Some(true) => "that of process 1",
            Some(false) => "not that of process 1",
            None => "that of process 1 is not shown",
        };
        format!("{kind} {inode}, {whose}; separates {separates}")
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Topology of {}:", self.host)?;
        for node in &self.numa_nodes {
            writeln!(f, "# {node}")?;
            self.at(Some(node.id)).try_for_each(|device| writeln!(f, "#   {device}"))?;
        }
        writeln!(f, "# Devices of no NUMA node:")?;
        self.at(None).try_for_each(|device| writeln!(f, "#   {device}"))?;
        writeln!(f, "# Namespaces of this process:")?;
        self.namespaces.iter().try_for_each(|space| writeln!(f, "#   {}", space.words()))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.name, self.words(), self.transports())?;
        match &self.link {
            Some(link) if !link.addresses.is_empty() => write!(f, "; {}", link.addresses.join(" ")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_the_bus_is_found_in_a_path() {
        let path = |text: &str| pci(Path::new(text));
        assert_eq!(path("/sys/devices/pci0000:00/0000:00:03.0/virtio0").as_deref(), Some("0000:00:03.0"));
        assert_eq!(
            path("/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.1").as_deref(),
            Some("0000:03:00.1")
        );
        assert_eq!(path("/sys/devices/virtual/net/lo"), None);
    }

    #[test]
    fn a_port_of_an_adapter_is_read_from_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::below(root.path());
        let write = |name: &str, text: &str| {
            let path = files.path(&format!("{RDMA}/mlx5_0/{name}"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("device/numa_node", "1\n");
        write("ports/1/state", "4: ACTIVE\n");
        write("ports/1/rate", "100 Gb/sec (4X EDR)\n");
        write("ports/1/gid_attrs/ndevs/0", "eth2\n");
        let device = Device::rdma(&files, "mlx5_0", "1");
        assert_eq!((device.name.as_str(), device.numa_node), ("mlx5_0:1", Some(1)));
        assert_eq!(device.words(), "rdma, active, 100 Gb/sec (4X EDR), over eth2");
        write("device/numa_node", "-1\n");
        assert_eq!(Device::rdma(&files, "mlx5_0", "1").numa_node, None);
    }

    #[test]
    fn the_drawing_has_each_node_and_each_device_and_no_open_tag() {
        let device = |name: &str, numa_node| Device {
            name: name.to_owned(),
            kind: "net",
            numa_node,
            pci: None,
            driver: None,
            link: None,
            transports: vec!["tcp<&".to_owned()],
        };
        let node =
            |id| Node { id, processors: "0-3".to_owned(), memory: Some(1 << 30), distances: vec![10, 21] };
        let topology = Topology {
            host: "a&b".to_owned(),
            numa_nodes: vec![node(0), node(1)],
            devices: vec![device("eth0", Some(0)), device("eth1", Some(7)), device("lo", None)],
            namespaces: spaces(),
        };
        let drawn = svg::draw(&topology);
        for words in ["NUMA node 0", "NUMA node 1", "eth0", "eth1", "lo", "a&amp;b", "tcp&lt;&amp;", "uts"] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
        assert_eq!(drawn.matches("<text").count(), drawn.matches("</text>").count());
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
        // A node that the system does not list has no box; its devices are with those of no node.
        let printed = topology.to_string();
        let (_, of_none) = printed.split_once("no NUMA node").unwrap();
        assert!(of_none.contains("eth1") && of_none.contains("lo") && !of_none.contains("eth0"), "{printed}");
    }
}
