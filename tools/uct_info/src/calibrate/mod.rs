//! `--calibrate`: measures the transports of this machine, shows the figures beside those of the models, and stores them for selection.

mod line;
mod measure;
mod reply;
mod side;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use uct_core::select::{Calibration, Operation, Request, Selector, Times};
use uct_core::{Context, DeviceKind, IfaceOptions, Resource, Worker};
use uct_tools_common::{Failure, note};

use crate::iface::bytes;
use measure::{Measured, PASSES, SIZES};

/// Sizes that the text shows; the JSON has all.
const SHOWN: [u64; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];

/// Which interfaces: those on the device and of the transport, if these are named.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub device: Option<&'a str>,
    pub transport: Option<&'a str>,
}

/// The section.
#[derive(Serialize)]
pub(crate) struct Calibrated {
    interfaces: Vec<Interface>,
    failed: Vec<Failed>,
    /// `null` if the times are not stored.
    file: Option<PathBuf>,
}

/// What was measured of an interface.
#[derive(Serialize)]
struct Interface {
    transport: String,
    device: String,
    rows: Vec<Row>,
    /// For messages, put and get: from which size on which operation is the fastest.
    fastest: Vec<Vec<Step>>,
}

/// A figure by the model and as measured.
#[derive(Serialize)]
struct Row {
    operation: &'static str,
    size: u64,
    /// `time` of one operation, `overhead` from one to the next, or `bandwidth`.
    what: &'static str,
    /// Seconds, or bytes a second.
    model: f64,
    measured: f64,
}

#[derive(Serialize)]
struct Step {
    operation: &'static str,
    from: u64,
}

/// An interface that could not be measured.
#[derive(Serialize)]
struct Failed {
    transport: String,
    device: String,
    reason: String,
}

impl Named<'_> {
    /// Those of them that the configuration permits.
    fn resources(self, context: &Context) -> Result<Vec<&Resource>, Failure> {
        let is_wanted = |resource: &&Resource| {
            self.device.is_none_or(|name| resource.device == name)
                && self.transport.is_none_or(|name| resource.transport == name)
                && context.excluded(resource).is_none()
                // It has no second side.
                && resource.kind != DeviceKind::Myself
        };
        let resources: Vec<&Resource> = context.resources().iter().filter(is_wanted).collect();
        if resources.is_empty() {
            let [transport, device] = [self.transport, self.device].map(|name| name.unwrap_or("any"));
            return Err(format!(
                "no interface to measure (transport: {transport}, device: {device}); uct_info -d lists them; self is not measured"
            )
            .into());
        }
        Ok(resources)
    }
}

/// An interface that is measured, and what was measured of it in the passes so far.
struct Subject<'r> {
    resource: &'r Resource,
    measured: Option<Measured>,
}

impl Calibrated {
    /// Measures interfaces, and stores the times beside those of the others.
    pub(crate) fn of(context: &Context, named: Named<'_>) -> Result<Calibrated, Failure> {
        let file = context.calibration_file().map(Path::to_owned);
        let mut calibrated = Calibrated { interfaces: Vec::new(), failed: Vec::new(), file };
        let mut calibration = calibrated.stored();
        for (resource, times) in calibrated.measure(context, named.resources(context)?) {
            calibration.set(resource, times);
        }
        calibrated.store(&calibration)?;
        Ok(calibrated)
    }

    /// The times in the file. One that cannot be used is replaced.
    fn stored(&self) -> Calibration {
        self.file.as_deref().and_then(|file| Calibration::read(file).ok()).unwrap_or_default()
    }

    fn store(&self, calibration: &Calibration) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        calibration.write(file).map_err(|error| format!("{}: {error}", file.display()).into())
    }

    /// Measures interfaces in passes, each pass all of them. One that fails is not measured again. Adds the figures, and the reasons why
    /// there are none. Returns the times.
    fn measure<'r>(&mut self, context: &Context, resources: Vec<&'r Resource>) -> Vec<(&'r Resource, Times)> {
        let subjects = resources.into_iter().map(|resource| Subject { resource, measured: None });
        let mut subjects: Vec<Subject<'_>> = subjects.collect();
        for pass in 1..=PASSES {
            if subjects.is_empty() {
                break;
            }
            note(&format!("pass {pass} of {PASSES}"));
            let mut separator = ':';
            subjects.retain_mut(|subject| {
                note(&format!("{separator} {} … ", subject.resource));
                separator = ',';
                let start = Instant::now();
                match measure::measure(context, subject.resource) {
                    Ok(measured) => {
                        note(&format!("{} ms", start.elapsed().as_millis()));
                        match &mut subject.measured {
                            Some(fastest) => fastest.merge(measured),
                            none => *none = Some(measured),
                        }
                        true
                    }
                    Err(failure) => {
                        note(&failure.to_string());
                        self.failed.push(Failed::of(subject.resource, failure.to_string()));
                        false
                    }
                }
            });
            note("\n");
        }
        let mut all = Vec::new();
        for Subject { resource, measured } in subjects {
            let Some(measured) = measured else { continue };
            match Interface::of(context, resource, &measured) {
                Ok(interface) => {
                    self.interfaces.push(interface);
                    all.push((resource, measured.times));
                }
                Err(failure) => self.failed.push(Failed::of(resource, failure.to_string())),
            }
        }
        all
    }

    /// The reason of the first interface that could not be measured.
    pub(crate) fn failure(&self) -> Option<String> {
        let Failed { transport, device, reason } = self.failed.first()?;
        Some(format!("{transport}/{device} was not measured: {reason}"))
    }
}

