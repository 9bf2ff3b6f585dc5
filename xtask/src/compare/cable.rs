//! Two network namespaces with a cable between them, for programs of two machines on one. Only root makes them.
//! Built on unshare, nsenter and ip; used by what measures between two processes.

use crate::apt::{self, Package};
use crate::failure::{Failure, Outcome};
use crate::process::{command, kill_tree, run, spawn};
use rustix::process::geteuid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PACKAGES: &[Package] = &[
    Package { name: "util-linux", brings: "/usr/bin/unshare" },
    Package { name: "iproute2", brings: "/sbin/ip" },
];
const LIMIT: Duration = Duration::from_secs(20);
/// The device of each end, in its namespace.
const DEVICE: &str = "cable";
const NEAR_ADDRESS: &str = "10.9.0.1";
/// Where the far end is reached.
pub const FAR_ADDRESS: &str = "10.9.0.2";

/// The namespaces, for as long as this is there.
pub struct Cable {
    near: Namespace,
    far: Namespace,
}

/// A network namespace with a process that keeps it.
struct Namespace(Child);

impl Cable {
    /// Makes both, and the devices.
    pub fn new() -> Outcome<Cable> {
        if !geteuid().is_root() {
            return Err(Failure::new("--between namespaces needs root, which makes network namespaces"));
        }
        apt::require(PACKAGES)?;
        let cable = Cable { near: Namespace::new()?, far: Namespace::new()? };
        let far = cable.far().to_string();
        let ip =
            |process, arguments: &str| run(inside(process, "ip").args(arguments.split_whitespace()), LIMIT);
        ip(cable.near(), &format!("link add {DEVICE} type veth peer name {DEVICE} netns {far}"))?;
        for (process, address) in [(cable.near(), NEAR_ADDRESS), (cable.far(), FAR_ADDRESS)] {
            ip(process, &format!("address add {address}/24 dev {DEVICE}"))?;
            ip(process, &format!("link set {DEVICE} up"))?;
        }
        Ok(cable)
    }

    /// The process in the namespace of the near end.
    pub fn near(&self) -> u32 {
        self.near.0.id()
    }

    /// The process in the namespace of the far end.
    pub fn far(&self) -> u32 {
        self.far.0.id()
    }
}

/// A program in the network namespace of a process.
pub fn inside(process: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut inside = command("nsenter");
    inside.args(["--target", &process.to_string(), "--net", "--"]).arg(program);
    inside
}

impl Namespace {
    /// A namespace with loopback.
    fn new() -> Outcome<Namespace> {
        let mut keeper = command("unshare");
        // It ends with its input, also if this program is killed.
        keeper.args(["--net", "--", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let mut child = spawn(keeper.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut ready = String::new();
        let output = child.stdout.take().map(BufReader::new);
        let read = output.map_or(Ok(0), |mut output| output.read_line(&mut ready));
        let namespace = Namespace(child);
        match read {
            Ok(_) if ready == "ready\n" => Ok(namespace),
            _ => Err(Failure::new("unshare makes no network namespace here")),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        kill_tree(&mut self.0);
    }
}
