//! `docs/configuration.md` says what the schema says: behind its mark it is made from the schema.
//!
//! `UPDATE_DOCS=1 cargo test -p uct-examples --test pages configuration_page` writes it anew.

use std::fs;
use std::path::Path;

use crate::schema;

/// Ahead of it the page is written by hand.
const MARK: &str =
    "<!-- From here on the page is made from the schema; `UPDATE_DOCS=1` in the test writes it. -->\n";

#[test]
fn the_page_of_the_configuration_is_that_of_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = fs::read_to_string(&path).unwrap();
    let (by_hand, made) = page.split_once(MARK).expect("the page has the mark");
    let wanted = schema::schema().to_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [by_hand, MARK, "\n", &wanted].concat()).unwrap();
        return;
    }
    for (made, wanted) in made.trim_start().lines().zip(wanted.lines()) {
        assert_eq!(made, wanted, "docs/configuration.md is not up to date; UPDATE_DOCS=1 writes it anew");
    }
    assert_eq!(
        made.trim_start(),
        wanted,
        "docs/configuration.md is not up to date; UPDATE_DOCS=1 writes it anew"
    );
}
