//! An event as text: the message, then its fields as `name=value`.
//!
//! Used by `forward` and `unheard`. Built on `tracing`'s visitor.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};

/// The message, then the other fields in their order.
#[derive(Default)]
pub(super) struct Text {
    message: String,
    fields: String,
}

impl Text {
    pub(super) fn finish(mut self) -> String {
        if self.message.is_empty() {
            return self.fields.trim_start().to_owned();
        }
        self.message.push_str(&self.fields);
        self.message
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string fails only if the value's own formatting does; what it wrote until then is
        // kept.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
