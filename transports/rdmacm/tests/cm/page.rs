//! The tables of docs/rdmacm.md are those of the code. `UPDATE_DOCS=1` writes their rows anew.

use std::path::Path;

use uct_rdmacm::testing::refusal::{REASONS, SYSTEM};

fn system() -> Vec<String> {
    let row = |row: &uct_rdmacm::testing::refusal::Row| {
        let steps: Vec<String> = row.steps.iter().map(|step| format!("{step:?}").to_lowercase()).collect();
        let steps = if steps.is_empty() { "others".to_owned() } else { steps.join(", ") };
        format!(
            "| {steps} | {}: {} | {} | {} |",
            row.name,
            row.status.status().name().unwrap_or(""),
            row.cause,
            row.remedy
        )
    };
    SYSTEM.iter().map(row).collect()
}

fn reasons() -> Vec<String> {
    let row = |reason: &uct_rdmacm::testing::refusal::Reason| {
        let status = reason.status.status().name().unwrap_or("");
        format!("| {} | {status} | {} | {} |", reason.number, reason.cause, reason.remedy)
    };
    REASONS.iter().map(row).collect()
}

/// The page with the rows below a table's head replaced.
fn replace(page: &str, head: &str, rows: &[String]) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let first = lines.iter().position(|line| line == head).expect("the table is on the page") + 2;
    let end = first + lines[first..].iter().take_while(|line| !line.is_empty()).count();
    lines.splice(first..end, rows.iter().cloned());
    lines.join("\n") + "\n"
}

#[test]
fn the_tables_of_the_page_are_those_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rdmacm.md");
    // The virtual machine has the program and not the sources.
    let Ok(page) = std::fs::read_to_string(&path) else { return };
    let wanted = replace(&page, "| step | error | cause | remedy |", &system());
    let wanted = replace(&wanted, "| reason | status | cause | remedy |", &reasons());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("the page is written");
    } else {
        assert!(page == wanted, "docs/rdmacm.md is not up to date; UPDATE_DOCS=1 writes its tables anew");
    }
}
