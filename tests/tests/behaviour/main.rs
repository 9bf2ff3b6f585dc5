//! What the suite cannot ask of every transport, because it is about one of them, about the process, or about programs.

#[path = "../../../ucs/testing/alone.rs"]
mod alone;
#[path = "../../../ucs/testing/copy.rs"]
mod copy;
#[path = "../../../ucs/testing/port.rs"]
mod port;
#[allow(dead_code, reason = "a part of it is for other tests")]
#[path = "../../../tools/common/testing/process.rs"]
mod process;
#[path = "../support/programs.rs"]
mod programs;
#[path = "../../../ucs/testing/seed.rs"]
mod seed;
#[path = "../../../ucs/testing/skip.rs"]
mod skip;
#[path = "../support/tcp.rs"]
mod support;

mod attributes;
mod edges;
mod few_resources;
mod idle_interfaces;
mod reports_after_fork;
mod tcp_adopted;
mod tcp_connections;
mod tcp_queue;
