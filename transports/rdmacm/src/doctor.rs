//! What prevents connections to an address: the steps that a connection takes, one finding each.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucs::Error;
use uct_ib::verbs;
use uct_ib::{Port, device};
use uct_plugin::cm::Finding;

use crate::io::abi::{RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED};
use crate::io::{self, Channel, CmError, Event, Id, netdevs};
use crate::link::explain::{explain, loopback, refusal};
use crate::proto::refusal::{Refusal, Step};

/// How long address and route may take, each.
const RESOLVE: Duration = Duration::from_secs(2);

/// All steps up to the first obstacle. Blocks for twice [`RESOLVE`] at most.
pub(crate) fn examine(address: SocketAddr) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(refusal) = walk(address, &mut |words| findings.push(Finding { obstacle: None, words })) {
        findings.push(Finding { obstacle: Some(refusal.status), words: refusal.words });
    }
    findings
}

fn walk(address: SocketAddr, fine: &mut dyn FnMut(String)) -> Result<(), Refusal> {
    let table = io::load().map_err(|error| Refusal::new(Error::UNSUPPORTED, error.to_string()))?;
    fine("librdmacm is loaded and has all required functions".to_owned());
    let channel = Channel::new(table).map_err(|error| refusal(&error, Step::Open, ""))?;
    fine("an event channel of rdma_cm opens".to_owned());
    devices(fine)?;
    if let Some(refusal) = loopback(Step::Connect, address) {
        return Err(refusal);
    }
    match netdevs::owner(address.ip()) {
        Some(netdev) => own(&channel, address, &netdev, fine),
        None => peer(&channel, address, fine),
    }
}

/// Each device, with what is wrong with it; one that works is enough.
fn devices(fine: &mut dyn FnMut(String)) -> Result<(), Refusal> {
    let failed =
        |error: &uct_ib::IbError| Refusal::new(Error::from_status(error.status()), error.to_string());
    // Those that librdmacm itself has: it loads the system's library.
    let verbs = verbs::load("auto").map_err(|error| failed(&error))?;
    let all = device::devices(verbs).map_err(|error| failed(&error))?;
    let mut wrong = Vec::new();
    let mut working = 0;
    for found in &all {
        let name = found.name();
        if found.guid() == 0 {
            wrong.push(format!("{name} has node GUID zero, and rdma_cm leaves it out → set one in the driver or the hypervisor"));
            continue;
        }
        match device::open(verbs, &name).and_then(|device| Port::query(&device.context, 1)?.require_active())
        {
            Ok(()) => {
                working += 1;
                fine(format!("{name} opens, and its port 1 is active"));
            }
            Err(error) => wrong.push(error.to_string()),
        }
    }
    if working == 0 {
        return Err(Refusal::new(Error::NO_DEVICE, wrong.join("; ")));
    }
    wrong.into_iter().for_each(|words| fine(format!("not used: {words}")));
    Ok(())
}

/// An address of this machine: a server listens there.
fn own(
    channel: &Arc<Channel>,
    address: SocketAddr,
    netdev: &str,
    fine: &mut dyn FnMut(String),
) -> Result<(), Refusal> {
    let subject = address.to_string();
    if let Some(rdma) = netdevs::attached().get(netdev) {
        fine(format!(
            "{} is of this machine: network device {netdev}, with {}",
            address.ip(),
            rdma.join(", ")
        ));
    }
    let bound = |error: CmError| refusal(&error, Step::Bind, &subject);
    let id = Id::new(channel, 0).map_err(bound)?;
    id.bind(address).map_err(bound)?;
    id.listen(1).map_err(|error| refusal(&error, Step::Listen, &subject))?;
    fine(format!("a server can listen on {subject}"));
    Ok(())
}

/// An address of a peer: the way there. Whether a program listens is not asked, since it would see a request.
fn peer(channel: &Arc<Channel>, address: SocketAddr, fine: &mut dyn FnMut(String)) -> Result<(), Refusal> {
    let subject = address.to_string();
    let milliseconds = i32::try_from(RESOLVE.as_millis()).unwrap_or(i32::MAX);
    let id = Id::new(channel, 0).map_err(|error| refusal(&error, Step::Address, &subject))?;
    id.resolve_address(None, address, milliseconds)
        .map_err(|error| refusal(&error, Step::Address, &subject))?;
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, Step::Address, &subject)?;
    let (device, port) = id.device().ok_or_else(|| explain(Step::Address, &subject, libc::ENODEV))?;
    let local = id.local_address().map_or_else(String::new, |local| format!(" from {}", local.ip()));
    fine(format!("the address of {subject} is resolved{local}, over {device}:{port}"));
    id.resolve_route(milliseconds).map_err(|error| refusal(&error, Step::Route, &subject))?;
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, Step::Route, &subject)?;
    fine(format!("the route to {subject} is resolved"));
    Ok(())
}

/// Waits for an event of a step.
fn expect(channel: &Arc<Channel>, wanted: u32, step: Step, subject: &str) -> Result<(), Refusal> {
    let deadline = Instant::now() + RESOLVE + Duration::from_secs(1);
    loop {
        match Event::take(channel).map_err(|error| refusal(&error, step, subject))? {
            Some(event) if event.event == wanted => return Ok(()),
            Some(event) => return Err(explain(step, subject, -event.status)),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(explain(step, subject, libc::ETIMEDOUT));
        }
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&channel.as_fd(), PollFlags::IN)], Some(&left));
    }
}
