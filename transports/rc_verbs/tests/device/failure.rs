//! Endpoints that fail: told once, in bounded time, with words, and others go on.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use uct_core::{Access, Completion, Error, Flush, IfaceAddress};

use crate::library::{is_skipped_in_software, library};
use crate::queue_pair;
use crate::support::{PATIENCE, Side, connect, context, devices, until};

#[test]
fn a_key_whose_memory_is_gone_fails_the_endpoint_once_and_no_other() {
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let (near, far) = connect(&left, &right);
    let (witness, _witness_far) = connect(&left, &right);
    let memory = right.iface.memory_domain().register(vec![0; 4096], Access::all()).expect("memory");
    let key = left.iface.memory_domain().unpack(&memory.packed_key().expect("a key")).expect("a key");
    let address = memory.address();
    drop(memory);

    let completion = Completion::new(&left.worker);
    near.ep.put_short(b"too late", address, &key).expect("the device does not know yet");
    near.ep.flush(Flush::REMOTE, Some(&completion)).expect("a flush");
    until(&left, &right, "the failure", || completion.is_done() && !near.failures.borrow().is_empty());
    assert_eq!(near.failures.borrow().len(), 1);
    let words = near.failures.borrow()[0].clone();
    assert!(words.contains("REM_ACCESS_ERR") && words.contains("the peer forbids the access"), "{words}");
    assert!(completion.result().is_err());
    assert_eq!(near.ep.am_short(crate::support::ID, 0, b""), Err(Error::REJECTED));
    // The other end of the connection is in error, too, and learns it from its device.
    until(&left, &right, "the failure of the target's end", || !far.failures.borrow().is_empty());

    witness.send(&left.worker).expect("another endpoint goes on");
    until(&left, &right, "a message of another endpoint", || right.received.get() == 1);
    assert!(witness.failures.borrow().is_empty());
    assert_eq!(near.failures.borrow().len(), 1, "told once");
}

#[test]
fn a_queue_pair_in_error_fails_both_ends_once_and_no_other_endpoint() {
    let Some((_turn, names)) = devices() else { return };
    if is_skipped_in_software("queue pairs are broken by its file") {
        return;
    }
    let context = context(&[("peer_timeout", "1s"), ("keepalive_interval", "200ms")]);
    let (left, right) =
        (Side::new(&context, &names[0]), Side::new(&context, names.last().expect("a device")));
    let (near, far) = connect(&left, &right);
    let (witness, _witness_far) = connect(&left, &right);
    near.send(&left.worker).expect("a send");
    until(&left, &right, "a message", || right.received.get() == 1);

    queue_pair::break_oldest();
    let start = Instant::now();
    let completion = Completion::new(&left.worker);
    near.send(&left.worker).expect("the transport does not know yet");
    near.ep.flush(Flush::REMOTE, Some(&completion)).expect("a flush");
    until(&left, &right, "the failures of both ends", || {
        completion.is_done() && !near.failures.borrow().is_empty() && !far.failures.borrow().is_empty()
    });
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    assert!(completion.result().is_err());
    let before = right.received.get();
    witness.send(&left.worker).expect("another endpoint goes on");
    until(&left, &right, "a message of another endpoint", || right.received.get() == before + 1);
    left.worker.progress_until(Duration::from_millis(500), || right.worker.progress() > 1000);
    assert!(witness.failures.borrow().is_empty());
    for told in [&near.failures, &far.failures] {
        assert_eq!(told.borrow().len(), 1, "told once: {:?}", told.borrow());
    }
    drop((near, far, witness, _witness_far));
    until(&left, &right, "the end of all endpoints", || {
        let left_over =
            |side: &Side| side.iface.transport_counters().iter().any(|it| it.0 == "endpoints" && it.1 > 0);
        !left_over(&left) && !left_over(&right)
    });
}

#[test]
fn a_peer_that_was_killed_while_nothing_was_sent_is_found() {
    const CHILD: &str = "UCT_RC_TEST_CHILD";
    let Some((_turn, names)) = devices() else { return };
    let keys = [("keepalive_interval", "200ms"), ("peer_timeout", "1s")];
    let context = context(&keys);
    let side = Side::new(&context, &names[0]);
    let link = side.iface.create_ep(|_| {}).expect("an endpoint");
    if let Some(parent) = std::env::var_os(CHILD) {
        let parent = parent.into_string().expect("text");
        let (device, rest) = parent.split_once('/').expect("three parts");
        let (iface, ep) = rest.split_once('/').expect("three parts");
        let mut peer = side.iface.address().expect("an address");
        peer.device = bytes(device);
        peer.iface = bytes(iface);
        link.connect_to_ep(&peer, &bytes(ep)).unwrap_or_else(|error| panic!("{error}"));
        // Its device is another where each process has its own.
        let own = side.iface.address().expect("an address");
        eprintln!("ADDRESS {}/{}", hex(&own.device), hex(&link.address().expect("an address")));
        // Killed long before; bounded all the same.
        std::thread::sleep(PATIENCE * 2);
        return;
    }
    let near = crate::support::connect(&side, &side);
    drop(near);
    let failures = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let told = failures.clone();
    let ep = side
        .iface
        .create_ep(move |failure| told.borrow_mut().push(failure.to_string()))
        .expect("an endpoint");
    let own = side.iface.address().expect("an address");
    let address =
        format!("{}/{}/{}", hex(&own.device), hex(&own.iface), hex(&ep.address().expect("an address")));
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", "failure::a_peer_that_was_killed_while_nothing_was_sent_is_found", "--nocapture"])
        .env(CHILD, address)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .map(Kill)
        .expect("a child");
    let line = line_of(&mut child.0, "ADDRESS ");
    let (device, peer) = line.split_once('/').expect("two parts");
    let at = IfaceAddress { device: bytes(device), ..own };
    ep.connect_to_ep(&at, &bytes(peer)).unwrap_or_else(|error| panic!("{error}"));
    // Alive for several questions.
    side.worker.progress_until(Duration::from_millis(1500), || false);
    assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());

    child.0.kill().expect("killed");
    child.0.wait().expect("ended");
    let start = Instant::now();
    assert!(side.worker.progress_until(PATIENCE, || !failures.borrow().is_empty()), "nobody noticed");
    let elapsed = start.elapsed();
    assert!(elapsed < PATIENCE / 2, "{elapsed:?}");
    // The kernel's device tries for ever if asked for seven retries, so that the transport's own limit ends the endpoint. The device in
    // software gives up, mostly before that.
    let words = failures.borrow()[0].clone();
    let has_given_up = library() == "soft" && words.contains("RETRY_EXC_ERR");
    assert!(has_given_up || words.contains("acknowledged nothing for 1 s"), "{words}");
    side.worker.progress_until(Duration::from_millis(500), || false);
    assert_eq!(failures.borrow().len(), 1, "told once");
    drop(link);
}

/// Kills the child when the test ends early.
struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rest of the first line that begins so, of what the child writes.
fn line_of(child: &mut Child, prefix: &str) -> String {
    use std::io::BufRead as _;
    let output = child.stderr.take().expect("a pipe");
    std::io::BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
        .expect("the child says its address")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect()
}
