//! The server: takes the client's choice, receives the string and prints it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use uct_core::Worker;
use uct_core::select::{PeerAddresses, Request, Selector};

use crate::client::{HEADER, in_time, test_string};
use crate::connect::Connection;
use crate::oob::{Kind, Oob};
use crate::options::{Flavour, Options};
use crate::{Failure, HELLO, print_choice, print_success};

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

    let (client_index, own_index, flavour, size) = read_choice(&oob.receive(Kind::Choice)?)?;
    let address = peer.ifaces.get(client_index).map(|iface| &iface.address);
    let own_address = own.ifaces.get(own_index).map(|iface| &iface.address);
    let (Some(address), Some(own_address)) = (address, own_address) else {
        return Err("the client chose an interface that is not on the lists".into());
    };
    let iface = selector
        .ifaces()
        .iter()
        .find(|iface| iface.address().as_ref() == Ok(own_address))
        .ok_or("an interface changed its address while it was open")?;

    let received = Rc::new(RefCell::new(None));
    let place = Rc::clone(&received);
    iface.set_am_handler(HELLO, move |message| {
        if message.header() == Some(HEADER) {
            place.replace(Some(message.payload().to_vec()));
        }
    });

    let resource = iface.resource();
    let explanation = selector.explain(&Request::new(flavour.operation(), size), Some(&peer));
    let why = format!(
        "Chosen by the client for the lowest latency of what both sides have, from {}.",
        resource.origin
    );
    print_choice(options, &explanation, &resource.device, &resource.transport, &why)?;

    let connection = Connection::new(iface, address, oob)?;
    while received.borrow().is_none() {
        worker.progress();
        connection.check()?;
        if oob.is_readable()? {
            // The client sends nothing now but a reason for giving up; a message may still be in flight.
            worker.progress();
            if received.borrow().is_none() {
                oob.receive(Kind::Done)?;
                return Err("the client was done before the string arrived".into());
            }
        }
        in_time(deadline, "the string did not arrive")?;
    }
    let text = received.take().unwrap_or_default();
    if text != test_string(size) {
        return Err(format!(
            "received {} bytes that are not the {size} bytes that the client sends",
            text.len()
        )
        .into());
    }
    print_success("callback", flavour.operation().name(), &String::from_utf8_lossy(&text))?;
    oob.send(Kind::Received, &text)?;
    // What the transport still has to do (an acknowledgement, say) goes on until the client has seen the answer.
    while !oob.is_readable()? {
        worker.progress();
        in_time(deadline, "the client did not confirm the answer")?;
    }
    oob.receive(Kind::Done)?;
    Ok(())
}

fn read_choice(message: &[u8]) -> Result<(usize, usize, Flavour, usize), Failure> {
    let Ok(message) = <&[u8; 17]>::try_from(message) else {
        return Err(format!("the client's choice has {} bytes, expected 17", message.len()).into());
    };
    let word =
        |at: usize| u32::from_le_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
    let flavour = Flavour::ALL
        .get(usize::from(message[8]))
        .ok_or("the client sends in a way unknown to this release")?;
    let size = u64::from(word(9)) | u64::from(word(13)) << 32;
    Ok((word(0) as usize, word(4) as usize, *flavour, usize::try_from(size)?))
}
