//! Numbers from CSV files.

mod columns;
mod rows;
mod table;

pub use columns::{Column, ColumnName};

use crate::pace::Pace;
use crate::stream::{self, Framing};
use columns::ROW;
use limen::Tensor;
use limen::message::DType;
use limen::node::{
    Building, Connected, Cost, Emit, IncidentCounter, Many, Metrics, Next, Node, NodeError, PlanErrors, Planning,
    Ports, Source,
};
use limen::unit::{Bytes, Rate};
use schemars::JsonSchema;
use serde::Deserialize;
use table::{CsvTable, LONGEST_ROW};

/// Reads the rows of a comma-separated file as numbers: `row` `f32[n]` or `f64[n]`.
///
/// The first line names the columns. A name may end with a unit in parentheses: `ax (m/s²)`. Tables
/// and recordings use these names and units. If the first line contains only numbers, the line is
/// data and the columns have no names.
///
/// A column with a `type` has a separate output: `columns: [{ name: t, type: i64 }, ax, ay]`
/// produces `t` `i64[]` and `row` `f32[2]`. Timestamps in nanoseconds need `i64`. `row` is `f64` if
/// `f32` would round a number in the first 1,000 rows. `type` overrides the element type of `row`.
/// Without `type`, a call fails if a later row has more digits than the type of `row` can
/// represent.
///
/// The node reads a missing value as NaN. Missing values are an empty field, `nan`, `NA`, `N/A`,
/// `n/a`, `null`, `NULL`, `None`, `<NA>`, `#N/A`, and every other marker that pandas reads as
/// missing. The node counts rows with a missing value (`missing`). A missing value in an integer
/// column fails the call.
///
/// The call fails if a field is not a number of its column's type. The call also fails if a row has
/// the wrong number of fields or exceeds `max_bytes`. With `on_error: skip`, the node continues
/// with the next row.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CsvSourceConfig {
    /// Path of the file, relative to the graph's folder.
    pub path: String,
    /// Columns to read, in the order of the output. A column is a name, an index from 0, or a map
    /// such as `{ name: t, type: i64, to: time }`. A map adds an output for the column, named by
    /// `to` (default: the column's name). Columns with the same `type` and `to` share one output.
    /// Default: all columns.
    #[serde(default)]
    pub columns: Vec<Column>,
    /// Element type of `row`. With `type: f32`, the node rounds numbers that `f32` cannot
    /// represent. Default: `f32`, or `f64` if `f32` would round a number in the first 1,000 rows.
    #[serde(rename = "type")]
    pub dtype: Option<DType>,
    /// Whether the first line contains the column names. Default: `true`, unless the first line
    /// contains only numbers.
    pub header: Option<bool>,
    /// Maximum size of a row in bytes, without separators and quotes, from `1B` to `1GiB`. Default:
    /// `1MiB`.
    #[serde(default = "max_bytes")]
    pub max_bytes: Bytes,
    /// Rows per second, such as `100Hz`. The scheduled time of row `n` is `n` periods after the
    /// first row. The origin of a row is the row's scheduled time, even if the row is late. By
    /// default, the node sends rows as fast as the graph accepts rows.
    pub rate: Option<Rate>,
    /// Number of passes over the file, at least 1. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

fn max_bytes() -> Bytes {
    Bytes(1 << 20)
}

/// Runs `kind: csv`; [`CsvSourceConfig`] says what it does.
#[derive(Debug)]
pub struct CsvSource {
    table: CsvTable,
    pace: Pace,
    passes: u32,
    /// Whether the next row was read to its end, or why it cannot be read; `None` at the end.
    /// Reading one row ahead tells which row is the last.
    ahead: Option<Result<bool, NodeError>>,
    /// Rows with a missing value, and where the first one is.
    missing: IncidentCounter,
}

impl CsvSource {
    /// Reads the next row, starting over at the end of the file while passes are left.
    fn advance(&mut self) {
        self.ahead = self.table.read();
        if self.ahead.is_none() && self.passes > 1 {
            self.passes -= 1;
            self.ahead = match self.table.rewind() {
                Ok(()) => self.table.read(),
                Err(error) => Some(Err(error)),
            };
        }
    }

    /// Reads the next row. The first row of another pass begins a segment.
    fn move_on(&mut self, out: &mut Emit<Many<Tensor>>) {
        let passes = self.passes;
        self.advance();
        if self.passes != passes {
            out.begin_segment();
        }
    }
}

