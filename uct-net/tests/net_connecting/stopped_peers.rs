//! Peers that are killed or stopped while they are connected, as real processes, with the survivor in both roles: an operation ends with an
//! error or at its limit, it ends well when the peer goes on, and another connection is served meanwhile.

use std::pin::{Pin, pin};
use std::time::Duration;

use crate::support::fate::{Fate, meet};
use crate::support::victim::{Victim, stop_here};
use crate::support::{self, LIMIT, LOOPBACK, child, net, patient, with};
use uct_net::local::{Connection, Net};
use uct_net::{Error, Result};

/// What the child is: `STAGE client TRANSPORT ADDRESS` or `STAGE server`.
const ROLE: &str = "UCT_NET_STOPPED_PEER";
/// An operation with a peer that is stopped is given up after this.
const SHORT: Duration = Duration::from_millis(50);
/// Bytes of a message that exceeds every window.
const LARGE: usize = 8 << 20;

/// Where the peer stops itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Connected; the survivor receives.
    Idle,
    /// The survivor sends a large message.
    Reading,
    /// The peer has sent the beginning of a large message.
    Writing,
    /// The peer has offered a large message, where the transport reads remote memory.
    Offering,
    /// The survivor closes.
    Closed,
    /// The peer closes.
    Closing,
}

const STAGES: [Stage; 6] =
    [Stage::Idle, Stage::Reading, Stage::Writing, Stage::Offering, Stage::Closed, Stage::Closing];

/// Polls once, sends what that has left, and stops this process in the middle.
async fn stop_in<F: Future>(net: &Net, future: F) -> F::Output {
    let (mut future, mut is_first) = (pin!(future), true);
    std::future::poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if std::mem::replace(&mut is_first, false) {
            (0..8).for_each(|_| _ = net.worker().progress());
            stop_here();
        }
        polled
    })
    .await
}

/// The peer, in a process of its own.
#[test]
fn the_peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (stage, role) = role.split_once(' ').expect("stage and role");
    let threshold = if stage == "Writing" { "inf" } else { "256k" };
    let net = Net::new(&with(&[("rndv_thresh", threshold)]), patient()).expect("a net");
    let outcome = net.block_on(async {
        let connection = meet(&net, role).await?;
        assert_eq!(&*connection.recv().within(LIMIT).await?, b"stop");
        match stage {
            "Writing" | "Offering" => stop_in(&net, connection.send(&vec![7; LARGE])).await?,
            "Closing" => stop_in(&net, connection.close()).await?,
            _ => stop_here(),
        }
        let message = connection.recv().within(LIMIT).await?;
        connection.send(&message.len().to_le_bytes()).await?;
        connection.closed().await;
        Ok::<_, Error>(())
    });
    // The survivor may have closed, or this side has.
    println!("{outcome:?}");
}

/// The output of the future if it is there within [`SHORT`].
async fn briefly<F: Future>(net: &Net, future: &mut Pin<&mut F>) -> Option<F::Output> {
    net.within(SHORT, future).await
}

/// What the survivor has.
struct Scene {
    net: Net,
    connection: Connection,
    /// To a peer that lives.
    elsewhere: Connection,
    victim: Victim,
    fate: Fate,
    case: String,
}

