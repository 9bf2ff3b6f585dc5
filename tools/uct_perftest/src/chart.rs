//! A drawing of lines over logarithmic axes, as SVG. It needs std alone, so that xtask compiles this file, too.

use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// A line. A point that is not positive is drawn at the edge.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What is drawn.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What the vertical axis shows, with its unit.
    pub(crate) vertical: String,
    /// What the horizontal axis shows. Its ticks are powers of two.
    pub(crate) horizontal: String,
    pub(crate) series: Vec<Series>,
}

/// The drawing as a document. `tick` writes the numbers of the horizontal axis.
pub(crate) fn draw(chart: &Chart, tick: impl Fn(usize) -> String) -> String {
    let coordinates = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        chart.series.iter().flat_map(|series| series.points.iter().map(of)).collect()
    };
    let x = Axis::over(&coordinates(|point| point.0), 2.0, LEFT, WIDTH - RIGHT);
    let y = Axis::over(&coordinates(|point| point.1), 10.0, HEIGHT - BOTTOM, TOP);

    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(&mut out, (WIDTH / 2.0, 24.0), "middle", &chart.title);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for value in x.ticks() {
        let at = x.place(value);
        line(&mut out, (at, TOP), (at, bottom));
        text(&mut out, (at, bottom + 18.0), "middle", &tick(value as usize));
    }
    for value in y.ticks() {
        let at = y.place(value);
        line(&mut out, (LEFT, at), (right, at));
        text(&mut out, (LEFT - 8.0, at + 4.0), "end", &number(value));
    }
    text(&mut out, (WIDTH / 2.0, HEIGHT - 16.0), "middle", &chart.horizontal);
    text(&mut out, (LEFT, TOP - 10.0), "middle", &chart.vertical);
    for (index, Series { name, colour, points }) in chart.series.iter().enumerate() {
        let places: Vec<String> = points
            .iter()
            .map(|&(size, value)| format!("{:.1},{:.1}", x.place(size), y.place(value)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            places.join(" ")
        );
        for place in &places {
            if let Some((at_x, at_y)) = place.split_once(',') {
                let _ = writeln!(out, "<circle cx=\"{at_x}\" cy=\"{at_y}\" r=\"3\" fill=\"{colour}\"/>");
            }
        }
        let at = TOP + 16.0 + 18.0 * index as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            LEFT + 12.0,
            at - 6.0
        );
        text(&mut out, (LEFT + 32.0, at), "start", name);
    }
    out.push_str("</svg>\n");
    out
}

/// A logarithmic axis.
struct Axis {
    base: f64,
    /// Exponents of the ends.
    low: f64,
    high: f64,
    /// Places of the ends.
    start: f64,
    end: f64,
}

/// Error of an exponent that should be whole.
const ROUNDING: f64 = 1e-9;

impl Axis {
    fn over(values: &[f64], base: f64, start: f64, end: f64) -> Axis {
        let exponents = values.iter().filter(|value| **value > 0.0).map(|value| value.log(base));
        let (low, high) = exponents.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), exponent| {
            (low.min(exponent), high.max(exponent))
        });
        let (low, high) =
            if low.is_finite() { ((low + ROUNDING).floor(), (high - ROUNDING).ceil()) } else { (0.0, 1.0) };
        let high = if high > low { high } else { low + 1.0 };
        Axis { base, low, high, start, end }
    }

    fn place(&self, value: f64) -> f64 {
        let exponent = if value > 0.0 { value.log(self.base).clamp(self.low, self.high) } else { self.low };
        self.start + (self.end - self.start) * (exponent - self.low) / (self.high - self.low)
    }

    /// Powers of the base, not more than a dozen.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = (self.high - self.low) as usize;
        (0..=count).step_by(count / 12 + 1).map(|step| self.base.powf(self.low + step as f64))
    }
}

fn number(value: f64) -> String {
    let exponent = value.log10().round() as i32;
    match exponent {
        -3..=6 => format!("{:.*}", usize::try_from(-exponent).unwrap_or(0), value),
        _ => format!("1e{exponent}"),
    }
}

fn line(out: &mut String, (from_x, from_y): (f64, f64), (to_x, to_y): (f64, f64)) {
    let _ = writeln!(
        out,
        "<line x1=\"{from_x:.1}\" y1=\"{from_y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let escaped = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{escaped}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_all_its_values() {
        let axis = Axis::over(&[3.0, 700.0], 10.0, 0.0, 100.0);
        assert!(axis.place(1.0).abs() < 1e-6 && (axis.place(1000.0) - 100.0).abs() < 1e-6);
        assert!(axis.place(3.0) > 0.0 && axis.place(700.0) < 100.0);
        assert_eq!(axis.ticks().map(number).collect::<Vec<_>>(), ["1", "10", "100", "1000"]);
    }

    #[test]
    fn one_value_or_none_is_an_axis_too() {
        for values in [&[][..], &[0.0], &[8.0]] {
            let axis = Axis::over(values, 2.0, 0.0, 100.0);
            assert!(axis.place(8.0).is_finite() && axis.place(0.0) == 0.0);
            assert!(axis.ticks().count() >= 2);
        }
        assert!(Axis::over(&[1.0, 1e9], 2.0, 0.0, 1.0).ticks().count() <= 13);
    }
}
