//! The course of a run: at the client, at the server, and with both in this process.

use std::thread;

use uct_core::select::{Choice, PeerAddresses, Selector};
use uct_core::{Context, DeviceKind, Iface, IfaceAddress, Worker, system};
use uct_tools_common::Failure;

use crate::oob::{Kind, Oob};
use crate::options::Options;
use crate::output::Output;
use crate::plan::Plan;
use crate::result::{Chosen, Outcome, Record};
use crate::run::{Role, Side, connect_alone, connect_pair};
use crate::setup;

/// The client: chooses, plans, measures.
pub(crate) fn client(options: &Options, host: &str, output: &mut Output) -> Result<Record, Failure> {
    stay_on(&options.cpus)?;
    let worker = Worker::new(&setup::context(options)?)?;
    let selector = setup::open(options, &worker)?;
    let oob = Oob::connect(host, options.port, options.timeout)?;
    client_talk(options, &worker, selector, oob, output)
}

/// The server: runs the client's plan.
pub(crate) fn server(options: &Options, output: &mut Output) -> Result<(), Failure> {
    stay_on(&options.cpus)?;
    let worker = Worker::new(&setup::context(options)?)?;
    let selector = setup::open(options, &worker)?;
    output.say(&format!("Waiting for connection on port {}...", options.port))?;
    let oob = Oob::accept(options.port, options.timeout)?;
    server_talk(options, &worker, &selector, oob, |plan, iface| {
        output.say(&format!("Serving {} on {}", plan.test.name(), iface.resource()))
    })
}

/// Both sides in this process.
pub(crate) fn loopback(options: &Options, output: &mut Output) -> Result<Record, Failure> {
    let context = setup::context(options)?;
    let worker = Worker::new(&context)?;
    let selector = setup::open(options, &worker)?;
    let own = selector.addresses();
    let choice = setup::choose(options, &worker, selector, &own)?;
    if choice.iface.resource().kind == DeviceKind::Myself {
        stay_on(&options.cpus)?;
        return alone(options, &choice, output);
    }

    let (client_oob, server_oob) = Oob::pair(options.timeout)?;
    let resource = choice.iface.resource().clone();
    let server_cpus = options.cpus.get(1..2).unwrap_or(&options.cpus).to_vec();
    let client_cpus = options.cpus.get(..1).unwrap_or_default();
    drop(choice);
    let open = |context: &Context, cpus: &[usize]| -> Result<(Worker, Selector), Failure> {
        stay_on(cpus)?;
        let worker = Worker::new(context)?;
        let iface = worker.open_resource(&resource, uct_core::IfaceOptions::default())?;
        let selector = Selector::of(&worker, vec![iface]);
        Ok((worker, selector))
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (worker, selector) = open(&context, &server_cpus).map_err(|failure| failure.to_string())?;
            let served = server_talk(options, &worker, &selector, server_oob, |_, _| Ok(()));
            served.map_err(|failure| failure.to_string())
        });
        let client = open(&context, client_cpus)
            .and_then(|(worker, selector)| client_talk(options, &worker, selector, client_oob, output));
        let served = server.join().unwrap_or_else(|_| Err("the server's thread panicked".to_owned()));
        match (client, served) {
            (Ok(record), Ok(())) => Ok(record),
            (Err(failure), _) => Err(failure),
            (Ok(_), Err(failure)) => Err(failure.into()),
        }
    })
}

fn alone(options: &Options, choice: &Choice, output: &mut Output) -> Result<Record, Failure> {
    let plan = setup::plan(options, &choice.iface, (0, 0))?;
    output.begin(options, &plan, &Chosen::of(choice))?;
    let side = connect_alone(&choice.iface, plan.clone(), options.timeout)?;
    measure(options, choice, &plan, &side, output)
}

fn client_talk(
    options: &Options,
    worker: &Worker,
    selector: Selector,
    mut oob: Oob,
    output: &mut Output,
) -> Result<Record, Failure> {
    match agree(options, worker, selector, &mut oob) {
        Err(failure) => Err(oob.give_up(failure)),
        Ok((choice, peer, plan)) => {
            output.begin(options, &plan, &Chosen::of(&choice))?;
            let side = connect_pair(&choice.iface, &peer, oob, plan.clone(), Role::Active, options.timeout)?;
            measure(options, &choice, &plan, &side, output).map_err(|failure| side.give_up(failure))
        }
    }
}

/// Exchanges addresses, chooses, and sends the plan.
fn agree(
    options: &Options,
    worker: &Worker,
    selector: Selector,
    oob: &mut Oob,
) -> Result<(Choice, IfaceAddress, Plan), Failure> {
    let (own, peers) = exchange(worker, &selector, oob)?;
    let choice = setup::choose(options, worker, selector, &peers)?;
    let address = choice.peer.clone().ok_or("the choice names no address of the peer")?;
    let pair = (setup::index_of(&own, &choice.iface.address()?)?, setup::index_of(&peers, &address)?);
    let plan = setup::plan(options, &choice.iface, pair)?;
    oob.send_value(Kind::Plan, &plan)?;
    Ok((choice, address, plan))
}

/// Sends the addresses of this side to the peer; returns them and the peer's.
fn exchange(
    worker: &Worker,
    selector: &Selector,
    oob: &mut Oob,
) -> Result<(PeerAddresses, PeerAddresses), Failure> {
    let own = selector.addresses();
    oob.send(Kind::Addresses, &own.pack()?)?;
    let peers = oob.receive(Kind::Addresses, || {
        worker.progress();
        Ok(())
    })?;
    Ok((own, PeerAddresses::unpack(&peers)?))
}

fn measure(
    options: &Options,
    choice: &Choice,
    plan: &Plan,
    side: &Side,
    output: &mut Output,
) -> Result<Record, Failure> {
    let mut record = Record::of(options, plan, choice);
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
    worker: &Worker,
    selector: &Selector,
    mut oob: Oob,
    told: impl FnOnce(&Plan, &Iface) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (iface, peer, plan) = match follow(worker, selector, &mut oob) {
        Ok(followed) => followed,
        Err(failure) => return Err(oob.give_up(failure)),
    };
    told(&plan, &iface)?;
    let side = connect_pair(&iface, &peer, oob, plan.clone(), Role::Passive, options.timeout)?;
    let serve = || {
        for case in &plan.cases {
            side.run(case, None, &mut |_| {})?;
        }
        side.finish()
    };
    serve().map_err(|failure| side.give_up(failure))
}

/// Takes the client's plan.
fn follow(
    worker: &Worker,
    selector: &Selector,
    oob: &mut Oob,
) -> Result<(Iface, IfaceAddress, Plan), Failure> {
    let (own, peers) = exchange(worker, selector, oob)?;
    let plan: Plan = oob.receive_value(Kind::Plan, || {
        worker.progress();
        Ok(())
    })?;
    let address = peers.ifaces.get(plan.client_iface).map(|iface| iface.address.clone());
    let own = own.ifaces.get(plan.server_iface).map(|iface| iface.address.clone());
    let (Some(address), Some(own)) = (address, own) else {
        return Err("the client chose an interface that is not on the lists".into());
    };
    let iface = selector
        .ifaces()
        .iter()
        .find(|iface| iface.address().as_ref() == Ok(&own))
        .ok_or("an interface changed its address while it was open")?
        .clone();
    plan.check(&iface)?;
    Ok((iface, address, plan))
}

fn stay_on(cpus: &[usize]) -> Result<(), Failure> {
    if cpus.is_empty() { Ok(()) } else { Ok(system::cpu::pin(cpus)?) }
}
