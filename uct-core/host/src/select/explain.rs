//! Every candidate with its verdict, for readers and for programs.

use std::fmt;

use serde::Serialize;

use super::cost::Cost;
use super::rank::EQUAL;
use super::request::Request;
use super::verdict::Verdict;
use crate::resource::{DeviceKind, Resource};

/// A transport on a device, or a transport that has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The transport, or the plugin that would bring it.
    pub transport: String,
    /// The device, where there is one.
    pub device: Option<String>,
    /// What the device connects.
    pub kind: Option<&'static str>,
    /// The file it came from, or that it is built in.
    pub origin: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Whether the device is software inside this process.
    pub is_software: bool,
    #[serde(skip)]
    pub(super) device_kind: Option<DeviceKind>,
}

/// Every candidate for a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// What was asked for.
    pub request: Request,
    /// The chosen one first, then the usable ones from cheap to dear, then the others.
    pub candidates: Vec<Candidate>,
    /// What fell back to what, and why; `None` if the choice is no fall back.
    pub fallback: Option<String>,
}

impl Candidate {
    pub(super) fn of(resource: &Resource, verdict: Verdict) -> Candidate {
        Candidate {
            transport: resource.transport.clone(),
            device: Some(resource.device.clone()),
            kind: Some(resource.kind.name()),
            origin: Some(resource.origin.to_string()),
            verdict,
            is_software: resource.is_software,
            device_kind: Some(resource.kind),
        }
    }

    pub(super) fn named(transport: &str, verdict: Verdict) -> Candidate {
        let transport = if transport.is_empty() { "(plugin)" } else { transport }.to_owned();
        Candidate {
            transport,
            device: None,
            kind: None,
            origin: None,
            verdict,
            is_software: false,
            device_kind: None,
        }
    }

    /// Its cost, if it would do.
    pub fn cost(&self) -> Option<&Cost> {
        self.verdict.cost()
    }

    /// Transport and device: `tcp/eth0`.
    pub fn name(&self) -> String {
        match &self.device {
            Some(device) => format!("{}/{device}", self.transport),
            None => self.transport.clone(),
        }
    }

    pub(super) fn choose(&mut self) {
        if let Verdict::Usable(cost) = self.verdict {
            self.verdict = Verdict::Chosen(cost);
        }
    }

    fn rank(&self) -> (u8, f64) {
        match &self.verdict {
            Verdict::Chosen(cost) => (0, cost.total),
            Verdict::Usable(cost) => (1, cost.total),
            Verdict::Rejected { .. } => (2, 0.0),
        }
    }
}

impl Explanation {
    /// The chosen candidate.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| matches!(candidate.verdict, Verdict::Chosen(_)))
    }

    pub(super) fn sort(&mut self) {
        self.candidates.sort_by(|left, right| {
            left.rank().partial_cmp(&right.rank()).unwrap_or(std::cmp::Ordering::Equal)
        });
    }

    /// The reasons of those that were rejected, on one line.
    pub fn why_none(&self) -> String {
        if self.candidates.is_empty() {
            return "no transport is loaded; uct_info -v lists where plugins are looked for, and UCT_MODULE_DIR adds a directory".to_owned();
        }
        let reasons = self.candidates.iter().filter_map(|candidate| match &candidate.verdict {
            Verdict::Rejected { check, .. } => Some(format!("{}: {check}", candidate.name())),
            _ => None,
        });
        reasons.collect::<Vec<_>>().join("; ")
    }
}

/// One line a candidate.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = self.chosen().and_then(|chosen| Some((chosen.name(), chosen.cost()?.total)));
        let width = self.candidates.iter().map(|candidate| candidate.name().len()).max().unwrap_or(0);
        for candidate in &self.candidates {
            let name = candidate.name();
            match &candidate.verdict {
                Verdict::Chosen(cost) => write!(f, "CHOSEN    {name:width$}  {cost}")?,
                Verdict::Usable(cost) => {
                    write!(f, "USABLE    {name:width$}  {cost}")?;
                    // Its measured time counts as equal, and something else decided.
                    if let Some((chosen, total)) = &chosen
                        && cost.total < *total
                    {
                        let percent = (EQUAL - 1.0) * 100.0;
                        write!(f, "; {chosen} takes at most {percent:.0} % more and counts as equal")?;
                    }
                }
                Verdict::Rejected { stage, check, hint } => {
                    let stage = format!("{stage:?}").to_lowercase();
                    write!(f, "REJECTED  {name:width$}  {stage}: {check} ({hint})")?;
                }
            }
            writeln!(f, "{}", if candidate.is_software { "; software device" } else { "" })?;
        }
        Ok(())
    }
}
