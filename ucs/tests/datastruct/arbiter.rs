//! Fairness, order, every result, purging, and what callbacks may do from inside.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;

use proptest::prelude::*;
use ucs::datastruct::arbiter::{Arbiter, ArbiterElement, ArbiterGroup, ArbiterResult};

use crate::watched;

/// A piece of work: the element first, so that a pointer to one is a pointer to the other.
#[repr(C)]
struct Work {
    element: ArbiterElement,
    number: u32,
}

/// An endpoint, likewise.
#[repr(C)]
struct Endpoint {
    group: ArbiterGroup,
    number: usize,
}

/// Owns endpoints and work, at fixed addresses.
struct World {
    arbiter: Arbiter,
    endpoints: Vec<NonNull<Endpoint>>,
    work: RefCell<Vec<NonNull<Work>>>,
}

impl World {
    fn new(endpoints: usize) -> World {
        let endpoint =
            |number| NonNull::from(Box::leak(Box::new(Endpoint { group: ArbiterGroup::new(), number })));
        let endpoints = (0..endpoints).map(endpoint).collect();
        World { arbiter: Arbiter::new(), endpoints, work: RefCell::default() }
    }

    fn work(&self, number: u32) -> NonNull<ArbiterElement> {
        let work = NonNull::from(Box::leak(Box::new(Work { element: ArbiterElement::new(), number })));
        self.work.borrow_mut().push(work);
        work.cast()
    }

    fn group(&self, endpoint: usize) -> NonNull<ArbiterGroup> {
        self.endpoints[endpoint].cast()
    }

    fn group_ref(&self, endpoint: usize) -> &ArbiterGroup {
        // SAFETY: endpoints live as long as the world.
        unsafe { self.group(endpoint).as_ref() }
    }

    fn push(&self, endpoint: usize, number: u32) -> NonNull<ArbiterElement> {
        let element = self.work(number);
        push(self.group(endpoint), element);
        element
    }

    fn push_head(&self, endpoint: usize, number: u32) -> NonNull<ArbiterElement> {
        let element = self.work(number);
        // SAFETY: both live as long as the world.
        unsafe { ArbiterGroup::push_head(self.group(endpoint), element) };
        element
    }

    fn schedule(&self, endpoint: usize) {
        schedule(&self.arbiter, self.group(endpoint));
    }

    /// Dispatches, and answers the endpoints and numbers that the callback saw.
    fn dispatch(
        &self,
        per_group: u32,
        mut decide: impl FnMut(usize, u32) -> ArbiterResult,
    ) -> Vec<(usize, u32)> {
        let mut seen = Vec::new();
        self.arbiter.dispatch(per_group, |_, group, element| {
            let at = (endpoint_number(group), number(element));
            seen.push(at);
            decide(at.0, at.1)
        });
        seen
    }

    fn drain(&self) -> Vec<(usize, u32)> {
        self.dispatch(1, |_, _| ArbiterResult::Remove)
    }

    /// The numbers in a group, which is emptied.
    fn contents(&self, endpoint: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        purge(self.group(endpoint), |element| seen.push(number(element)));
        seen
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for endpoint in &self.endpoints {
            purge(endpoint.cast(), |_| {});
            // SAFETY: `new` leaked the box, and nothing uses the endpoint any more.
            drop(unsafe { Box::from_raw(endpoint.as_ptr()) });
        }
        for work in self.work.get_mut() {
            // SAFETY: `work` leaked the box, and no group holds it any more.
            drop(unsafe { Box::from_raw(work.as_ptr()) });
        }
    }
}

fn push(group: NonNull<ArbiterGroup>, element: NonNull<ArbiterElement>) {
    // SAFETY: the tests keep groups and elements in place.
    unsafe { ArbiterGroup::push(group, element) };
}

fn schedule(arbiter: &Arbiter, group: NonNull<ArbiterGroup>) {
    // SAFETY: the tests keep groups in place.
    unsafe { arbiter.schedule(group) };
}

