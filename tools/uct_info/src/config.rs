//! `-c` and `-f`: the values of the configuration, each with its origin.

use std::fmt;

use serde::Serialize;
use uct_core::Context;
use uct_core::configuration::{Origin, env_name, key_name};

/// The section.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Values {
    values: Vec<Value>,
    #[serde(skip)]
    text: String,
}

#[derive(Serialize)]
struct Value {
    /// As in `--set`: `tcp.tx_seg_size`.
    key: String,
    /// The environment variable.
    variable: String,
    value: String,
    /// `default`, `file`, `environment` or `program`.
    origin: &'static str,
    /// The file with the line, or the variable.
    place: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    docs: Option<Docs>,
}

#[derive(Serialize)]
struct Docs {
    doc: String,
    kind: String,
    default: String,
}

impl Values {
    pub(crate) fn of(context: &Context, docs: bool) -> Values {
        let (schema, config) = (context.schema(), context.config());
        let values = schema.keys().filter_map(|(section, field)| {
            let setting = config.value(&section.name, &field.name)?;
            let (origin, place) = match &setting.origin {
                Origin::Default => ("default", None),
                Origin::File { path, line, .. } => ("file", Some(format!("{}:{line}", path.display()))),
                Origin::Env { name } => ("environment", Some(name.clone())),
                _ => ("program", None),
            };
            let docs = docs.then(|| Docs {
                doc: field.doc.to_string(),
                kind: field.kind.to_string(),
                default: field.default.to_string(),
            });
            Some(Value {
                key: key_name(&section.name, &field.name),
                variable: env_name(&section.name, &field.name),
                value: setting.text.clone(),
                origin,
                place,
                docs,
            })
        });
        Values { values: values.collect(), text: config.list(schema, docs) }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
