//! Forks: a child is refused what belongs to its parent, and whatever it does to it, the parent goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use uct_host::{Access, AmId, AtomicOp, Error, Events, Flush, IfaceOptions, Memory, MemoryKind};

use super::{case, events::readable, kept::keep_all};
use crate::access::{Way, perform};
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{LIMIT, Pair, connect, flush, retry, wait};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(19).unwrap();

/// Seconds until a child that hangs is ended by the system.
const CHILD_LIMIT: u32 = 120;

/// What a child of a fork found, in place of an exit status that is good.
const FOUND: i32 = 41;

/// Runs `work` in a child of a fork, which drops all that it was given, and waits for it; panics unless it ends well.
pub fn in_child<T>(given: T, work: impl FnOnce(&T)) -> T {
    // SAFETY: the child is one thread, has a copy of all memory, and ends in `_exit` without returning to the runner.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: no memory is involved; the signal's default is the end.
        unsafe { libc::alarm(CHILD_LIMIT) };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            work(&given);
            drop(given);
        }));
        let status = outcome.map_or_else(
            |words| {
                let text = words.downcast_ref::<String>().map(String::as_str);
                eprintln!("in the child: {}", text.or(words.downcast_ref::<&str>().copied()).unwrap_or("?"));
                FOUND
            },
            |()| 0,
        );
        // SAFETY: always permitted; neither destructors nor buffers of the parent are run or written a second time.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the place of the answer is ours.
    let answer = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(answer, child, "waiting for the child: {}", std::io::Error::last_os_error());
    assert_eq!(
        status,
        0,
        "how the child ended: status, or the signal ({} is one that took too long)",
        libc::SIGALRM
    );
    given
}

fn child_is_refused(setup: &Setup) {
    let pair = Pair::new(setup);
    let address = pair.receiver.iface.address().expect("an address");
    let resource = setup.resource();
    let memory = pair.sender.iface.memory_domain().register(vec![7; 100], Access::ALL).ok();
    let remote = (!Way::of(&pair.sender).is_empty()).then(|| {
        let target = pair.receiver.memory(vec![7; 64]);
        let key = pair.sender.key_to(&target);
        (target, key)
    });
    let inbox = pair.receiver.inbox(ID);
    let (pair, memory) = in_child((pair, memory), |(pair, memory)| {
        let (side, worker) = (&pair.sender, &pair.sender.worker);
        crate::log::take();
        assert_eq!((worker.progress(), worker.progress()), (0, 0), "a worker of the parent makes progress");
        let logged = crate::log::take();
        assert!(
            logged.len() == 1 && logged[0].text.contains("forked child"),
            "it is logged once: {logged:?}"
        );
        let words = [
            worker.open_resource(&resource, Default::default()).expect_err("an interface").to_string(),
            side.iface.connect(&address).expect_err("an endpoint").to_string(),
            side.iface.memory_domain().register(vec![0; 8], Access::ALL).expect_err("memory").to_string(),
            side.iface
                .memory_domain()
                .allocate(8, Access::ALL, MemoryKind::Host)
                .expect_err("memory")
                .to_string(),
            side.iface.memory_domain().unpack(&[0; 8]).expect_err("a key").to_string(),
        ];
        // An interface that reaches nobody by an interface's address says that, and nothing of forks.
        let by_fork = words.iter().filter(|words| words.contains("before the process forked")).count();
        assert!(by_fork >= 4, "{words:?}");
        let start = Instant::now();
        assert_eq!(worker.arm(), Err(Error::INVALID_PARAM));
        assert_eq!(worker.wait(LIMIT), Err(Error::INVALID_PARAM));
        assert!(start.elapsed() < LIMIT / 2, "the child has slept");
        if let Some(memory) = memory {
            assert_eq!(memory.packed_key(), Err(Error::INVALID_PARAM));
            assert_eq!(memory.advise(0, 8, true), Err(Error::INVALID_PARAM));
            assert!(memory.clone().into_bytes().is_err(), "memory is given back to the child");
        }
        // Endpoints, by whatever way they would send.
        let refused = Err(Error::INVALID_PARAM);
        let completion = side.completion();
        for flavour in Flavour::of(side).into_iter().filter(|flavour| !matches!(flavour, Flavour::Zcopy)) {
            assert_eq!(
                flavour.send(side, &pair.to, ID, &[1; 8], &completion).map(drop),
                refused,
                "{flavour:?}"
            );
        }
        if let Some((target, key)) = &remote {
            let needs_memory = |way: &Way| matches!(way, Way::PutZcopy | Way::GetZcopy);
            for way in Way::of(side).into_iter().filter(|way| !needs_memory(way)) {
                let answer = way.start(side, &pair.to, &[1; 8], target.address(), key).map(drop);
                assert_eq!(answer, refused, "{way:?}");
            }
            if let Some(memory) = memory {
                let slices = [memory.slice(..8)];
                let put = pair.to.put_zcopy(&slices, target.address(), key, &completion);
                let get = pair.to.get_zcopy(&slices, target.address(), key, &completion);
                assert_eq!((put.map(drop), get.map(drop)), (refused, refused));
            }
            assert_eq!(pair.to.atomic64_post(AtomicOp::Add, 1, target.address(), key), refused);
        }
        assert_eq!(pair.to.flush(Flush::REMOTE, None).map(drop), refused);
        assert_eq!(pair.to.fence(), refused);
        assert_eq!(side.iface.flush(Flush::REMOTE, None).map(drop), refused);
        assert_eq!(side.iface.fence(), refused);
    });
    pair.settle();
    assert!(inbox.take().is_none(), "a message of the child has arrived");
    if let Some((target, _)) = &remote {
        check_bytes("memory that the child had a key of", &target.to_vec(), &[7; 64]);
    }
    drop(memory);
}

