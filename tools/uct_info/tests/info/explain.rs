//! `--explain --json` names every candidate, with what it would cost or why it is rejected.

use crate::support::process::{Ended, command, run};
use crate::support::{self, PROGRAM, ended, info, json, list, parse, skip, text, transports};
use serde_json::Value;
use uct_core::IfaceAddress;
use uct_core::select::{PeerAddresses, PeerIface};

const STAGES: [&str; 9] =
    ["load", "device", "config", "open", "capability", "size", "endpoints", "unreachable", "impeded"];

/// Checks what holds for every explanation, and gives back its candidates.
fn candidates(explained: &Value) -> Vec<Value> {
    let candidates = list(explained, "/explain/candidates");
    assert!(!candidates.is_empty());
    for candidate in candidates {
        assert!(!text(candidate, "/transport").is_empty());
        match text(candidate, "/verdict") {
            "CHOSEN" | "USABLE" => {
                assert!(candidate["total"].as_f64().unwrap() >= 0.0);
                for term in ["overhead", "latency", "transfer"] {
                    let origin = text(candidate, &format!("/{term}/origin"));
                    let origins = ["model", "device", "measured", "configured", "default"];
                    assert!(origins.contains(&origin), "{candidate:#}");
                    assert!(candidate[term]["seconds"].as_f64().unwrap() >= 0.0);
                }
                assert!(!text(candidate, "/origin").is_empty());
            }
            "REJECTED" => {
                assert!(STAGES.contains(&text(candidate, "/stage")), "{candidate:#}");
                assert!(!text(candidate, "/check").is_empty() && !text(candidate, "/hint").is_empty());
            }
            other => panic!("verdict {other} in {candidate:#}"),
        }
    }
    let chosen = candidates.iter().filter(|candidate| candidate["verdict"] == "CHOSEN").count();
    assert_eq!(chosen, usize::from(!explained["explain"]["chosen"].is_null()));
    candidates.to_vec()
}

fn of_transport<'a>(candidates: &'a [Value], transport: &str) -> Vec<&'a Value> {
    candidates.iter().filter(|candidate| candidate["transport"] == transport).collect()
}

#[test]
fn the_cheapest_candidate_is_chosen_and_stands_first() {
    let explained = json(&["--explain", "--json", "--op", "am_bcopy", "--size", "1k"]);
    assert_eq!(explained["explain"]["request"]["operation"], "am_bcopy");
    assert_eq!(explained["explain"]["request"]["size"], 1024);
    let candidates = candidates(&explained);
    assert_eq!(candidates[0]["verdict"], "CHOSEN");
    let costs: Vec<f64> = candidates.iter().filter_map(|candidate| candidate["total"].as_f64()).collect();
    assert!(costs.is_sorted(), "{costs:?}");
    for transport in transports(None) {
        assert!(!of_transport(&candidates, &transport).is_empty(), "{transport} is not named");
    }
}

#[test]
fn the_text_has_a_line_for_each_candidate() {
    let explained = candidates(&json(&["--explain", "--json"]));
    let text = ended(&["--explain"]).success();
    let lines = text
        .lines()
        .filter(|line| ["CHOSEN ", "USABLE ", "REJECTED "].iter().any(|verdict| line.starts_with(verdict)));
    assert_eq!(lines.count(), explained.len(), "{text}");
}

#[test]
fn in_an_empty_network_namespace_networks_are_rejected_for_want_of_a_device() {
    let networks = transports(Some("net"));
    let isolated = |arguments: &[&str]| -> Ended {
        let root = rustix::process::geteuid().is_root();
        let own: &[&str] = if root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
        run(command("unshare", own).arg("--").arg(PROGRAM).args(arguments))
    };
    let probe = isolated(&["-v"]);
    if probe.code != Some(0) {
        skip::skip("root", format_args!("no network namespace can be made here: {}", probe.stderr));
        return;
    }
    let explained = parse(&isolated(&["--explain", "--json"]).success());
    let candidates = candidates(&explained);
    for transport in networks {
        let own = of_transport(&candidates, &transport);
        assert!(!own.is_empty(), "{transport} is not named: {explained:#}");
        for candidate in own {
            assert_eq!(candidate["verdict"], "REJECTED", "{candidate:#}");
            assert_eq!(candidate["stage"], "device", "{candidate:#}");
        }
    }
}

#[test]
fn a_transport_that_the_configuration_excludes_says_which_key_and_where_it_was_set() {
    for transport in transports(None) {
        let ended = run(info(&["--explain", "--json"]).env("UCT_TLS", format!("^{transport}")));
        let explained = parse(&ended.stdout);
        let candidates = candidates(&explained);
        let own = of_transport(&candidates, &transport);
        assert!(!own.is_empty(), "{transport}: {explained:#}");
        for candidate in own {
            assert_eq!((&candidate["verdict"], &candidate["stage"]), (&"REJECTED".into(), &"config".into()));
            let check = text(candidate, "/check");
            assert!(check.contains(&format!("^{transport}")) && check.contains("UCT_TLS"), "{check}");
        }
    }
}

