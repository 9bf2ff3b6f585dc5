//! The configuration file: TOML into the texts of settings, each with its line and column.
//!
//! Built on `toml`, whose parser keeps the place of every key and value. [`load`](super::load) uses it.

use std::{ops::Range, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Kind, Origin, Problem, Schema, Section, UnknownSections, Value, Warning, key_name, nearest::hint_for_key,
    nearest::hint_for_section,
};

/// The contents of a file.
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

/// How many problems of one file are reported. A file with more is not a configuration.
const MOST_PROBLEMS: usize = 100;

/// Reads the `text` of the file at `path`.
pub(super) fn parse(path: &Path, text: &str, schema: &Schema) -> FileContent {
    let lines = Lines::new(text);
    let mut reader = FileReader { path, text, lines, schema, content: FileContent::default(), unreported: 0 };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        reader.document(table.get_ref());
    } else {
        reader.syntax(&errors);
    }
    let FileReader { mut content, unreported, .. } = reader;
    content.problems.sort_by_key(place);
    if unreported > 0 {
        content.problems.push(Problem::More { path: path.to_owned(), count: unreported });
    }
    content
}

/// Where the lines of a text start.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Lines { text, starts }
    }

    /// Line and column, both from 1, the column in characters.
    fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let characters = self.text[start..].char_indices().take_while(|(at, _)| start + at < offset);
        (line, 1 + characters.count())
    }
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
    lines: Lines<'a>,
    schema: &'a Schema,
    content: FileContent,
    unreported: usize,
}

impl FileReader<'_> {
    /// One problem for each line: further errors of the parser in the same line are consequences of the first.
    fn syntax(&mut self, errors: &[toml::de::Error]) {
        let mut last_line = 0;
        for error in errors {
            let start = error.span().map_or(self.text.len(), |span| span.start);
            let (line, _) = self.lines.place(start);
            if line != last_line {
                last_line = line;
                let message = error.message().trim().replace('\n', ", ");
                self.report(|reader| Problem::Syntax { at: reader.origin(start..start), message });
            }
        }
    }

    fn report(&mut self, problem: impl FnOnce(&Self) -> Problem) {
        if self.content.problems.len() < MOST_PROBLEMS {
            let problem = problem(self);
            self.content.problems.push(problem);
        } else {
            self.unreported += 1;
        }
    }

    fn document(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let name: &str = key.get_ref();
            let global = self.schema.section("");
            match (self.schema.section(name).filter(|_| !name.is_empty()), value.get_ref()) {
                (Some(section), DeValue::Table(inner)) => self.section(section, inner),
                (Some(section), _) => self.report(|reader| Problem::NotASection {
                    at: reader.origin(key.span()),
                    section: section.name.to_string(),
                }),
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
        let describe = |reader: &Self| {
            let section = key.get_ref().to_string();
            let hint = hint_for_section(reader.schema, &section);
            (reader.origin(key.span()), section, hint)
        };
        match self.schema.unknown_sections() {
            UnknownSections::Error => self.report(|reader| {
                let (at, section, hint) = describe(reader);
                Problem::UnknownSection { at, section, hint }
            }),
            UnknownSections::Warn if self.content.warnings.len() < MOST_PROBLEMS => {
                let (at, section, hint) = describe(self);
                self.content.warnings.push(Warning::UnknownSection { at, section, hint });
            }
            UnknownSections::Warn | UnknownSections::Ignore => {}
        }
    }

    fn setting(&mut self, section: Option<&Section>, (key, value): Item<'_, '_>) {
        let name: &str = key.get_ref();
        let section_name = section.map_or("", |section| &section.name);
        let Some(field) = section.and_then(|section| section.field(name)) else {
            self.report(|reader| Problem::UnknownKey {
                at: reader.origin(key.span()),
                key: name.to_owned(),
                section: section_name.to_owned(),
                hint: hint_for_key(reader.schema, section_name, name),
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
            None => self.report(|reader| Problem::Value {
                at: origin,
                key: key_name(section_name, name),
                bad: Box::new(field.kind.refuse(reader.given(value))),
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
        let (line, column) = self.lines.place(span.start);
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
