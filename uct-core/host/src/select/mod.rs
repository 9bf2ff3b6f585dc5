//! Selection: the interface with the lowest estimated cost among those that support the request, are permitted, and reach the peer.
//!
//! The cost is the time that was measured on this machine ([`Calibration`]), or the estimate of the transport's model. Measured
//! times that are nearly the same count as equal (`rank`).
//!
//! Used by applications that leave the choice to the library, and by tools that show its reasons. Built on the context, which
//! lists the resources, and on open interfaces, whose attributes contain capabilities and costs.
//!
//! There is one code path: [`Selector::explain`] checks every candidate and keeps the reasons; [`Selector::choose`] does the
//! same, and takes the cheapest.

#![forbid(unsafe_code)]

mod calibration;
mod cost;
mod explain;
mod fallback;
mod once;
mod peer;
mod rank;
mod request;
#[cfg(test)]
mod tests;
mod verdict;

use ucs::config::nearest;

use crate::address::IfaceAddress;
use crate::config::Fallback;
use crate::context::Context;
use crate::error::{OpenError, split_remedy};
use crate::iface::{Iface, IfaceOptions};
use crate::resource::Resource;
use crate::worker::Worker;

pub use calibration::{Calibration, CalibrationError, Point, Times};
pub use cost::{Cost, Term};
pub use explain::{Candidate, Explanation};
pub use peer::{PeerAddresses, PeerIface};
pub use request::{KeyUse, Operation, Request};
pub use verdict::{Stage, Verdict};

use rank::Rank;
use verdict::rejected;

/// The hint where the program has excluded an interface.
const EXCLUDED: &str = "the program has excluded it";

/// All interfaces that a worker may use, open, and the reasons for which others are not.
#[derive(Clone)]
pub struct Selector {
    context: Context,
    ifaces: Vec<Iface>,
    refused: Vec<(Resource, String)>,
    /// What the program has excluded.
    left_out: Vec<(Resource, String)>,
}

/// The choice.
#[derive(Debug)]
pub struct Choice {
    /// The interface.
    pub iface: Iface,
    /// The peer's address for it; `None` if no peer was passed.
    pub peer: Option<IfaceAddress>,
    /// Every candidate, the chosen one among them.
    pub explanation: Explanation,
}

/// Why nothing could be chosen.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No interface could be opened.
    #[error("no interface could be opened: {}", .0.why_none())]
    NoInterface(Explanation),
    /// No candidate passes all checks.
    #[error("no transport for {}: {}", .0.request, .0.why_none())]
    NoTransport(Explanation),
    /// The choice would be a fall back, and the configuration makes that an error.
    #[error("{warning}; fallback = error forbids it")]
    Fallback {
        /// What fell back to what, and why.
        warning: String,
        /// Every candidate.
        explanation: Explanation,
    },
}

ucs::debug_as_display!(SelectError);

impl Selector {
    /// Opens every resource that the configuration permits. Blocks meanwhile. The refusal of one is not an error here; it becomes its verdict.
    ///
    /// # Errors
    /// [`SelectError::NoInterface`] if none could be opened.
    pub fn open(worker: &Worker, options: &IfaceOptions) -> Result<Selector, SelectError> {
        let selector = Selector::examine(worker, options);
        if selector.ifaces.is_empty() {
            let request = Request::new(Operation::AmShort, 0);
            return Err(SelectError::NoInterface(selector.explain(&request, None)));
        }
        Ok(selector)
    }

    /// As [`Selector::open`], but succeeds if none could be opened: for programs that print the explanation.
    pub fn examine(worker: &Worker, options: &IfaceOptions) -> Selector {
        let context = worker.context().clone();
        let mut ifaces = Vec::new();
        let mut refused = Vec::new();
        for resource in context.resources() {
            match worker.open_resource(resource, options.clone()) {
                Ok(iface) => ifaces.push(iface),
                Err(OpenError::Excluded { .. }) => {}
                Err(error) => refused.push((resource.clone(), error.to_string())),
            }
        }
        Selector { context, ifaces, refused, left_out: Vec::new() }
    }

    /// Chooses among interfaces that are open already.
    pub fn of(worker: &Worker, ifaces: Vec<Iface>) -> Selector {
        Selector { context: worker.context().clone(), ifaces, refused: Vec::new(), left_out: Vec::new() }
    }

