//! Writes the programs of the pages that open one interface once more for each transport that works without a device. The documentation
//! tests of `pages.rs` run them: what a page shows works over every transport.

use std::path::Path;
use std::{env, fs};

/// Transport and device.
const TRANSPORTS: [(&str, &str); 5] =
    [("self", "memory"), ("posix", "memory"), ("sysv", "memory"), ("cma", "memory"), ("tcp", "lo")];

/// The pages, and how many of these transports their programs are for: `self` connects no two threads.
const PAGES: [(&str, &[(&str, &str)]); 4] = [
    ("from-ucx", &TRANSPORTS),
    ("from-verbs", &TRANSPORTS),
    ("memory", &TRANSPORTS),
    ("threads", TRANSPORTS.split_at(1).1),
];

fn main() {
    let mut programs = String::new();
    for (page, transports) in PAGES {
        let path = format!("../docs/{page}.md");
        println!("cargo::rerun-if-changed={path}");
        let text = fs::read_to_string(&path).expect("a page");
        let blocks = text.split("```rust\n").skip(1).filter_map(|block| block.split_once("```\n"));
        let mut found = 0;
        for (program, _) in blocks {
            let Some(opened) = only_interface(program) else { continue };
            found += 1;
            for (transport, device) in transports {
                let program = program.replace(opened, &format!(r#".open("{transport}", "{device}")"#));
                programs.push_str(&format!("docs/{page}.md over {transport}:\n\n```rust\n{program}```\n\n"));
            }
        }
        assert!(found > 0, "docs/{page}.md has no program that opens an interface by name");
    }
    let target = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&target).join("programs.md"), programs).expect("a file");
}

/// The call that opens an interface by name, if all of the program's calls are the same.
fn only_interface(program: &str) -> Option<&str> {
    let mut calls = program.match_indices(".open(\"").map(|(start, _)| {
        let call = &program[start..];
        &call[..=call.find(')').expect("a call ends")]
    });
    let first = calls.next()?;
    calls.all(|call| call == first).then_some(first)
}
