//! The configuration file: TOML into the texts of settings, each with its line and column.
//!
//! Stands on `toml`, whose parser keeps the place of every key and value. [`load`](super::load) stands on it.

use std::{ops::Range, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Kind, Origin, Problem, Schema, Section, UnknownSections, Value, Warning, key_name, nearest::hint_for_key,
    nearest::hint_for_section,
};

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct FileContent {
    pub settings: Vec<FileSetting>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Warning>,
}

/// One good value of a file.
#[derive(Debug)]
pub(super) struct FileSetting {
    pub section: String,
    pub key: String,
    pub value: Value,
    pub text: String,
    pub origin: Origin,
}

/// Reads the `text` of the file at `path`.
pub(super) fn parse(path: &Path, text: &str, schema: &Schema) -> FileContent {
    let mut reader = FileReader { path, text, schema, content: FileContent::default() };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        reader.document(table.get_ref());
    }
    for error in errors {
        let at = reader.origin(error.span().unwrap_or(0..0));
        let message = error.message().trim().replace('\n', ", ");
        reader.content.problems.push(Problem::Syntax { at, message });
    }
    reader.content.problems.sort_by_key(place);
    reader.content
}

/// Sorts the problems of one file by their place in it; the parser hands out keys by name.
fn place(problem: &Problem) -> (usize, usize) {
    match problem {
        Problem::Syntax { at: Origin::File { line, column, .. }, .. }
        | Problem::UnknownKey { at: Origin::File { line, column, .. }, .. }
        | Problem::UnknownSection { at: Origin::File { line, column, .. }, .. }
        | Problem::NotASection { at: Origin::File { line, column, .. }, .. }
        | Problem::Value { at: Origin::File { line, column, .. }, .. } => (*line, *column),
        _ => (0, 0),
    }
}

type Item<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

struct FileReader<'a> {
    path: &'a Path,
    text: &'a str,
    schema: &'a Schema,
    content: FileContent,
}

impl FileReader<'_> {
    fn document(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let name: &str = key.get_ref();
            let global = self.schema.section("");
            match (self.schema.section(name).filter(|_| !name.is_empty()), value.get_ref()) {
                (Some(section), DeValue::Table(inner)) => self.section(section, inner),
                (Some(section), _) => {
                    let (at, section) = (self.origin(key.span()), section.name.to_string());
                    self.content.problems.push(Problem::NotASection { at, section });
                }
                (None, DeValue::Table(inner)) if global.is_none_or(|global| global.field(name).is_none()) => {
                    self.unknown_section(key, inner);
                }
                (None, _) => self.setting(global, (key, value)),
            }
        }
    }

    fn section(&mut self, section: &Section, table: &DeTable<'_>) {
        for item in table {
            self.setting(Some(section), item);
        }
    }

    fn unknown_section(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, table: &DeTable<'_>) {
        if table.is_empty() {
            return;
        }
        let section = key.get_ref().to_string();
        let at = self.origin(key.span());
        let hint = hint_for_section(self.schema, &section);
        match self.schema.unknown_sections() {
            UnknownSections::Error => {
                self.content.problems.push(Problem::UnknownSection { at, section, hint });
            }
            UnknownSections::Warn => {
                self.content.warnings.push(Warning::UnknownSection { at, section, hint });
            }
            UnknownSections::Ignore => {}
        }
    }

    fn setting(&mut self, section: Option<&Section>, (key, value): Item<'_, '_>) {
        let name: &str = key.get_ref();
        let section_name = section.map_or("", |section| &section.name);
        let Some(field) = section.and_then(|section| section.field(name)) else {
            self.content.problems.push(Problem::UnknownKey {
                at: self.origin(key.span()),
                key: name.to_owned(),
                section: section_name.to_owned(),
                hint: hint_for_key(self.schema, section_name, name),
            });
            return;
        };
        let origin = self.origin(value.span());
        let text = text_for(&field.kind, value.get_ref());
        match text.and_then(|text| Some((field.kind.parse(&text).ok()?, text))) {
            Some((value, text)) => self.content.settings.push(FileSetting {
                section: section_name.to_owned(),
                key: name.to_owned(),
                value,
                text,
                origin,
            }),
            None => self.content.problems.push(Problem::Value {
                at: origin,
                key: key_name(section_name, name),
                bad: field.kind.refuse(self.given(value)),
            }),
        }
    }

    /// A value as the file spells it, on one line.
    fn given(&self, value: &Spanned<DeValue<'_>>) -> String {
        const LONGEST: usize = 80;
        if value.get_ref().is_table() {
            return "a table".to_owned();
        }
        let source = self.text.get(value.span()).unwrap_or_default();
        let line: String =
            source.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST + 1).collect();
        match line.char_indices().nth(LONGEST) {
            None => line,
            Some((end, _)) => format!("{}…", &line[..end]),
        }
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().map_or(0, |start| start.chars().count());
        Origin::File { path: self.path.to_owned(), line, column }
    }
}

/// A TOML value as the text that the environment would have for it; `None` if its type does not fit the kind.
fn text_for(kind: &Kind, value: &DeValue<'_>) -> Option<String> {
    let wants_text = matches!(kind, Kind::Text | Kind::Path | Kind::List | Kind::NameList | Kind::Enum(_));
    let wants_real = matches!(kind, Kind::Time | Kind::Bandwidth | Kind::Real);
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(on) if matches!(kind, Kind::Bool | Kind::Ternary) => Some(on.to_string()),
        DeValue::Integer(number) if !wants_text => {
            i128::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(number) if wants_real => {
            let real: f64 = number.as_str().parse().ok()?;
            Some(if real == f64::INFINITY { "inf".to_owned() } else { number.as_str().to_owned() })
        }
        DeValue::Array(elements) if matches!(kind, Kind::List | Kind::NameList) => {
            // A comma separates in the environment, so that an element cannot hold one.
            let texts = elements.iter().map(|element| element.get_ref().as_str());
            let texts: Option<Vec<_>> = texts.map(|text| text.filter(|text| !text.contains(','))).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    }
}
