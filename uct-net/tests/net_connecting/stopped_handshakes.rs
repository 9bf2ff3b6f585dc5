//! Peers that are killed or stopped in the middle of connecting, as real processes: the survivor ends with an error that names the cause, or
//! goes on with the peer, and others are served meanwhile.

use std::pin::pin;
use std::time::Duration;

use crate::support::fate::{Fate, meet};
use crate::support::gate::{At, Gate};
use crate::support::victim::Victim;
use crate::support::{self, LIMIT, LOOPBACK, child, net, patient};
use futures_util::future::{Either, join, select};
use uct_net::local::{Connection, Listener, Net};
use uct_net::{NetOptions, Result};

/// What the child is: `client TRANSPORT ADDRESS` or `server`.
const ROLE: &str = "UCT_NET_STOPPED_HANDSHAKE";

// Frames of the handshake.
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const CONNECTED: u8 = 7;
const DIRECT: u8 = 12;
const TAKEOVER: u8 = 13;

const POSIX: &str = "posix/memory";
const TCP: &str = "tcp/lo";

const FATES: [Fate; 3] = [Fate::Killed, Fate::Stopped, Fate::GoesOn];

/// Limits that are short if they are to end the wait.
fn options(fate: Fate) -> NetOptions {
    let limit = if fate == Fate::Stopped { Duration::from_millis(200) } else { LIMIT };
    NetOptions { handshake_timeout: limit, lane_timeout: limit, ..patient() }
}

/// The peer, in a process of its own. Sends back what it receives.
#[test]
fn the_peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let net = net(patient());
    let served = net.block_on(async {
        let connection = meet(&net, &role).await?;
        echo(&connection).await
    });
    // Unless the survivor has given up.
    println!("{served:?}");
}

async fn echo(connection: &Connection) -> Result {
    loop {
        match connection.recv().within(LIMIT).await {
            Ok(message) => connection.send(&message).within(LIMIT).await?,
            Err(error) => return if error.is_closed_by_peer() { Ok(()) } else { Err(error) },
        }
    }
}

/// A message goes there and comes back.
async fn works(connection: &Connection) {
    connection.send(b"a word").within(LIMIT).await.expect("sent");
    assert_eq!(&*connection.recv().within(LIMIT).await.expect("sent back"), b"a word");
}

async fn until(net: &Net, what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            net.sleep(Duration::from_millis(1)).await;
        }
    };
    net.within(LIMIT, waiting).await.unwrap_or_else(|| panic!("it did not come: {what}"));
}

/// The listener serves an honest client.
async fn serve(net: &Net, listener: &mut Listener) {
    let address = listener.address();
    let client = std::thread::spawn(move || {
        let net = support::net(patient());
        net.block_on(async {
            let connection = net.connect(address).await.expect("a connection");
            works(&connection).await;
            connection.close().within(LIMIT).await.expect("closed");
        });
    });
    let serving = async {
        while !client.is_finished() {
            // A caller that is dead may have sent its first frame.
            let Some(Ok(incoming)) = net.within(Duration::from_millis(1), listener.accept()).await else {
                continue;
            };
            if let Ok(connection) = incoming.accept().await {
                let _ = echo(&connection).await;
            }
        }
    };
    net.within(LIMIT, serving).await.expect("the end of an honest client");
    client.join().expect("an honest client");
}

/// What has to become of the survivor's handshake.
async fn check(fate: Fate, case: &str, outcome: Result<Connection>) {
    match (fate, outcome) {
        (Fate::GoesOn, Ok(connection)) => {
            works(&connection).await;
            connection.close().within(LIMIT).await.expect("closed");
        }
        (Fate::GoesOn, Err(error)) => panic!("{case}: {error}"),
        (Fate::Stopped, Ok(_)) => panic!("{case}: connected to no one"),
        (Fate::Killed, Ok(connection)) => {
            // The last frame of the dead peer may have completed the handshake.
            let error = connection.recv().within(LIMIT).await.expect_err("it is dead");
            println!("{case}: connected, then: {error}");
            assert!(!error.is_timeout(), "{case}: {error}");
        }
        (_, Err(error)) => {
            println!("{case}: {error}");
            // A limit is named, also where it is one of several reasons.
            assert_eq!(error.to_string().contains("_timeout)"), fate == Fate::Stopped, "{case}: {error}");
        }
    }
}

fn goes_on(gate: &Gate, victim: Victim) {
    victim.go_on();
    gate.open();
}

