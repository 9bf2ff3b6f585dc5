//! Faults of the device in software, each in a process of its own: the endpoint or the interface fails with the right error and words,
//! every operation ends, others go on.

use std::time::Duration;

use uct_core::{Access, Completion, Context, Error, Flush, Memory, Posted, RemoteKey};
use uct_ib::WcStatus;

use crate::has_faults::has_faults;
use crate::support::{Link, PATIENCE, Side, connect, context, devices, until};

/// Keys with which a device gives up soon, and nothing is sent by itself.
const SOON: [(&str, &str); 4] =
    [("timeout", "1ms"), ("retry_count", "3"), ("keepalive_interval", "inf"), ("peer_timeout", "inf")];

/// Two sides on one device, memory of the right one, and two connections.
struct Scene {
    links: Vec<(Link, Link)>,
    left: Side,
    right: Side,
    memory: Memory,
    key: RemoteKey,
    _context: Context,
}

impl Scene {
    fn new(keys: &[(&str, &str)], links: usize) -> Option<Scene> {
        let (_turn, names) = devices()?;
        let context = context(keys);
        let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
        let memory = right.iface.memory_domain().register(vec![0; 4096], Access::all()).expect("memory");
        let key = left.iface.memory_domain().unpack(&memory.packed_key().expect("a key")).expect("unpacked");
        let links = (0..links).map(|_| connect(&left, &right)).collect();
        Some(Scene { left, right, memory, key, links, _context: context })
    }

    fn put(&self, link: &Link) -> Result<(), Error> {
        link.ep.put_short(b"x", self.memory.address(), &self.key)
    }

    /// Moves both sides on until `done`.
    #[track_caller]
    fn until(&self, what: &str, done: impl FnMut() -> bool) {
        until(&self.left, &self.right, what, done);
    }

    /// The endpoint still works.
    #[track_caller]
    fn goes_on(&self, link: &Link) {
        let before = self.right.received.get();
        link.send(&self.left.worker).expect("another endpoint goes on");
        self.until("a message of another endpoint", || self.right.received.get() > before);
        assert!(link.failures.borrow().is_empty(), "{:?}", link.failures.borrow());
    }

    /// Puts, and awaits each, until one fails; every completion comes.
    #[track_caller]
    fn put_until_failure(&self, link: &Link) -> (Error, String) {
        for _ in 0..64 {
            let completion = Completion::new(&self.left.worker);
            let flushed = self.put(link).and_then(|()| link.ep.flush(Flush::REMOTE, Some(&completion)));
            if flushed.is_ok_and(|outcome| outcome == Posted::InProgress) {
                self.until("the end of a put", || completion.is_done());
            }
            if !link.failures.borrow().is_empty() {
                assert_eq!(link.failures.borrow().len(), 1, "told once");
                let error = self.put(link).expect_err("it has failed");
                return (error, link.failures.borrow()[0].clone());
            }
        }
        panic!("nothing failed");
    }
}

#[test]
fn each_status_of_a_send_fails_its_endpoint_with_its_words_and_no_other() {
    let statuses: Vec<WcStatus> = (1..=23).map(WcStatus::from_raw).collect();
    let words: Vec<String> =
        statuses.iter().enumerate().map(|(at, it)| format!("wc={}@{}", it.name(), 20 * (at + 1))).collect();
    if !has_faults(&words.join(" ")) {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 1) else { return };
    for status in statuses {
        let (near, far) = connect(&scene.left, &scene.right);
        let (error, words) = scene.put_until_failure(&near);
        let expected = if status == WcStatus::FLUSHED {
            Error::CONNECTION_RESET
        } else {
            Error::from_status(status.status())
        };
        assert_eq!(error, expected, "{status}");
        assert!(words.contains(status.name()) && words.contains(status.text()), "{status}: {words}");
        assert!(far.failures.borrow().is_empty(), "it was asked nothing");
        scene.goes_on(&scene.links[0].0);
    }
}

#[test]
fn each_status_of_a_receive_fails_both_ends_and_no_other() {
    let statuses = (1..=23).map(WcStatus::from_raw).filter(|status| *status != WcStatus::FLUSHED);
    let statuses: Vec<WcStatus> = statuses.collect();
    let words: Vec<String> = statuses
        .iter()
        .enumerate()
        .map(|(at, it)| format!("recv-wc={}@{}", it.name(), 20 * (at + 1)))
        .collect();
    if !has_faults(&words.join(" ")) {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 1) else { return };
    for status in statuses {
        let (near, far) = connect(&scene.left, &scene.right);
        let have_failed = || !near.failures.borrow().is_empty() && !far.failures.borrow().is_empty();
        for _ in 0..64 {
            let before = scene.right.received.get();
            if near.send(&scene.left.worker).is_err() {
                break;
            }
            scene.until("a message or a failure", || scene.right.received.get() > before || have_failed());
            if have_failed() {
                break;
            }
        }
        scene.until("the failures", have_failed);
        let (near, far) = (near.failures.borrow()[0].clone(), far.failures.borrow()[0].clone());
        // Credits that the right side sends are messages, too.
        let (sender, receiver) = if far.contains("a receive failed") { (near, far) } else { (far, near) };
        assert!(receiver.contains("a receive failed") && receiver.contains(status.name()), "{receiver}");
        assert!(sender.contains("REM_OP_ERR"), "{sender}");
        scene.goes_on(&scene.links[0].0);
    }
}

