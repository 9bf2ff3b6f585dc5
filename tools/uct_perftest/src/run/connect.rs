//! From a connection to a side that can begin: handlers and memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use uct_core::{Access, AmId, Capabilities, Completion, Ep, Iface, Memory, MemoryKind, SendFlags};
use uct_tools_common::Failure;

use super::buffer::Buffer;
use super::driver::Driver;
use super::net::Data;
use super::side::{Buffers, Inbox, Remote, Ring, Role, Side};
use crate::kind::{Class, Layout};
use crate::peer::{Kind, Peer};
use crate::plan::{HEADER, Plan, RemoteMemory};

/// What is measured.
pub(super) const DATA: AmId = AmId::new(0).unwrap();
/// The peer has done its part of a phase; the header is its number.
pub(super) const CONTROL: AmId = AmId::new(1).unwrap();
/// The peer has received so many messages; the header is their number.
pub(super) const CONFIRMATION: AmId = AmId::new(2).unwrap();

/// Memory beside the messages: room to align in.
const SPARE: usize = 64;
const WORD: u64 = size_of::<u64>() as u64;

/// Makes a side of the connection to a peer; both sides call it.
pub(crate) fn connect_pair(
    mut peer: Peer,
    plan: Plan,
    role: Role,
    patience: Duration,
) -> Result<Side, Failure> {
    let ep = peer.ep().clone();
    let built = build(ep, &plan).and_then(|built| exchange_memory(built, &mut peer)).and_then(|built| {
        let data = Data::open(&mut peer, &plan)?;
        Ok((built, data))
    });
    match built {
        Ok((built, data)) => Ok(built.side(Some(peer), data, plan, role, patience)),
        Err(failure) => Err(peer.give_up(failure)),
    }
}

/// An endpoint from an interface to itself.
pub(crate) fn connect_alone(iface: &Iface, plan: Plan, patience: Duration) -> Result<Side, Failure> {
    let ep = iface.connect(&iface.address()?)?;
    let mut built = build(ep, &plan)?;
    if let Some((target, base)) = &built.buffers.target {
        let key = iface.memory_domain().unpack(&target.packed_key()?)?;
        built.buffers.remote = Some(Remote { address: target.address() + *base as u64, key });
    }
    Ok(built.side(None, Data::None, plan, Role::Alone, patience))
}

/// The parts of a side.
struct Built {
    ep: Ep,
    inbox: Rc<Inbox>,
    buffers: Buffers,
}

impl Built {
    fn side(self, peer: Option<Peer>, data: Data, plan: Plan, role: Role, patience: Duration) -> Side {
        let worker = self.ep.iface().worker();
        let completions = (0..plan.outstanding).map(|_| Completion::new(&worker)).collect();
        Side {
            driver: Driver::new(self.ep, peer, plan.wait, patience),
            role,
            plan,
            inbox: self.inbox,
            buffers: self.buffers,
            data,
            ring: Ring::new(completions),
            phase: Cell::new(0),
            sequence: Cell::new(0),
            is_bystander: Cell::new(false),
        }
    }
}

fn build(ep: Ep, plan: &Plan) -> Result<Built, Failure> {
    let iface = ep.iface();
    let inbox = Rc::new(Inbox::default());
    let own = Rc::clone(&inbox);
    iface.set_am_handler(DATA, move |message| {
        let counter = if message.len() == own.expected.get() { &own.data } else { &own.wrong };
        counter.set(counter.get() + 1);
    });
    let own = Rc::clone(&inbox);
    iface.set_am_handler(CONTROL, move |message| own.control.set(message.header().unwrap_or(0)));
    let own = Rc::clone(&inbox);
    iface.set_am_handler(CONFIRMATION, move |message| own.confirmed.set(message.header().unwrap_or(0)));
    let buffers = allocate(&iface, plan)?;
    Ok(Built { ep, inbox, buffers })
}

fn allocate(iface: &Iface, plan: &Plan) -> Result<Buffers, Failure> {
    let largest = plan.largest();
    let memory = |access| -> Result<Memory, Failure> {
        let memory = iface.memory_domain().allocate(largest + SPARE, access, MemoryKind::Host)?;
        // What is read must not be what the system has not backed with memory yet.
        memory.fill(0, memory.len(), 1);
        Ok(memory)
    };
    let zcopy = plan.cases.iter().any(|case| case.layout == Layout::Zcopy);
    let source = zcopy.then(|| memory(Access::ALL)).transpose()?;
    let target = match plan.test.class() {
        Class::Am | Class::Connect | Class::Await | Class::Stream => None,
        Class::Put | Class::Get | Class::Post | Class::Fetch(_) => {
            let memory = memory(Access::ALL)?;
            let base = (memory.address().next_multiple_of(WORD) - memory.address()) as usize;
            Some((memory, base))
        }
    };
    Ok(Buffers { payload: Buffer::new(largest)?, source, target, remote: None })
}

fn exchange_memory(mut built: Built, peer: &mut Peer) -> Result<Built, Failure> {
    let Some((target, base)) = &built.buffers.target else { return Ok(built) };
    let own = RemoteMemory { address: target.address() + *base as u64, key: target.packed_key()? };
    peer.send_value(Kind::Memory, &own)?;
    let peers: RemoteMemory = peer.receive_value(Kind::Memory)?;
    let key = built.ep.iface().memory_domain().unpack(&peers.key)?;
    built.buffers.remote = Some(Remote { address: peers.address, key });
    Ok(built)
}

/// Sends a message that is nothing but a header.
pub(super) fn send_header(driver: &Driver, id: AmId, header: u64) -> Result<(), Failure> {
    let ep = &driver.ep;
    if ep.iface().capabilities().contains(Capabilities::AM_SHORT) {
        return driver.post(|| ep.am_short(id, header, &[]));
    }
    let pack = |buffer: &mut [u8]| {
        buffer[..HEADER].copy_from_slice(&header.to_ne_bytes());
        HEADER
    };
    driver.post(|| ep.am_bcopy(id, SendFlags::empty(), pack)).map(drop)
}
