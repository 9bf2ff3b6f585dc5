//! Files that a command writes and a check compares.
//! Used by `config` and `header`.

use crate::failure::{Context, Failure, Outcome};
use std::fs;
use std::path::Path;

/// Fails, with the first line that differs, unless the file holds `wanted`. `remedy` is the command that writes it.
pub fn compare(path: &Path, wanted: &str, remedy: &str) -> Outcome {
    let found = fs::read_to_string(path)
        .context(|| format!("cannot read {} (`{remedy}` writes it)", path.display()))?;
    if found == wanted {
        return Ok(());
    }
    let end = "(end of file)";
    let line = found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted).count();
    let (old, new) = (found.lines().nth(line).unwrap_or(end), wanted.lines().nth(line).unwrap_or(end));
    let place = format!("{}:{}", path.display(), line + 1);
    Err(Failure::new(format!(
        "{place}: out of date; `{remedy}` writes it anew\n  has:    {old}\n  wanted: {new}"
    )))
}

/// Writes a generated file and says so.
pub fn write(path: &Path, contents: &str) -> Outcome {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).context(|| format!("cannot make {}", directory.display()))?;
    }
    fs::write(path, contents).context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
