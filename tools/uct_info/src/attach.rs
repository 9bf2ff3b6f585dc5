//! `--attach`: what the workers, interfaces and connections of a running process have done so far, and which processes there are.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use uct_core::attach::{
    self, AttachError, Attachable, ConnectionReport, IfaceReport, LatencyReport, Sent, Snapshot,
    TransferReport, WorkerState,
};
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

/// The section without a process.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Processes(Vec<Attachable>);

impl Processes {
    pub(crate) fn read() -> Result<Processes, AttachError> {
        attach::list().map(Processes)
    }
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return writeln!(
                f,
                "# No process of this user can be attached to: start one with UCT_ATTACH=yes"
            );
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(f, "{:>8}  {:<16}{:>8}  for", "pid", "program", "user")?;
        for Attachable { pid, program, user, since } in &self.0 {
            let age = now.saturating_sub(Duration::from_secs(*since)).as_secs();
            writeln!(f, "{pid:>8}  {:<16}{user:>8}  {}", Visible(program).to_string(), Age(age))?;
        }
        Ok(())
    }
}

/// Seconds, in the largest unit of which they have one.
struct Age(u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..60 => write!(f, "{seconds} s"),
            seconds @ 60..3600 => write!(f, "{} min", seconds / 60),
            seconds @ 3600..86400 => write!(f, "{} h", seconds / 3600),
            seconds => write!(f, "{} d", seconds / 86400),
        }
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
    report.interfaces.iter().try_for_each(|iface| write_iface(f, iface))?;
    if !report.connections.is_empty() {
        writeln!(f, "\n# Connections of worker {number}: {}", report.connections.len())?;
    }
    report.connections.iter().try_for_each(|connection| write_connection(f, connection))
}

fn write_connection(f: &mut fmt::Formatter<'_>, connection: &ConnectionReport) -> fmt::Result {
    let ConnectionReport { number, peer, peer_pid, transport, device, state, sent, transfers, .. } =
        connection;
    write!(f, "\nconnection {number} to {}", Visible(peer))?;
    if let Some(pid) = peer_pid {
        write!(f, " (process {pid})")?;
    }
    if !transport.is_empty() {
        write!(f, " over {transport}/{device}")?;
    }
    if connection.inside_tls {
        write!(f, " inside TLS")?;
    }
    write!(f, ": {state}")?;
    match &connection.failure {
        Some(failure) => writeln!(f, ": {}", Visible(failure))?,
        None => writeln!(f)?,
    }
    write_counts(f, sent.iter().filter(|sent| sent.operations > 0))?;
    write_count(f, "received", connection.received, connection.received_bytes)?;
    write!(f, "  in flight: {}", connection.in_flight)?;
    if let Some(waiting) = connection.waiting_ns {
        write!(f, ", the oldest for {:.1?}", Duration::from_nanos(waiting))?;
    }
    writeln!(f, "; messages that were not taken: {}", connection.unread)?;
    for TransferReport { kind, blocks, bytes, moved, age_ns } in transfers {
        let age = Duration::from_nanos(*age_ns);
        writeln!(
            f,
            "  transfer: {kind} of {blocks} blocks, {bytes} bytes: {moved} blocks have moved in {age:.1?}"
        )?;
    }
    Ok(())
}

fn write_counts<'a>(f: &mut fmt::Formatter<'_>, counts: impl IntoIterator<Item = &'a Sent>) -> fmt::Result {
    counts
        .into_iter()
        .try_for_each(|Sent { kind, operations, bytes }| write_count(f, kind, *operations, *bytes))
}

fn write_count(f: &mut fmt::Formatter<'_>, kind: &str, operations: u64, bytes: u64) -> fmt::Result {
    writeln!(f, "  {kind:<10}{operations:>16}{bytes:>20} bytes")
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
    write_counts(f, iface.sent.iter().filter(|sent| sent.operations > 0))?;
    write_count(f, "received", iface.received, iface.received_bytes)?;
    match &iface.served {
        Some(served) => {
            writeln!(f, "  operations of peers on memory of this process:")?;
            write_counts(f, served)?;
        }
        None => writeln!(f, "  operations of peers on memory of this process: not known to the transport")?,
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
