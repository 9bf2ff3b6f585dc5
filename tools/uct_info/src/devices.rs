//! `-d`: memory domains, transports and devices, with what they can do and cost, and why others are not there.

use std::fmt;

use serde::Serialize;
use uct_core::{Context, IfaceOptions, MdFlags, MemoryDomain, Resource, Worker, system};
use uct_tools_common::Failure;

use crate::cost::Nanoseconds;
use crate::iface::{Attributes, bytes};

/// The section.
#[derive(Serialize)]
pub(crate) struct Devices {
    memory_domains: Vec<Domain>,
    pub resources: Vec<Device>,
    absent: Vec<Absent>,
}

#[derive(Serialize)]
struct Domain {
    component: String,
    name: String,
    /// The file it came from, or `built in`.
    origin: String,
    flags: Vec<String>,
    packed_key_bytes: usize,
    max_registered_bytes: u64,
    max_allocated_bytes: u64,
    /// Seconds of a registration, and seconds that each byte adds.
    registration_cost: f64,
    registration_growth: f64,
    key_cost: f64,
    key_map_cost: f64,
    key_map_growth: f64,
}

/// A transport on a device.
#[derive(Serialize)]
pub(crate) struct Device {
    component: String,
    memory_domain: String,
    pub transport: String,
    pub device: String,
    kind: &'static str,
    numa_node: Option<u32>,
    is_software: bool,
    origin: String,
    /// `open`, `excluded` or `refused`.
    state: &'static str,
    /// Why it is not open.
    reason: Option<String>,
    pub attributes: Option<Attributes>,
}

/// Something that offers nothing here.
#[derive(Serialize)]
struct Absent {
    name: String,
    /// `load`, `left_out` or `device`.
    stage: &'static str,
    reason: String,
}

impl Devices {
    /// All, or those of one transport.
    pub(crate) fn of(context: &Context, transport: Option<&str>) -> Result<Devices, Failure> {
        let wanted = |name: &str| transport.is_none_or(|transport| transport == name);
        let worker = Worker::new(context)?;
        let mut memory_domains: Vec<Domain> = Vec::new();
        let mut resources = Vec::new();
        for resource in context.resources().iter().filter(|resource| wanted(&resource.transport)) {
            let known = memory_domains
                .iter()
                .any(|known| known.component == resource.component && known.name == resource.md);
            if !known && let Ok(md) = context.memory_domain(resource) {
                memory_domains.push(Domain::of(resource, &md));
            }
            resources.push(Device::of(&worker, resource));
        }

        let discovered = context.discovery().absent.iter().flat_map(|absent| {
            absent.transports.iter().filter(|name| wanted(name)).map(|name| Absent {
                name: name.clone(),
                stage: "device",
                reason: absent.refused.to_string(),
            })
        });
        let failed = context.load_failures().iter().filter(|it| wanted(&it.name)).map(|failure| Absent {
            name: failure.name.clone(),
            stage: "load",
            reason: format!("{failure}; {}", failure.hint()),
        });
        let ignored = context.ignored_plugins().iter().filter(|it| wanted(&it.name)).map(|ignored| Absent {
            name: ignored.name.clone(),
            stage: "left_out",
            reason: ignored.to_string(),
        });
        let absent: Vec<Absent> = discovered.chain(failed).chain(ignored).collect();
        if let Some(transport) = transport
            && resources.is_empty()
            && absent.is_empty()
        {
            // The error names those there are.
            context.find(transport, "")?;
        }
        Ok(Devices { memory_domains, resources, absent })
    }
}

impl Domain {
    fn of(resource: &Resource, md: &MemoryDomain) -> Domain {
        let attr = md.attributes();
        let flags = MdFlags::from_bits_truncate(attr.flags);
        Domain {
            component: resource.component.clone(),
            name: resource.md.clone(),
            origin: resource.origin.to_string(),
            flags: flags.iter_names().map(|(name, _)| name.to_lowercase()).collect(),
            packed_key_bytes: attr.rkey_packed_size,
            max_registered_bytes: attr.max_reg,
            max_allocated_bytes: attr.max_alloc,
            registration_cost: attr.reg_cost,
            registration_growth: attr.reg_growth,
            key_cost: attr.rkey_cost,
            key_map_cost: attr.rkey_map_cost,
            key_map_growth: attr.rkey_map_growth,
        }
    }
}