fn purge(group: NonNull<ArbiterGroup>, callback: impl FnMut(NonNull<ArbiterElement>)) {
    // SAFETY: the tests' callbacks do not free the group.
    unsafe { ArbiterGroup::purge(group, callback) };
}

fn number(element: NonNull<ArbiterElement>) -> u32 {
    // SAFETY: every element of these tests is the first field of a `Work`, and was pushed by a pointer to all of it.
    unsafe { element.cast::<Work>().as_ref() }.number
}

fn endpoint_number(group: NonNull<ArbiterGroup>) -> usize {
    // SAFETY: every group of these tests is the first field of an `Endpoint`, likewise.
    unsafe { group.cast::<Endpoint>().as_ref() }.number
}

fn is_queued(element: NonNull<ArbiterElement>) -> bool {
    // SAFETY: elements live as long as their world.
    unsafe { element.as_ref() }.is_queued()
}

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
        for endpoints in [16, 128] {
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

#[test]
fn a_removed_element_can_be_queued_again_at_once() {
    watched(|| {
        let world = World::new(1);
        world.push(0, 0);
        world.push(0, 1);
        world.schedule(0);
        let mut rounds = 0;
        let mut seen = Vec::new();
        world.arbiter.dispatch(1, |_, group, element| {
            assert!(!is_queued(element));
            seen.push(number(element));
            rounds += 1;
            if rounds <= 4 {
                push(group, element);
            }
            ArbiterResult::Remove
        });
        assert_eq!(seen, [0, 1, 0, 1, 0, 1]);
    });
}

#[test]
fn a_callback_may_free_its_element() {
    watched(|| {
        let world = World::new(1);
        for number in 0..3 {
            let work = Box::leak(Box::new(Work { element: ArbiterElement::new(), number }));
            push(world.group(0), NonNull::from(work).cast());
        }
        world.schedule(0);
        let mut freed = 0;
        world.arbiter.dispatch(2, |_, _, element| {
            // SAFETY: the box was leaked above, and an element in its callback is not queued.
            drop(unsafe { Box::from_raw(element.cast::<Work>().as_ptr()) });
            freed += 1;
            ArbiterResult::Remove
        });
        assert_eq!(freed, 3);
    });
}

#[test]
fn a_group_counts_as_not_empty_while_its_last_element_is_dispatched() {
    watched(|| {
        let world = World::new(1);
        world.push(0, 0);
        world.schedule(0);
        world.dispatch(1, |_, _| {
            assert!(!world.group_ref(0).is_empty());
            assert!(!world.group_ref(0).is_scheduled());
            assert_eq!(world.group_ref(0).len(), 0);
            ArbiterResult::Remove
        });
        assert!(world.group_ref(0).is_empty());
    });
}

#[test]
fn what_a_callback_pushes_comes_behind_an_element_that_is_kept() {
    watched(|| {
        let world = World::new(1);
        world.push(0, 0);
        world.schedule(0);
        let mut first = true;
        let seen = world.dispatch(1, |_, _| {
            if std::mem::take(&mut first) {
                world.push(0, 1);
                return ArbiterResult::NextGroup;
            }
            ArbiterResult::Remove
        });
        assert_eq!(seen, [(0, 0), (0, 0), (0, 1)]);
    });
}

#[test]
fn what_a_callback_pushes_to_the_head_comes_ahead_of_an_element_that_is_kept() {
    watched(|| {
        for others in 0..3 {
            for pushed in 1..4 {
                let world = World::new(1);
                for number in 0..=others {
                    world.push(0, number);
                }
                world.schedule(0);
                world.dispatch(1, |_, _| {
                    for number in 0..pushed {
                        world.push_head(0, 100 + number);
                    }
                    ArbiterResult::Deschedule
                });
                let expected: Vec<_> =
                    (0..pushed).rev().map(|number| 100 + number).chain(0..=others).collect();
                assert_eq!(world.contents(0), expected);
            }
        }
    });
}

#[test]
fn what_a_callback_pushes_to_the_head_is_served_when_its_element_goes() {
    watched(|| {
        let world = World::new(1);
        world.push(0, 0);
        world.push(0, 1);
        world.schedule(0);
        let mut first = true;
        let seen = world.dispatch(1, |_, _| {
            if std::mem::take(&mut first) {
                world.push_head(0, 7);
            }
            ArbiterResult::Remove
        });
        assert_eq!(seen, [(0, 0), (0, 7), (0, 1)]);
    });
}

#[test]
fn a_group_can_move_to_another_arbiter_from_inside() {
    watched(|| {
        for elements in [1, 3] {
            let world = World::new(42);
            let other = Arbiter::new();
            for endpoint in 0..42 {
                for number in 0..elements {
                    world.push(endpoint, number);
                }
                world.schedule(endpoint);
            }
            let mut moved = 0;
            world.arbiter.dispatch(1, |_, group, _| {
                moved += 1;
                schedule(&other, group);
                ArbiterResult::Deschedule
            });
            assert_eq!(moved, 42);
            assert!(world.arbiter.is_empty());
            let mut served = 0;
            other.dispatch(1, |_, _, _| {
                served += 1;
                ArbiterResult::Remove
            });
            assert_eq!(served, 42 * elements);
        }
    });
}

#[test]
fn a_scheduling_from_inside_gives_way_to_the_answer_unless_that_is_deschedule() {
    watched(|| {
        let answers = [ArbiterResult::NextGroup, ArbiterResult::Reschedule, ArbiterResult::Stop];
        for answer in answers {
            let world = World::new(1);
            let other = Arbiter::new();
            world.push(0, 0);
            world.schedule(0);
            let mut asked = false;
            world.arbiter.dispatch(1, |_, group, _| {
                if std::mem::replace(&mut asked, true) {
                    return ArbiterResult::Remove;
                }
                schedule(&other, group);
                answer
            });
            assert!(other.is_empty(), "{answer:?}");
            assert_eq!(world.drain().len(), usize::from(answer != ArbiterResult::NextGroup), "{answer:?}");
        }
    });
}

#[test]
fn a_scheduling_from_inside_of_a_group_that_becomes_empty_is_undone() {
    watched(|| {
        let world = World::new(1);
        world.push(0, 0);
        world.schedule(0);
        world.dispatch(4, |_, _| {
            world.schedule(0);
            ArbiterResult::Remove
        });
        assert!(world.arbiter.is_empty() && !world.group_ref(0).is_scheduled());
    });
}

#[test]
fn a_group_can_be_descheduled_and_scheduled_again() {
    watched(|| {
        let world = World::new(3);
        for endpoint in 0..3 {
            world.push(endpoint, 0);
        }
        world.group_ref(0).deschedule();
        for endpoint in 0..3 {
            world.schedule(endpoint);
        }
        world.group_ref(1).deschedule();
        world.group_ref(1).deschedule();
        assert_eq!(world.drain(), [(0, 0), (2, 0)]);
        assert_eq!(world.group_ref(1).len(), 1);
        world.schedule(1);
        assert_eq!(world.drain(), [(1, 0)]);
    });
}

#[test]
fn a_callback_may_deschedule_another_group() {
    watched(|| {
        let world = World::new(3);
        for endpoint in 0..3 {
            world.push(endpoint, 0);
            world.schedule(endpoint);
        }
        let seen = world.dispatch(1, |endpoint, _| {
            match endpoint {
                0 => return ArbiterResult::Reschedule,
                1 => {
                    world.group_ref(0).deschedule();
                    world.group_ref(2).deschedule();
                }
                _ => {}
            }
            ArbiterResult::Remove
        });
        assert_eq!(seen, [(0, 0), (1, 0)]);
        assert!(world.arbiter.is_empty());
    });
}

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
            number(element) % 2 == 0
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

#[test]
fn a_callback_may_dispatch_again() {
    watched(|| {
        let world = World::new(3);
        for endpoint in 0..3 {
            world.push(endpoint, 0);
            world.push(endpoint, 1);
            world.schedule(endpoint);
        }
        let mut inner = Vec::new();
        let mut depth = 0;
        let outer = world.dispatch(1, |endpoint, _| {
            if depth == 0 {
                depth = 1;
                world.schedule(endpoint);
                inner = world.drain();
            }
            ArbiterResult::Remove
        });
        // The group in its turn is left alone by the inner dispatch, and goes on in the outer one.
        assert_eq!(inner, [(1, 0), (2, 0), (1, 1), (2, 1)]);
        assert_eq!(outer, [(0, 0), (0, 1)]);
    });
}

#[test]
fn a_callback_may_free_its_group() {
    watched(|| {
        for result in [
            ArbiterResult::Remove,
            ArbiterResult::NextGroup,
            ArbiterResult::Deschedule,
            ArbiterResult::Reschedule,
            ArbiterResult::Stop,
        ] {
            let world = World::new(1);
            let endpoint =
                NonNull::from(Box::leak(Box::new(Endpoint { group: ArbiterGroup::new(), number: 9 })));
            let first = world.work(0);
            let second = world.work(1);
            push(endpoint.cast(), first);
            push(endpoint.cast(), second);
            world.push(0, 5);
            schedule(&world.arbiter, endpoint.cast());
            world.schedule(0);
            let mut seen = Vec::new();
            world.arbiter.dispatch(3, |_, group, element| {
                seen.push(number(element));
                if endpoint_number(group) == 9 {
                    // SAFETY: the box was leaked above; nothing but the arbiter knows the group.
                    drop(unsafe { Box::from_raw(group.cast::<Endpoint>().as_ptr()) });
                    return result;
                }
                ArbiterResult::Remove
            });
            assert_eq!(seen, [0, 5], "{result:?}");
            assert!(!is_queued(first) && !is_queued(second));
            assert!(world.arbiter.is_empty());
        }
    });
}

#[test]
fn dropping_a_group_takes_it_off_and_releases_its_elements() {
    watched(|| {
        let world = World::new(2);
        let endpoint = NonNull::from(Box::leak(Box::new(Endpoint { group: ArbiterGroup::new(), number: 9 })));
        world.push(0, 0);
        world.push(1, 1);
        let element = world.work(2);
        push(endpoint.cast(), element);
        world.schedule(0);
        schedule(&world.arbiter, endpoint.cast());
        world.schedule(1);
        // SAFETY: the box was leaked above; nothing but the arbiter knows the group.
        drop(unsafe { Box::from_raw(endpoint.as_ptr()) });
        assert!(!is_queued(element));
        assert_eq!(world.drain(), [(0, 0), (1, 1)]);
    });
}

#[test]
fn dropping_an_arbiter_takes_its_groups_off() {
    watched(|| {
        let world = World::new(1);
        let arbiter = Arbiter::new();
        world.push(0, 0);
        schedule(&arbiter, world.group(0));
        drop(arbiter);
        assert!(!world.group_ref(0).is_scheduled());
        world.schedule(0);
        assert_eq!(world.drain(), [(0, 0)]);
    });
}

#[test]
fn a_panicking_callback_leaves_everything_consistent() {
    watched(|| {
        let world = World::new(3);
        for endpoint in 0..3 {
            world.push(endpoint, 0);
            world.push(endpoint, 1);
            world.schedule(endpoint);
        }
        let panicking = std::panic::AssertUnwindSafe(|| {
            world.dispatch(1, |endpoint, _| match endpoint {
                0 => ArbiterResult::Reschedule,
                _ => std::panic::resume_unwind(Box::new("a planted failure")),
            })
        });
        std::panic::catch_unwind(panicking).unwrap_err();
        assert_eq!(world.drain(), [(2, 0), (0, 0), (2, 1), (0, 1)]);
        assert_eq!(world.contents(1), [1]);
    });
}

/// What the property test does to an arbiter and to its model.
#[derive(Clone, Debug)]
enum Step {
    Push(usize, bool),
    Schedule(usize),
    Deschedule(usize),
    Purge(usize),
    Dispatch(u32, Vec<u8>),
}

const GROUPS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..GROUPS, any::<bool>()).prop_map(|(group, head)| Step::Push(group, head)),
        3 => (0..GROUPS).prop_map(Step::Schedule),
        1 => (0..GROUPS).prop_map(Step::Deschedule),
        1 => (0..GROUPS).prop_map(Step::Purge),
        2 => (1..4u32, proptest::collection::vec(0..10u8, 0..12)).prop_map(|(per, answers)| Step::Dispatch(per, answers)),
    ]
}

