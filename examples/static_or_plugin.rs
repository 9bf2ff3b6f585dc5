//! The same transport, linked into the program and loaded from a file.
//!
//!     cargo build && cargo run -p uct-examples --bin static_or_plugin [DIRECTORY]
//!
//! `self` is built in, so the program works with no file at all. A file of the same name takes its place only where the
//! configuration says so; here that is `module_replace`, which may also come from `UCT_MODULE_REPLACE` or a file.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;

use uct_core::{AmId, Context, Worker};

type Failure = Box<dyn std::error::Error>;

const HELLO: AmId = AmId::new(0).unwrap();

fn main() -> ExitCode {
    match run(std::env::args().nth(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(directory: Option<String>) -> Result<(), Failure> {
    let built_in = Context::builder().build()?;
    say_hello(&built_in)?;

    let mut builder = Context::builder().set("module_replace", "self");
    if let Some(directory) = directory {
        builder = builder.set("module_dir", directory);
    }
    let replaced = builder.build()?;
    for failure in replaced.load_failures() {
        println!("not loaded: {failure}");
    }
    for ignored in replaced.ignored_plugins() {
        println!("left out: {ignored}");
    }
    say_hello(&replaced)
}

/// The same calls, wherever the transport's code is.
fn say_hello(context: &Context) -> Result<(), Failure> {
    let worker = Worker::new(context)?;
    let iface = worker.open("self", "memory")?;
    let received = Rc::new(Cell::new(0));
    let length = Rc::clone(&received);
    iface.set_am_handler(HELLO, move |message| length.set(message.payload().len()));
    iface.connect(&iface.address()?)?.am_short(HELLO, 0, b"hello")?;
    println!("{} bytes by {} from: {}", received.get(), iface.resource(), iface.resource().origin);
    Ok(())
}
