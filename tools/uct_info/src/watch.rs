//! `--attach PID --watch SECONDS`: what a running process does, as rates between two reports.

use std::collections::HashMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use uct_core::attach::{self, AttachError, ConnectionReport, IfaceReport, Sent, Snapshot};
use uct_tools_common::text::Visible;
use uct_tools_common::{Failure, output};

/// Operations and bytes in a second.
#[derive(Clone, Copy, Debug, Serialize)]
struct Rate {
    operations: f64,
    bytes: f64,
}

/// What the interfaces and connections of a process did between two reports.
#[derive(Debug, Serialize)]
pub(crate) struct Rates {
    pid: u32,
    program: String,
    /// From one report to the other.
    seconds: f64,
    interfaces: Vec<IfaceRates>,
    connections: Vec<ConnectionRates>,
}

/// Of an interface, or a connection.
#[derive(Debug, Serialize)]
struct Traffic {
    messages_sent: Rate,
    messages_received: Rate,
    put: Rate,
    get: Rate,
}

#[derive(Debug, Serialize)]
struct IfaceRates {
    worker: u64,
    number: u64,
    transport: String,
    device: String,
    #[serde(flatten)]
    traffic: Traffic,
    /// What peers read from memory of the process, and wrote to it; `None` where the transport does not know.
    served: Option<Served>,
}

#[derive(Debug, Serialize)]
struct Served {
    read: Rate,
    written: Rate,
}

#[derive(Debug, Serialize)]
struct ConnectionRates {
    number: u64,
    peer: String,
    transport: String,
    device: String,
    state: String,
    #[serde(flatten)]
    traffic: Traffic,
    in_flight: u64,
    waiting_ns: Option<u64>,
}

/// A count at a time.
#[derive(Clone, Copy, Default)]
struct Count {
    operations: u64,
    bytes: u64,
}

/// Prints the rates of a process each time that so many seconds have passed: `count` times, or until the process has ended. Blocks.
pub(crate) fn run(pid: u32, every: Duration, count: Option<u64>, as_json: bool) -> Result<(), Failure> {
    let (mut before, mut read_at) = (attach::read(pid)?, Instant::now());
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        thread::sleep((read_at + every).saturating_duration_since(Instant::now()));
        let after = attach::read(pid).map_err(|error| ended(pid, error))?;
        let now = Instant::now();
        let rates = Rates::between(&before, &after, now - read_at);
        let text = match as_json {
            true => format!("{}\n", serde_json::json!({ "schema": super::JSON_VERSION, "rates": rates })),
            false => rates.to_string(),
        };
        output(&text)?;
        (before, read_at) = (after, now);
        left -= 1;
    }
    Ok(())
}

/// A process that could be attached to a moment ago.
fn ended(pid: u32, error: AttachError) -> Failure {
    match error {
        AttachError::NoProcess { .. } | AttachError::NotEnabled { .. } | AttachError::Stale { .. } => {
            format!("process {pid} has ended, or has closed its last context").into()
        }
        other => other.into(),
    }
}

/// The counts of one report.
struct Counts<'a> {
    sent: &'a [Sent],
    received: Count,
}

impl Counts<'_> {
    fn of_iface(iface: &IfaceReport) -> Counts<'_> {
        let received = Count { operations: iface.received, bytes: iface.received_bytes };
        Counts { sent: &iface.sent, received }
    }

    fn of_connection(connection: &ConnectionReport) -> Counts<'_> {
        let received = Count { operations: connection.received, bytes: connection.received_bytes };
        Counts { sent: &connection.sent, received }
    }

    /// From an earlier report, or from nothing, to this one.
    fn since(&self, before: Option<Counts<'_>>, seconds: f64) -> Traffic {
        let before = before.unwrap_or(Counts { sent: &[], received: Count::default() });
        let sent = |wanted: fn(&str) -> bool| {
            of_kind(self.sent, wanted).since(of_kind(before.sent, wanted), seconds)
        };
        Traffic {
            messages_sent: sent(is_message),
            messages_received: self.received.since(before.received, seconds),
            put: sent(|kind| kind == "put"),
            get: sent(|kind| kind == "get"),
        }
    }
}

impl Count {
    fn since(self, before: Count, seconds: f64) -> Rate {
        Rate {
            operations: self.operations.saturating_sub(before.operations) as f64 / seconds,
            bytes: self.bytes.saturating_sub(before.bytes) as f64 / seconds,
        }
    }
}

