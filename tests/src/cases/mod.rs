//! The cases, by what they are about. Each file ends in the list of its own.
//!
//! For the runner. Built on `pair`, `message` and `remote`. A case names no transport: what it cannot use, it finds in
//! the attributes.

mod addresses;
mod am_conversations;
mod am_errors;
mod am_handlers;
mod am_sizes;
mod am_zcopy;
mod atomics;
mod capabilities;
mod closing;
mod completions;
mod counters;
mod events;
mod failure;
mod flush;
mod fork;
pub use fork::in_child;
mod get_short;
mod kept;
mod lifetime;
mod memory;
mod mix;
mod pending;
mod placed;
mod progress;
mod rma;
mod rma_apart;
mod rma_errors;

use crate::case::{Case, Needs};
use crate::setup::Setup;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    [
        addresses::CASES,
        am_conversations::CASES,
        am_errors::CASES,
        am_handlers::CASES,
        am_sizes::CASES,
        am_zcopy::CASES,
        atomics::CASES,
        capabilities::CASES,
        closing::CASES,
        completions::CASES,
        counters::CASES,
        events::CASES,
        failure::CASES,
        flush::CASES,
        fork::CASES,
        get_short::CASES,
        kept::CASES,
        lifetime::CASES,
        memory::CASES,
        mix::CASES,
        pending::CASES,
        placed::CASES,
        progress::CASES,
        rma::CASES,
        rma_apart::CASES,
        rma_errors::CASES,
    ]
    .into_iter()
    .flatten()
}

/// A case in one process that logs nothing.
const fn case(name: &'static str, needs: Needs, run: fn(&Setup)) -> Case {
    Case { name, needs, logs: Some(0), run, peer: None }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn no_two_cases_have_one_name_and_each_is_a_sentence() {
        let mut seen = HashSet::new();
        for case in super::all() {
            assert!(seen.insert(case.name), "{} is there twice", case.name);
            assert!(case.name.split(' ').count() >= 4, "{} is no sentence", case.name);
        }
    }
}
