//! RDMA devices, as the kernel shows them: modules, files, ports, GIDs, packet sizes. What libibverbs reports comes from the transports
//! themselves (`machine`).

use std::io;

use super::finding::{Finding, Verdict};
use crate::files::Files;

const DEVICES: &str = "/sys/class/infiniband";
const VERBS: &str = "rc_verbs, ud_verbs";
/// What a packet of RoCE has beside its payload, as the kernel counts it.
const ROCE_HEADERS: u32 = 96;
/// The payload of the largest packets.
const LARGEST_PACKET: u32 = 4096;

/// The devices of the kernel.
pub(crate) fn devices(files: &Files) -> Vec<String> {
    files.names(DEVICES)
}

/// What is the matter with each.
pub(crate) fn examine(files: &Files) -> Vec<Finding> {
    let devices = devices(files);
    if devices.is_empty() {
        let found =
            Finding::new(Verdict::Absent, format!("{VERBS}, rdmacm"), "the kernel has no RDMA device");
        return vec![found.with_remedy(
            "load the driver of the adapter, for example modprobe mlx5_ib; without an adapter, modprobe rdma_rxe and rdma link add rxe0 \
             type rxe netdev NETDEV make a software device; for tests without an adapter set UCT_IB_LIBRARY=soft",
        )];
    }
    let mut findings = vec![cm_file(files)];
    for device in &devices {
        findings.push(device_file(files, device));
        for port in files.names(&format!("{DEVICES}/{device}/ports")) {
            findings.extend(examine_port(files, device, &port));
        }
    }
    findings
}

/// The file of librdmacm.
fn cm_file(files: &Files) -> Finding {
    let number = files.text("/sys/class/misc/rdma_cm/dev");
    file(files, "rdmacm", "/dev/infiniband/rdma_cm", number.as_deref(), "modprobe rdma_ucm")
}

/// The file of libibverbs for a device.
fn device_file(files: &Files, device: &str) -> Finding {
    let owner = |name: &String| {
        files.text(&format!("/sys/class/infiniband_verbs/{name}/ibdev")).is_some_and(|owner| owner == device)
    };
    match files.names("/sys/class/infiniband_verbs").into_iter().find(owner) {
        Some(name) => {
            let number = files.text(&format!("/sys/class/infiniband_verbs/{name}/dev"));
            file(files, VERBS, &format!("/dev/infiniband/{name}"), number.as_deref(), "modprobe ib_uverbs")
        }
        None => Finding::new(Verdict::Obstacle, VERBS, format!("{device} has no device file for libibverbs"))
            .with_remedy("modprobe ib_uverbs"),
    }
}

/// `number` is the kernel's number of the file, such as 231:192, if its module is loaded.
fn file(files: &Files, subject: &str, path: &str, number: Option<&str>, module: &str) -> Finding {
    match files.open(path) {
        Ok(()) => Finding::fine(subject, format!("{path} opens")),
        Err(error) => {
            let remedy = match (error.kind(), number) {
                (io::ErrorKind::NotFound, Some(number)) => format!(
                    "mknod -m 666 {path} c {}, since the kernel has it; in a container, pass it with --device {path}",
                    number.replace(':', " ")
                ),
                (io::ErrorKind::NotFound, None) => {
                    format!("{module}; in a container, pass it with --device {path}")
                }
                (io::ErrorKind::PermissionDenied, _) => format!(
                    "chmod 666 {path}, as the udev rules of rdma-core do; in a container, permit it with --device {path}"
                ),
                _ => format!("{module}, and see dmesg"),
            };
            Finding::new(Verdict::Obstacle, subject, format!("{path} cannot be opened: {error}"))
                .with_remedy(remedy)
        }
    }
}

