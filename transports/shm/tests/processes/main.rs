//! Processes that share memory: in namespaces, asleep, killed, with memory that is freed.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod answers;
mod churn;
mod exec;
mod failures;
mod full;
mod namespaces;
mod private;
mod turns;
mod wakeup;
