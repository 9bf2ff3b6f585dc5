//! What became of a candidate, and the checks that need nothing but its attributes.

use serde::Serialize;

use super::cost::Cost;
use super::request::Request;
use crate::iface::Iface;

/// How far a candidate came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Its plugin could not be loaded.
    Load,
    /// There is no device for it.
    Device,
    /// The configuration excludes it.
    Config,
    /// It could not be opened.
    Open,
    /// It cannot do what is asked for.
    Capability,
    /// It cannot do it in that size.
    Size,
    /// The peer is out of its reach.
    Unreachable,
    /// The peer would be within its reach, but there is an obstacle.
    Impeded,
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE", tag = "verdict")]
pub enum Verdict {
    /// It is the best.
    Chosen(Cost),
    /// It would do.
    Usable(Cost),
    /// It would not.
    Rejected {
        /// How far it came.
        stage: Stage,
        /// What failed.
        check: String,
        /// What to do to have it.
        hint: String,
    },
}

pub(super) fn rejected(stage: Stage, check: impl Into<String>, hint: &str) -> Verdict {
    Verdict::Rejected { stage, check: check.into(), hint: hint.to_owned() }
}

impl Verdict {
    /// Refuses a request that an interface is not able to meet, by its attributes alone.
    pub(super) fn check(request: &Request, iface: &Iface) -> Result<(), Verdict> {
        let wanted = request.capabilities | request.operation.capability();
        let missing = wanted - iface.capabilities();
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
            let check = format!("it has no {}", names.join(", "));
            return Err(rejected(Stage::Capability, check, "uct_info -d shows what it has"));
        }
        let (limit, minimum) =
            (request.operation.limit(iface.attributes()), request.operation.minimum(iface.attributes()));
        let name = request.operation.name();
        if request.size > limit {
            let check =
                format!("{} bytes are more than the {limit} that its {name} takes at once", request.size);
            return Err(rejected(Stage::Size, check, "choose a smaller size, or bcopy or zcopy"));
        }
        if request.size < minimum {
            let check =
                format!("{} bytes are fewer than the {minimum} that its {name} starts at", request.size);
            return Err(rejected(Stage::Size, check, "choose a larger size, or bcopy or short"));
        }
        Ok(())
    }

    /// The cost of a candidate that would do.
    pub fn cost(&self) -> Option<&Cost> {
        match self {
            Verdict::Chosen(cost) | Verdict::Usable(cost) => Some(cost),
            Verdict::Rejected { .. } => None,
        }
    }
}