/// The answer to the `index`th call of a dispatch; removal once the list is used up, so that it ends.
fn answer(answers: &[u8], index: usize) -> ArbiterResult {
    match answers.get(index) {
        Some(0) => ArbiterResult::NextGroup,
        Some(1) => ArbiterResult::Deschedule,
        Some(2) => ArbiterResult::Reschedule,
        Some(3) => ArbiterResult::Stop,
        _ => ArbiterResult::Remove,
    }
}

/// Queues without pointers.
#[derive(Default)]
struct Model {
    groups: [VecDeque<u32>; GROUPS],
    scheduled: VecDeque<usize>,
}

impl Model {
    fn dispatch(&mut self, per_group: u32, answers: &[u8]) -> Vec<(usize, u32)> {
        let mut seen = Vec::new();
        let mut later = Vec::new();
        'all: while let Some(group) = self.scheduled.pop_front() {
            let mut left = per_group;
            loop {
                let Some(number) = self.groups[group].front().copied() else { break };
                if left == 0 {
                    self.scheduled.push_back(group);
                    break;
                }
                left -= 1;
                let answer = answer(answers, seen.len());
                seen.push((group, number));
                match answer {
                    ArbiterResult::Remove => {
                        self.groups[group].pop_front();
                        continue;
                    }
                    ArbiterResult::NextGroup => self.scheduled.push_back(group),
                    ArbiterResult::Deschedule => {}
                    ArbiterResult::Reschedule => later.push(group),
                    ArbiterResult::Stop => {
                        self.scheduled.push_front(group);
                        break 'all;
                    }
                }
                break;
            }
        }
        self.scheduled.extend(later);
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_a_model_of_queues_does(steps in proptest::collection::vec(step(), 1..60)) {
        let world = World::new(GROUPS);
        let mut model = Model::default();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Push(group, true) => {
                    world.push_head(group, number);
                    model.groups[group].push_front(number);
                }
                Step::Push(group, false) => {
                    world.push(group, number);
                    model.groups[group].push_back(number);
                }
                Step::Schedule(group) => {
                    world.schedule(group);
                    if !model.groups[group].is_empty() && !model.scheduled.contains(&group) {
                        model.scheduled.push_back(group);
                    }
                }
                Step::Deschedule(group) => {
                    world.group_ref(group).deschedule();
                    model.scheduled.retain(|scheduled| *scheduled != group);
                }
                Step::Purge(group) => {
                    prop_assert_eq!(VecDeque::from(world.contents(group)), std::mem::take(&mut model.groups[group]));
                    model.scheduled.retain(|scheduled| *scheduled != group);
                }
                Step::Dispatch(per_group, answers) => {
                    let mut calls = 0;
                    let seen = world.dispatch(per_group, |_, _| {
                        calls += 1;
                        answer(&answers, calls - 1)
                    });
                    prop_assert_eq!(seen, model.dispatch(per_group, &answers));
                }
            }
            for group in 0..GROUPS {
                prop_assert_eq!(world.group_ref(group).len(), model.groups[group].len());
                prop_assert_eq!(world.group_ref(group).is_scheduled(), model.scheduled.contains(&group));
            }
        }
    }
}
