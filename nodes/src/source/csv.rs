//! Numbers from CSV files.

use crate::pace::Pace;
use crate::stream::{self, Framing};
use csv_core::{ReadRecordResult, Reader};
use limen::files::InputFile;
use limen::message::{DType, Label, PortSpec};
use limen::node::{
    Building, Connected, Cost, Emit, Next, Node, NodeError, NodeErrorKind, PlanErrors, Planning, Ports, Source,
};
use limen::unit::{Bytes, Rate};
use limen::{Folders, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, ErrorKind, Read as _, Seek, SeekFrom};
use std::ops::Range;

/// Reads the rows of a comma-separated file as numbers: `row` `f32[n]`.
///
/// The first line names the columns, with units in brackets or without: `ax (m/s²)`; names and units go on into tables and recordings. A
/// field that is not a number, or a row that is too long, fails one call; with
/// `on_error: skip` the next row follows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The file, relative to the graph's folder.
    pub path: String,
    /// The columns to read, in the order of the output; all by default.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Bytes of the longest row, not counting separators and quotes, such as `4MiB`; `1MiB` by default.
    #[serde(default = "max_bytes")]
    pub max_bytes: Bytes,
    /// Rows per second, such as `100Hz`: row `n` is due `n` periods after the first, and a late one keeps its due time as
    /// origin. By default rows are sent as fast as the graph takes them.
    pub rate: Option<Rate>,
    /// How many times to read the file; 1 by default.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

fn max_bytes() -> Bytes {
    Bytes(1 << 20)
}

/// Upper bound of `max_bytes`.
const LONGEST_ROW: u64 = 1 << 30;
/// Bytes per read.
const INPUT: usize = 64 << 10;

/// The node.
#[derive(Debug)]
pub struct Csv {
    table: Table,
    pace: Pace,
    passes: u32,
    /// The next row, or why it cannot be read; `None` at the end. Reading one row ahead tells which row is the last.
    ahead: Option<Result<(), NodeError>>,
}

/// An open file and the columns to read.
#[derive(Debug)]
struct Table {
    /// The path as the config has it, for messages.
    path: String,
    reader: Rows,
    /// Byte offset and line number of the first row.
    start: (u64, u64),
    /// The number of columns in the first line.
    width: usize,
    columns: Vec<(usize, String)>,
    row: Vec<f32>,
}

/// A problem with a table found while planning: the config field and the message.
type TableProblem = (String, String);

/// The result of reading a row.
enum Read {
    /// A row with this many fields.
    Row(usize),
    /// A row that is too long, with its bytes.
    TooLong(usize),
    End,
}

/// The rows of a file. A row longer than `max` is read to its end without being buffered.
#[derive(Debug)]
struct Rows {
    file: InputFile,
    parser: Reader,
    input: Box<[u8]>,
    /// The range of `input` that was read but not yet parsed.
    ahead: Range<usize>,
    /// The byte offset in the file up to which it was parsed.
    at: u64,
    /// The row's fields, one byte longer than a row may be.
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// The number of the line in which the row begins.
    line: u64,
}

impl Rows {
    fn new(file: InputFile, max: usize) -> Self {
        Rows {
            file,
            parser: Reader::new(),
            input: vec![0; INPUT].into_boxed_slice(),
            ahead: 0..0,
            at: 0,
            fields: vec![0; max + 1],
            ends: vec![0; 16],
            line: 1,
        }
    }

    /// Reads the next row. Fields beyond the first `keep` are counted but not kept.
    fn read(&mut self, keep: usize) -> io::Result<Read> {
        self.line = self.parser.line();
        let (mut filled, mut count, mut too_long) = (0, 0, 0);
        loop {
            if self.ahead.is_empty() {
                let n = self.file.read(&mut self.input).or_else(|error| match error.kind() {
                    ErrorKind::Interrupted => self.file.read(&mut self.input),
                    _ => Err(error),
                })?;
                self.ahead = 0..n;
            }
            if count == self.ends.len() && count < keep {
                self.ends.resize((2 * count).min(keep), 0);
            }
            // Fields that are not kept overwrite each other.
            let ends_at = if count < self.ends.len() { count } else { self.ends.len() - 1 };
            let (result, taken, put, ended) = self.parser.read_record(
                &self.input[self.ahead.clone()],
                &mut self.fields[filled..],
                &mut self.ends[ends_at..],
            );
            self.ahead.start += taken;
            self.at += taken as u64;
            filled += put;
            count += ended;
            if filled == self.fields.len() {
                too_long += filled;
                filled = 0;
            }
            match result {
                ReadRecordResult::Record if too_long > 0 => return Ok(Read::TooLong(too_long + filled)),
                ReadRecordResult::Record => return Ok(Read::Row(count)),
                ReadRecordResult::End => return Ok(Read::End),
                _ => {}
            }
        }
    }

    fn field(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.fields[begin..self.ends[at]]
    }

    fn rewind(&mut self, (at, line): (u64, u64)) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.parser.reset();
        self.parser.set_line(line);
        (self.ahead, self.at) = (0..0, at);
        Ok(())
    }
}

