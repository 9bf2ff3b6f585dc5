//! From the command line to a chosen pair of interfaces and a plan.

use uct_core::select::{Choice, Explanation, Request, SelectError, Selector};
use uct_core::{Context, DeviceKind, Iface, IfaceOptions, Resource, Worker};
use uct_net::NetOptions;
use uct_net::local::Net;
use uct_tools_common::Failure;

use crate::kind::{Class, Layout};
use crate::options::Options;
use crate::plan::{Case, HEADER, Plan, has_control, header, layout};
use crate::result::LeftOut;

/// The context for the command line. What `-x` names is permitted, whatever the configuration says.
pub(crate) fn context(options: &Options) -> Result<Context, Failure> {
    let mut builder = options.common.builder();
    if let Some(transport) = &options.transport
        && !builder.core_config()?.tls.contains(transport)
    {
        builder = builder.set("tls", transport);
    }
    Ok(builder.build()?)
}

/// The interfaces to choose from: those that are named, or all that there are.
pub(crate) fn open(options: &Options, worker: &Worker) -> Result<Selector, Failure> {
    let context = worker.context();
    let Some(transport) = &options.transport else {
        let selector = Selector::open(worker, &IfaceOptions::default())?;
        return match &options.device {
            Some(device) => Ok(selector.on_device(device)?),
            None => Ok(selector),
        };
    };
    let is_named = |resource: &&Resource| {
        resource.transport == *transport
            && options.device.as_ref().is_none_or(|device| resource.device == *device)
    };
    let resources: Vec<&Resource> = context.resources().iter().filter(is_named).collect();
    if resources.is_empty() {
        let absent = &context.discovery().absent;
        let absent = absent.iter().find(|absent| absent.transports.contains(transport));
        if let (None, Some(absent)) = (&options.device, absent) {
            return Err(absent.refused.to_string().into());
        }
        // An error that names what there is instead.
        context.find(transport, options.device.as_deref().unwrap_or_default())?;
    }
    // Those that the configuration excludes are not open, unless nothing else is.
    let (mut ifaces, mut refused) = (Vec::new(), None);
    for resource in resources {
        match worker.open_resource(resource, IfaceOptions::default()) {
            Ok(iface) => ifaces.push(iface),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if ifaces.is_empty() => Err(error.into()),
        _ => Ok(Selector::of(worker, ifaces)),
    }
}

/// Those of the interfaces that have what the test needs.
pub(crate) fn able(options: &Options, worker: &Worker, selector: Selector) -> Result<Selector, Failure> {
    let test = options.test;
    if test.class().is_net() {
        return others(options, worker, selector);
    }
    if !matches!(test.class(), Class::Post | Class::Fetch(_)) {
        return Ok(selector);
    }
    let sizes = options.possible_sizes();
    let able = |iface: &&Iface| test.has_atomics(iface.attributes(), &sizes) && has_control(iface);
    let ifaces: Vec<Iface> = selector.ifaces().iter().filter(able).cloned().collect();
    if ifaces.is_empty() {
        return Err(format!("no transport here has the atomic of {}", test.name()).into());
    }
    Ok(Selector::of(worker, ifaces))
}

/// Those of the interfaces that lead to another worker: a connection of `uct-net` has two sides.
fn others(options: &Options, worker: &Worker, selector: Selector) -> Result<Selector, Failure> {
    let leads_away = |iface: &&Iface| iface.resource().kind != DeviceKind::Myself;
    let ifaces: Vec<Iface> = selector.ifaces().iter().filter(leads_away).cloned().collect();
    if ifaces.is_empty() {
        let test = options.test.name();
        return Err(format!("{test} needs a transport between two sides; choose another one with -x").into());
    }
    Ok(Selector::of(worker, ifaces))
}

/// The interfaces, to find a peer with.
pub(crate) fn net(worker: &Worker, selector: Selector, options: &Options) -> Result<Net, Failure> {
    let (handshake_timeout, lane_timeout) = (options.timeout, options.timeout);
    let timeouts = NetOptions { handshake_timeout, lane_timeout, ..NetOptions::default() };
    Ok(Net::over(worker, selector, timeouts)?)
}

/// What transports are judged for: the largest size that one of them takes, in every layout that is permitted.
pub(crate) fn requests(options: &Options, selector: &Selector) -> Vec<Request> {
    let test = options.test;
    if test.class().is_net() {
        // A long message goes in parts.
        return vec![NetOptions::default().request];
    }
    let of_size = |size: usize| -> Vec<Request> {
        let request = |layout| Request::new(test.operation(layout), size).with_header(header(test, layout));
        options.layout.map_or(Layout::ALL.map(request).to_vec(), |layout| vec![request(layout)])
    };
    let mut sizes = options.possible_sizes();
    sizes.sort_unstable();
    let is_possible = |request: &Request| selector.explain(request, None).chosen().is_some();
    let largest = sizes.iter().rev().copied().find(|&size| of_size(size).iter().any(is_possible));
    of_size(largest.or(sizes.last().copied()).unwrap_or(0))
}

/// The best interface to measure between two interfaces of this process.
pub(crate) fn choose(options: &Options, selector: Selector) -> Result<Choice, Failure> {
    let own = selector.addresses();
    let requests = requests(options, &selector);
    // Without a layout that is possible, the reasons of the last.
    let fastest = selector.cheapest(&requests, Some(&own));
    let request = fastest.or(requests.last()).expect("there is at least one layout");
    let is_possible = |request: &Request| selector.explain(request, Some(&own)).chosen().is_some();
    selector.choose(request, Some(&own)).map_err(|error| {
        let error = match error {
            SelectError::NoTransport(explanation) => SelectError::NoTransport(of_named(options, explanation)),
            other => other,
        };
        match options.layout {
            // It is a matter of the size.
            Some(layout) if is_possible(&Request::new(options.test.operation(layout), HEADER)) => {
                format!("{error}; {OTHER_SIZE}").into()
            }
            _ => error.into(),
        }
    })
}

/// Without the candidates that `-x` and `-d` leave out: nobody asked for them.
pub(crate) fn of_named(options: &Options, mut explanation: Explanation) -> Explanation {
    explanation.candidates.retain(|candidate| {
        options.transport.as_ref().is_none_or(|transport| candidate.transport == *transport)
            && (options.device.is_none() || candidate.device == options.device)
    });
    explanation
}

const OTHER_SIZE: &str = "choose a smaller -s, another -D, or leave -D out";

/// Why no server was found, with what to change if no transport of this side takes the size.
pub(crate) fn advise(options: &Options, net: &Net, failure: Failure) -> Failure {
    let selector = Selector::of(net.worker(), net.ifaces().to_vec());
    let possible = |size| {
        let request = Request::new(options.test.operation(options.layout?), size);
        Some(selector.explain(&request, None).chosen().is_some())
    };
    let smallest = options.possible_sizes().into_iter().min().unwrap_or(0);
    if possible(smallest) == Some(false) && possible(HEADER) == Some(true) {
        return format!("{failure}; {OTHER_SIZE}").into();
    }
    failure
}

/// The plan for a chosen interface: what it takes of the sizes, and the others with the reason.
pub(crate) fn plan(options: &Options, iface: &Iface) -> Result<(Plan, Vec<LeftOut>), Failure> {
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    for &size in options.sizes() {
        let fitting = match options.why_not(size) {
            Some(reason) => Err(reason),
            None => layout(options.test, options.layout, size, iface),
        };
        match fitting {
            Ok(layout) => {
                let (iterations, warmup) = (options.iterations(size), options.warmup(size));
                cases.push(Case { size, layout, iterations, warmup });
            }
            Err(reason) => left_out.push(LeftOut { size, reason }),
        }
    }
    if let (true, Some(LeftOut { reason, .. })) = (cases.is_empty(), left_out.first()) {
        return Err(reason.as_str().into());
    }
    let plan = Plan {
        test: options.test,
        wait: options.wait,
        window: options.window,
        outstanding: options.outstanding(),
        cases,
    };
    plan.check(iface)?;
    Ok((plan, left_out))
}
