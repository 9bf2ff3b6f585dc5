//! A server in a directory of its own, and clients.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use tempfile::TempDir;

use super::reply::WorkerReport;
use super::server::Server;
use super::{AttachError, Snapshot, client, list, place};
use crate::skip;

const NOBODY: u32 = 65_534;

/// A directory as the one that processes of this user share, and its path.
fn directory() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("uct");
    place::make(&path).expect("it is made");
    (root, path)
}

fn read(directory: &PathBuf) -> Result<Snapshot, AttachError> {
    client::read_in(std::slice::from_ref(directory), std::process::id())
}

fn report(callbacks: usize) -> WorkerReport {
    WorkerReport {
        delay_ns: 1,
        callbacks,
        async_handlers: 0,
        closing: 0,
        interfaces: Vec::new(),
        connections: Vec::new(),
    }
}

/// Another process of this user, for its number.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn workers_are_seen_from_their_registration_to_their_end() {
    let (_root, path) = directory();
    let server = Server::start(&path).expect("it starts");
    assert_eq!(read(&path).expect("a reply").workers, []);
    let one = server.workers().register(|reply| reply.send(report(1)).is_ok()).expect("it is registered");
    let _two = server.workers().register(|reply| reply.send(report(2)).is_ok()).expect("it is registered");
    let seen = |path| -> Vec<(u64, Option<usize>)> {
        let snapshot = read(path).expect("a reply");
        assert_eq!(snapshot.pid, std::process::id());
        let of = |worker: &super::WorkerState| (worker.number, worker.report.as_ref().map(|it| it.callbacks));
        snapshot.workers.iter().map(of).collect()
    };
    assert_eq!(seen(&path), [(1, Some(1)), (2, Some(2))]);
    drop(one);
    assert_eq!(seen(&path), [(2, Some(2))]);
    let _gone = server.workers().register(|_| false).expect("it is registered");
    assert_eq!(seen(&path), [(2, Some(2))], "one that is gone while it is asked is left out");
    drop(server);
    assert_eq!(fs::read_dir(&path).expect("it is there").count(), 0, "the socket is removed");
    assert!(matches!(read(&path), Err(AttachError::NotEnabled { .. })));
}

#[test]
fn a_worker_without_progress_is_reported_and_asked_only_once() {
    let (_root, path) = directory();
    let server = Server::start(&path).expect("it starts");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&asked);
    let ask = move |reply| {
        list.lock().expect("no panic").push(reply);
        true
    };
    let _worker = server.workers().register(ask).expect("it is registered");
    for _ in 0..2 {
        let workers = read(&path).expect("a reply").workers;
        assert!(matches!(&workers[..], [worker] if worker.report.is_none()), "{workers:?}");
    }
    let replies = std::mem::take(&mut *asked.lock().expect("no panic"));
    assert_eq!(replies.len(), 1, "requests pile up");
    // It makes progress at last; the next client gets a report of its own time, and no old one.
    replies[0].send(report(7)).expect("the server is there");
    let workers = read(&path).expect("a reply").workers;
    assert!(workers[0].report.is_none() && asked.lock().expect("no panic").len() == 1, "{workers:?}");
}

#[test]
fn the_thread_of_a_server_ends_with_it() {
    let (_root, path) = directory();
    (0..50).for_each(|_| drop(Server::start(&path).expect("it starts")));
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").expect("the threads").flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim_end() == super::server::THREAD).count()
    };
    let since = Instant::now();
    // Other tests of this process have servers too.
    while threads() > 10 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} threads are left", threads());
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn another_user_gets_nothing() {
    if !skip::is_root("act as another user") {
        return;
    }
    let (root, path) = directory();
    let _server = Server::start(&path).expect("it starts");
    let as_nobody = |path: PathBuf| {
        let attempt = move || {
            // Of this thread alone.
            set_thread_uid(Uid::from_raw(NOBODY)).expect("root may");
            place::call(&place::socket(&path, std::process::id()))
        };
        std::thread::spawn(attempt).join().expect("no panic")
    };
    fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("its mode");
    assert_eq!(
        as_nobody(path.clone()).err(),
        Some(rustix::io::Errno::ACCESS),
        "the directory lets others in"
    );
    // Even if the directory did, the process refuses.
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its mode");
    let socket = place::socket(&path, std::process::id());
    fs::set_permissions(socket, Permissions::from_mode(0o777)).expect("its mode");
    let client = as_nobody(path.clone()).expect("the socket is open to all now");
    let reply = client::read_all(&mut client.into(), &path, 1).expect("a reply");
    let reply = String::from_utf8(reply).expect("text");
    assert!(
        reply.contains("refused") && reply.contains("of user 65534") && !reply.contains("workers"),
        "{reply}"
    );
    // This side does not use such a directory either.
    let error = read(&path).expect_err("others may enter").to_string();
    assert!(error.contains("mode is 755") && error.contains("chmod 700"), "{error}");
}