fn examine_port(files: &Files, device: &str, port: &str) -> Vec<Finding> {
    let directory = format!("{DEVICES}/{device}/ports/{port}");
    let read = |name: &str| files.text(&format!("{directory}/{name}"));
    let name = format!("{device}:{port}");
    let is_ethernet = read("link_layer").is_some_and(|layer| layer == "Ethernet");
    // "4: ACTIVE"
    let state = read("state").unwrap_or_else(|| "unknown".to_owned());
    if !state.ends_with("ACTIVE") {
        let netdev = read("gid_attrs/ndevs/0").unwrap_or_else(|| "NETDEV".to_owned());
        let remedy = match is_ethernet {
            true => format!("ip link set {netdev} up, and check its cable"),
            false => "check the cable, and that a subnet manager runs in this network (opensm)".to_owned(),
        };
        let words = format!("port {name} is not active: {state}");
        return vec![Finding::new(Verdict::Obstacle, VERBS, words).with_remedy(remedy)];
    }
    let mut findings = vec![gids(files, &directory, &name, is_ethernet)];
    if is_ethernet {
        findings.extend(packets(files, &directory, &name));
    }
    findings
}

/// The addresses of a port. A GID of zeros is an empty entry.
fn gids(files: &Files, directory: &str, name: &str, is_ethernet: bool) -> Finding {
    let is_set = |gid: &str| gid.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0');
    let mut indices = files.names(&format!("{directory}/gids"));
    indices.retain(|index| files.text(&format!("{directory}/gids/{index}")).is_some_and(|gid| is_set(&gid)));
    let is_v2 = |index: &String| {
        files.text(&format!("{directory}/gid_attrs/types/{index}")).is_some_and(|kind| kind == "RoCE v2")
    };
    let count = indices.len();
    match is_ethernet {
        _ if count == 0 => Finding::new(Verdict::Obstacle, VERBS, format!("port {name} has no GID"))
            .with_remedy("give its network device an address: ip address add ADDRESS/LENGTH dev NETDEV"),
        true if !indices.iter().any(is_v2) => Finding::new(
            Verdict::Limit,
            VERBS,
            format!("port {name} has GIDs of RoCE v1 only, which reach no other network"),
        )
        .with_remedy("enable RoCE v2 in the adapter's driver, and give its network device an IP address"),
        _ => Finding::fine(VERBS, format!("port {name} is active and has {count} GIDs")),
    }
}

/// The packets of RoCE are those of the network device.
fn packets(files: &Files, directory: &str, name: &str) -> Option<Finding> {
    let netdev = files.text(&format!("{directory}/gid_attrs/ndevs/0"))?;
    let mtu: u32 = files.text(&format!("/sys/class/net/{netdev}/mtu"))?.parse().ok()?;
    let payload = payload(mtu);
    let words =
        format!("packets of {name} have up to {payload} bytes of payload, by the mtu {mtu} of {netdev}");
    Some(match payload {
        LARGEST_PACKET => Finding::fine(VERBS, words),
        _ => Finding::new(Verdict::Limit, VERBS, words).with_remedy(format!(
            "ip link set {netdev} mtu {}, if all machines and switches of this network do so",
            LARGEST_PACKET + ROCE_HEADERS + 8
        )),
    })
}

