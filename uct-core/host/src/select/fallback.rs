//! Whether a choice is a fall back: something nearer or faster would have been there, but for an impediment.
//!
//! A transport whose device is not in the machine, whose peer is on another machine, or which the user excluded is no
//! loss. One that refuses to open, or whose peer is behind an obstacle, is; and one that serves too few endpoints, unless another transport
//! on its device is chosen.

use super::EXCLUDED;
use super::explain::{Candidate, Explanation};
use super::peer::NOT_OFFERED;
use super::verdict::{Stage, Verdict};
use crate::resource::DeviceKind;

/// What fell back to what, and why.
pub(super) fn warning(explanation: &Explanation) -> Option<String> {
    let (chosen, lost) = lost(explanation)?;
    Some(format!("fell back to {}, slower than {} would be", chosen.name(), listed(&lost)))
}

/// What has to be removed, of a choice that is a fall back. What a transport says about the peer is no part of it: many peers may be behind
/// one obstacle.
pub(super) fn cause(explanation: &Explanation) -> Option<String> {
    let (chosen, lost) = lost(explanation)?;
    let causes = lost.iter().filter_map(|candidate| match &candidate.verdict {
        Verdict::Rejected { stage: Stage::Impeded, hint, .. } => {
            Some(format!("{} {hint}\n", candidate.name()))
        }
        Verdict::Rejected { check, .. } => Some(format!("{} {check}\n", candidate.name())),
        _ => None,
    });
    Some(format!("{}\n{}", chosen.transport, causes.collect::<String>()))
}

/// The choice, and what was lost; `None` if nothing was.
fn lost(explanation: &Explanation) -> Option<(&Candidate, Vec<&Candidate>)> {
    let chosen = explanation.chosen()?;
    let is_lost = |candidate: &&Candidate| match &candidate.verdict {
        Verdict::Rejected { stage, .. } => {
            // One made of software is for tests, and no faster than what it stands for.
            !candidate.is_software
                && is_nearer_or_other_network(candidate, chosen)
                && is_loss(*stage, candidate, chosen, explanation)
        }
        _ => false,
    };
    let lost: Vec<&Candidate> = explanation.candidates.iter().filter(is_lost).collect();
    (!lost.is_empty()).then_some((chosen, lost))
}

/// Candidates with their reasons. Those with the same reason are together.
pub(super) fn listed(lost: &[&Candidate]) -> String {
    let mut groups: Vec<(Vec<String>, String)> = Vec::new();
    for candidate in lost {
        let Verdict::Rejected { check, hint, .. } = &candidate.verdict else { continue };
        let reason = format!("{check} → {hint}");
        match groups.iter_mut().find(|(_, of_group)| *of_group == reason) {
            Some((names, _)) => names.push(candidate.name()),
            None => groups.push((vec![candidate.name()], reason)),
        }
    }
    let groups = groups.iter().map(|(names, reason)| format!("{} ({reason})", names.join(" and ")));
    groups.collect::<Vec<_>>().join(", ")
}

fn is_loss(stage: Stage, candidate: &Candidate, chosen: &Candidate, explanation: &Explanation) -> bool {
    match stage {
        // What does not open has not seen the peer. Another transport of its kind may know that the peer is out of reach.
        Stage::Open => !leads_nowhere(candidate.device_kind, explanation),
        Stage::Impeded => true,
        Stage::Endpoints => candidate.device != chosen.device,
        _ => false,
    }
}

/// Whether a kind of device shorter than a network does not lead to the peer, which is another process or on another machine, or the program
/// uses none of this kind.
fn leads_nowhere(kind: Option<DeviceKind>, explanation: &Explanation) -> bool {
    kind != Some(DeviceKind::Network)
        && explanation.candidates.iter().any(|other| {
            other.device_kind == kind
                && match &other.verdict {
                    Verdict::Rejected { stage: Stage::Unreachable, hint, .. } => hint != NOT_OFFERED,
                    Verdict::Rejected { stage: Stage::Config, hint, .. } => hint == EXCLUDED,
                    _ => false,
                }
        })
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
