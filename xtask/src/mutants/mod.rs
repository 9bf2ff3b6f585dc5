//! `cargo xtask mutants`: a random sample of small changes of the sources, and whether the tests notice each.
//!
//! A mutant that the tests of its own crate let pass is shown to the suite's static half and to the tests of tcp. All happens in
//! a copy of the sources below target/mutants, which keeps what was found: the same seed goes on where it was stopped.
//! Built on cargo-mutants for the list of changes.

mod copy;
mod groups;
mod mutant;
mod verdict;

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, output, quote};
use crate::workspace::{BUILD_LIMIT, Workspace};
use clap::Args;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use groups::Group;
use mutant::Mutant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use verdict::{Tests, Verdict};

/// What to draw.
#[derive(Args, Debug)]
pub struct Options {
    /// How many mutants, in turn from each group
    #[arg(long, value_name = "N", default_value_t = 22, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,

    /// Which ones; the same seed draws the same ones, and skips those that are known already
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Minutes after which no other mutant is begun
    #[arg(long, value_name = "M", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,

    /// Only these groups: selection, loader, worker, completion, memory, remote-access, configuration, data-structures,
    /// async-context, ud-protocol, tcp-connection
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
}

/// A line of what was found.
#[derive(Serialize, Deserialize)]
struct Found {
    name: String,
    verdict: Verdict,
}

/// Draws, tests, and prints a table and the names of the missed.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let groups = groups::chosen(&options.groups)?;
    let directory = workspace.target().join("mutants");
    let tree = directory.join("tree");
    copy::prepare(workspace, &directory, &tree, seed)?;
    let drawn = draw(lists(&tree, &groups)?, options.sample as usize, seed);
    let record = directory.join(format!("found-{seed}.jsonl"));
    println!(
        "{} mutants; to go on: cargo xtask mutants --seed {seed} --sample {}",
        drawn.len(),
        options.sample
    );

    let deadline = std::time::Instant::now() + Duration::from_secs(60 * u64::from(options.minutes));
    let mut known = read(&record)?;
    let mut tests = Tests::new(&tree, &directory.join("target"))?;
    for (group, mutant) in &drawn {
        if known.contains_key(&mutant.name) {
            continue;
        }
        if std::time::Instant::now() >= deadline {
            println!("{} minutes are over", options.minutes);
            break;
        }
        let path = mutant.path(&tree);
        let verdict = tests.verdict(group, || mutant.apply(&path))?;
        println!("{:<8} {}", verdict.word(), mutant.name);
        append(&record, &Found { name: mutant.name.clone(), verdict })?;
        known.insert(mutant.name.clone(), verdict);
    }
    report(&drawn, &known);
    Ok(())
}

