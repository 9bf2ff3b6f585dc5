//! A full /dev/shm: what needs it fails with the reason, what does not goes on, and both work when there is room again.

use std::cell::Cell;
use std::fs::{File, remove_file};
use std::io::Write;
use std::rc::Rc;

use uct_core::{Access, AmId, Context, Ep, Iface, IfaceOptions, MemoryKind, Worker, configuration::Sources};

use crate::common::{LIMIT, Peer, heard, role, say, skip, until};

const ID: AmId = AmId::new(5).unwrap();
/// Where a process has a small file system of its own.
const DIRECTORY: &str = "/dev/shm";
const SIZE: &str = "4m";
/// What fills it.
const FILLER: &str = "/dev/shm/filler";
/// What the system says.
const FULL: &str = "No space left on device";

/// Takes all room.
fn fill() {
    let mut filler = File::create(FILLER).expect("an entry for the file");
    for size in [1 << 16, 1] {
        while filler.write_all(&vec![7; size]).is_ok() {}
    }
}

fn make_room() {
    remove_file(FILLER).expect("it is there");
}

fn try_open(segments: &str) -> Result<(Worker, Iface), String> {
    let sources = Sources::default().set("posix.segments", segments).set("posix.dir", DIRECTORY);
    // Memory is not allocated by other means instead.
    let sources = sources.set("alloc_prio", "md");
    let context = Context::builder().sources(sources).build().map_err(|error| error.to_string())?;
    let worker = Worker::new(&context).map_err(|error| error.to_string())?;
    let resource = context.find("posix", "memory").map_err(|error| error.to_string())?;
    let iface =
        worker.open_resource(&resource, IfaceOptions::default()).map_err(|error| error.to_string())?;
    Ok((worker, iface))
}

/// Sends a message over an endpoint, and waits until it has come.
fn works(ep: &Ep, from: &Worker, (to, count): (&Worker, &Cell<u32>)) {
    let before = count.get();
    until(from, || ep.am_short(ID, 7, &[1; 8])).expect("it is sent");
    let arrived = to.progress_until(LIMIT, || {
        from.progress();
        count.get() > before
    });
    assert!(arrived, "no message came");
}

/// What becomes of each step without room. A step that needs none works.
fn go_through(segments: &str) {
    let outcome = |result: Result<(), String>| result.err().unwrap_or_else(|| "works".to_owned());
    fill();
    say(&outcome(try_open(segments).map(|_| ())));
    make_room();
    let (sender, from) = try_open(segments).expect("there is room again");
    let (receiver, to) = try_open(segments).expect("there is room for two");
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    to.set_am_handler(ID, move |_| counted.set(counted.get() + 1));
    let address = to.address().expect("an address");
    fill();
    say(&outcome(from.connect(&address).map(|_| ()).map_err(|error| error.to_string())));
    let memory = from.memory_domain().allocate(1 << 20, Access::ALL, MemoryKind::Host);
    say(&outcome(memory.map(|_| ()).map_err(|error| error.to_string())));
    make_room();
    let ep = from.connect(&address).expect("there is room again");
    works(&ep, &sender, (&receiver, &count));
    // What is connected needs no more.
    fill();
    for _ in 0..1000 {
        works(&ep, &sender, (&receiver, &count));
    }
    make_room();
    let memory = from.memory_domain().allocate(1 << 20, Access::ALL, MemoryKind::Host);
    say(&outcome(memory.map(|_| ()).map_err(|error| error.to_string())));
}

#[test]
fn process_without_room() {
    let Some(segments) = role() else { return };
    let _ends = heard();
    go_through(&segments);
}

#[test]
fn a_full_directory_is_a_readable_error_and_is_used_again_when_there_is_room() {
    if !skip::is_root("mount a file system of its own") {
        return;
    }
    let mount = format!("mount -t tmpfs -o size={SIZE} none {DIRECTORY} && exec \"$@\"");
    let wrapper = ["unshare", "--mount", "sh", "-c", &mount, "sh"];
    for segments in ["dir", "memfd"] {
        let process = Peer::start(&wrapper, "process_without_room", segments);
        // Rings are made when the first peer is connected.
        for (step, needs_room) in
            [("open", false), ("connect", segments == "dir"), ("allocate", segments == "dir")]
        {
            let outcome = process.line();
            println!("{segments}, {step}: {outcome}");
            let is_expected = if needs_room { outcome.contains(FULL) } else { outcome == "works" };
            assert!(is_expected, "{segments}, {step}: {outcome}");
        }
        assert_eq!(process.line(), "works", "with room again");
    }
}
