//! Every section, as text and as JSON, and what goes wrong with one line.

use crate::support::process::run;
use crate::support::{self, ended, info, json, list, parse, text, transports};

#[test]
fn all_sections_fit_into_one_json_object() {
    let document =
        json(&["-v", "-b", "-s", "-T", "-c", "-d", "--matrix", "--address", "--explain", "--json"]);
    let keys: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let sections = [
        "address", "build", "config", "devices", "explain", "matrix", "schema", "system", "topology",
        "version",
    ];
    assert_eq!(keys, sections);
    assert_eq!(document["schema"], 1);
}

#[test]
fn the_page_of_the_programs_names_every_section_and_its_fields() {
    let page = include_str!("../../../../docs/tools.md");
    let document =
        json(&["-v", "-b", "-d", "-c", "-s", "-T", "--matrix", "--explain", "--address", "--json"]);
    for (section, value) in document.as_object().unwrap() {
        let first = value.as_array().and_then(|all| all.first()).unwrap_or(value);
        let fields = first.as_object().into_iter().flat_map(|object| object.keys());
        for name in std::iter::once(section).chain(fields) {
            assert!(page.contains(&format!("`{name}`")), "docs/tools.md has no `{name}` ({section})");
        }
    }
}

#[test]
fn the_version_names_the_plugin_boundary_and_every_plugin() {
    let document = json(&["-v", "--json"]);
    assert_eq!(text(&document, "/version/version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(document["version"]["abi_major"], uct_core::ABI_VERSION.0);
    let plugins = list(&document, "/version/plugins");
    let listed = |transport: &String| {
        plugins.iter().any(|plugin| list(plugin, "/transports").iter().any(|own| own == transport.as_str()))
    };
    assert!(transports(None).iter().all(listed));
    let printed = ended(&["-v"]).success();
    for plugin in plugins {
        assert!(printed.contains(text(plugin, "/name")) && printed.contains(text(plugin, "/origin")));
    }
}

#[test]
fn the_build_is_that_of_this_program_whatever_the_configuration_permits() {
    let linked = |arguments: &[&str]| {
        let document = json(arguments);
        assert_eq!(text(&document, "/build/version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(
            text(&document, "/build/profile"),
            if cfg!(debug_assertions) { "debug" } else { "release" }
        );
        list(&document, "/build/features").to_vec()
    };
    let all = linked(&["-b", "--json"]);
    assert_eq!(all, ["self", "shm", "tcp"]);
    assert_eq!(linked(&["-b", "--json", "--set", "modules=tcp"]), all);
    let printed = ended(&["-b"]).success();
    let commit = option_env!("UCT_COMMIT").unwrap_or("not recorded");
    assert!(printed.contains(&format!("# Commit: {commit}")), "{printed}");
    for directory in list(&json(&["-b", "--json"]), "/build/plugin_directories") {
        assert!(printed.contains(directory.as_str().unwrap()), "{printed}");
    }
}

#[test]
fn the_topology_has_every_resource_at_its_device_and_is_drawn() {
    let document = json(&["-T", "-d", "--json"]);
    let devices = list(&document, "/topology/devices");
    for resource in list(&document, "/devices/resources") {
        let (name, transport) = (&resource["device"], &resource["transport"]);
        let has = |device: &&serde_json::Value| {
            device["name"] == *name && list(device, "/transports").contains(transport)
        };
        assert_eq!(devices.iter().filter(has).count(), 1, "{resource}");
    }
    let lo = devices.iter().find(|device| device["name"] == "lo").expect("the loopback device");
    assert!(lo["link"]["megabits_per_second"].as_u64().unwrap() > 0 && lo["numa_node"].is_null());
    let own = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let spaces = list(&document, "/topology/namespaces");
    let net = spaces.iter().find(|space| space["kind"] == "net").unwrap();
    assert_eq!(format!("net:[{}]", net["inode"]), own);

    let file = tempfile::NamedTempFile::with_suffix(".svg").unwrap();
    let printed = ended(&["-T", "--svg", file.path().to_str().unwrap()]).success();
    let drawn = std::fs::read_to_string(file.path()).unwrap();
    for device in devices {
        assert!(printed.contains(text(device, "/name")) && drawn.contains(text(device, "/name")), "{device}");
    }
    let line = ended(&["-T", "--svg", "/nonexistent/x.svg"]).failure();
    assert!(line.contains("--svg /nonexistent/x.svg"), "{line}");
    assert_eq!(ended(&["-v", "--svg", "x.svg"]).code, Some(2));
}

#[test]
fn every_device_has_its_origin_its_operations_and_its_figures() {
    let document = json(&["-d", "--json"]);
    let resources = list(&document, "/devices/resources");
    assert!(!resources.is_empty());
    for resource in resources {
        assert!(!text(resource, "/origin").is_empty());
        if resource["state"] != "open" {
            assert!(!text(resource, "/reason").is_empty());
            continue;
        }
        let operations = list(resource, "/attributes/operations");
        assert!(!operations.is_empty());
        for operation in operations {
            assert!(["NATIVE", "EMULATED"].contains(&text(operation, "/mode")), "{operation}");
            assert!(operation["min"].as_u64().unwrap() <= operation["max"].as_u64().unwrap());
        }
        for figure in ["overhead", "latency", "bandwidth_dedicated", "bandwidth_shared"] {
            assert!(!text(resource, &format!("/attributes/cost/{figure}/origin")).is_empty());
        }
    }
    for domain in list(&document, "/devices/memory_domains") {
        assert!(!text(domain, "/name").is_empty() && domain["packed_key_bytes"].is_u64());
    }
}

#[test]
fn the_text_of_the_devices_says_what_the_json_says() {
    let printed = ended(&["-d"]).success();
    for resource in list(&json(&["-d", "--json"]), "/devices/resources") {
        assert!(printed.contains(&format!("Transport: {}\n", text(resource, "/transport"))));
        assert!(printed.contains(&format!("Device: {}\n", text(resource, "/device"))));
        assert!(printed.contains(&format!("Origin: {}\n", text(resource, "/origin"))));
    }
    for line in ["bandwidth: ", "latency: ", "overhead: ", "am_short: ", "error handling: "] {
        assert!(printed.contains(line), "{line}");
    }
    assert!(printed.lines().all(|line| line.starts_with('#')), "UCX's output is all comments");
}

#[test]
fn a_limit_of_file_sizes_leaves_shared_memory_out_and_ends_no_program() {
    for limit in ["0", "1", "100"] {
        for kind in ["memfd", "dir"] {
            let script = format!("ulimit -f {limit}; exec {} -d", support::PROGRAM);
            let mut command = support::process::command("bash", &["-c", &script]);
            command.current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
            let printed = run(command.env("UCT_POSIX_SEGMENTS", kind)).success();
            assert!(printed.contains("Transport: tcp\n"), "{limit}, {kind}: {printed}");
            assert!(!printed.contains("Transport: posix\n"), "{limit}, {kind}: {printed}");
            assert!(printed.contains("ulimit -f unlimited"), "{limit}, {kind}: {printed}");
        }
    }
}

#[test]
fn a_plugin_file_that_a_built_in_one_makes_superfluous_is_left_out_and_not_missing() {
    let document = json(&["-d", "--json"]);
    let printed = ended(&["-d"]).success();
    for absent in list(&document, "/devices/absent") {
        let heading = if text(absent, "/stage") == "left_out" { "Left out" } else { "Not here" };
        assert!(printed.contains(&format!("# {heading}: {}\n", text(absent, "/name"))), "{printed}");
    }
}

#[test]
fn one_transport_can_be_asked_for_alone() {
    for transport in transports(None) {
        let document = json(&["-d", "--json", "-t", &transport]);
        let resources = list(&document, "/devices/resources");
        assert!(!resources.is_empty());
        assert!(resources.iter().all(|resource| resource["transport"] == transport.as_str()));
    }
    let line = ended(&["-d", "-t", "slef"]).failure();
    assert!(line.contains("no transport \"slef\"") && line.contains("did you mean \"self\""), "{line}");
}

#[test]
fn the_matrix_agrees_with_the_devices() {
    let document = json(&["-d", "--matrix", "--json"]);
    let columns = list(&document, "/matrix/columns");
    let rows = list(&document, "/matrix/rows");
    assert!(rows.len() > 30);
    for (index, column) in columns.iter().enumerate() {
        let transport = column.as_str().unwrap().split('/').next().unwrap();
        let resource = list(&document, "/devices/resources")
            .iter()
            .find(|resource| resource["transport"] == transport && resource["state"] == "open")
            .unwrap();
        for row in rows.iter().take(9) {
            let operations = list(resource, "/attributes/operations");
            let operation = operations.iter().find(|own| own["name"] == row["operation"]);
            assert_eq!(
                list(row, "/modes")[index],
                operation.map_or(serde_json::Value::Null, |own| own["mode"].clone())
            );
        }
    }
    let printed = ended(&["--matrix"]).success();
    assert_eq!(printed.lines().count(), rows.len() + 2, "{printed}");
    for name in ["am_short", "get_zcopy", "atomic64 fetch cswap", "pending"] {
        assert!(printed.contains(name), "{printed}");
    }
}

#[test]
fn a_value_knows_whether_a_file_a_variable_or_the_command_line_set_it() {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), "# first line\nlog_level = \"error\"\ntls = \"all\"\n").unwrap();
    let path = file.path().display().to_string();
    let arguments = ["-c", "--json", "--config", &path, "--set", "async_mode=thread_mutex"];
    let document = parse(&run(info(&arguments).env("UCT_TLS", "self")).success());
    let value = |key: &str| {
        let all = list(&document, "/config");
        all.iter().find(|value| value["key"] == key).unwrap_or_else(|| panic!("no {key}")).clone()
    };
    let parts = |key: &str| {
        let value = value(key);
        (value["value"].clone(), value["origin"].clone(), value["place"].clone())
    };
    let place = format!("{path}:2");
    assert_eq!(parts("log_level"), ("error".into(), "file".into(), place.into()));
    assert_eq!(parts("tls"), ("self".into(), "environment".into(), "UCT_TLS".into()));
    assert_eq!(parts("async_mode"), ("thread_mutex".into(), "program".into(), serde_json::Value::Null));
    assert_eq!(parts("require").1, "default");

    let printed = run(info(&["-c", "--config", &path]).env("UCT_TLS", "self")).success();
    assert!(printed.contains("UCT_TLS=self  # environment UCT_TLS\n"), "{printed}");
    assert!(printed.contains(&format!("UCT_LOG_LEVEL=error  # {path}:2\n")), "{printed}");
}

#[test]
fn with_docs_each_key_says_what_it_is_for() {
    let plain = ended(&["-c"]).success();
    let docs = ended(&["-f"]).success();
    assert!(docs.len() > 3 * plain.len());
    assert!(docs.contains("# Kind: "));
    for value in list(&json(&["-f", "--json"]), "/config") {
        assert!(!text(value, "/docs/doc").is_empty() && !text(value, "/docs/kind").is_empty(), "{value}");
    }
}

#[test]
fn a_wrong_configuration_is_one_line_that_says_where() {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), "\nfalback = \"warn\"\n").unwrap();
    let path = file.path().display().to_string();
    let line = ended(&["-c", "--config", &path]).failure();
    assert!(line.contains(&format!("{path}:2")) && line.contains("fallback"), "{line}");

    let line = run(info(&["-c"]).env("UCT_FALLBACK", "maybe")).failure();
    assert!(line.contains("UCT_FALLBACK") && line.contains("warn"), "{line}");
    let line = ended(&["-c", "--set", "tsl=tcp"]).failure();
    assert!(line.contains("tsl") && line.contains("tls"), "{line}");
    let line = ended(&["-c", "--config", "/nonexistent/uct.toml"]).failure();
    assert!(line.contains("/nonexistent/uct.toml"), "{line}");
    let line = run(info(&["-c"]).env("UCT_LOG_LEVEL", "tcp=loud")).failure();
    assert!(line.contains("UCT_LOG_LEVEL"), "{line}");
    let line = run(info(&["-c"]).env("UCT_LOG_LEVEL", "verbose")).failure();
    assert!(
        line.contains("UCT_LOG_LEVEL") && line.contains("\"verbose\"") && line.contains("debug"),
        "{line}"
    );
}

