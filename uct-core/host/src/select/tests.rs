//! What is required of an interface, and what becomes of a fall back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::attr::Capabilities;
use crate::configuration::Sources;
use crate::resource::DeviceKind;

fn worker(settings: &[(&str, &str)]) -> Worker {
    let sources = settings
        .iter()
        .fold(Sources::default().set("modules", "self"), |sources, (key, value)| sources.set(*key, *value));
    let context = Context::builder().sources(sources).build().expect("a context");
    Worker::new(&context).expect("a worker")
}

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn what_is_required_is_named_by_transport_device_or_both() {
    for (require, is_met) in [("self", true), ("memory", true), ("self/memory", true), ("tcp", false)] {
        let worker = worker(&[("require", require)]);
        let iface = worker.open("self", "memory").expect("an interface");
        let explanation =
            Selector::of(&worker, vec![iface]).explain(&Request::new(Operation::AmShort, 8), None);
        assert_eq!(explanation.chosen().is_some(), is_met, "{require}");
    }
}

#[test]
fn a_name_in_tls_that_no_transport_has_is_a_candidate_with_the_setting() {
    let request = Request::new(Operation::AmShort, 8);
    let explain =
        |tls| Selector::examine(&worker(&[("tls", tls)]), &IfaceOptions::default()).explain(&request, None);
    let none = explain("slef");
    let words =
        "slef: no transport has this name (tls = slef  # program); there is self; did you mean \"self\"?; ";
    assert!(none.why_none().starts_with(words), "{}", none.why_none());
    assert!(
        none.why_none().contains("self/memory: tls = slef") || none.why_none().contains("self: tls = slef")
    );
    assert!(explain("self,bogus").to_string().contains("REJECTED  bogus"));
    for tls in ["self", "all", "^bogus"] {
        assert!(!explain(tls).to_string().contains("no transport has this name"), "{tls}");
    }
}

#[test]
fn an_interface_needs_the_operation_and_each_further_capability() {
    let iface = worker(&[]).open("self", "memory").expect("an interface");
    let attributes = iface.attributes();
    let request = Request::new(Operation::AmShort, 8);
    assert!(Verdict::check(&request, attributes).is_ok());
    assert!(
        Verdict::check(&Request { size: 0, ..request }, attributes).is_ok(),
        "nothing is fewer than none"
    );
    let has = Request { capabilities: Capabilities::AM_BCOPY | Capabilities::PENDING, ..request };
    assert!(Verdict::check(&has, attributes).is_ok());
    let lacks =
        (Capabilities::all() - iface.capabilities()).iter().next().expect("self has not all there is");
    for capabilities in [lacks, lacks | Capabilities::AM_BCOPY] {
        let Err(Verdict::Rejected { stage, check, .. }) =
            Verdict::check(&Request { capabilities, ..request }, attributes).map_err(|verdict| *verdict)
        else {
            panic!("{capabilities:?} is not required");
        };
        assert_eq!(stage, Stage::Capability);
        let name = lacks.iter_names().next().expect("it has a name").0.to_lowercase();
        assert_eq!(check, format!("it has no {name}"));
    }
}

#[test]
fn a_fall_back_is_an_error_a_warning_or_nothing() {
    for (fallback, is_error, expected) in [("error", true, 0), ("warn", false, 1), ("allow", false, 0)] {
        let worker = worker(&[("fallback", fallback)]);
        let iface = worker.open("self", "memory").expect("an interface");
        let mut selector = Selector::of(&worker, vec![iface]);
        // The interface counts as farther away than one that refused to open.
        let mut nearer = selector.ifaces[0].resource().clone();
        nearer.transport = "nearer".to_owned();
        selector.refused.push((nearer, "it has no room".to_owned()));
        let request = Request::new(Operation::AmShort, 8);
        assert!(selector.explain(&request, None).fallback.is_none(), "equally near is no loss");

        let mut explanation = selector.explain(&request, None);
        let chosen =
            explanation.candidates.iter_mut().find(|it| it.transport == "self").expect("it is there");
        chosen.device_kind = Some(DeviceKind::Network);
        let warning = fallback::warning(&explanation).expect("the nearer one was lost");
        assert!(warning.contains("nearer/memory (it has no room → "), "{warning}");
        explanation.fallback = Some(warning.clone());

        let warnings = Warnings::default();
        let count = Arc::clone(&warnings.0);
        let answer = tracing::subscriber::with_default(warnings, || selector.permit(&explanation));
        assert_eq!(count.load(Ordering::Relaxed), expected, "{fallback}");
        match answer {
            Ok(()) => assert!(!is_error, "{fallback}"),
            Err(SelectError::Fallback { warning: told, .. }) => {
                assert!(is_error, "{fallback}");
                assert_eq!(told, warning);
            }
            Err(other) => panic!("{fallback}: {other}"),
        }
    }
}