/// Returns the name and the unit of a column: `ax (m/s²)`.
fn label(column: &str) -> Label {
    let parts = column.strip_suffix(')').and_then(|column| column.split_once('('));
    let (name, unit) = parts.unwrap_or((column, ""));
    Label::of(name.trim(), unit.trim())
}

impl Table {
    fn spec(&self) -> PortSpec {
        PortSpec::fixed(DType::F32, [self.columns.len()]).with_labels(self.columns.iter().map(|(_, name)| label(name)))
    }

    fn open(config: &Config, folders: &Folders) -> Result<Table, Vec<TableProblem>> {
        let at_path = |message: String| vec![("path".to_string(), message)];
        let file = folders.open(&config.path).map_err(|e| at_path(e.to_string()))?;
        let shown = file.path().display().to_string();
        let max = config.max_bytes.0;
        let mut reader = Rows::new(file, usize::try_from(max.clamp(1, LONGEST_ROW)).unwrap_or_default());
        let width = match reader.read(usize::MAX) {
            Ok(Read::Row(width)) => width,
            Ok(Read::End) => {
                return Err(at_path(format!("`{shown}` is empty; its first line must name the columns")));
            }
            Ok(Read::TooLong(_)) => {
                let message = format!("the first line of `{shown}` has more than {max} bytes");
                return Err(vec![("max_bytes".to_string(), message)]);
            }
            Err(error) => return Err(at_path(format!("`{shown}`: {error}"))),
        };
        let names: Option<Vec<&str>> = (0..width).map(|n| Some(str::from_utf8(reader.field(n)).ok()?.trim())).collect();
        let names = names.ok_or_else(|| at_path(format!("the first line of `{shown}` is not UTF-8")))?;
        let mut problems = Vec::new();
        let mut columns: Vec<(usize, String)> = Vec::new();
        for (i, wanted) in config.columns.iter().enumerate() {
            match names.iter().position(|name| name == wanted) {
                Some(at) => columns.push((at, wanted.clone())),
                None => {
                    let message = format!("there is no column `{wanted}`; the file has: {}", names.join(", "));
                    problems.push((format!("columns[{i}]"), message));
                }
            }
        }
        if config.columns.is_empty() {
            columns = names.iter().map(|name| name.to_string()).enumerate().collect();
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let start = (reader.at, reader.parser.line());
        let row = Vec::with_capacity(columns.len());
        Ok(Table { path: config.path.clone(), reader, start, width, columns, row })
    }

    /// Reads the next row; `None` at the end of the file.
    fn read(&mut self) -> Option<Result<(), NodeError>> {
        let place = |line: u64| format!("{}:{line}", self.path);
        match self.reader.read(self.width) {
            Ok(Read::Row(fields)) if fields == self.width => Some(self.parse()),
            Ok(Read::Row(fields)) => {
                let why = format!("the row has {fields} fields, the first line has {}", self.width);
                Some(Err(NodeError::input(place(self.reader.line), why)))
            }
            Ok(Read::TooLong(bytes)) => {
                let max = self.reader.fields.len() - 1;
                let what = place(self.reader.line);
                Some(Err(NodeErrorKind::TooLarge { what, size: bytes, bound: max, key: "max_bytes" }.into()))
            }
            Ok(Read::End) => None,
            Err(error) => Some(Err(self.read_error(error))),
        }
    }

    fn parse(&mut self) -> Result<(), NodeError> {
        self.row.clear();
        for (at, name) in &self.columns {
            let field = self.reader.field(*at);
            let Some(value) = str::from_utf8(field).ok().and_then(|text| text.trim().parse().ok()) else {
                let line = self.reader.line;
                let field = String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
                let why = format!("`{field}` is not a number");
                return Err(NodeError::input(format!("{}:{line}: column `{name}`", self.path), why));
            };
            self.row.push(value);
        }
        Ok(())
    }

    fn read_error(&self, error: io::Error) -> NodeError {
        NodeError::file(self.reader.file.path(), error)
    }
}

impl Csv {
    /// Reads the next row, starting over at the end of the file while passes are left.
    fn advance(&mut self) {
        self.ahead = self.table.read();
        if self.ahead.is_none() && self.passes > 1 {
            self.passes -= 1;
            self.ahead = match self.table.reader.rewind(self.table.start) {
                Ok(()) => self.table.read(),
                Err(error) => Some(Err(self.table.read_error(error))),
            };
        }
    }

    /// Reads the next row. The first row of another pass begins a segment.
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

