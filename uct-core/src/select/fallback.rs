//! Whether a choice is a fall back: something nearer or faster would have been there, but for an impediment.
//!
//! A transport whose device is not in the machine, whose peer is on another machine, or which the user excluded is no
//! loss. One that refuses to open, or whose peer is behind an obstacle, is; and one that serves too few endpoints, unless another transport
//! on its device is chosen.

use super::explain::{Candidate, Explanation};
use super::verdict::{Stage, Verdict};
use crate::resource::DeviceKind;

/// What fell back to what, and why.
pub(super) fn warning(explanation: &Explanation) -> Option<String> {
    let chosen = explanation.chosen()?;
    let lost: Vec<String> = explanation
        .candidates
        .iter()
        .filter(|candidate| is_nearer_or_other_network(candidate, chosen))
        .filter_map(|candidate| match &candidate.verdict {
            Verdict::Rejected { stage, check, hint } if is_loss(*stage, candidate, chosen) => {
                Some(format!("{} ({check} → {hint})", candidate.name()))
            }
            _ => None,
        })
        .collect();
    if lost.is_empty() {
        return None;
    }
    Some(format!("fell back to {}, slower than {} would be", chosen.name(), lost.join(", ")))
}

fn is_loss(stage: Stage, candidate: &Candidate, chosen: &Candidate) -> bool {
    match stage {
        Stage::Open | Stage::Impeded => true,
        Stage::Endpoints => candidate.device != chosen.device,
        _ => false,
    }
}

fn is_nearer_or_other_network(candidate: &Candidate, chosen: &Candidate) -> bool {
    match (candidate.device_kind, chosen.device_kind) {
        (Some(candidate_kind), Some(chosen_kind)) => {
            candidate_kind < chosen_kind
                || (candidate_kind == DeviceKind::Network
                    && chosen_kind == DeviceKind::Network
                    && candidate.transport != chosen.transport)
        }
        _ => false,
    }
}
