//! The server: takes a client, receives the string and prints it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use uct_net::local::Net;
use uct_net::{Error, Stage};

use crate::client::{HEADER, test_string};
use crate::options::{Flavour, Options};
use crate::{Failure, HELLO, print_choice, print_success, say};

/// The string, once it has arrived, and who waits for it.
#[derive(Default)]
struct Arrival {
    text: Option<Vec<u8>>,
    waiter: Option<Waker>,
}

pub(crate) async fn run(options: &Options, net: &Net) -> Result<(), Failure> {
    let arrival = Rc::new(RefCell::new(Arrival::default()));
    for iface in net.ifaces() {
        let arrival = Rc::clone(&arrival);
        iface.set_am_handler(HELLO, move |message| {
            if message.header() == Some(HEADER) {
                let mut arrival = arrival.borrow_mut();
                arrival.text = Some(message.payload().to_vec());
                if let Some(waiter) = arrival.waiter.take() {
                    waiter.wake();
                }
            }
        });
    }

    let any = if options.ipv6 { "[::]" } else { "0.0.0.0" };
    let listening = net.listen(format!("{any}:{}", options.server_port)).await;
    let mut listener = listening.map_err(|error: Error| match error.stage {
        Stage::Listen => format!("{error} (-p)"),
        _ => error.to_string(),
    })?;
    // With `-p 0` the system has chosen one.
    say(&format!("Waiting for connection on port {}...\n", listener.port().unwrap_or_default()))?;
    let incoming = listener.accept().await?;
    let Some((flavour, size)) = Options::from_private(incoming.private()) else {
        incoming.reject("it is no uct_hello_world of this version").await?;
        return Err("the peer is no uct_hello_world of this version".into());
    };
    let connection = incoming.accept().await?;
    print_choice(options, &connection, "Chosen by the client for the lowest latency of")?;

    let ended = connection.closed();
    let mut ended = std::pin::pin!(ended);
    let arrived = poll_fn(|context| {
        let mut arrival = arrival.borrow_mut();
        if let Some(text) = arrival.text.take() {
            return Poll::Ready(Ok(text));
        }
        arrival.waiter = Some(context.waker().clone());
        drop(arrival);
        ended.as_mut().poll(context).map(Err)
    });
    let text = arrived.await.map_err(|error| format!("the string did not arrive: {error}"))?;
    if text != test_string(size) {
        let received = text.len();
        return Err(
            format!("received {received} bytes that are not the {size} bytes that the client sends").into()
        );
    }
    print_success("callback", Flavour::operation(flavour).name(), &String::from_utf8_lossy(&text))?;
    connection.send(&text).await?;
    // The client closes when it has seen the answer.
    connection.closed().await;
    Ok(())
}
