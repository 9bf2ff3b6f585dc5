//! Faults of the device in software, each in a process of its own: what can be sent again is, what cannot fails the interface with
//! the right words, every operation ends, others go on.

use std::time::{Duration, Instant};

use uct_core::{Completion, Context, Error, Events, Flush, SendFlags};
use uct_ib::WcStatus;

use crate::has_faults::has_faults;
use crate::support::{ID, Link, PATIENCE, Side, connect, context, devices, until};

/// A side whose device has faults first, and two connections of it.
struct Scene {
    links: Vec<(Link, Link)>,
    left: Side,
    right: Side,
    context: Context,
    name: String,
}

impl Scene {
    fn new(keys: &[(&str, &str)]) -> Option<Scene> {
        let (_turn, names) = devices()?;
        let context = context(keys);
        let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
        let links = (0..2).map(|_| connect(&left, &right)).collect();
        Some(Scene { links, left, right, context, name: names[0].clone() })
    }

    #[track_caller]
    fn until(&self, what: &str, done: impl FnMut() -> bool) {
        until(&[&self.left, &self.right], what, done);
    }

    fn progress(&self) {
        self.left.worker.progress();
        self.right.worker.progress();
    }

    fn failures(&self) -> usize {
        self.links.iter().map(|(near, far)| near.failures.borrow().len() + far.failures.borrow().len()).sum()
    }
}

#[test]
fn each_status_of_a_send_is_survived_and_no_message_is_lost() {
    let statuses: Vec<WcStatus> = (1..=23).map(WcStatus::from_raw).collect();
    let words: Vec<String> =
        statuses.iter().enumerate().map(|(at, it)| format!("wc={}@{}", it.name(), 20 * (at + 1))).collect();
    if !has_faults(&words.join(" ")) {
        return;
    }
    let Some(scene) = Scene::new(&[]) else { return };
    let rounds = 20 * statuses.len() as u64 + 40;
    for round in 0..rounds {
        let (near, far) = &scene.links[round as usize % 2];
        near.send(|| scene.progress()).expect("a send");
        far.send(|| scene.progress()).expect("a send");
        if round % 8 == 0 {
            scene.progress();
        }
    }
    scene.until("all messages", || {
        scene.left.received.get() >= rounds && scene.right.received.get() >= rounds
    });
    assert_eq!((scene.left.received.get(), scene.right.received.get()), (rounds, rounds), "each once");
    assert_eq!(scene.failures(), 0);
}

#[test]
fn a_share_of_failing_sends_is_survived_and_no_message_is_lost() {
    if !has_faults("seed=5 wc=LOC_PROT_ERR@3% loss=2% delay=0us..300us") {
        return;
    }
    let Some(scene) = Scene::new(&[]) else { return };
    let rounds = 300;
    for round in 0..rounds {
        let (near, _) = &scene.links[round as usize % 2];
        near.send_packed(|| scene.progress()).expect("a send");
    }
    scene.until("all messages", || scene.right.received.get() >= rounds);
    assert_eq!(scene.right.received.get(), rounds, "each once");
    assert_eq!(scene.failures(), 0);
}

/// Something happens by which the left interface fails with these words: all that follows.
fn fails_the_interface(faults: &str, words: &str) {
    if !has_faults(faults) {
        return;
    }
    let Some(scene) = Scene::new(&[("keepalive_timeout", "1500ms")]) else { return };
    let is_device = faults.starts_with("device-fatal");
    let memory =
        scene.left.iface.memory_domain().register(vec![7; 2048], uct_core::Access::all()).expect("memory");
    let slices = [memory.slice(..)];
    let has_failed = || scene.links.iter().all(|(near, _)| !near.failures.borrow().is_empty());
    let mut completions = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while !has_failed() {
        for (near, far) in &scene.links {
            let completion = Completion::new(&scene.left.worker);
            if near.ep.am_zcopy(ID, &[], &slices, SendFlags::empty(), &completion).is_ok() {
                completions.push(completion);
            }
            let _ = far.ep.am_short(ID, 0, b"back");
        }
        scene.progress();
        assert!(Instant::now() < deadline, "no failure");
    }
    scene.until("the ends of all operations", || completions.iter().all(Completion::is_done));
    for (near, _) in &scene.links {
        let told = near.failures.borrow()[0].clone();
        assert!(told.contains("of this interface has failed") && told.contains(words), "{told}");
        assert_eq!(near.ep.am_short(ID, 0, b""), Err(Error::IO_ERROR));
        assert_eq!(near.ep.flush(Flush::REMOTE, None).err(), Some(Error::IO_ERROR));
    }
    let refusal = scene.left.iface.create_ep(|_| {}).expect_err("the interface is broken").to_string();
    assert!(refusal.contains("open another"), "{refusal}");
    until(&[&scene.left], "rest", || scene.left.iface.arm(Events::RECV).is_ok());
    scene.until("the peers' failures", || {
        scene.links.iter().all(|(_, far)| {
            let _ = far.ep.am_short(ID, 0, b"to nobody");
            !far.failures.borrow().is_empty()
        })
    });
    assert_eq!(scene.failures(), 4, "told once");
    if !is_device {
        // Other interfaces of the device work, and another one can be opened.
        let other = Side::new(&scene.context, &scene.name);
        let (near, _far) = connect(&other, &scene.right);
        let before = scene.right.received.get();
        near.send(|| scene.progress()).expect("another interface goes on");
        until(&[&other, &scene.right], "its message", || scene.right.received.get() > before);
    }
    let start = Instant::now();
    drop(completions);
    drop(scene);
    assert!(start.elapsed() < Duration::from_secs(20), "the end took {:?}", start.elapsed());
}

