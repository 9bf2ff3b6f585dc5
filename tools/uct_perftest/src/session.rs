//! The course of a run: at the client, at the server, and with both in this process.

use std::sync::mpsc;
use std::thread;

use uct_core::select::{Choice, Selector};
use uct_core::{Context, DeviceKind, Iface, Worker, system};
use uct_net::local::{Listener, Net};
use uct_tools_common::Failure;

use crate::kind::Wait;
use crate::options::Options;
use crate::output::Output;
use crate::peer::{self, Called, Kind, Peer};
use crate::plan::Plan;
use crate::result::{Chosen, Outcome, Record};
use crate::run::{Role, Side, connect_alone, connect_pair};
use crate::setup;

/// The client: finds the server, plans, measures.
pub(crate) fn client(options: &Options, host: &str, output: &mut Output) -> Result<Record, Failure> {
    stay_on(&options.cpus)?;
    let worker = Worker::new(&setup::context(options)?)?;
    let selector = setup::able(options, &worker, setup::open(options, &worker)?)?;
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let net = setup::net(&worker, selector, options)?;
    client_talk(options, &net, format!("{host}:{}", options.port), output)
}

/// The server: runs the client's plan.
pub(crate) fn server(options: &Options, output: &mut Output) -> Result<(), Failure> {
    stay_on(&options.cpus)?;
    let worker = Worker::new(&setup::context(options)?)?;
    let net = setup::net(&worker, setup::open(options, &worker)?, options)?;
    let listener = peer::listen(&net, options.port, options.by.as_deref())?;
    output.say(&format!("Waiting for connection on port {}...", listener.port().unwrap_or_default()))?;
    server_talk(options, &net, listener, |plan, iface| {
        output.say(&format!("Serving {} on {}", plan.test.name(), iface.resource()))
    })
}

/// Both sides in this process.
pub(crate) fn loopback(options: &Options, output: &mut Output) -> Result<Record, Failure> {
    let context = setup::context(options)?;
    let worker = Worker::new(&context)?;
    let selector = setup::able(options, &worker, setup::open(options, &worker)?)?;
    let choice = setup::choose(options, selector)?;
    if choice.iface.resource().kind == DeviceKind::Myself {
        stay_on(&options.cpus)?;
        return alone(options, &choice, output);
    }

    let resource = choice.iface.resource().clone();
    let server_cpus = options.cpus.get(1..2).unwrap_or(&options.cpus).to_vec();
    let client_cpus = options.cpus.get(..1).unwrap_or_default();
    drop(choice);
    let open = |context: &Context, cpus: &[usize]| -> Result<Net, Failure> {
        stay_on(cpus)?;
        let worker = Worker::new(context)?;
        let iface = worker.open_resource(&resource, uct_core::IfaceOptions::default())?;
        setup::net(&worker, Selector::of(&worker, vec![iface]), options)
    };
    // A Unix socket: it needs no port, and no transport takes it over.
    let directory = tempfile::tempdir()?;
    let address = format!("unix:{}", directory.path().join("uct_perftest").display());
    let (listens, is_listening) = mpsc::channel();
    thread::scope(|scope| {
        let server = thread::Builder::new().spawn_scoped(scope, || {
            let serve = || -> Result<(), Failure> {
                let net = open(&context, &server_cpus)?;
                let listener = net.block_on(net.listen(&address))?;
                listens.send(())?;
                server_talk(options, &net, listener, |_, _| Ok(()))
            };
            let served = serve().map_err(|failure| failure.to_string());
            drop(listens);
            served
        });
        let server = server.map_err(|error| format!("no thread for the server's side: {error}"))?;
        let client = open(&context, client_cpus).and_then(|net| {
            is_listening.recv().map_err(|_| "the server did not begin")?;
            client_talk(options, &net, address.clone(), output)
        });
        let served = server.join().unwrap_or_else(|_| Err("the server's thread panicked".to_owned()));
        match (client, served) {
            (Ok(record), Ok(())) => Ok(record),
            (Err(_), Err(failure)) if is_listening.recv().is_err() => Err(failure.into()),
            (Err(failure), _) => Err(failure),
            (Ok(_), Err(failure)) => Err(failure.into()),
        }
    })
}

