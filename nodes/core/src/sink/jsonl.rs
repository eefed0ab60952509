//! JSON Lines: one JSON object per line.

use crate::file::output_file::{self, Exists, FullDisk, MessageEnd, OnFull, OutputFile};
use crate::tensor::text::{NonFinite, Values};
use limen::message::PortSpec;
use limen::node::{
    Building, Connected, Cost, Lead, Many, MessageSet, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Writes one JSON object per message to a file, one per line: `{"seq":0,"<input>":...}`.
///
/// Inputs may have any names. A scalar is a number, text is a string, and any other tensor is a
/// nested array. NaN and infinities are `null`. With several inputs, `seq` is the sequence number
/// of the trigger or anchor message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct JsonlConfig {
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

/// Runs `kind: jsonl`; [`JsonlConfig`] says what it does.
#[derive(Debug)]
pub struct Jsonl {
    file: OutputFile,
    /// `,"name":` of every input, and whether it is text.
    keys: Vec<(String, bool)>,
    lead: Lead,
    line: Vec<u8>,
}

/// Appends a JSON string. Invalid UTF-8 becomes U+FFFD.
fn push_string(text: &[u8], line: &mut Vec<u8>) -> Result<(), NodeError> {
    serde_json::to_writer(line, &String::from_utf8_lossy(text)).map_err(NodeError::other)
}

/// Appends elements as arrays nested by a shape.
fn push_nested(values: Values<'_>, shape: &[usize], start: usize, line: &mut Vec<u8>) {
    let Some((length, inner)) = shape.split_first() else {
        return values.list(start..start + 1, NonFinite::Json, line);
    };
    line.push(b'[');
    if inner.is_empty() {
        values.list(start..start + length, NonFinite::Json, line);
    } else {
        let size: usize = inner.iter().product();
        for i in 0..*length {
            if i > 0 {
                line.push(b',');
            }
            push_nested(values, inner, start + i * size, line);
        }
    }
    line.push(b']');
}

fn push_tensor(message: &Message<Tensor>, is_text: bool, line: &mut Vec<u8>) -> Result<(), NodeError> {
    if is_text {
        return push_string(message.body.bytes(), line);
    }
    push_nested(Values::of(&message.body)?, &message.body.shape(), 0, line);
    Ok(())
}

impl Node for Jsonl {
    type Config = JsonlConfig;

    fn ports(config: &JsonlConfig, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut ports = Ports::new().cost(Cost::Medium);
        for (name, spec) in given.inputs() {
            ports = match spec {
                Some(spec) => ports.input(name, spec.clone()),
                None => ports.input_any(name),
            };
        }
        let ports = output_file::plan(&config.path, config.exists, cx, ports, &mut errors);
        errors.into_result(ports)
    }

    fn build(config: JsonlConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        // Names of inputs need no escaping.
        let key = |(name, spec): &(String, Option<PortSpec>)| {
            (format!(",\"{name}\":"), spec.as_ref().is_some_and(PortSpec::is_text))
        };
        let keys = cx.inputs().iter().map(key).collect();
        let mut file = OutputFile::open(cx.folders(), &config.path, config.exists, FullDisk::new(config.on_full, cx))?;
        file.resume(MessageEnd::Mark(b'\n'))?;
        Ok(Jsonl { file, keys, lead: cx.lead(), line: Vec::new() })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("rows", self.file.messages() as f64);
        self.file.metrics(to);
    }
}

impl Sink for Jsonl {
    type In = Many<Tensor>;

    fn take(&mut self, input: MessageSet<Tensor>) -> Result<(), NodeError> {
        self.line.clear();
        self.line.extend_from_slice(b"{\"seq\":");
        Values::U64(&[self.lead.header_of::<Self::In>(&input).seq]).list(0..1, NonFinite::Json, &mut self.line);
        for (message, (key, is_text)) in input.iter().zip(&self.keys) {
            self.line.extend_from_slice(key.as_bytes());
            push_tensor(message, *is_text, &mut self.line)?;
        }
        self.line.extend_from_slice(b"}\n");
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

    #[test]
    fn tensors_are_arrays_nested_by_their_shape() {
        let values = [1.0, 2.5, f32::NAN, 4.0, 5.0, 6.0];
        for (shape, expected) in [
            (&[][..], "1"),
            (&[6], "[1,2.5,null,4,5,6]"),
            (&[2, 3], "[[1,2.5,null],[4,5,6]]"),
            (&[3, 2, 1], "[[[1],[2.5]],[[null],[4]],[[5],[6]]]"),
            (&[0], "[]"),
            (&[0, 6], "[]"),
            (&[2, 0], "[[],[]]"),
        ] {
            let mut line = Vec::new();
            push_nested(Values::F32(&values), shape, 0, &mut line);
            assert_eq!(String::from_utf8(line).unwrap(), expected, "{shape:?}");
        }
    }

    #[test]
    fn text_is_escaped() {
        for (text, expected) in
            [(&b"a.png"[..], r#""a.png""#), (b"\"\\\n\x1b", r#""\"\\\n\u001b""#), (b"\xff", "\"\u{fffd}\"")]
        {
            let mut line = Vec::new();
            push_string(text, &mut line).unwrap();
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }
}
