//! Two processes say hello over a transport that was loaded, chosen and explained.
//!
//! Start one without `-n`: it is the server. Start another with `-n HOST`: it sends a string, the server prints it. They find
//! each other through `uct-net`, and with `-d` and `-t` left out the best transport that both have is used. The string itself
//! goes over the endpoint below the connection, by the operation that the flags ask for. The flags are those of UCX's program of
//! the same name.

#![forbid(unsafe_code)]

mod client;
mod options;
mod server;
mod ucx;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use uct_core::select::{Request, Selector};
use uct_core::{AmId, Context, IfaceOptions, Worker};

use options::Options;
use uct_net::NetOptions;
use uct_net::local::{Connection, Net};
use uct_tools_common::note;

/// The id of the message.
pub(crate) const HELLO: AmId = AmId::new(0).unwrap();

/// Whatever ends the program early, as the line that it prints.
pub(crate) type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    uct_tools_common::complete::reply::<Options>();
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
            note(&format!("uct_hello_world: {error}\n"));
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
    note(&format!(
        "INFO: UCT_HELLO_WORLD AM function = uct_ep_{operation} server = {server} port = {}\n",
        options.server_port
    ));

    if options.ucx {
        return ucx::run(options, &context, deadline);
    }
    let worker = Worker::new(&context)?;
    let selector = open_ifaces(options, &worker)?;
    // Nobody to wait for where nothing would do, whatever the size.
    let explanation = selector.explain(&Request::new(options.flavour().operation(), 0), None);
    if explanation.chosen().is_none() {
        return Err(format!("no transport can be used: {}", explanation.why_none()).into());
    }
    let limit = deadline.saturating_duration_since(Instant::now());
    let net_options =
        NetOptions { request: options.request(), handshake_timeout: limit, ..NetOptions::default() };
    let net = Net::over(&worker, selector, net_options)?;
    let talk = async {
        match &options.server_name {
            Some(name) => client::run(options, &net, name, deadline).await,
            None => server::run(options, &net).await,
        }
    };
    net.block_on(net.within(limit, talk)).unwrap_or_else(|| {
        let seconds = options.timeout;
        let missing = if options.server_name.is_some() {
            "the server did not confirm the string"
        } else {
            "no client came"
        };
        Err(format!(
            "{missing} within {seconds} s; allow more with --timeout, or see the output of the other side"
        )
        .into())
    })
}

fn open_context(options: &Options) -> Result<Context, Failure> {
    let mut builder = Context::builder();
    if let Some(file) = &options.config {
        builder = builder.config_file(file);
    }
    for (key, value) in &options.overrides {
        builder = builder.set(key, value);
    }
    if let Some(transport) = &options.tl_name {
        builder = builder.set("tls", transport);
    }
    // What building has to say is seen as well.
    let level = builder.core_config()?.log_level;
    let filter = tracing_subscriber::EnvFilter::try_new(&level)
        .map_err(|error| format!("log_level = {level} (UCT_LOG_LEVEL): {error}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stderr().is_terminal());
    log.with_writer(std::io::stderr).without_time().log_internal_errors(false).init();
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
            let selector = Selector::examine(worker, &IfaceOptions::default());
            match device {
                Some(device) => Ok(selector.on_device(device)?),
                None => Ok(selector),
            }
        }
    }
}

/// Prints what is used, and why.
pub(crate) fn print_choice(options: &Options, connection: &Connection, why: &str) -> Result<(), Failure> {
    let resource = connection.iface().resource();
    let (device, transport, origin) = (&resource.device, &resource.transport, &resource.origin);
    say(&format!("Using {device} with {transport}.\n{why} what both sides have, from {origin}: "))?;
    let explanation = &connection.explanation().ours;
    let name = resource.to_string();
    let cost = explanation.candidates.iter().find(|candidate| candidate.name() == name);
    say(&format!("{}\n", cost.and_then(|it| it.cost().map(ToString::to_string)).unwrap_or_default()))?;
    if options.explain { say(&explanation.to_string()) } else { Ok(()) }
}

/// As UCX prints it.
pub(crate) fn print_success(label: &str, function: &str, text: &str) -> Result<(), Failure> {
    say(&format!(
        "\n\n----- UCT TEST SUCCESS ----\n\n[{label}] uct_ep_{function} sent {text}\n\n---------------------------\n"
    ))
}

/// Prints to standard output. Unlike `print!` it does not panic when the output is closed.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| format!("cannot print: {error}").into())
}
