//! Network devices, and the RDMA devices that are attached to them.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ucs::sys::net;

/// Where the kernel shows RDMA devices.
const CLASS: &str = "/sys/class/infiniband";

/// Names of RDMA devices with their port, `mlx5_0:1`, by the network device that they are attached to.
pub fn attached() -> BTreeMap<String, Vec<String>> {
    attached_in(Path::new(CLASS))
}

fn attached_in(class: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for device in names(class) {
        for port in names(&class.join(&device).join("ports")) {
            let entries = class.join(&device).join("ports").join(&port).join("gid_attrs/ndevs");
            for entry in names(&entries) {
                // Reading an entry that is not in use is an error.
                let Ok(netdev) = fs::read_to_string(entries.join(entry)) else { continue };
                let rdma = found.entry(netdev.trim().to_owned()).or_default();
                let name = format!("{device}:{port}");
                if !netdev.trim().is_empty() && !rdma.contains(&name) {
                    rdma.push(name);
                }
            }
        }
    }
    found.retain(|_, rdma| !rdma.is_empty());
    found
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Name of the network device that has this address, if one has.
pub fn owner(address: IpAddr) -> Option<String> {
    net::holder(address).ok().flatten()
}

/// One line per network device with an RDMA device: `eth0 (mlx5_0:1) 10.7.0.1`.
pub fn usable() -> Vec<String> {
    let all = net::devices().unwrap_or_default();
    let with = |(netdev, rdma): (String, Vec<String>)| {
        let device = all.iter().find(|device| device.name == netdev);
        let addresses: Vec<String> = device
            .into_iter()
            .flat_map(|device| &device.addresses)
            .map(|address| address.address.to_string())
            .collect();
        format!("{netdev} ({}) {}", rdma.join(", "), addresses.join(" "))
    };
    attached().into_iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_the_network_device_of_their_addresses() {
        let class = tempfile::tempdir().expect("a directory");
        for (device, entry, netdev) in [
            ("mlx5_0", "0", "eth0\n"),
            ("mlx5_0", "1", "eth0\n"),
            ("mlx5_1", "0", "eth1\n"),
            ("odd", "0", "\n"),
        ] {
            let directory = class.path().join(device).join("ports/1/gid_attrs/ndevs");
            fs::create_dir_all(&directory).expect("a directory");
            fs::write(directory.join(entry), netdev).expect("a file");
        }
        let found = attached_in(class.path());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found["eth0"], ["mlx5_0:1"]);
        assert_eq!(found["eth1"], ["mlx5_1:1"]);
        assert!(attached_in(Path::new("/no/such/class")).is_empty());
    }

    #[test]
    fn the_loopback_device_has_its_address() {
        assert_eq!(owner("127.0.0.1".parse().expect("an address")).as_deref(), Some("lo"));
        assert_eq!(owner("192.0.2.77".parse().expect("an address")), None);
    }
}
