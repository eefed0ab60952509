//! Binary packets from numbers.

use crate::tensor::packet::{Endian, Field, Layout, Vector, layout, put_parts};
use crate::tensor::{header, joined, shape};
use limen::Tensor;
use limen::message::{Content, DType, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Writes numbers to binary packets `u8[n]`, as `decode` reads them: each field is an input with its name, `type[]`, or `type[repeat]`. A
/// single input may have any name.
///
/// With `format: struct` fields are at fixed offsets, as in a C struct or in Python's `struct.pack`. Fields with the same `to` are one input
/// of that name, `type[k]`, in their order. Bytes outside all fields are 0. The packet has the header of the message that began first.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// The layout of a packet.
    pub format: Format,
    /// The fields. Each has a `name` and a `type` (`f32`, `u16`). Optional: `offset` in bytes from the start of the packet, by default the
    /// end of the previous field; `repeat`, the number of values in a row; `endian`, by default that of the config; `to`, the name of the
    /// input, by default that of the field.
    pub fields: Vec<Field>,
    /// Byte order of fields without their own `endian`; `little` by default.
    #[serde(default)]
    pub endian: Endian,
    /// The length of a packet in bytes; by default it ends with the last field.
    pub size: Option<usize>,
}

/// The layout of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Numbers at fixed offsets.
    Struct,
}

/// Returns the inputs of a config and the length of a packet, and reports all its errors.
fn planned(config: &Config, errors: &mut PlanErrors) -> (Vec<Vector>, usize) {
    let fields = Layout { fields: &config.fields, endian: config.endian, size: config.size };
    let (vectors, least) = layout(fields, None, errors);
    // In the order of the packet, with the field that each range belongs to.
    let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
    let mut end = 0usize;
    for (at, field) in config.fields.iter().enumerate() {
        let begin = field.offset.unwrap_or(end);
        end = begin.saturating_add(field.repeat.unwrap_or(1).saturating_mul(field.dtype.size()));
        ranges.push((begin, end, at));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2).filter(|pair| pair[1].0 < pair[0].1) {
        let [one, other] = [pair[0].2, pair[1].2].map(|at| &config.fields[at].name);
        let message = format!("`{other}` begins at byte {}, and `{one}` ends at {}", pair[1].0, pair[0].1);
        errors.at(format!("fields[{}].name", pair[1].2), message).help("write another `offset`");
    }
    (vectors, config.size.unwrap_or(least))
}

/// The node.
#[derive(Debug)]
pub struct Encode {
    /// The fields of each input.
    inputs: Vec<Vector>,
}

impl Node for Encode {
    type Config = Config;

    fn ports(config: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let (vectors, size) = planned(config, &mut errors);
        let count = given.inputs().count();
        let is_alone = count == 1 && vectors.len() == 1;
        for (name, _) in
            given.inputs().filter(|(name, _)| !is_alone && vectors.iter().all(|vector| vector.name != *name))
        {
            let known: Vec<String> = vectors.iter().map(|vector| format!("`{}`", vector.name)).collect();
            let help = format!("the fields are {}", known.join(", "));
            errors.input(name, format!("no field is called `{name}`")).help(help);
        }
        for vector in vectors.iter().filter(|vector| !is_alone && given.inputs().all(|(name, _)| name != vector.name)) {
            errors
                .at("fields", format!("nothing is connected to `{}`", vector.name))
                .help("connect it, or leave the field out: its bytes are 0");
        }
        let spec = |name: &str| {
            let vector = vectors.iter().find(|vector| is_alone || vector.name == name);
            vector.map(|vector| PortSpec::fixed(vector.dtype, vector.length))
        };
        let ports = given.inputs().fold(Ports::new(), |ports, (name, _)| match spec(name) {
            Some(spec) => ports.input(name, spec),
            None => ports.input_any(name),
        });
        let packet = PortSpec::fixed(DType::U8, [size]).with_content(Content::Bytes);
        errors.into_result(shape::gives(ports, Some(packet)))
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        // Errors of the config were reported while planning.
        let (vectors, _) = planned(&config, &mut PlanErrors::default());
        let names = joined::names(cx);
        let is_alone = names.len() == 1 && vectors.len() == 1;
        let of = |name: &String| vectors.iter().find(|vector| is_alone || vector.name == *name).cloned();
        Ok(Encode { inputs: names.iter().filter_map(of).collect() })
    }
}

impl Transform for Encode {
    type In = Many<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let mut packet = out.loan(header::of_set(&input))?;
        let bytes = packet.bytes_mut();
        bytes.fill(0);
        for (message, vector) in std::iter::zip(input.iter(), &self.inputs) {
            put_parts(&vector.parts, vector.dtype.size(), message.body.bytes(), bytes);
        }
        out.send(packet);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::packet::copy_parts;

    fn config(fields: &str, keys: &str) -> Config {
        let text = format!("{{\"format\": \"struct\", \"fields\": [{fields}] {keys}}}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let fields = r#"{"name": "a", "type": "u16", "endian": "big"}, {"name": "b", "type": "f32", "offset": 4, "repeat": 2, "to": "v"},
            {"name": "c", "type": "f32", "endian": "big", "to": "v"}, {"name": "d", "type": "i8", "offset": 2}"#;
        let (vectors, size) = planned(&config(fields, r#", "size": 20"#), &mut PlanErrors::default());
        assert_eq!(size, 20);
        let numbers: Vec<Vec<u8>> = vec![
            0x1234u16.to_ne_bytes().into(),
            [1.5f32, -2.0, 3.25].iter().flat_map(|number| number.to_ne_bytes()).collect(),
            vec![0xf0],
        ];
        let mut packet = vec![0; size];
        for (vector, numbers) in std::iter::zip(&vectors, &numbers) {
            put_parts(&vector.parts, vector.dtype.size(), numbers, &mut packet);
        }
        let expected = [
            &[0x12, 0x34, 0xf0, 0][..],
            &1.5f32.to_le_bytes(),
            &(-2.0f32).to_le_bytes(),
            &3.25f32.to_be_bytes(),
            &[0; 4],
        ];
        assert_eq!(packet, expected.concat());
        for (vector, numbers) in std::iter::zip(&vectors, &numbers) {
            let mut read = vec![0; numbers.len()];
            copy_parts(&vector.parts, vector.dtype.size(), &packet, &mut read);
            assert_eq!(read, *numbers, "{}", vector.name);
        }
    }

    #[test]
    fn fields_that_lie_in_each_other_are_refused() {
        for (fields, keys, expected) in [
            (
                r#"{"name": "a", "type": "u16"}, {"name": "b", "type": "u16", "offset": 1}"#,
                "",
                "`b` begins at byte 1, and `a` ends at 2",
            ),
            (
                r#"{"name": "a", "type": "u32", "offset": 2}, {"name": "b", "type": "u32", "offset": 0}"#,
                "",
                "`a` begins at byte 2",
            ),
            (r#"{"name": "a", "type": "u32"}"#, r#", "size": 3"#, "`a` ends at byte 4, but `size` has 3"),
            ("", "", "there is no field"),
        ] {
            let mut errors = PlanErrors::default();
            planned(&config(fields, keys), &mut errors);
            let found: Vec<&str> = errors.messages().collect();
            assert!(found.iter().any(|found| found.contains(expected)), "{fields}: {found:?}");
        }
    }
}