#[test]
fn a_listener_survives_clients_that_are_killed_and_stopped() {
    let stages = [
        (POSIX, At::Client(HELLO)),
        (POSIX, At::Client(DIRECT)),
        (POSIX, At::Client(CONNECTED)),
        (TCP, At::Client(HELLO)),
        (TCP, At::Client(TAKEOVER)),
        (TCP, At::Lane),
    ];
    for ((transport, at), fate) in stages.into_iter().flat_map(|stage| FATES.map(|fate| (stage, fate))) {
        let case = format!("a client over {transport} at {at:?} {fate:?}");
        let net = net(options(fate));
        net.block_on(async {
            let mut listener = net.listen(LOOPBACK).await.expect("a listener");
            let gate = Gate::before(&listener.address(), at, true, fate);
            let child = child::start(the_peer, (ROLE, &format!("client {transport} {}", gate.address)));
            let victim = Victim::new(child.0.id());
            gate.set_victim(victim);
            if at == At::Client(HELLO) {
                // No caller is there for the application yet.
                until(&net, &case, || gate.is_reached()).await;
                if fate == Fate::Stopped {
                    let accepting = async { listener.accept().await.map(|_| ()) };
                    let ended = until(&net, "the listener hangs up", || gate.has_ended());
                    // The listener is driven by `accept`, which has no caller to return.
                    assert!(matches!(select(pin!(accepting), pin!(ended)).await, Either::Right(_)), "{case}");
                    return;
                }
                serve(&net, &mut listener).await;
                if fate == Fate::Killed {
                    return;
                }
                goes_on(&gate, victim);
                let accepting = async { listener.accept().await?.accept().await };
                check(fate, &case, net.within(LIMIT, accepting).await.expect("within a minute")).await;
                return;
            }
            let incoming = net.within(LIMIT, listener.accept()).await.expect("a caller").expect("a caller");
            let meanwhile = async {
                until(&net, &case, || gate.is_reached()).await;
                if fate != Fate::Stopped {
                    serve(&net, &mut listener).await;
                }
                if fate == Fate::GoesOn {
                    goes_on(&gate, victim);
                }
            };
            let (outcome, ()) = join(net.within(LIMIT * 2, incoming.accept()), meanwhile).await;
            check(fate, &case, outcome.expect("it ends at its limit")).await;
        });
    }
}

#[test]
fn a_client_survives_listeners_that_are_killed_and_stopped() {
    let stages = [
        (POSIX, At::Client(HELLO)),
        (POSIX, At::Listener(WELCOME)),
        (POSIX, At::Client(DIRECT)),
        (TCP, At::Client(HELLO)),
        (TCP, At::Listener(WELCOME)),
        (TCP, At::Client(TAKEOVER)),
        (TCP, At::Lane),
    ];
    for ((transport, at), fate) in stages.into_iter().flat_map(|stage| FATES.map(|fate| (stage, fate))) {
        let case = format!("a listener over {transport} at {at:?} {fate:?}");
        let mut child = child::start(the_peer, (ROLE, "server"));
        let (address, _rest) = child::line(&mut child.0, "listening");
        let victim = Victim::new(child.0.id());
        // Its handshake would have the short limits too.
        let honest = (fate != Fate::Stopped).then(|| {
            support::serve(&support::context(), patient(), LOOPBACK, async |_net, mut listener| {
                echo(&listener.accept().await?.accept().await?).await
            })
        });
        let net = net(options(fate));
        net.block_on(async {
            let mut elsewhere = None;
            if let Some((_, address)) = &honest {
                elsewhere = Some(net.connect(address).await.expect("an honest listener"));
            }
            let gate = Gate::before(&address, at, false, fate);
            gate.set_victim(victim);
            let meanwhile = async {
                until(&net, &case, || gate.is_reached()).await;
                if let Some(elsewhere) = &elsewhere {
                    works(elsewhere).await;
                }
                if fate == Fate::GoesOn {
                    goes_on(&gate, victim);
                }
            };
            let connecting = net.connect(&gate.address).require(transport).into_future();
            let (outcome, ()) = join(net.within(LIMIT * 2, connecting), meanwhile).await;
            check(fate, &case, outcome.expect("it ends at its limit")).await;
            if let Some(elsewhere) = &elsewhere {
                elsewhere.close().within(LIMIT).await.expect("closed");
            }
        });
        if let Some((thread, _)) = honest {
            thread.join().expect("an honest listener");
        }
    }
}
