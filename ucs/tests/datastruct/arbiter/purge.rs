//! Emptying groups, also from inside.

use ucs::datastruct::arbiter::*;

use super::*;
use crate::watched;

#[test]
fn purge_calls_once_per_element_and_empties_the_group() {
    watched(|| {
        let world = World::new(3);
        for endpoint in 0..3 {
            for number in 0..4 {
                world.push(endpoint, number);
            }
            world.schedule(endpoint);
        }
        let mut seen = Vec::new();
        purge(world.group(1), |element| {
            assert!(!is_queued(element));
            seen.push(number(element));
        });
        assert_eq!(seen, [0, 1, 2, 3]);
        assert!(world.group_ref(1).is_empty() && !world.group_ref(1).is_scheduled());
        purge(world.group(1), |_| panic!("an empty group has nothing to purge"));
        assert!(world.drain().iter().all(|(endpoint, _)| *endpoint != 1));
    });
}

#[test]
fn purge_keeps_what_the_callback_wants_in_order() {
    watched(|| {
        for count in 0..6u32 {
            for removed in 0..1u32 << count {
                let world = World::new(1);
                for number in 0..count {
                    world.push(0, number);
                }
                world.schedule(0);
                let mut asked = 0;
                let decide = |element| {
                    asked += 1;
                    removed >> number(element) & 1 == 1
                };
                // SAFETY: the callback frees nothing.
                unsafe { ArbiterGroup::purge_if(world.group(0), decide) };
                assert_eq!(asked, count);
                let kept: Vec<_> = (0..count).filter(|number| removed >> number & 1 == 0).collect();
                assert_eq!(world.group_ref(0).len(), kept.len());
                assert_eq!(world.group_ref(0).is_scheduled(), !kept.is_empty());
                assert!(
                    world
                        .work
                        .borrow()
                        .iter()
                        .all(|work| { is_queued(work.cast()) == kept.contains(&number(work.cast())) })
                );
                assert_eq!(world.drain(), kept.into_iter().map(|number| (0, number)).collect::<Vec<_>>());
            }
        }
    });
}

#[test]
fn what_a_purge_callback_pushes_stays_behind_what_is_kept() {
    watched(|| {
        let world = World::new(1);
        for number in 0..4 {
            world.push(0, number);
        }
        let decide = |element| {
            push(world.group(0), world.work(number(element) + 10));
            number(element).is_multiple_of(2)
        };
        // SAFETY: the callback frees nothing.
        unsafe { ArbiterGroup::purge_if(world.group(0), decide) };
        assert_eq!(world.contents(0), [1, 3, 10, 11, 12, 13]);
    });
}

#[test]
fn a_callback_may_purge_its_own_group() {
    watched(|| {
        for result in [ArbiterResult::Remove, ArbiterResult::Deschedule] {
            for keeps_odd in [false, true] {
                let world = World::new(1);
                for number in 0..4 {
                    world.push(0, number);
                }
                world.schedule(0);
                let mut purged = Vec::new();
                let seen = world.dispatch(1, |_, number_now| {
                    if number_now != 0 {
                        return ArbiterResult::Deschedule;
                    }
                    world.push_head(0, 50);
                    let decide = |element| {
                        purged.push(number(element));
                        !(keeps_odd && number(element) % 2 == 1)
                    };
                    // SAFETY: the callback frees nothing.
                    unsafe { ArbiterGroup::purge_if(world.group(0), decide) };
                    world.push(0, 100);
                    result
                });
                assert_eq!(purged, [50, 1, 2, 3]);
                let mut expected = if keeps_odd { vec![1, 3, 100] } else { vec![100] };
                match result {
                    ArbiterResult::Remove => assert_eq!(seen, [(0, 0), (0, expected[0])]),
                    _ => {
                        assert_eq!(seen, [(0, 0)]);
                        expected.insert(0, 0);
                    }
                }
                assert_eq!(world.contents(0), expected);
            }
        }
    });
}
