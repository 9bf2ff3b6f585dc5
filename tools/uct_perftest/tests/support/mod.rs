//! `uct_perftest` as its users start it.

#![allow(dead_code, reason = "each test uses a part of it")]

#[path = "../../../../ucs/testing/port.rs"]
pub mod port;
#[path = "../../../common/testing/process.rs"]
pub mod process;

use process::{Ended, Running, command, start};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use uct_core::configuration::Sources;
use uct_core::{Context, DeviceKind, Resource};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_uct_perftest");

/// The program with these arguments, separated by spaces. It finds no configuration file, wherever the tests run.
pub fn perftest(arguments: &str) -> Command {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let mut perftest = command(PROGRAM, &arguments);
    perftest.current_dir("/").env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    perftest
}

/// What became of it.
pub fn ended(arguments: &str) -> Ended {
    start(&mut perftest(arguments)).end()
}

/// A server that listens.
pub fn server(port: u16, arguments: &str) -> Running {
    let server = start(&mut perftest(&format!("-p {port} {arguments}")));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_listening(port) {
        assert!(Instant::now() < deadline, "the server does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

fn is_listening(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        std::fs::read_to_string(table).unwrap_or_default().lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&suffix)) && words.nth(1) == Some("0A")
        })
    })
}

pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// All that may be measured within this machine: every transport on a device of its own, or on loopback.
pub fn resources() -> Vec<Resource> {
    let context = Context::builder().sources(Sources::default()).build().unwrap();
    let local = |resource: &&Resource| resource.kind != DeviceKind::Network || resource.device == "lo";
    context.resources().iter().filter(local).cloned().collect()
}

/// The connection managers that are loaded.
pub fn manager_names() -> Vec<String> {
    let context = Context::builder().sources(Sources::default()).build().unwrap();
    context.connection_managers().into_iter().map(str::to_owned).collect()
}

/// Checks what holds for every result, and gives back its cases.
pub fn results(document: &Value) -> Vec<Value> {
    assert_eq!(document["schema"], 1);
    for field in ["test", "transport", "device", "origin", "reason", "wait"] {
        assert!(document[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {document:#}");
    }
    let results = document["results"].as_array().unwrap().clone();
    assert!(!results.is_empty());
    for result in &results {
        let number = |pointer: &str| {
            let found = result.pointer(pointer).and_then(Value::as_f64);
            found.unwrap_or_else(|| panic!("no number at {pointer} of {result:#}"))
        };
        let points = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];
        let latency = points.map(|point| number(&format!("/latency/{point}")));
        assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
        let average = number("/latency/average_ns");
        assert!((number("/rate/overall") * average / 1e9 - 1.0).abs() < 1e-3);
        let bandwidth = number("/rate/overall") * number("/size");
        assert!((number("/bandwidth/overall") - bandwidth).abs() <= bandwidth * 1e-6);
        assert!(number("/seconds") > 0.0 && number("/cpu/client_ns") > 0.0 && number("/batch") >= 1.0);
    }
    results
}
