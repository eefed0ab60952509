//! A plot as one SVG file, without scripts, fonts or links, in the colours that a reader prefers.

use super::plot::{MAX_CURVES, Plot, count_of, percentile};
use crate::text::escape::xml;
use crate::text::table::cut;
use std::fmt::Write;

const WIDTH: f64 = 800.0;
/// The plot within the picture.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 780.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 380.0;
/// The first line of the legend, and the distance to the next.
const LEGEND: f64 = 446.0;
const LINE: f64 = 22.0;
/// Points of a curve.
const POINTS: usize = 700;
/// Colours on white and on black, and dashes: curves differ without colours too.
const STYLES: [(&str, &str, &str); MAX_CURVES] = [
    ("#0060a8", "#5db1f2", ""),
    ("#c24a00", "#ff9a57", "7 3"),
    ("#007a59", "#3fcf9f", "2 3"),
    ("#9b3f86", "#e79bd0", "10 3 2 3"),
    ("#7a6200", "#e0c341", "4 2"),
    ("#404040", "#c8c8c8", "12 4"),
];

impl Plot {
    /// Returns the plot as the text of an SVG file.
    pub fn svg(&self) -> String {
        let height = LEGEND + LINE * self.curves.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
             <title>{} by percentile</title>\n<style>\n\
             svg {{ color: #222; font: 13px sans-serif }}\n.ground {{ fill: #fff }}\ntext {{ fill: currentColor }}\n\
             .grid {{ stroke: currentColor; stroke-opacity: 0.18 }}\n.axis {{ stroke: currentColor }}\n\
             .curve {{ fill: none; stroke-width: 2; stroke-linejoin: round }}\n",
            self.scale.name(),
        );
        let colours = |svg: &mut String, of: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
            STYLES.iter().enumerate().for_each(|(at, style)| _ = writeln!(svg, ".c{at} {{ stroke: {} }}", of(style)));
        };
        colours(&mut svg, |style| style.0);
        svg.push_str("@media (prefers-color-scheme: dark) {\nsvg { color: #ddd }\n.ground { fill: #16181c }\n");
        colours(&mut svg, |style| style.1);
        svg.push_str("}\n</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n");
        self.axes(&mut svg);
        for (at, curve) in self.curves.iter().enumerate() {
            let mut points = String::new();
            let mut before = None;
            for point in 0..=POINTS {
                let part = point as f64 / POINTS as f64;
                let Some(value) = curve.at(self.decades * part) else { break };
                let (x, y) = (LEFT + part * (RIGHT - LEFT), self.y(value));
                // Two points a step.
                if let Some(before) = before.filter(|before| *before != y.to_bits()) {
                    let _ = write!(points, "{x:.1},{:.1} ", f64::from_bits(before));
                }
                if before != Some(y.to_bits()) || point == POINTS {
                    let _ = write!(points, "{x:.1},{y:.1} ");
                }
                before = Some(y.to_bits());
            }
            // Where the curve ends, if before the axis does.
            if let Some(y) = before {
                let last = ((curve.counts.len() as f64).log10() / self.decades).min(1.0);
                let x = LEFT + last * (RIGHT - LEFT);
                let _ =
                    write!(points, "{x:.1},{:.1} {x:.1},{:.1}", f64::from_bits(y), self.y(curve.counts.max() as f64));
            }
            let dash = STYLES[at].2;
            let _ = writeln!(svg, "<polyline class=\"curve c{at}\" stroke-dasharray=\"{dash}\" points=\"{points}\"/>");
            let y = LEGEND + LINE * at as f64;
            let _ = writeln!(
                svg,
                "<path class=\"curve c{at}\" stroke-dasharray=\"{dash}\" d=\"M{LEFT} {}h36\"/><text x=\"{}\" y=\"{y}\">{}</text>",
                y - 4.0,
                LEFT + 46.0,
                self.legend(at),
            );
        }
        svg + "</svg>\n"
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.scale.place(value) * (BOTTOM - TOP)
    }

    fn axes(&self, svg: &mut String) {
        for value in self.scale.ticks() {
            let y = self.y(value);
            let label = super::comparison::shown(value, self.scale.is_time, "");
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                xml(&label),
            );
        }
        for decade in 0..=self.decades as usize {
            let x = LEFT + decade as f64 / self.decades * (RIGHT - LEFT);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 20.0,
                percentile(decade),
            );
        }
        let _ = writeln!(svg, "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>");
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", TOP - 14.0, self.scale.name());
        let _ = writeln!(svg, "<text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">percentile</text>", BOTTOM + 40.0);
    }

    /// Name, number of values and some quantiles of a curve.
    fn legend(&self, at: usize) -> String {
        let curve = &self.curves[at];
        let mut text = format!("{}: {}", cut(&curve.name, 48), count_of(&curve.counts));
        for (name, fraction) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(value) = curve.counts.quantile(fraction).filter(|_| curve.counts.shows(fraction)) {
                let _ = write!(text, ", {name} {}", curve.shown(value as f64));
            }
        }
        let _ = write!(text, ", max {}", curve.shown(curve.counts.max() as f64));
        xml(&text)
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::Profile;
    use crate::profile::plot::Plot;

    #[test]
    fn names_cannot_break_the_picture() {
        let csv = "tag,value_ns,count\n</text><script>alert(1)</script>&\u{1}\u{202e},1000,100\n";
        let svg = Plot::new(&[Profile::from_text("a.csv", csv, None).unwrap()]).svg();
        assert!(!svg.contains("<script") && svg.contains("&lt;/text&gt;"), "{svg}");
        assert!(!svg.contains(['\u{1}', '\u{202e}']));
        assert!(svg.contains("prefers-color-scheme: dark") && !svg.contains("http://www.w3.org/1999"));
    }
}
