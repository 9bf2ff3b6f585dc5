//! `cargo xtask header`: the C header of the plugin boundary, generated from the crate `uct-abi`.
//! Built on cbindgen; plugins in C use its output. The header is committed, `--check` compares.

use crate::failure::{Context, Failure, Outcome};
use crate::generated::{compare, write};
use crate::process::{command, run};
use crate::workspace::Workspace;
use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CRATE: &str = "uct-core/abi";
const HEADER: &str = "uct-core/abi/include/uct_abi.h";
const OPENING: &str = "/*
 * The plugin boundary of UCT, for transports written in C.
 * Generated from the crate uct-abi by `cargo xtask header`: change that, not this.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *";
/// How the part of the crate's documentation begins that the header repeats.
const RULES: &str = "//! # ";

/// Behind the includes: linkage, and what declares the one symbol of a plugin.
const BEGINNING: &str = r#"
#ifdef __cplusplus
extern "C" {
#define UCT_EXTERN_C extern "C"
#else
#define UCT_EXTERN_C extern
#endif

// The head of the function that returns a plugin's table, the one symbol that the host looks up in libuct_NAME.so:
// `UCT_PLUGIN_ENTRY(NAME) { return &plugin; }`. `NAME` is also the `name` in that table. In C++ it stands outside of namespaces.
#define UCT_PLUGIN_ENTRY(name) \
    UCT_EXTERN_C const struct UctPlugin *uct_plugin_##name(void); \
    UCT_EXTERN_C __attribute__((visibility("default"))) const struct UctPlugin *uct_plugin_##name(void)
"#;
/// The last line, as cbindgen writes it.
const GUARD: &str = "#endif  /* UCT_ABI_H */";
/// Ahead of it.
const ENDING: &str = "#ifdef __cplusplus\n}\n#endif\n\n";

/// What to do with the header.
#[derive(Args, Debug)]
pub struct Options {
    /// Write nothing: fail if the committed header is not what would be written, or does not compile
    #[arg(long)]
    pub check: bool,
}

/// Writes or checks the header, and compiles it as C and as C++.
pub fn run_header(workspace: &Workspace, options: &Options) -> Outcome {
    let header = generate(&workspace.root().join(CRATE))?;
    let path = workspace.root().join(HEADER);
    if options.check {
        compare(&path, &header, "cargo xtask header")?;
    } else {
        write(&path, &header)?;
    }
    compile(&path)
}

fn generate(source: &Path) -> Outcome<String> {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        header: Some(format!("{OPENING}\n{} */", rules(&source.join("src/lib.rs"))?)),
        include_guard: Some("UCT_ABI_H".to_owned()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        documentation_style: DocumentationStyle::C99,
        line_length: 110,
        tab_width: 4,
        usize_is_size_t: true,
        ..Config::default()
    };
    // Without exported functions nothing would count as used.
    let items = Items::read(source)?;
    config.export.include.clone_from(&items.types);
    let strings: String = items.strings.iter().map(|text| format!("\n#define {text}")).collect();
    config.after_includes = Some(format!("{BEGINNING}{strings}"));
    let bindings = Builder::new()
        .with_config(config)
        .with_crate(source)
        .generate()
        .context(|| format!("cbindgen cannot read {}", source.display()))?;
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    let text = String::from_utf8(bytes).context(|| "cbindgen's output".to_owned())?;
    // What cbindgen calls a trailer is outside of the guard.
    let header = as_c(&text, &items).replace(GUARD, &[ENDING, GUARD].concat());
    items.all_in(&header)?;
    Ok(header)
}

/// The rules that the crate states at its top, as the inside of a comment in C.
fn rules(path: &Path) -> Outcome<String> {
    let text = fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
    let lines =
        text.lines().skip_while(|line| !line.starts_with(RULES)).map_while(|line| line.strip_prefix("//!"));
    let line = |line: &str| format!(" *{}\n", without_links(line).replace(" # ", " "));
    Ok(lines.map(line).collect())
}

/// Mends what cbindgen leaves as Rust has it: the types of shifted constants, structures without fields,
/// and the links in comments.
fn as_c(text: &str, items: &Items) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let definition = line.strip_prefix("#define ").and_then(|rest| rest.split_once(' '));
        let comment = line.trim_start().starts_with("//");
        if let Some((name, value)) = definition.filter(|(_, value)| value.starts_with("(1 << ")) {
            let one = if items.is_64_bit(name) { "UINT64_C(1)" } else { "UINT32_C(1)" };
            lines.push(format!("#define {name} {}", value.replacen('1', one, 1)));
        } else if let Some(name) = line.strip_suffix(';').and_then(|line| line.strip_prefix("} ")) {
            let opens = lines.len().saturating_sub(2);
            if lines.last().is_some_and(|line| line.contains("_opaque[0]")) {
                lines.truncate(opens);
                lines.push(format!("typedef struct {name} {name};"));
            } else {
                lines.push(line.to_owned());
            }
        } else if comment {
            lines.push(without_links(line));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// A comment with ``[`Name`](path)`` and ``[`Name`]`` as `` `Name` ``.
fn without_links(comment: &str) -> String {
    let mut plain = String::new();
    let mut rest = comment;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        plain += &format!("{before}`{name}`");
        rest = match after.strip_prefix('(').and_then(|path| path.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    plain + rest
}

/// The public names in the crate's sources.
#[derive(Default)]
struct Items {
    types: Vec<String>,
    /// Those of the types that are structures with fields.
    structures: Vec<String>,
    /// Name and type.
    constants: Vec<(String, String)>,
    /// Name and quoted value of the constants that are text, which cbindgen does not know.
    strings: Vec<String>,
}

impl Items {
    fn read(source: &Path) -> Outcome<Self> {
        let directory = source.join("src");
        let entries = fs::read_dir(&directory).context(|| format!("cannot read {}", directory.display()))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        let mut items = Items::default();
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            let text = fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
            text.lines().for_each(|line| items.add(line));
        }
        Ok(items)
    }

    fn add(&mut self, line: &str) {
        let word = |text: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned()
        };
        if let Some(constant) = line.strip_prefix("pub const ").filter(|rest| !rest.starts_with("fn ")) {
            if let Some((name, kind)) = constant.split_once(": ") {
                self.constants.push((name.to_owned(), word(kind)));
                let text = kind.strip_prefix("&str = ").and_then(|value| value.strip_suffix(';'));
                self.strings.extend(text.map(|value| format!("{name} {value}")));
            }
            return;
        }
        // `Layout` is data for tests; it does not cross the boundary.
        let kinds = ["pub struct ", "pub union ", "pub type Uct"];
        if let Some(kind) = kinds.iter().find(|kind| line.starts_with(**kind)) {
            self.types.push(word(&line[kind.trim_end_matches("Uct").len()..]));
            if line.starts_with("pub struct ") {
                self.structures.extend(self.types.last().cloned());
            }
        }
        if line.trim_start().starts_with("_opaque:") {
            self.structures.pop();
        }
    }

    fn is_64_bit(&self, constant: &str) -> bool {
        self.constants.iter().any(|(name, kind)| name == constant && kind == "u64")
    }

    /// cbindgen leaves out silently what it cannot express, such as a constant that a function computes.
    fn all_in(&self, header: &str) -> Outcome {
        let names = self.types.iter().chain(self.constants.iter().map(|(name, _)| name));
        let bare = |name: &str| {
            self.structures.iter().any(|structure| structure == name) && !has_fields(header, name)
        };
        let missing: Vec<&str> =
            names.map(String::as_str).filter(|name| !defined(header, name) || bare(name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(Failure::new(format!(
            "the header would lack {missing}, or its fields: write it with plain numbers, which cbindgen can read"
        )))
    }
}

/// Whether a line of code, not of comment, ends or begins the definition of `name`.
fn defined(header: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut definitions =
        code.filter(|line| line.starts_with("#define") || line.contains("typedef") || line.starts_with('}'));
    definitions.any(|line| {
        let line = line.split("//").next().unwrap_or_default();
        line.split(|c| !is_name(c)).any(|word| word == name)
    })
}

/// Whether the structure is defined, and not merely declared.
fn has_fields(header: &str, structure: &str) -> bool {
    let opening = format!("typedef struct {structure} {{");
    header.lines().any(|line| line == opening)
}

/// A header is right when strict compilers of both languages accept it alone.
fn compile(header: &Path) -> Outcome {
    let common = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];
    let limit = Duration::from_secs(300);
    run(command("cc").args(["-x", "c", "-std=c99"]).args(common).arg(header), limit)?;
    if Path::new("/usr/bin/c++").exists() {
        run(command("c++").args(["-x", "c++", "-std=c++11"]).args(common).arg(header), limit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_comments_become_plain_names() {
        assert_eq!(without_links("// [`UCT_OK`](crate::UCT_OK) or [`X`]."), "// `UCT_OK` or `X`.");
        assert_eq!(without_links("// an array [0] and `code`"), "// an array [0] and `code`");
    }

    #[test]
    fn a_shifted_constant_gets_the_width_of_its_type() {
        let mut items = Items::default();
        items.add("pub const WIDE: u64 = 1 << 40;");
        items.add("pub const NARROW: u32 = 1 << 2;");
        let c = as_c("#define WIDE (1 << 40)\n#define NARROW (1 << 2)\n", &items);
        assert_eq!(c, "#define WIDE (UINT64_C(1) << 40)\n#define NARROW (UINT32_C(1) << 2)\n");
    }

    #[test]
    fn a_structure_without_fields_is_only_declared() {
        let items = Items::default();
        let c = as_c("typedef struct M {\n    uint8_t _opaque[0];\n} M;\n", &items);
        assert_eq!(c, "typedef struct M M;\n");
    }

    #[test]
    fn a_structure_whose_fields_the_header_lacks_is_named() {
        let mut items = Items::default();
        for line in
            ["pub struct A {", "    pub x: u32,", "}", "pub struct Opaque {", "    _opaque: [u8; 0],", "}"]
        {
            items.add(line);
        }
        let failure =
            items.all_in("typedef struct A A;\ntypedef struct Opaque Opaque;\n").unwrap_err().to_string();
        assert!(failure.contains("lack A,"), "{failure}");
        items.all_in("typedef struct A {\n} A;\ntypedef struct Opaque Opaque;\n").unwrap();
    }

    #[test]
    fn a_constant_that_the_header_lacks_is_named() {
        let mut items = Items::default();
        items.add("pub const MAGIC: u64 = u64::from_le_bytes(*b\"MAGIC...\");");
        assert!(items.all_in("#define OTHER 1 // see MAGIC\n").unwrap_err().to_string().contains("MAGIC"));
        assert!(items.all_in("#define MAGIC 1\n").is_ok());
    }
}
