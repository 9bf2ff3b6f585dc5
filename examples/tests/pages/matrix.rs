//! The tables of transports in the README and on the page about selection say what the interfaces say, for every transport that is linked in.

use std::fs;
use std::path::Path;

use uct_core::{AtomicOps, Capabilities, Context, Iface, Worker};

const CLASSES: [Capabilities; 3] = [
    Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY),
    Capabilities::PUT_SHORT.union(Capabilities::PUT_BCOPY).union(Capabilities::PUT_ZCOPY),
    Capabilities::GET_SHORT.union(Capabilities::GET_BCOPY).union(Capabilities::GET_ZCOPY),
];

#[test]
fn the_table_of_transports_is_what_the_interfaces_report() {
    compare(&[]);
}

/// As on a machine that forbids the copies, by seccomp or Yama.
#[test]
fn without_the_kernels_copies_zero_copy_of_shared_memory_is_emulated() {
    assert!(!compare(&[("shm.cma", "n")]).contains(&"cma".to_owned()));
}

/// Compares what the pages say about the transports that can be opened, and returns their names.
fn compare(keys: &[(&str, &str)]) -> Vec<String> {
    let (readme, selection) = (page("README.md"), page("docs/selection.md"));
    let sources = uct_core::configuration::Sources::default();
    let sources = sources.set("modules", "self,tcp,shm").set("net_devices", "lo").set("log_level", "error");
    let sources = keys.iter().fold(sources, |sources, (key, value)| sources.set(*key, *value));
    let context = Context::builder().sources(sources).build().unwrap();
    let worker = Worker::new(&context).unwrap();
    let mut rows = Vec::new();
    for resource in context.resources().iter().filter(|it| context.excluded(it).is_none()) {
        let iface = match worker.open_resource(resource, Default::default()) {
            Ok(iface) => iface,
            // What this machine does not permit is nothing that can be compared.
            Err(error) => {
                eprintln!("{resource} is left out: {error}");
                continue;
            }
        };
        let features =
            iface.capabilities() - CLASSES.iter().fold(Capabilities::empty(), |all, class| all | *class);
        assert_eq!(
            features_in(&selection, &resource.transport),
            features,
            "the column of {} in selection.md",
            resource.transport
        );
        rows.push((resource.transport.clone(), cells(&iface)));
    }
    // `cma` is there if the kernel's copies are permitted. The others then use them for zero copy.
    let copies = rows.iter().any(|(transport, _)| transport == "cma");
    for (transport, cells) in &rows {
        let mut row = row(&readme, transport);
        if !copies && ["posix", "sysv"].contains(&transport.as_str()) {
            row[1..3].fill("both".to_owned());
        }
        assert_eq!(&row, cells, "the row of {transport} in README.md");
    }
    let checked: Vec<String> = rows.into_iter().map(|(transport, _)| transport).collect();
    assert!(
        ["self", "tcp"].iter().all(|name| checked.iter().any(|it| it == name)),
        "only {checked:?} were compared"
    );
    checked
}

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

/// The features that have a mark in the column of a transport.
fn features_in(page: &str, transport: &str) -> Capabilities {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut lines = page.lines().skip_while(|line| !line.starts_with("| feature |"));
    let head = cells(lines.next().expect("a table of features"));
    let name = format!("`{transport}`");
    let column = head.iter().position(|cell| cell.split(", ").any(|one| one == name));
    let column = column.unwrap_or_else(|| panic!("no column of {transport}"));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    let marked = rows.filter(|row| row[column] == "yes");
    marked.fold(Capabilities::empty(), |all, row| {
        let name = row[1].trim_matches('`').to_uppercase();
        all | Capabilities::from_name(&name).unwrap_or_else(|| panic!("there is no feature {name}"))
    })
}

/// The cells of a transport's row: am, put, get, atomics.
fn row(readme: &str, transport: &str) -> Vec<String> {
    let start = format!("| `{transport}` |");
    let line = readme.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("README.md has no row for {transport}"));
    line.split('|').skip(3).take(4).map(|cell| cell.trim().to_owned()).collect()
}

fn cells(iface: &Iface) -> Vec<String> {
    let (has, emulated) = (iface.capabilities().bits(), iface.emulated().bits());
    let mut cells: Vec<_> = CLASSES.iter().map(|class| cell(class.bits(), has, emulated)).collect();
    let attributes = iface.attributes();
    let bits = |it: &AtomicOps| u64::from(it.post) | u64::from(it.fetch) << 32;
    let emulated = |it: &AtomicOps| u64::from(it.post_emulated) | u64::from(it.fetch_emulated) << 32;
    let (small, large) = (&attributes.atomic32, &attributes.atomic64);
    let small = cell(bits(small), bits(small), emulated(small));
    let large = cell(bits(large), bits(large), emulated(large));
    cells.push(if small == large { small } else { "both".to_owned() });
    cells
}

fn cell(class: u64, has: u64, emulated: u64) -> String {
    let words = match (class & has, class & emulated) {
        (0, _) => "",
        (has, _) if has != class => "in part",
        (_, 0) => "native",
        (has, emulated) if has == emulated => "emulated",
        _ => "both",
    };
    words.to_owned()
}