/// A transport with its stage, reason and remedy.
type Lost = (&'static str, Stage, &'static str, &'static str);

/// The warnings about choices, one after the other: of each the chosen transport, and those that were lost.
fn warnings_about(choices: &[(&str, &[Lost])]) -> usize {
    let selector = Selector::open(&worker(&[]), &IfaceOptions::default()).expect("a transport");
    let explanation = selector.explain(&Request::new(Operation::AmShort, 8), None);
    let warnings = Warnings::default();
    let count = Arc::clone(&warnings.0);
    tracing::subscriber::with_default(warnings, || {
        for (transport, others) in choices {
            let mut chosen = explanation.chosen().expect("it sends short messages").clone();
            (chosen.transport, chosen.device_kind) = ((*transport).to_owned(), Some(DeviceKind::Network));
            let others = others.iter().map(|(transport, stage, check, hint)| Candidate {
                transport: (*transport).to_owned(),
                device_kind: Some(DeviceKind::SharedMemory),
                verdict: rejected(*stage, *check, hint),
                ..chosen.clone()
            });
            let candidates = others.chain([chosen.clone()]).collect();
            let mut explanation = Explanation { candidates, ..explanation.clone() };
            explanation.fallback = fallback::warning(&explanation);
            assert!(explanation.fallback.is_some());
            selector.permit(&explanation).expect("it is a warning");
        }
    });
    count.load(Ordering::Relaxed)
}

#[test]
fn a_fall_back_is_one_warning_for_each_cause_however_many_peers_it_concerns() {
    const SHARE: &str = "share a directory";
    let peer = |words| [("one_shm", Stage::Impeded, words, SHARE), ("two_shm", Stage::Impeded, words, SHARE)];
    let same = ["the peer is in net:[1]", "the peer is in net:[2]", "the peer is in net:[1]"].map(peer);
    let [first, second, third] = [&same[0], &same[1], &same[2]].map(|others| ("far", &others[..]));
    assert_eq!(warnings_about(&[first, second, third]), 1);
    assert_eq!(warnings_about(&[first]), 0, "another selector of the process");
    let another = [("one_shm", Stage::Impeded, "the peer is in pid:[1]", "run both in one")];
    assert_eq!(warnings_about(&[("far", &another), ("far", &another)]), 1, "another obstacle");
    assert_eq!(warnings_about(&[("farther", same[0].as_slice())]), 1, "another choice");
    let refused = |words| [("one_shm", Stage::Open, words, "")];
    let [full, denied] = ["no room", "not permitted"].map(refused);
    assert_eq!(
        warnings_about(&[("far", &full), ("far", &denied), ("far", &full)]),
        2,
        "two reasons of this side"
    );
}

#[test]
fn transports_with_one_obstacle_are_named_together() {
    let lost = |transport: &str, check: &str| Candidate {
        transport: transport.to_owned(),
        device: Some("memory".to_owned()),
        ..Candidate::named(transport, rejected(Stage::Impeded, check, "share it"))
    };
    let lost =
        [lost("posix", "none in common"), lost("sysv", "no ipc in common"), lost("cma", "none in common")];
    assert_eq!(
        fallback::listed(&lost.each_ref()),
        "posix/memory and cma/memory (none in common → share it), sysv/memory (no ipc in common → share it)"
    );
}

#[test]
fn for_a_peer_on_another_machine_shared_memory_that_does_not_open_is_no_loss() {
    let selector = Selector::open(&worker(&[]), &IfaceOptions::default()).expect("a transport");
    let explanation = selector.explain(&Request::new(Operation::AmShort, 8), None);
    let mut chosen = explanation.chosen().expect("it sends short messages").clone();
    (chosen.transport, chosen.device_kind) = ("tcp".to_owned(), Some(DeviceKind::Network));
    let beside = |transport: &str, verdict| Candidate {
        transport: transport.to_owned(),
        device_kind: Some(DeviceKind::SharedMemory),
        verdict,
        ..chosen.clone()
    };
    let is_loss = |other| {
        let refused = beside("posix", rejected(Stage::Open, "it has no room", ""));
        let candidates = vec![refused, beside("sysv", other), chosen.clone()];
        fallback::warning(&Explanation { candidates, ..explanation.clone() }).is_some()
    };
    assert!(!is_loss(rejected(Stage::Unreachable, "memory: the peer runs on another machine", "")));
    assert!(!is_loss(rejected(Stage::Config, "the peer is not trusted", EXCLUDED)));
    assert!(is_loss(rejected(Stage::Config, "UCT_TLS = ^sysv", "change that key to permit it")));
    assert!(is_loss(rejected(Stage::Impeded, "memory: another namespace", "")));
    assert!(
        is_loss(rejected(Stage::Unreachable, "the peer offers no sysv", peer::NOT_OFFERED)),
        "nothing is known"
    );
}

#[test]
fn a_loss_is_what_is_nearer_or_another_transport_of_the_network() {
    let selector = Selector::open(&worker(&[]), &IfaceOptions::default()).expect("a transport");
    let explanation = selector.explain(&Request::new(Operation::AmShort, 8), None);
    let chosen = explanation.chosen().expect("it sends short messages");
    let candidate = |(kind, transport): (Option<DeviceKind>, &str), verdict| Candidate {
        transport: transport.to_owned(),
        device_kind: kind,
        verdict,
        ..chosen.clone()
    };
    let lost = |candidates: [(Option<DeviceKind>, &str); 2], stage| {
        let [chosen_one, other] = candidates;
        let other = candidate(other, rejected(stage, "it has no room", ""));
        let candidates = vec![other, candidate(chosen_one, chosen.verdict.clone())];
        fallback::warning(&Explanation { candidates, ..explanation.clone() })
    };
    let [network, shared] = [DeviceKind::Network, DeviceKind::SharedMemory].map(Some);
    let cases = [
        ((network, "tcp"), (shared, "posix"), true),
        ((network, "tcp"), (network, "rc_verbs"), true),
        ((network, "tcp"), (network, "tcp"), false),
        ((network, "tcp"), (None, "rc_verbs"), false),
        ((None, "tcp"), (shared, "posix"), false),
        ((shared, "posix"), (shared, "sysv"), false),
        ((shared, "posix"), (network, "rc_verbs"), false),
    ];
    for (chosen, other, expected) in cases {
        let warning = lost([chosen, other], Stage::Open);
        assert_eq!(warning.is_some(), expected, "{other:?} beside {chosen:?}");
        assert_eq!(lost([chosen, other], Stage::Impeded), warning);
        for stage in [Stage::Load, Stage::Device, Stage::Config, Stage::Capability, Stage::Unreachable] {
            assert_eq!(lost([chosen, other], stage), None, "{stage:?}: {other:?} beside {chosen:?}");
        }
    }
}

#[test]
fn a_selector_without_an_interface_is_an_error_with_the_reasons() {
    let worker = worker(&[("modules", "self"), ("tls", "^self")]);
    let error = Selector::open(&worker, &IfaceOptions::default()).err().expect("nothing to open");
    let text = error.to_string();
    assert!(text.starts_with("no interface could be opened: ") && text.contains("tls"), "{text}");
    assert!(Selector::examine(&worker, &IfaceOptions::default()).ifaces().is_empty());
}

#[test]
fn a_selector_of_one_device_has_what_is_on_it() {
    let selector = || {
        let worker = worker(&[("modules", "self,tcp")]);
        let mut selector = Selector::open(&worker, &IfaceOptions::default()).expect("a transport");
        assert!(selector.ifaces.len() > 1, "there is a network, and be it the loopback device");
        for device in ["memory", "elsewhere"] {
            let mut refused = selector.ifaces[0].resource().clone();
            refused.device = device.to_owned();
            selector.refused.push((refused, "it has no room".to_owned()));
        }
        selector
    };
    let mut kept = selector().on_device("memory").expect("the device is there");
    assert_eq!((kept.ifaces.len(), kept.refused.len()), (1, 1));
    assert_eq!(kept.refused.remove(0).0.device, "memory");
}

#[test]
fn what_the_program_excludes_has_its_reason_as_verdict_and_is_not_lost() {
    let worker = worker(&[("modules", "self,tcp")]);
    let all = Selector::open(&worker, &IfaceOptions::default()).expect("transports");
    let without = all.without(|iface| (iface.resource().transport == "tcp").then(|| "not wanted".to_owned()));
    assert!(without.ifaces().iter().all(|iface| iface.resource().transport == "self"));
    let explanation = without.explain(&Request::new(Operation::AmShort, 8), None);
    let left_out = explanation.candidates.iter().find(|candidate| candidate.transport == "tcp");
    match &left_out.expect("it is listed").verdict {
        // Of this stage nothing is a fall back.
        Verdict::Rejected { stage: Stage::Config, check, .. } => assert_eq!(check, "not wanted"),
        other => panic!("{other:?}"),
    }
    let kept = without.on_device("memory").expect("the device is there");
    assert!(kept.left_out.is_empty(), "it was on another device");
}

#[test]
fn an_unknown_device_is_an_error_that_names_those_there_are_or_why_some_are_absent() {
    let absence = |settings: &[(&str, &str)], given| {
        let selector = Selector::open(&worker(settings), &IfaceOptions::default()).expect("a transport");
        match selector.on_device(given).err() {
            Some(OpenError::NoSuchDevice { transport, known, nearest, because, .. }) => {
                assert_eq!((transport, known), (String::new(), vec!["memory".to_owned()]));
                (nearest, because)
            }
            other => panic!("{other:?}"),
        }
    };
    let nearest = Some("memory".to_owned());
    assert_eq!(absence(&[], "mlx5_0:1"), (None, None));
    assert_eq!(absence(&[], "memroy"), (nearest.clone(), None));
    let excluded = &[("modules", "self,tcp"), ("tls", "self")];
    let (none, because) = absence(excluded, "mlx5_0:1");
    assert_eq!(none, None);
    let because = because.expect("tcp is left out");
    assert!(because.contains("tcp") && because.contains("tls = self"), "{because}");
    assert_eq!(absence(excluded, "memroy"), (nearest, None), "what is misspelt is not absent");
}

#[test]
fn the_cheapest_is_chosen_and_the_others_follow_from_cheap_to_dear_wherever_they_are_in_the_list() {
    let worker = worker(&[("modules", "self,shm,tcp")]);
    let open = |transport, device| worker.open(transport, device).expect("an interface");
    let ifaces = [open("self", "memory"), open("posix", "memory"), open("tcp", "lo")];
    let request = Request::new(Operation::AmShort, 8);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut selector = Selector::of(&worker, order.map(|index| ifaces[index].clone()).to_vec());
        // As if it had been refused a second time.
        selector.refused.push((ifaces[0].resource().clone(), "it has no room".to_owned()));
        let explanation = selector.explain(&request, None);
        // Behind them is what is not open: plugins that may be there, and the one above.
        let first = &explanation.candidates[..ifaces.len()];
        let names: Vec<&str> = first.iter().map(|it| it.transport.as_str()).collect();
        assert_eq!(names, ["self", "posix", "tcp"], "the interfaces in the order {order:?}");
        assert_eq!(explanation.chosen().map(|it| it.transport.as_str()), Some("self"));
        let costs: Vec<f64> = explanation.candidates.iter().filter_map(|it| Some(it.cost()?.total)).collect();
        assert!(costs.len() == 3 && costs.is_sorted(), "{costs:?}");
    }
}