    /// Keeps only the interfaces on one device.
    ///
    /// # Errors
    /// There is none of that name; the error lists the known ones.
    pub fn on_device(mut self, device: &str) -> Result<Selector, OpenError> {
        let mut known: Vec<String> = self.context.resources().iter().map(|it| it.device.clone()).collect();
        known.sort_unstable();
        known.dedup();
        if !known.iter().any(|name| name == device) {
            let nearest = nearest(device, known.iter().map(String::as_str)).map(str::to_owned);
            let mut absent: Vec<String> =
                self.context.discovery().absent.iter().map(|absent| absent.refused.to_string()).collect();
            absent.dedup();
            return Err(OpenError::NoSuchDevice {
                transport: String::new(),
                given: device.to_owned(),
                known,
                // What is misspelt is not absent.
                because: (nearest.is_none() && !absent.is_empty()).then(|| absent.join("; ")),
                nearest,
            });
        }
        self.ifaces.retain(|iface| iface.resource().device == device);
        self.refused.retain(|(resource, _)| resource.device == device);
        self.left_out.retain(|(resource, _)| resource.device == device);
        Ok(self)
    }

    /// Excludes the interfaces for which `reason` returns a text, which becomes their verdict. A choice without them is no fallback.
    #[must_use]
    pub fn without(mut self, reason: impl Fn(&Iface) -> Option<String>) -> Selector {
        let left_out = &mut self.left_out;
        self.ifaces.retain(|iface| match reason(iface) {
            Some(reason) => {
                left_out.push((iface.resource().clone(), reason));
                false
            }
            None => true,
        });
        self
    }

    /// The open interfaces.
    pub fn ifaces(&self) -> &[Iface] {
        &self.ifaces
    }

    /// The addresses of the open interfaces, for a peer's selector.
    pub fn addresses(&self) -> PeerAddresses {
        PeerAddresses::of(&self.ifaces)
    }

    /// Checks every candidate for a request, and for a peer if one is passed. Sends nothing.
    pub fn explain(&self, request: &Request, peer: Option<&PeerAddresses>) -> Explanation {
        self.judge(request, peer).0
    }

