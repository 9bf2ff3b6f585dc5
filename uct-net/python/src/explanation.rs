//! Why a transport was chosen, as a dictionary.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use uct_core::select::{Candidate, Verdict};
use uct_net::local::Explanation;

/// What `Connection.explanation` is.
pub(crate) fn dictionary<'py>(py: Python<'py>, explanation: &Explanation) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    dictionary.set_item("chosen", &explanation.chosen)?;
    dictionary.set_item("tried", &explanation.tried)?;
    let candidates =
        explanation.ours.candidates.iter().map(|it| candidate(py, it)).collect::<PyResult<Vec<_>>>()?;
    dictionary.set_item("candidates", PyList::new(py, candidates)?)?;
    dictionary.set_item("peer", explanation.theirs.to_string())?;
    dictionary.set_item("text", explanation.to_string())?;
    Ok(dictionary)
}

fn candidate<'py>(py: Python<'py>, candidate: &Candidate) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    dictionary.set_item("name", candidate.name())?;
    let verdict = match &candidate.verdict {
        Verdict::Chosen(_) => "chosen",
        Verdict::Usable(_) => "usable",
        Verdict::Rejected { .. } => "rejected",
    };
    dictionary.set_item("verdict", verdict)?;
    dictionary.set_item("seconds", candidate.cost().map(|cost| cost.total))?;
    let (reason, remedy) = match &candidate.verdict {
        Verdict::Rejected { check, hint, .. } => (Some(check.to_string()), Some(hint.to_string())),
        _ => (None, None),
    };
    dictionary.set_item("reason", reason)?;
    dictionary.set_item("remedy", remedy)?;
    Ok(dictionary)
}