#[test]
fn a_plugin_that_is_left_out_is_named_unless_its_transport_is_linked_in() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["self", "foreign"] {
        std::fs::write(directory.path().join(format!("libuct_{name}.so")), "").expect("a file");
    }
    let worker = worker(&[("module_dir", directory.path().to_str().expect("a path"))]);
    let iface = worker.open("self", "memory").expect("an interface");
    let explanation = Selector::of(&worker, vec![iface]).explain(&Request::new(Operation::AmShort, 8), None);
    let count = |name: &str| explanation.candidates.iter().filter(|it| it.transport == name).count();
    assert_eq!((count("self"), count("foreign")), (1, 1), "{:?}", explanation.candidates);
}

/// A worker whose context has these times.
fn calibrated(directory: &Path, ifaces: &[(&Resource, Times)]) -> Worker {
    let file = directory.join("calibration.toml");
    let mut calibration = Calibration::default();
    ifaces.iter().for_each(|(resource, times)| calibration.set(resource, times.clone()));
    calibration.write(&file).expect("it is written");
    worker(&[("modules", "self,shm,tcp"), ("calibration", file.to_str().expect("a path"))])
}

#[test]
fn a_measured_time_decides_and_only_for_the_operation_and_the_sizes_that_it_was_measured_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let modeled = worker(&[("modules", "self,shm,tcp")]);
    let tcp = modeled.context().find("tcp", "lo").expect("the loopback device");
    let times = Times::from([(Operation::AmShort, vec![(8, 1.0), (16, 1e9)])]);
    let worker = calibrated(directory.path(), &[(&tcp, times)]);
    let open = |transport, device| worker.open(transport, device).expect("an interface");
    let selector = Selector::of(&worker, vec![open("posix", "memory"), open("tcp", "lo")]);
    let chosen = |operation, size| {
        let choice = selector.choose(&Request::new(operation, size), Some(&selector.addresses()));
        choice.expect("it is possible").iface.resource().transport.clone()
    };
    assert_eq!(chosen(Operation::AmShort, 8), "tcp");
    assert_eq!(chosen(Operation::AmShort, 16), "posix");
    assert_eq!(chosen(Operation::AmBcopy, 8), "posix");
    let request = |operation, size| Request::new(operation, size);
    let ways = [
        request(Operation::AmBcopy, 8),
        request(Operation::AmShort, 8),
        request(Operation::AmShort, 1 << 40),
    ];
    assert_eq!(selector.cheapest(&ways, None), Some(&ways[1]));
    assert_eq!(selector.cheapest(&ways[2..], None), None, "no interface takes it");
}

