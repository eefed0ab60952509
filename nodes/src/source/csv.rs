//! Numbers from a table.

use super::pace::Pace;
use ::csv::{ByteRecord, Position, Reader, ReaderBuilder};
use limen::unit::Rate;
use limen::{
    Building, Cost, DType, Emit, Folders, Given, Next, Node, NodeError, PlanErrors, Planning, PortSpec, Ports, Source,
    Tensor,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::File;
use std::path::PathBuf;

/// Reads the rows of a comma-separated file as numbers: `row` `f32[n]`.
///
/// The first line names the columns. A field that is not a number fails one call; with `on_error: skip` the next row
/// follows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// The columns to read, in the order of the output; all by default.
    #[serde(default)]
    pub columns: Vec<String>,
    /// How many rows a second, such as `100Hz`: row `n` is sent `n` periods after the first, and late ones keep their
    /// intended time as origin. As fast as they are taken by default.
    pub rate: Option<Rate>,
    /// How many times the file is gone through; 1 by default.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// The node.
#[derive(Debug)]
pub struct Csv {
    table: Table,
    pace: Pace,
    passes: u32,
    /// The row to be sent next, or why it cannot be read; `None` at the end. It is read ahead, so that the last row
    /// is known to be the last.
    ahead: Option<Result<(), NodeError>>,
}

/// An open file and the columns that are wanted of it.
#[derive(Debug)]
struct Table {
    written: String,
    path: PathBuf,
    reader: Reader<File>,
    /// Where the first row begins.
    start: Position,
    columns: Vec<(usize, String)>,
    record: ByteRecord,
    row: Vec<f32>,
}

/// What is wrong with a table while planning, and the field that is to blame.
type Wrong = (String, String);

impl Table {
    fn open(config: &Config, folders: &Folders) -> Result<Table, Vec<Wrong>> {
        let at_path = |message: String| vec![("path".to_string(), message)];
        let path = folders.input(&config.path).map_err(at_path)?;
        let file = File::open(&path).map_err(|e| at_path(format!("`{}`: {e}", path.display())))?;
        let mut reader = ReaderBuilder::new().from_reader(file);
        let header = reader.headers().map_err(|e| at_path(format!("`{}`: {e}", path.display())))?.clone();
        if header.is_empty() {
            return Err(at_path(format!("`{}` is empty; its first line must name the columns", path.display())));
        }
        let names: Vec<&str> = header.iter().map(str::trim).collect();
        let mut wrong = Vec::new();
        let mut columns: Vec<(usize, String)> = Vec::new();
        for (i, wanted) in config.columns.iter().enumerate() {
            match names.iter().position(|name| name == wanted) {
                Some(at) => columns.push((at, wanted.clone())),
                None => {
                    let message = format!("there is no column `{wanted}`; the file has: {}", names.join(", "));
                    wrong.push((format!("columns[{i}]"), message));
                }
            }
        }
        if config.columns.is_empty() {
            columns = names.iter().map(|name| name.to_string()).enumerate().collect();
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let start = reader.position().clone();
        let row = Vec::with_capacity(columns.len());
        let written = config.path.clone();
        Ok(Table { written, path, reader, start, columns, record: ByteRecord::new(), row })
    }

    /// Reads the next row; `None` at the end of the file.
    fn read(&mut self) -> Option<Result<(), NodeError>> {
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => Some(self.parse()),
            Ok(false) => None,
            Err(error) => Some(Err(self.blame(error))),
        }
    }

    fn parse(&mut self) -> Result<(), NodeError> {
        self.row.clear();
        for (at, name) in &self.columns {
            let field = self.record.get(*at).unwrap_or_default();
            let Some(value) = std::str::from_utf8(field).ok().and_then(|text| text.trim().parse().ok()) else {
                let line = self.record.position().map_or(0, Position::line);
                let field = String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
                let why = format!("`{field}` is not a number");
                return Err(NodeError::input(format!("{}:{line}: column `{name}`", self.written), why));
            };
            self.row.push(value);
        }
        Ok(())
    }

    fn blame(&self, error: ::csv::Error) -> NodeError {
        let line = error.position().map_or(0, Position::line);
        match error.into_kind() {
            ::csv::ErrorKind::Io(error) => NodeError::file(&self.path, error),
            ::csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                let why = format!("the row has {len} fields, the first line has {expected_len}");
                NodeError::input(format!("{}:{line}", self.written), why)
            }
            kind => NodeError::input(format!("{}:{line}", self.written), format!("{kind:?}")),
        }
    }
}

