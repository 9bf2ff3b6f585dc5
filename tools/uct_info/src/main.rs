//! `uct_info`: what the framework found on this machine, how it is configured, and what it would choose and why.
//!
//! Each section is a module that makes a value from the context: as JSON it is printed as it is, and as text by its
//! `Display`. docs/tools.md documents the JSON.

#![forbid(unsafe_code)]

mod attach;
mod build;
mod calibrate;
mod config;
mod cost;
mod devices;
mod doctor;
mod explain;
mod files;
mod iface;
mod matrix;
mod measured;
mod options;
mod system;
mod topology;
mod version;
mod watch;

use std::cell::OnceCell;
use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use serde_json::{Map, Value};
use uct_core::select::Selector;
use uct_core::{Context, IfaceOptions, Worker};
use uct_tools_common::{Failure, complete, init_log, output, report};

use options::Options;

/// Of the JSON output. It grows when a field changes its meaning or goes; new fields do not change it.
const JSON_VERSION: u32 = 1;

fn main() -> ExitCode {
    complete::reply::<Options>();
    let options = Options::parse();
    if let Err(error) = options.check() {
        error.exit();
    }
    if let Some(result) = options.common.generate::<Options>() {
        return report("uct_info", result);
    }
    report("uct_info", run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    init_log(&options.common.builder())?;
    if let Some(process) = options.attach {
        let mut sections = Sections::new(options.json);
        match (process, options.watch) {
            (Some(pid), Some(every)) => return watch::run(pid, every, options.count, options.json),
            (Some(pid), None) => sections.add("attach", &attach::Process::read(pid)?)?,
            (None, _) => sections.add("attachable", &attach::Processes::read()?)?,
        }
        return sections.finish();
    }
    let peer = options.peer_addresses()?;
    let context = options.common.builder().build()?;
    let mut sections = Sections::new(options.json);

    if options.versions {
        sections.add("version", &version::Version::of(&context))?;
    }
    if options.build {
        sections.add("build", &build::Build::of(&context))?;
    }
    if options.facts {
        sections.add("system", &system::System::read()?)?;
    }
    if options.topology {
        let topology = topology::Topology::of(&context)?;
        if let Some(path) = &options.svg {
            topology.draw(path)?;
        }
        sections.add("topology", &topology)?;
    }
    if options.values || options.docs {
        sections.add("config", &config::Values::of(&context, options.docs))?;
    }
    if options.config_template {
        sections.add("config_template", &context.schema().to_toml())?;
    }
    let mut nothing = None;
    if let Some(device) = &options.calibrate {
        let named = calibrate::Named { device: device.as_deref(), transport: options.transport.as_deref() };
        let calibrated = calibrate::Calibrated::of(&context, named)?;
        nothing = calibrated.failure();
        sections.add("calibrate", &calibrated)?;
    }
    let open = Open::new(&context);
    if options.devices || options.matrix {
        let devices = devices::Devices::of(&context, options.transport.as_deref())?;
        if options.devices {
            sections.add("devices", &devices)?;
        }
        if options.matrix {
            sections.add("matrix", &matrix::Matrix::of(&devices))?;
        }
    }
    if options.address {
        sections.add("address", &options::encode_hex(&open.selector()?.addresses().pack()?))?;
    }
    if options.explain {
        let explained = explain::Explained::of(open.selector()?, &context, &options.request(), peer.as_ref());
        nothing = nothing.or(explained.failure());
        sections.add("explain", &explained)?;
    }
    match options.doctor.as_deref() {
        Some([component, address]) => {
            let diagnosis = doctor::Diagnosis::of(&context, component, address)?;
            nothing = nothing.or(diagnosis.failure());
            sections.add("doctor", &diagnosis)?;
        }
        Some(_) => {
            let machine = doctor::Machine::of(&context)?;
            nothing = nothing.or(machine.failure());
            sections.add("doctor", &machine)?;
        }
        None => {}
    }
    sections.finish()?;
    nothing.map_or(Ok(()), |failure| Err(failure.into()))
}

/// All interfaces, open only if a section needs them.
struct Open<'a> {
    context: &'a Context,
    selector: OnceCell<Selector>,
}

impl<'a> Open<'a> {
    fn new(context: &'a Context) -> Open<'a> {
        Open { context, selector: OnceCell::new() }
    }

    fn selector(&self) -> Result<&Selector, Failure> {
        if self.selector.get().is_none() {
            let worker = Worker::new(self.context)?;
            let _ = self.selector.set(Selector::examine(&worker, &IfaceOptions::default()));
        }
        Ok(self.selector.get().expect("just set"))
    }
}

/// The output: text section by section, or one JSON object at the end.
struct Sections {
    json: Option<Map<String, Value>>,
}

impl Sections {
    fn new(json: bool) -> Sections {
        let object = || Map::from_iter([("schema".to_owned(), JSON_VERSION.into())]);
        Sections { json: json.then(object) }
    }

    fn add(&mut self, name: &str, section: &(impl Serialize + Display)) -> Result<(), Failure> {
        match &mut self.json {
            Some(object) => {
                object.insert(name.to_owned(), serde_json::to_value(section)?);
                Ok(())
            }
            None => {
                let text = section.to_string();
                let end = if text.ends_with('\n') { "" } else { "\n" };
                output(&format!("{text}{end}"))
            }
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self.json {
            Some(object) => output(&format!("{:#}\n", Value::Object(object))),
            None => Ok(()),
        }
    }
}