impl Node for CsvSource {
    type Config = CsvSourceConfig;

    fn ports(config: &CsvSourceConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
        }
        if config.max_bytes.0 == 0 || config.max_bytes.0 > LONGEST_ROW {
            let message = format!("`max_bytes` must be 1B to 1GiB, got {}B", config.max_bytes.0);
            errors.at("max_bytes", message).help("write a size from 1B to 1GiB");
        }
        let mut ports = Pace::declare(config.rate, Ports::new().cost(Cost::Medium));
        ports = ports.memory(stream::buffer(config.max_bytes, Framing::Lines));
        match CsvTable::open(config, cx.folders, None) {
            Ok((_, planned)) => {
                let row = planned.ports.iter().find(|port| port.name == ROW);
                for label in row.iter().flat_map(|row| &row.labels) {
                    ports = ports.left_out(label.name(), "`row` contains the column, because `columns` sets no `type`");
                }
                ports =
                    planned.ports.into_iter().fold(ports, |ports, port| ports.output(port.name.clone(), port.spec()));
                ports = planned.notes.into_iter().fold(ports, Ports::note);
            }
            Err(problems) => errors.append(problems),
        }
        errors.into_result(ports)
    }

    fn build(config: CsvSourceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let row = cx.outputs().iter().find(|(name, _)| name == ROW).and_then(|(_, spec)| Some(spec.as_ref()?.dtype));
        let (table, _) = CsvTable::open(&config, cx.folders(), row).map_err(|problems| {
            let why: Vec<&str> = problems.messages().collect();
            NodeError::input(&*config.path, why.join("; "))
        })?;
        let mut node = CsvSource {
            table,
            pace: Pace::new(config.rate),
            passes: config.repeat,
            ahead: None,
            missing: cx.incidents("missing"),
        };
        node.advance();
        Ok(node)
    }

    fn metrics(&self, to: &mut Metrics) {
        if let Some(first) = self.missing.first() {
            let missing = self.missing.get();
            to.note(format!("rows with missing values, which are NaN: {missing} (first: {first})"));
        }
    }
}

impl Source for CsvSource {
    type Out = Many<Tensor>;

