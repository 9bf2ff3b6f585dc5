//! The result of a run, as `--json` prints it. docs/tools.md documents the fields.

use serde::{Deserialize, Serialize};
use uct_core::select::Explanation;
use uct_core::{Iface, Resource, clock, system};

use crate::kind::{Class, Layout, Test, Wait};
use crate::options::Options;
use crate::plan::{Case, Plan};
use crate::run::{Measured, Times};

/// Of the JSON output. It grows when a field changes its meaning or goes; new fields do not change it.
pub(crate) const JSON_VERSION: u32 = 1;

/// A run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub schema: u32,
    pub version: String,
    pub test: Test,
    pub transport: String,
    pub device: String,
    /// The file the transport came from, or `built in`.
    pub origin: String,
    /// Why it was chosen.
    pub reason: String,
    pub wait: Wait,
    /// The connection manager that connected them; `null`: over TCP.
    #[serde(default)]
    pub by: Option<String>,
    /// Whether both sides were in one process.
    pub loopback: bool,
    /// Messages that the sender may be ahead; 0 is without limit.
    pub window: u32,
    pub outstanding: u32,
    pub host: Host,
    pub results: Vec<Outcome>,
    /// Sizes that were asked for and not measured.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

/// A size that the test or the transport does not take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub size: usize,
    pub reason: String,
}

/// Where it was measured: the client's machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Host {
    pub name: String,
    pub kernel: String,
    pub processor: String,
    /// Processors that the client was kept on; all it may use if none were given.
    pub cpus: Vec<usize>,
    /// What the times were read from.
    pub clock: String,
}

/// One size.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Bytes of a message without its header.
    pub size: usize,
    pub layout: Layout,
    pub iterations: u64,
    pub warmup: u64,
    /// Iterations that were timed together: a percentile is one of means of so many.
    pub batch: u64,
    /// Seconds of the measured part.
    pub seconds: f64,
    /// Of a message: half a round trip where the sides take turns, else the time from one to the next.
    pub latency: Latency,
    /// Messages a second.
    pub rate: Overall,
    /// Bytes a second.
    pub bandwidth: Overall,
    pub cpu: Cpu,
}

/// Nanoseconds of a message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub p50_ns: f64,
    pub p90_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    pub max_ns: f64,
    pub average_ns: f64,
}

/// A figure of the whole measured part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Overall {
    pub overall: f64,
}

/// Processor time of an iteration, in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cpu {
    pub client_ns: f64,
    /// `null` where both sides are one.
    pub server_ns: Option<f64>,
}

/// What is measured, and why that.
pub(crate) struct Chosen {
    pub resource: Resource,
    pub reason: String,
    pub explanation: String,
}

impl Chosen {
    pub(crate) fn of(iface: &Iface, explanation: &Explanation) -> Chosen {
        let resource = iface.resource().clone();
        let usable = explanation.candidates.iter().filter(|it| it.cost().is_some()).count();
        let cost = explanation.chosen().and_then(|chosen| chosen.cost().map(ToString::to_string));
        let among = match usable {
            0 | 1 => "the only one that will do".to_owned(),
            many => format!("the lowest estimate of {many} that would do"),
        };
        Chosen {
            reason: format!("{among}, from {}: {}", resource.origin, cost.unwrap_or_default()),
            explanation: explanation.to_string(),
            resource,
        }
    }
}

impl Record {
    pub(crate) fn of(options: &Options, plan: &Plan, chosen: Chosen, left_out: Vec<LeftOut>) -> Record {
        let Chosen { resource, reason, .. } = chosen;
        Record {
            schema: JSON_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            test: plan.test,
            origin: resource.origin.to_string(),
            transport: resource.transport,
            device: resource.device,
            reason,
            wait: plan.wait,
            by: options.by.clone(),
            loopback: options.loopback,
            window: plan.window,
            outstanding: plan.outstanding,
            host: Host {
                name: system::host::hostname(),
                kernel: system::host::kernel(),
                processor: system::cpu::model_name(),
                cpus: system::cpu::affinity().unwrap_or_default(),
                clock: if clock::uses_counter() { "time stamp counter" } else { "CLOCK_MONOTONIC" }
                    .to_owned(),
            },
            results: Vec::new(),
            left_out,
        }
    }
}

/// Messages one after the other that an iteration consists of.
pub(crate) fn messages_in_turn(test: Test) -> f64 {
    if test.is_ping_pong() { 2.0 } else { 1.0 }
}

impl Outcome {
    pub(crate) fn of(plan: &Plan, case: &Case, measured: &Measured) -> Outcome {
        let Measured { times, cpu_ns, server, .. } = measured;
        let messages = messages_in_turn(plan.test);
        let average_ns = times.mean() / messages;
        let rate = 1e9 / average_ns.max(1e-3);
        let per_iteration = |nanoseconds: u64| nanoseconds as f64 / case.iterations as f64;
        Outcome {
            size: case.size,
            layout: case.layout,
            iterations: times.iterations,
            warmup: case.warmup,
            batch: times.batch,
            seconds: times.seconds(),
            latency: Latency::of(times, messages, average_ns),
            rate: Overall { overall: rate },
            bandwidth: Overall { overall: rate * case.size as f64 },
            cpu: Cpu {
                client_ns: per_iteration(*cpu_ns),
                server_ns: server.map(|server| per_iteration(server.cpu_ns)),
            },
        }
    }

    /// What a comparison or a plot shows: bandwidth where that is what the test is for, else time.
    pub(crate) fn headline(&self, test: Test) -> Headline {
        match test {
            Test::AmBw | Test::PutBw | Test::GetBw | Test::StreamBw => {
                Headline::Bandwidth(self.bandwidth.overall)
            }
            Test::AmMr | Test::AddMr => Headline::Rate(self.rate.overall),
            _ => Headline::Latency(self.latency.p50_ns),
        }
    }
}

impl Latency {
    fn of(times: &Times, messages: f64, average_ns: f64) -> Latency {
        let quantile = |quantile| times.quantile(quantile) / messages;
        Latency {
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: times.max() / messages,
            average_ns,
        }
    }
}

/// The figure that a test is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Headline {
    /// Nanoseconds.
    Latency(f64),
    /// Bytes a second.
    Bandwidth(f64),
    /// Messages a second.
    Rate(f64),
}

impl Headline {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Headline::Latency(_) => "latency, median (us)",
            Headline::Bandwidth(_) => "bandwidth (MB/s)",
            Headline::Rate(_) => "rate (messages/s)",
        }
    }

    /// In the unit of its title.
    pub(crate) fn scaled(self) -> f64 {
        match self {
            Headline::Latency(nanoseconds) => nanoseconds / 1e3,
            Headline::Bandwidth(bytes) => bytes / 1e6,
            Headline::Rate(messages) => messages,
        }
    }

    /// Whether less is better.
    pub(crate) fn less_is_better(self) -> bool {
        matches!(self, Headline::Latency(_))
    }
}

/// What a message of a test is called in a title.
pub(crate) fn description(test: Test) -> &'static str {
    match test.class() {
        Class::Am => "active message",
        Class::Put => "put",
        Class::Get => "get",
        Class::Post => "atomic",
        Class::Fetch(_) => "fetching atomic",
        Class::Connect => "connection",
        Class::Await => "awaited message",
        Class::Stream => "stream",
    }
}
