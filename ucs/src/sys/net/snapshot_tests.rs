use super::*;
use crate::sys::net::{Reach, device, devices, reach, route_source, route_source_via};

/// Runs `test` in a thread with a network namespace of its own, or says why not.
fn alone(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: changes the namespace of this thread, which ends right after.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return eprintln!("SKIPPED: only root can make network namespaces");
        }
        ip("link set lo up");
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

/// Runs `ip` (iproute2) with several commands, a line each.
fn ip(commands: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child =
        Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip starts");
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{commands}");
}

fn count(work: impl FnOnce()) -> u64 {
    let before = readings();
    work();
    readings() - before
}

#[test]
fn hundreds_of_devices_are_listed_opened_and_routed_with_one_reading() {
    alone(|| {
        const PAIRS: usize = 150;
        let ends = |number: usize| [format!("near{number}"), format!("far{number}")];
        let one = |number: usize| {
            let [near, far] = ends(number);
            let up = |name: &str, net: usize| {
                format!("link set {name} up\naddr add 10.{net}.{number}.1/24 dev {name}\n")
            };
            format!("link add {near} type veth peer name {far}\n") + &up(&near, 0) + &up(&far, 1)
        };
        // Otherwise the kernel looks for duplicates of 300 addresses, and each end of that is a change.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        ip(&(0..PAIRS).map(one).collect::<String>());
        let begun = std::time::Instant::now();
        let readings = count(|| {
            let all = devices().unwrap();
            assert_eq!(all.len(), 2 * PAIRS + 1);
            let peer = "10.1.7.9:1".parse().unwrap();
            let mut leading = Vec::new();
            for listed in &all {
                assert_eq!(device(&listed.name).unwrap().unwrap().index, listed.index);
                leading.extend(route_source_via(&listed.name, peer).ok().and_then(|route| route.device));
            }
            assert_eq!(leading, ["far7"]);
            assert_eq!(route_source(peer).unwrap().device.as_deref(), Some("far7"));
            assert_eq!(reach("far7").unwrap(), Some(Reach::Wide));
        });
        println!("{readings} readings in {:?}", begun.elapsed());
        // What is still changing is read again: the kernel reports in batches that links have come up.
        assert!(readings <= 1 + 4, "{readings} readings for {PAIRS} pairs of devices");
    });
}

#[test]
fn what_changes_is_seen_by_the_next_question() {
    alone(|| {
        let peer = "192.0.2.77:1".parse().unwrap();
        assert!(device("near").unwrap().is_none());
        assert_eq!(route_source(peer).unwrap_err().errno, libc::ENETUNREACH);
        ip("link add near type veth peer name far");
        assert!(!device("near").unwrap().expect("it is new").is_up);
        ip("link set near mtu 1400 up");
        assert!(device("near").unwrap().unwrap().is_up);
        assert_eq!(device("near").unwrap().unwrap().mtu, 1400);
        ip("addr add 192.0.2.1/24 dev near");
        assert!(device("near").unwrap().unwrap().has_address("192.0.2.1".parse().unwrap()));
        assert_eq!(route_source(peer).unwrap().device.as_deref(), Some("near"));
        ip("addr del 192.0.2.1/24 dev near");
        assert_eq!(route_source(peer).unwrap_err().errno, libc::ENETUNREACH);
        ip("route add 192.0.2.0/24 dev near\naddr add 198.51.100.1/32 dev near");
        assert_eq!(route_source(peer).unwrap().source.ip().to_string(), "198.51.100.1");
        ip("link del near");
        assert!(device("near").unwrap().is_none());
        assert_eq!(devices().unwrap().len(), 1, "its other end is gone with it");
    });
}

#[test]
fn a_thread_that_enters_another_namespace_sees_its_devices() {
    let (_, before) = (devices().unwrap(), readings());
    alone(|| {
        let names: Vec<String> = devices().unwrap().into_iter().map(|device| device.name).collect();
        assert_eq!(names, ["lo"]);
        // SAFETY: as in `alone`.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        assert!(!device("lo").unwrap().expect("each has one").is_up);
    });
    assert_eq!(readings(), before, "each thread has its own");
}
