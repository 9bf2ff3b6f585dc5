//! `--calibrate --listen`: offers this machine's interfaces to callers, and replies to their measurements, one caller after the other.
//!
//! Nothing is measured or stored here. A caller is untrusted: whatever it does, it takes a limited time and affects nothing that comes later.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use uct_core::select::{PeerAddresses, PeerIface};
use uct_core::{Context, Iface, IfaceOptions, Resource, Worker, system};
use uct_tools_common::{Failure, output};

use super::address::ListenAddress;
use super::caller::VERSION;
use super::line::{Line, Message, OF_CALLER, PATIENCE, unexpected};
use super::side::Side;

/// How often one caller opens an interface at most, in all passes.
const MOST_OPENED: u32 = 512;

/// Passes and their time, for each interface by its name.
type Passes = BTreeMap<String, (u32, Duration)>;

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

    /// Replies to all measurements of the caller, and reports those that did not fail when it has ended.
    fn measure_all(&self, line: &Line, offer: &[(&Resource, Iface, PeerIface)]) -> Result<(), Failure> {
        let mut measured = Passes::new();
        let ended = self.measure_each(line, offer, &mut measured);
        for (name, (passes, time)) in measured {
            output(&format!("{}: {name}: {passes} passes, {} ms\n", self.caller, time.as_millis()))?;
        }
        ended
    }

    /// Opens each interface that the caller names, and replies to its measurement.
    fn measure_each(
        &self,
        line: &Line,
        offer: &[(&Resource, Iface, PeerIface)],
        measured: &mut Passes,
    ) -> Result<(), Failure> {
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
            match self.measure(line, resource) {
                Ok(()) => {
                    let (passes, time) = measured.entry(resource.to_string()).or_default();
                    *passes += 1;
                    *time += start.elapsed();
                }
                Err(failure) => {
                    line.give_up(&failure);
                    output(&format!("{}: {resource}: {failure}\n", self.caller))?;
                }
            }
        }
        Err(format!("it opens interfaces more than {MOST_OPENED} times").into())
    }

    fn measure(&self, line: &Line, resource: &Resource) -> Result<(), Failure> {
        let cpus = system::cpu::affinity()?;
        let last = cpus.get(cpus.len().saturating_sub(1)..).unwrap_or(&cpus);
        Side::open(self.context, resource, last, line, None)?.reply(line)
    }
}
