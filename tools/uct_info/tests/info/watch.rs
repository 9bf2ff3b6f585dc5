//! `uct_info --attach` and `--watch` beside a program that uses `uct-net`: this one, started again in a process of its own.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::process::{command, run, start};
use crate::support::{PROGRAM, copy::copy_program, ended, info, json, list, parse, skip, text};
use serde_json::Value;
use uct_core::Context;
use uct_core::configuration::Sources;
use uct_net::{Net, NetOptions};

const ROLE: &str = "INFO_TEST_ROLE";
const LIMIT: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;

/// A program with two nets, of which one reads and writes memory of the other all the time.
struct Busy(Child);

impl Busy {
    /// Starts it, as the test of that name.
    fn start(test: &str) -> Busy {
        let mut program = Command::new(std::env::current_exe().expect("this program has a path"));
        program.args([&format!("watch::{test}"), "--exact", "--nocapture"]);
        program.env(ROLE, "busy").env("UCT_ATTACH", "yes").stdout(Stdio::piped());
        let mut child = program.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let ready = output.lines().map_while(Result::ok).any(|line| line.ends_with("ready"));
        let busy = Busy(child);
        assert!(ready, "it has ended");
        busy
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this is the program that is seen, which has done its part then.
fn is_busy() -> bool {
    if std::env::var_os(ROLE).is_none() {
        return false;
    }
    let sources = Sources::default().set("attach", "yes").set("modules", "tcp").set("net_devices", "lo");
    let context = Context::builder().sources(sources).build().expect("a context");
    let net = || Net::new(&context, NetOptions::default()).expect("a net");
    let (left, right) = (net(), net());
    let mut listener = left.block_on(left.listen("127.0.0.1:0")).expect("it listens");
    let address = listener.address().to_owned();
    let accepting = std::thread::spawn({
        let left = left.clone();
        move || left.block_on(async { listener.accept().await?.accept().await }).expect("a connection")
    });
    let there = right.block_on(right.connect(address).into_future()).expect("a connection");
    let here = accepting.join().expect("the server's thread");
    let memory = here.allocate(1 << 16).expect("memory");
    left.block_on(here.share(&memory)).expect("it is shared");
    let worked = right.block_on(right.within(LIMIT, async {
        let (remote, local) = (there.shared().await?, there.allocate(1 << 16)?);
        println!("ready");
        loop {
            there.get(local.slice(..2000), &remote, 0).await?;
            there.put(local.slice(..1000), &remote, 0).await?;
        }
    }));
    let end: Option<uct_net::Result> = worked;
    assert!(end.is_none(), "{end:?}");
    true
}

/// Of the side that reads and writes, or of the other.
fn side(connections: &[Value], reads: bool) -> &Value {
    let gets = |connection: &Value| {
        let gets =
            list(connection, "/sent").iter().find(|sent| text(sent, "/kind") == "get").expect("a kind");
        gets["operations"].as_u64() > Some(0)
    };
    connections.iter().find(|connection| gets(connection) == reads).expect("a side")
}

#[test]
fn connections_of_another_process_are_shown_and_the_process_is_listed() {
    if is_busy() {
        return;
    }
    let busy = Busy::start("connections_of_another_process_are_shown_and_the_process_is_listed");
    let output = json(&["--attach", &busy.id(), "--json"]);
    let workers = list(&output, "/attach/workers");
    let connections: Vec<Value> =
        workers.iter().flat_map(|worker| list(worker, "/report/connections").to_vec()).collect();
    assert_eq!(connections.len(), 2, "{output:#}");
    let (reader, server) = (side(&connections, true), side(&connections, false));
    for connection in [reader, server] {
        assert_eq!((text(connection, "/transport"), text(connection, "/device")), ("tcp", "lo"));
        assert_eq!(text(connection, "/state"), "open");
        assert_eq!(list(connection, "/transfers"), &[] as &[Value]);
    }
    assert!(text(reader, "/peer").starts_with("127.0.0.1:"), "{reader:#}");
    assert!(reader["in_flight"].as_u64() <= Some(1) && server["in_flight"] == 0, "{reader:#} {server:#}");
    let interfaces: Vec<Value> =
        workers.iter().flat_map(|worker| list(worker, "/report/interfaces").to_vec()).collect();
    let served = |kind: &str| -> u64 {
        let of_kind = |iface: &Value| {
            let served = list(iface, "/served").iter().find(|served| text(served, "/kind") == kind);
            served.expect("a kind")["bytes"].as_u64().expect("a number")
        };
        interfaces.iter().map(of_kind).sum()
    };
    assert!(served("get") >= 2000 && served("put") >= 1000 && served("atomic") == 0, "{output:#}");
    let printed = ended(&["--attach", &busy.id()]).success();
    for expected in [" over tcp/lo: open", "operations of peers on memory of this process:", "in flight: "] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }

    let listed = json(&["--attach", "--json"]);
    let own = list(&listed, "/attachable").iter().find(|it| it["pid"] == busy.0.id()).expect("it is listed");
    assert_eq!(own["user"], rustix::process::geteuid().as_raw());
    let since = own["since"].as_u64().expect("a time");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    assert!((now - 120..=now).contains(&since), "{own:#}");
    let printed = ended(&["--attach"]).success();
    let line = printed.lines().find(|line| line.trim_start().starts_with(&busy.id())).expect("its line");
    assert!(line.contains(text(own, "/program")), "{printed}");
    let id = busy.0.id();
    drop(busy);
    let listed = json(&["--attach", "--json"]);
    assert!(list(&listed, "/attachable").iter().all(|it| it["pid"] != id), "it is dead: {listed:#}");
}

#[test]
fn a_watched_process_is_shown_in_rates_until_it_ends() {
    if is_busy() {
        return;
    }
    let mut busy = Busy::start("a_watched_process_is_shown_in_rates_until_it_ends");
    let lines = ended(&["--attach", &busy.id(), "--watch", "0.2", "--count", "2", "--json"]).success();
    let lines: Vec<Value> = lines.lines().map(parse).collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        let seconds = line["rates"]["seconds"].as_f64().expect("a number");
        assert!(seconds >= 0.2, "{line:#}");
        let sum = |places: &str, what: &str| -> f64 {
            let of = |value: &Value| value.pointer(what).and_then(Value::as_f64).expect("a rate");
            list(line, places).iter().map(of).sum()
        };
        // Each round reads 2000 bytes and writes 1000.
        for places in ["/rates/connections", "/rates/interfaces"] {
            let (get, gets) = (sum(places, "/get/bytes"), sum(places, "/get/operations"));
            assert!(gets > 0.0 && (get / gets - 2000.0).abs() < 1e-6, "{line:#}");
            let (put, puts) = (sum(places, "/put/bytes"), sum(places, "/put/operations"));
            assert!(puts > 0.0 && (put / puts - 1000.0).abs() < 1e-6, "{line:#}");
        }
        let read = sum("/rates/interfaces", "/served/read/bytes");
        let reads = sum("/rates/interfaces", "/served/read/operations");
        assert!(reads > 0.0 && (read / reads - 2000.0).abs() < 1e-6, "{line:#}");
    }
    let printed = ended(&["--attach", &busy.id(), "--watch", "0.1", "--count", "1"]).success();
    assert!(
        printed.contains("peers read") && printed.contains("B/s") && printed.contains("open: "),
        "{printed}"
    );

