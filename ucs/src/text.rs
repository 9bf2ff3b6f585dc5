//! Text that a peer has sent, as it may be shown to a person: printable, on a line of its own or in quotes, and short.
//!
//! Used wherever a peer's bytes become part of an error, a line of log or the output of a tool. Built on the tables of the standard library.
//!
//! A peer may send anything: line feeds that forge lines of a log, escape sequences for a terminal, characters that change the direction of
//! writing or that nobody sees, and a hundred thousand of them. [`PeerText`] and [`PeerLines`] have no other way into a message than
//! [`Display`](fmt::Display), which shows such characters as `\u{1b}` and says how much it leaves out.

use std::fmt::{self, Write};

/// A peer's text of one line. Prints itself in quotes, as at most [`PeerText::LIMIT`] characters and the number of those that follow.
///
/// ```
/// use ucs::text::PeerText;
///
/// let reason = PeerText::new(b"no\n\x1b[2JERROR all is lost");
/// assert_eq!(format!("the peer refuses: {reason}"), r#"the peer refuses: "no\n\u{1b}[2JERROR all is lost""#);
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PeerText(String);

/// A peer's text of several lines, such as a table. Prints each line behind `| `, at most [`PeerLines::LIMIT`] lines, each as at most
/// [`PeerText::LIMIT`] characters, and the number of what is left out.
///
/// ```
/// use ucs::text::PeerLines;
///
/// assert_eq!(PeerLines::new("CHOSEN tcp/lo\nrejected posix\x07\n").to_string(), "| CHOSEN tcp/lo\n| rejected posix\\u{7}\n");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PeerLines(String);

crate::debug_as_display!(PeerText, PeerLines);

/// Characters that are shown as they are although [`char::escape_debug`] would escape them: between quotes, in a line without quotes, and in
/// text that is no peer's.
const IN_QUOTES: &[char] = &['\''];
const IN_LINE: &[char] = &['\'', '"'];
const IN_OWN: &[char] = &['\'', '"', '\\'];

impl PeerText {
    /// Most characters that are shown.
    pub const LIMIT: usize = 512;

    /// The text of these bytes; what is not UTF-8 is replaced by U+FFFD.
    pub fn new(bytes: impl AsRef<[u8]>) -> PeerText {
        PeerText(String::from_utf8_lossy(bytes.as_ref()).into_owned())
    }

    /// The text as it was sent, to compare it or to send it on. Never for a person.
    pub fn untrusted(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, left_out) = cut(&self.0, IN_QUOTES, PeerText::LIMIT);
        f.write_char('"')?;
        write_shown(f, shown, IN_QUOTES)?;
        f.write_char('"')?;
        write_left_out(f, left_out, "character")
    }
}

impl PeerLines {
    /// Most lines that are shown.
    pub const LIMIT: usize = 256;

    /// As [`PeerText::new`]; a line feed ends a line.
    pub fn new(bytes: impl AsRef<[u8]>) -> PeerLines {
        PeerLines(PeerText::new(bytes).0)
    }

    /// As [`PeerText::untrusted`].
    pub fn untrusted(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.lines();
        for line in lines.by_ref().take(PeerLines::LIMIT) {
            let (shown, left_out) = cut(line, IN_LINE, PeerText::LIMIT);
            f.write_str("| ")?;
            write_shown(f, shown, IN_LINE)?;
            write_left_out(f, left_out, "character")?;
            f.write_char('\n')?;
        }
        match lines.count() {
            0 => Ok(()),
            left_out => {
                f.write_str("|")?;
                write_left_out(f, left_out, "line")?;
                f.write_char('\n')
            }
        }
    }
}

/// Text of one line that is not a peer's own, as it is, but for what cannot be seen, and cut after [`Visible::LIMIT`] characters. For the words of a
/// plugin or a library, into which others' words may have found their way.
pub struct Visible<'text>(pub &'text str);

impl Visible<'_> {
    /// Most characters that are shown: the longest reason of a plugin.
    pub const LIMIT: usize = 1024;
}

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, left_out) = cut(self.0, IN_OWN, Visible::LIMIT);
        write_shown(f, shown, IN_OWN)?;
        write_left_out(f, left_out, "character")
    }
}

/// The front of a text that is shown as at most so many characters, and the number of characters behind it.
fn cut<'text>(text: &'text str, plain: &[char], limit: usize) -> (&'text str, usize) {
    let mut shown = 0;
    let too_much = |&(_, character): &(usize, char)| {
        shown += width(character, plain);
        shown > limit
    };
    let (front, rest) = text.split_at(text.char_indices().find(too_much).map_or(text.len(), |(at, _)| at));
    (front, rest.chars().count())
}

/// How many characters show this one.
fn width(character: char, plain: &[char]) -> usize {
    match character {
        _ if plain.contains(&character) => 1,
        _ if is_blank_letter(character) => character.escape_unicode().len(),
        _ => character.escape_debug().len(),
    }
}

fn write_shown(f: &mut fmt::Formatter<'_>, text: &str, plain: &[char]) -> fmt::Result {
    text.chars().try_for_each(|character| match character {
        _ if plain.contains(&character) => f.write_char(character),
        _ if is_blank_letter(character) => write!(f, "{}", character.escape_unicode()),
        _ => write!(f, "{}", character.escape_debug()),
    })
}