    /// The request that costs least, of several ways to move the same data: messages, put, or their layouts. Among equal costs it is a put or get, for
    /// which the peer runs no handler, and then the first one. `None` if none is possible. Measured times of two operations are compared as they are:
    /// they run different code.
    pub fn cheapest<'r>(&self, requests: &'r [Request], peer: Option<&PeerAddresses>) -> Option<&'r Request> {
        let cost = |request: &'r Request| {
            let (explanation, _) = self.judge(request, peer);
            Some((explanation.chosen()?.cost()?.total, request))
        };
        let costs = requests.iter().filter_map(cost);
        let least = costs.min_by(|(left, one), (right, other)| {
            left.total_cmp(right).then(one.operation.is_message().cmp(&other.operation.is_message()))
        });
        least.map(|(_, request)| request)
    }

    /// Takes the cheapest candidate; of measured times within a tenth of the fastest, the one that the models prefer. A fallback to a slower one is an
    /// error, nothing, or a warning in the log, one for each cause in a process, according to the key `fallback`.
    ///
    /// # Errors
    /// Nothing can be chosen, or only what the configuration forbids.
    pub fn choose(&self, request: &Request, peer: Option<&PeerAddresses>) -> Result<Choice, SelectError> {
        let (explanation, chosen) = self.judge(request, peer);
        let Some((index, address)) = chosen else { return Err(SelectError::NoTransport(explanation)) };
        self.permit(&explanation)?;
        Ok(Choice { iface: self.ifaces[index].clone(), peer: address, explanation })
    }

    /// Whether the choice may be made, if it is a fall back.
    fn permit(&self, explanation: &Explanation) -> Result<(), SelectError> {
        let Some(warning) = &explanation.fallback else { return Ok(()) };
        match self.context.core_config().fallback {
            Fallback::Allow => {}
            Fallback::Warn if fallback::cause(explanation).is_some_and(once::is_new) => {
                ucs::log::warn!("{warning}")
            }
            Fallback::Warn => ucs::log::debug!("{warning}"),
            Fallback::Error => {
                let (warning, explanation) = (warning.clone(), explanation.clone());
                return Err(SelectError::Fallback { warning, explanation });
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        request: &Request,
        peer: Option<&PeerAddresses>,
    ) -> (Explanation, Option<(usize, Option<IfaceAddress>)>) {
        let mut candidates = Vec::new();
        let mut addresses = Vec::new();
        let mut ranks = Vec::new();
        for (index, iface) in self.ifaces.iter().enumerate() {
            let (candidate, address) = self.judge_iface(iface, request, peer);
            let rank = |&cost: &Cost| (index, Rank { cost, priority: iface.attributes().priority });
            ranks.extend(candidate.cost().map(rank));
            candidates.push(candidate);
            addresses.push(address);
        }
        self.add_absent(&mut candidates);

        let chosen = rank::best(&ranks).map(|index| {
            candidates[index].choose();
            (index, addresses.swap_remove(index))
        });
        let mut explanation = Explanation { request: *request, candidates, fallback: None };
        explanation.fallback = fallback::warning(&explanation);
        explanation.sort();
        (explanation, chosen)
    }

    fn judge_iface(
        &self,
        iface: &Iface,
        request: &Request,
        peer: Option<&PeerAddresses>,
    ) -> (Candidate, Option<IfaceAddress>) {
        let require = &self.context.core_config().require;
        let resource = iface.resource();
        let named = require.contains(&resource.transport)
            || require.contains(&resource.device)
            || require.contains(&resource.to_string());
        if !named {
            let value =
                self.context.config().value("", "require").map_or_else(String::new, ToString::to_string);
            let hint = "name it there to have it chosen";
            let verdict = rejected(Stage::Config, format!("require = {value}"), hint);
            return (Candidate::of(resource, verdict), None);
        }
        if let Err(verdict) = Verdict::check(request, iface.attributes()) {
            return (Candidate::of(resource, *verdict), None);
        }
        let endpoints = self.context.core_config().num_eps;
        if let Err(verdict) = Verdict::check_endpoints(endpoints, iface.attributes()) {
            return (Candidate::of(resource, *verdict), None);
        }
        let address = match peer.map(|peer| peer.reach(iface)).transpose() {
            Ok(address) => address,
            Err(verdict) => return (Candidate::of(resource, *verdict), None),
        };
        let seconds = self.measured(iface, request, address.as_ref());
        let key = match request.counted_key() {
            KeyUse::Kept => 0.0,
            key => key.seconds(&iface.memory_domain().attributes(), request.size),
        };
        let verdict = Verdict::Usable(Cost::estimate(iface.attributes(), request, endpoints, seconds, key));
        (Candidate::of(resource, verdict), address)
    }

    /// The measured seconds of the operation. An interface that was measured with itself says nothing about a peer elsewhere: those times
    /// count for a peer with the same device address, and if no peer is named.
    fn measured(&self, iface: &Iface, request: &Request, peer: Option<&IfaceAddress>) -> Option<f64> {
        let calibration = self.context.calibration();
        let seconds = calibration.seconds(iface.resource(), request.operation, request.size)?;
        let is_here = |peer: &IfaceAddress| iface.address().is_ok_and(|own| own.device == peer.device);
        peer.is_none_or(is_here).then_some(seconds)
    }

    /// What is not open: unknown, excluded, refused, without a device, not loaded.
    fn add_absent(&self, candidates: &mut Vec<Candidate>) {
        for (name, reason) in self.context.unknown_transports() {
            let hint = "change that key; uct_info -v lists where plugins are looked for";
            candidates.push(Candidate::named(name, rejected(Stage::Config, reason, hint)));
        }
        for (resource, refusal) in &self.refused {
            let (reason, remedy) = split_remedy(refusal);
            let hint =
                remedy.unwrap_or("the reason names what the transport lacks; uct_info -d shows its limits");
            candidates.push(Candidate::of(resource, rejected(Stage::Open, reason, hint)));
        }
        for (resource, reason) in &self.left_out {
            let verdict = rejected(Stage::Config, reason.clone(), EXCLUDED);
            candidates.push(Candidate::of(resource, verdict));
        }
        for resource in self.context.resources() {
            if let Some((key, value)) = self.context.excluded(resource) {
                let verdict =
                    rejected(Stage::Config, format!("{key} = {value}"), "change that key to permit it");
                candidates.push(Candidate::of(resource, verdict));
            }
        }
        for absent in &self.context.discovery().absent {
            let excluded = absent.is_excluded();
            let (stage, check, hint) = if excluded {
                (Stage::Config, absent.refused.reason.clone(), "change that key to permit it")
            } else {
                let hint = absent.refused.remedy().unwrap_or("uct_info -d lists the devices there are");
                (Stage::Device, absent.refused.without_remedy().to_string(), hint)
            };
            for transport in &absent.transports {
                candidates.push(Candidate::named(transport, rejected(stage, check.clone(), hint)));
            }
        }
        for failure in self.context.load_failures() {
            let hint = "repair or remove the plugin, or exclude it with modules";
            candidates
                .push(Candidate::named(&failure.name, rejected(Stage::Load, failure.to_string(), hint)));
        }
        for ignored in self.context.ignored_plugins() {
            // A file beside the built-in plugin of its name is a candidate that is there already.
            if !self.context.plugins().iter().any(|plugin| plugin.name == ignored.name) {
                let hint = "change modules to have it loaded";
                candidates.push(Candidate::named(
                    &ignored.name,
                    rejected(Stage::Config, ignored.to_string(), hint),
                ));
            }
        }
    }
}
