//! `uct_info --attach`, where the process that is seen is the test itself.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::copy::copy_program;
use crate::support::process::{command, run};
use crate::support::{self, PROGRAM, ended, json, list, skip, text};
use serde_json::Value;
use uct_core::configuration::Sources;
use uct_core::{Access, AmId, Completion, Context, Ep, Error, MemoryKind, Pending, SendFlags, Worker};

const ID: AmId = AmId::new(3).expect("an id");
const NOBODY: u32 = 65_534;

/// A thread with a worker; it ends when this is dropped.
struct Thread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts one that calls `work` with its worker, and returns once `work` has reported that it is ready.
    fn start(name: &str, work: impl FnOnce(&Worker, &Sender<()>, &Receiver<()>) + Send + 'static) -> Thread {
        let ((stop, stopped), (ready, is_ready)) = (channel(), channel());
        let run = move || {
            let sources = Sources::default()
                .set("attach", "yes")
                .set("latency_histograms", "yes")
                .set("modules", "self,tcp");
            let context = Context::builder().sources(sources).build().expect("a context");
            work(&Worker::new(&context).expect("a worker"), &ready, &stopped);
        };
        let thread = Builder::new().name(name.to_owned()).spawn(run).expect("a thread");
        is_ready.recv_timeout(Duration::from_secs(60)).expect("it gets ready");
        Thread { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn own_id() -> String {
    std::process::id().to_string()
}

/// The worker of a thread.
fn worker<'a>(output: &'a Value, name: &str) -> Option<&'a Value> {
    list(output, "/attach/workers").iter().find(|worker| text(worker, "/thread_name") == name)
}

#[test]
fn the_counts_of_a_worker_are_those_of_its_operations() {
    let thread = Thread::start("sends", |worker, ready, stopped| {
        let iface = worker.open("self", "memory").expect("an interface");
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let address = iface.address().expect("an address");
        let ep = iface.connect(&address).expect("an endpoint");
        let closed = iface.connect(&address).expect("an endpoint");
        (0..5).for_each(|_| ep.am_short(ID, 0, b"12345678").expect("it is sent"));
        (0..2).for_each(|_| closed.am_short(ID, 0, b"").expect("it is sent"));
        drop(closed);
        assert_eq!(received.get(), 7);
        ready.send(()).expect("the test waits");
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            worker.wait(Duration::from_millis(50)).expect("it sleeps");
            worker.progress();
        }
    });
    let output = json(&["--attach", &own_id(), "--json"]);
    assert_eq!(output["attach"]["pid"], std::process::id());
    let seen = worker(&output, "sends").expect("the worker is seen");
    let iface = seen.pointer("/report/interfaces/0").expect("its interface");
    assert_eq!((text(iface, "/transport"), text(iface, "/device")), ("self", "memory"));
    let number = |field: &str| iface[field].as_u64().unwrap_or_else(|| panic!("{field} in {iface:#}"));
    assert_eq!((number("endpoints"), number("closed"), number("failed")), (1, 1, 0));
    assert_eq!((number("received"), number("received_bytes")), (7, 5 * 16 + 2 * 8));
    let short = list(iface, "/sent").iter().find(|sent| text(sent, "/kind") == "am_short").expect("a kind");
    assert_eq!((&short["operations"], &short["bytes"]), (&7.into(), &(5 * 16 + 2 * 8).into()));
    let printed = ended(&["--attach", &own_id()]).success();
    for expected in ["(sends): made progress after", "self/memory", "1 open, 1 closed, 0 failed", "96 bytes"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    drop(thread);
    // Other tests of this program may keep the socket.
    let after = ended(&["--attach", &own_id(), "--json"]);
    assert!(after.code != Some(0) || worker(&support::parse(&after.stdout), "sends").is_none(), "{after:?}");
}

#[test]
fn the_times_from_post_to_completion_are_shown_by_kind() {
    let thread = Thread::start("puts", |worker, ready, stopped| {
        let iface = worker.open("tcp", "lo").expect("an interface");
        let ep = iface.connect(&iface.address().expect("an address")).expect("an endpoint");
        let domain = iface.memory_domain();
        let memory = domain.allocate(16, Access::ALL, MemoryKind::Host).expect("memory");
        let key = domain.unpack(&memory.packed_key().expect("a key")).expect("a key");
        let completion = Completion::new(worker);
        for _ in 0..3 {
            ep.put_zcopy(&[memory.slice(..8)], memory.address() + 8, &key, &completion)
                .expect("it is posted");
            completion.wait(Duration::from_secs(60)).expect("it completes");
        }
        ready.send(()).expect("the test waits");
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            worker.wait(Duration::from_millis(50)).expect("it sleeps");
            worker.progress();
        }
    });
    let output = json(&["--attach", &own_id(), "--json"]);
    let seen = worker(&output, "puts").expect("the worker is seen");
    let [put] = list(seen, "/report/interfaces/0/latencies") else { panic!("one kind: {seen:#}") };
    assert_eq!((text(put, "/kind"), put["operations"].as_u64()), ("put", Some(3)));
    assert!(put["p50_ns"].as_u64() > Some(0) && put["max_ns"].as_u64() >= put["p50_ns"].as_u64(), "{put:#}");
    let printed = ended(&["--attach", &own_id()]).success();
    assert!(printed.contains("3 completed: mean "), "{printed}");
    drop(thread);
}

