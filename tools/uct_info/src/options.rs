//! The command line: UCX's flags, and a few more.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use uct_core::select::{KeyUse, Operation, PeerAddresses, Request};
use uct_tools_common::{CommonOptions, Failure, complete};

/// Shows the transports of this machine, their configuration, and the choice of selection with its reasons.
///
/// Options can be combined. With --json the output is one object with a key for each section.
#[derive(Debug, Parser)]
#[command(name = "uct_info", version, arg_required_else_help = true)]
pub(crate) struct Options {
    /// Versions of library and plugin boundary, plugins that are used or failed, and the machine.
    #[arg(short = 'v', help_heading = "Sections")]
    pub versions: bool,
    /// How this program was built: version, commit, profile, transports that are linked in, plugin boundary, plugin directories.
    #[arg(short = 'b', help_heading = "Sections")]
    pub build: bool,
    /// Devices and transports with their capabilities and costs.
    #[arg(short = 'd', help_heading = "Sections")]
    pub devices: bool,
    /// With or without -d: operations by transport, NATIVE or EMULATED.
    #[arg(long, help_heading = "Sections")]
    pub matrix: bool,
    /// Values of the configuration, each with its origin.
    #[arg(short = 'c', help_heading = "Sections")]
    pub values: bool,
    /// As -c, with the documentation and the range of each key.
    #[arg(short = 'f', help_heading = "Sections")]
    pub docs: bool,
    /// System facts: processors, memory, namespaces, network devices.
    #[arg(short = 's', help_heading = "Sections")]
    pub facts: bool,
    /// Topology: NUMA nodes, the devices at each with their links and transports, namespaces of this process.
    #[arg(short = 'T', help_heading = "Sections")]
    pub topology: bool,
    /// The choice for an operation, with the reasons for every candidate.
    #[arg(long, help_heading = "Sections")]
    pub explain: bool,
    /// Measure the transports of this machine, all or those on a device, show the times beside those of the models, and store them for
    /// selection. Takes half a second for each interface.
    #[arg(long, num_args = 0..=1, value_name = "DEVICE", help_heading = "Sections", add = complete::devices())]
    pub calibrate: Option<Option<String>>,
    /// The addresses of a process, as input for --peer-address. They end with this program; they serve to
    /// explain what another process can reach.
    #[arg(long, help_heading = "Sections")]
    pub address: bool,
    /// What keeps a transport of this machine from being used or being fast, and the remedies. With a connection manager and an address,
    /// as in --doctor rdmacm 10.0.0.1: what stands in the way of connections to it. A line for each step.
    #[arg(long, num_args = 0..=2, value_names = ["CM", "ADDRESS"], help_heading = "Sections")]
    pub doctor: Option<Vec<String>>,
    /// What the workers, interfaces and connections of a running process have done so far. The process is this user's, and was started with
    /// UCT_ATTACH=yes. Without PID: the processes that can be attached to.
    #[arg(long, num_args = 0..=1, value_name = "PID", help_heading = "Sections", conflicts_with_all = ALONE)]
    pub attach: Option<Option<u32>>,
    /// A configuration file with every key, its default and its documentation.
    #[arg(long, help_heading = "Sections", conflicts_with = "json")]
    pub config_template: bool,

    /// With --attach PID: what the process does, in bytes and operations per second, each time that so many seconds have passed. It ends with
    /// Ctrl-C, or with the process. With --json a line each time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// So many times.
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(1..), requires = "watch")]
    pub count: Option<u64>,
    /// Draw the topology.
    #[arg(long, value_name = "FILE.svg", requires = "topology")]
    pub svg: Option<PathBuf>,
    /// Only this transport, in -d, --matrix and --calibrate.
    #[arg(short = 't', value_name = "TRANSPORT", add = complete::transports())]
    pub transport: Option<String>,
    /// Operation to explain: am_short, put_zcopy, …
    #[arg(long, value_name = "OPERATION", default_value = "am_short", requires = "explain")]
    op: Operation,
    /// Bytes of the operation to explain; a unit is allowed: 64k.
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = bytes, requires = "explain")]
    size: usize,
    /// Bytes of the header of a message to explain, in am_bcopy and am_zcopy.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes, requires = "explain")]
    header: usize,
    /// What becomes of the key of a put or get to explain: kept, unpacked for each operation, or new, to other memory each time.
    #[arg(long, value_name = "USE", default_value = "kept", requires = "explain")]
    key: KeyUse,
    /// Addresses of a peer that must be reachable: the output of its --address, or @FILE with it.
    #[arg(long, value_name = "HEX|@FILE", requires = "explain")]
    peer_address: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub common: CommonOptions,
}

