//! The network of `tcp`: devices, buffers, congestion control.

use super::finding::{Finding, Verdict};
use crate::files::Files;

const SUBJECT: &str = "tcp";
/// A fast network: 10⁶ bits per second.
const FAST: u32 = 10_000;
/// The usual size of packets, from which fast devices profit if it is larger.
const SMALL_MTU: u32 = 1500;
/// A buffer of this size fills 10 Gb/s at a round trip of 3 ms.
const BUFFER: u64 = 4 << 20;

/// A network device, as far as it matters here.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) is_loopback: bool,
    pub(crate) is_running: bool,
    pub(crate) has_address: bool,
    /// 10⁶ bits per second, if the device reports it.
    pub(crate) megabits: Option<u32>,
    pub(crate) mtu: u32,
}

/// Devices to other machines.
pub(crate) fn devices(devices: &[Device]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let outward = || devices.iter().filter(|device| !device.is_loopback);
    for device in outward().filter(|device| device.has_address && !device.is_running) {
        let words = format!("network device {} has an address, and no link", device.name);
        let remedy =
            format!("ip link set {} up; if it is up, check the cable or the virtual switch", device.name);
        findings.push(Finding::new(Verdict::Limit, SUBJECT, words).with_remedy(remedy));
    }
    let usable: Vec<&Device> = outward().filter(|device| device.has_address && device.is_running).collect();
    if usable.is_empty() {
        let words = "no network device connects to other machines: only loopback can be used";
        findings.push(Finding::new(Verdict::Absent, SUBJECT, words));
    }
    for device in usable {
        let speed = device.megabits.map_or_else(String::new, |speed| format!(", {speed} Mb/s"));
        let words = format!("network device {}{speed}, mtu {}", device.name, device.mtu);
        findings.push(match device.megabits {
            Some(FAST..) if device.mtu <= SMALL_MTU => {
                Finding::new(Verdict::Limit, SUBJECT, format!("{words}: a larger mtu needs fewer packets"))
                    .with_remedy(format!(
                        "ip link set {} mtu 9000, if all machines and switches of this network do so",
                        device.name
                    ))
            }
            _ => Finding::fine(SUBJECT, words),
        });
    }
    findings
}

/// The kernel's settings. `configured` is the key `tcp.congestion`.
pub(crate) fn settings(files: &Files, configured: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let systems = files.text("/proc/sys/net/ipv4/tcp_congestion_control");
    let system = systems.as_deref().unwrap_or("unknown");
    let congestion = if ["auto", "system"].contains(&configured) { system } else { configured };
    // reno is permitted to everybody on every system.
    let permitted = files.text("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap_or_default();
    let other = if permitted.split_whitespace().any(|name| name == "cubic") { "cubic" } else { "reno" };
    findings.push(if congestion.starts_with("bbr") {
        Finding::new(
            Verdict::Limit,
            SUBJECT,
            format!("congestion control {congestion} limits the rate to what it has measured, which takes time in a fast local network"),
        )
        .with_remedy(format!(
            "UCT_TCP_CONGESTION={other} for this library; or sysctl net.ipv4.tcp_congestion_control={other} for the machine"
        ))
    } else {
        Finding::fine(SUBJECT, format!("congestion control {congestion}"))
    });
    for (name, buffers) in [("tcp_rmem", "receive"), ("tcp_wmem", "send")] {
        let text = files.text(&format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        let Some(largest) = text.split_whitespace().nth(2).and_then(|word| word.parse::<u64>().ok()) else {
            continue;
        };
        let words = format!("{buffers} buffers of a connection grow to {largest} bytes (net.ipv4.{name})");
        findings.push(if largest < BUFFER {
            Finding::new(
                Verdict::Limit,
                SUBJECT,
                format!("{words}, which a fast connection to a distant machine fills"),
            )
            .with_remedy(format!("sysctl net.ipv4.{name}=\"4096 131072 {}\"", 16 << 20))
        } else {
            Finding::fine(SUBJECT, words)
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn device(name: &str, megabits: Option<u32>, mtu: u32) -> Device {
        Device {
            name: name.to_owned(),
            is_loopback: false,
            is_running: true,
            has_address: true,
            megabits,
            mtu,
        }
    }

    fn verdicts(findings: &[Finding]) -> Vec<Verdict> {
        findings.iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn a_fast_device_with_small_packets_is_a_limit() {
        let found = devices(&[device("eth0", Some(25_000), 1500)]);
        assert_eq!(verdicts(&found), [Verdict::Limit]);
        assert!(found[0].remedy.as_ref().unwrap().contains("eth0 mtu 9000"));
        assert_eq!(verdicts(&devices(&[device("eth0", Some(25_000), 9000)])), [Verdict::Fine]);
        assert_eq!(
            verdicts(&devices(&[device("eth0", Some(1000), 1500), device("eth1", None, 1500)])),
            [Verdict::Fine; 2]
        );
    }

    #[test]
    fn a_device_without_a_link_and_a_machine_without_a_device_are_reported() {
        let lo = Device { is_loopback: true, ..device("lo", None, 65_536) };
        assert_eq!(verdicts(&devices(&[lo])), [Verdict::Absent]);
        let down = Device { is_running: false, ..device("eth0", None, 1500) };
        assert_eq!(verdicts(&devices(&[down])), [Verdict::Limit, Verdict::Absent]);
        let unused = Device { is_running: false, has_address: false, ..device("eth1", None, 1500) };
        assert_eq!(verdicts(&devices(&[unused])), [Verdict::Absent]);
    }

    #[test]
    fn settings_of_the_kernel_are_compared() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("proc/sys/net/ipv4");
        fs::create_dir_all(&directory).unwrap();
        let files = Files::below(root.path());
        assert_eq!(verdicts(&settings(&files, "auto")), [Verdict::Fine]);
        fs::write(directory.join("tcp_congestion_control"), "bbr\n").unwrap();
        fs::write(directory.join("tcp_rmem"), "4096\t131072\t6291456\n").unwrap();
        fs::write(directory.join("tcp_wmem"), "4096\t16384\t212992\n").unwrap();
        assert_eq!(verdicts(&settings(&files, "auto")), [Verdict::Limit, Verdict::Fine, Verdict::Limit]);
        assert_eq!(verdicts(&settings(&files, "cubic"))[0], Verdict::Fine);
    }

    #[test]
    fn the_remedy_for_congestion_control_is_one_that_this_user_may_take() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("proc/sys/net/ipv4");
        fs::create_dir_all(&directory).unwrap();
        let files = Files::below(root.path());
        for (permitted, expected) in [("reno bbr\n", "reno"), ("reno cubic bbr\n", "cubic")] {
            // A network namespace that does not permit it refuses it as the setting, too.
            fs::write(directory.join("tcp_allowed_congestion_control"), permitted).unwrap();
            let found = settings(&files, "bbr").remove(0);
            let remedy = found.remedy.unwrap();
            assert!(remedy.starts_with(&format!("UCT_TCP_CONGESTION={expected} ")), "{remedy}");
            assert!(remedy.contains(&format!("tcp_congestion_control={expected} ")), "{remedy}");
        }
    }
}
