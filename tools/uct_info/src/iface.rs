//! What an open interface can do, in the terms of the output: operations, atomics and features, NATIVE or EMULATED.

use std::fmt::Write;

use serde::Serialize;
use uct_core::select::Operation;
use uct_core::units::MemSize;
use uct_core::{AtomicOp, AtomicOps, Capabilities, Events, Iface, IfaceAttr, OpLimits};

use crate::cost::Costs;

/// How an interface does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Mode {
    /// The device, or the memory that both sides share, does it.
    Native,
    /// The transport composes it from other operations.
    Emulated,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Native => "NATIVE",
            Mode::Emulated => "EMULATED",
        }
    }

    fn of(emulated: bool) -> Mode {
        if emulated { Mode::Emulated } else { Mode::Native }
    }
}

/// The attributes of an interface.
#[derive(Serialize)]
pub(crate) struct Attributes {
    operations: Vec<Transfer>,
    pub atomics: Vec<Atomic>,
    pub features: Vec<Feature>,
    pub events: Vec<String>,
    limits: Limits,
    cost: Costs,
    device_address_bytes: usize,
    iface_address_bytes: usize,
    ep_address_bytes: usize,
    priority: u32,
    /// `null`: without limit.
    max_endpoints: Option<u64>,
}

/// An operation that moves data.
#[derive(Serialize)]
struct Transfer {
    name: &'static str,
    mode: Mode,
    /// Smallest and largest size in bytes.
    min: usize,
    max: usize,
}

/// An atomic operation.
#[derive(Serialize)]
pub(crate) struct Atomic {
    pub bits: u32,
    /// `post` or `fetch`.
    pub kind: &'static str,
    pub op: &'static str,
    pub mode: Mode,
}

/// A capability that is no operation.
#[derive(Serialize)]
pub(crate) struct Feature {
    pub name: String,
    pub mode: Mode,
}

/// What else limits the operations of each class.
#[derive(Serialize)]
struct Limits {
    am: ClassLimits,
    put: ClassLimits,
    get: ClassLimits,
}

#[derive(Serialize)]
struct ClassLimits {
    max_iov: usize,
    max_header: usize,
    zcopy_align: usize,
    align_mtu: usize,
}

impl Attributes {
    pub(crate) fn of(iface: &Iface) -> Attributes {
        let attr = iface.attributes();
        let (capabilities, emulated) = (iface.capabilities(), iface.emulated());
        let able = |operation: &&Operation| capabilities.contains(operation.capability());
        let transfers = Operation::ALL.iter().filter(able).map(|operation| Transfer {
            name: operation.name(),
            mode: Mode::of(emulated.contains(operation.capability())),
            min: operation.minimum(attr),
            max: operation.limit(attr),
        });
        let moving = Operation::ALL.iter().fold(Capabilities::empty(), |all, one| all | one.capability());
        let features = (capabilities - moving)
            .iter_names()
            .map(|(name, bit)| Feature { name: name.to_lowercase(), mode: Mode::of(emulated.contains(bit)) });
        let events = Events::from_bits_truncate(attr.events).iter_names();
        Attributes {
            operations: transfers.collect(),
            atomics: atomics(attr),
            features: features.collect(),
            events: events.map(|(name, _)| name.to_lowercase()).collect(),
            limits: Limits {
                am: ClassLimits::of(&attr.am),
                put: ClassLimits::of(&attr.put),
                get: ClassLimits::of(&attr.get),
            },
            cost: Costs::of(attr),
            device_address_bytes: attr.device_addr_len,
            iface_address_bytes: attr.iface_addr_len,
            ep_address_bytes: attr.ep_addr_len,
            priority: attr.priority,
            max_endpoints: (attr.max_num_eps > 0).then_some(attr.max_num_eps),
        }
    }

    /// How it does an operation that moves data, if at all.
    pub(crate) fn operation(&self, operation: Operation) -> Option<Mode> {
        self.operations.iter().find(|own| own.name == operation.name()).map(|own| own.mode)
    }