#[test]
fn the_level_of_the_log_is_set_by_variable_command_line_and_file() {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), "log_level = \"debug\"\n").unwrap();
    let path = file.path().display().to_string();
    let quiet = ended(&["-v"]);
    assert_eq!((quiet.code, quiet.stderr.contains("DEBUG")), (Some(0), false), "{}", quiet.stderr);
    let by_file = ended(&["-v", "--config", &path]);
    let by_program = ended(&["-v", "--set", "log_level=debug"]);
    let by_variable = run(info(&["-v"]).env("UCT_LOG_LEVEL", "debug"));
    for told in [by_file, by_program, by_variable] {
        assert!(told.stderr.contains("DEBUG uct_host"), "{}", told.stderr);
        assert!(!told.stderr.contains('\u{1b}'), "colours where no terminal is: {}", told.stderr);
    }
}

#[test]
fn a_name_that_nothing_has_is_one_warning_with_the_nearest() {
    for (variable, value, words) in [
        ("UCT_TLS", "self,tpc", ["no transport \"tpc\"", "did you mean \"tcp\""]),
        ("UCT_MODULES", "^sefl", ["no plugin \"sefl\"", "did you mean \"self\""]),
        ("UCT_SELF_DEVICES", "memroy", ["no device of kind self \"memroy\"", "did you mean \"memory\""]),
    ] {
        let ended = run(info(&["-d"]).env(variable, value));
        let warnings: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("WARN")).collect();
        let [warning] = warnings[..] else { panic!("{variable}: {}", ended.stderr) };
        assert!(warning.contains(variable) && words.iter().all(|word| warning.contains(word)), "{warning}");
    }
    let patterns = run(info(&["-d"]).env("UCT_TLS", "se*,tcp").env("UCT_SELF_DEVICES", "all"));
    assert!(!patterns.stderr.contains("WARN"), "{}", patterns.stderr);
}

