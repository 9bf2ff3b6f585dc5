//! The report on this machine: what the transports themselves say, then what slows or limits them.

use std::fmt;

use serde::Serialize;
use uct_core::configuration::Value;
use uct_core::system::{cpu, net, pages, process};
use uct_core::{Context, Error, IfaceOptions, OpenError, Worker};
use uct_tools_common::Failure;

use super::finding::{Finding, Verdict};
use super::{memory, memory_limit, network, processors, verbs};
use crate::files::Files;
use crate::measured::{MeasuredTimes, State};

/// The section.
#[derive(Serialize)]
pub(crate) struct Machine {
    findings: Vec<Finding>,
}

impl Machine {
    pub(crate) fn of(context: &Context) -> Result<Machine, Failure> {
        let files = Files::below("/");
        let has_devices = !verbs::devices(&files).is_empty();
        let mut findings = of_plugins(context, has_devices);
        findings.extend(of_resources(context)?);
        findings.extend(verbs::examine(&files));
        findings.push(memory::locked(&files, pages::memlock_limit(), has_devices));
        let text = |section: &str, key: &str| context.config().value(section, key).map(|it| it.text.as_str());
        let permits =
            context.config().value("cma", "ptracer").is_some_and(|it| it.value == Value::Bool(true));
        findings.push(memory::of_others(&files, process::ptrace_scope(), permits));
        findings.push(memory::shared(&files, text("shm", "dir").unwrap_or("auto")));
        let free = pages::huge_pages().iter().map(|pool| pool.free).sum();
        findings.push(memory::pages(pages::transparent_huge_pages(), free));
        let takes_pool = text("posix", "hugetlb_mode").is_some_and(|mode| !matches!(mode, "no" | "n"));
        let shared = pages::shared_transparent_huge_pages();
        findings.push(memory::shared_pages(shared, free, takes_pool));
        findings.push(memory_limit::examine(&files));
        findings.extend(processors::examine(&files, &cpu::affinity()?));
        findings.extend(network::devices(&network_devices()?));
        findings.extend(network::settings(&files, text("tcp", "congestion").unwrap_or("auto")));
        findings.push(of_selection(&MeasuredTimes::of(context)));
        Ok(Machine { findings })
    }

    /// Why a program would miss a transport here, if it would.
    pub(crate) fn failure(&self) -> Option<String> {
        match self.findings.iter().filter(|finding| finding.verdict == Verdict::Obstacle).count() {
            0 => None,
            1 => Some("1 obstacle: see above".to_owned()),
            count => Some(format!("{count} obstacles: see above")),
        }
    }
}

/// Plugins and transports that are not there. Without a device, those for devices are absent, whatever they say; that there is none is
/// a finding of its own (`verbs`).
fn of_plugins(context: &Context, has_devices: bool) -> Vec<Finding> {
    let lacks_device = |name: &str| !has_devices && (name.ends_with("_verbs") || name == "rdmacm");
    let verdict = |name: &str| if lacks_device(name) { Verdict::Absent } else { Verdict::Obstacle };
    let failed = context.load_failures().iter().map(|failure| {
        let subject = if failure.name.is_empty() { "plugins" } else { &failure.name };
        Finding::new(verdict(&failure.name), subject, failure.to_string()).with_remedy(failure.hint())
    });
    // A connection manager alone has no transports, and is examined with an address.
    let absent =
        context.discovery().absent.iter().filter(|it| !it.is_excluded() || !it.transports.is_empty());
    let absent = absent.filter(|it| !(lacks_device(&it.component) && it.refused.status == Error::NO_DEVICE));
    let absent = absent.map(|absent| {
        let subject = if absent.transports.is_empty() {
            absent.component.clone()
        } else {
            absent.transports.join(", ")
        };
        let verdict = if absent.is_excluded() { Verdict::Absent } else { verdict(&absent.component) };
        Finding::refused(verdict, subject, &absent.refused)
    });
    failed.chain(absent).collect()
}

/// Opens every device once.
fn of_resources(context: &Context) -> Result<Vec<Finding>, Failure> {
    let worker = Worker::new(context)?;
    let mut findings: Vec<Finding> = Vec::new();
    for resource in context.resources() {
        let subject = resource.transport.clone();
        findings.push(match worker.open_resource(resource, IfaceOptions::default()) {
            Ok(_) => {
                let software = if resource.is_software { ", a software device for tests" } else { "" };
                let words = format!("{} opens{software}", resource.device);
                Finding::fine(subject, words)
            }
            Err(error @ OpenError::Excluded { .. }) => {
                Finding::new(Verdict::Absent, subject, error.to_string())
            }
            Err(OpenError::Refused(refused)) => Finding::refused(Verdict::Obstacle, subject, &refused),
            Err(error) => Finding::new(Verdict::Obstacle, subject, error.to_string()),
        });
    }
    Ok(findings)
}

/// The times that selection compares: the models do without any, but nothing replaces those that no longer count.
fn of_selection(times: &MeasuredTimes) -> Finding {
    let verdict = match times.state {
        State::Stale | State::Unusable => Verdict::Limit,
        State::Off | State::Absent | State::Used => Verdict::Fine,
    };
    Finding { remedy: times.remedy(), ..Finding::new(verdict, "selection", times.to_string()) }
}

fn network_devices() -> Result<Vec<network::Device>, Failure> {
    let devices = net::devices()?.into_iter();
    Ok(devices
        .map(|device| network::Device {
            is_loopback: device.kind == net::Kind::Loopback,
            is_running: device.is_up && device.is_running,
            has_address: !device.addresses.is_empty(),
            megabits: (device.speed.origin == net::Origin::Reported).then_some(device.speed.megabits),
            mtu: device.mtu,
            name: device.name,
        })
        .collect())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# This machine:")?;
        self.findings.iter().try_for_each(|finding| write!(f, "{finding}"))
    }
}