/// Again and again, in case that the first comes before there is a queue pair.
fn again(fault: &str) -> String {
    ["300ms", "1s", "3s", "9s", "27s"].map(|time| format!("{fault}@{time}")).join(" ")
}

/// What happens to the oldest queue pair, which has nothing in flight, fails its endpoint with these words and no other.
fn fails_the_oldest(faults: &str, error: Error, words: &str) {
    if !has_faults(&again(faults)) {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 2) else { return };
    let (victim, far) = &scene.links[0];
    scene.until("the failure", || !victim.failures.borrow().is_empty());
    let told = victim.failures.borrow()[0].clone();
    assert!(told.contains(words), "{told}");
    assert_eq!(scene.put(victim), Err(error));
    // The other end finds out when it asks.
    let _ = far.send(&scene.right.worker);
    scene.until("the failure of the other end", || !far.failures.borrow().is_empty());
    assert!(far.failures.borrow()[0].contains("RETRY_EXC_ERR"), "{:?}", far.failures.borrow());
    scene.goes_on(&scene.links[1].0);
    assert_eq!((victim.failures.borrow().len(), far.failures.borrow().len()), (1, 1), "told once");
}

#[test]
fn a_queue_pair_that_fails_by_itself_fails_its_endpoint_and_no_other() {
    fails_the_oldest(
        "kill-qp",
        Error::CONNECTION_RESET,
        "the device reported a fatal error of the queue pair",
    );
}

#[test]
fn a_queue_pair_that_got_a_bad_request_fails_its_endpoint_and_no_other() {
    fails_the_oldest("qp-req-err", Error::CONNECTION_RESET, "the peer sent an invalid request");
}

#[test]
fn a_queue_pair_that_got_a_bad_access_fails_its_endpoint_and_no_other() {
    fails_the_oldest("qp-access-err", Error::CONNECTION_RESET, "the peer sent an invalid request");
}

/// What happens with the tenth request ends all operations of the left side with an error, and lets the interface close.
fn ends_all_of_the_interface(faults: &str, words: &str) -> Option<Scene> {
    if !has_faults(faults) {
        return None;
    }
    let scene = Scene::new(&SOON, 2)?;
    // Two in flight on each, and a flush behind them.
    let completions: Vec<Completion> =
        scene.links.iter().map(|_| Completion::new(&scene.left.worker)).collect();
    for _ in 0..4 {
        for (near, _) in &scene.links {
            scene.put(near).expect("nothing has happened yet");
        }
    }
    for ((near, _), completion) in scene.links.iter().zip(&completions) {
        let _ = near.ep.flush(Flush::REMOTE, Some(completion));
    }
    let get: Vec<Completion> = scene.links.iter().map(|_| Completion::new(&scene.left.worker)).collect();
    let own = scene.left.iface.memory_domain().register(vec![0; 4096], Access::all()).ok();
    for ((near, _), completion) in scene.links.iter().zip(&get) {
        if let Some(own) = &own {
            let _ = near.ep.get_zcopy(&[own.slice(..)], scene.memory.address(), &scene.key, completion);
        }
    }
    for (near, _) in &scene.links {
        let _ = scene.put(near);
    }
    scene.until("the failures", || scene.links.iter().all(|(near, _)| !near.failures.borrow().is_empty()));
    for (near, _) in &scene.links {
        let told = near.failures.borrow()[0].clone();
        assert!(told.contains(words), "{told}");
        assert_eq!(near.failures.borrow().len(), 1, "told once");
        assert_eq!(scene.put(near), Err(Error::IO_ERROR));
    }
    scene.until("the ends of all operations", || get.iter().chain(&completions).all(|it| it.is_done()));
    let left_over = || {
        let counters = scene.left.iface.transport_counters();
        counters.iter().any(|it| ["tx_under_way", "read_bytes"].contains(&it.0.as_str()) && it.1 > 0)
    };
    scene.until("nothing in flight", || !left_over());
    Some(scene)
}

