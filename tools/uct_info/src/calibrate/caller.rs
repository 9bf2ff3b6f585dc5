//! `--calibrate --peer`: calls a program that listens, and measures with it over each transport that reaches it.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;

use uct_core::select::PeerAddresses;
use uct_core::{Context, Iface, IfaceAddress, Resource, system};
use uct_tools_common::Failure;

use super::address::PeerHost;
use super::line::{Line, Message, OF_LISTENER, PATIENCE, unexpected};
use super::measure::Measured;
use super::side::Side;

/// Version of the messages.
pub(super) const VERSION: u32 = 2;

/// The program that listens.
pub(super) struct Listening {
    line: Line,
    offer: PeerAddresses,
}

/// A device of the peer that an interface reaches.
pub(super) struct Reached {
    /// The number of its interface in the offer.
    number: usize,
    /// The name of the device there.
    pub device: String,
    pub address: IfaceAddress,
}

impl Listening {
    /// Calls it. Each step has a limit and an error of its own.
    pub(super) fn call(peer: &PeerHost) -> Result<Listening, Failure> {
        let stream = dial(peer)?;
        let offered = || -> Result<Listening, Failure> {
            let line = Line::over(stream, OF_LISTENER)?;
            line.send(Message::Hello { version: VERSION })?;
            // It may have to give up another caller first.
            match line.receive_within(3 * PATIENCE)? {
                Message::Offer(offer) => Ok(Listening { line, offer: PeerAddresses::unpack(&offer)? }),
                message => Err(unexpected(&message)),
            }
        };
        offered().map_err(|failure| {
            format!("{peer} offers no interfaces: {failure}; it may be busy with another caller, or be another program").into()
        })
    }

    /// The first of its interfaces that an interface reaches, as selection has it; or why none.
    pub(super) fn reach(&self, iface: &Iface) -> Result<Reached, String> {
        let transport = &iface.resource().transport;
        let mut refusals = Vec::new();
        for (number, offered) in self.offer.in_order_for(iface) {
            match iface.is_reachable(&offered.address) {
                Ok(()) => {
                    let (device, address) = (offered.device.clone(), offered.address.clone());
                    return Ok(Reached { number, device, address });
                }
                Err(refused) => refusals.push(format!("{}: {}", offered.device, refused.reason)),
            }
        }
        // One reason of many devices is enough.
        Err(refusals.into_iter().next().unwrap_or_else(|| format!("the peer offers no {transport}")))
    }

    /// Measures an interface with that one.
    pub(super) fn measure(
        &mut self,
        context: &Context,
        resource: &Resource,
        with: &Reached,
    ) -> Result<Measured, Failure> {
        self.line.send(Message::Open(with.number))?;
        // It may have to give up another interface first.
        self.line.find(3 * PATIENCE, |message| matches!(message, Message::Opening).then_some(()))?;
        let cpus = system::cpu::affinity()?;
        // On one machine, the program that listens takes the last processor.
        let first = cpus.get(..1).unwrap_or(&cpus);
        let line = &mut self.line;
        // The thread that is kept on a processor ends with the measurement.
        let measured = thread::scope(|scope| {
            let measurer = scope.spawn(move || {
                let line = &*line;
                let side = Side::open(context, resource, first, line, Some(&with.address));
                side.and_then(|side| side.measure_all(line)).map_err(|failure| {
                    line.give_up(&failure);
                    failure.to_string()
                })
            });
            measurer.join().unwrap_or_else(|_| Err("the measuring thread panicked".to_owned()))
        });
        Ok(measured?)
    }

    /// Ends the conversation.
    pub(super) fn end(self) {
        let _ = self.line.send(Message::Bye);
    }
}

/// Finds the host and connects to it.
fn dial(peer: &PeerHost) -> Result<TcpStream, Failure> {
    let (resolved, addresses) = mpsc::channel();
    let asked = peer.clone();
    thread::Builder::new().spawn(move || {
        let _ = resolved.send(asked.resolve());
    })?;
    let seconds = PATIENCE.as_secs();
    let addresses = match addresses.recv_timeout(PATIENCE) {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => return Err(format!("--peer {}: {error}", peer.host).into()),
        Err(_) => return Err(format!("--peer {}: it is not resolved within {seconds} s", peer.host).into()),
    };
    let connect = |address: &SocketAddr| TcpStream::connect_timeout(address, PATIENCE);
    let mut reason = "it has no address".to_owned();
    // Each takes up to the limit.
    for address in addresses.iter().take(4) {
        match connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => reason = format!("{address}: {error}"),
        }
    }
    Err(format!(
        "--peer {peer}: {reason}; start the other side there: uct_info --calibrate --listen {}",
        peer.port
    )
    .into())
}