#[test]
fn system_facts_are_those_of_the_system() {
    let document = json(&["-s", "--json"]);
    let pid = std::fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    let shown = list(&document, "/system/namespaces").iter().find(|kind| kind[0] == "pid").unwrap();
    assert_eq!(format!("pid:[{}]", shown[1]), pid);
    assert_eq!(document["system"]["memory"]["page_size"], rustix::param::page_size());
    if let Ok(boot) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        assert_eq!(text(&document, "/system/host/boot_id"), boot.trim().replace('-', ""));
    }
    let devices = list(&document, "/system/network_devices");
    assert!(devices.iter().all(|device| device["megabits_per_second"].as_u64().unwrap() > 0));
    let printed = ended(&["-s"]).success();
    assert!(
        devices.iter().all(|device| printed.contains(&format!("Network device {}:", text(device, "/name"))))
    );
}

#[test]
fn an_address_is_what_a_peer_takes() {
    let address = ended(&["--address"]).success();
    let ended = ended(&["--explain", "--json", "--peer-address", address.trim()]);
    // Whether anybody reaches a process that has ended is the transports' business; the address is understood.
    let candidates = parse(&ended.stdout);
    assert!(!list(&candidates, "/explain/candidates").is_empty());
    assert!(!ended.stderr.contains("--peer-address"), "{}", ended.stderr);
}

#[test]
fn a_wrong_peer_address_is_one_line() {
    for (given, words) in [
        ("zz", "hexadecimal"),
        ("012", "even number"),
        ("00112233445566", "magic"),
        ("5543544163", "cut"),
        ("@/nonexistent", "/nonexistent"),
    ] {
        let line = ended(&["--explain", "--peer-address", given]).failure();
        assert!(line.contains("--peer-address") && line.contains(words), "{line}");
    }
}

#[test]
fn a_wrong_command_line_is_told_with_the_usage() {
    for arguments in [&[][..], &["--size", "8"], &["--explain", "--op", "put"], &["-t", "tcp"], &["--json"]] {
        let ended = ended(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(!ended.stderr.is_empty());
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let script = format!("{} -d -f -s | head -n 1; exit ${{PIPESTATUS[0]}}", support::PROGRAM);
    let ended = run(&mut support::process::command("bash", &["-c", &script]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"));
}

#[test]
fn manual_page_and_completions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    ended(&["--generate-man", &path]).success();
    ended(&["--generate-completions", &path]).success();
    let page = std::fs::read_to_string(dir.path().join("uct_info.1")).unwrap();
    assert!(page.contains("peer\\-address"));
    assert!(dir.path().join("uct_info.bash").exists());
}
