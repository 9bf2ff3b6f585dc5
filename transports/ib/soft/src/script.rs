//! What `SOFTVERBS_FAULTS` says: words, each a fault.
//!
//! For `settings`. The page docs/softverbs.md has the grammar.

use crate::engine::{FaultPlan, Incident, Moment, Nanos, Status, Verb, Which};
use crate::network::faults::Rates;

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// With packets.
    pub rates: Rates,
    /// With everything else. Its seed is that of packets, too.
    pub plan: FaultPlan,
}

/// Error numbers that a call may be refused with.
const ERRNOS: &[(&str, i32)] = &[
    ("EPERM", libc::EPERM),
    ("EIO", libc::EIO),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EFAULT", libc::EFAULT),
    ("EBUSY", libc::EBUSY),
    ("ENODEV", libc::ENODEV),
    ("EINVAL", libc::EINVAL),
    ("EMFILE", libc::EMFILE),
    ("ENOSPC", libc::ENOSPC),
    ("ENOSYS", libc::ENOSYS),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("ENETUNREACH", libc::ENETUNREACH),
    ("ETIMEDOUT", libc::ETIMEDOUT),
];

/// Words that have a value and no `@`.
const OF_PACKETS: &str = "seed, loss, duplicate, reorder, corrupt, delay";

