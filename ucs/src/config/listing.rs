//! The plain list of all settings that `uct_info -c` prints.
//!
//! Built on the [`Schema`] and a loaded [`Config`].

use std::fmt::Write;

use super::{Config, Schema, document::comment, env_name};

impl Config {
    /// One line for each key, `UCT_TCP_TX_SEG_SIZE=8k  # default`, in the order of `schema`. With `docs` each line
    /// is preceded by what the key is for and what it accepts, as comments, and followed by an empty line.
    ///
    /// A value is quoted for a shell where it has to be; without the comments the list can be sourced.
    pub fn list(&self, schema: &Schema, docs: bool) -> String {
        let mut out = String::new();
        for (section, field) in schema.keys() {
            let Some(setting) = self.value(&section.name, &field.name) else { continue };
            if docs {
                comment(&mut out, &field.doc);
                comment(&mut out, &format!("Kind: {}. Default: {}", field.kind, field.default));
            }
            let variable = env_name(&section.name, &field.name);
            let _ = writeln!(out, "{variable}={}  # {}", shell_word(&setting.text), setting.origin);
            if docs {
                out.push('\n');
            }
        }
        out
    }
}

/// `text` as one word of a shell, as it is where it can be.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=.,:/@%^".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