#[test]
fn a_device_that_fails_fails_its_interfaces() {
    fails_the_interface("device-fatal@40", "the device failed or was removed");
}

/// Again and again, in case that the first comes before there is a queue pair; and with nothing in flight ahead of it.
fn again(fault: &str) -> String {
    ["300ms", "1s", "3s", "9s", "27s"].map(|time| format!("{fault}@{time}")).join(" ")
}

#[test]
fn a_queue_pair_that_fails_by_itself_fails_its_interface_and_no_other() {
    fails_the_interface(&again("kill-qp"), "the device reports a fatal error of the queue pair");
}

#[test]
fn a_queue_pair_that_a_peer_made_fail_fails_its_interface_and_no_other() {
    fails_the_interface(&again("qp-access-err"), "an error of the queue pair that a peer caused");
}

#[test]
fn a_completion_queue_that_overruns_fails_its_interface_and_no_other() {
    fails_the_interface(&again("cq-overrun"), "a completion queue of the interface failed");
}

#[test]
fn a_receive_that_fails_fails_its_interface_with_each_status() {
    let statuses: Vec<WcStatus> = (1..=23).map(WcStatus::from_raw).collect();
    let words: Vec<String> = statuses
        .iter()
        .enumerate()
        .map(|(at, it)| format!("recv-wc={}@{}", it.name(), 100 * (at + 1)))
        .collect();
    if !has_faults(&words.join(" ")) {
        return;
    }
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[("linger", "1ms")]);
    // Messages are counted as long as it is there.
    let _first = Side::new(&context, &names[0]);
    for status in statuses {
        let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
        let (near, far) = connect(&left, &right);
        let deadline = Instant::now() + PATIENCE;
        while near.failures.borrow().is_empty() && far.failures.borrow().is_empty() {
            let _ = near.ep.am_short(ID, 0, b"a");
            left.worker.progress();
            right.worker.progress();
            assert!(Instant::now() < deadline, "no failure");
        }
        let told = [near.failures.borrow().first().cloned(), far.failures.borrow().first().cloned()];
        let expected = format!("receiving failed: {status}");
        assert!(told.iter().flatten().any(|told| told.contains(&expected)), "{status}: {told:?}");
    }
}

#[test]
fn a_port_that_is_down_for_a_moment_harms_nothing() {
    if !has_faults("port-down@30 port-up@36") {
        return;
    }
    let Some(scene) = Scene::new(&[]) else { return };
    let rounds = 50;
    for round in 0..rounds {
        let (near, _) = &scene.links[round as usize % 2];
        near.send(|| scene.progress()).expect("a send");
    }
    scene.until("all messages", || scene.right.received.get() == rounds);
    assert_eq!(scene.failures(), 0);
    let other = Side::new(&scene.context, &scene.name);
    let (near, _far) = connect(&other, &scene.right);
    near.send(|| scene.progress()).expect("a send");
    until(&[&other, &scene.right], "its message", || scene.right.received.get() == rounds + 1);
}

#[test]
fn a_port_that_stays_down_ends_connections() {
    if !has_faults("port-down@30") {
        return;
    }
    let Some(scene) = Scene::new(&[("keepalive_timeout", "1s")]) else { return };
    let deadline = Instant::now() + PATIENCE;
    let (near, _) = &scene.links[0];
    while near.failures.borrow().is_empty() {
        let _ = near.ep.am_short(ID, 0, b"a");
        scene.progress();
        assert!(Instant::now() < deadline, "no failure");
    }
    assert_eq!(near.ep.am_short(ID, 0, b""), Err(Error::ENDPOINT_TIMEOUT));
    let error = scene.left.worker.open("ud_verbs", &scene.name).expect_err("the port is down").to_string();
    assert!(error.contains("is down, not active"), "{error}");
}

#[test]
fn events_that_concern_nobody_change_nothing() {
    let faults = "comm-est@1 sq-drained@2 last-wqe@3 lid-change@5 pkey-change@6 sm-change@7 client-reregister@8 gid-change@9";
    if !has_faults(faults) {
        return;
    }
    let Some(scene) = Scene::new(&[]) else { return };
    for count in 1..=40 {
        scene.links[0].0.send(|| scene.progress()).expect("a send");
        scene.until("a message", || scene.right.received.get() == count);
    }
    // Events are read now and then.
    let deadline = Instant::now() + Duration::from_millis(600);
    while Instant::now() < deadline {
        scene.progress();
    }
    assert_eq!(scene.failures(), 0);
    let (near, _far) = connect(&scene.left, &scene.right);
    near.send(|| scene.progress()).expect("a send");
    scene.until("a message", || scene.right.received.get() == 41);
}

#[test]
fn an_object_that_is_not_made_is_refused_with_words_and_made_the_next_time() {
    // The second interface is refused four times, and a device whose interface is there counts on.
    let faults = "create_comp_channel=EMFILE@2 create_cq=ENOMEM@3 create_qp=ENOSPC@2 modify_qp=EINVAL@4 post_recv=ENOMEM@2";
    if !has_faults(faults) {
        return;
    }
    let Some((_turn, names)) = devices() else { return };
    let context = context(&[]);
    let left = Side::new(&context, &names[0]);
    for verb in ["ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp", "ibv_modify_qp"] {
        let error = left.worker.open("ud_verbs", &names[0]).expect_err("by plan").to_string();
        assert!(error.contains(verb), "{error}");
    }
    let right = Side::new(&context, &names[0]);
    let (near, _far) = connect(&left, &right);
    near.send(|| {}).expect("a send");
    until(&[&left, &right], "a message", || right.received.get() == 1);
}
