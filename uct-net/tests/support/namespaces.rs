//! Network namespaces, and work inside them. Only root makes them.

#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use super::child::{self, Running};

/// Two namespaces with a cable between them.
pub struct Cable {
    near: Running,
    far: Running,
}

/// The addresses of the two ends, and one that no machine has. Frames to that one are sent, and reach no one.
pub const NEAR: &str = "10.9.0.1";
pub const FAR: &str = "10.9.0.2";
pub const ABSENT: &str = "10.9.0.3";
/// The device of each end, in its namespace.
pub const DEVICE: &str = "cable";

/// The hardware addresses of the ends, and one that no device has.
const NEAR_HARDWARE: &str = "02:00:00:00:09:01";
const FAR_HARDWARE: &str = "02:00:00:00:09:02";
const NO_HARDWARE: &str = "02:00:00:00:09:03";

/// Runs `work` in a thread that is in the network namespace of a process.
pub fn inside<T: Send + 'static>(process: u32, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::spawn(move || {
        enter(process);
        work()
    })
}

/// Moves this thread into the network namespace of a process.
pub fn enter(process: u32) {
    let namespace = File::open(format!("/proc/{process}/ns/net")).expect("the process is there");
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).expect("root may enter a namespace");
}

/// Runs `ip` (iproute2) in the namespace of this thread.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip (iproute2) starts");
    assert!(status.success(), "ip {arguments}");
}

/// The hardware address that frames to a peer are sent to.
fn neighbour(peer: &str, hardware: &str) {
    ip(&format!("neigh replace {peer} lladdr {hardware} nud permanent dev {DEVICE}"));
}

/// A namespace with loopback alone, as long as its process lives.
pub fn namespace() -> Running {
    let mut command = Command::new("unshare");
    // It ends with its input, also if this program is killed.
    command.args(["--net", "--", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
    let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut running = Running(process.expect("unshare (util-linux) starts"));
    child::line(&mut running.0, "ready");
    running
}

impl Cable {
    pub fn new() -> Cable {
        let cable = Cable { near: namespace(), far: namespace() };
        let far = cable.far.0.id();
        let set_up = |address: &'static str, peer: &'static str, hardware: &'static str| {
            move || {
                ip(&format!("addr add {address}/24 dev {DEVICE}"));
                ip(&format!("link set {DEVICE} up"));
                neighbour(peer, hardware);
                neighbour(ABSENT, NO_HARDWARE);
            }
        };
        let near = inside(cable.near.0.id(), move || {
            ip(&format!(
                "link add {DEVICE} address {NEAR_HARDWARE} type veth peer name {DEVICE} address {FAR_HARDWARE} netns {far}"
            ));
            set_up(NEAR, FAR, FAR_HARDWARE)();
        });
        near.join().expect("the near end is set up");
        inside(far, set_up(FAR, NEAR, NEAR_HARDWARE)).join().expect("the far end is set up");
        cable
    }

    /// Runs `work` at the near end.
    pub fn near<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        inside(self.near.0.id(), work)
    }

    /// Runs `work` at the far end.
    pub fn far<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        inside(self.far.0.id(), work)
    }
}

/// Sets the MTU of the device of this end.
pub fn set_mtu(bytes: u32) {
    ip(&format!("link set {DEVICE} mtu {bytes}"));
}

/// Loses all packets that the far end sends, from now on or no longer. Called there.
pub fn lose_packets(is_lost: bool) {
    neighbour(NEAR, if is_lost { NO_HARDWARE } else { NEAR_HARDWARE });
}

/// Gives the loopback device of the namespace of this thread one more address, with the length of its network.
pub fn add_to_loopback(address: &str) {
    ip(&format!("addr add {address} dev lo"));
}

/// Adds pairs of devices to the namespace of this thread, each with an address of its own: 10.`net`.….
pub fn add_pairs(pairs: usize, net: u8) {
    use std::io::Write;
    // Each IPv6 address would change again a second later, when no duplicate was found.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a setting of the namespace");
    let up = |name: &str, net: u8, number: usize| {
        format!("link set {name} up\naddr add 10.{net}.{number}.1/24 dev {name}\n")
    };
    let pair = |number: usize| {
        let (near, far) = (format!("near{number}"), format!("far{number}"));
        format!("link add {near} type veth peer name {far}\n")
            + &up(&near, net, number)
            + &up(&far, net + 1, number)
    };
    let commands: String = (0..pairs).map(pair).collect();
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip starts");
    ip.stdin.take().expect("piped").write_all(commands.as_bytes()).expect("it reads");
    assert!(ip.wait().expect("it ends").success(), "ip -batch");
}
