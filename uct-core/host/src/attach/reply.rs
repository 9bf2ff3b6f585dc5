//! What a process reports: one JSON document.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// Of [`Snapshot::schema`]. It grows when a field changes its meaning or goes; new fields do not change it.
pub(super) const SCHEMA: u32 = 1;

/// All that the socket carries: a snapshot, or why there is none.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// To a process of the same user.
    Snapshot(Snapshot),
    /// To all others: the reason.
    Refused(String),
}

/// What a process has done so far.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Of the fields: 1.
    pub schema: u32,
    /// The process.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub program: String,
    /// The version of this library there.
    pub version: String,
    /// Its workers, in the order in which they were made.
    pub workers: Vec<WorkerState>,
}

/// A worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct WorkerState {
    /// Counts the workers of the process from 1.
    pub number: u64,
    /// The thread that made it and drives it.
    pub thread: u32,
    /// The name of that thread; empty if it has none.
    pub thread_name: String,
    /// `None` if the worker made no progress within a second.
    pub report: Option<WorkerReport>,
}

/// What a worker reports from inside progress.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct WorkerReport {
    /// Nanoseconds from the request to the progress that served it.
    pub delay_ns: u64,
    /// Callbacks that each progress calls: one for each interface or connection manager that it drives.
    pub callbacks: usize,
    /// Timers and descriptors of its asynchronous context.
    pub async_handlers: usize,
    /// Objects that were closed inside a handler and end with the next progress.
    pub closing: usize,
    /// Its open interfaces.
    pub interfaces: Vec<IfaceReport>,
    /// Connections of libraries above it, such as `uct-net`.
    #[serde(default)]
    pub connections: Vec<ConnectionReport>,
}

/// An open interface. The counts include those of endpoints that are closed by now.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct IfaceReport {
    /// Counts the interfaces that its worker has opened, from 1; 0 if an earlier version reports it.
    #[serde(default)]
    pub number: u64,
    /// Its transport.
    pub transport: String,
    /// Its device.
    pub device: String,
    /// Its memory domain.
    pub memory_domain: String,
    /// Whether the worker's progress drives it.
    pub is_driven: bool,
    /// Endpoints that are open, failed ones included.
    pub endpoints: u64,
    /// Endpoints that were closed.
    pub closed: u64,
    /// Endpoints that failed, closed ones included.
    pub failed: u64,
    /// Requests in the pending queues of all its endpoints.
    pub pending_requests: u64,
    /// Operations that returned `NO_RESOURCE`.
    pub no_resource: u64,
    /// Operations that were accepted, by kind.
    pub sent: Vec<Sent>,
    /// Active messages that a handler received.
    pub received: u64,
    /// Bytes of these, headers included.
    pub received_bytes: u64,
    /// Operations of other processes on memory of this one, by kind (`put`, `get`, `atomic`): those that the interface has carried out.
    /// `None` where the transport does not know, because a device, the kernel or the peer itself accesses the memory.
    #[serde(default)]
    pub served: Option<Vec<Sent>>,
    /// The transport's own counters.
    pub counters: Vec<TransportCounter>,
    /// Times of its operations, if the process has the key `latency_histograms`.
    #[serde(default)]
    pub latencies: Vec<LatencyReport>,
}

/// Operations of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// `am_short`, `put`, …
    pub kind: String,
    /// How many were accepted.
    pub operations: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// A connection. Its counts are those of its endpoint, and so of the messages of the transport, with what the library adds to each.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ConnectionReport {
    /// Counts the connections that the process has begun, from 1.
    pub number: u64,
    /// The peer's address, as text for humans.
    pub peer: String,
    /// The process of the peer, if the system has named it: at the other end of a Unix path.
    pub peer_pid: Option<u32>,
    /// The transport that it uses; empty before one was chosen.
    pub transport: String,
    /// Its device.
    pub device: String,
    /// Whether what it carries is inside TLS.
    pub inside_tls: bool,
    /// The [`IfaceReport::number`] of the interface; 0 before one was chosen.
    pub interface: u64,
    /// `connecting`, `open`, `closing` or `failed`. One whose handles are gone is contained until the peer has all that was sent.
    pub state: String,
    /// Why it has failed.
    pub failure: Option<String>,
    /// Operations that were accepted, by kind.
    pub sent: Vec<Sent>,
    /// Messages that have arrived.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Messages that have arrived whole, and that the program has not taken.
    pub unread: u64,
    /// Operations that have begun and not ended: messages that have not left, puts, gets, atomics and flushes, transfers.
    pub in_flight: u64,
    /// Age of the oldest of them, in nanoseconds.
    pub waiting_ns: Option<u64>,
    /// Transfers of blocks under way.
    pub transfers: Vec<TransferReport>,
}

/// A transfer of blocks.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct TransferReport {
    /// `put` or `get`.
    pub kind: String,
    /// Its blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that have moved so far.
    pub moved: u64,
    /// Nanoseconds since it was started.
    pub age_ns: u64,
}

/// A counter of a transport. Its page in the documentation has the meaning.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct TransportCounter {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// Times of one kind of operation from post to completion, in nanoseconds: see [`crate::Latency`].
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct LatencyReport {
    /// `put`, `get`, …
    pub kind: String,
    /// Completions.
    pub operations: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % took at most this.
    pub p90_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The mean.
    pub mean_ns: u64,
}

impl From<Latency> for LatencyReport {
    fn from(latency: Latency) -> LatencyReport {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        LatencyReport {
            kind: latency.kind.to_owned(),
            operations: latency.operations,
            p50_ns: nanoseconds(latency.p50),
            p90_ns: nanoseconds(latency.p90),
            p99_ns: nanoseconds(latency.p99),
            p999_ns: nanoseconds(latency.p999),
            max_ns: nanoseconds(latency.max),
            mean_ns: nanoseconds(latency.mean),
        }
    }
}
