//! A program that does as little as one can with the library: it sends itself a message, and prints what memory that took,
//! as kilobytes that are resident and kilobytes of them that are its own. `cargo xtask footprint` compares with a ceiling.
//!
//! Built on `uct-core` alone, since all else that is linked would be counted.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::{AmId, Context, Worker};

const ID: AmId = AmId::new(0).unwrap();
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [transport, device] = &arguments[..] else { return Err("expected: TRANSPORT DEVICE".into()) };
    let worker = Worker::new(&Context::builder().build()?)?;
    let iface = worker.open(transport, device)?;
    let received = Rc::new(Cell::new(false));
    let seen = Rc::clone(&received);
    iface.set_am_handler(ID, move |_| seen.set(true));

    let ep = iface.connect(&iface.address()?)?;
    ep.am_short(ID, 0, &[1; 8])?;
    let deadline = Instant::now() + LIMIT;
    while !received.get() {
        worker.progress();
        if Instant::now() > deadline {
            return Err(format!("no message came within {} s", LIMIT.as_secs()).into());
        }
    }

    let status = std::fs::read_to_string("/proc/self/status")?;
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("?")
    };
    println!("{} {}", figure("VmRSS:"), figure("RssAnon:"));
    Ok(())
}
