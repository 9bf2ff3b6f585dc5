//! uct.toml(5): the keys of config/uct.toml, which is made from the schema, as a manual page.
//! Built on the form of that file; used by `man`.

use crate::failure::{Failure, Outcome};

/// The line of the page around the keys that they take the place of.
const MARK: &str = ".\\\" KEYS";

/// The page: `around` with the keys of the file `template` in the place of its mark.
pub fn page(around: &str, template: &str) -> Outcome<String> {
    let Some((before, after)) = around.split_once(MARK) else {
        return Err(Failure::new(format!("uct.toml.5 has no line {MARK}")));
    };
    Ok([before.trim_end(), "\n", &keys(template), after.trim_start()].concat())
}

/// Each section under a heading, and each key with its default, kind, variable and documentation.
fn keys(template: &str) -> String {
    let mut page = String::from(".SH GLOBAL KEYS\n");
    let mut comments: Vec<&str> = Vec::new();
    // What the file says of itself is in the page by hand.
    let (_, body) = template.split_once("\n\n").unwrap_or(("", template));
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            comments.push(comment);
        } else if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            page += &format!(".SH SECTION {}\n", section.to_uppercase());
            comments.drain(..).for_each(|comment| page += &text(comment));
            page += &text(&format!("In the file: [{section}]."));
        } else if let Some((name, default)) = line.strip_prefix('#').and_then(|line| line.split_once(" = ")) {
            page +=
                &format!(".TP\n.BR {} \" = {}\"\n", escaped(name), escaped(default).replace('"', "\\(dq"));
            let (kind, doc): (Vec<&str>, Vec<&str>) =
                comments.drain(..).partition(|comment| comment.starts_with("Kind: "));
            doc.into_iter().for_each(|comment| page += &text(comment));
            page += ".br\n";
            kind.into_iter().for_each(|comment| page += &text(comment));
        }
    }
    page
}

/// A line of text that is no request.
fn text(line: &str) -> String {
    let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    format!("{guard}{}\n", escaped(line))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "# About the file.\n\n# What it is for.\n# Kind: text. Environment: UCT_LEVEL\n#level = \"a-b\"\n\n\
                            # The loop.\n[self]\n\n# .rc is read\n# Kind: list. Environment: UCT_SELF_X\n#x = \"\"\n";

    #[test]
    fn every_key_is_there_with_its_section_and_its_words() {
        let page = page(&format!("top\n{MARK}\nend\n"), TEMPLATE).unwrap();
        let wanted = "top\n.SH GLOBAL KEYS\n.TP\n.BR level \" = \\(dqa\\-b\\(dq\"\nWhat it is for.\n.br\n\
                      Kind: text. Environment: UCT_LEVEL\n.SH SECTION SELF\nThe loop.\nIn the file: [self].\n.TP\n\
                      .BR x \" = \\(dq\\(dq\"\n\\&.rc is read\n.br\nKind: list. Environment: UCT_SELF_X\nend\n";
        assert_eq!(page, wanted);
    }

    #[test]
    fn a_page_without_the_mark_is_refused() {
        assert!(page("nothing", TEMPLATE).unwrap_err().to_string().contains("KEYS"));
    }
}
