//! Compares the function types of `VerbsTable` with the installed C header, and the numbers that rdma-sys, which
//! `witness` compares the rest with, does not have.
//!
//! Needs `infiniband/verbs.h` (package libibverbs-dev) and a C compiler; without them it says what it skipped.
//! `UCT_TEST_REQUIRE=verbs-header` turns the skip into a failure.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use uct_ib_abi::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_UNSPECIFIED, VerbsTable,
};

/// The C spelling of a Rust type of the table.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    match rust {
        "" => "void".into(),
        "c_int" => "int".into(),
        "c_void" => "void".into(),
        "u8" => "uint8_t".into(),
        "u16" => "uint16_t".into(),
        "u32" => "uint32_t".into(),
        // The one use is a GUID, which the header marks as big-endian.
        "u64" => "__be64".into(),
        "usize" => "size_t".into(),
        "ibv_gid" => "union ibv_gid".into(),
        // The exported function takes the shorter structure of old; the header's macro hides it.
        "ibv_port_attr" => "struct _compat_ibv_port_attr".into(),
        other => {
            assert!(other.starts_with("ibv_"), "no C spelling known for `{other}`");
            format!("struct {other}")
        }
    }
}

fn program() -> String {
    let mut text = String::from("#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdint.h>\n");
    for (name, number) in [
        ("IBV_LINK_LAYER_UNSPECIFIED", IBV_LINK_LAYER_UNSPECIFIED),
        ("IBV_LINK_LAYER_INFINIBAND", IBV_LINK_LAYER_INFINIBAND),
        ("IBV_LINK_LAYER_ETHERNET", IBV_LINK_LAYER_ETHERNET),
    ] {
        writeln!(text, "_Static_assert({name} == {number}, \"{name}\");").expect("a string grows");
    }
    // Assigned to a pointer of the type written in Rust: another type in the header is an error of the compiler.
    for (symbol, arguments, result) in VerbsTable::SIGNATURES {
        let list: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        writeln!(text, "{} (*check_{symbol})({list}) = ({symbol});", c_type(result)).expect("a string grows");
    }
    text.push_str("int main(void) { return 0; }\n");
    text
}

fn compile(directory: &Path, source: &str) -> Result<(), String> {
    let (file, binary) = (directory.join("functions.c"), directory.join("functions"));
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        // Only the types of the functions are wanted, not their code: what is left undefined is never called.
        .args(["-Wl,--unresolved-symbols=ignore-all", "-Werror=incompatible-pointer-types"])
        .args(["-Werror=implicit-function-declaration", "-o"])
        .args([&binary, &file])
        .output()
        .map_err(|error| format!("{compiler} does not run: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn the_functions_are_those_of_the_c_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        let reason =
            "/usr/include/infiniband/verbs.h is not there: install libibverbs-dev to compare the functions";
        let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "verbs-header"), "{reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    compile(directory.path(), &program()).unwrap_or_else(|error| panic!("{error}"));
}
