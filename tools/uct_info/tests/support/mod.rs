//! `uct_info` as its users start it.

#![allow(dead_code, reason = "each test uses a part of it")]

#[path = "../../../../ucs/testing/copy.rs"]
pub mod copy;
#[path = "../../../common/testing/process.rs"]
pub mod process;
#[path = "../../../../ucs/testing/skip.rs"]
pub mod skip;

use process::{Ended, command, run};
use serde_json::Value;
use std::process::Command;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_uct_info");

/// The program with these arguments. It finds no configuration file, wherever the tests run.
pub fn info(arguments: &[&str]) -> Command {
    let mut info = command(PROGRAM, arguments);
    info.current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    info
}

/// What became of it.
pub fn ended(arguments: &[&str]) -> Ended {
    run(&mut info(arguments))
}

/// The JSON it prints; it has to succeed.
pub fn json(arguments: &[&str]) -> Value {
    parse(&ended(arguments).success())
}

pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// The elements of an array.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.unwrap_or_else(|| panic!("no array at {pointer} of {value:#}"))
}

/// A text.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text at {pointer} of {value:#}"))
}

/// The names of the transports that can be opened, of one kind of device or of all.
pub fn transports(kind: Option<&str>) -> Vec<String> {
    let devices = json(&["-d", "--json"]);
    let mut names: Vec<String> = list(&devices, "/devices/resources")
        .iter()
        .filter(|resource| kind.is_none_or(|kind| text(resource, "/kind") == kind))
        .map(|resource| text(resource, "/transport").to_owned())
        .collect();
    names.dedup();
    names
}
