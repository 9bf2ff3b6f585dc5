//! What became of a candidate, and the checks that need nothing but its attributes.

use serde::Serialize;

use super::cost::Cost;
use super::request::{Operation, Request};
use crate::attr::{Capabilities, IfaceAttr};

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
    /// It serves fewer endpoints than are expected.
    Endpoints,
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

impl Request {
    /// Whether an interface with these attributes has the operation and the other capabilities, and takes the size.
    pub fn fits(&self, attr: &IfaceAttr) -> bool {
        Verdict::check(self, attr).is_ok()
    }
}

impl Verdict {
    /// Refuses a request that an interface is not able to meet, by its attributes alone.
    pub(super) fn check(request: &Request, attr: &IfaceAttr) -> Result<(), Box<Verdict>> {
        let wanted = request.capabilities | request.operation.capability();
        let missing = wanted - Capabilities::from_bits_retain(attr.capabilities);
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
            let check = format!("it has no {}", names.join(", "));
            let atomics = Capabilities::ATOMIC_DEVICE | Capabilities::ATOMIC_CPU;
            let hint = match missing.intersects(atomics) {
                true => {
                    "permit a transport that has it, uct_info -d --matrix shows which; a verbs device may have none (ibv_devinfo -v, atomic_cap)"
                }
                false => "uct_info -d shows what it has",
            };
            return Err(Box::new(rejected(Stage::Capability, check, hint)));
        }
        let (limit, minimum) = (request.operation.limit(attr), request.operation.minimum(attr));
        let (name, header) = (request.operation.name(), request.counted_header());
        if request.operation == Operation::AmZcopy && header > attr.am.max_hdr {
            let check =
                format!("a header of {header} bytes is longer than the {} of its {name}", attr.am.max_hdr);
            return Err(Box::new(rejected(Stage::Size, check, "choose a shorter header, or bcopy")));
        }
        // The limit includes the header.
        if request.size.saturating_add(header) > limit {
            let behind = if header > 0 { format!(" with a header of {header}") } else { String::new() };
            let size = request.size;
            let check =
                format!("{size} bytes{behind} are more than the {limit} that its {name} takes at once");
            return Err(Box::new(rejected(Stage::Size, check, "choose a smaller size, or bcopy or zcopy")));
        }
        if request.size < minimum {
            let check =
                format!("{} bytes are fewer than the {minimum} that its {name} starts at", request.size);
            return Err(Box::new(rejected(Stage::Size, check, "choose a larger size, or bcopy or short")));
        }
        Ok(())
    }

    /// Refuses more endpoints than an interface serves, if it has a limit.
    pub(super) fn check_endpoints(expected: u32, attr: &IfaceAttr) -> Result<(), Box<Verdict>> {
        let limit = attr.max_num_eps;
        if limit == 0 || u64::from(expected) <= limit {
            return Ok(());
        }
        let check = format!("num_eps = {expected} endpoints are more than the {limit} that it serves");
        Err(Box::new(rejected(Stage::Endpoints, check, "its section in the configuration has the limit")))
    }

    /// The cost of a candidate that would do.
    pub fn cost(&self) -> Option<&Cost> {
        match self {
            Verdict::Chosen(cost) | Verdict::Usable(cost) => Some(cost),
            Verdict::Rejected { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{OpLimits, blank_iface};

    /// With limits that differ in all operations.
    fn attr() -> IfaceAttr {
        let mut attr = blank_iface();
        let set = |limits: &mut OpLimits, base: usize| {
            limits.max_short = base + 1;
            limits.max_bcopy = base + 2;
            limits.max_zcopy = base + 3;
            limits.min_zcopy = base / 2;
        };
        set(&mut attr.am, 10);
        set(&mut attr.put, 20);
        set(&mut attr.get, 30);
        attr.capabilities = Capabilities::all().bits();
        attr
    }

    fn refusal(request: &Request, attr: &IfaceAttr) -> Option<(Stage, String)> {
        match Verdict::check(request, attr).map_err(|verdict| *verdict) {
            Ok(()) => None,
            Err(Verdict::Rejected { stage, check, .. }) => Some((stage, check)),
            Err(other) => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn each_operation_is_refused_beyond_its_own_limits_and_at_them_not() {
        let bounds = [(0, 11), (0, 12), (5, 13), (0, 21), (0, 22), (10, 23), (0, 31), (0, 32), (15, 33)];
        for (operation, (least, most)) in Operation::ALL.into_iter().zip(bounds) {
            let refusal = |size| refusal(&Request::new(operation, size), &attr());
            let name = operation.name();
            assert_eq!((refusal(least), refusal(most)), (None, None), "{name}");
            let words = format!("{} bytes are more than the {most} that its {name} takes at once", most + 1);
            assert_eq!(refusal(most + 1), Some((Stage::Size, words)));
            if least > 0 {
                let words =
                    format!("{} bytes are fewer than the {least} that its {name} starts at", least - 1);
                assert_eq!(refusal(least - 1), Some((Stage::Size, words)));
            }
        }
    }

    #[test]
    fn a_header_counts_against_the_limit_of_a_message_and_has_its_own() {
        let attr = IfaceAttr { am: OpLimits { max_hdr: 6, ..attr().am }, ..attr() };
        let refused = |operation, size, header| {
            refusal(&Request::new(operation, size).with_header(header), &attr).map(|(_, check)| check)
        };
        for (operation, limit) in [(Operation::AmBcopy, 12), (Operation::AmZcopy, 13)] {
            assert_eq!(refused(operation, limit - 6, 6), None);
            let name = operation.name();
            let words = format!(
                "{} bytes with a header of 6 are more than the {limit} that its {name} takes at once",
                limit - 5
            );
            assert_eq!(refused(operation, limit - 5, 6), Some(words));
            assert!(refused(operation, 5, usize::MAX).is_some(), "no sum overflows");
        }
        assert_eq!(refused(Operation::AmBcopy, 5, 7), None, "it is packed with the rest");
        let words = "a header of 7 bytes is longer than the 6 of its am_zcopy";
        assert_eq!(refused(Operation::AmZcopy, 5, 7).as_deref(), Some(words));
        assert_eq!(refused(Operation::AmShort, 11, 100), None, "its header is no part of the limit");
        assert_eq!(refused(Operation::PutBcopy, 22, 100), None, "a put has none");
    }

    #[test]
    fn more_endpoints_than_an_interface_serves_are_refused_and_zero_is_no_limit() {
        let refused = |expected, max_num_eps| {
            let attr = IfaceAttr { max_num_eps, ..attr() };
            match Verdict::check_endpoints(expected, &attr).map_err(|verdict| *verdict) {
                Ok(()) => None,
                Err(Verdict::Rejected { stage, check, .. }) => Some((stage, check)),
                Err(other) => panic!("{other:?} is no refusal"),
            }
        };
        assert_eq!((refused(256, 256), refused(u32::MAX, 0)), (None, None));
        let words = "num_eps = 257 endpoints are more than the 256 that it serves";
        assert_eq!(refused(257, 256), Some((Stage::Endpoints, words.to_owned())));
    }

    #[test]
    fn a_transport_without_atomics_has_a_remedy_of_its_own() {
        let atomics = Capabilities::ATOMIC_DEVICE;
        let mut attr = attr();
        attr.capabilities &= !atomics.bits();
        let request = Request { capabilities: atomics, ..Request::new(Operation::PutShort, 8) };
        match Verdict::check(&request, &attr).map_err(|verdict| *verdict) {
            Err(Verdict::Rejected { stage, check, hint }) => {
                assert_eq!((stage, check.as_str()), (Stage::Capability, "it has no atomic_device"));
                assert!(hint.contains("--matrix") && hint.contains("atomic_cap"), "{hint}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_operation_that_is_missing_is_named_once_even_if_it_is_among_the_further_capabilities() {
        for operation in Operation::ALL {
            let mut attr = attr();
            attr.capabilities &= !operation.capability().bits();
            let words = format!("it has no {}", operation.name());
            for capabilities in [Capabilities::empty(), operation.capability()] {
                let request = Request { capabilities, ..Request::new(operation, 16) };
                assert_eq!(refusal(&request, &attr), Some((Stage::Capability, words.clone())));
            }
        }
    }
}
