//! `-s`: system facts, as selection and the transports see them.

use std::fmt;

use serde::Serialize;
use uct_core::clock;
use uct_core::system::namespace::{Namespace, Namespaces};
use uct_core::system::pages::{self, TransparentHugePages};
use uct_core::system::process::{self, PtraceScope};
use uct_core::system::{SystemError, cpu, host, net};

use crate::iface::bytes;

/// The section.
#[derive(Serialize)]
pub(crate) struct System {
    host: Host,
    processors: Processors,
    memory: Memory,
    clock: Clock,
    process: Process,
    /// Kind and inode; `null` for one that the kernel does not show.
    namespaces: Vec<(&'static str, Option<u64>)>,
    network_devices: Vec<NetworkDevice>,
}

#[derive(Serialize)]
struct Host {
    name: String,
    kernel: String,
    boot_id: String,
    /// Whether the boot id is the kernel's random number; if not, it is made of names.
    boot_id_is_random: bool,
}

#[derive(Serialize)]
struct Processors {
    model: String,
    /// Those that this process may run on.
    usable: Vec<usize>,
    numa_node: Option<u32>,
    cache_line: usize,
}

#[derive(Serialize)]
struct Memory {
    page_size: usize,
    huge_page_size: Option<usize>,
    huge_pages: Vec<HugePages>,
    transparent_huge_pages: &'static str,
    /// Bytes that may be locked; `null` is without limit.
    memlock_limit: Option<u64>,
}

#[derive(Serialize)]
struct HugePages {
    size: usize,
    total: u64,
    free: u64,
}

#[derive(Serialize)]
struct Clock {
    source: &'static str,
    ticks_per_second: f64,
}

#[derive(Serialize)]
struct Process {
    uid: u32,
    gid: u32,
    /// Who may read another process's memory, by the Yama module.
    ptrace_scope: &'static str,
}

#[derive(Serialize)]
struct NetworkDevice {
    name: String,
    kind: String,
    up: bool,
    running: bool,
    /// 10⁶ bits per second.
    megabits_per_second: u32,
    speed_origin: String,
    mtu: u32,
    addresses: Vec<String>,
    numa_node: Option<u32>,
    driver: Option<String>,
}

impl System {
    pub(crate) fn read() -> Result<System, SystemError> {
        let id = host::host_id();
        let credentials = process::credentials();
        let own = Namespaces::own();
        let huge_pages = pages::huge_pages().into_iter();
        Ok(System {
            host: Host {
                name: host::hostname(),
                kernel: host::kernel(),
                boot_id: id.to_string(),
                boot_id_is_random: id.is_random(),
            },
            processors: Processors {
                model: cpu::model_name(),
                usable: cpu::affinity()?,
                numa_node: cpu::numa_node(),
                cache_line: cpu::CACHE_LINE,
            },
            memory: Memory {
                page_size: pages::page_size(),
                huge_page_size: pages::default_huge_page_size(),
                huge_pages: huge_pages
                    .map(|pool| HugePages { size: pool.size, total: pool.total, free: pool.free })
                    .collect(),
                transparent_huge_pages: match pages::transparent_huge_pages() {
                    TransparentHugePages::Always => "always",
                    TransparentHugePages::OnRequest => "on request",
                    TransparentHugePages::Never => "never",
                },
                memlock_limit: pages::memlock_limit(),
            },
            clock: Clock {
                source: if clock::uses_counter() { "time stamp counter" } else { "CLOCK_MONOTONIC" },
                ticks_per_second: clock::calibration().ticks_per_nanosecond as f64 / 2f64.powi(32) * 1e9,
            },
            process: Process {
                uid: credentials.effective_uid,
                gid: credentials.effective_gid,
                ptrace_scope: match process::ptrace_scope() {
                    PtraceScope::SameUser => "same user",
                    PtraceScope::Restricted => "restricted",
                    PtraceScope::AdminOnly => "administrators only",
                    PtraceScope::Nobody => "nobody",
                },
            },
            namespaces: Namespace::ALL
                .map(|kind| (kind.name(), Some(own.id(kind)).filter(|&inode| inode != 0)))
                .to_vec(),
            network_devices: net::devices()?.into_iter().map(NetworkDevice::of).collect(),
        })
    }
}

impl NetworkDevice {
    fn of(device: net::Device) -> NetworkDevice {
        let address = |own: &net::Address| format!("{}/{}", own.address, own.prefix_length);
        NetworkDevice {
            kind: format!("{:?}", device.kind).to_lowercase(),
            up: device.is_up,
            running: device.is_running,
            megabits_per_second: device.speed.megabits,
            speed_origin: device.speed_origin().to_string(),
            mtu: device.mtu,
            addresses: device.addresses.iter().map(address).collect(),
            numa_node: device.numa_node,
            driver: device.driver,
            name: device.name,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let System { host, processors, memory, clock, process, .. } = self;
        writeln!(f, "# Host: {}, kernel {}", host.name, host.kernel)?;
        let source = if host.boot_id_is_random { "the kernel's" } else { "made of names" };
        writeln!(f, "# Boot id: {} ({source})", host.boot_id)?;
        writeln!(f, "# Processor: {}", processors.model)?;
        writeln!(f, "# Usable processors: {:?}", processors.usable)?;
        let node = processors.numa_node.map_or_else(|| "none".to_owned(), |node| node.to_string());
        writeln!(f, "# NUMA node: {node}; cache line: {} bytes", processors.cache_line)?;
        writeln!(f, "# Page size: {}", bytes(memory.page_size))?;
        for HugePages { size, total, free } in &memory.huge_pages {
            writeln!(f, "# Huge pages of {}: {total}, {free} free", bytes(*size))?;
        }
        writeln!(f, "# Transparent huge pages: {}", memory.transparent_huge_pages)?;
        let locked =
            memory.memlock_limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes"));
        writeln!(f, "# Memory that may be locked: {locked}")?;
        writeln!(f, "# Clock: {}, {:.3} MHz", clock.source, clock.ticks_per_second / 1e6)?;
        writeln!(f, "# User {}, group {}", process.uid, process.gid)?;
        writeln!(f, "# Memory of other processes may be read by: {}", process.ptrace_scope)?;
        for (kind, inode) in &self.namespaces {
            let inode = inode.map_or_else(|| "not shown".to_owned(), |inode| inode.to_string());
            writeln!(f, "# Namespace {kind}: {inode}")?;
        }
        for device in &self.network_devices {
            write!(f, "{device}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NetworkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.up, self.running) {
            (true, true) => "running",
            (true, false) => "up, without a link",
            _ => "down",
        };
        let NetworkDevice { name, kind, megabits_per_second: speed, speed_origin, mtu, .. } = self;
        write!(f, "# Network device {name}: {kind}, {state}, {speed} Mb/s ({speed_origin}), mtu {mtu}")?;
        if let Some(node) = self.numa_node {
            write!(f, ", NUMA node {node}")?;
        }
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        writeln!(f, ", addresses: {}", self.addresses.join(" "))
    }
}
