//! One thing that was examined.

use std::fmt;

use serde::Serialize;
use uct_core::Refused;

/// What it means for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Verdict {
    /// A transport of this machine cannot be used.
    #[serde(rename = "OBSTACLE")]
    Obstacle,
    /// A transport is slower, or can do less, than it could.
    #[serde(rename = "LIMIT")]
    Limit,
    /// This machine does not have it, or the configuration excludes it.
    #[serde(rename = "ABSENT")]
    Absent,
    /// Nothing to be done.
    #[serde(rename = "ok")]
    Fine,
}

/// The line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    /// Transports that it concerns, or the part of the machine.
    pub(crate) subject: String,
    pub(crate) words: String,
    /// What to do, if there is something.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn new(verdict: Verdict, subject: impl Into<String>, words: impl Into<String>) -> Finding {
        Finding { verdict, subject: subject.into(), words: words.into(), remedy: None }
    }

    pub(crate) fn fine(subject: impl Into<String>, words: impl Into<String>) -> Finding {
        Finding::new(Verdict::Fine, subject, words)
    }

    /// What a transport reports about itself.
    pub(crate) fn refused(verdict: Verdict, subject: impl Into<String>, refused: &Refused) -> Finding {
        let remedy = refused.remedy().map(str::to_owned);
        Finding { remedy, ..Finding::new(verdict, subject, refused.without_remedy().to_string()) }
    }

    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Obstacle => "OBSTACLE",
            Verdict::Limit => "LIMIT",
            Verdict::Absent => "ABSENT",
            Verdict::Fine => "ok",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:8}  {}: {}", self.verdict, self.subject, self.words)?;
        match &self.remedy {
            Some(remedy) => writeln!(f, "          → {remedy}"),
            None => Ok(()),
        }
    }
}