#[test]
fn a_faster_one_that_counts_as_equal_is_not_chosen_and_its_line_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let modeled = worker(&[("modules", "self,shm,tcp")]);
    let resource = |transport, device| modeled.context().find(transport, device).expect("it is there");
    let times = |time| {
        Times::from([(Operation::AmShort, vec![(8, time)]), (Operation::AmBcopy, vec![(8, time * 0.97)])])
    };
    let [posix, sysv, tcp] = [("posix", "memory"), ("sysv", "memory"), ("tcp", "lo")]
        .map(|(transport, device)| resource(transport, device));
    let measured = [(&posix, times(109.0)), (&sysv, times(120.0)), (&tcp, times(100.0))];
    let worker = calibrated(directory.path(), &measured);
    let ifaces =
        [&tcp, &sysv, &posix].map(|it| worker.open(&it.transport, &it.device).expect("an interface"));
    let selector = Selector::of(&worker, ifaces.to_vec());
    let ways = [Operation::AmShort, Operation::AmBcopy].map(|operation| Request::new(operation, 8));
    assert_eq!(selector.cheapest(&ways, None), Some(&ways[1]), "operations differ by what they do");
    let explanation = selector.explain(&ways[0], None);
    let text = explanation.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let starts = ["CHOSEN    posix/memory ", "USABLE    tcp/lo ", "USABLE    sysv/memory "];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{text}");
    }
    let equal = "; posix/memory takes at most 10 % more and counts as equal";
    let says_so: Vec<bool> = lines.iter().map(|line| line.ends_with(equal)).collect();
    assert_eq!(says_so[..3], [false, true, false], "{text}");
}

