//! What a callback may do to the arbiter that called it, and what becomes of what is dropped.

use ucs::datastruct::arbiter::*;

use super::*;
use crate::page::printed;
use crate::watched;

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
fn an_element_that_its_callback_queued_elsewhere_stays_there_whatever_the_answer() {
    watched(|| {
        for answer in [ArbiterResult::NextGroup, ArbiterResult::Deschedule, ArbiterResult::Stop] {
            let world = World::new(2);
            let element = world.push(0, 7);
            world.schedule(0);
            world.dispatch(1, |_, _| {
                push(world.group(1), element);
                answer
            });
            assert!(world.group_ref(0).is_empty() && !world.group_ref(0).is_scheduled());
            assert_eq!(world.contents(1), [7], "{answer:?}");
        }
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
fn a_group_that_is_scheduled_from_inside_and_loses_its_element_waits_for_its_next_turn() {
    watched(|| {
        let world = World::new(2);
        for (endpoint, number) in [(0, 0), (0, 1), (1, 2)] {
            world.push(endpoint, number);
        }
        world.schedule(0);
        world.schedule(1);
        let seen = world.dispatch(4, |_, number| {
            if number == 0 {
                world.schedule(0);
            }
            ArbiterResult::Remove
        });
        assert_eq!(seen, [(0, 0), (1, 2), (0, 1)]);
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
fn a_group_warns_of_the_elements_it_is_dropped_with() {
    for elements in 0..3 {
        let world = World::new(0);
        let endpoint = NonNull::from(Box::leak(Box::new(Endpoint { group: ArbiterGroup::new(), number: 0 })));
        for number in 0..elements {
            let element = world.work(number);
            push(endpoint.cast(), element);
            // SAFETY: the world keeps the element.
            assert_eq!(unsafe { element.as_ref() }.group(), Some(endpoint.cast()));
        }
        // SAFETY: the box was leaked above, and nothing else knows the group.
        let warnings = printed("warn", || drop(unsafe { Box::from_raw(endpoint.as_ptr()) }));
        assert_eq!(
            warnings.contains(&format!("elements={elements}")),
            elements > 0,
            "{elements}: {warnings}"
        );
        assert_eq!(warnings.is_empty(), elements == 0, "{warnings}");
    }
}

#[test]
fn an_arbiter_warns_of_the_groups_it_is_dropped_with() {
    for groups in 0..3 {
        let world = World::new(groups);
        let arbiter = Arbiter::new();
        for group in 0..groups {
            world.push(group, 0);
            schedule(&arbiter, world.group(group));
        }
        let warnings = printed("warn", || drop(arbiter));
        let expected = format!("they are taken off groups={groups}");
        assert_eq!(warnings.contains(&expected), groups > 0, "{groups}: {warnings}");
        assert_eq!(warnings.is_empty(), groups == 0, "{warnings}");
    }
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
