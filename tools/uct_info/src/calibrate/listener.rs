//! `--calibrate --listen`: offers this machine's interfaces to callers, and replies to their measurements, one caller after the other.
//!
//! Nothing is measured or stored here. A caller is untrusted: whatever it does, it takes a limited time and affects nothing that comes later.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

use uct_core::select::{PeerAddresses, PeerIface};
use uct_core::{Context, Iface, IfaceOptions, Resource, Worker, system};
use uct_tools_common::{Failure, output};

use super::address::ListenAddress;
use super::caller::VERSION;
use super::line::{Line, Message, OF_CALLER, PATIENCE, unexpected};
use super::side::Side;

/// Interfaces that one caller measures at most.
const MOST_OPENED: u32 = 256;

/// Replies to callers: without end, or to so many that are of this program.
pub(super) fn listen(
    context: &Context,
    resources: &[&Resource],
    address: ListenAddress,
    callers: Option<u32>,
) -> Result<(), Failure> {
    let listener = address.bind()?;
    let local = listener.local_addr()?;
    output(&format!(
        "Listening on {local}. At the other side: uct_info --calibrate --peer HOST:{}\n",
        local.port()
    ))?;
    let mut answered = 0;
    while callers.is_none_or(|callers| answered < callers) {
        let (stream, caller) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(format!("no caller can be accepted: {error}").into()),
        };
        // The thread that is kept on a processor ends with the caller.
        let replied = thread::scope(|scope| {
            let call = scope.spawn(|| {
                let call = Call { context, resources, caller };
                call.reply(stream).map_err(|(is_ours, failure)| (is_ours, failure.to_string()))
            });
            call.join().unwrap_or_else(|_| Err((true, "the replying thread panicked".to_owned())))
        });
        match replied {
            Ok(()) => answered += 1,
            Err((is_ours, failure)) => {
                answered += u32::from(is_ours);
                output(&format!("{caller}: {failure}\n"))?;
            }
        }
    }
    Ok(())
}

/// One caller.
struct Call<'a> {
    context: &'a Context,
    resources: &'a [&'a Resource],
    caller: SocketAddr,
}

impl Call<'_> {
    /// Replies to it until it ends. A failure is also whether the caller is a program of this version.
    fn reply(&self, stream: TcpStream) -> Result<(), (bool, Failure)> {
        let line = Line::over(stream, OF_CALLER).map_err(|failure| (false, failure))?;
        self.welcome(&line).map_err(|failure| {
            line.give_up(&failure);
            (false, failure)
        })?;
        let offered = || -> Result<(), Failure> {
            let worker = Worker::new(self.context)?;
            let offer = self.offer(&worker);
            let ifaces = offer.iter().map(|(_, _, iface)| iface.clone()).collect();
            line.send(Message::Offer(PeerAddresses { ifaces }.pack()?))?;
            self.measure_all(&line, &offer)
        };
        offered().map_err(|failure| {
            line.give_up(&failure);
            (true, failure)
        })
    }

    fn welcome(&self, line: &Line) -> Result<(), Failure> {
        match line.receive()? {
            Message::Hello { version: VERSION } => Ok(()),
            Message::Hello { version } => Err(format!(
                "messages of version {version}, expected {VERSION}: the programs are of two releases"
            )
            .into()),
            message => Err(unexpected(&message)),
        }
    }

    /// The interfaces that can be opened, open for as long as the caller compares their addresses with its own.
    fn offer<'r>(&'r self, worker: &Worker) -> Vec<(&'r Resource, Iface, PeerIface)> {
        let open = |resource: &&'r Resource| {
            let iface = worker.open_resource(resource, IfaceOptions::default()).ok()?;
            let address = iface.address().ok()?;
            let offered = PeerIface { device: resource.device.clone(), address };
            Some((*resource, iface, offered))
        };
        self.resources.iter().filter_map(open).collect()
    }

    /// Opens each interface that the caller names, and replies to its measurement.
    fn measure_all(&self, line: &Line, offer: &[(&Resource, Iface, PeerIface)]) -> Result<(), Failure> {
        // Several interfaces of the caller may reach one of these.
        for _ in 0..=MOST_OPENED {
            let wanted = line.find(PATIENCE, |message| match message {
                Message::Open(number) => Some(Some(number)),
                Message::Bye => Some(None),
                _ => None,
            })?;
            let Some(number) = wanted else { return Ok(()) };
            let Some((resource, ..)) = offer.get(number) else {
                return Err(format!("it asks for interface {number}, which was not offered").into());
            };
            line.send(Message::Opening)?;
            let start = Instant::now();
            let outcome = match self.measure(line, resource) {
                Ok(()) => format!("{} ms", start.elapsed().as_millis()),
                Err(failure) => {
                    line.give_up(&failure);
                    failure.to_string()
                }
            };
            output(&format!("{}: {resource}: {outcome}\n", self.caller))?;
        }
        Err(format!("it asks for more than {MOST_OPENED} interfaces").into())
    }

    fn measure(&self, line: &Line, resource: &Resource) -> Result<(), Failure> {
        let cpus = system::cpu::affinity()?;
        let last = cpus.get(cpus.len().saturating_sub(1)..).unwrap_or(&cpus);
        Side::open(self.context, resource, last, line, None)?.reply(line)
    }
}