impl Script {
    /// Reads words such as `seed=7 loss=1% wc=RETRY_EXC_ERR@37 create_qp=ENOMEM@3 port-down@2s`.
    ///
    /// # Errors
    /// The word, and what was expected.
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script::default();
        for word in text.split_whitespace() {
            match word.split_once('@') {
                None => script.add_of_packets(word)?,
                Some((what, when)) => script.add_planned(what, when)?,
            }
        }
        Ok(script)
    }

    fn add_of_packets(&mut self, word: &str) -> Result<(), String> {
        if incident(word).is_some() {
            return Err(format!("`{word}` does not say when: {word}@100 or {word}@2s is expected"));
        }
        let (name, value) = word.split_once('=').ok_or(format!("`{word}` is not name=value"))?;
        if is_planned(name) {
            return Err(format!("`{word}` does not say which: {word}@3 or {word}@1% is expected"));
        }
        let no_share = || format!("`{value}` of {name} is not a share, as 1% is");
        let rates = &mut self.rates;
        match name {
            "seed" => {
                self.plan.seed = value.parse().map_err(|_| format!("`{value}` of seed is not a number"))?;
            }
            "loss" => rates.loss = share(value).ok_or_else(no_share)?,
            "duplicate" => rates.duplicate = share(value).ok_or_else(no_share)?,
            "reorder" => rates.reorder = share(value).ok_or_else(no_share)?,
            "corrupt" => rates.corrupt = share(value).ok_or_else(no_share)?,
            "delay" => {
                let (shortest, longest) = value.split_once("..").unwrap_or((value, value));
                let range = time(shortest).zip(time(longest)).filter(|range| range.0 <= range.1);
                let no_delay = || format!("`{value}` of delay is not a time, as 2ms or 1ms..3ms is");
                rates.delay = range.ok_or_else(no_delay)?;
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn add_planned(&mut self, what: &str, when: &str) -> Result<(), String> {
        if let Some(incident) = incident(what) {
            let moment = time(when).map(Moment::Time).or_else(|| number(when).map(Moment::Send));
            let expected =
                || format!("`{when}` of {what} is neither the number of a send request nor a time, as 2s is");
            self.plan.incidents.push((moment.ok_or_else(expected)?, incident));
            return Ok(());
        }
        let (name, value) = what.split_once('=').filter(|pair| is_planned(pair.0)).ok_or(unknown(what))?;
        let which = number(when).map(Which::Number).or_else(|| share(when).map(Which::Share));
        let which = which.ok_or_else(|| {
            format!("`{when}` of {what} is neither a number, which counts from 1, nor a share, as 1% is")
        })?;
        if let Some((verb, _)) = Verb::ALL.iter().find(|verb| verb.1 == name) {
            let errno = ERRNOS.iter().find(|errno| errno.0 == value);
            let errno = errno.ok_or_else(|| {
                format!("`{value}` of {name} is none of {}", names(ERRNOS.iter().map(|it| it.0)))
            })?;
            self.plan.verbs.push((*verb, which, errno.1));
            return Ok(());
        }
        let status = Status::FAILURES.iter().find(|failure| failure.1 == value);
        let statuses = || names(Status::FAILURES.iter().map(|failure| failure.1));
        let (status, _) = status.ok_or_else(|| format!("`{value}` of {name} is none of {}", statuses()))?;
        let faults = if name == "wc" { &mut self.plan.sends } else { &mut self.plan.receives };
        faults.push((which, *status));
        Ok(())
    }
}

/// Whether a name is of a fault with a value and a choice.
fn is_planned(name: &str) -> bool {
    matches!(name, "wc" | "recv-wc") || Verb::ALL.iter().any(|verb| verb.1 == name)
}

fn incident(name: &str) -> Option<Incident> {
    Incident::ALL.iter().find(|incident| incident.1 == name).map(|incident| incident.0)
}

fn unknown(name: &str) -> String {
    let verbs = names(Verb::ALL.iter().map(|verb| verb.1));
    let incidents = names(Incident::ALL.iter().map(|incident| incident.1));
    format!(
        "there is no fault `{name}`: {OF_PACKETS}; with =VALUE@WHICH wc, recv-wc, {verbs}; with @WHEN {incidents}"
    )
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// `1%`, as 0.01.
fn share(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number / 100.0)
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

/// `30us`, `500ms`, `2s`.
fn time(text: &str) -> Option<Nanos> {
    let units = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000_u64)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.parse::<u64>().ok()?.checked_mul(*unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_word_is_read() {
        let script = Script::parse(
            "seed=7 loss=1% duplicate=0.5% reorder=2% corrupt=100% delay=1ms..3ms wc=RNR_RETRY_EXC_ERR@37 wc=TM_ERR@5% \
             recv-wc=LOC_PROT_ERR@1 create_qp=ENOMEM@3 kill-qp@1000 port-down@2s port-up@2500ms",
        );
        let delay = (1_000_000, 3_000_000);
        let rates = Rates { loss: 0.01, duplicate: 0.005, reorder: 0.02, corrupt: 1.0, delay };
        let plan = FaultPlan {
            seed: 7,
            sends: vec![
                (Which::Number(37), Status::RnrRetryExceeded),
                (Which::Share(0.05), Status::TagMatching),
            ],
            receives: vec![(Which::Number(1), Status::LocalProtection)],
            verbs: vec![(Verb::CreateQp, Which::Number(3), libc::ENOMEM)],
            incidents: vec![
                (Moment::Send(1000), Incident::KillQp),
                (Moment::Time(2_000_000_000), Incident::PortDown),
                (Moment::Time(2_500_000_000), Incident::PortUp),
            ],
        };
        assert_eq!(script, Ok(Script { rates, plan }));
        assert_eq!(Script::parse(" "), Ok(Script::default()));
        assert_eq!(Script::parse("delay=2ms").expect("a delay").rates.delay, (2_000_000, 2_000_000));
    }

    #[test]
    fn every_name_is_a_word() {
        for (status, name) in Status::FAILURES {
            let script = Script::parse(&format!("wc={name}@1 recv-wc={name}@2")).expect(name);
            assert_eq!(script.plan.sends, [(Which::Number(1), *status)]);
            assert_eq!(script.plan.receives, [(Which::Number(2), *status)]);
        }
        for (verb, name) in Verb::ALL {
            let script = Script::parse(&format!("{name}=EIO@1")).expect(name);
            assert_eq!(script.plan.verbs, [(*verb, Which::Number(1), libc::EIO)]);
        }
        for (incident, name) in Incident::ALL {
            let script = Script::parse(&format!("{name}@1us")).expect(name);
            assert_eq!(script.plan.incidents, [(Moment::Time(1000), *incident)]);
        }
    }

    #[test]
    fn what_is_no_fault_is_named_with_what_was_expected() {
        for (text, word, expected) in [
            ("loss=1", "`1` of loss", "is not a share"),
            ("loss=101%", "`101%` of loss", "is not a share"),
            ("seed=x", "`x` of seed", "is not a number"),
            ("loss", "`loss`", "name=value"),
            ("lost=1%", "`lost`", "seed, loss"),
            ("delay=2", "`2` of delay", "2ms or 1ms..3ms"),
            ("delay=3ms..1ms", "`3ms..1ms` of delay", "2ms or 1ms..3ms"),
            ("wc=RETRY_EXC_ERR", "`wc=RETRY_EXC_ERR`", "@3 or wc=RETRY_EXC_ERR@1%"),
            ("wc=RETRY@3", "`RETRY` of wc", "RETRY_EXC_ERR, RNR_RETRY_EXC_ERR"),
            ("wc=RETRY_EXC_ERR@0", "`0` of wc=RETRY_EXC_ERR", "counts from 1"),
            ("wc=RETRY_EXC_ERR@2s", "`2s` of wc=RETRY_EXC_ERR", "nor a share"),
            ("wc@3", "`wc`", "with =VALUE@WHICH wc, recv-wc"),
            ("create_qp=ENOMEN@3", "`ENOMEN` of create_qp", "ENOMEM, EACCES"),
            ("create_pq=ENOMEM@3", "`create_pq=ENOMEM`", "create_qp"),
            ("kill-qp", "`kill-qp`", "kill-qp@100 or kill-qp@2s"),
            ("kill-qp@1%", "`1%` of kill-qp", "nor a time, as 2s is"),
            ("kill-pq@1", "`kill-pq`", "kill-qp"),
            ("port-down@2h", "`2h` of port-down", "nor a time"),
            ("port-down@99999999999s", "`99999999999s` of port-down", "nor a time"),
        ] {
            let error = Script::parse(text).expect_err(text);
            assert!(error.contains(word) && error.contains(expected), "{text}: {error}");
        }
    }
}
