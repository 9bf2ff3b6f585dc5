//! A snapshot in Prometheus' text exposition format, version 0.0.4.
//!
//! Used by `server`. All samples of a metric follow its HELP and TYPE lines. Labels of an interface are those that identify it, and its
//! transport and device.

use std::fmt::{self, Write};

use crate::attach::reply::{IfaceReport, LatencyReport, Sent, Snapshot, WorkerReport, WorkerState};

/// Bytes of the text.
pub(super) const MOST_BYTES: usize = 8 << 20;

/// A metric with one sample for each object: name, kind, meaning, value.
type Metric<T> = (&'static str, Kind, &'static str, fn(&T) -> u64);

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Summary,
    Untyped,
}

const OF_WORKERS: &[Metric<WorkerReport>] = &[
    (
        "uct_worker_callbacks",
        Kind::Gauge,
        "Callbacks that each progress calls: interfaces and connection managers.",
        |it| it.callbacks as u64,
    ),
    ("uct_worker_async_handlers", Kind::Gauge, "Timers and descriptors of the asynchronous context.", |it| {
        it.async_handlers as u64
    }),
    ("uct_worker_closing", Kind::Gauge, "Closed objects that end with the next progress.", |it| {
        it.closing as u64
    }),
];

const OF_INTERFACES: &[Metric<IfaceReport>] = &[
    ("uct_interface_driven", Kind::Gauge, "1 if the worker's progress drives the interface.", |it| {
        it.is_driven.into()
    }),
    ("uct_interface_endpoints", Kind::Gauge, "Open endpoints, failed ones included.", |it| it.endpoints),
    ("uct_interface_endpoints_closed_total", Kind::Counter, "Endpoints that were closed.", |it| it.closed),
    ("uct_interface_endpoints_failed_total", Kind::Counter, "Endpoints that failed.", |it| it.failed),
    ("uct_interface_pending_requests", Kind::Gauge, "Requests in the pending queues.", |it| {
        it.pending_requests
    }),
    ("uct_interface_no_resource_total", Kind::Counter, "Operations that returned NO_RESOURCE.", |it| {
        it.no_resource
    }),
    (
        "uct_interface_received_messages_total",
        Kind::Counter,
        "Active messages that a handler received.",
        |it| it.received,
    ),
    (
        "uct_interface_received_bytes_total",
        Kind::Counter,
        "Bytes of active messages that a handler received, headers included.",
        |it| it.received_bytes,
    ),
];

const OF_OPERATIONS: &[Metric<Sent>] = &[
    ("uct_interface_operations_total", Kind::Counter, "Operations that were accepted, by kind.", |it| {
        it.operations
    }),
    (
        "uct_interface_operation_bytes_total",
        Kind::Counter,
        "Bytes of the operations that were accepted, headers included, by kind.",
        |it| it.bytes,
    ),
];

/// The text that grows, up to its limit.
struct Text(String);

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MOST_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// The value of a label, between its quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

/// Nanoseconds, written as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        write!(f, "{seconds}.{rest:09}")
    }
}

/// An interface, and its labels.
struct Labelled<'a> {
    labels: String,
    iface: &'a IfaceReport,
}

/// The metrics of a process. Fails if they have more than [`MOST_BYTES`].
pub(super) fn render(snapshot: &Snapshot) -> Result<String, fmt::Error> {
    let mut text = Text(String::new());
    write_process(&mut text, snapshot)?;
    write_workers(&mut text, &snapshot.workers)?;
    let reported =
        snapshot.workers.iter().filter_map(|worker| Some((worker.number, worker.report.as_ref()?)));
    let interfaces = reported.flat_map(|(worker, report)| {
        report.interfaces.iter().map(move |iface| Labelled {
            labels: format!(
                "worker=\"{worker}\",interface=\"{}\",transport=\"{}\",device=\"{}\"",
                iface.number,
                Escaped(&iface.transport),
                Escaped(&iface.device)
            ),
            iface,
        })
    });
    write_interfaces(&mut text, &interfaces.collect::<Vec<_>>())?;
    Ok(text.0)
}

fn write_process(text: &mut Text, snapshot: &Snapshot) -> fmt::Result {
    let Snapshot { pid, program, version, .. } = snapshot;
    start(
        text,
        "uct_process_info",
        Kind::Gauge,
        "The process, and the version of uct-core there. Always 1.",
    )?;
    let (program, version) = (Escaped(program), Escaped(version));
    writeln!(text, "uct_process_info{{pid=\"{pid}\",program=\"{program}\",version=\"{version}\"}} 1")
}