#[test]
fn a_device_made_of_software_is_named_as_one_and_is_no_loss() {
    let selector = Selector::open(&worker(&[]), &IfaceOptions::default()).expect("a transport");
    let mut explanation = selector.explain(&Request::new(Operation::AmShort, 8), None);
    let chosen = explanation.chosen().expect("it sends short messages").clone();
    let adapter = Candidate {
        transport: "nearer".to_owned(),
        verdict: rejected(Stage::Open, "it has no room", "make some"),
        ..chosen.clone()
    };
    let far = Candidate { device_kind: Some(DeviceKind::Network), ..chosen };
    for is_software in [false, true] {
        let soft = |candidate: &Candidate| Candidate { is_software, ..candidate.clone() };
        explanation.candidates = vec![soft(&far), soft(&adapter)];
        let text = explanation.to_string();
        assert_eq!(
            text.lines().filter(|line| line.ends_with("; software device")).count(),
            2 * usize::from(is_software),
            "{text}"
        );
        explanation.candidates = vec![far.clone(), soft(&adapter)];
        assert_eq!(fallback::warning(&explanation).is_none(), is_software);
    }
}

#[test]
fn of_requests_that_cost_the_same_a_put_is_ahead_of_a_message() {
    let worker = worker(&[("modules", "shm")]);
    let selector = Selector::of(&worker, vec![worker.open("posix", "memory").expect("an interface")]);
    let [message, put] =
        [Operation::AmBcopy, Operation::PutBcopy].map(|operation| Request::new(operation, 1024));
    let cost = |request| {
        let explanation = selector.explain(request, None);
        explanation.chosen().and_then(|it| it.cost()).map(|cost| cost.total)
    };
    assert_eq!(cost(&message), cost(&put));
    for ways in [[message, put], [put, message]] {
        assert_eq!(selector.cheapest(&ways, None), Some(&put));
    }
    let equal = [Request::new(Operation::PutShort, 1024), put];
    assert_eq!(selector.cheapest(&equal, None), Some(&equal[0]), "the first one");
}

