//! How the installed libfabric finds the provider: by a folder that the program names, and by nothing else.
//!
//! Needs `fi_info` (package libfabric-bin); without it the tests say what they skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip::skip;

const FI_INFO: &str = "/usr/bin/fi_info";

/// The library for libfabric, which cargo has made beside this program.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program's path");
    program.with_file_name("libuct_fi.so")
}

/// What `fi_info` prints, with this folder of providers.
fn info(folder: Option<&Path>, arguments: &[&str]) -> String {
    let mut info = Command::new(FI_INFO);
    info.args(arguments)
        .env_remove("FI_PROVIDER")
        .env_remove("FI_PROVIDER_PATH")
        .env("UCT_NET_DEVICES", "lo");
    if let Some(folder) = folder {
        info.env("FI_PROVIDER_PATH", folder);
    }
    let output = info.output().expect("fi_info runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_here() -> bool {
    let is_here = Path::new(FI_INFO).exists();
    if !is_here {
        skip("libfabric-bin", format_args!("{FI_INFO} is not there: install libfabric-bin"));
    }
    is_here
}

#[test]
fn a_program_that_names_no_folder_sees_no_change() {
    if is_here() {
        let providers = info(None, &["-l"]);
        assert!(providers.contains("tcp:"), "{providers}");
        assert!(!providers.lines().any(|line| line == "uct:"), "{providers}");
        let tcp = info(None, &["-p", "tcp"]);
        assert!(!tcp.contains("version: 999.0"), "{tcp}");
    }
}

#[test]
fn a_folder_with_the_library_has_the_provider() {
    if is_here() {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(library(), folder.path().join("libuct_fi.so")).expect("a link");
        let found = info(Some(folder.path()), &["-p", "uct"]);
        for expected in ["provider: uct", "domain: uct", "type: FI_EP_RDM"] {
            assert!(found.contains(expected), "{expected} in: {found}");
        }
        let tcp = info(Some(folder.path()), &["-p", "tcp"]);
        assert!(!tcp.contains("version: 999.0"), "{tcp}");
    }
}

#[test]
fn a_copy_with_another_name_is_the_shadow_of_that_provider() {
    if is_here() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::copy(library(), folder.path().join("libtcp-fi.so")).expect("a copy");
        let found = info(Some(folder.path()), &["-p", "tcp", "-t", "FI_EP_RDM"]);
        for expected in ["version: 999.0", "domain: uct", "protocol: FI_PROTO_XNET"] {
            assert!(found.contains(expected), "{expected} in: {found}");
        }
    }
}