/// The mutants of each group, as cargo-mutants knows them.
fn lists(tree: &Path, groups: &[&'static Group]) -> Outcome<Vec<(&'static Group, Vec<Mutant>)>> {
    groups
        .iter()
        .map(|group| {
            let mut list = cargo();
            list.args(["mutants", "--workspace", "--list", "--json", "--colors=never"]).current_dir(tree);
            list.args(group.files.iter().flat_map(|glob| ["--file", glob]));
            let json = output(&mut list, BUILD_LIMIT).map_err(|failure| {
                Failure::new(format!("{failure}\nneeds cargo-mutants: cargo install --locked cargo-mutants"))
            })?;
            match Mutant::list(&json)? {
                none if none.is_empty() => {
                    Err(Failure::new(format!("cargo-mutants finds nothing to change in {}", group.name)))
                }
                found => Ok((*group, found)),
            }
        })
        .collect()
}

/// One of each group in turn, so that large groups do not hide small ones.
fn draw(
    mut lists: Vec<(&'static Group, Vec<Mutant>)>,
    sample: usize,
    seed: u64,
) -> Vec<(&'static Group, Mutant)> {
    let mut random = Random(seed);
    for (_, mutants) in &mut lists {
        for end in (1..mutants.len()).rev() {
            mutants.swap(end, random.below(end + 1));
        }
    }
    let most = lists.iter().map(|(_, mutants)| mutants.len()).max().unwrap_or(0);
    let turns = (0..most).flat_map(|turn| {
        lists.iter().filter_map(move |(group, mutants)| Some((*group, mutants.get(turn)?.clone())))
    });
    turns.take(sample).collect()
}

/// SplitMix64: the same seed, the same sample.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

fn fresh_seed() -> u64 {
    UNIX_EPOCH.elapsed().map_or(1, |time| u64::from(time.subsec_nanos()))
}

fn read(record: &PathBuf) -> Outcome<BTreeMap<String, Verdict>> {
    let text = fs::read_to_string(record).unwrap_or_default();
    let line = |line: &str| serde_json::from_str::<Found>(line).context(|| record.display().to_string());
    text.lines().map(|text| line(text).map(|found| (found.name, found.verdict))).collect()
}

fn append(record: &PathBuf, found: &Found) -> Outcome {
    let what = || format!("cannot write {}", record.display());
    let mut file = fs::OpenOptions::new().create(true).append(true).open(record).context(what)?;
    let line = serde_json::to_string(found).context(what)?;
    writeln!(file, "{line}").context(what)
}

fn report(drawn: &[(&'static Group, Mutant)], known: &BTreeMap<String, Verdict>) {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let verdicts = Verdict::ALL.map(Verdict::word);
    table.set_header(["group"].into_iter().chain(verdicts).chain(["not tried"]));
    let mut names: Vec<&str> = drawn.iter().map(|(group, _)| group.name).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of_group =
            || drawn.iter().filter(|(group, _)| group.name == name).map(|(_, it)| known.get(&it.name));
        let counts = Verdict::ALL.map(|verdict| of_group().filter(|it| *it == Some(&verdict)).count());
        let untried = of_group().filter(Option::is_none).count();
        let counts = counts.into_iter().chain([untried]).map(|count| count.to_string());
        table.add_row([name.to_owned()].into_iter().chain(counts));
    }
    println!("{table}");
    for (_, mutant) in drawn {
        if known.get(&mutant.name) == Some(&Verdict::Missed) {
            println!("missed: {}", quote(&mutant.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<Mutant> {
        let span = r#"{"start": {"line": 1, "column": 1}, "end": {"line": 1, "column": 1}}"#;
        let one =
            |number| format!(r#"{{"name": "m{number}", "file": "a.rs", "span": {span}, "replacement": ""}}"#);
        Mutant::list(&format!("[{}]", (0..count).map(one).collect::<Vec<_>>().join(","))).unwrap()
    }

    #[test]
    fn the_same_seed_draws_the_same_ones_from_each_group_in_turn() {
        let lists = || vec![(&groups::GROUPS[0], mutants(50)), (&groups::GROUPS[1], mutants(2))];
        let names = |seed| {
            draw(lists(), 10, seed).into_iter().map(|(group, it)| (group.name, it.name)).collect::<Vec<_>>()
        };
        assert_eq!(names(1), names(1));
        assert_ne!(names(1), names(2));
        let second = names(1).iter().filter(|(group, _)| *group == groups::GROUPS[1].name).count();
        assert_eq!((names(1).len(), second), (10, 2));
    }

    #[test]
    fn what_was_found_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let record = directory.path().join("found.jsonl");
        assert!(read(&record).unwrap().is_empty());
        append(&record, &Found { name: "a".to_owned(), verdict: Verdict::Missed }).unwrap();
        append(&record, &Found { name: "b".to_owned(), verdict: Verdict::Unviable }).unwrap();
        let known = read(&record).unwrap();
        assert_eq!((known["a"], known["b"]), (Verdict::Missed, Verdict::Unviable));
    }
}
