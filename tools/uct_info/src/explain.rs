//! `--explain`: what would be chosen, with the reasons for every candidate. It is the selection's own account.

use std::fmt;

use serde::Serialize;
use uct_core::select::{Explanation, PeerAddresses, Request, Selector};
use uct_core::{Context, Fallback};

/// The section.
#[derive(Serialize)]
pub(crate) struct Explained {
    /// Transport and device; `null` if nothing can be chosen.
    chosen: Option<String>,
    #[serde(flatten)]
    explanation: Explanation,
    #[serde(skip)]
    fallback_forbidden: bool,
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
        write!(f, "{}", self.explanation)?;
        match &self.explanation.fallback {
            Some(fallback) => writeln!(f, "FALLBACK  {fallback}"),
            None => Ok(()),
        }
    }
}