/// What is about this process, and --attach about another one.
const ALONE: [&str; 13] = [
    "versions",
    "build",
    "devices",
    "matrix",
    "values",
    "docs",
    "facts",
    "topology",
    "explain",
    "calibrate",
    "address",
    "doctor",
    "config_template",
];

fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number of seconds from 0.01 to 86400, such as 1 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    if (0.01..=86400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(expected()) }
}

fn bytes(text: &str) -> Result<usize, String> {
    let size: uct_core::units::MemSize = text.parse().map_err(|error| format!("{error}"))?;
    if size.is_inf() || size.is_auto() {
        return Err("expected a number of bytes, e.g. 8 or 64k".to_owned());
    }
    Ok(size.to_usize())
}

impl Options {
    /// What clap does not check.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        let flags = [
            self.versions,
            self.build,
            self.devices,
            self.matrix,
            self.values,
            self.docs,
            self.facts,
            self.topology,
            self.explain,
            self.address,
            self.config_template,
        ];
        let others = self.calibrate.is_some()
            || self.doctor.is_some()
            || self.attach.is_some()
            || self.common.generates();
        if !flags.contains(&true) && !others {
            let missing = "no section is requested: for example -d or --explain; --help lists all";
            return Err(Options::command().error(ErrorKind::MissingRequiredArgument, missing));
        }
        if self.watch.is_some() && !matches!(self.attach, Some(Some(_))) {
            let missing = "--watch needs a process: --attach PID --watch SECONDS";
            return Err(Options::command().error(ErrorKind::MissingRequiredArgument, missing));
        }
        match self.doctor.as_deref() {
            Some([alone]) => Err(Options::command().error(
                ErrorKind::WrongNumberOfValues,
                format!("--doctor {alone}: expected nothing, or a connection manager and an address: --doctor rdmacm 10.0.0.1"),
            )),
            _ => Ok(()),
        }
    }

    /// What is to be explained.
    pub(crate) fn request(&self) -> Request {
        Request::new(self.op, self.size).with_header(self.header).with_key(self.key)
    }

    /// The peer's addresses, if given.
    pub(crate) fn peer_addresses(&self) -> Result<Option<PeerAddresses>, Failure> {
        let Some(given) = &self.peer_address else { return Ok(None) };
        let (text, place) = match given.strip_prefix('@') {
            Some(path) => {
                let path = PathBuf::from(path);
                let place = format!("--peer-address: {}", path.display());
                (std::fs::read_to_string(&path).map_err(|error| format!("{place}: {error}"))?, place)
            }
            None => (given.clone(), "--peer-address".to_owned()),
        };
        let bytes = decode_hex(text.trim()).map_err(|problem| format!("{place}: {problem}"))?;
        let peer = PeerAddresses::unpack(&bytes).map_err(|error| format!("{place}: {error}"))?;
        Ok(Some(peer))
    }
}

fn decode_hex(text: &str) -> Result<Vec<u8>, String> {
    let expected = "expected the hexadecimal digits that uct_info --address prints at the peer";
    if let Some(wrong) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!("{wrong:?} is not a hexadecimal digit; {expected}"));
    }
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return Err(format!("{} digits: not an even number above 0; {expected}", text.len()));
    }
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    Ok(text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect())
}

/// Bytes as [`Options::peer_addresses`] reads them.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn hexadecimal_survives_the_way_and_nothing_else_is_taken() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode_hex(&encode_hex(&bytes)).unwrap(), bytes);
        for wrong in ["", "0", "0g", "éé", "0x00"] {
            assert!(decode_hex(wrong).is_err(), "{wrong}");
        }
    }
}
