//! Documents that are generated from the schema: the commented file of defaults, and the tables of the page.
//!
//! Built on the [`Schema`]. `config/uct.toml` and the configuration's page of the documentation come from here.

use std::fmt::Write;

use super::{Field, Kind, Schema, Section, env_name};

impl Schema {
    /// A configuration file in which every key is a comment with its doc, kind, variable and default. It sets
    /// nothing as it is; with the single `#` before a key removed it sets that key to its default.
    pub fn to_toml(&self) -> String {
        let mut out = String::from(
            "# Configuration of UCT.\n\
             #\n\
             # Every key is here with its default. To change one, remove the `#` ahead of it and edit the value.\n\
             # An environment variable overrides this file; its name is given with each key.\n",
        );
        for section in self.global_first() {
            out.push('\n');
            if !section.name.is_empty() {
                comment(&mut out, &section.doc);
                let _ = writeln!(out, "[{}]", section.name);
            }
            for (at, field) in section.fields.iter().enumerate() {
                if at > 0 || !section.name.is_empty() {
                    out.push('\n');
                }
                comment(&mut out, &field.doc);
                let variable = env_name(&section.name, &field.name);
                let security = if field.security { ". A security key" } else { "" };
                let _ = writeln!(out, "# Kind: {}. Environment: {variable}{security}", field.kind);
                let _ = writeln!(out, "#{} = {}", field.name, toml_value(field));
            }
        }
        out
    }

    /// A page in Markdown: a table of keys for each section.
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        for section in self.global_first() {
            let blank = if out.is_empty() { "" } else { "\n" };
            let _ = match &*section.name {
                "" => writeln!(out, "{blank}## Global keys"),
                name => writeln!(out, "{blank}## `[{name}]`"),
            };
            if !section.doc.is_empty() {
                let _ = writeln!(out, "\n{}", section.doc);
            }
            out.push_str(
                "\n| key | kind | default | environment | what it is for |\n|---|---|---|---|---|\n",
            );
            for field in &section.fields {
                let security = if field.security { ", security key" } else { "" };
                let _ = writeln!(
                    out,
                    "| `{}` | {}{security} | {} | `{}` | {} |",
                    field.name,
                    cell(&field.kind.to_string()),
                    code_cell(&field.default),
                    env_name(&section.name, &field.name),
                    cell(&field.doc)
                );
            }
        }
        out
    }

    /// The sections with the global keys before all others: in TOML they cannot follow another section.
    fn global_first(&self) -> impl Iterator<Item = &Section> {
        let others = self.sections().iter().filter(|section| !section.name.is_empty());
        self.section("").into_iter().chain(others)
    }
}

/// Writes `text` as lines of comment. What a line may not hold, in TOML, becomes a space.
pub(super) fn comment(out: &mut String, text: &str) {
    for line in text.lines() {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = match line.trim_end() {
            "" => writeln!(out, "#"),
            line => writeln!(out, "# {line}"),
        };
    }
}

/// The default as TOML, as a natural type where there is one.
fn toml_value(field: &Field) -> String {
    let text = field.default.trim();
    match field.kind {
        Kind::Bool => match field.kind.parse(text).ok().and_then(|value| value.as_bool()) {
            Some(on) => on.to_string(),
            None => quoted(&field.default),
        },
        // The largest unsigned numbers have no TOML integer.
        Kind::Int { .. } | Kind::UInt { .. } | Kind::Count | Kind::MemSize { .. } => {
            text.parse::<i64>().map_or_else(|_| quoted(&field.default), |number| number.to_string())
        }
        _ => quoted(&field.default),
    }
}

/// `text` as a TOML string on one line, so that one `#` makes a comment of it.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn cell(text: &str) -> String {
    let line = text.replace(char::is_control, " ");
    line.replace('|', "\\|")
}

/// A text as code; nothing for an empty one, which would not be code.
fn code_cell(text: &str) -> String {
    if text.is_empty() { "(empty)".to_owned() } else { format!("`{}`", cell(text)) }
}