#[test]
fn a_device_that_fails_ends_all_operations_and_refuses_new_endpoints() {
    let Some(scene) = ends_all_of_the_interface("device-fatal@10", "the device failed or was removed") else {
        return;
    };
    let refusal = scene.left.iface.create_ep(|_| {}).expect_err("the device is gone").to_string();
    assert!(refusal.contains("ibv_create_qp"), "{refusal}");
    scene.until("the failures of the other side", || {
        scene.links.iter().all(|(_, far)| !far.failures.borrow().is_empty())
    });
    let start = std::time::Instant::now();
    drop(scene);
    assert!(start.elapsed() < PATIENCE / 2, "the end took {:?}", start.elapsed());
}

#[test]
fn a_completion_queue_that_overruns_ends_all_operations_of_its_interface_and_no_other() {
    let words = "a completion queue of the interface failed";
    let Some(scene) = ends_all_of_the_interface("cq-overrun@10", words) else { return };
    // The right side's own queue works.
    let other = Side::new(&scene._context, &devices().expect("a device").1[0]);
    let (near, _far) = connect(&scene.right, &other);
    near.send(&scene.right.worker).expect("another interface goes on");
    until(&scene.right, &other, "a message of another interface", || other.received.get() == 1);
    assert!(near.failures.borrow().is_empty());
}

#[test]
fn a_completion_queue_that_cannot_be_polled_ends_the_connections_of_its_interface_and_no_other() {
    // The first that each side polls: one waits for messages only, the other for the end of its put, too.
    if !has_faults("poll_cq=EIO@1 poll_cq=EIO@2") {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 2) else { return };
    let other = Side::new(&scene._context, &devices().expect("a device").1[0]);
    let (witness, _far) = connect(&other, &other);
    let of = |link: &Link| link.failures.borrow().clone();
    let fails = |side: &Side, link: &Link| side.worker.progress_until(PATIENCE, || !of(link).is_empty());
    assert!(fails(&scene.left, &scene.links[0].0), "no failure of messages");
    let put = Completion::new(&scene.right.worker);
    let own = scene.right.iface.memory_domain().register(vec![0; 64], Access::all()).expect("memory");
    let far = &scene.links[0].1;
    far.ep.put_zcopy(&[own.slice(..)], scene.memory.address(), &scene.key, &put).expect("it is taken");
    assert!(fails(&scene.right, far), "no failure of sends");
    for (near, far) in &scene.links {
        for (told, queue) in [(of(near), "receive"), (of(far), "send")] {
            let words = format!(
                "the {queue} completion queue of {} returned -5",
                scene.right.iface.resource().device
            );
            assert!(told.len() == 1 && told[0].contains(&words), "{told:?}");
        }
        assert_eq!(scene.put(near), Err(Error::IO_ERROR));
    }
    assert_eq!((put.is_done(), put.result()), (true, Err(Error::IO_ERROR)));
    witness.send(&other.worker).expect("another interface goes on");
    until(&other, &other, "a message of another interface", || other.received.get() == 1);
}

#[test]
fn an_operation_that_the_device_takes_in_part_fails_its_endpoint_and_one_that_it_refuses_does_not() {
    if !has_faults("post_send=EIO@2 post_send=EIO@3") {
        return;
    }
    let keys = [&SOON[..], &[("max_iov", "2")]].concat();
    let Some(scene) = Scene::new(&keys, 2) else { return };
    let own = scene.left.iface.memory_domain().register(vec![0; 64], Access::all()).expect("memory");
    // Three requests of two blocks each.
    let put = |link: &Link, completion| {
        let blocks = own.slice(..).strided(1, 2, 6);
        link.ep.put_zcopy(&[blocks], scene.memory.address(), &scene.key, completion)
    };
    let (victim, other) = (&scene.links[0].0, &scene.links[1].0);
    let completion = Completion::new(&scene.left.worker);
    assert_eq!(put(victim, &completion), Ok(Posted::InProgress), "its memory is in use");
    scene.until("the failure", || completion.is_done() && !victim.failures.borrow().is_empty());
    let told = victim.failures.borrow().clone();
    assert!(told.len() == 1 && told[0].contains("the device took a part of an operation only"), "{told:?}");
    assert_eq!(scene.put(victim), Err(Error::IO_ERROR));

    let completion = Completion::new(&scene.left.worker);
    assert_eq!(put(other, &completion), Err(Error::IO_ERROR));
    assert_eq!(put(other, &completion), Ok(Posted::InProgress));
    scene.until("the put", || completion.is_done());
    assert_eq!(completion.result(), Ok(()));
    scene.goes_on(other);
}

#[test]
fn a_short_get_that_nobody_answers_ends_in_time() {
    if !has_faults("port-down@1") {
        return;
    }
    // The device itself asks again so late that it finds nothing.
    let keys =
        [("timeout", "60s"), ("keepalive_interval", "inf"), ("peer_timeout", "100ms"), ("linger", "10ms")];
    let Some(scene) = Scene::new(&keys, 1) else { return };
    let near = &scene.links[0].0;
    let got = near.ep.get_short(&mut [0; 8], scene.memory.address(), &scene.key);
    assert_eq!(got, Err(Error::TIMED_OUT));
    scene.until("the failure", || !near.failures.borrow().is_empty());
    assert!(
        near.failures.borrow()[0].contains("acknowledged nothing for 0.1 s"),
        "{:?}",
        near.failures.borrow()
    );
}

