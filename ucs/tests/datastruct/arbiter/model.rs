//! The arbiter against queues without pointers.

use std::collections::VecDeque;

use proptest::prelude::*;
use ucs::datastruct::arbiter::*;

use super::*;

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
            while let Some(number) = self.groups[group].front().copied() {
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
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, ..crate::property::config() })]

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
