//! Percentile curves over 1/(1-p): each decade to the right has a tenth of the values.

use super::comparison::{named, shown};
use super::{Profile, Series};
use crate::text::escape::one_line;
use crate::text::number::count;
use crate::text::paragraph::{WIDTH, paragraph, width};
use crate::text::table::cut;
use limen::report::Counts;
use std::fmt::Write;

/// The most curves.
pub(super) const MAX_CURVES: usize = 6;
/// The marks of curves.
const MARKS: [char; MAX_CURVES] = ['*', 'o', '+', 'x', '#', '@'];
/// Columns left of the plot.
const MARGIN: usize = 10;
/// Rows of the plot.
const ROWS: usize = 20;
/// Values on the vertical axis, at most, but for 0.
const MAX_TICKS: f64 = 6.0;
/// The most decades: with more values the curve ends at the last.
const MAX_DECADES: f64 = 9.0;
/// Decades that are rounding errors.
const END: f64 = 1e-9;
/// The axis is logarithmic where the highest value is so many times the lowest.
const LOGARITHMIC: f64 = 30.0;

/// Percentile curves.
#[derive(Debug)]
pub struct Plot {
    pub(super) curves: Vec<Curve>,
    /// Histograms without a curve.
    left_out: usize,
    pub(super) scale: Scale,
    /// Decades of the horizontal axis.
    pub(super) decades: f64,
}

/// One curve.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) counts: Counts,
    pub(super) is_time: bool,
}

impl Curve {
    /// The value at a distance from the left, in decades; `None` beyond the last value.
    pub(super) fn at(&self, decades: f64) -> Option<f64> {
        let left = (self.counts.len() as f64).log10() - decades;
        let value = match () {
            () if left < -END => None,
            // At the distance of one value from the end a quantile is still that of the last but
            // one.
            () if left < END => Some(self.counts.max()),
            () => self.counts.quantile(1.0 - 10f64.powf(-decades)),
        };
        value.map(|value| value as f64)
    }

    pub(super) fn shown(&self, value: f64) -> String {
        shown(value, self.is_time, "")
    }
}

/// The vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    pub(super) is_time: bool,
}

impl Scale {
    fn new(curves: &[Curve]) -> Self {
        let values = || curves.iter().map(|curve| &curve.counts);
        let high = values().map(Counts::max).max().unwrap_or(1).max(1) as f64;
        let low = values().filter_map(|counts| counts.quantile(0.0)).min().unwrap_or(1).max(1) as f64;
        let is_logarithmic = high / low > LOGARITHMIC;
        let is_time = curves.iter().all(|curve| curve.is_time);
        Scale { low: if is_logarithmic { low } else { 0.0 }, high, is_logarithmic, is_time }
    }

    /// Where a value is, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.is_logarithmic {
            (value.max(1.0) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values on the axis: powers of ten, or multiples of 1, 2 or 5 times one.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let power = |exponent: f64| 10f64.powf(exponent);
        if self.is_logarithmic {
            let (first, last) = (self.low.log10().ceil(), self.high.log10().floor());
            let step = ((last - first) / MAX_TICKS).ceil().max(1.0);
            return (0..).map(|n| first + f64::from(n) * step).take_while(|at| *at <= last).map(power).collect();
        }
        let rough = self.high / MAX_TICKS;
        let below = power(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|times| times * below).into_iter().find(|step| *step >= rough).unwrap_or(rough);
        (0..).map(|n| f64::from(n) * step).take_while(|at| *at <= self.high).collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match (self.is_time, self.is_logarithmic) {
            (true, false) => "time",
            (true, true) => "time, logarithmic",
            (false, false) => "value",
            (false, true) => "value, logarithmic",
        }
    }
}

