//! Levels by target, as the key `log_level` has them: `debug`, or `warn,uct_tcp=debug`.
//!
//! Used by [`unheard`](super::unheard). Built on `tracing`'s names of levels. The syntax is that of `EnvFilter` of `tracing-subscriber`, without
//! spans.

use tracing::level_filters::LevelFilter;

use super::level_number;

/// Which events are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directives {
    /// The most verbose level of targets that are not listed.
    others: u32,
    /// Starts of targets, with their levels.
    targets: Vec<(String, u32)>,
}

impl Directives {
    /// Nothing is wanted.
    pub(super) const NONE: Directives = Directives { others: 0, targets: Vec::new() };

    /// Reads a list with commas. A target without a level is wanted at every level. Targets that are not listed have level warn, unless an entry
    /// is a level. What is neither, such as a span, is ignored.
    pub fn parse(text: &str) -> Directives {
        let number = |level: LevelFilter| level.into_level().map_or(0, level_number);
        let mut directives = Directives { others: number(LevelFilter::WARN), targets: Vec::new() };
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty() && !entry.contains('['))
        {
            let (target, level) = entry.split_once('=').unwrap_or((entry, "trace"));
            match (entry.parse(), level.parse()) {
                (Ok(level), _) => directives.others = number(level),
                (_, Ok(level)) => directives.targets.push((target.to_owned(), number(level))),
                (Err(_), Err(_)) => (),
            }
        }
        directives
    }

    /// The most verbose level that is wanted of a target: that of the longest start of it that is listed.
    pub(super) fn of(&self, target: &str) -> u32 {
        let listed = self.targets.iter().filter(|(start, _)| target.starts_with(start.as_str()));
        listed.max_by_key(|(start, _)| start.len()).map_or(self.others, |&(_, level)| level)
    }

    /// The most verbose level that is wanted of any target.
    pub(super) fn most_verbose(&self) -> u32 {
        self.targets.iter().map(|&(_, level)| level).fold(self.others, u32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(text: &str, most_verbose: u32, levels: [u32; 3]) {
        let directives = Directives::parse(text);
        let of = ["uct_host::ep", "uct_host", "uct_tcp"].map(|target| directives.of(target));
        assert_eq!((directives.most_verbose(), of), (most_verbose, levels), "{text:?}");
    }

    #[test]
    fn a_level_is_for_all_and_a_target_for_what_begins_with_it() {
        expect("", 2, [2; 3]);
        expect("Debug", 4, [4; 3]);
        expect("off", 0, [0; 3]);
        expect("uct_host::ep=debug", 4, [4, 2, 2]);
        expect("error, uct_host=info ,uct_host::ep=debug", 4, [4, 3, 1]);
        expect("uct_host::ep=off,uct_host=info", 3, [0, 3, 2]);
        expect("off,uct_tcp", 5, [0, 0, 5]);
    }

    #[test]
    fn what_is_neither_a_level_nor_a_target_changes_nothing() {
        expect("[connection]=debug,uct_net[dial]=trace,uct_tcp=loud", 2, [2; 3]);
    }
}