/// The fillers of Hangul: letters by their category, and invisible. All else that cannot be seen is escaped by [`char::escape_debug`], as a
/// test below holds.
fn is_blank_letter(character: char) -> bool {
    matches!(character, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
}

fn write_left_out(f: &mut fmt::Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    match count {
        0 => Ok(()),
        1 => write!(f, " … and 1 more {what}"),
        _ => write!(f, " … and {count} more {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code points that cannot be seen, or change how their neighbours look: controls, format characters, separators of lines and paragraphs,
    /// private use, and all that Unicode says to ignore where it is not known (Default_Ignorable_Code_Point).
    const INVISIBLE: [(u32, u32); 23] = [
        (0x0, 0x1f),
        (0x7f, 0x9f),
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x600, 0x605),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200f),
        (0x2028, 0x202e),
        (0x2060, 0x206f),
        (0x3164, 0x3164),
        (0xe000, 0xf8ff),
        (0xfe00, 0xfe0f),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfffb),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
        (0xf0000, 0xffffd),
        (0x100000, 0x10ffff),
    ];

    #[test]
    fn what_cannot_be_seen_is_shown_by_its_number() {
        for character in INVISIBLE.iter().flat_map(|&(first, last)| first..=last).filter_map(char::from_u32) {
            let text = String::from(character);
            for shown in [PeerText::new(&text).to_string(), PeerLines::new(format!("{text}x")).to_string()] {
                // A line feed ends a line of several.
                let lines = if character == '\n' { shown.lines().count() } else { 1 };
                let shown = shown.replace('\n', "");
                assert!(
                    shown.chars().all(|shown| shown == ' ' || shown.is_ascii_graphic()),
                    "{character:?}: {shown:?}"
                );
                assert!(shown.contains('\\') || lines == 2, "{character:?}: {shown:?}");
            }
            assert!(Visible(&text).to_string().is_ascii(), "{character:?}");
        }
    }

    #[test]
    fn hostile_texts_stay_in_their_quotes() {
        for (bytes, shown) in [
            (&b""[..], r#""""#),
            (b"it's not that one", r#""it's not that one""#),
            (b"no\nERROR all is lost\r\n", r#""no\nERROR all is lost\r\n""#),
            (b"\x1b[2J\x1b]0;title\x07\x9b", "\"\\u{1b}[2J\\u{1b}]0;title\\u{7}\u{fffd}\""),
            (b"no\"; all is well: \"", r#""no\"; all is well: \"""#),
            (b"a \\u{1b} of letters", r#""a \\u{1b} of letters""#),
            (b"\xff\xfe\xc3", "\"\u{fffd}\u{fffd}\u{fffd}\""),
            ("\u{202e}txt.exe\u{2066}".as_bytes(), r#""\u{202e}txt.exe\u{2066}""#),
            ("a\u{2028}b\u{2029}c\u{85}d".as_bytes(), r#""a\u{2028}b\u{2029}c\u{85}d""#),
            ("\u{feff}a\u{200b}b\u{e0041}c\u{fe0f}".as_bytes(), r#""\u{feff}a\u{200b}b\u{e0041}c\u{fe0f}""#),
            ("e\u{301}\u{301}\u{301}".as_bytes(), r#""e\u{301}\u{301}\u{301}""#),
            ("für 中文 …".as_bytes(), "\"für 中文 …\""),
        ] {
            assert_eq!(PeerText::new(bytes).to_string(), shown);
            assert_eq!(format!("{:?}", PeerText::new(bytes)), shown);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_by_how_much() {
        let shown = |text: String| PeerText::new(text).to_string();
        let limit = PeerText::LIMIT;
        assert_eq!(shown("x".repeat(limit)), format!("\"{}\"", "x".repeat(limit)));
        assert_eq!(shown("x".repeat(limit + 1)), format!("\"{}\" … and 1 more character", "x".repeat(limit)));
        assert_eq!(
            shown("中".repeat(limit + 9)),
            format!("\"{}\" … and 9 more characters", "中".repeat(limit))
        );
        // An escape counts as what is shown, and is never cut.
        let escapes = limit / "\\u{202e}".len();
        let cut = format!("\"{}\" … and 40 more characters", "\\u{202e}".repeat(escapes));
        assert_eq!(shown("\u{202e}".repeat(escapes + 40)), cut);
    }

    #[test]
    fn lines_are_few_and_short() {
        let shown = |text: &str| PeerLines::new(text).to_string();
        assert_eq!(shown(""), "");
        assert_eq!(shown("one \"two\"\n\nthree"), "| one \"two\"\n| \n| three\n");
        assert_eq!(shown("a\rb\x1b[A\u{2028}"), "| a\\rb\\u{1b}[A\\u{2028}\n");
        let many = shown(&"\n".repeat(256 << 10));
        assert_eq!(many.lines().count(), PeerLines::LIMIT + 1);
        assert!(many.ends_with("| \n| … and 261888 more lines\n"), "{}", &many[many.len() - 60..]);
        let long = shown(&"x".repeat(256 << 10));
        assert_eq!(long, format!("| {} … and 261632 more characters\n", "x".repeat(PeerText::LIMIT)));
    }

    #[test]
    fn text_of_others_is_left_alone_but_for_what_cannot_be_seen() {
        for text in ["", "it's at \"C:\\x\": 50 %", "été 中"] {
            assert_eq!(Visible(text).to_string(), text);
        }
        let long = "x".repeat(Visible::LIMIT);
        assert_eq!(Visible(&long).to_string(), long);
        assert_eq!(Visible(&(long.clone() + "xx")).to_string(), long + " … and 2 more characters");
        assert_eq!(Visible("a\nb\u{202e}\u{3164}\0").to_string(), "a\\nb\\u{202e}\\u{3164}\\0");
    }
}