    fn next(&mut self, out: &mut Emit<Many<Tensor>>) -> Result<Next, NodeError> {
        if let Some(Ok(false)) = self.ahead {
            self.move_on(out);
            return Ok(Next::More);
        }
        if self.ahead.is_none() {
            return Ok(Next::Done);
        }
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        if let Some(Err(error)) = self.ahead.take() {
            // Retrying does not help if the file cannot be read; a bad row is skipped.
            if !matches!(error.kind(), limen::node::NodeErrorKind::File { .. }) {
                self.move_on(out);
            }
            return Err(error);
        }
        let header = out.header(origin);
        for (port, to) in out.iter_mut().enumerate().filter(|(_, to)| to.is_connected()) {
            let mut tensor = to.loan(&header)?;
            tensor.bytes_mut().copy_from_slice(self.table.port(port));
            to.send(tensor);
        }
        if let Some(place) = self.table.missing() {
            self.missing.note(1, place);
        }
        self.move_on(out);
        Ok(if self.ahead.is_none() { Next::Done } else { self.pace.then(out.now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::field::FieldPort;
    use crate::format::record::value_of;
    use limen::Folders;

    /// Returns the outputs and every row or error of a file as text.
    fn table(text: &str, keys: &str) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.csv"), text).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let config: CsvSourceConfig = serde_json::from_str(&format!("{{\"path\": \"t.csv\" {keys}}}")).unwrap();
        let repeat = config.repeat;
        let (table, planned) = match CsvTable::open(&config, &folders, None) {
            Ok(opened) => opened,
            Err(problems) => return (String::new(), problems.messages().map(String::from).collect()),
        };
        let outputs: Vec<String> =
            planned.ports.iter().map(|port| format!("{} {}{:?}", port.name, port.dtype, port.length)).collect();
        let mut node = CsvSource {
            table,
            pace: Pace::new(None),
            passes: repeat,
            ahead: None,
            missing: IncidentCounter::default(),
        };
        let mut found = Vec::new();
        node.advance();
        while let Some(row) = &node.ahead {
            if let Ok(false) = row {
                node.advance();
                continue;
            }
            let port = |(at, port): (usize, &FieldPort)| {
                let bytes = node.table.port(at);
                bytes.chunks_exact(port.dtype.size()).map(|b| value_of(port.dtype, b).to_string()).collect::<Vec<_>>()
            };
            let numbers = || planned.ports.iter().enumerate().flat_map(port).collect::<Vec<_>>().join(" ");
            found.push(row.as_ref().map_or_else(|e| e.to_string(), |_| numbers()));
            node.advance();
        }
        (outputs.join(", "), found)
    }

    fn rows(text: &str, columns: &[&str], repeat: u32) -> Vec<String> {
        rows_of(text, columns, repeat, Bytes(64))
    }

    fn rows_of(text: &str, columns: &[&str], repeat: u32, Bytes(max): Bytes) -> Vec<String> {
        table(text, &format!(", \"columns\": {columns:?}, \"repeat\": {repeat}, \"max_bytes\": \"{max}B\"")).1
    }

    #[test]
    fn rows_have_the_numbers_of_the_selected_columns() {
        let text = "t,x,y\n0,1.5,2\n1, -3e2 ,nan\n";
        assert_eq!(rows(text, &[], 1), ["0 1.5 2", "1 -300 NaN"]);
        assert_eq!(rows(text, &["y", "t"], 1), ["2 0", "NaN 1"]);
        assert_eq!(rows(text, &["t"], 3), ["0", "1", "0", "1", "0", "1"]);
        assert_eq!(rows("t,x\n", &[], 3), [""; 0]);
    }

    #[test]
    fn a_bad_row_is_reported_with_its_line_and_skipped() {
        let text = "t,x\n0,1\n1,one\n2\n3,\n4,5\n";
        let found = rows(text, &[], 1);
        let expected = [
            "0 1",
            "t.csv:3: column `x`: expected a number, found `one`",
            "t.csv:4: expected 2 fields as in the first line, found 1",
            "3 NaN",
            "4 5",
        ];
        assert_eq!(found, expected);
        let columns = ["unknown column `z`"];
        assert_eq!(rows(text, &["t", "z"], 1), columns);
        assert!(rows("", &[], 1)[0].contains("expected a line of column names or numbers"));
        for text in ["t;x\n1;2\n", "t\tx\n1\t2\n", "1;2\n"] {
            assert!(rows(text, &[], 1)[0].contains("expected columns separated by commas"), "{text}");
        }
        assert_eq!(table("t;x\n1\n", ", \"header\": true").1, ["1"]);
        let not_text = rows("t\n\"\u{1}\0\n", &[], 1);
        assert!(not_text[0].contains("expected a number, found"), "{not_text:?}");
    }

    /// Promise (files): A table row that exceeds its limit is skipped without being buffered.
    #[test]
    fn a_row_that_is_too_long_is_skipped_without_being_buffered() {
        let long = "9".repeat(300_000);
        let text = format!("t,x\n0,1\n1,{long}\n\"{long}\n\",{long}\n4,5\n");
        let found = rows_of(&text, &[], 2, Bytes(8));
        assert_eq!((found.len(), &*found[0], &*found[3]), (8, "0 1", "4 5"), "{found:?}");
        for (n, expected) in [
            (1, "t.csv:3 must be at most the planned 8, got 300001: write a larger `max_bytes`"),
            (2, "t.csv:4 must be at most the planned 8, got 600001"),
            (5, "t.csv:3 must be at most the planned 8, got 300001"),
        ] {
            assert!(found[n].starts_with(expected), "{n}: {found:?}");
        }
        // The longest row allowed, and a row with more fields than columns.
        assert_eq!(rows_of("t,x\n1234,1234\n", &[], 1, Bytes(8)), ["1234 1234"]);
        let many = format!("t,x\n{}\n1,2\n", ",".repeat(200_000));
        let expected = ["t.csv:2: expected 2 fields as in the first line, found 200001", "1 2"];
        assert_eq!(rows_of(&many, &[], 1, Bytes(8)), expected);
        assert!(rows_of("time,x\n", &[], 1, Bytes(4))[0].starts_with("the first line of "));
        let wide: Vec<String> = (0..100).map(|n| format!("c{n}")).collect();
        let wide = format!("{0}\n{0}\n", wide.join(",")).replacen("\nc", "\n", 1).replace(",c", ",");
        assert!(rows_of(&wide, &[], 1, Bytes(1 << 10))[0].ends_with("98 99"));
    }

    /// Times, counters and longitudes keep their digits, or are refused with the key to write.
    #[test]
    fn digits_are_kept_or_refused() {
        let typed = r#", "columns": [{"name": "t", "type": "i64"}, "x"]"#;
        let pair =
            r#", "columns": [{"name": "lat", "type": "f64", "to": "at"}, {"name": 1, "type": "f64", "to": "at"}]"#;
        for (text, keys, outputs, rows) in [
            ("t,x\n1,0.5\n", "", "row f32Some(2)", vec!["1 0.5"]),
            ("t\n16777217\n", "", "row f64Some(1)", vec!["16777217"]),
            ("t,x\n1700000000.123456,1\n", "", "row f64Some(2)", vec!["1700000000.123456 1"]),
            ("t,x\n1,1e39\n", "", "row f64Some(2)", vec!["1 1000000000000000000000000000000000000000"]),
            (
                "t,x\n1403636579758555393,1\n",
                "",
                "",
                vec!["f64 cannot represent `1403636579758555393` of the column `t` exactly"],
            ),
            ("t,x\n1403636579758555393,1\n", typed, "t i64None, row f32Some(1)", vec!["1403636579758555393 1"]),
            ("lat,lon\n48.123456789,-122.419415501\n", pair, "at f64Some(2)", vec!["48.123456789 -122.419415501"]),
            (
                "t,x\n1.5,1\n,1\n",
                typed,
                "t i64None, row f32Some(1)",
                vec![
                    "t.csv:2: column `t`: expected i64, found `1.5`",
                    "t.csv:3: column `t`: i64 cannot represent the missing value ``: write `type: f64`",
                ],
            ),
            (
                "t\n16777217\n1e39\n",
                ", \"type\": \"f32\"",
                "row f32Some(1)",
                vec!["16777216", "t.csv:3: column `t`: expected f32, found `1e39`"],
            ),
            ("t\n9223372036854775807\n", ", \"type\": \"i64\"", "row i64Some(1)", vec!["9223372036854775807"]),
        ] {
            assert_eq!(
                table(text, keys),
                (outputs.to_string(), rows.into_iter().map(String::from).collect()),
                "{text}"
            );
        }
        // Rows that the survey did not see.
        let late = format!("t\n{}16777217\n", "1\n".repeat(1000));
        let (_, found) = table(&late, "");
        let expected = "t.csv:1002: column `t`: f32 cannot represent `16777217` exactly: write `type: f64`, or `type: f32` to allow rounding";
        assert_eq!(found.last().unwrap(), expected);
    }

    #[test]
    fn a_missing_value_is_nan() {
        for word in
            ["", " ", "nan", "NaN", "-nan", "NA", "N/A", "n/a", "null", "NULL", "None", "<NA>", "#N/A", "-1.#IND"]
        {
            assert_eq!(table(&format!("t,x\n1,{word}\n"), "").1, ["1 NaN"], "{word}");
        }
        for word in ["none", "-", "x", "1,", "1e999"] {
            assert!(!table(&format!("t,x\n1,{word}\n"), "").1[0].contains("NaN"), "{word}");
        }
    }

    #[test]
    fn a_first_line_of_numbers_is_data_unless_the_config_says_otherwise() {
        for (text, keys, expected) in [
            ("1,2\n3,4\n", "", vec!["1 2", "3 4"]),
            ("1,\n3,4\n", "", vec!["1 NaN", "3 4"]),
            ("1,2\n3,4\n", ", \"header\": true", vec!["3 4"]),
            ("1,2\n3,4\n", ", \"columns\": [1]", vec!["2", "4"]),
            ("1,2\n3,4\n", ", \"repeat\": 2", vec!["1 2", "3 4", "1 2", "3 4"]),
            ("1,2\n3,4\n", ", \"columns\": [2]", vec!["a column number must be 0 to 1, got 2"]),
            (
                "1,2\n",
                ", \"columns\": [\"a\"]",
                vec!["expected a column number, found `a`: the first line of the file is data"],
            ),
            ("t,1\n3,4\n", "", vec!["3 4"]),
            ("t,1\n3,4\n", ", \"header\": false", vec!["t.csv:1: column `0`: expected a number, found `t`", "3 4"]),
            ("\u{feff}1,2\n", "", vec!["1 2"]),
        ] {
            assert_eq!(table(text, keys).1, expected, "{text:?} {keys}");
        }
    }
}