impl Failed {
    fn of(resource: &Resource, reason: String) -> Failed {
        let Resource { transport, device, .. } = resource.clone();
        Failed { transport, device, reason }
    }
}

impl Interface {
    fn of(context: &Context, resource: &Resource, measured: &Measured) -> Result<Interface, Failure> {
        let worker = Worker::new(context)?;
        let iface = worker.open_resource(resource, IfaceOptions::default())?;
        let selector = Selector::of(&worker, vec![iface]);
        // The terms of the model, whatever selection uses.
        let model = |operation, size: u64| {
            let explanation = selector.explain(&Request::new(operation, size as usize), None);
            explanation.candidates.iter().find_map(|candidate| candidate.cost().copied())
        };
        let mut rows = Vec::new();
        let row = |operation: Operation, size: u64, time: f64| {
            let (operation, model) = (operation.name(), model(operation, size)?.model);
            Some(Row { operation, size, what: "time", model, measured: time * 1e-9 })
        };
        for (&operation, points) in &measured.times {
            rows.extend(points.iter().filter_map(|&(size, time)| row(operation, size, time)));
            let streams = measured.streams.iter().filter(|stream| stream.operation == operation);
            rows.extend(streams.filter_map(|stream| {
                let (size, seconds) = (stream.size as u64, stream.nanoseconds * 1e-9);
                let cost = model(operation, size)?;
                let (what, model, measured) = match size {
                    8 => ("overhead", cost.overhead.figure, seconds),
                    _ => ("bandwidth", cost.transfer.figure, size as f64 / seconds),
                };
                Some(Row { operation: operation.name(), size, what, model, measured })
            }));
        }
        let classes =
            [&Operation::ALL[..3], &Operation::ALL[3..6], &Operation::ALL[6..], &Operation::ALL[..6]];
        let fastest =
            classes.map(|class| steps(&measured.times, class)).into_iter().filter(|it| !it.is_empty());
        let Resource { transport, device, .. } = resource.clone();
        Ok(Interface { transport, device, rows, fastest: fastest.collect() })
    }
}

/// Which of the operations is the fastest, from which of the measured sizes on.
fn steps(times: &Times, class: &[Operation]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for size in SIZES.map(|size| size as u64) {
        let time = |operation: &Operation| {
            let points = times.get(operation)?;
            let (_, time) = points.iter().find(|point| point.0 == size)?;
            Some((*time, operation.name()))
        };
        let fastest = class.iter().filter_map(time).min_by(|left, right| left.0.total_cmp(&right.0));
        if let Some((_, operation)) = fastest
            && steps.last().is_none_or(|last| last.operation != operation)
        {
            steps.push(Step { operation, from: size });
        }
    }
    steps
}

impl fmt::Display for Calibrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for interface in &self.interfaces {
            write!(f, "{interface}")?;
        }
        match &self.file {
            Some(file) => {
                writeln!(f, "# Stored in {}; selection uses it until the machine is booted.", file.display())
            }
            None => writeln!(f, "# Not stored: the key calibration names no file that this program may use."),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}/{}", self.transport, self.device)?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["operation", "size", "figure", "model", "measured", "ratio"]);
        let shown = |row: &&Row| row.what != "time" || SHOWN.contains(&row.size);
        for row in self.rows.iter().filter(shown) {
            let figure = |value: f64| match row.what {
                "bandwidth" => format!("{:.0} MB/s", value / 1e6),
                _ => format!("{:.1} ns", value * 1e9),
            };
            let size = bytes(row.size as usize);
            let ratio = format!("{:.2}", row.measured / row.model);
            table.add_row([
                row.operation,
                &size,
                row.what,
                &figure(row.model),
                &figure(row.measured),
                &ratio,
            ]);
        }
        for column in [1, 3, 4, 5] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(f, "{table}")?;
        for steps in &self.fastest {
            let steps: Vec<String> = steps
                .iter()
                .map(|step| format!("{} from {}", step.operation, bytes(step.from as usize)))
                .collect();
            writeln!(f, "# fastest: {}", steps.join(", "))?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_operation_changes_where_the_times_cross() {
        let points = |times: [f64; 3]| vec![(8, times[0]), (256, times[1]), (1024, times[2])];
        let times = Times::from([
            (Operation::AmShort, vec![(8, 1.0), (88, 1.5)]),
            (Operation::AmBcopy, points([2.0, 3.0, 9.0])),
            (Operation::AmZcopy, points([4.0, 4.0, 4.0])),
        ]);
        let steps = |class| -> Vec<(&str, u64)> {
            steps(&times, class).into_iter().map(|step| (step.operation, step.from)).collect()
        };
        assert_eq!(steps(&Operation::ALL[..3]), [("am_short", 8), ("am_bcopy", 256), ("am_zcopy", 1024)]);
        assert_eq!(steps(&Operation::ALL[3..6]), []);
    }
}
