//! The command line: UCX's flags, and a few more.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, ValueEnum};
use uct_core::select::{Operation, Request};
use uct_core::units::MemSize;
use uct_tools_common::complete;

use crate::Failure;

/// Sends a string from a client to a server over the given transport, or over the best one that both have.
///
/// Without -n it is the server and waits for one client; with -n HOST it is the client.
#[derive(Debug, Parser)]
#[command(name = "uct_hello_world", version, disable_help_flag = true)]
pub(crate) struct Options {
    /// Send with am_short: header and payload are copied inline (default).
    #[arg(short = 'i', group = "flavour")]
    short: bool,
    /// Send with am_bcopy: the program packs into the transport's buffer.
    #[arg(short = 'b', group = "flavour")]
    bcopy: bool,
    /// Send with am_zcopy: the transport sends registered memory in place.
    #[arg(short = 'z', group = "flavour")]
    zcopy: bool,
    /// Device to use, e.g. mlx5_0:1, eth0, memory.
    #[arg(short = 'd', value_name = "DEVICE", add = complete::devices())]
    pub dev_name: Option<String>,
    /// Transport to use, e.g. rc_verbs, tcp, posix, self.
    #[arg(short = 't', value_name = "TRANSPORT", add = complete::transports())]
    pub tl_name: Option<String>,
    /// Host name or address of the server; makes this the client.
    #[arg(short = 'n', value_name = "HOST")]
    pub server_name: Option<String>,
    /// Port that the server listens on and the client calls; with 0 the server uses a free one and prints it.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 13337)]
    pub server_port: u16,
    /// Call the server, or listen, over IPv6.
    #[arg(short = '6')]
    pub ipv6: bool,
    /// Length of the string, in bytes, e.g. 64 or 64k.
    #[arg(short = 's', value_name = "SIZE", default_value = "16", value_parser = size, allow_negative_numbers = true)]
    pub size: usize,
    /// Kind of memory for the string.
    #[arg(short = 'm', value_name = "MEMORY", value_enum, default_value_t = MemoryType::Host)]
    pub memory: MemoryType,
    /// Exchange addresses as UCX's program of this name does: the peer may be that program, or another one that is written for UCT in C. Needs
    /// -d and -t.
    #[arg(long)]
    pub ucx: bool,
    /// Print the verdict on every transport.
    #[arg(long)]
    pub explain: bool,
    /// Configuration file, instead of the search.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set a configuration key, e.g. tls=^tcp or tcp.tx_seg_size=64k; overrides file and environment.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value, add = complete::keys())]
    pub overrides: Vec<(String, String)>,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub timeout: f64,
    /// Print help.
    #[arg(short = 'h', long = "help", action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Write the manual page into a directory.
    #[arg(long, value_name = "DIR", hide = true)]
    generate_man: Option<PathBuf>,
    /// Write shell completions into a directory.
    #[arg(long, value_name = "DIR", hide = true)]
    generate_completions: Option<PathBuf>,
}

fn size(text: &str) -> Result<usize, String> {
    match text.parse::<MemSize>().map(MemSize::to_usize) {
        Ok(size) if size < usize::MAX => Ok(size),
        _ => Err("expected a whole number of bytes with an optional k, m or g, e.g. 64k".to_owned()),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, e.g. tls=^tcp; uct_info -c lists the keys".to_owned()),
    }
}

/// Kinds of memory; only the host's is supported, by any transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MemoryType {
    /// Host memory.
    Host,
    /// CUDA device memory.
    Cuda,
    /// CUDA managed memory.
    CudaManaged,
    /// ROCm device memory.
    Rocm,
}

/// What the client's private data begin with.
const PRIVATE: &[u8] = b"uct_hello_world 2\n";

/// How the string is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Short,
    Bcopy,
    Zcopy,
}

impl Flavour {
    pub(crate) const ALL: [Flavour; 3] = [Flavour::Short, Flavour::Bcopy, Flavour::Zcopy];

    pub(crate) fn operation(self) -> Operation {
        match self {
            Flavour::Short => Operation::AmShort,
            Flavour::Bcopy => Operation::AmBcopy,
            Flavour::Zcopy => Operation::AmZcopy,
        }
    }
}

impl Options {
    /// How to send.
    pub(crate) fn flavour(&self) -> Flavour {
        match (self.bcopy, self.zcopy) {
            (true, _) => Flavour::Bcopy,
            (_, true) => Flavour::Zcopy,
            _ => Flavour::Short,
        }
    }

    /// What transports are judged for. The header counts, but for `am_short`, whose limit leaves it out.
    pub(crate) fn request(&self) -> Request {
        let extra = if self.flavour() == Flavour::Short { 0 } else { size_of::<u64>() };
        Request::new(self.flavour().operation(), self.size.saturating_add(extra))
    }

    /// How the client sends, for the server: version, flavour, length of the string.
    pub(crate) fn to_private(&self) -> Vec<u8> {
        let mut bytes = PRIVATE.to_vec();
        bytes.push(self.flavour() as u8);
        bytes.extend_from_slice(&(self.size as u64).to_le_bytes());
        bytes
    }

    /// What [`Options::to_private`] says; `None` if it is something else.
    pub(crate) fn from_private(bytes: &[u8]) -> Option<(Flavour, usize)> {
        let (&flavour, size) = bytes.strip_prefix(PRIVATE)?.split_first()?;
        let size = u64::from_le_bytes(size.try_into().ok()?);
        Some((*Flavour::ALL.get(usize::from(flavour))?, usize::try_from(size).ok()?))
    }

    /// What the parser cannot check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.memory != MemoryType::Host {
            let kind = format!("{:?}", self.memory).to_lowercase();
            return Err(format!("-m {kind}: memory of that kind is not supported; only -m host is").into());
        }
        if !(self.timeout > 0.0 && self.timeout <= 86_400.0) {
            return Err(
                format!("--timeout {}: expected seconds, above 0 and up to 86400", self.timeout).into()
            );
        }
        Ok(())
    }

    /// Writes manual page and completions, if asked to.
    pub(crate) fn generate(&self) -> Option<Result<(), Failure>> {
        if let Some(dir) = &self.generate_man {
            return Some(clap_mangen::generate_to(Options::command(), dir).map_err(Failure::from));
        }
        self.generate_completions.as_ref().map(|dir| complete::write::<Options>(dir))
    }
}
