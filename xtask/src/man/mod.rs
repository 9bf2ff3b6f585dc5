//! `cargo xtask man`: manual pages and shell completions.
//! Built on the programs, which write them from their own definitions of their options, on config/uct.toml, and on the sections
//! by hand in tools/man.

mod settings;

use crate::failure::{Context, Outcome};
use crate::process::{command, run as run_command};
use crate::workspace::{Built, Workspace};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The programs that are installed.
pub const PROGRAMS: &[&str] = &["softverbs", "uct_hello_world", "uct_info", "uct_perftest"];
/// The one that has variables and files of its own.
const SOFTVERBS: &str = "softverbs";

/// What is written by hand.
const BY_HAND: &str = "tools/man";
/// The options that write all this are no one's concern; clap's generators do not know that they are hidden.
const HIDDEN: [&str; 2] = ["generate-man", "generate-completions"];

/// Writes them into target/man and target/completions.
pub fn run() -> Outcome {
    let workspace = Workspace::load()?;
    let mut build = vec!["build"];
    for package in workspace.program_packages() {
        build.extend(["--package", package.name.as_str()]);
    }
    let built = workspace.build(&build)?;
    let (man, completions) = (workspace.target().join("man"), workspace.target().join("completions"));
    write(&workspace, &built, &man, &completions)?;
    eprintln!("wrote {} and {}", man.display(), completions.display());
    Ok(())
}

/// Writes the pages and the completions into two directories.
pub fn write(workspace: &Workspace, built: &Built, man: &Path, completions: &Path) -> Outcome {
    for (option, directory) in [("--generate-man", man), ("--generate-completions", completions)] {
        fs::create_dir_all(directory).context(|| format!("cannot make {}", directory.display()))?;
        for program in PROGRAMS {
            let mut generate = command(built.program(program)?);
            run_command(generate.arg(option).arg(directory), Duration::from_secs(300))?;
        }
    }
    hide(man)?;
    hide(completions)?;
    let read = |name: &str| {
        let path = workspace.root().join(name);
        fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))
    };
    let write = |name: &str, text: &str| {
        let path = man.join(name);
        fs::write(&path, text).context(|| format!("cannot write {}", path.display()))
    };
    let common = read(&format!("{BY_HAND}/programs.roff"))?;
    let softverbs = read(&format!("{BY_HAND}/{SOFTVERBS}.roff"))?;
    let see_also = read(&format!("{BY_HAND}/see-also.roff"))?;
    for program in PROGRAMS {
        let page = man.join(format!("{program}.1"));
        let made = fs::read_to_string(&page).context(|| format!("cannot read {}", page.display()))?;
        let examples = read(&format!("{BY_HAND}/{program}.examples.roff"))?;
        let variables = if *program == SOFTVERBS { &softverbs } else { &common };
        write(
            &format!("{program}.1"),
            &[with_values(&made).trim_end(), "\n", variables, &examples, &see_also].concat(),
        )?;
    }
    for page in ["uct_net.3", "uct.7"] {
        write(page, &read(&format!("{BY_HAND}/{page}"))?)?;
    }
    let around = read(&format!("{BY_HAND}/uct.toml.5"))?;
    write("uct.toml.5", &settings::page(&around, &read("config/uct.toml")?)?)
}

/// Takes the hidden options out of the files of a directory.
fn hide(directory: &Path) -> Outcome {
    let entries = fs::read_dir(directory).context(|| format!("cannot read {}", directory.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, without_hidden(&text)).context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Without the lines that are about hidden options, and without their names among others: in a synopsis, in bash's list.
fn without_hidden(text: &str) -> String {
    let mut text = text.to_owned();
    for option in HIDDEN {
        text = text.replace(&format!("|\\fB\\-\\-{}\\fR", option.replace('-', "\\-")), "");
        text = text.replace(&format!(" --{option}"), "");
    }
    let about = |line: &&str| {
        HIDDEN
            .iter()
            .any(|option| line.contains(&format!("-l {option}")) || line.contains(&format!("'--{option}=")))
    };
    text.split_inclusive('\n').filter(|line| !about(line)).collect()
}

/// With the values of options in the synopsis, where clap's generator has none, and without its blanks there.
fn with_values(page: &str) -> String {
    let mut changed = page.replace(" \\fR]", "\\fR]");
    for (option, value) in page.lines().filter_map(|line| line.split_once(' ')) {
        if option.starts_with("\\fB\\-") && value.trim_start_matches('[').starts_with("\\fI") {
            let value = value.split(" [default").next().unwrap_or(value);
            changed = changed.replacen(&format!("[{option}]"), &format!("[{option} {value}]"), 1);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synopsis_has_the_values_of_options() {
        let page = "p [\\fB\\-s \\fR] [\\fB\\-\\-doctor\\fR] [\\fB\\-v \\fR]\n.TP\n\\fB\\-s\\fR \\fI<BYTES>\\fR [default: 8]\n.TP\n\
                    \\fB\\-\\-doctor\\fR [\\fI<CM>\\fR]\n.TP\n\\fB\\-v\\fR\n";
        let synopsis =
            "p [\\fB\\-s\\fR \\fI<BYTES>\\fR] [\\fB\\-\\-doctor\\fR [\\fI<CM>\\fR]] [\\fB\\-v\\fR]\n";
        let made = with_values(page);
        assert!(made.starts_with(synopsis), "{made}");
        assert_eq!(made.lines().count(), page.lines().count());
    }

    #[test]
    fn hidden_options_are_in_no_page_and_no_completion() {
        let synopsis = "<\\fB\\-v\\fR|\\fB\\-\\-generate\\-man\\fR|\\fB\\-\\-generate\\-completions\\fR>\n";
        assert_eq!(without_hidden(synopsis), "<\\fB\\-v\\fR>\n");
        assert_eq!(
            without_hidden("opts=\"-v --set --generate-man --generate-completions\"\n"),
            "opts=\"-v --set\"\n"
        );
        assert_eq!(
            without_hidden("complete -c p -l set\ncomplete -c p -l generate-man -r\n"),
            "complete -c p -l set\n"
        );
        assert_eq!(without_hidden("'--generate-man=[x]:DIR:_files' \\\n'-v[v]' \\\n"), "'-v[v]' \\\n");
    }
}