#[test]
fn a_receive_queue_that_fails_ends_the_endpoints_of_its_interface_and_no_other() {
    if !has_faults(&again("srq-err")) {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 2) else { return };
    scene.until("the failures", || scene.links.iter().all(|(near, _)| !near.failures.borrow().is_empty()));
    for (near, far) in &scene.links {
        let told = near.failures.borrow()[0].clone();
        assert!(told.contains("the receive queue of the interface failed"), "{told}");
        assert_eq!(scene.put(near), Err(Error::IO_ERROR));
        assert!(far.failures.borrow().is_empty());
    }
}

#[test]
fn a_port_that_is_down_for_a_moment_harms_nothing() {
    if !has_faults("port-down@5 port-up@6") {
        return;
    }
    let Some(scene) = Scene::new(&[("timeout", "30ms"), ("keepalive_interval", "inf")], 2) else { return };
    let near = &scene.links[0].0;
    (0..4).for_each(|_| scene.put(near).expect("a put"));
    near.send(&scene.left.worker).expect("it is taken");
    scene.left.worker.progress_until(Duration::from_millis(60), || scene.right.worker.progress() > 1000);
    assert_eq!(scene.right.received.get(), 0, "nothing arrives while it is down");
    scene.links[1].0.send(&scene.left.worker).expect("it is taken");
    scene.until("both messages", || scene.right.received.get() == 2);
    for (near, far) in &scene.links {
        assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
    }
    let (near, _far) = connect(&scene.left, &scene.right);
    scene.goes_on(&near);
}

#[test]
fn a_port_that_stays_down_ends_connections_that_have_something_to_say() {
    if !has_faults("port-down@2") {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 2) else { return };
    let (near, far) = &scene.links[0];
    let (error, words) = scene.put_until_failure(near);
    assert_eq!(error, Error::ENDPOINT_TIMEOUT);
    assert!(words.contains("RETRY_EXC_ERR"), "{words}");
    assert!(far.failures.borrow().is_empty() && scene.links[1].0.failures.borrow().is_empty());
}

#[test]
fn events_that_concern_nobody_change_nothing() {
    let faults = "comm-est@1 sq-drained@2 last-wqe@3 srq-limit@4 lid-change@5 pkey-change@6 sm-change@7 client-reregister@8 \
                  gid-change@9";
    if !has_faults(faults) {
        return;
    }
    let Some(scene) = Scene::new(&SOON, 1) else { return };
    let (near, far) = &scene.links[0];
    for count in 1..=20 {
        near.send(&scene.left.worker).expect("a send");
        scene.until("a message", || scene.right.received.get() == count);
    }
    assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
    let (near, _far) = connect(&scene.left, &scene.right);
    scene.goes_on(&near);
}

#[test]
fn an_object_that_is_not_made_is_refused_with_words_and_made_the_next_time() {
    // The second interface is refused four times, and a device whose interface is there counts on.
    let Some((_turn, names)) = devices_with(
        "create_comp_channel=EMFILE@3 create_cq=ENOMEM@3 create_srq=ENOMEM@2 create_qp=ENOSPC@2 modify_qp=ETIMEDOUT@2 \
         modify_qp=EINVAL@5 create_qp=EAGAIN@4",
    ) else {
        return;
    };
    let context = context(&SOON);
    let left = Side::new(&context, &names[0]);
    for verb in ["ibv_create_comp_channel", "ibv_create_cq", "ibv_create_srq", "ibv_create_qp"] {
        let error = left.worker.open("rc_verbs", &names[0]).expect_err("by plan").to_string();
        assert!(error.contains(verb), "{error}");
    }
    let right = Side::new(&context, &names[0]);
    let error = left.iface.create_ep(|_| {}).expect_err("by plan").to_string();
    assert!(error.contains("ibv_create_qp") && error.contains("temporarily unavailable"), "{error}");
    let (near, far) = (Link::new(&left), Link::new(&right));
    near.connect(&right, &far).expect("what times out is tried again");
    let error = far.connect(&left, &near).expect_err("by plan");
    assert!(error.contains("ibv_modify_qp"), "{error}");
    let (near, _far) = connect(&left, &right);
    near.send(&left.worker).expect("a send");
    until(&left, &right, "a message", || right.received.get() == 1);
}

/// The names of the devices, in a process with these faults.
fn devices_with(faults: &str) -> Option<(std::sync::MutexGuard<'static, ()>, Vec<String>)> {
    if has_faults(faults) { devices() } else { None }
}
