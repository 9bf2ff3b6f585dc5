//! The client: chooses, connects, sends the string, and has it confirmed.

use std::time::{Duration, Instant};

use uct_core::select::{PeerAddresses, Request, Selector};
use uct_core::{Access, Completion, Error, Flush, Iface, MemoryKind, Posted, SendFlags, Worker};

use crate::connect::Connection;
use crate::oob::{Kind, Oob};
use crate::options::{Flavour, Options};
use crate::{Failure, HELLO, print_choice, say};

/// Sent ahead of the string, where `am_short` has its header.
pub(crate) const HEADER: u64 = u64::from_le_bytes(*b"uct_helo");

pub(crate) fn run(
    options: &Options,
    worker: &Worker,
    selector: &Selector,
    mut oob: Oob,
    deadline: Instant,
) -> Result<(), Failure> {
    talk(options, worker, selector, &mut oob, deadline).map_err(|failure| oob.give_up(failure))
}

fn talk(
    options: &Options,
    worker: &Worker,
    selector: &Selector,
    oob: &mut Oob,
    deadline: Instant,
) -> Result<(), Failure> {
    let own = selector.addresses();
    oob.send(Kind::Addresses, &own.pack()?)?;
    let peer = PeerAddresses::unpack(&oob.receive(Kind::Addresses)?)?;

    let flavour = options.flavour();
    // The header counts, but for am_short, whose limit leaves it out.
    let extra = if flavour == Flavour::Short { 0 } else { size_of::<u64>() };
    let request = Request::new(flavour.operation(), options.size + extra);
    let choice = selector.choose(&request, Some(&peer))?;
    let iface = choice.iface;
    let address = choice.peer.ok_or("the choice names no address of the peer")?;

    // Both sides have to mean the same pair of interfaces.
    let own_address = iface.address()?;
    let own_index = own.ifaces.iter().position(|iface| iface.address == own_address);
    let peer_index = peer.ifaces.iter().position(|iface| iface.address == address);
    let (Some(own_index), Some(peer_index)) = (own_index, peer_index) else {
        return Err("an interface changed its address while it was open".into());
    };
    let mut message = Vec::new();
    message.extend_from_slice(&(own_index as u32).to_le_bytes());
    message.extend_from_slice(&(peer_index as u32).to_le_bytes());
    message.push(flavour as u8);
    message.extend_from_slice(&(options.size as u64).to_le_bytes());
    oob.send(Kind::Choice, &message)?;

    let resource = iface.resource().clone();
    let cost = choice.explanation.chosen().and_then(|candidate| candidate.cost().map(ToString::to_string));
    let why = format!(
        "Chosen for the lowest latency of what both sides have, from {}: {}",
        resource.origin,
        cost.unwrap_or_default()
    );
    print_choice(options, &choice.explanation, &resource.device, &resource.transport, &why)?;

    let connection = Connection::new(&iface, &address, oob)?;
    let text = test_string(options.size);
    send(&connection, worker, &iface, flavour, &text, deadline)?;

    // The server replies over the other connection; this one needs progress meanwhile.
    while !oob.is_readable()? {
        worker.progress();
        connection.check()?;
        in_time(deadline, "the server did not confirm the string")?;
    }
    let received = oob.receive(Kind::Received)?;
    if received != text {
        return Err(format!(
            "the server received {} bytes that are not the {} sent",
            received.len(),
            text.len()
        )
        .into());
    }
    oob.send(Kind::Done, &[])?;
    say(&format!("The server received all {} bytes.\n", text.len()))
}

/// The string that UCX's program sends.
pub(crate) fn test_string(size: usize) -> Vec<u8> {
    (b'A'..=b'Z').cycle().take(size).collect()
}

fn send(
    connection: &Connection,
    worker: &Worker,
    iface: &Iface,
    flavour: Flavour,
    text: &[u8],
    deadline: Instant,
) -> Result<(), Failure> {
    let ep = &connection.ep;
    let completion = Completion::new(worker);
    let memory = match flavour {
        Flavour::Zcopy => {
            let memory = iface.memory_domain().allocate(text.len().max(1), Access::ALL, MemoryKind::Host)?;
            memory.write(0, text);
            Some(memory.slice(..text.len()))
        }
        _ => None,
    };
    let attempt = || match (flavour, &memory) {
        (Flavour::Zcopy, Some(slice)) => {
            let slices = std::slice::from_ref(slice);
            ep.am_zcopy(HELLO, &HEADER.to_ne_bytes(), slices, SendFlags::empty(), &completion).map(drop)
        }
        (Flavour::Bcopy, _) => ep
            .am_bcopy(HELLO, SendFlags::empty(), |buffer| {
                let (header, rest) = buffer.split_at_mut(size_of::<u64>());
                header.copy_from_slice(&HEADER.to_ne_bytes());
                rest[..text.len()].copy_from_slice(text);
                header.len() + text.len()
            })
            .map(drop),
        _ => ep.am_short(HELLO, HEADER, text),
    };
    loop {
        connection.check()?;
        match attempt() {
            Ok(()) => break,
            Err(Error::NO_RESOURCE) => {
                worker.progress();
                in_time(deadline, "the transport had no room for the string")?;
            }
            Err(error) => return Err(format!("{} failed: {error}", flavour.operation().name()).into()),
        }
    }
    loop {
        connection.check()?;
        match ep.flush(Flush::empty(), None) {
            Ok(Posted::Done) if completion.is_done() => break,
            Ok(_) | Err(Error::NO_RESOURCE) => {
                worker.progress();
                in_time(deadline, "the string was not sent")?;
            }
            Err(error) => return Err(format!("flush failed: {error}").into()),
        }
    }
    completion.result().map_err(|error| format!("{} failed: {error}", flavour.operation().name()).into())
}

/// An error once the time is over.
pub(crate) fn in_time(deadline: Instant, what: &str) -> Result<(), Failure> {
    if Instant::now() < deadline {
        // Where client and server share a processor, the other one has to run too.
        std::thread::sleep(Duration::ZERO);
        return Ok(());
    }
    Err(format!("{what} in time; allow more with --timeout, or see what the server says").into())
}