impl Rates {
    fn between(before: &Snapshot, after: &Snapshot, time: Duration) -> Rates {
        let seconds = time.as_secs_f64();
        let earlier: HashMap<_, _> = interfaces(before).collect();
        let interfaces = interfaces(after).map(|(key @ (worker, number), iface)| {
            let before = earlier.get(&key).copied();
            let served = |wanted: &str| {
                let of = |iface: &IfaceReport| Some(of_kind(iface.served.as_deref()?, |kind| kind == wanted));
                Some(of(iface)?.since(before.and_then(of).unwrap_or_default(), seconds))
            };
            IfaceRates {
                worker,
                number,
                transport: iface.transport.clone(),
                device: iface.device.clone(),
                traffic: Counts::of_iface(iface).since(before.map(Counts::of_iface), seconds),
                served: served("get").zip(served("put")).map(|(read, written)| Served { read, written }),
            }
        });
        let interfaces = interfaces.collect();
        let earlier: HashMap<_, _> = connections(before).map(|it| (it.number, it)).collect();
        let connections = connections(after).map(|it| {
            let before = earlier.get(&it.number).copied();
            ConnectionRates {
                number: it.number,
                peer: it.peer.clone(),
                transport: it.transport.clone(),
                device: it.device.clone(),
                state: it.state.clone(),
                traffic: Counts::of_connection(it).since(before.map(Counts::of_connection), seconds),
                in_flight: it.in_flight,
                waiting_ns: it.waiting_ns,
            }
        });
        let connections = connections.collect();
        Rates { pid: after.pid, program: after.program.clone(), seconds, interfaces, connections }
    }
}

/// Of a snapshot, each by the numbers of its worker and of itself.
fn interfaces(snapshot: &Snapshot) -> impl Iterator<Item = ((u64, u64), &IfaceReport)> {
    let reports = snapshot.workers.iter().filter_map(|worker| Some((worker.number, worker.report.as_ref()?)));
    reports.flat_map(|(worker, report)| {
        report.interfaces.iter().map(move |iface| ((worker, iface.number), iface))
    })
}

fn connections(snapshot: &Snapshot) -> impl Iterator<Item = &ConnectionReport> {
    let reports = snapshot.workers.iter().filter_map(|worker| worker.report.as_ref());
    reports.flat_map(|report| &report.connections)
}

/// The operations of some kinds.
fn of_kind(sent: &[Sent], wanted: impl Fn(&str) -> bool) -> Count {
    sent.iter().filter(|sent| wanted(&sent.kind)).fold(Count::default(), |sum, sent| Count {
        operations: sum.operations + sent.operations,
        bytes: sum.bytes + sent.bytes,
    })
}

/// Whether a kind of operation is an active message.
fn is_message(kind: &str) -> bool {
    kind.starts_with("am_")
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rates { pid, program, seconds, interfaces, connections } = self;
        writeln!(f, "# Process {pid} ({}), {seconds:.2} s", Visible(program))?;
        for iface in interfaces {
            let IfaceRates { transport, device, traffic, served, .. } = iface;
            write!(f, "{:<24} {traffic}", format!("{transport}/{device}"))?;
            match served {
                Some(Served { read, written }) => writeln!(f, "  peers read {read}  wrote {written}")?,
                None => writeln!(f, "  peers read and wrote: not known to the transport")?,
            }
        }
        for connection in connections {
            let ConnectionRates { peer, transport, device, state, traffic, .. } = connection;
            write!(f, "  {} over {transport}/{device}, {state}: {traffic}", Visible(peer))?;
            write!(f, "  in flight {}", connection.in_flight)?;
            if let Some(waiting) = connection.waiting_ns {
                write!(f, " for {:.1?}", Duration::from_nanos(waiting))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic { messages_sent, messages_received, put, get } = self;
        write!(f, "sent {messages_sent}  received {messages_received}  put {put}  get {get}")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7}B/s {:>6}/s", scaled(self.bytes), scaled(self.operations))
    }
}

/// A number with three digits and a prefix, such as `1.23 M`.
fn scaled(value: f64) -> String {
    let mut value = value;
    for prefix in ["", "k", "M", "G"] {
        // 999.5 would be printed with four digits.
        if value < 999.5 {
            let digits = if value < 9.995 && value > 0.0 {
                2
            } else if value < 99.95 && value > 0.0 {
                1
            } else {
                0
            };
            return format!("{value:.digits$} {prefix}");
        }
        value /= 1000.0;
    }
    format!("{value:.0} T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_prefix() {
        let rows = [
            (0.0, "0 "),
            (0.5, "0.50 "),
            (9.994, "9.99 "),
            (9.996, "10.0 "),
            (99.96, "100 "),
            (999.4, "999 "),
            (999.6, "1.00 k"),
            (123_456.0, "123 k"),
            (5.1e9, "5.10 G"),
            (2e12, "2 T"),
        ];
        for (value, expected) in rows {
            assert_eq!(scaled(value), expected, "{value}");
        }
    }
}
