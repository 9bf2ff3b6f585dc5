//! What selection has of measured times: for `--explain` and `--doctor`.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use uct_core::select::{Calibration, CalibrationError, Explanation};
use uct_core::{Context, DeviceKind};

/// What measures, or measures again.
const REMEDY: &str = "`uct_info --calibrate`";

/// The file of measured times, and what it has.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct MeasuredTimes {
    pub(crate) state: State,
    /// `null` if the key `calibration` names none.
    file: Option<PathBuf>,
    /// Why nothing of the file counts, if that is so.
    reason: Option<String>,
    /// Interfaces of this machine that the file lacks; for a peer, those that lead there.
    lacking: Vec<String>,
    #[serde(skip)]
    is_for_a_peer: bool,
}

/// Whether the times of the file count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The key `calibration` names no file that this program may use.
    Off,
    /// There is no such file.
    Absent,
    /// It was written before the machine was booted, or by another version.
    Stale,
    /// It is damaged, or another user may have written it.
    Unusable,
    /// They count.
    Used,
}

impl MeasuredTimes {
    pub(crate) fn of(context: &Context) -> MeasuredTimes {
        let file = context.calibration_file().map(ToOwned::to_owned);
        let (state, reason) = match file.as_deref().map(Calibration::read) {
            None => (State::Off, None),
            Some(Ok(times)) if times == Calibration::default() => (State::Absent, None),
            Some(Ok(times)) => {
                return MeasuredTimes {
                    state: State::Used,
                    file,
                    reason: None,
                    lacking: lacking(context, &times),
                    is_for_a_peer: false,
                };
            }
            Some(Err(error)) => {
                let is_stale = matches!(error, CalibrationError::Stale(_));
                (if is_stale { State::Stale } else { State::Unusable }, Some(error.to_string()))
            }
        };
        MeasuredTimes { state, file, reason, lacking: Vec::new(), is_for_a_peer: false }
    }

    /// As above, for a peer.
    pub(crate) fn with_peer(context: &Context, explanation: &Explanation) -> MeasuredTimes {
        let times = MeasuredTimes::of(context);
        let modeled = explanation.candidates.iter();
        let modeled = modeled.filter(|it| it.cost().is_some_and(|cost| !cost.is_measured));
        let lacking = match times.state {
            State::Used => modeled.map(|candidate| candidate.name()).collect(),
            _ => Vec::new(),
        };
        MeasuredTimes { lacking, is_for_a_peer: true, ..times }
    }

    /// What to do, where measuring changes something.
    pub(crate) fn remedy(&self) -> Option<String> {
        match self.state {
            State::Unusable if self.file.as_ref().is_some_and(|file| file.is_dir()) => {
                Some(format!("remove it; {REMEDY} writes a file there"))
            }
            State::Stale | State::Unusable => Some(format!("{REMEDY} measures again")),
            // What leads to a peer elsewhere is not measured.
            State::Used if self.lacking.is_empty() || self.is_for_a_peer => None,
            State::Used => Some(format!("{REMEDY} measures all")),
            State::Absent | State::Off => None,
        }
    }
}

/// The interfaces that selection may choose, and of which nothing was measured. `self` is never measured: it has no second side.
fn lacking(context: &Context, times: &Calibration) -> Vec<String> {
    let resources = context.resources().iter();
    let permitted = resources.filter(|it| it.kind != DeviceKind::Myself && context.excluded(it).is_none());
    permitted.filter(|resource| !times.contains(resource)).map(ToString::to_string).collect()
}

/// One line, without its end.
impl fmt::Display for MeasuredTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(file) = &self.file else {
            return write!(
                f,
                "no measured times: the key calibration names no file that this program may use"
            );
        };
        match &self.reason {
            Some(reason) => write!(f, "measured times of {}: {reason}; the models count", file.display()),
            None if self.state == State::Absent => {
                write!(f, "no measured times in {}; the models count", file.display())
            }
            None if self.lacking.is_empty() => write!(f, "measured times of {}", file.display()),
            None => {
                write!(f, "measured times of {}; the models count for ", file.display())?;
                f.write_str(&self.lacking.join(", "))
            }
        }
    }
}
