//! Splitting a text such as `1.5GB/s` into its number and its unit, and writing the shortest text that reads back.
//!
//! No dependencies. [`Time`](super::Time) and [`Bandwidth`](super::Bandwidth) use it.

/// The number at the start of `text` and the rest, trimmed; `None` without a finite, non-negative number.
pub(super) fn split_real(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end =
        text.find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    // Adding zero turns -0.0 into 0.0.
    (number.is_finite() && number >= 0.0).then_some((number + 0.0, unit.trim()))
}

/// The whole number at the start of `text` and the rest, trimmed.
pub(super) fn split_whole(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// The shortest of the texts of a value for which `reads_back` holds, the first among equals. Each of `numbers` is
/// the value in that unit. Scaling a value leaves a last digit or two of noise, so that each is tried without, too.
pub(super) fn shortest(
    numbers: impl Iterator<Item = (f64, &'static str)>,
    reads_back: impl Fn(&str) -> bool,
) -> Option<String> {
    numbers
        .flat_map(|(number, unit)| [(without_noise(number), unit), (number, unit)])
        .map(|(number, unit)| format!("{number}{unit}"))
        .filter(|text| reads_back(text))
        .min_by_key(String::len)
}

/// `number` to 15 significant digits.
fn without_noise(number: f64) -> f64 {
    format!("{number:.14e}").parse().unwrap_or(number)
}
