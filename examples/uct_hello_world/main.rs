//! Two processes say hello over a transport that was loaded, chosen and explained.
//!
//! Start one without `-n`: it is the server. Start another with `-n HOST`: it sends a string, the server prints it. The
//! addresses travel over a TCP connection beside the transport (`oob.rs`), and with `-d` and `-t` left out the best
//! transport that both have is used. The flags are those of UCX's program of the same name.

#![forbid(unsafe_code)]

mod client;
mod connect;
mod oob;
mod options;
mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use uct_core::select::{Explanation, Selector};
use uct_core::{AmId, Context, IfaceOptions, Worker};

use oob::Oob;
use options::Options;

/// The id of the message.
pub(crate) const HELLO: AmId = AmId::new(0).unwrap();

/// Whatever ends the program early, as the line that it prints.
pub(crate) type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(result) = options.generate() {
        return report(result);
    }
    report(run(&options))
}

fn report(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uct_hello_world: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    options.check()?;
    let deadline = Instant::now() + Duration::from_secs_f64(options.timeout);
    let context = open_context(options)?;
    let operation = options.flavour().operation().name();
    let server = options.server_name.as_deref().unwrap_or("(none)");
    eprintln!(
        "INFO: UCT_HELLO_WORLD AM function = uct_ep_{operation} server = {server} port = {}",
        options.server_port
    );

    let worker = Worker::new(&context)?;
    let selector = open_ifaces(options, &worker)?;
    match &options.server_name {
        Some(name) => {
            let oob = Oob::connect(name, options, deadline)?;
            client::run(options, &worker, &selector, oob, deadline)
        }
        None => {
            let oob = Oob::accept(options, deadline)?;
            server::run(options, &worker, &selector, oob, deadline)
        }
    }
}

fn open_context(options: &Options) -> Result<Context, Failure> {
    let mut builder = Context::builder();
    if let Some(file) = &options.config {
        builder = builder.config_file(file);
    }
    if let Some(transport) = &options.tl_name {
        builder = builder.set("tls", transport);
    }
    // The filter of the log is configuration itself, which may already be worth a message.
    let filter = std::env::var("UCT_LOG_LEVEL").unwrap_or_else(|_| "warn".to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(&filter).map_err(|error| {
        format!("UCT_LOG_LEVEL = {filter}: {error}; expected error, warn, info, debug or trace")
    })?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    Ok(builder.build()?)
}

/// The interfaces to choose from: the one that was named, or all that there are.
fn open_ifaces(options: &Options, worker: &Worker) -> Result<Selector, Failure> {
    let context = worker.context();
    match (&options.dev_name, &options.tl_name) {
        (Some(device), Some(transport)) => {
            // The exact pair, with an error that names what there is instead.
            let resource = context.find(transport, device)?;
            let iface = worker.open_resource(&resource, IfaceOptions::default())?;
            Ok(Selector::of(worker, vec![iface]))
        }
        (device, transport) => {
            let known = context.transport_names();
            if let Some(transport) = transport
                && !known.contains(transport)
            {
                context.find(transport, "")?;
            }
            let selector = Selector::open(worker, &IfaceOptions::default());
            match device {
                Some(device) => Ok(selector.on_device(device)?),
                None => Ok(selector),
            }
        }
    }
}

/// Prints what is used, and why.
pub(crate) fn print_choice(
    options: &Options,
    explanation: &Explanation,
    device: &str,
    transport: &str,
    why: &str,
) {
    println!("Using {device} with {transport}.");
    println!("{why}");
    if options.explain {
        print!("{explanation}");
    }
}

/// As UCX prints it.
pub(crate) fn print_success(label: &str, function: &str, text: &str) {
    println!("\n\n----- UCT TEST SUCCESS ----\n");
    println!("[{label}] uct_ep_{function} sent {text}");
    println!("\n---------------------------");
}
