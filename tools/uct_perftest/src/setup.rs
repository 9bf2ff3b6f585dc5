//! From the command line to a chosen pair of interfaces and a plan.

use uct_core::select::{Candidate, Choice, Request, Selector};
use uct_core::{Context, DeviceKind, Iface, IfaceOptions, Worker};
use uct_net::NetOptions;
use uct_net::local::Net;
use uct_tools_common::Failure;

use crate::kind::{Class, Layout};
use crate::options::Options;
use crate::plan::{Case, HEADER, Plan, has_control, layout};

/// The context for the command line.
pub(crate) fn context(options: &Options) -> Result<Context, Failure> {
    let mut builder = options.common.builder();
    if let Some(transport) = &options.transport {
        builder = builder.set("tls", transport);
    }
    Ok(builder.build()?)
}

/// The interfaces to choose from: the one that is named, or all that there are.
pub(crate) fn open(options: &Options, worker: &Worker) -> Result<Selector, Failure> {
    let context = worker.context();
    match (&options.transport, &options.device) {
        (Some(transport), Some(device)) => {
            // The exact pair, with an error that names what there is instead.
            let resource = context.find(transport, device)?;
            let iface = worker.open_resource(&resource, IfaceOptions::default())?;
            Ok(Selector::of(worker, vec![iface]))
        }
        (transport, device) => {
            if let Some(transport) = transport
                && !context.transport_names().contains(transport)
            {
                context.find(transport, "")?;
            }
            let selector = Selector::open(worker, &IfaceOptions::default())?;
            match device {
                Some(device) => Ok(selector.on_device(device)?),
                None => Ok(selector),
            }
        }
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
    let able = |iface: &&Iface| test.has_atomics(iface.attributes(), &options.sizes.0) && has_control(iface);
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
    let timeouts = NetOptions { handshake_timeout: options.timeout, ..NetOptions::default() };
    Ok(Net::over(worker, selector, timeouts)?)
}

/// What transports are judged for: the largest size, in every layout that is permitted.
pub(crate) fn requests(options: &Options) -> Vec<Request> {
    let test = options.test;
    if test.class().is_net() {
        // A long message goes in parts.
        return vec![NetOptions::default().request];
    }
    let size = options.sizes.0.iter().copied().max().unwrap_or(0);
    let request = |layout| {
        let extra = if test.class() == Class::Am && layout == Layout::Bcopy { HEADER } else { 0 };
        Request::new(test.operation(layout), size + extra)
    };
    options.layout.map_or(Layout::ALL.map(request).to_vec(), |layout| vec![request(layout)])
}

/// The best interface to measure between two interfaces of this process.
pub(crate) fn choose(options: &Options, selector: Selector) -> Result<Choice, Failure> {
    let own = selector.addresses();
    let requests = requests(options);
    let cost = |request: &Request| {
        let explanation = selector.explain(request, Some(&own));
        explanation.chosen().and_then(Candidate::cost).map_or(f64::INFINITY, |cost| cost.total)
    };
    // Without a layout that is possible, the reasons of the last.
    let fastest = requests.iter().map(|request| (cost(request), request));
    let fastest =
        fastest.filter(|(cost, _)| cost.is_finite()).min_by(|left, right| left.0.total_cmp(&right.0));
    let request =
        fastest.map(|(_, request)| request).or(requests.last()).expect("there is at least one layout");
    selector.choose(request, Some(&own)).map_err(|error| match options.layout {
        // It is a matter of the size.
        Some(layout) if cost(&Request::new(options.test.operation(layout), HEADER)).is_finite() => {
            format!("{error}; {OTHER_SIZE}").into()
        }
        _ => error.into(),
    })
}

const OTHER_SIZE: &str = "choose a smaller -s, another -D, or leave -D out";

/// Why no server was found, with what to change if no transport of this side takes the size.
pub(crate) fn advise(options: &Options, net: &Net, failure: Failure) -> Failure {
    let selector = Selector::of(net.worker(), net.ifaces().to_vec());
    let possible = |size| {
        let request = Request::new(options.test.operation(options.layout?), size);
        Some(selector.explain(&request, None).chosen().is_some())
    };
    let largest = options.sizes.0.iter().copied().max().unwrap_or(0);
    if possible(largest) == Some(false) && possible(HEADER) == Some(true) {
        return format!("{failure}; {OTHER_SIZE}").into();
    }
    failure
}

/// The plan for a chosen interface.
pub(crate) fn plan(options: &Options, iface: &Iface) -> Result<Plan, Failure> {
    let case = |&size: &usize| -> Result<Case, String> {
        Ok(Case {
            size,
            layout: layout(options.test, options.layout, size, iface)?,
            iterations: options.iterations(size),
            warmup: options.warmup(size),
        })
    };
    let plan = Plan {
        test: options.test,
        wait: options.wait,
        window: options.window,
        outstanding: options.outstanding(),
        cases: options.sizes().iter().map(case).collect::<Result<_, _>>()?,
    };
    plan.check(iface)?;
    Ok(plan)
}
