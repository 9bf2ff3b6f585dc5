//! The order in which groups are served, for every result.

use ucs::datastruct::arbiter::*;

use super::*;
use crate::watched;

#[test]
fn the_header_leaves_room_in_a_pending_request() {
    assert_eq!(size_of::<ArbiterElement>(), 16);
    assert_eq!(size_of::<ArbiterGroup>(), 24);
    assert_eq!(size_of::<Arbiter>(), 8);
}

#[test]
fn zeroed_memory_is_an_element_that_is_not_queued() {
    // SAFETY: the type promises that all zeros are valid.
    let element: ArbiterElement = unsafe { std::mem::zeroed() };
    assert!(!element.is_queued());
    assert!(element.group().is_none());
}

#[test]
fn elements_of_a_group_are_served_in_order() {
    watched(|| {
        let world = World::new(1);
        for number in 0..5 {
            world.push(0, number);
        }
        world.schedule(0);
        assert_eq!(world.drain(), (0..5).map(|number| (0, number)).collect::<Vec<_>>());
        assert!(world.group_ref(0).is_empty() && !world.group_ref(0).is_scheduled());
        assert!(world.arbiter.is_empty());
    });
}

#[test]
fn groups_take_turns_of_a_batch_each() {
    watched(|| {
        for endpoints in if cfg!(miri) { [2, 5] } else { [16, 128] } {
            for per_group in [1, 2, 3, 7] {
                let world = World::new(endpoints);
                for endpoint in 0..endpoints {
                    for number in 0..6 {
                        world.push(endpoint, number);
                    }
                    world.schedule(endpoint);
                }
                let mut expected = Vec::new();
                for first in (0..6).step_by(per_group as usize) {
                    for endpoint in 0..endpoints {
                        let batch = first..(first + per_group).min(6);
                        expected.extend(batch.map(|number| (endpoint, number)));
                    }
                }
                assert_eq!(world.dispatch(per_group, |_, _| ArbiterResult::Remove), expected);
            }
        }
    });
}

#[test]
fn a_batch_of_zero_counts_as_one() {
    watched(|| {
        let world = World::new(2);
        for (endpoint, number) in [(0, 0), (0, 1), (1, 0)] {
            world.push(endpoint, number);
        }
        world.schedule(0);
        world.schedule(1);
        assert_eq!(world.dispatch(0, |_, _| ArbiterResult::Remove), [(0, 0), (1, 0), (0, 1)]);
    });
}

#[test]
fn next_group_keeps_the_element_and_comes_back_in_the_same_dispatch() {
    watched(|| {
        let world = World::new(2);
        world.push(0, 10);
        world.push(0, 11);
        world.push(1, 20);
        world.schedule(0);
        world.schedule(1);
        let mut refusals = 2;
        let seen = world.dispatch(5, |_, number| {
            if number == 10 && refusals > 0 {
                refusals -= 1;
                return ArbiterResult::NextGroup;
            }
            ArbiterResult::Remove
        });
        assert_eq!(seen, [(0, 10), (1, 20), (0, 10), (0, 10), (0, 11)]);
    });
}

#[test]
fn reschedule_waits_for_the_next_dispatch() {
    watched(|| {
        let world = World::new(3);
        for endpoint in 0..3 {
            world.push(endpoint, 0);
            world.push(endpoint, 1);
            world.schedule(endpoint);
        }
        let seen = world.dispatch(1, |endpoint, _| match endpoint {
            1 => ArbiterResult::Reschedule,
            _ => ArbiterResult::Remove,
        });
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)]);
        assert!(!world.arbiter.is_empty() && world.group_ref(1).is_scheduled());
        assert_eq!(world.drain(), [(1, 0), (1, 1)]);
    });
}

#[test]
fn deschedule_keeps_the_element_until_the_group_is_scheduled_again() {
    watched(|| {
        let world = World::new(2);
        world.push(0, 0);
        world.push(1, 0);
        world.schedule(0);
        world.schedule(1);
        let seen = world.dispatch(1, |endpoint, _| match endpoint {
            0 => ArbiterResult::Deschedule,
            _ => ArbiterResult::Remove,
        });
        assert_eq!(seen, [(0, 0), (1, 0)]);
        assert!(world.arbiter.is_empty() && !world.group_ref(0).is_empty());
        assert_eq!(world.drain(), []);
        world.schedule(0);
        assert_eq!(world.drain(), [(0, 0)]);
    });
}

#[test]
fn stop_keeps_its_position() {
    watched(|| {
        let world = World::new(4);
        for endpoint in 0..4 {
            world.push(endpoint, 0);
            world.push(endpoint, 1);
            world.schedule(endpoint);
        }
        let seen = world.dispatch(1, |endpoint, _| match endpoint {
            0 => ArbiterResult::Reschedule,
            2 => ArbiterResult::Stop,
            _ => ArbiterResult::Remove,
        });
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0)]);
        // The group that stopped is first, those behind it follow, those that were served come after, and the one that
        // was put off is last.
        assert_eq!(world.drain(), [(2, 0), (3, 0), (1, 1), (0, 0), (2, 1), (3, 1), (0, 1)]);
    });
}

#[test]
fn an_element_pushed_to_the_head_is_served_first() {
    watched(|| {
        let world = World::new(2);
        world.push_head(0, 1);
        world.push(0, 2);
        world.push_head(0, 0);
        world.push(1, 0);
        world.schedule(0);
        world.schedule(1);
        world.push_head(0, 9);
        assert_eq!(world.drain(), [(0, 9), (1, 0), (0, 0), (0, 1), (0, 2)]);
    });
}

#[test]
fn pushing_what_is_queued_and_scheduling_what_is_scheduled_do_nothing() {
    watched(|| {
        let world = World::new(2);
        let element = world.push(0, 1);
        push(world.group(0), element);
        push(world.group(1), element);
        world.schedule(0);
        world.schedule(0);
        world.schedule(1);
        assert_eq!(world.group_ref(0).len(), 1);
        assert!(world.group_ref(1).is_empty() && !world.group_ref(1).is_scheduled());
        assert_eq!(world.drain(), [(0, 1)]);
    });
}