    /// As UCX prints them: pairs of a name and a value.
    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        let mut rows: Vec<(String, String)> =
            self.cost.rows().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        for operation in &self.operations {
            let limits = self.limits.of_operation(operation.name);
            let mut value = match operation.min {
                0 => format!("<= {}", bytes(operation.max)),
                min => format!("{}..{}", bytes(min), bytes(operation.max)),
            };
            if operation.name.ends_with("zcopy") {
                let _ = write!(value, ", up to {} iov, aligned {}", limits.max_iov, limits.zcopy_align);
                if operation.name == "am_zcopy" {
                    let _ = write!(value, ", header <= {}", limits.max_header);
                }
            }
            rows.push((operation.name.to_owned(), format!("{value}  {}", operation.mode.name())));
        }
        for bits in [32, 64] {
            for kind in ["post", "fetch"] {
                let list = self.atomic_list(bits, kind);
                if !list.is_empty() {
                    rows.push((format!("atomic{bits}_{kind}"), list));
                }
            }
        }
        let names = |wanted: &str| {
            let named = self.features.iter().filter_map(|feature| feature.name.strip_prefix(wanted));
            named.collect::<Vec<_>>().join(", ")
        };
        let others = self.features.iter().filter(|feature| {
            !["connect_to_", "errhandle_"].iter().any(|prefix| feature.name.starts_with(prefix))
        });
        let others: Vec<String> = others
            .map(|feature| match feature.mode {
                Mode::Native => feature.name.clone(),
                Mode::Emulated => format!("{} (EMULATED)", feature.name),
            })
            .collect();
        rows.push(("connection".to_owned(), format!("to {}", or_none(names("connect_to_")))));
        rows.push(("error handling".to_owned(), or_none(names("errhandle_"))));
        rows.push(("features".to_owned(), or_none(others.join(", "))));
        rows.push(("event fd".to_owned(), or_none(self.events.join(", "))));
        rows.push(("device priority".to_owned(), self.priority.to_string()));
        let most = self.max_endpoints.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
        rows.push(("max eps".to_owned(), most));
        rows.push(("device address".to_owned(), format!("{} bytes", self.device_address_bytes)));
        rows.push(("iface address".to_owned(), format!("{} bytes", self.iface_address_bytes)));
        rows.push(("ep address".to_owned(), format!("{} bytes", self.ep_address_bytes)));
        rows
    }

    fn atomic_list(&self, bits: u32, kind: &str) -> String {
        let of_mode = |mode: Mode| {
            let same = |one: &&Atomic| one.bits == bits && one.kind == kind && one.mode == mode;
            let ops: Vec<&str> = self.atomics.iter().filter(same).map(|one| one.op).collect();
            (!ops.is_empty()).then(|| format!("{}  {}", ops.join(", "), mode.name()))
        };
        let lists: Vec<String> = [Mode::Native, Mode::Emulated].into_iter().filter_map(of_mode).collect();
        lists.join("; ")
    }
}

impl Limits {
    fn of_operation(&self, name: &str) -> &ClassLimits {
        match &name[..2] {
            "am" => &self.am,
            "pu" => &self.put,
            _ => &self.get,
        }
    }
}

impl ClassLimits {
    fn of(limits: &OpLimits) -> ClassLimits {
        ClassLimits {
            max_iov: limits.max_iov,
            max_header: limits.max_hdr,
            zcopy_align: limits.opt_zcopy_align,
            align_mtu: limits.align_mtu,
        }
    }
}

/// The name of an atomic operation in the output.
pub(crate) fn atomic_name(op: AtomicOp) -> &'static str {
    match op {
        AtomicOp::Add => "add",
        AtomicOp::And => "and",
        AtomicOp::Or => "or",
        AtomicOp::Xor => "xor",
        AtomicOp::Swap => "swap",
        AtomicOp::Cswap => "cswap",
    }
}

fn atomics(attr: &IfaceAttr) -> Vec<Atomic> {
    let mut all = Vec::new();
    for (bits, AtomicOps { post, fetch, post_emulated, fetch_emulated }) in
        [(32, attr.atomic32), (64, attr.atomic64)]
    {
        for (kind, able, emulated) in [("post", post, post_emulated), ("fetch", fetch, fetch_emulated)] {
            let ops = AtomicOp::ALL.into_iter().filter(|op| able & op.bit() != 0);
            all.extend(ops.map(|op| {
                let mode = Mode::of(emulated & op.bit() != 0);
                Atomic { bits, kind, op: atomic_name(op), mode }
            }));
        }
    }
    all
}

/// A number of bytes as people write it. Where the transport names no limit, `unlimited`.
pub(crate) fn bytes(bytes: usize) -> String {
    if bytes > isize::MAX as usize / 2 {
        return "unlimited".to_owned();
    }
    MemSize::new(bytes as u64).to_string()
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}
