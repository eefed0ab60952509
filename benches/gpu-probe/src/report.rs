//! Findings, their sections, and how they are printed.
//!
//! A child writes each finding to its parent at once, as one line of text, so that earlier findings survive a crash.

use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::io::Write as _;

/// The prefix of lines with a finding. Libraries may print other lines.
pub const MARK: &str = "@finding ";

/// The outcome of a computation: an error of a call, or the result of the check.
pub type Attempt = Result<Result<f64, String>, String>;

/// A finding, with its unit and number of samples.
#[derive(Debug, Clone)]
pub struct Finding {
    pub name: String,
    pub value: Value,
    /// The 99th percentile, if the value is a median.
    pub p99: Option<f64>,
    pub unit: String,
    pub samples: usize,
    /// Whether the results equal those of the CPU; `None` without results.
    pub right: Option<bool>,
    pub note: String,
}

impl Finding {
    /// A fact, without samples.
    pub fn fact(name: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
            p99: None,
            unit: String::new(),
            samples: 1,
            right: None,
            note: String::new(),
        }
    }

    /// A number with its unit.
    pub fn number(name: impl Into<String>, value: f64, unit: &str, samples: usize) -> Self {
        Self { unit: unit.into(), samples, ..Self::fact(name, rounded(value)) }
    }

    /// The median of many samples, and their 99th percentile.
    pub fn median(name: impl Into<String>, mut samples: Vec<f64>, unit: &str) -> Self {
        let count = samples.len();
        let (median, p99) = crate::check::median_and_p99(&mut samples);
        Self { p99: Some(rounded(p99)), ..Self::number(name, median, unit, count) }
    }

    /// A missing value, and why.
    pub fn missing(name: impl Into<String>, why: impl Display) -> Self {
        Self { samples: 0, note: why.to_string(), ..Self::fact(name, Value::Null) }
    }

    pub fn note(mut self, note: impl Display) -> Self {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(&note.to_string());
        self
    }

    /// Adds the result of the check: the largest error, or what is wrong.
    pub fn checked(mut self, check: &Result<f64, String>) -> Self {
        self.right = Some(check.is_ok());
        match check {
            Ok(0.0) => self,
            Ok(error) => self.note(format!("largest error {error:.1e}")),
            Err(wrong) => self.note(format!("WRONG: {wrong}")),
        }
    }

    /// Whether something could be done, and if so whether the results are right. An error of a call is not a wrong result.
    pub fn attempt(name: impl Into<String>, outcome: &Attempt) -> Self {
        match outcome {
            Ok(check) => Self::fact(name, check.is_ok()).checked(check),
            Err(why) => Self::fact(name, false).note(why),
        }
    }

    /// Writes the finding to the parent.
    pub fn tell(self) {
        let mut out = std::io::stdout().lock();
        // A closed pipe is ignored: the parent is gone.
        let _ = writeln!(out, "{MARK}{}", self.to_json());
        let _ = out.flush();
    }

    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), json!(self.name));
        map.insert("value".into(), self.value.clone());
        if let Some(p99) = self.p99 {
            map.insert("p99".into(), json!(p99));
        }
        map.insert("unit".into(), json!(self.unit));
        map.insert("samples".into(), json!(self.samples));
        if let Some(right) = self.right {
            map.insert("right".into(), json!(right));
        }
        if !self.note.is_empty() {
            map.insert("note".into(), json!(self.note));
        }
        Value::Object(map)
    }

    /// Parses a line of a child; `None` if it is not a finding.
    pub fn from_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line.strip_prefix(MARK)?).ok()?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        Some(Self {
            name: text("name"),
            value: value.get("value").cloned().unwrap_or(Value::Null),
            p99: value.get("p99").and_then(Value::as_f64),
            unit: text("unit"),
            samples: value.get("samples").and_then(Value::as_u64).unwrap_or(0) as usize,
            right: value.get("right").and_then(Value::as_bool),
            note: text("note"),
        })
    }
}

/// Rounds to four significant digits, the precision of these measurements.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A section of the probe, and how it ended.
#[derive(Debug)]
pub struct Section {
    pub name: String,
    /// `done`, `unavailable: why`, `crashed: how` or `timed out after how long`.
    pub state: String,
    pub seconds: f64,
    pub findings: Vec<Finding>,
}

impl Section {
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(Finding::to_json).collect();
        json!({"section": self.name, "state": self.state, "seconds": rounded(self.seconds), "findings": findings})
    }

    /// The findings as lines of aligned columns.
    pub fn to_table(&self) -> String {
        let mut rows: Vec<[String; 7]> =
            vec![["finding", "value", "p99", "unit", "samples", "right", "note"].map(String::from)];
        for f in &self.findings {
            let right = match f.right {
                None => "",
                Some(true) => "yes",
                Some(false) => "NO",
            };
            let p99 = f.p99.map(|p| p.to_string()).unwrap_or_default();
            let samples = f.samples.to_string();
            rows.push([f.name.clone(), shown(&f.value), p99, f.unit.clone(), samples, right.into(), f.note.clone()]);
        }
        // A long text exceeds its column instead of widening it.
        let width = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).filter(|&width| width <= 100).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..7).map(width).collect();
        let mut table = format!("{}: {} ({:.1} s)\n", self.name, self.state, self.seconds);
        if self.findings.is_empty() {
            return table;
        }
        for row in &rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            table.push_str("  ");
            table.push_str(cells.join("  ").trim_end());
            table.push('\n');
        }
        table
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}
