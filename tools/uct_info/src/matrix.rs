//! `--matrix`: which transport has which operation, NATIVE or EMULATED.

use std::fmt;

use comfy_table::{Table, presets};
use serde::Serialize;
use uct_core::AtomicOp;
use uct_core::select::Operation;

use crate::devices::Devices;
use crate::iface::{Attributes, Mode, atomic_name};

/// Features that belong to the operations, by the names of capabilities.
const FEATURES: [&str; 2] = ["pending", "ep_check"];
/// The same for the events that wake a sleeper.
const EVENTS: [&str; 2] = ["recv", "send_comp"];

/// The section.
#[derive(Serialize)]
pub(crate) struct Matrix {
    /// Transport, or transport/device where its devices differ.
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(PartialEq, Serialize)]
struct Row {
    operation: String,
    /// One a column; `null` for what is not there.
    modes: Vec<Option<Mode>>,
}

impl Matrix {
    pub(crate) fn of(devices: &Devices) -> Matrix {
        let names: Vec<String> = operations().map(|(name, _)| name).collect();
        let mut columns: Vec<(String, String, Vec<Option<Mode>>)> = Vec::new();
        for device in &devices.resources {
            let Some(attributes) = &device.attributes else { continue };
            let modes: Vec<_> = operations().map(|(_, mode)| mode(attributes)).collect();
            let same = |(transport, _, known): &(String, String, Vec<_>)| {
                *transport == device.transport && *known == modes
            };
            if !columns.iter().any(same) {
                columns.push((device.transport.clone(), device.device.clone(), modes));
            }
        }
        let headers = columns.iter().map(|(transport, device, _)| {
            let differs = columns.iter().filter(|(other, ..)| other == transport).count() > 1;
            if differs { format!("{transport}/{device}") } else { transport.clone() }
        });
        let rows = names.into_iter().enumerate().map(|(index, operation)| Row {
            operation,
            modes: columns.iter().map(|(.., modes)| modes[index]).collect(),
        });
        Matrix { columns: headers.collect(), rows: rows.collect() }
    }
}

type Look = Box<dyn Fn(&Attributes) -> Option<Mode>>;

/// Every row: its name, and how to find its cell.
fn operations() -> impl Iterator<Item = (String, Look)> {
    let transfers = Operation::ALL.into_iter().map(|operation| -> (String, Look) {
        (operation.name().to_owned(), Box::new(move |attributes| attributes.operation(operation)))
    });
    let atomics = [(32, "post"), (32, "fetch"), (64, "post"), (64, "fetch")];
    let atomics = atomics.into_iter().flat_map(|(bits, kind)| {
        let ops = AtomicOp::ALL.into_iter().filter(move |op| {
            // Swapping without a result is a put.
            kind == "fetch" || !matches!(op, AtomicOp::Swap | AtomicOp::Cswap)
        });
        ops.map(move |op| -> (String, Look) {
            let op = atomic_name(op);
            let look = move |attributes: &Attributes| {
                let mut all = attributes.atomics.iter();
                all.find(|own| own.bits == bits && own.kind == kind && own.op == op).map(|own| own.mode)
            };
            (format!("atomic{bits} {kind} {op}"), Box::new(look))
        })
    });
    let features = FEATURES.into_iter().map(|name| -> (String, Look) {
        let look = move |attributes: &Attributes| {
            attributes.features.iter().find(|own| own.name == name).map(|own| own.mode)
        };
        (name.to_owned(), Box::new(look))
    });
    let events = EVENTS.into_iter().map(|name| -> (String, Look) {
        let look = move |attributes: &Attributes| {
            attributes.events.iter().any(|own| own == name).then_some(Mode::Native)
        };
        (format!("event {name}"), Box::new(look))
    });
    transfers.chain(atomics).chain(features).chain(events)
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(std::iter::once("operation").chain(self.columns.iter().map(String::as_str)));
        for Row { operation, modes } in &self.rows {
            let cells = modes.iter().map(|mode| mode.map_or("-", Mode::name));
            table.add_row(std::iter::once(operation.as_str()).chain(cells));
        }
        writeln!(f, "{table}")
    }
}
