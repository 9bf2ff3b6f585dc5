//! Places against a slow model of them, and what they promise.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::property;
use crate::skip;
use proptest::prelude::*;

use ucs::admission::{Limits, Patience, Places, Source, Vacancy};
use ucs::sys::peer::Credentials;
use ucs::sys::process::credentials;

const PATIENCE: Duration = Duration::from_millis(10);
const SOURCES: u32 = 4;

fn source(number: u32) -> Source {
    Source::of(IpAddr::from(number.to_be_bytes()))
}

#[test]
fn a_source_is_an_address_or_a_network_or_a_process_or_another_user() {
    let of = |address: &str| Source::of(address.parse::<IpAddr>().unwrap());
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    assert_ne!(of("10.0.0.2"), of("10.0.0.1"));
    assert_eq!(of("fd00::1"), of("fd00::ffff:0:0:2"));
    assert_ne!(of("fd00:0:0:1::1"), of("fd00::1"));
    let process = |pid, uid| Source::of_process(Credentials { pid, uid }, 1000);
    assert_ne!(process(1, 1000), process(2, 1000));
    assert_eq!(process(1, 1001), process(2, 1001));
    let sources = [of("10.0.0.1"), of("fd00:0:0:7::1"), process(7, 1000), process(7, 1001), of("::1")];
    let shown = sources.map(|source| source.to_string());
    assert_eq!(shown, ["10.0.0.1", "fd00:0:0:7::/64", "process 7", "user 1001", "::/64"]);
}

/// In the process in a user namespace.
const UNMAPPED: &str = "UCS_TEST_UNMAPPED";

#[test]
fn a_user_namespace_that_maps_no_user_tells_none_from_this_one() {
    let own = credentials().effective_uid;
    let process = |pid| Credentials { pid, uid: own };
    if std::env::var_os(UNMAPPED).is_some() {
        // Every user has this number, and may have any number of processes.
        assert!(!process(1).is_of_user(own));
        assert_eq!(Source::of_process(process(1), own), Source::of_process(process(2), own));
        return;
    }
    let here = std::thread::current();
    let mut inside = Command::new("unshare");
    inside.arg("--user").arg(std::env::current_exe().expect("this program has a path"));
    inside.args(["--exact", here.name().expect("the test's")]).env(UNMAPPED, "1");
    match Command::new("unshare").args(["--user", "true"]).status() {
        Ok(status) if status.success() => {}
        refused => return skip::skip("root", format_args!("no user namespace can be made: {refused:?}")),
    }
    let ended = inside.output().expect("it starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert!(process(1).is_of_user(own) && !process(1).is_of_user(own + 1));
}

#[test]
fn one_source_never_has_all_places_unless_it_may() {
    assert_eq!(Limits::new(5, 0), Limits { most: 5, most_of_source: 5 });
    assert_eq!(Limits::new(100, 0), Limits { most: 100, most_of_source: 75 });
    assert_eq!(Limits::new(0, 0), Limits { most: 1, most_of_source: 1 });
    assert_eq!(Limits::new(4, 9), Limits::shared(4));
}

#[test]
fn a_source_at_its_limit_has_to_make_room_itself_and_the_one_with_the_most_if_all_are_taken() {
    let (mut places, now) = (Places::new(Limits::new(5, 3)), Instant::now());
    let [one, other] = [1, 2].map(source);
    let calm = (now, PATIENCE);
    for id in 1..=3 {
        assert_eq!(places.ask(one, false, calm, |_| true), Vacancy::Free);
        places.add(id, one, now);
    }
    assert_eq!(places.ask(one, false, calm, |_| true), Vacancy::None, "none of its own is old enough");
    assert_eq!(places.ask(other, false, calm, |_| true), Vacancy::Free);
    assert_eq!(places.next_change(now, PATIENCE), Some(now + PATIENCE));
    let later = (now + PATIENCE, PATIENCE);
    for id in 4..=5 {
        places.add(id, other, now + PATIENCE);
    }
    assert_eq!(places.ask(other, false, later, |id| id > 1), Vacancy::Instead(2), "1 is not silent");
    assert_eq!(places.ask(one, true, later, |_| true), Vacancy::Instead(3), "without descriptors");
    assert_eq!(places.ask(one, true, later, |_| true), Vacancy::None, "those of the other one are young");
    assert_eq!(places.give_way((now + 2 * PATIENCE, PATIENCE)), Some(4));
}

#[test]
fn of_sources_with_as_many_entries_the_oldest_entry_gives_way_whatever_their_addresses() {
    for addresses in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let (mut places, now) = (Places::new(Limits::shared(3)), Instant::now());
        for (id, address) in (0..3).zip(addresses) {
            places.add(id, source(address), now);
        }
        for id in 0..3 {
            assert_eq!(places.ask(source(4), false, (now, Duration::ZERO), |_| true), Vacancy::Instead(id));
            places.add(3 + id, source(4 + id), now);
        }
    }
}

