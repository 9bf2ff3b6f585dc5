//! What a domain has carried, for humans and for tests.

use std::fs::OpenOptions;
use std::io::Write;

use super::Totals;

/// The file that each domain of each process appends a line to when it is closed.
const FILE: &str = "UCT_FI_STATS";

/// Reports the totals of a domain that is closed.
pub(super) fn report(totals: &Totals) {
    let line = line(totals);
    ucs::log::info!("{line}");
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        ucs::log::warn!("{FILE}={}: {error}", path.display());
    }
}

fn line(totals: &Totals) -> String {
    let Totals { sent, received, writes, reads, atomics, moved } = totals;
    format!(
        "libfabric, process {}: sent {} messages {} bytes, received {} messages {} bytes, {writes} writes {reads} reads {atomics} atomics {moved} bytes",
        std::process::id(),
        sent.0,
        sent.1,
        received.0,
        received.1,
    )
}