fn parent_goes_on(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let flavour = Flavour::of(&pair.sender)[0];
    let bytes = pattern(setup.seed, 100.min(flavour.limits(pair.sender.attributes()).1));
    let completion = pair.sender.completion();
    let send = |pair: &Pair| {
        let start = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
        pair.retry("a send", start).expect("a send");
    };
    send(&pair);
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.until("a message ahead of the fork", || inbox.take().is_some());
    let data = pattern(!setup.seed, 64);
    let remote = Way::of(&pair.sender).into_iter().find(|way| {
        let (least, most) = way.limits(pair.sender.attributes());
        way.is_put() && (least..=most).contains(&data.len())
    });
    let kept: Option<(Memory, Memory, _)> = remote.map(|_| {
        let registered = pair.receiver.memory(vec![0; 64]);
        let key = pair.sender.key_to(&registered);
        (registered, pair.receiver.allocate(64), key)
    });
    // Nothing keeps this one in the child.
    let alone = setup.open_far(IfaceOptions::default());
    // Everything that the child drops is what the parent goes on with.
    let (pair, kept, alone) = in_child((pair, kept, alone), |_| ());

    for _ in 0..100 {
        send(&pair);
        pair.until("a message after the fork", || inbox.take().is_some());
    }
    if let (Some(way), Some((registered, allocated, key))) = (remote, &kept) {
        let again = pair.sender.key_to(allocated);
        for (memory, key) in [(registered, key), (allocated, &again)] {
            perform(way, &pair.sender, &pair.to, &data, memory.address(), key, || pair.progress())
                .unwrap_or_else(|error| panic!("{way:?} after the fork: {error}"));
            let mut there = vec![0; data.len()];
            memory.read(0, &mut there);
            check_bytes("memory after the fork", &there, &data);
        }
    }
    if alone.attributes().events & Events::RECV.bits() != 0 && !pair.is_loop {
        // The set of descriptors that a worker sleeps on is shared with the child, too.
        let inbox = alone.inbox(ID);
        let (to, _back) = connect(&pair.sender, &alone);
        let progress = || pair.sender.worker.progress() + alone.worker.progress();
        flush(&pair.sender.worker, &to, Flush::REMOTE, progress).expect("a flush");
        wait("arming", progress, || alone.worker.arm().is_ok());
        let start = || flavour.send(&pair.sender, &to, ID, &bytes, &completion);
        retry("a send", || pair.sender.worker.progress(), start).expect("a send");
        let start = Instant::now();
        while !readable(alone.worker.event_fd(), 1) {
            pair.sender.worker.progress();
            assert!(start.elapsed() < LIMIT, "a message wakes nobody after the fork");
        }
        wait("the message", progress, || inbox.take().is_some());
        alone.iface.clear_am_handlers();
    }
    pair.to.check_alive();
    pair.back.check_alive();
}

fn kept_messages_stay(setup: &Setup) {
    let pair = Pair::new(setup);
    let kept = keep_all(&pair.receiver, ID);
    let other = AmId::new(20).unwrap();
    let inbox = pair.receiver.inbox(other);
    let completion = pair.sender.completion();
    for flavour in Flavour::of(&pair.sender) {
        let bytes = pattern(setup.seed, 1000.min(flavour.limits(pair.sender.attributes()).1));
        let noise = vec![0xee; bytes.len()];
        let send = |id, bytes: &[u8]| {
            let start = || flavour.send(&pair.sender, &pair.to, id, bytes, &completion);
            pair.retry("a send", start).expect("a send");
        };
        (0..4).for_each(|_| send(ID, &bytes));
        pair.until("what is to be kept", || kept.borrow().len() == 4);
        let messages = in_child(kept.take(), |_| ());
        // What the child had given back would be written over now.
        (0..300).for_each(|_| send(other, &noise));
        pair.until("the noise", || inbox.len() == 300);
        (0..300).for_each(|_| drop(inbox.take()));
        for message in &messages {
            check_bytes(&format!("a message of {flavour:?}, kept"), message, &bytes);
        }
    }
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
}

pub(super) const CASES: &[Case] = &[
    case("a child of a fork is refused and told why", Needs::NOTHING, child_is_refused),
    case("a parent goes on whatever its child drops", Needs::NOTHING, parent_goes_on),
    case("kept messages are the parent's whatever its child drops", Needs::NOTHING, kept_messages_stay),
];