impl Scene {
    /// While the peer is stopped the operation waits, and others are served. Its outcome, after the fate of the peer.
    async fn outcome<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let mut operation = pin!(operation);
        assert!(briefly(&self.net, &mut operation).await.is_none(), "{}: its peer is stopped", self.case);
        self.elsewhere.send(b"a word").within(LIMIT).await.expect("sent");
        assert_eq!(&*self.elsewhere.recv().within(LIMIT).await.expect("sent back"), b"a word");
        match self.fate {
            Fate::Killed => self.victim.kill(),
            _ => self.victim.go_on(),
        }
        self.net.within(LIMIT, operation).await.unwrap_or_else(|| panic!("{}: it waits", self.case))
    }

    /// The peer is dead: the error says so.
    fn failed(&self, outcome: Option<Error>) {
        let error = outcome.unwrap_or_else(|| panic!("{}: no error", self.case));
        println!("{}: {error}", self.case);
        assert!(!error.is_timeout() && !error.is_closed_by_peer(), "{}: {error}", self.case);
    }

    /// The peer works: it sends back the length of what it receives.
    async fn works(&self) {
        self.connection.send(b"a word").within(LIMIT).await.expect("sent");
        self.replied(6).await;
    }

    async fn replied(&self, length: usize) {
        let reply = self.connection.recv().within(LIMIT).await.expect("a reply");
        assert_eq!(*reply, length.to_le_bytes());
    }

    async fn run(&self, stage: Stage) {
        let (connection, is_killed) = (&self.connection, self.fate == Fate::Killed);
        match stage {
            Stage::Idle if is_killed => self.failed(self.outcome(connection.recv()).await.err()),
            Stage::Idle => {
                let mut receiving = pin!(connection.recv());
                assert!(briefly(&self.net, &mut receiving).await.is_none());
                self.victim.go_on();
                self.works().await;
            }
            Stage::Reading => {
                let outcome = self.outcome(connection.send(&[7; LARGE])).await;
                if is_killed {
                    return self.failed(outcome.err());
                }
                outcome.expect("the peer goes on");
                self.replied(LARGE).await;
            }
            Stage::Writing => {
                let outcome = self.outcome(connection.recv()).await;
                if is_killed {
                    return self.failed(outcome.err());
                }
                let message = outcome.expect("the peer goes on");
                assert!(message.len() == LARGE && message.iter().all(|byte| *byte == 7));
                self.works().await;
            }
            Stage::Offering => {
                // A process that is stopped can be read from: this may have happened before it dies.
                if is_killed {
                    self.victim.kill();
                    let mut outcome = connection.recv().within(LIMIT).await;
                    if let Ok(message) = &outcome {
                        assert_eq!(message.len(), LARGE, "{}", self.case);
                        outcome = connection.recv().within(LIMIT).await;
                    }
                    return self.failed(outcome.err());
                }
                self.victim.go_on();
                assert_eq!(connection.recv().within(LIMIT).await.expect("whole").len(), LARGE);
                self.works().await;
            }
            Stage::Closed => {
                let outcome = self.outcome(connection.close()).await;
                if is_killed {
                    return self.failed(outcome.err());
                }
                outcome.expect("the peer goes on");
            }
            Stage::Closing => {
                // What the peer has sent arrives, whatever becomes of it.
                let end = connection.recv().within(LIMIT).await.expect_err("the peer closes");
                assert!(end.is_closed_by_peer(), "{}: {end}", self.case);
                if is_killed {
                    self.victim.kill();
                } else {
                    self.victim.go_on();
                }
                connection.close().within(LIMIT).await.expect("the peer has closed");
            }
        }
    }
}

/// Runs all stages over a transport, with the survivor as the listener or as the client.
fn survive(is_listener: bool, transport: &str) {
    let fates = [Fate::Killed, Fate::GoesOn];
    for (stage, fate) in STAGES.into_iter().flat_map(|stage| fates.map(|fate| (stage, fate))) {
        let case = format!("{stage:?} over {transport}, {fate:?}, listens: {is_listener}");
        let (honest, honest_address) =
            support::serve(&support::context(), patient(), LOOPBACK, async |_net, mut listener| {
                let connection = listener.accept().await?.accept().await?;
                while let Ok(message) = connection.recv().within(LIMIT).await {
                    connection.send(&message).await?;
                }
                Ok(())
            });
        let net = net(patient());
        net.block_on(async {
            let elsewhere = net.connect(honest_address).await.expect("a connection");
            let (child, _printed, connection) = if is_listener {
                let mut listener = net.listen(LOOPBACK).await.expect("a listener");
                let role = format!("{stage:?} client {transport} {}", listener.address());
                let child = child::start(the_peer, (ROLE, &role));
                let accepting = async { listener.accept().await?.accept().await };
                let connection = net.within(LIMIT, accepting).await.expect("in time").expect("connected");
                (child, None, connection)
            } else {
                let mut child = child::start(the_peer, (ROLE, &format!("{stage:?} server")));
                let (address, printed) = child::line(&mut child.0, "listening");
                let connection = net.connect(address).require(transport).await.expect("connected");
                (child, Some(printed), connection)
            };
            let victim = Victim::new(child.0.id());
            connection.send(b"stop").within(LIMIT).await.expect("sent");
            let stops = async {
                while !victim.is_stopped() {
                    net.sleep(Duration::from_millis(1)).await;
                }
            };
            net.within(LIMIT, stops).await.expect("the peer stops itself");
            let scene = Scene { net: net.clone(), connection, elsewhere, victim, fate, case };
            scene.run(stage).await;
            scene.elsewhere.close().within(LIMIT).await.expect("closed");
            drop(child);
        });
        honest.join().expect("a peer that lives");
    }
}

#[test]
fn a_listener_over_posix_survives() {
    survive(true, "posix/memory");
}

#[test]
fn a_listener_over_tcp_survives() {
    survive(true, "tcp/lo");
}

#[test]
fn a_client_over_posix_survives() {
    survive(false, "posix/memory");
}

#[test]
fn a_client_over_tcp_survives() {
    survive(false, "tcp/lo");
}
