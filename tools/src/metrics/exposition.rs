//! The text format of Prometheus, version 0.0.4.

use super::{Families, QUANTILES, Summary};
use crate::text::escape::one_line;
use std::fmt::Write;
use std::time::Instant;

/// Metrics as text. A family without samples is left out.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    /// The name of the current family, and its head until it has a sample.
    name: &'static str,
    head: String,
}

impl Families for Exposition {
    fn counter(&mut self, name: &'static str, help: &'static str) {
        self.family(name, help, "counter");
    }

    fn gauge(&mut self, name: &'static str, help: &'static str) {
        self.family(name, help, "gauge");
    }

    fn times(&mut self, name: &'static str, help: &'static str) {
        self.family(name, help, "summary");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, value);
    }

    fn summary(&mut self, labels: &[(&str, &str)], summary: &Summary) {
        let is_new = Instant::now() < summary.until;
        for (quantile, value) in QUANTILES.iter().zip(&summary.quantiles).filter(|_| is_new) {
            let Some(value) = value else { continue };
            let quantile = quantile.to_string();
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("quantile", &*quantile)]).collect();
            self.line("", &labels, *value as f64 / 1e9);
        }
        self.line("_sum", labels, summary.sum / 1e9);
        self.line("_count", labels, summary.count as f64);
    }
}

impl Exposition {
    fn family(&mut self, name: &'static str, help: &str, kind: &str) {
        self.name = name;
        self.head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(&std::mem::take(&mut self.head));
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_empty_families_left_out() {
        let mut text = Exposition::default();
        text.gauge("none", "Nothing.");
        text.counter("calls_total", "Calls.");
        text.sample(&[("node", "a\"b\\c\nd\u{1b}größe"), ("kind", "")], 7.0);
        text.sample(&[], 1e-9);
        text.times("time_seconds", "Times.");
        text.line("_count", &[("node", "a")], 12_345_678_901.0);
        let expected = "\
# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{node=\"a\\\"b\\\\c d\\\\u{1b}größe\",kind=\"\"} 7
calls_total 0.000000001
# HELP time_seconds Times.
# TYPE time_seconds summary
time_seconds_count{node=\"a\"} 12345678901
";
        assert_eq!(text.finish(), expected);
    }
}