    let watching = start(&mut info(&["--attach", &busy.id(), "--watch", "0.1"]));
    std::thread::sleep(Duration::from_millis(500));
    busy.0.kill().expect("it runs");
    busy.0.wait().expect("it has ended");
    assert!(watching.id() > 0);
    let line = watching.end().failure();
    assert!(line.contains(&busy.id()) && line.contains("has ended"), "{line}");
}

#[test]
fn another_user_lists_nothing_of_this_one() {
    if is_busy() {
        return;
    }
    if !skip::is_root("start a program as another user") {
        return;
    }
    let busy = Busy::start("another_user_lists_nothing_of_this_one");
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("uct_info");
    copy_program(PROGRAM, &program);
    for path in [directory.path(), &program] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("its mode");
    }
    let mut other = command(&program, &["--attach", "--json"]);
    other.uid(NOBODY).gid(NOBODY).current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    let listed = parse(&run(&mut other).success());
    assert_eq!(list(&listed, "/attachable"), &[] as &[Value], "of {}", busy.id());
    let mut other = command(&program, &["--attach", &busy.id(), "--watch", "1"]);
    other.uid(NOBODY).gid(NOBODY).current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    let line = run(&mut other).failure();
    assert!(line.contains("belongs to user 0"), "{line}");
}

#[test]
fn a_watch_without_a_process_or_with_no_time_is_refused() {
    for (arguments, expected) in [
        (&["--attach", "--watch", "1"][..], "--attach PID"),
        (&["-d", "--watch", "1"], "--attach"),
        (&["--attach", "1", "--watch", "0"], "0.01"),
        (&["--attach", "1", "--count", "1"], "--watch"),
        (&["--attach", "1", "--watch", "1", "--count", "0"], "0"),
    ] {
        let refused = ended(arguments);
        assert!(refused.code == Some(2) && refused.stderr.contains(expected), "{arguments:?}: {refused:?}");
    }
}