fn write_workers(text: &mut Text, workers: &[WorkerState]) -> fmt::Result {
    start(text, "uct_worker_info", Kind::Gauge, "The thread that drives the worker. Always 1.")?;
    for WorkerState { number, thread, thread_name, .. } in workers {
        let thread_name = Escaped(thread_name);
        writeln!(
            text,
            "uct_worker_info{{worker=\"{number}\",thread=\"{thread}\",thread_name=\"{thread_name}\"}} 1"
        )?;
    }
    start(text, "uct_worker_responsive", Kind::Gauge, "1 if the worker made progress within a second.")?;
    for WorkerState { number, report, .. } in workers {
        writeln!(text, "uct_worker_responsive{{worker=\"{number}\"}} {}", u8::from(report.is_some()))?;
    }
    let reports = || workers.iter().filter_map(|worker| Some((worker.number, worker.report.as_ref()?)));
    let help = "Time from the request for metrics to the progress that served it.";
    start(text, "uct_worker_delay_seconds", Kind::Gauge, help)?;
    for (number, WorkerReport { delay_ns, .. }) in reports() {
        writeln!(text, "uct_worker_delay_seconds{{worker=\"{number}\"}} {}", Seconds(*delay_ns))?;
    }
    for &(name, kind, help, value) in OF_WORKERS {
        start(text, name, kind, help)?;
        for (number, report) in reports() {
            writeln!(text, "{name}{{worker=\"{number}\"}} {}", value(report))?;
        }
    }
    Ok(())
}

fn write_interfaces(text: &mut Text, interfaces: &[Labelled<'_>]) -> fmt::Result {
    let name = "uct_interface_info";
    start(text, name, Kind::Gauge, "The memory domain of the interface. Always 1.")?;
    for Labelled { labels, iface } in interfaces {
        writeln!(text, "{name}{{{labels},memory_domain=\"{}\"}} 1", Escaped(&iface.memory_domain))?;
    }
    for &(name, kind, help, value) in OF_INTERFACES {
        start(text, name, kind, help)?;
        for Labelled { labels, iface } in interfaces {
            writeln!(text, "{name}{{{labels}}} {}", value(iface))?;
        }
    }
    for &(name, kind, help, value) in OF_OPERATIONS {
        start(text, name, kind, help)?;
        for Labelled { labels, iface } in interfaces {
            for sent in &iface.sent {
                writeln!(text, "{name}{{{labels},kind=\"{}\"}} {}", Escaped(&sent.kind), value(sent))?;
            }
        }
    }
    write_latencies(text, interfaces)?;
    let name = "uct_interface_transport_counter";
    start(
        text,
        name,
        Kind::Untyped,
        "The transport's own counters; the page of the transport has the meaning.",
    )?;
    for Labelled { labels, iface } in interfaces {
        for (index, counter) in iface.counters.iter().enumerate() {
            // A plugin may have one twice, and a sample must be unique.
            if iface.counters[..index].iter().all(|earlier| earlier.name != counter.name) {
                writeln!(
                    text,
                    "{name}{{{labels},counter=\"{}\"}} {}",
                    Escaped(&counter.name),
                    counter.value
                )?;
            }
        }
    }
    Ok(())
}

/// The times of operations. A process without latency histograms does not have this metric.
fn write_latencies(text: &mut Text, interfaces: &[Labelled<'_>]) -> fmt::Result {
    if interfaces.iter().all(|labelled| labelled.iface.latencies.is_empty()) {
        return Ok(());
    }
    let name = "uct_interface_operation_duration_seconds";
    let help = "Time of an operation from its post to its completion, by kind.";
    start(text, name, Kind::Summary, help)?;
    for Labelled { labels, iface } in interfaces {
        for latency in &iface.latencies {
            let LatencyReport { kind, operations, p50_ns, p90_ns, p99_ns, p999_ns, mean_ns, .. } = latency;
            let quantiles = [("0.5", p50_ns), ("0.9", p90_ns), ("0.99", p99_ns), ("0.999", p999_ns)];
            let labels = format!("{labels},kind=\"{}\"", Escaped(kind));
            for (quantile, value) in quantiles {
                writeln!(text, "{name}{{{labels},quantile=\"{quantile}\"}} {}", Seconds(*value))?;
            }
            writeln!(text, "{name}_sum{{{labels}}} {}", Seconds(mean_ns.saturating_mul(*operations)))?;
            writeln!(text, "{name}_count{{{labels}}} {operations}")?;
        }
    }
    Ok(())
}

/// The lines ahead of the samples of a metric.
fn start(text: &mut Text, name: &str, kind: Kind, help: &str) -> fmt::Result {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Summary => "summary",
        Kind::Untyped => "untyped",
    };
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}
