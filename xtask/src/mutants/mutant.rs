//! A mutant as cargo-mutants lists it, and how it is put into a source and taken out again.
//! Built on serde_json; used by `mutants`.

use crate::failure::{Context, Failure, Outcome};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// One change of one source.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// Where it is and what it does; no two have the same.
    pub name: String,
    /// From the top of the workspace.
    file: String,
    span: Span,
    replacement: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// Both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

/// A source that is changed, until this is dropped.
pub struct Applied<'a> {
    path: &'a Path,
    original: String,
}

impl Mutant {
    /// Reads what `cargo mutants --list --json` prints.
    pub fn list(json: &str) -> Outcome<Vec<Mutant>> {
        serde_json::from_str(json).context(|| "the list of cargo-mutants".to_owned())
    }

    /// The source below `root`.
    pub fn path(&self, root: &Path) -> std::path::PathBuf {
        root.join(&self.file)
    }

    /// Changes the source.
    pub fn apply<'a>(&self, path: &'a Path) -> Outcome<Applied<'a>> {
        let original = fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
        let changed = self.changed(&original).ok_or_else(|| {
            Failure::new(format!("{}: the source is not the one that was listed", self.name))
        })?;
        fs::write(path, changed).context(|| format!("cannot write {}", path.display()))?;
        Ok(Applied { path, original })
    }

    fn changed(&self, source: &str) -> Option<String> {
        let (start, end) = (offset(source, self.span.start)?, offset(source, self.span.end)?);
        Some([source.get(..start)?, &self.replacement, source.get(end..)?].concat())
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::write(self.path, &self.original) {
            eprintln!("cannot write {}: {error}", self.path.display());
        }
    }
}

fn offset(source: &str, place: Place) -> Option<usize> {
    let line_start = match place.line.checked_sub(2) {
        None => 0,
        Some(ahead) => source.match_indices('\n').nth(ahead)?.0 + 1,
    };
    let rest = source.get(line_start..)?;
    let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
    let inside =
        line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(place.column.checked_sub(1)?)?;
    Some(line_start + inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"[{"name": "a.rs:2:8: replace < with <= in f", "package": "p", "file": "a.rs", "genre": "BinaryOperator",
        "span": {"start": {"line": 2, "column": 8}, "end": {"line": 2, "column": 9}}, "replacement": "<="}]"#;

    #[test]
    fn a_mutant_is_put_where_the_list_says_and_taken_out_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rs");
        let source = "fn f() {\n    é  < 1;\n}\n";
        fs::write(&path, source).unwrap();
        let mutant = &Mutant::list(LISTED).unwrap()[0];
        assert_eq!(mutant.path(directory.path()), path);
        let applied = mutant.apply(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "fn f() {\n    é  <= 1;\n}\n");
        drop(applied);
        assert_eq!(fs::read_to_string(&path).unwrap(), source);
    }

    #[test]
    fn a_place_behind_the_end_of_a_source_is_refused() {
        let mutant = &Mutant::list(LISTED).unwrap()[0];
        assert_eq!(mutant.changed("fn f() {}\n"), None);
        assert_eq!(mutant.changed("\nshort\n"), None);
    }
}
