//! `--explain`: what would be chosen, with the reasons for every candidate. It is the selection's own account.

use std::fmt;

use serde::Serialize;
use uct_core::select::{Explanation, PeerAddresses, Request, Selector};
use uct_core::{Context, Fallback};

use crate::measured::{MeasuredTimes, State};

/// The section.
#[derive(Serialize)]
pub(crate) struct Explained {
    /// Transport and device; `null` if nothing can be chosen.
    chosen: Option<String>,
    #[serde(flatten)]
    explanation: Explanation,
    measured_times: MeasuredTimes,
    #[serde(skip)]
    fallback_forbidden: bool,
    #[serde(skip)]
    is_for_a_peer: bool,
}

impl Explained {
    pub(crate) fn of(
        selector: &Selector,
        context: &Context,
        request: &Request,
        peer: Option<&PeerAddresses>,
    ) -> Explained {
        let explanation = selector.explain(request, peer);
        Explained {
            chosen: explanation.chosen().map(|candidate| candidate.name()),
            fallback_forbidden: context.core_config().fallback == Fallback::Error,
            is_for_a_peer: peer.is_some(),
            measured_times: match peer {
                Some(_) => MeasuredTimes::with_peer(context, &explanation),
                None => MeasuredTimes::of(context),
            },
            explanation,
        }
    }

    /// Why an application would get an error here, if it would.
    pub(crate) fn failure(&self) -> Option<String> {
        let request = &self.explanation.request;
        match (&self.chosen, &self.explanation.fallback) {
            (None, _) => Some(format!("no transport for {request}; the reasons are above")),
            (Some(_), Some(fallback)) if self.fallback_forbidden => {
                Some(format!("{fallback}; fallback = error forbids it"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}:", self.explanation.request)?;
        if !self.is_for_a_peer {
            writeln!(
                f,
                "# No peer is named, so every transport counts as leading to it, and self, which leads to this process, is in the list."
            )?;
            writeln!(
                f,
                "# --peer-address explains what leads to another process; --set tls=^self leaves self out."
            )?;
        }
        if !matches!(self.measured_times.state, State::Off | State::Absent) {
            write!(f, "# {}", self.measured_times)?;
            match self.measured_times.remedy() {
                Some(remedy) => writeln!(f, " ({remedy})")?,
                None => writeln!(f)?,
            }
        }
        write!(f, "{}", self.explanation)?;
        match &self.explanation.fallback {
            Some(fallback) => writeln!(f, "FALLBACK  {fallback}"),
            None => Ok(()),
        }
    }
}