#[test]
fn a_peer_out_of_reach_rejects_every_candidate_and_the_program_fails_with_one_line() {
    let ifaces = transports(None).into_iter().map(|transport| PeerIface {
        device: "elsewhere".to_owned(),
        address: IfaceAddress { transport, device: vec![0xee; 5], iface: vec![0xee; 3] },
    });
    let packed = PeerAddresses { ifaces: ifaces.collect() }.pack().unwrap();
    let hex: String = packed.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{hex}\n")).unwrap();
    let at_file = format!("@{}", file.path().display());
    for address in [hex.as_str(), at_file.as_str()] {
        let ended = ended(&["--explain", "--json", "--peer-address", address]);
        let candidates = candidates(&parse(&ended.stdout));
        for candidate in candidates.iter().filter(|candidate| !candidate["device"].is_null()) {
            assert_eq!(candidate["verdict"], "REJECTED");
            assert!(["unreachable", "impeded"].contains(&text(candidate, "/stage")), "{candidate:#}");
            assert!(text(candidate, "/check").contains("elsewhere"), "{candidate:#}");
        }
        assert!(ended.failure().contains("no transport for am_short of 8 bytes"));
    }
}

#[test]
fn a_peer_that_offers_nothing_is_out_of_reach_by_every_transport() {
    let packed = PeerAddresses::default().pack().unwrap();
    let hex: String = packed.iter().map(|byte| format!("{byte:02x}")).collect();
    let ended = ended(&["--explain", "--json", "--peer-address", &hex]);
    let candidates = candidates(&parse(&ended.stdout));
    assert!(candidates.iter().any(|it| it["check"].as_str().is_some_and(|it| it.contains("offers no"))));
    ended.failure();
}

#[test]
fn a_plugin_that_fails_to_load_is_a_candidate_rejected_at_load_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("libuct_bad.so"), "not a library\n").unwrap();
    let ended = run(info(&["-v", "-d", "--explain", "--json"]).env("UCT_MODULE_DIR", dir.path()));
    assert_eq!(ended.stderr.lines().filter(|line| line.contains("libuct_bad.so")).count(), 1, "{ended:?}");
    let document = parse(&ended.success());
    let candidates = candidates(&document);
    let bad = of_transport(&candidates, "bad");
    assert_eq!(bad.len(), 1, "{document:#}");
    assert_eq!((&bad[0]["verdict"], &bad[0]["stage"]), (&"REJECTED".into(), &"load".into()));
    let check = text(bad[0], "/check");
    assert!(check.contains("libuct_bad.so") && check.contains("ELF"), "{check}");
    assert_eq!(candidates[0]["verdict"], "CHOSEN");
    assert_eq!(text(&document, "/version/failed_plugins/0/name"), "bad");
    assert_eq!(text(&document, "/version/failed_plugins/0/stage"), "open");
    let absent = list(&document, "/devices/absent");
    assert!(absent.iter().any(|absent| absent["name"] == "bad" && absent["stage"] == "load"));
}

#[test]
fn an_interface_without_a_free_descriptor_reports_that_and_nothing_else() {
    // Whichever is the one too many: of opening the transports, each step fails once. How many descriptors there are to open
    // is the machine's matter, so the limit grows until all are open.
    let mut said = 0;
    for limit in 4..=1024 {
        let script = format!("ulimit -n {limit}; exec {} --explain", support::PROGRAM);
        let mut command = support::process::command("bash", &["-c", &script]);
        let ended = run(command.current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME"));
        assert!(ended.stderr.is_empty() || ended.code != Some(0), "{limit}: {}", ended.stderr);
        assert!(
            !ended.stderr.contains("panicked") && !ended.stderr.contains("WARN"),
            "{limit}: {}",
            ended.stderr
        );
        let is_short = ended.stdout.contains("Too many open files");
        said += u32::from(is_short);
        if ended.code == Some(0) && !is_short && said > 0 {
            return;
        }
    }
    panic!("of 1024 limits {said} were one too few, and none was enough");
}

#[test]
fn a_size_that_nobody_takes_names_every_limit() {
    let ended = ended(&["--explain", "--json", "--op", "am_short", "--size", "1g"]);
    let candidates = candidates(&parse(&ended.stdout));
    let of_size: Vec<&Value> = candidates.iter().filter(|candidate| candidate["stage"] == "size").collect();
    assert!(!of_size.is_empty());
    assert!(of_size.iter().all(|candidate| text(candidate, "/check").contains("1073741824")));
    assert!(ended.failure().contains("am_short of 1073741824 bytes"));
}

#[test]
fn what_is_required_by_name_is_all_that_is_usable() {
    for transport in transports(None) {
        let ended = run(info(&["--explain", "--json"]).env("UCT_REQUIRE", &transport));
        let explained = parse(&ended.success());
        for candidate in candidates(&explained) {
            let usable = candidate["verdict"] != "REJECTED";
            // A device may have the name of a transport.
            let is_named =
                [&candidate["transport"], &candidate["device"]].contains(&&Value::from(&*transport));
            assert_eq!(usable, is_named, "{candidate:#}");
        }
    }
}