#[test]
fn what_was_measured_with_itself_is_no_figure_of_a_peer_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let resource = worker(&[]).context().find("self", "memory").expect("it is built in");
    let times = Times::from([(Operation::AmShort, vec![(8, 1.0)])]);
    let worker = calibrated(directory.path(), &[(&resource, times)]);
    let iface = worker.open("self", "memory").expect("an interface");
    let selector = Selector::of(&worker, vec![iface.clone()]);
    let measured =
        |peer: Option<&IfaceAddress>| selector.measured(&iface, &Request::new(Operation::AmShort, 8), peer);
    let own = iface.address().expect("an address");
    let mut elsewhere = own.clone();
    elsewhere.device[0] ^= 1;
    let here = Some(1e-9);
    assert_eq!([measured(None), measured(Some(&own)), measured(Some(&elsewhere))], [here, here, None]);
}

#[test]
fn a_message_with_its_header_beyond_the_limit_is_not_chosen() {
    let worker = worker(&[("modules", "shm")]);
    let iface = worker.open("posix", "memory").expect("an interface");
    let limit = iface.attributes().am.max_zcopy;
    let selector = Selector::of(&worker, vec![iface]);
    let is_possible = |size, header| {
        selector.choose(&Request::new(Operation::AmZcopy, size).with_header(header), None).is_ok()
    };
    assert_eq!(
        [is_possible(limit, 0), is_possible(limit, 8), is_possible(limit - 8, 8)],
        [true, false, true]
    );
}

#[test]
fn a_peer_on_this_machine_is_reached_at_the_same_device_first() {
    let worker = worker(&[("modules", "tcp")]);
    let selector = Selector::of(&worker, vec![worker.open("tcp", "lo").expect("an interface")]);
    let [own] = &selector.addresses().ifaces[..] else { panic!("it has one interface") };
    let mut other = own.clone();
    // The byte behind the format tells a loopback device from an adapter.
    other.address.device[3] ^= 1;
    for ifaces in [vec![other.clone(), own.clone()], vec![own.clone(), other.clone()]] {
        let choice = selector.choose(&Request::new(Operation::AmShort, 8), Some(&PeerAddresses { ifaces }));
        assert_eq!(choice.expect("it reaches itself").peer.as_ref(), Some(&own.address));
    }
    let others = PeerAddresses { ifaces: vec![other.clone()] };
    let choice = selector.choose(&Request::new(Operation::AmShort, 8), Some(&others));
    assert_eq!(choice.expect("the other one is reached").peer, Some(other.address));
}

#[test]
fn a_selector_has_its_interfaces_and_the_addresses_by_which_a_peer_reaches_them() {
    let worker = worker(&[("modules", "self")]);
    let selector = Selector::open(&worker, &IfaceOptions::default()).expect("a transport");
    let [iface] = selector.ifaces() else { panic!("self has one device") };
    let address = iface.address().expect("an address");
    let addresses = selector.addresses();
    let listed = PeerIface { device: "memory".to_owned(), address: address.clone() };
    assert_eq!(addresses.ifaces, [listed]);

    let request = Request::new(Operation::AmShort, 8);
    let choice = selector.choose(&request, Some(&addresses)).expect("it reaches itself");
    assert_eq!(choice.iface.resource(), iface.resource());
    assert_eq!(choice.peer, Some(address));
    assert_eq!(selector.choose(&request, None).expect("without a peer, too").peer, None);
    let refused = selector.choose(&request, Some(&PeerAddresses::default())).expect_err("nobody is there");
    let text = refused.to_string();
    let words = "no transport for am_short of 8 bytes: self/memory: the peer offers no self";
    assert!(text.starts_with(words), "{text}");
}
