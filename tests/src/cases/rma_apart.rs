//! As `rma_errors`, at the memory of another process, which some transports reach in other ways than their own.

use uct_host::{Access, Capabilities, IfaceOptions, Memory, RemoteKey};

use super::case;
use crate::access::{Way, is_refusal, perform};
use crate::case::{Case, Needs};
use crate::pair::{Link, Side};
use crate::random::{check_bytes, pattern};
use crate::remote::{Peer, Process};
use crate::setup::Setup;

const SIZE: usize = 4096;
/// Bytes of an access.
const LENGTH: usize = 64;

/// What is wrong with an access.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// It reaches one byte beyond the end.
    Beyond,
    /// It starts one byte ahead of the start.
    Ahead,
    /// The registration has ended.
    Stale,
}

/// One access after another, each with a right one ahead of it, on an endpoint and at memory of its own.
fn refused(setup: &Setup) {
    let side = setup.open(IfaceOptions::default());
    let mut process = Process::start(setup);
    let peer = &mut process.peer;
    for way in Way::of(&side) {
        let (least, most) = way.limits(side.attributes());
        let length = LENGTH.max(least).min(most);
        for wrong in [Wrong::Beyond, Wrong::Ahead, Wrong::Stale] {
            peer.say("again");
            one(&side, peer, way, length, wrong);
        }
    }
    peer.say("end");
    process.finish(|| side.worker.progress());
}

fn one(side: &Side, peer: &mut Peer, way: Way, length: usize, wrong: Wrong) {
    let link = peer.connect(side);
    let mut hear = |what| peer.receive(what, || side.worker.progress());
    let base = u64::from_le_bytes(hear("the address").try_into().expect("an address"));
    let key = side.iface.memory_domain().unpack(&hear("the key"));
    let key = key.unwrap_or_else(|refused| panic!("{refused}"));
    // What is put belongs there, so that the target finds nothing changed in any case.
    let right = pattern(1, length);
    let access = |data: &[u8], remote, link: &Link, key: &RemoteKey| {
        perform(way, side, link, data, remote, key, || side.worker.progress())
    };
    access(&right, base, &link, &key).unwrap_or_else(|error| panic!("{way:?} as it should be: {error}"));
    let remote = match wrong {
        Wrong::Beyond => base + (SIZE - length + 1) as u64,
        Wrong::Ahead => base - 1,
        Wrong::Stale => base,
    };
    if let Wrong::Stale = wrong {
        peer.say("end the registration");
        peer.expect("ended", side);
    }
    match access(&vec![0xcc; length], remote, &link, &key) {
        Ok(_) => panic!("{way:?} {wrong:?}: no error came back"),
        Err(error) => assert!(is_refusal(error), "{way:?} {wrong:?}: {error} is no refusal"),
    }
    assert!(link.failures().len() <= 1, "the error handler was called more than once");
    peer.say("look");
    peer.expect("untouched", side);
}

/// The other process: registers the middle of a buffer, and looks whether it stays as it is.
fn target(setup: &Setup, peer: &mut Peer) {
    let side = setup.open(IfaceOptions::default());
    let mut links = Vec::new();
    let word = |peer: &mut Peer| {
        let word = peer.receive("a word", || side.worker.progress());
        String::from_utf8(word).expect("a word")
    };
    while word(peer) == "again" {
        links.push(peer.connect(&side));
        let mut bytes = pattern(2, 3 * SIZE);
        bytes[SIZE..2 * SIZE].copy_from_slice(&pattern(1, SIZE));
        let whole = side.memory(bytes.clone());
        let mut middle = Some(middle_of(&side, &whole));
        let registered = middle.as_ref().expect("it was just registered");
        peer.send(&registered.address().to_le_bytes());
        peer.send(&registered.packed_key().unwrap_or_else(|error| panic!("a key does not pack: {error}")));
        while word(peer) == "end the registration" {
            middle = None;
            peer.say("ended");
        }
        check_bytes("memory after a wrong access", &whole.to_vec(), &bytes);
        peer.say("untouched");
        drop(middle);
    }
}

fn middle_of(side: &Side, whole: &Memory) -> Memory {
    let start = std::ptr::NonNull::new(whole.as_ptr().wrapping_add(SIZE)).expect("inside of a buffer");
    let domain = side.iface.memory_domain();
    // SAFETY: `whole` owns the bytes and outlives the registration; it hands out no references.
    let middle = unsafe { domain.register_raw(start, SIZE, Access::ALL, uct_host::MemoryKind::Host) };
    middle.unwrap_or_else(|refused| panic!("{refused}"))
}

const NEEDS: Needs = Needs::any(Capabilities::PUT_SHORT.union(Capabilities::GET_BCOPY)).and_other_process();

pub(super) const CASES: &[Case] = &[Case {
    logs: None,
    peer: Some(target),
    ..case("wrong accesses to memory of another process are refused and nothing is touched", NEEDS, refused)
}];
