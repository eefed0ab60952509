//! Tables as CSV files.

use crate::file::output_file::{self, Exists, FullDisk, MessageEnd, OnFull, OutputFile};
use crate::tensor::text::{NonFinite, Values};
use limen::Tensor;
use limen::message::{DType, Dim, Label, PortSpec};
use limen::node::{
    Building, Connected, Cost, Lead, Many, MessageSet, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};

/// Most columns of a table.
const MAX_COLUMNS: usize = 1024;

/// Writes one row per message to a comma-separated file: the sequence number (`seq`), then the
/// value of each input.
///
/// With several inputs, `seq` is the sequence number of the trigger or anchor message. Inputs may
/// have any names. The columns follow the order of the inputs in the graph file.
///
/// A scalar or text input has one column: `<input>`. A tensor of fixed shape has one column per
/// element: `<input>_0`, `<input>_1` and so on. If the elements have names, the columns are
/// `<input>_<name>`. A unit follows in parentheses: `imu_ax (m/s²)`. A table has at most 1024
/// columns.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CsvSinkConfig {
    /// Path of the file, relative to the graph's folder or to the folder given with `--out`. If the
    /// last folder of the path does not exist, the node creates it.
    pub path: String,
    /// Action if the file already exists. Default: `replace`.
    #[serde(default)]
    pub exists: Exists,
    /// Action if the disk is full. Default: `drop`.
    #[serde(default)]
    pub on_full: OnFull,
}

/// Runs `kind: csv`; [`CsvSinkConfig`] says what it does.
#[derive(Debug)]
pub struct CsvSink {
    file: OutputFile,
    /// Which inputs are text.
    texts: Vec<bool>,
    lead: Lead,
    line: Vec<u8>,
}

/// Returns the header of a table, without a line ending.
fn header<'a>(inputs: impl Iterator<Item = (&'a str, &'a PortSpec)>) -> String {
    let mut header = String::from("seq");
    for (name, spec) in inputs {
        let is_single = spec.shape.is_empty() || spec.is_text();
        let labels = if spec.shape.len() <= 1 { spec.labels() } else { &[] };
        for i in 0..if is_single { 1 } else { spec.max_elements().unwrap_or(0) } {
            let label = labels.get(i);
            // Writing to a string cannot fail.
            let is_own =
                |name: &&str| !name.is_empty() && labels.iter().filter(|label| label.name() == *name).count() == 1;
            let _ = match label.map(Label::name).filter(is_own) {
                _ if is_single => write!(header, ",{name}"),
                Some(label) => write!(header, ",{name}_{label}"),
                None => write!(header, ",{name}_{i}"),
            };
            if let Some(unit) = label.map(Label::unit).filter(|unit| !unit.is_empty()) {
                let _ = write!(header, " ({unit})");
            }
        }
    }
    header
}

/// Appends text as one field, quoted where necessary. Invalid UTF-8 becomes U+FFFD.
fn push_text(text: &[u8], line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    let text = text.as_bytes();
    if !text.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r')) {
        return line.extend_from_slice(text);
    }
    line.push(b'"');
    for byte in text {
        if *byte == b'"' {
            line.push(b'"');
        }
        line.push(*byte);
    }
    line.push(b'"');
}

impl CsvSink {
    /// Writes the header, or compares it with that of the file that is appended to.
    fn begin(&mut self, header: &str) -> Result<(), NodeError> {
        if !self.file.continues {
            self.file.push(header.as_bytes());
            self.file.push(b"\n");
            return Ok(());
        }
        let path = self.file.path();
        let mut first = String::new();
        let file = self.file.open_existing()?;
        // A longer first line differs from the header: there is no need to read it to its end.
        let most = header.len() as u64 + 2;
        BufReader::new(std::io::Read::take(file, most)).read_line(&mut first).map_err(|e| NodeError::file(path, e))?;
        let first = first.trim_end_matches(['\r', '\n']);
        if first != header {
            let why = format!("cannot append rows: expected the header `{header}`, found `{first}`");
            return Err(NodeError::input(path.display().to_string(), why));
        }
        Ok(())
    }
}

impl Node for CsvSink {
    type Config = CsvSinkConfig;