fn alone(options: &Options, choice: &Choice, output: &mut Output) -> Result<Record, Failure> {
    let (plan, left_out) = setup::plan(options, &choice.iface)?;
    let chosen = Chosen::of(&choice.iface, &setup::of_named(options, choice.explanation.clone()));
    output.begin(options, &plan, &chosen, &left_out)?;
    let side = connect_alone(&choice.iface, plan.clone(), options.timeout)?;
    measure(Record::of(options, &plan, chosen, left_out), options, &plan, &side, output)
}

fn client_talk(
    options: &Options,
    net: &Net,
    address: String,
    output: &mut Output,
) -> Result<Record, Failure> {
    let selector = Selector::of(net.worker(), net.ifaces().to_vec());
    let called = Called { address, by: options.by.clone() };
    let mut peer = Peer::call(net, called, &setup::requests(options, &selector), options.timeout)
        .map_err(|failure| setup::advise(options, net, failure))?;
    let (plan, left_out) = match setup::plan(options, peer.iface()) {
        Ok(plan) => plan,
        Err(failure) => return Err(peer.give_up(failure)),
    };
    peer.send_value(Kind::Plan, &plan)?;
    peer.receive(Kind::Agreed)?;
    let chosen = Chosen::of(peer.iface(), &setup::of_named(options, peer.explanation().clone()));
    output.begin(options, &plan, &chosen, &left_out)?;
    let side = side(peer, &plan, Role::Active, options)?;
    let record = Record::of(options, &plan, chosen, left_out);
    measure(record, options, &plan, &side, output).map_err(|failure| side.give_up(failure))
}

fn side(peer: Peer, plan: &Plan, role: Role, options: &Options) -> Result<Side, Failure> {
    if plan.wait == Wait::Poll {
        peer.stop_other_ifaces();
    }
    connect_pair(peer, plan.clone(), role, options.timeout)
}

fn measure(
    mut record: Record,
    options: &Options,
    plan: &Plan,
    side: &Side,
    output: &mut Output,
) -> Result<Record, Failure> {
    for case in &plan.cases {
        let mut progress = output.case(plan, case);
        let measured = side.run(case, options.batch, &mut |interim| progress.tell(interim))?;
        progress.end();
        let wrong = measured.wrong + measured.server.map_or(0, |server| server.wrong);
        if wrong > 0 {
            return Err(format!("{wrong} messages arrived with a wrong length").into());
        }
        let outcome = Outcome::of(plan, case, &measured);
        output.outcome(plan, &outcome)?;
        record.results.push(outcome);
    }
    side.finish()?;
    Ok(record)
}

fn server_talk(
    options: &Options,
    net: &Net,
    listener: Listener,
    begins: impl FnOnce(&Plan, &Iface) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut peer = Peer::accept(net, listener, options.timeout)?;
    let checked = peer.receive_value(Kind::Plan).and_then(|plan: Plan| {
        plan.check(peer.iface())?;
        Ok(plan)
    });
    let plan = match checked {
        Ok(plan) => plan,
        Err(failure) => return Err(peer.give_up(failure)),
    };
    begins(&plan, peer.iface())?;
    peer.send(Kind::Agreed, &[])?;
    let side = side(peer, &plan, Role::Passive, options)?;
    let serve = || {
        for case in &plan.cases {
            side.run(case, None, &mut |_| {})?;
        }
        side.finish()
    };
    serve().map_err(|failure| side.give_up(failure))
}

fn stay_on(cpus: &[usize]) -> Result<(), Failure> {
    if cpus.is_empty() { Ok(()) } else { Ok(system::cpu::pin(cpus)?) }
}
