//! `--attach`: what the workers and interfaces of a running process have done so far.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use uct_core::attach::{self, AttachError, IfaceReport, LatencyReport, Snapshot, WorkerState};
use uct_tools_common::text::Visible;

/// The section.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Process(Snapshot);

impl Process {
    pub(crate) fn read(pid: u32) -> Result<Process, AttachError> {
        attach::read(pid).map(Process)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Snapshot { pid, program, version, workers, .. } = &self.0;
        let (program, version) = (Visible(program), Visible(version));
        writeln!(f, "# Process {pid} ({program}), version {version}, workers: {}", workers.len())?;
        workers.iter().try_for_each(|worker| write_worker(f, worker))
    }
}

fn write_worker(f: &mut fmt::Formatter<'_>, worker: &WorkerState) -> fmt::Result {
    let WorkerState { number, thread, thread_name, report } = worker;
    write!(f, "#\n# Worker {number}, thread {thread}")?;
    if !thread_name.is_empty() {
        write!(f, " ({})", Visible(thread_name))?;
    }
    let Some(report) = report else {
        return writeln!(f, ": makes no progress (none within a second)");
    };
    let delay = Duration::from_nanos(report.delay_ns);
    writeln!(f, ": made progress after {delay:?}")?;
    writeln!(
        f,
        "# Progress callbacks: {}, asynchronous handlers: {}, objects that wait to be closed: {}",
        report.callbacks, report.async_handlers, report.closing
    )?;
    report.interfaces.iter().try_for_each(|iface| write_iface(f, iface))
}

fn write_iface(f: &mut fmt::Formatter<'_>, iface: &IfaceReport) -> fmt::Result {
    let IfaceReport { transport, device, memory_domain, endpoints, closed, failed, .. } = iface;
    let driven = if iface.is_driven { "" } else { ", not driven by progress" };
    writeln!(f, "\n{transport}/{device}, memory domain {memory_domain}{driven}")?;
    writeln!(f, "  endpoints: {endpoints} open, {closed} closed, {failed} failed")?;
    writeln!(
        f,
        "  pending requests: {}, operations without room: {}",
        iface.pending_requests, iface.no_resource
    )?;
    let sent = iface.sent.iter().filter(|sent| sent.operations > 0);
    let sent = sent.map(|sent| (sent.kind.as_str(), sent.operations, sent.bytes));
    for (kind, operations, bytes) in sent.chain([("received", iface.received, iface.received_bytes)]) {
        writeln!(f, "  {kind:<10}{operations:>16}{bytes:>20} bytes")?;
    }
    for latency in &iface.latencies {
        let LatencyReport { kind, operations, .. } = latency;
        let [mean, p50, p90, p99, p999, max] = [
            latency.mean_ns,
            latency.p50_ns,
            latency.p90_ns,
            latency.p99_ns,
            latency.p999_ns,
            latency.max_ns,
        ]
        .map(Duration::from_nanos);
        writeln!(
            f,
            "  {kind:<10}{operations:>16} completed: mean {mean:.1?}, p50 {p50:.1?}, p90 {p90:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, max {max:.1?}"
        )?;
    }
    let counters: Vec<String> =
        iface.counters.iter().map(|counter| format!("{} {}", counter.name, counter.value)).collect();
    if !counters.is_empty() {
        writeln!(f, "  {transport}: {}", counters.join(", "))?;
    }
    Ok(())
}
