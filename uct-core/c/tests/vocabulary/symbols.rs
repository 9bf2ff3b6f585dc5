//! What the library exports: what the file lists, with a prefix of its own, so that UCX's libraries may be in the same
//! process.

use std::process::Command;

use crate::program::{library, source};
use crate::skip::skip;

#[test]
fn the_library_exports_what_the_list_names_and_all_of_it_has_the_prefix() {
    let nm = Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library()).output();
    let Ok(output) = nm else { return skip("nm", "nm is not there: install binutils") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut exported: Vec<&str> = printed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    let list = std::fs::read_to_string(source("symbols.txt")).expect("the list");
    assert_eq!(exported, list.lines().collect::<Vec<_>>());
    assert!(exported.iter().all(|name| name.starts_with("uctc_")), "{exported:?}");
}

#[test]
fn the_headers_name_each_symbol_once() {
    let list = std::fs::read_to_string(source("symbols.txt")).expect("the list");
    let headers = ["uct/api/uct.h", "uct/api/v2/uct_v2.h", "ucs/type/status.h", "ucs/async/async_fwd.h"];
    let headers = headers.into_iter().chain(["ucs/memory/memory_type.h"]);
    let text: String = headers
        .map(|file| std::fs::read_to_string(source("include/uct-compat").join(file)).expect("a header"))
        .collect();
    let mut named: Vec<&str> =
        text.split("UCTC_SYMBOL(").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    named.sort_unstable();
    assert_eq!(named, list.lines().collect::<Vec<_>>());
}