impl Csv {
    /// Reads the row to be sent next, from the beginning again while passes are left.
    fn advance(&mut self) {
        self.ahead = self.table.read();
        if self.ahead.is_none() && self.passes > 1 {
            self.passes -= 1;
            self.ahead = match self.table.reader.seek(self.table.start.clone()) {
                Ok(()) => self.table.read(),
                Err(error) => Some(Err(self.table.blame(error))),
            };
        }
    }

    /// Finds what is to be sent next. Where that is the first of another pass, it begins a segment.
    fn move_on(&mut self, out: &mut Emit<Tensor>) {
        let passes = self.passes;
        self.advance();
        if self.passes != passes {
            out.begin_segment();
        }
    }
}

impl Node for Csv {
    type Config = Config;

    fn ports(config: &Config, _: &Given, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "0 passes over the rows send nothing").help("write 1 or more");
        }
        let mut ports = Ports::new().cost(Cost::Medium).rate(config.rate);
        match Table::open(config, cx.folders) {
            Ok(table) => ports = ports.output("row", PortSpec::fixed(DType::F32, [table.columns.len()])),
            Err(wrong) => wrong.into_iter().for_each(|(field, message)| {
                errors.at(field, message);
            }),
        }
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let table = Table::open(&config, cx.folders()).map_err(|wrong| {
            let why: Vec<String> = wrong.into_iter().map(|(_, message)| message).collect();
            NodeError::input(&*config.path, why.join("; "))
        })?;
        let mut node = Csv { table, pace: Pace::new(config.rate), passes: config.repeat, ahead: None };
        node.advance();
        Ok(node)
    }
}

impl Source for Csv {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.ahead.is_none() {
            return Ok(Next::Done);
        }
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        match self.ahead.take() {
            Some(Err(error)) => {
                // A file that cannot be read does not become readable by asking again; a bad row is passed over.
                if !matches!(error.kind(), limen::NodeErrorKind::File { .. }) {
                    self.move_on(out);
                }
                return Err(error);
            }
            _ if out.is_connected() => {
                let header = out.header(origin);
                let mut row = out.loan(&header)?;
                row.as_mut_slice::<f32>()?.copy_from_slice(&self.table.row);
                out.send(row);
            }
            _ => {}
        }
        self.move_on(out);
        Ok(if self.ahead.is_none() { Next::Done } else { self.pace.then(out.now()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row or error of a file, in words.
    fn rows(text: &str, columns: &[&str], repeat: u32) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.csv"), text).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let columns = columns.iter().map(|c| c.to_string()).collect();
        let config = Config { path: "t.csv".into(), columns, rate: None, repeat };
        let table = match Table::open(&config, &folders) {
            Ok(table) => table,
            Err(wrong) => return wrong.into_iter().map(|(field, message)| format!("{field}: {message}")).collect(),
        };
        let mut node = Csv { table, pace: Pace::new(None), passes: repeat, ahead: None };
        let mut said = Vec::new();
        node.advance();
        while let Some(row) = &node.ahead {
            said.push(row.as_ref().map_or_else(|e| e.to_string(), |()| format!("{:?}", node.table.row)));
            node.advance();
        }
        said
    }

    #[test]
    fn rows_are_numbers_of_the_wanted_columns() {
        let text = "t,x,y\n0,1.5,2\n1, -3e2 ,nan\n";
        assert_eq!(rows(text, &[], 1), ["[0.0, 1.5, 2.0]", "[1.0, -300.0, NaN]"]);
        assert_eq!(rows(text, &["y", "t"], 1), ["[2.0, 0.0]", "[NaN, 1.0]"]);
        assert_eq!(rows(text, &["t"], 3), ["[0.0]", "[1.0]", "[0.0]", "[1.0]", "[0.0]", "[1.0]"]);
        assert_eq!(rows("t,x\n", &[], 3), [""; 0]);
    }

    #[test]
    fn a_bad_row_is_named_and_passed_over() {
        let text = "t,x\n0,1\n1,one\n2\n3,\n4,5\n";
        let said = rows(text, &[], 1);
        let expected = [
            "[0.0, 1.0]",
            "t.csv:3: column `x`: `one` is not a number",
            "t.csv:4: the row has 1 fields, the first line has 2",
            "t.csv:5: column `x`: `` is not a number",
            "[4.0, 5.0]",
        ];
        assert_eq!(said, expected);
        let columns = ["columns[1]: there is no column `z`; the file has: t, x"];
        assert_eq!(rows(text, &["t", "z"], 1), columns);
        assert!(rows("", &[], 1)[0].contains("first line must name the columns"));
        let not_text = rows("t\n\"\u{1}\0\n", &[], 1);
        assert!(not_text[0].contains("is not a number"), "{not_text:?}");
    }
}
