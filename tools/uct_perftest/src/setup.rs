//! From the command line to a chosen pair of interfaces and a plan.

use uct_core::select::{Candidate, Choice, PeerAddresses, Request, Selector};
use uct_core::{Context, Iface, IfaceAddress, IfaceOptions, Worker};
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
            let selector = Selector::open(worker, &IfaceOptions::default());
            match device {
                Some(device) => Ok(selector.on_device(device)?),
                None => Ok(selector),
            }
        }
    }
}

/// The best interface for what is to be measured.
pub(crate) fn choose(
    options: &Options,
    worker: &Worker,
    selector: Selector,
    peer: &PeerAddresses,
) -> Result<Choice, Failure> {
    let test = options.test;
    let able = |iface: &&Iface| test.has_atomics(iface.attributes(), &options.sizes.0) && has_control(iface);
    let selector = if matches!(test.class(), Class::Post | Class::Fetch(_)) {
        let ifaces: Vec<Iface> = selector.ifaces().iter().filter(able).cloned().collect();
        if ifaces.is_empty() {
            return Err(format!("no transport here has the atomic of {}", test.name()).into());
        }
        Selector::of(worker, ifaces)
    } else {
        selector
    };
    let size = options.sizes.0.iter().copied().max().unwrap_or(0);
    let request = |layout| {
        let extra = if test.class() == Class::Am && layout == Layout::Bcopy { HEADER } else { 0 };
        Request::new(test.operation(layout), size + extra)
    };
    // The layout with the lowest cost for the largest size; without one, the reasons of the last.
    let requests = options.layout.map_or(Layout::ALL.map(request).to_vec(), |layout| vec![request(layout)]);
    let cost = |request: &&Request| {
        let explanation = selector.explain(request, Some(peer));
        explanation.chosen().and_then(Candidate::cost).map_or(f64::INFINITY, |cost| cost.total)
    };
    let fastest = requests.iter().map(|request| (cost(&request), request));
    let fastest =
        fastest.filter(|(cost, _)| cost.is_finite()).min_by(|left, right| left.0.total_cmp(&right.0));
    let request =
        fastest.map(|(_, request)| request).or(requests.last()).expect("there is at least one layout");
    selector.choose(request, Some(peer)).map_err(|error| match options.layout {
        // It is a matter of the size.
        Some(layout) if cost(&&Request::new(test.operation(layout), HEADER)).is_finite() => {
            format!("{error}; choose a smaller -s, another -D, or leave -D out").into()
        }
        _ => error.into(),
    })
}

/// The plan for a chosen interface.
pub(crate) fn plan(options: &Options, iface: &Iface, pair: (usize, usize)) -> Result<Plan, Failure> {
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
        client_iface: pair.0,
        server_iface: pair.1,
        wait: options.wait,
        window: options.window,
        outstanding: options.outstanding(),
        cases: options.sizes.0.iter().map(case).collect::<Result<_, _>>()?,
    };
    plan.check(iface)?;
    Ok(plan)
}

/// The place of an address in a list.
pub(crate) fn index_of(list: &PeerAddresses, address: &IfaceAddress) -> Result<usize, Failure> {
    let found = list.ifaces.iter().position(|iface| iface.address == *address);
    found.ok_or_else(|| "an interface changed its address while it was open".into())
}
