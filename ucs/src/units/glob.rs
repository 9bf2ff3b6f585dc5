//! Shell-style patterns for names: `mlx5_*`, `eth[0-3]`, `ib?`.
//!
//! No dependencies. [`NameList`](super::NameList) and the configuration's list of foreign variables use it.

/// Whether the whole of `name` matches `pattern`: `*` is any number of characters, `?` is one, `[abc]` and `[a-c]`
/// are one of those, `[!a-c]` is one of all others; everything else is itself. A `[` without its `]` is itself too.
///
/// It goes back to the last `*` at most, so that no pattern makes it run away.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Where to continue if a later part does not match: behind the last `*`, one character of the name further.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix('*') {
            pattern = rest;
            retry = Some((rest, name));
            continue;
        }
        let mut letters = name.chars();
        match (letters.next(), one(pattern)) {
            (None, None) => return true,
            (Some(letter), Some((one, rest))) if one.matches(letter) => {
                pattern = rest;
                name = letters.as_str();
            }
            _ => {
                let Some((behind, from)) = retry else { return false };
                let mut skipped = from.chars();
                if skipped.next().is_none() {
                    return false;
                }
                pattern = behind;
                name = skipped.as_str();
                retry = Some((behind, name));
            }
        }
    }
}

/// A pattern of one character.
enum One<'a> {
    Any,
    Itself(char),
    Among { set: &'a str, negated: bool },
}

impl One<'_> {
    fn matches(&self, letter: char) -> bool {
        match *self {
            One::Any => true,
            One::Itself(own) => own == letter,
            One::Among { set, negated } => in_set(set, letter) != negated,
        }
    }
}

/// The first element of `pattern` and what follows it.
fn one(pattern: &str) -> Option<(One<'_>, &str)> {
    let mut letters = pattern.chars();
    let first = letters.next()?;
    let rest = letters.as_str();
    if first == '?' {
        return Some((One::Any, rest));
    }
    if first == '[' {
        let (inner, negated) = match rest.strip_prefix('!') {
            Some(inner) => (inner, true),
            None => (rest, false),
        };
        // A `]` that comes first is one of the set.
        if let Some(end) = inner.char_indices().skip(1).find(|(_, c)| *c == ']').map(|(at, _)| at) {
            return Some((One::Among { set: &inner[..end], negated }, &inner[end + 1..]));
        }
    }
    Some((One::Itself(first), rest))
}

fn in_set(set: &str, letter: char) -> bool {
    let mut letters = set.chars().peekable();
    while let Some(low) = letters.next() {
        let mut ahead = letters.clone();
        if ahead.next() == Some('-')
            && let Some(high) = ahead.next()
        {
            letters = ahead;
            if (low..=high).contains(&letter) {
                return true;
            }
        } else if low == letter {
            return true;
        }
    }
    false
}