impl Device {
    fn of(worker: &Worker, resource: &Resource) -> Device {
        let (state, reason, attributes) = match worker.context().excluded(resource) {
            Some((key, value)) => ("excluded", Some(format!("{key} = {value}")), None),
            None => match worker.open_resource(resource, IfaceOptions::default()) {
                Ok(iface) => ("open", None, Some(Attributes::of(&iface))),
                Err(error) => ("refused", Some(error.to_string()), None),
            },
        };
        Device {
            component: resource.component.clone(),
            memory_domain: resource.md.clone(),
            transport: resource.transport.clone(),
            device: resource.device.clone(),
            kind: resource.kind.name(),
            numa_node: resource.numa_node,
            is_software: resource.is_software,
            origin: resource.origin.to_string(),
            state,
            reason,
            attributes,
        }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for domain in &self.memory_domains {
            write!(f, "{domain}")?;
            let own = |device: &&Device| {
                device.component == domain.component && device.memory_domain == domain.name
            };
            for device in self.resources.iter().filter(own) {
                write!(f, "{device}")?;
            }
        }
        for Absent { name, stage, reason } in &self.absent {
            // A file that a built-in one of its name makes superfluous is not missing.
            let heading = if *stage == "left_out" { "Left out" } else { "Not here" };
            writeln!(f, "#\n# {heading}: {}\n#   {reason}", if name.is_empty() { "plugin" } else { name })?;
        }
        Ok(())
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Domain { component, name, origin, flags, packed_key_bytes, .. } = self;
        writeln!(f, "#\n# Memory domain: {name}\n#     Component: {component} ({origin})")?;
        if flags.iter().any(|flag| flag == "alloc") {
            let most = limit(self.max_allocated_bytes);
            writeln!(f, "#             allocate: {most}")?;
        }
        if flags.iter().any(|flag| flag == "reg") {
            let most = limit(self.max_registered_bytes);
            let cost = Nanoseconds(self.registration_cost);
            let per_page = self.registration_growth * system::pages::page_size() as f64;
            writeln!(f, "#             register: {most}, cost: {cost} + {} per page", Nanoseconds(per_page))?;
        }
        write!(f, "#           remote key: {packed_key_bytes} bytes")?;
        if self.key_cost > 0.0 {
            write!(f, ", cost if not kept: {}", Nanoseconds(self.key_cost))?;
        }
        if self.key_map_cost > 0.0 {
            let per_page = self.key_map_growth * system::pages::page_size() as f64;
            let (once, per_page) = (Nanoseconds(self.key_map_cost), Nanoseconds(per_page));
            write!(f, ", for new memory {once} + {per_page} per page")?;
        }
        writeln!(f)?;
        writeln!(f, "#                flags: {}", flags.join(", "))
    }
}

fn limit(bytes_limit: u64) -> String {
    bytes(usize::try_from(bytes_limit).unwrap_or(usize::MAX))
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#\n#      Transport: {}", self.transport)?;
        writeln!(f, "#         Device: {}", self.device)?;
        let software = if self.is_software { ", software device" } else { "" };
        writeln!(f, "#           Type: {}{software}", self.kind)?;
        writeln!(f, "#         Origin: {}", self.origin)?;
        let node = self.numa_node.map_or_else(|| "<unknown>".to_owned(), |node| node.to_string());
        writeln!(f, "#      NUMA node: {node}")?;
        if let Some(reason) = &self.reason {
            return writeln!(f, "#        {:>8}: {reason}", capitalised(self.state));
        }
        writeln!(f, "#\n#      capabilities:")?;
        for (name, value) in self.attributes.iter().flat_map(Attributes::rows) {
            writeln!(f, "# {name:>20}: {value}")?;
        }
        Ok(())
    }
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}
