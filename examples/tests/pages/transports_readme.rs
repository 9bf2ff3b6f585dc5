//! The walk-through of `transports/README.md` leads where it says: its blocks become files, its commands are run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a block of commands may take; the first one builds.
const LIMIT: Duration = Duration::from_secs(1800);

/// What the page says for the place of this repository.
const PLACEHOLDER: &str = "/path/to/uct";

#[derive(Debug, PartialEq)]
struct Block {
    language: String,
    text: String,
}

#[test]
fn the_walk_through_makes_a_plugin_that_passes_the_suite() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("transports/README.md")).unwrap();
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walk-through");
    let (mut files, mut commands) = (Vec::new(), Vec::new());
    for block in blocks(&page) {
        match block.language.as_str() {
            "sh" => commands.push(block.text),
            _ => files.push(file(&block)),
        }
    }
    assert!(files.len() >= 6 && commands.len() >= 2, "{} files, {} commands", files.len(), commands.len());

    for (path, text) in files {
        let mut text = text.replace(PLACEHOLDER, root.to_str().unwrap());
        if path == Path::new("Cargo.toml") {
            // Cargo would take a project in the target directory for a forgotten member of this workspace.
            text.push_str("\n[workspace]\n");
        }
        write(&project.join(path), &text);
    }
    // The versions that this workspace uses are there, and built; nothing is fetched.
    write(&project.join("Cargo.lock"), &fs::read_to_string(root.join("Cargo.lock")).unwrap());
    copy_built(&project);

    let output: String = commands.iter().map(|commands| shell(&project, commands)).collect();
    let passed =
        |name: &str| output.lines().filter(|line| line.contains(name) && line.ends_with(" ok")).count();
    assert_eq!(passed("later is required, and there"), 1, "{output}");
    assert!(passed("later/memory[plugin]::") >= 20, "{output}");
    assert!(output.contains("CHOSEN    later/memory"), "{output}");
}

/// The fenced blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block { language: language.to_owned(), text: String::new() })
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a block is not closed");
    blocks
}

/// The file that a block is: its first line is a comment with the path.
fn file(block: &Block) -> (PathBuf, String) {
    let (first, _) = block.text.split_once('\n').unwrap();
    let path = first.strip_prefix("// ").or(first.strip_prefix("# "));
    let path =
        path.unwrap_or_else(|| panic!("a block of {} does not begin with its path: {first}", block.language));
    (PathBuf::from(path), block.text.clone())
}

/// Writes a file unless it is as it should be: a new date would make cargo build it again.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Copies what this workspace has built of other people's crates, with its dates, into the project's target directory: cargo takes what
/// would come out the same as built. The directory itself cannot be shared, because all programs here would load the plugin.
fn copy_built(project: &Path) {
    let ours = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("debug");
    for directory in ["deps", "build", ".fingerprint"] {
        copy_others(&ours.join(directory), &project.join("target/debug").join(directory), true);
    }
}

/// Of the names in the top directory, those of other people's crates that a dependency leaves.
fn copy_others(from: &Path, to: &Path, is_top: bool) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = {
            let entry = entry.unwrap();
            (entry.path(), entry.file_name())
        };
        let text = name.to_string_lossy();
        let is_ours = || {
            ["uct", "ucs", "softverbs", "xtask"]
                .iter()
                .any(|ours| text.trim_start_matches("lib").starts_with(ours))
        };
        let is_program = || text.contains('-') && !text.contains('.');
        let to = to.join(&name);
        if is_top && is_ours() || to.exists() && !path.is_dir() {
            continue;
        }
        if path.is_dir() {
            copy_others(&path, &to, false);
        } else if is_library(&text) && fs::hard_link(&path, &to).is_ok() {
            // A compiler replaces such a file, and never writes into it; the copies of a workspace would be a gigabyte.
        } else if !(is_top && is_program()) {
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            fs::copy(&path, &to).unwrap();
            fs::File::options().write(true).open(&to).unwrap().set_modified(modified).unwrap();
        }
    }
}

/// What a compiler makes of a crate.
fn is_library(name: &str) -> bool {
    [".rlib", ".rmeta", ".so"].iter().any(|end| name.ends_with(end))
}

/// Runs a block of commands as the page has them, in the project.
fn shell(project: &Path, commands: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_choose_and_explain")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let log = project.join("output.txt");
    let file = fs::File::create(&log).unwrap();
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["UCT_", "CARGO", "RUST"].iter().any(|prefix| name.starts_with(prefix)) && !is_installation(&name)
        {
            command.env_remove(&name);
        }
    }
    command.args(["-e", "-c", commands]).current_dir(project).env("PATH", path);
    command.env("UCT_NET_DEVICES", "lo").env("UCT_TEST_SOAK_SECONDS", "1");
    command
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0");
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let output = fs::read_to_string(&log).unwrap();
    assert!(status.success(), "{status}:\n{commands}\n{output}");
    output
}

/// What says where cargo and rustup are, not how they build.
fn is_installation(name: &str) -> bool {
    ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"].contains(&name)
}
