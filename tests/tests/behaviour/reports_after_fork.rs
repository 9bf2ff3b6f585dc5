//! Reports of a process that forks: the child has none of its parent's workers, and those of a context of its own.

use crate::alone::is_alone;
use uct_conformance::in_child;
use uct_core::configuration::Sources;
use uct_core::{Context, Worker};

fn context() -> Context {
    let sources = Sources::default().set("modules", "self");
    Context::builder().sources(sources).reports().build().expect("a context")
}

fn pid_and_workers(context: &Context) -> Option<(u32, usize)> {
    context.report().map(|report| (report.pid, report.workers.len()))
}

#[test]
fn a_child_has_the_reports_of_its_own_context_alone() {
    if !is_alone() {
        return;
    }
    let parent = context();
    let _worker = Worker::new(&parent).expect("a worker");
    let own = std::process::id();
    assert_eq!(pid_and_workers(&parent), Some((own, 1)));
    let parent = in_child(parent, |parent| {
        assert_eq!(pid_and_workers(parent), None, "the workers are the parent's");
        let child = context();
        let _worker = Worker::new(&child).expect("a worker");
        assert_eq!(pid_and_workers(&child), Some((std::process::id(), 1)));
    });
    assert_eq!(pid_and_workers(&parent), Some((own, 1)));
}