    fn ports(config: &Config, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "0 passes send nothing").help("write 1 or more");
        }
        if config.max_bytes.0 == 0 || config.max_bytes.0 > LONGEST_ROW {
            let message = format!("{} bytes is out of range", config.max_bytes.0);
            errors.at("max_bytes", message).help("write a size from 1B to 1GiB");
        }
        let mut ports =
            Ports::new().cost(Cost::Medium).rate(config.rate).memory(stream::buffer(config.max_bytes, Framing::Lines));
        match Table::open(config, cx.folders) {
            Ok(table) => ports = ports.output("row", table.spec()),
            Err(problems) => problems.into_iter().for_each(|(field, message)| {
                errors.at(field, message);
            }),
        }
        errors.into_result(ports)
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let table = Table::open(&config, cx.folders()).map_err(|problems| {
            let why: Vec<String> = problems.into_iter().map(|(_, message)| message).collect();
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
                // Retrying does not help if the file cannot be read; a bad row is skipped.
                if !matches!(error.kind(), limen::node::NodeErrorKind::File { .. }) {
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

    /// Returns every row or error of a file as text.
    fn rows(text: &str, columns: &[&str], repeat: u32) -> Vec<String> {
        rows_of(text, columns, repeat, Bytes(64))
    }

    fn rows_of(text: &str, columns: &[&str], repeat: u32, max_bytes: Bytes) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.csv"), text).unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let columns = columns.iter().map(|c| c.to_string()).collect();
        let config = Config { path: "t.csv".into(), columns, max_bytes, rate: None, repeat };
        let table = match Table::open(&config, &folders) {
            Ok(table) => table,
            Err(problems) => {
                return problems.into_iter().map(|(field, message)| format!("{field}: {message}")).collect();
            }
        };
        let mut node = Csv { table, pace: Pace::new(None), passes: repeat, ahead: None };
        let mut found = Vec::new();
        node.advance();
        while let Some(row) = &node.ahead {
            found.push(row.as_ref().map_or_else(|e| e.to_string(), |()| format!("{:?}", node.table.row)));
            node.advance();
        }
        found
    }

    #[test]
    fn rows_have_the_numbers_of_the_selected_columns() {
        let text = "t,x,y\n0,1.5,2\n1, -3e2 ,nan\n";
        assert_eq!(rows(text, &[], 1), ["[0.0, 1.5, 2.0]", "[1.0, -300.0, NaN]"]);
        assert_eq!(rows(text, &["y", "t"], 1), ["[2.0, 0.0]", "[NaN, 1.0]"]);
        assert_eq!(rows(text, &["t"], 3), ["[0.0]", "[1.0]", "[0.0]", "[1.0]", "[0.0]", "[1.0]"]);
        assert_eq!(rows("t,x\n", &[], 3), [""; 0]);
    }

    #[test]
    fn a_bad_row_is_reported_with_its_line_and_skipped() {
        let text = "t,x\n0,1\n1,one\n2\n3,\n4,5\n";
        let found = rows(text, &[], 1);
        let expected = [
            "[0.0, 1.0]",
            "t.csv:3: column `x`: `one` is not a number",
            "t.csv:4: the row has 1 fields, the first line has 2",
            "t.csv:5: column `x`: `` is not a number",
            "[4.0, 5.0]",
        ];
        assert_eq!(found, expected);
        let columns = ["columns[1]: there is no column `z`; the file has: t, x"];
        assert_eq!(rows(text, &["t", "z"], 1), columns);
        assert!(rows("", &[], 1)[0].contains("first line must name the columns"));
        let not_text = rows("t\n\"\u{1}\0\n", &[], 1);
        assert!(not_text[0].contains("is not a number"), "{not_text:?}");
    }

    #[test]
    fn a_row_that_is_too_long_is_skipped_without_being_buffered() {
        let long = "9".repeat(300_000);
        let text = format!("t,x\n0,1\n1,{long}\n\"{long}\n\",{long}\n4,5\n");
        let found = rows_of(&text, &[], 2, Bytes(8));
        assert_eq!((found.len(), &*found[0], &*found[3]), (8, "[0.0, 1.0]", "[4.0, 5.0]"), "{found:?}");
        for (n, expected) in [
            (1, "t.csv:3: 300001 is more than the 8 that were planned; raise max_bytes"),
            (2, "t.csv:4: 600001 is more than the 8"),
            (5, "t.csv:3: 300001 is"),
        ] {
            assert!(found[n].starts_with(expected), "{n}: {found:?}");
        }
        // The longest row allowed, and a row with more fields than columns.
        assert_eq!(rows_of("t,x\n1234,1234\n", &[], 1, Bytes(8)), ["[1234.0, 1234.0]"]);
        let many = format!("t,x\n{}\n1,2\n", ",".repeat(200_000));
        let expected = ["t.csv:2: the row has 200001 fields, the first line has 2", "[1.0, 2.0]"];
        assert_eq!(rows_of(&many, &[], 1, Bytes(8)), expected);
        assert!(rows_of("time,x\n", &[], 1, Bytes(4))[0].starts_with("max_bytes: the first line of "));
        let wide: Vec<String> = (0..100).map(|n| format!("c{n}")).collect();
        let wide = format!("{0}\n{0}\n", wide.join(",")).replacen("\nc", "\n", 1).replace(",c", ",");
        assert!(rows_of(&wide, &[], 1, Bytes(1 << 10))[0].ends_with("98.0, 99.0]"));
    }
}