/// A power of two; 0 if not even the smallest packet fits.
fn payload(mtu: u32) -> u32 {
    let sizes = [LARGEST_PACKET, 2048, 1024, 512, 256];
    sizes.into_iter().find(|size| size + ROCE_HEADERS <= mtu).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

    /// A device of which nothing is wrong.
    fn machine() -> (tempfile::TempDir, Files) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("dev/infiniband/uverbs0", ""),
            ("dev/infiniband/rdma_cm", ""),
            ("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
            ("sys/class/infiniband_verbs/abi_version", "6\n"),
            (&format!("{PORT}/state"), "4: ACTIVE\n"),
            (&format!("{PORT}/link_layer"), "Ethernet\n"),
            (&format!("{PORT}/gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            (&format!("{PORT}/gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            (&format!("{PORT}/gid_attrs/types/1"), "RoCE v2\n"),
            (&format!("{PORT}/gid_attrs/ndevs/0"), "eth0\n"),
            ("sys/class/net/eth0/mtu", "9000\n"),
        ] {
            write(root.path(), path, text);
        }
        let files = Files::below(root.path());
        (root, files)
    }

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The one finding that is not fine.
    fn wrong(files: &Files) -> Finding {
        let mut wrong: Vec<Finding> =
            examine(files).into_iter().filter(|finding| finding.verdict != Verdict::Fine).collect();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        wrong.remove(0)
    }

    #[track_caller]
    fn expect(files: &Files, verdict: Verdict, words: &str, remedy: &str) {
        let found = wrong(files);
        assert_eq!(found.verdict, verdict, "{found}");
        assert!(found.words.contains(words), "{found}");
        assert!(found.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{found}");
    }

    #[test]
    fn a_machine_without_devices_and_one_with_a_good_one() {
        let nothing = tempfile::tempdir().unwrap();
        expect(&Files::below(nothing.path()), Verdict::Absent, "no RDMA device", "rdma_rxe");
        let (_root, files) = machine();
        assert!(
            examine(&files).iter().all(|finding| finding.verdict == Verdict::Fine),
            "{:?}",
            examine(&files)
        );
    }

    #[test]
    fn files_that_are_missing_name_their_module() {
        let (root, files) = machine();
        fs::remove_file(root.path().join("dev/infiniband/uverbs0")).unwrap();
        expect(&files, Verdict::Obstacle, "/dev/infiniband/uverbs0 cannot be opened", "modprobe ib_uverbs");
        write(root.path(), "sys/class/infiniband_verbs/uverbs0/dev", "231:192\n");
        let mknod = "mknod -m 666 /dev/infiniband/uverbs0 c 231 192";
        expect(&files, Verdict::Obstacle, "/dev/infiniband/uverbs0 cannot be opened", mknod);
        let (root, files) = machine();
        fs::remove_file(root.path().join("dev/infiniband/rdma_cm")).unwrap();
        expect(&files, Verdict::Obstacle, "rdma_cm cannot be opened", "modprobe rdma_ucm");
        write(root.path(), "sys/class/misc/rdma_cm/dev", "10:122\n");
        expect(&files, Verdict::Obstacle, "rdma_cm cannot be opened", "rdma_cm c 10 122");
        let (root, files) = machine();
        fs::remove_dir_all(root.path().join("sys/class/infiniband_verbs")).unwrap();
        expect(&files, Verdict::Obstacle, "mlx5_0 has no device file", "modprobe ib_uverbs");
    }

    #[test]
    fn a_port_needs_a_link_and_an_address() {
        let (root, files) = machine();
        write(root.path(), &format!("{PORT}/state"), "1: DOWN\n");
        expect(&files, Verdict::Obstacle, "mlx5_0:1 is not active: 1: DOWN", "ip link set eth0 up");
        write(root.path(), &format!("{PORT}/link_layer"), "InfiniBand\n");
        expect(&files, Verdict::Obstacle, "not active", "subnet manager");
        let (root, files) = machine();
        fs::remove_file(root.path().join(PORT).join("gids/1")).unwrap();
        expect(&files, Verdict::Obstacle, "no GID", "ip address add");
        let (root, files) = machine();
        write(root.path(), &format!("{PORT}/gid_attrs/types/1"), "IB/RoCE v1\n");
        expect(&files, Verdict::Limit, "RoCE v1", "RoCE v2");
    }

    #[test]
    fn packets_are_as_large_as_the_network_device_permits() {
        assert_eq!([65_536, 4192, 4191, 1500, 351].map(payload), [4096, 4096, 2048, 1024, 0]);
        let (root, files) = machine();
        write(root.path(), "sys/class/net/eth0/mtu", "1500\n");
        expect(&files, Verdict::Limit, "up to 1024 bytes of payload", "eth0 mtu 4200");
    }
}
