//! Kept messages: a handler keeps what it cannot deal with yet, where the transport can without copying it.
//!
//!     cargo run -p uct-examples --bin kept_messages
//!
//! The data stay in the transport's buffer until the kept message is dropped; a few bytes, of which a transport makes no
//! buffer, are copied. Either way `rx_headroom` bytes ahead of them are the keeper's, so that it can put a header of its own in
//! front and send both on as one.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;

use uct_core::{AmId, Context, IfaceOptions, KeptMessage, SendFlags, Worker};

type Failure = Box<dyn std::error::Error>;

const JOB: AmId = AmId::new(2).unwrap();
const DONE: AmId = AmId::new(3).unwrap();
const HEADROOM: usize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let context = Context::builder().build()?;
    let worker = Worker::new(&context)?;
    let options = IfaceOptions { rx_headroom: HEADROOM, ..IfaceOptions::default() };
    let iface = worker.open_resource(&context.find("self", "memory")?, options)?;
    let ep = iface.connect(&iface.address()?)?;

    let jobs = Rc::new(RefCell::new(Vec::<KeptMessage>::new()));
    let queue = Rc::clone(&jobs);
    iface.set_am_handler(JOB, move |message| queue.borrow_mut().push(message.keep()));
    iface.set_am_handler(DONE, |message| {
        let number = message.header().unwrap_or_default();
        println!("done {number}: {}", text(message.payload()));
    });

    for job in ["wash", "dry", "fold"] {
        ep.am_bcopy(JOB, SendFlags::empty(), |buffer| {
            buffer[..job.len()].copy_from_slice(job.as_bytes());
            job.len()
        })?;
    }

    // The handlers have returned long ago; the messages are still where they arrived.
    for (number, mut job) in jobs.take().into_iter().enumerate() {
        println!("kept {}: {}", if job.is_zero_copy() { "in place" } else { "as a copy" }, text(&job));
        let (headroom, data) = job.with_headroom();
        headroom.copy_from_slice(&number.to_ne_bytes());
        ep.am_short_iov(DONE, &[headroom, data])?;
        // Dropping `job` here gives the buffer back to the transport.
    }
    Ok(())
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