#[test]
fn pending_requests_are_counted_until_they_are_done_or_dropped() {
    let thread = Thread::start("queues", |worker, ready, stopped| {
        let iface = worker.open("tcp", "lo").expect("an interface");
        let connect = || iface.connect(&iface.address().expect("an address")).expect("an endpoint");
        let (served, mut dropped) = (connect(), Some(connect()));
        let is_open = Rc::new(Cell::new(false));
        let request = |is_open: &Rc<Cell<bool>>| {
            let is_open = Rc::clone(is_open);
            move |_: &Ep| if is_open.get() { Pending::Done } else { Pending::Wait }
        };
        // Without progress nobody receives, so there is no room at last.
        iface.set_am_handler(ID, |_| {});
        for ep in [&served, dropped.as_ref().expect("it is open")] {
            let full = (0..100_000).find_map(|_| ep.am_bcopy(ID, SendFlags::default(), |_| 4096).err());
            assert_eq!(full, Some(Error::NO_RESOURCE));
        }
        let never = Rc::default();
        for (ep, is_open) in
            [(Some(&served), &is_open), (Some(&served), &is_open), (dropped.as_ref(), &never)]
        {
            let queued = ep.expect("it is open").pending_add(request(is_open));
            queued.map_err(|(error, _)| error).expect("it is queued");
        }
        ready.send(()).expect("the test waits");
        loop {
            match stopped.try_recv() {
                Ok(()) => {
                    is_open.set(true);
                    drop(dropped.take());
                }
                Err(TryRecvError::Empty) => drop(worker.progress()),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    });
    let counts = || {
        let output = json(&["--attach", &own_id(), "--json"]);
        let worker = worker(&output, "queues").expect("the worker is seen");
        let count = |field: &str| worker["report"]["interfaces"][0][field].as_u64();
        (count("pending_requests"), count("endpoints"), count("closed"))
    };
    assert_eq!(counts(), (Some(3), Some(2), Some(0)));
    thread.stop.as_ref().expect("it runs").send(()).expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while counts() != (Some(0), Some(1), Some(1)) {
        assert!(Instant::now() < deadline, "{:?}", counts());
    }
}

#[test]
fn a_worker_that_makes_no_progress_is_shown_as_that() {
    let _thread = Thread::start("stuck", |_, ready, stopped| {
        ready.send(()).expect("the test waits");
        let _ = stopped.recv_timeout(Duration::from_secs(60));
    });
    let output = json(&["--attach", &own_id(), "--json"]);
    let seen = worker(&output, "stuck").expect("the worker is seen");
    assert!(seen["report"].is_null(), "{seen:#}");
    let printed = ended(&["--attach", &own_id()]).success();
    assert!(printed.contains("(stuck): makes no progress"), "{printed}");
}

#[test]
fn what_cannot_be_attached_to_is_one_line_with_the_remedy() {
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    let line = ended(&["--attach", &other.id().to_string()]).failure();
    other.kill().expect("it runs");
    other.wait().expect("it has ended");
    assert!(line.contains("UCT_ATTACH=yes") && line.contains(".sock"), "{line}");
    let line = ended(&["--attach", &other.id().to_string()]).failure();
    assert!(line.contains("no process") && line.contains(&other.id().to_string()), "{line}");
    let both = ended(&["--attach", "1", "-d"]);
    assert!(both.code == Some(2) && both.stderr.contains("cannot be used with"), "{both:?}");
}

#[test]
fn another_user_learns_whose_the_process_is() {
    if !skip::is_root("start a program as another user") {
        return;
    }
    let _thread = Thread::start("refuses", |_, ready, stopped| {
        ready.send(()).expect("the test waits");
        let _ = stopped.recv_timeout(Duration::from_secs(60));
    });
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("uct_info");
    copy_program(PROGRAM, &program);
    for path in [directory.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    let mut info = command(&program, &["--attach", &own_id()]);
    info.uid(NOBODY).gid(NOBODY).current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    let line = run(&mut info).failure();
    assert!(line.contains("belongs to user 0") && line.contains("this is user 65534"), "{line}");
}