/// The percentile so many decades from the left.
pub(super) fn percentile(decade: usize) -> String {
    match decade {
        0 => "0 %".into(),
        1 => "90 %".into(),
        2 => "99 %".into(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}

impl Plot {
    /// Returns the curves of the paths in some profiles, or of all histograms where none is of a
    /// path; at most six.
    pub fn of_paths(profiles: &[Profile]) -> Self {
        let mut paths = profiles.to_vec();
        let is_path = |series: &Series| series.tag.ends_with(".e2e");
        if !paths.iter().flat_map(|profile| &profile.series).any(is_path) {
            return Plot::new(profiles);
        }
        paths.iter_mut().for_each(|profile| profile.series.retain(is_path));
        let all: usize = profiles.iter().map(|profile| profile.series.len()).sum();
        let plot = Plot::new(&paths);
        Plot { left_out: all - plot.curves.len(), ..plot }
    }

    /// Returns the curves of the histograms of some profiles: paths first, the others after them,
    /// and at most six.
    pub fn new(profiles: &[Profile]) -> Self {
        let all: Vec<(&Profile, &Series)> =
            profiles.iter().flat_map(|profile| profile.series.iter().map(move |series| (profile, series))).collect();
        let is_path = |(_, series): &&(&Profile, &Series)| series.tag.ends_with(".e2e");
        let paths = all.iter().filter(is_path);
        let ordered = paths.chain(all.iter().filter(|one| !is_path(one)));
        let curve = |(profile, series): &(&Profile, &Series)| {
            let counts = series.sum();
            let name = named(&series.tag);
            let name = if profiles.len() > 1 { format!("{} {name}", one_line(&profile.name())) } else { name };
            (!counts.is_empty()).then_some(Curve { name, counts, is_time: profile.has_unit && series.is_time() })
        };
        let mut curves: Vec<Curve> = ordered.filter_map(curve).collect();
        // Numbers have another axis than times.
        if let Some(is_time) = curves.first().map(|curve| curve.is_time) {
            curves.retain(|curve| curve.is_time == is_time);
        }
        curves.truncate(MAX_CURVES);
        let most = curves.iter().map(|curve| curve.counts.len()).max().unwrap_or(1);
        let decades = (most as f64).log10().clamp(1.0, MAX_DECADES);
        let scale = Scale::new(&curves);
        Plot { left_out: all.len() - curves.len(), scale, decades, curves }
    }

    /// What a reader does not see.
    pub(crate) fn note(&self) -> Option<String> {
        let left_out = count(self.left_out, "histogram");
        (self.left_out > 0)
            .then(|| format!("{left_out} not shown: choose with --tag, or merge runs with `limen-run hist merge`"))
    }

    /// Returns the plot as plain characters, for a terminal of 80 columns.
    pub fn text(&self) -> String {
        let columns = WIDTH - MARGIN - 2;
        let mut rows = vec![vec![' '; columns]; ROWS];
        let row = |value: f64| ((1.0 - self.scale.place(value)) * (ROWS - 1) as f64).round() as usize;
        let labels: Vec<(usize, f64)> = self.scale.ticks().into_iter().map(|value| (row(value), value)).collect();
        // The first curve is on top.
        for (curve, mark) in self.curves.iter().zip(MARKS).rev() {
            let mut before = None;
            for column in 0..columns {
                let decades = self.decades * column as f64 / (columns - 1) as f64;
                let Some(at) = curve.at(decades).map(row) else { break };
                // A step is drawn as a line.
                rows[at..before.unwrap_or(at + 1).max(at + 1)].iter_mut().for_each(|row| row[column] = mark);
                before = Some(at);
            }
        }
        let mut text = String::new();
        if self.curves.is_empty() {
            return "nothing was recorded\n".into();
        }
        for (at, row) in rows.iter().enumerate() {
            let label =
                labels.iter().find(|(row, _)| *row == at).map(|(_, value)| shown(*value, self.scale.is_time, ""));
            let line: String = row.iter().collect();
            let _ = writeln!(
                text,
                "{:>MARGIN$} {}",
                cut(&label.unwrap_or_default(), MARGIN),
                format!("|{line}").trim_end()
            );
        }
        let ticks: Vec<(usize, usize)> = (0..=self.decades as usize)
            .map(|decade| (((columns - 1) as f64 * decade as f64 / self.decades).round() as usize, decade))
            .collect();
        let axis: String =
            (0..columns).map(|c| if c > 0 && ticks.iter().any(|(at, _)| *at == c) { '+' } else { '-' }).collect();
        let _ = writeln!(text, "{:MARGIN$} +{axis}", "");
        let mut labels = String::new();
        for (at, decade) in ticks {
            let label = percentile(decade);
            let begin = (at + 1).saturating_sub(width(&label) / 2).min(columns + 1 - width(&label));
            if decade == 0 || begin > width(&labels) {
                let pad = begin.saturating_sub(width(&labels));
                let _ = write!(labels, "{:pad$}{label}", "");
            }
        }
        let _ = writeln!(text, "{:MARGIN$} {labels}", "");
        let _ = writeln!(text, "{:MARGIN$} {} by percentile\n", "", self.scale.name());
        for (curve, mark) in self.curves.iter().zip(MARKS) {
            let _ = writeln!(text, "{mark} {}: {}", cut(&curve.name, WIDTH - 24), count_of(&curve.counts));
        }
        if let Some(note) = self.note() {
            paragraph(&mut text, "", &note);
        }
        text
    }
}

pub(super) fn count_of(counts: &Counts) -> String {
    format!("{} value{}", counts.len(), if counts.len() == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(rows: &str) -> Profile {
        Profile::from_text("a.csv", &format!("tag,value_ns,count\n{rows}"), None).unwrap()
    }

    #[test]
    fn a_curve_rises_to_the_right() {
        let text = Plot::new(&[profile("a->b.e2e,1000,900\na->b.e2e,2000,90\na->b.e2e,4000,10\n")]).text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| width(line) <= WIDTH), "{text}");
        assert!(lines[0].ends_with("**") && text.contains("   4.00 µs |") && text.contains("   1.00 µs |"), "{text}");
        assert!(text.contains("0 %") && text.contains("99.9 %") && text.contains("* a->b: 1000 values"), "{text}");
        // 1.00 µs up to 90 %.
        assert!(lines[14].contains("|******"), "{text}");
    }

    #[test]
    fn any_histogram_can_be_drawn() {
        for rows in
            ["", "a.x,0,1\n", "a.x,9223372036854775807,9223372036854775807\n", "a.x,1,1\nb.x,1000000,5\nc.batch,3,3\n"]
        {
            let plot = Plot::new(&[profile(rows), profile(rows)]);
            let text = plot.text();
            assert!(text.lines().all(|line| width(line) <= WIDTH), "{text}");
            assert!(plot.svg().ends_with("</svg>\n"));
        }
    }
}
