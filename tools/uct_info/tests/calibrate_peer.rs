//! `--calibrate --peer` measures with a program that listens, on this machine and between two network namespaces, and what is chosen for that peer
//! follows the measured times.

#[path = "../../../ucs/testing/skip.rs"]
mod skip;
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::listening::Listening;
use support::process::{Ended, command, run};
use support::{PROGRAM, info, list, parse, text};
use tempfile::TempDir;

/// One side: in a network namespace, or in that of the test.
struct Side {
    directory: TempDir,
    namespace: Option<Child>,
}

impl Side {
    fn here() -> Side {
        Side { directory: tempfile::tempdir().expect("a directory"), namespace: None }
    }

    /// A network namespace with loopback, as long as this is there; `None` if none can be made.
    fn apart() -> Option<Side> {
        let mut keeper =
            command("unshare", &["--net", "--", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let mut child = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut ready).ok()?;
        let mut side = Side::here();
        side.namespace = Some(child);
        (ready == "ready\n").then_some(side)
    }

    fn process(&self) -> String {
        self.namespace.as_ref().map_or(0, Child::id).to_string()
    }

    fn inside(&self, program: &str, arguments: &[&str]) -> Command {
        let process = self.process();
        let arguments = [&["--target", &process, "--net", "--", program], arguments].concat();
        command("nsenter", &arguments)
    }

    fn ip(&self, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        run(&mut self.inside("ip", &arguments)).success();
    }

    /// The program on this side, with a cache directory of its own.
    fn info(&self, arguments: &[&str]) -> Command {
        let mut info = match self.namespace {
            Some(_) => self.inside(PROGRAM, arguments),
            None => info(arguments),
        };
        if self.namespace.is_none() {
            info.env("UCT_NET_DEVICES", "lo");
        }
        info.env("XDG_CACHE_HOME", self.directory.path())
            .env("UCT_TLS", "posix,tcp")
            .env("UCT_FALLBACK", "allow");
        info
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        run(&mut self.info(arguments))
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("uct/calibration.toml")
    }

    /// The candidates for a peer with these addresses.
    fn explain(&self, peer: &str, arguments: &[&str]) -> Value {
        let arguments = [&["--explain", "--json", "--peer-address", peer], arguments].concat();
        parse(&self.run(&arguments).success())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.namespace {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

/// The candidates that can be chosen: name, seconds, and the host that was measured with.
fn usable(explained: &Value) -> Vec<(String, f64, Option<String>)> {
    let candidates = list(explained, "/explain/candidates").iter();
    let usable = candidates.filter_map(|it| {
        let with = it.pointer("/measured_with/name").and_then(Value::as_str).map(str::to_owned);
        Some((format!("{}/{}", text(it, "/transport"), it["device"].as_str()?), it["total"].as_f64()?, with))
    });
    usable.collect()
}

#[test]
fn two_programs_measure_with_each_other_and_only_the_caller_stores_it() {
    let (near, far) = (Side::here(), Side::here());
    let arguments = ["--calibrate", "-t", "tcp", "--listen", "127.0.0.1:0", "--callers", "1"];
    let mut listening = Listening::start(&mut far.info(&arguments));
    let host = format!("127.0.0.1:{}", listening.port);
    let ended = near.run(&["--calibrate", "lo", "-t", "tcp", "--json", "--peer", &host]);
    let passes = ended.stderr.matches(": tcp/lo with lo … ").count();
    assert!(passes > 1, "{}", ended.stderr);
    let calibrated = parse(&ended.success());
    assert_eq!(text(&calibrated, "/calibrate/peer"), "127.0.0.1");
    let [tcp] = list(&calibrated, "/calibrate/interfaces") else { panic!("{calibrated:#}") };
    assert_eq!((text(tcp, "/device"), text(tcp, "/peer_device")), ("lo", "lo"));
    for operation in ["am_short", "am_bcopy", "am_zcopy", "put_short", "put_zcopy", "get_bcopy"] {
        let mut rows = list(tcp, "/rows").iter();
        assert!(rows.any(|row| row["operation"] == operation && row["what"] == "time"), "{operation}");
    }
    assert!(listening.line().contains(&format!(": tcp/lo: {passes} passes, ")), "it says what it did");
    assert_eq!(listening.end(), (true, String::new()), "it ends after its caller");
    assert!(!far.file().exists());
    let stored = fs::read_to_string(near.file()).expect("it is written");
    assert!(stored.contains("version = 3") && stored.contains("name = \"127.0.0.1\""), "{stored}");

    // A peer of this machine has the device address of this one.
    let address = far.run(&["--address"]).success();
    let explained = near.explain(address.trim(), &["--set", "tls=tcp"]);
    let [(name, _, Some(host))] = &usable(&explained)[..] else { panic!("{explained:#}") };
    assert_eq!((name.as_str(), host.as_str()), ("tcp/lo", "127.0.0.1"));
    let printed = near.run(&["--explain", "--peer-address", address.trim(), "--set", "tls=tcp"]).success();
    assert!(printed.contains("; measured with 127.0.0.1 "), "{printed}");
    let itself = parse(&near.run(&["--explain", "--json", "--set", "tls=tcp"]).success());
    assert!(usable(&itself).iter().all(|(_, _, with)| with.is_none()), "no peer is named: {itself:#}");
}

#[test]
fn between_two_programs_registered_shared_memory_has_times_of_its_own_and_the_choice_follows_them() {
    let (near, far) = (Side::here(), Side::here());
    let arguments = ["--calibrate", "-t", "posix", "--listen", "127.0.0.1:0", "--callers", "1"];
    let listening = Listening::start(&mut far.info(&arguments));
    let host = format!("127.0.0.1:{}", listening.port);
    let ended = near.run(&["--calibrate", "-t", "posix", "--json", "--peer", &host]);
    let calibrated = parse(&ended.success());
    assert!(listening.end().0);
    let rows = list(&calibrated, "/calibrate/interfaces/0/rows");
    for (memory, operations) in [
        (
            "allocated",
            ["am_short", "put_short", "put_bcopy", "put_zcopy", "get_short", "get_zcopy"].as_slice(),
        ),
        ("registered", &["put_short", "put_bcopy", "put_zcopy", "get_short", "get_bcopy", "get_zcopy"]),
    ] {
        for operation in operations {
            let is_it = |row: &Value| row["memory"] == memory && row["operation"] == *operation;
            assert!(rows.iter().any(is_it), "{operation}, {memory}");
        }
    }
    assert!(!rows.iter().any(|row| row["memory"] == "registered" && row["operation"] == "am_short"));

    let stored = fs::read_to_string(near.file()).expect("it is written");
    let (before, registered) = stored.split_once("[peers.registered]\n").expect("it has them");
    let put = registered.lines().find(|line| line.starts_with("put_short = ")).expect("a line");
    let changed = registered.replace(put, "put_short = [[8, 250.0]]");
    fs::write(near.file(), format!("{before}[peers.registered]\n{changed}")).expect("a file");
    let address = far.run(&["--address"]).success();
    let explain = |memory| {
        let request = ["--op", "put_short", "--memory", memory, "--set", "tls=posix"];
        usable(&near.explain(address.trim(), &request))
    };
    let [(_, seconds, Some(host))] = &explain("registered")[..] else { panic!("one candidate") };
    assert_eq!(((seconds * 1e9).round(), host.as_str()), (250.0, "127.0.0.1"));
    let [(_, _, Some(_))] = &explain("allocated")[..] else { panic!("one candidate, measured") };
}

#[test]
fn between_two_network_namespaces_the_choice_follows_the_times_that_were_measured_with_the_peer() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let (Some(near), Some(far)) = (Side::apart(), Side::apart()) else {
        skip::skip("root", "no network namespace can be made here");
        return;
    };
    near.ip(&format!("link add cable type veth peer name cable netns {}", far.process()));
    for (side, address) in [(&near, "10.9.0.1"), (&far, "10.9.0.2")] {
        side.ip(&format!("address add {address}/24 dev cable"));
        side.ip("link set cable up");
    }
    let arguments = ["--calibrate", "--listen", "0", "--callers", "1"];
    let listening = Listening::start(&mut far.info(&arguments));
    let host = format!("10.9.0.2:{}", listening.port);
    let printed = near.run(&["--calibrate", "--peer", &host]).success();
    assert!(printed.contains("# tcp/cable with cable\n"), "{printed}");
    assert!(printed.contains("# tcp/lo does not reach the peer: "), "{printed}");
    assert!(listening.end().0);

    let address = far.run(&["--address"]).success();
    let peer = address.trim();
    let requests: [&[&str]; 4] = [
        &["--op", "am_short", "--size", "8"],
        &["--op", "am_bcopy", "--size", "1k"],
        &["--op", "put_zcopy", "--size", "64k"],
        &["--op", "get_zcopy", "--size", "1M"],
    ];
    for request in requests {
        let explained = near.explain(peer, request);
        let candidates = usable(&explained);
        assert!(candidates.len() >= 2, "shared memory and the cable lead there: {explained:#}");
        for (name, _, with) in &candidates {
            assert_eq!(with.as_deref(), Some("10.9.0.2"), "{name}: {explained:#}");
        }
        let fastest = candidates.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
        let chosen = text(&explained, "/explain/chosen");
        let (_, seconds, _) = candidates.iter().find(|it| it.0 == chosen).expect("it is there");
        assert!(*seconds <= 1.1 * fastest, "what is within a tenth counts as equal: {explained:#}");
    }
    // The times decide, not the transports.
    let stored = fs::read_to_string(near.file()).expect("it is written");
    let mut is_tcp = false;
    let lines = stored.lines().map(|line| {
        is_tcp = if line.starts_with("interface = ") { line.contains("tcp/cable") } else { is_tcp };
        match line.starts_with("am_short = ") && is_tcp {
            true => "am_short = [[8, 1.0]]".to_owned(),
            false => line.to_owned(),
        }
    });
    let changed: Vec<String> = lines.collect();
    fs::write(near.file(), changed.join("\n")).expect("a file");
    assert_eq!(text(&near.explain(peer, requests[0]), "/explain/chosen"), "tcp/cable");
    let own = near.run(&["--address"]).success();
    let printed = near.run(&["--explain", "--peer-address", own.trim(), "--set", "tls=tcp"]).success();
    assert!(
        printed.contains("; the models count for tcp/") && printed.contains("--calibrate --peer HOST"),
        "{printed}"
    );
    assert_ne!(
        text(&near.explain(own.trim(), requests[0]), "/explain/chosen"),
        "tcp/cable",
        "it is another peer"
    );
}
