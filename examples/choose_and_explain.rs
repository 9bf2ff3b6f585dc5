//! Selection: chooses a transport and explains the choice.
//!
//!     cargo run -p uct-examples --bin choose_and_explain [OPERATION] [BYTES]
//!
//! Every candidate gets a verdict: chosen or usable with its estimated cost, or rejected with the check that failed and
//! what to do about it. The choice and its explanation come from the same code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use uct_core::select::{Operation, PeerAddresses, Request, SelectError, Selector};
use uct_core::{Context, IfaceOptions, Worker};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match run(arguments.next().as_deref(), arguments.next().as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(operation: Option<&str>, size: Option<&str>) -> Result<(), Failure> {
    let operation: Operation = operation.unwrap_or("am_short").parse()?;
    let size: usize = size.unwrap_or("8").parse().map_err(|_| "BYTES: expected a number")?;
    let request = Request::new(operation, size);

    // Everything that is found and permitted is opened, and judged with its own figures.
    let worker = Worker::new(&Context::builder().build()?)?;
    let selector = Selector::open(&worker, &IfaceOptions::default())?;

    // A peer's addresses come as bytes, by whatever means. Here the process is its own peer.
    let packed = selector.addresses().pack()?;
    let peer = PeerAddresses::unpack(&packed)?;
    let choice = selector.choose(&request, Some(&peer))?;
    println!("for {request} to myself, of {} bytes of addresses: {}", packed.len(), choice.iface.resource());
    print!("{}", choice.explanation);

    // A peer that has nothing: every candidate says why it will not do, and so does the error.
    match selector.choose(&request, Some(&PeerAddresses::default())) {
        Err(SelectError::NoTransport(explanation)) => {
            println!("\nto a peer without addresses: {}", explanation.why_none());
        }
        other => return Err(format!("expected no transport, got {other:?}").into()),
    }

    // What is not wanted is left out by configuration: here, or with UCT_TLS, or in a file.
    let without = Context::builder().set("tls", format!("^{}", choice.iface.resource().transport)).build()?;
    let worker = Worker::new(&without)?;
    let explanation = Selector::examine(&worker, &IfaceOptions::default()).explain(&request, None);
    println!("\nwith that transport excluded:\n{explanation}");
    Ok(())
}