#[test]
fn a_directory_that_another_user_may_have_made_is_not_used() {
    let (root, path) = directory();
    let refused = |path: &PathBuf| place::make(path).expect_err("not trusted").to_string();
    fs::set_permissions(&path, Permissions::from_mode(0o770)).expect("its mode");
    assert!(refused(&path).contains("mode is 770"), "{}", refused(&path));
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("its mode");
    let link = root.path().join("link");
    symlink(&path, &link).expect("a link");
    assert!(refused(&link).contains("no directory"), "{}", refused(&link));
    fs::set_permissions(root.path(), Permissions::from_mode(0o777)).expect("its mode");
    assert!(refused(&path).contains("every user may write"), "{}", refused(&path));
    fs::set_permissions(root.path(), Permissions::from_mode(0o700)).expect("its mode");
    if skip::is_root("give a directory to another user") {
        chown(&path, Some(NOBODY), None).expect("its owner");
        assert!(refused(&path).contains("belongs to user 65534"), "{}", refused(&path));
    }
}

#[test]
fn the_socket_of_a_dead_process_is_named_and_swept() {
    let (_root, path) = directory();
    let other = Sleeper::start();
    let left = place::socket(&path, other.0.id());
    drop(UnixListener::bind(&left).expect("a socket"));
    let read = |pid| client::read_in(std::slice::from_ref(&path), pid).expect_err("nobody listens");
    assert!(matches!(read(other.0.id()), AttachError::Stale { .. }), "{}", read(other.0.id()));
    // One that lives has this name, but the number is another process's.
    let _listener = {
        fs::remove_file(&left).expect("it is there");
        UnixListener::bind(&left).expect("a socket")
    };
    let error = read(other.0.id());
    assert!(
        matches!(&error, AttachError::Foreign { holder, .. } if holder.pid == std::process::id()),
        "{error}"
    );
    let own = place::socket(&path, 1);
    drop(UnixListener::bind(&own).expect("a socket"));
    let _server = Server::start(&path).expect("it starts");
    assert!(!own.exists() && left.exists(), "dead ones are removed, and no others");
}

#[test]
fn a_process_that_does_not_exist_or_offers_nothing_is_an_error_with_a_remedy() {
    for none in [0, u32::MAX, i32::MAX as u32] {
        let error = client::read(none).expect_err("there is none").to_string();
        assert!(error.contains("no process") && error.contains(&none.to_string()), "{error}");
    }
    let other = Sleeper::start();
    let error = client::read(other.0.id()).expect_err("it offers nothing").to_string();
    assert!(error.contains("UCT_ATTACH=yes") && error.contains(&format!("{}.sock", other.0.id())), "{error}");
    if !rustix::process::geteuid().is_root() {
        let error = client::read(1).expect_err("it is root's").to_string();
        assert!(error.contains("belongs to user 0"), "{error}");
    }
}

#[test]
fn a_later_server_of_the_process_keeps_its_socket_when_the_earlier_one_ends() {
    let (_root, path) = directory();
    let first = Server::start(&path).expect("it starts");
    let second = Server::start(&path).expect("it starts");
    let _worker = second.workers().register(|reply| reply.send(report(3)).is_ok());
    drop(first);
    assert_eq!(read(&path).expect("a reply").workers.len(), 1);
}

#[test]
fn the_processes_that_can_be_attached_to_are_listed_and_no_others() {
    let (_root, path) = directory();
    let listed = || list::list_in(std::slice::from_ref(&path)).expect("it is this user's");
    assert_eq!(listed(), []);
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let _server = Server::start(&path).expect("it starts");
    // Left by a dead process of this number; of another process than it is named after; no socket; not named after a process.
    let other = Sleeper::start();
    drop(UnixListener::bind(place::socket(&path, other.0.id())).expect("a socket"));
    let _foreign = UnixListener::bind(place::socket(&path, 1)).expect("a socket");
    fs::write(path.join("7.sock"), "").expect("a file");
    let _unnamed = UnixListener::bind(path.join("name.sock")).expect("a socket");
    let found = listed();
    let [own] = &found[..] else { panic!("{found:?}") };
    let program = fs::read_to_string("/proc/self/comm").expect("a name");
    assert_eq!((own.pid, &*own.program), (std::process::id(), program.trim_end()));
    assert_eq!(own.user, rustix::process::geteuid().as_raw());
    assert!(own.since + 1 >= before, "since {} and not {before}", own.since);
    // In two directories it is one process; a directory that is not there has none.
    let twice = [path.clone(), path.join("none"), path.clone()];
    assert_eq!(list::list_in(&twice).expect("it is this user's"), found);
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its mode");
    let error = list::list_in(std::slice::from_ref(&path)).expect_err("others may enter").to_string();
    assert!(error.contains("mode is 755"), "{error}");
}