#[test]
fn a_burst_is_waited_for_and_silent_callers_without_end_are_not() {
    let [first, memory] = [Duration::from_secs(1), Duration::from_secs(10)];
    let begun = Instant::now();
    let at = |patience: &mut Patience, tenths: u32| patience.at(begun + tenths * first / 10);
    let mut bursts = Patience::new(first, memory);
    for tenths in [0, 5, 40, 44, 90, 99] {
        assert_eq!(at(&mut bursts, tenths), first, "{tenths}");
    }
    let mut flood = Patience::new(first, memory);
    for tenths in 0..10 {
        assert_eq!(at(&mut flood, tenths), first, "{tenths}");
    }
    for tenths in [10, 11, 60, 150] {
        assert_eq!(at(&mut flood, tenths), Duration::ZERO, "{tenths}");
    }
    assert_eq!(at(&mut flood, 260), first, "places were free for long enough");
}

#[derive(Clone, Debug)]
enum Step {
    /// Of a source, with or without descriptors; the entries with these numbers modulo 4 are not silent, whatever is known of them.
    Call(u32, bool, u64),
    Keep(usize),
    Remove(usize),
    Rename(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..SOURCES, prop::bool::weighted(0.1), 0..8_u64).prop_map(|(of, short, spoken)| Step::Call(of, short, spoken)),
        1 => any::<usize>().prop_map(Step::Keep),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Rename),
        2 => (0..15_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..200)
}

/// An entry of the model.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    source: Source,
    since: Instant,
    is_kept: bool,
    /// It was old enough once.
    is_old: bool,
}

/// The entry that has to give way, by looking at all of them.
fn expected(
    model: &mut [Entry],
    limits: Limits,
    (asker, is_short, now): (Source, bool, Instant),
    has_spoken: impl Fn(u64) -> bool,
) -> Vacancy<u64> {
    let count = |model: &[Entry], source| model.iter().filter(|entry| entry.source == source).count();
    let is_at_limit = count(model, asker) >= limits.most_of_source;
    if !is_at_limit && !is_short && model.len() < limits.most {
        return Vacancy::Free;
    }
    for entry in model.iter_mut() {
        entry.is_old |= now - entry.since >= PATIENCE;
    }
    loop {
        let gives_way =
            |entry: &&Entry| !entry.is_kept && entry.is_old && (!is_at_limit || entry.source == asker);
        let most = model.iter().filter(gives_way).map(|entry| count(model, entry.source)).max();
        // The oldest come first.
        let is_next = |entry: &Entry| gives_way(&entry) && Some(count(model, entry.source)) == most;
        let Some(next) = model.iter().position(is_next) else { return Vacancy::None };
        let oldest = &mut model[next];
        if !has_spoken(oldest.id) {
            return Vacancy::Instead(oldest.id);
        }
        oldest.is_kept = true;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..property::config() })]

    #[test]
    fn places_are_what_a_model_of_them_is(steps in steps(), most in 1..12_usize, of_source in 0..12_usize) {
        let limits = Limits::new(most, of_source);
        let mut places = Places::new(limits);
        let mut model: Vec<Entry> = Vec::new();
        let (mut now, mut made) = (Instant::now(), 0_u64);
        for step in steps {
            let chosen = |at: usize| model.get(at % model.len().max(1)).map(|entry| entry.id);
            match step {
                Step::Wait(time) => now += Duration::from_millis(time),
                Step::Call(of, is_short, spoken) => {
                    let (of, has_spoken) = (source(of), |id: u64| id % 4 == spoken);
                    let had = model.iter().filter(|entry| entry.source == of).count();
                    let right = expected(&mut model, limits, (of, is_short, now), has_spoken);
                    let vacancy = places.ask(of, is_short, (now, PATIENCE), |id| !has_spoken(id));
                    prop_assert_eq!(vacancy, right);
                    match vacancy {
                        Vacancy::None => {
                            // What is promised: nobody silent has a place that a source below its limit is refused.
                            let is_silent = |entry: &Entry| !entry.is_kept && now - entry.since >= PATIENCE;
                            prop_assert!(had >= limits.most_of_source || !model.iter().any(is_silent));
                            continue;
                        }
                        Vacancy::Instead(id) => model.retain(|entry| entry.id != id),
                        Vacancy::Free => {}
                    }
                    places.add(made, of, now);
                    model.push(Entry { id: made, source: of, since: now, is_kept: false, is_old: false });
                    made += 1;
                    prop_assert!(places.len() <= limits.most);
                }
                Step::Keep(at) => if let Some(id) = chosen(at) {
                    places.keep(id);
                    model.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.is_kept = true);
                },
                Step::Remove(at) => if let Some(id) = chosen(at) {
                    places.remove(id);
                    model.retain(|entry| entry.id != id);
                },
                Step::Rename(at) => if let Some(id) = chosen(at) {
                    places.rename(id, made);
                    model.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.id = made);
                    made += 1;
                },
            }
            prop_assert_eq!(places.len(), model.len());
        }
        for entry in &model {
            places.remove(entry.id);
        }
        prop_assert!(places.is_empty());
    }
}
