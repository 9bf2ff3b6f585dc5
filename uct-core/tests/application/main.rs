//! What an application sees of workers, memory, messages, reports and the log.

mod allocation;
mod am_parts;
mod latencies;
mod log_without_subscriber;
mod multi_domain;
mod reports;
mod yields;