    fn ports(config: &CsvSinkConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut ports = Ports::new().cost(Cost::Medium);
        let mut columns = 1usize;
        for (name, spec) in given.inputs() {
            let Some(spec) = spec else {
                ports = ports.input_any(name);
                continue;
            };
            let is_text = spec.is_text();
            if let Some(dim) = spec.shape.iter().find(|d| !matches!(d, Dim::Fixed(_))).filter(|_| !is_text) {
                let message = format!("expected tensors of a fixed shape, found {spec} with the varying dim {dim}");
                let is_bytes = spec.dtype == DType::U8 && spec.shape.len() == 1;
                errors.input(name, message).help(if is_bytes {
                    "use `kind: jsonl`, write `content: text` at a source of text, or add a `decode` node upstream"
                } else {
                    "use `kind: jsonl`"
                });
            }
            columns = columns.saturating_add(if is_text { 1 } else { spec.max_elements().unwrap_or(1) });
            if columns > MAX_COLUMNS {
                let message = format!("the table must have at most {MAX_COLUMNS} columns, got {columns} with {spec}");
                errors.input(name, message).help("use `kind: jsonl`, or add a `slice` node upstream");
                break;
            }
            ports = ports.input(name, spec.clone());
        }
        let ports = output_file::plan(&config.path, config.exists, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: CsvSinkConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut inputs = Vec::new();
        for (name, spec) in cx.inputs() {
            let unknown = || NodeError::input(&**name, "the shape must be known during planning");
            inputs.push((name.as_str(), spec.as_ref().ok_or_else(unknown)?));
        }
        let texts = inputs.iter().map(|(_, spec)| spec.is_text()).collect();
        let header = header(inputs.into_iter());
        let mut file = OutputFile::open(cx.folders(), &config.path, config.exists, FullDisk::new(config.on_full, cx))?;
        file.resume(MessageEnd::Mark(b'\n'))?;
        let mut node = CsvSink { file, texts, lead: cx.lead(), line: Vec::new() };
        node.begin(&header)?;
        Ok(node)
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("rows", self.file.messages() as f64);
        self.file.metrics(to);
    }
}

impl Sink for CsvSink {
    type In = Many<Tensor>;

    fn take(&mut self, input: MessageSet<Tensor>) -> Result<(), NodeError> {
        self.line.clear();
        Values::U64(&[self.lead.header_of::<Self::In>(&input).seq]).list(0..1, NonFinite::Plain, &mut self.line);
        for (message, is_text) in input.iter().zip(&self.texts) {
            self.line.push(b',');
            if *is_text {
                push_text(message.body.bytes(), &mut self.line);
            } else {
                let values = Values::of(&message.body)?;
                values.list(0..values.len(), NonFinite::Plain, &mut self.line);
            }
        }
        self.line.push(b'\n');
        self.file.write(&self.line)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), NodeError> {
        self.file.flush()
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.file.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::Folders;
    use limen::message::Content;

    #[test]
    fn columns_are_named_after_their_inputs() {
        let scalar = PortSpec::fixed(DType::I32, []);
        let vector = PortSpec::fixed(DType::F32, [3]);
        let array = PortSpec::fixed(DType::F32, [2, 2]);
        let name = PortSpec::new(DType::U8, [Dim::AtMost(255)]).with_content(Content::Text);
        for (inputs, expected) in [
            (vec![("label", &scalar), ("score", &scalar)], "seq,label,score"),
            (vec![("x", &vector)], "seq,x_0,x_1,x_2"),
            (vec![("name", &name), ("a", &array)], "seq,name,a_0,a_1,a_2,a_3"),
            (vec![], "seq"),
        ] {
            assert_eq!(header(inputs.into_iter()), expected);
        }
    }

    #[test]
    fn text_with_commas_is_one_field() {
        for (text, expected) in [
            (&b"a.png"[..], "a.png"),
            (b"a,b", "\"a,b\""),
            (b"a\"b", "\"a\"\"b\""),
            (b"a\nb", "\"a\nb\""),
            (b"", ""),
            // The first of the two bytes of a letter.
            (b"a\xc3", "a\u{fffd}"),
            (b"\xff,", "\"\u{fffd},\""),
        ] {
            let mut line = Vec::new();
            push_text(text, &mut line);
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }

    #[test]
    fn rows_are_appended_only_if_the_header_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let begin = |header: &str| {
            let file = OutputFile::open(&folders, "a.csv", Exists::Append, FullDisk::default()).unwrap();
            let mut node = CsvSink { file, texts: Vec::new(), lead: Lead::default(), line: Vec::new() };
            node.begin(header)?;
            node.file.finish()
        };
        begin("seq,a").unwrap();
        begin("seq,a").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a.csv")).unwrap(), "seq,a\n");
        for other in ["seq,ab", "seq", "seq,b"] {
            let error = begin(other).unwrap_err().to_string();
            assert!(error.contains("cannot append rows"), "{error}");
        }
    }
}
