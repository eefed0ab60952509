//! Models encoded byte by byte, so that they can contain what no exporter writes.

fn varint(mut n: u64, into: &mut Vec<u8>) {
    while n > 127 {
        into.push(n as u8 | 128);
        n >>= 7;
    }
    into.push(n as u8);
}

/// Encodes a field with a number.
pub fn number(tag: u64, n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(tag << 3, &mut bytes);
    varint(n, &mut bytes);
    bytes
}

/// Encodes a field with bytes: text, or a message.
pub fn field(tag: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut bytes = Vec::with_capacity(content.len() + 8);
    varint(tag << 3 | 2, &mut bytes);
    varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// Encodes a `ValueInfoProto` of `f32` with a symbolic batch dim.
pub fn value(name: &str, dims: &[u64]) -> Vec<u8> {
    let mut shape = field(1, field(2, "n"));
    dims.iter().for_each(|dim| shape.extend(field(1, number(1, *dim))));
    let tensor = [number(1, 1), field(2, shape)].concat();
    [field(1, name), field(2, field(1, tensor))].concat()
}

/// Encodes a `TensorProto` of `f32`.
pub fn tensor(name: &str, dims: &[u64], raw: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| number(1, *dim)).collect();
    [dims, number(2, 1), field(8, name), field(9, raw)].concat()
}

/// Encodes a node of a graph, with more fields at the end.
pub fn node(op: &str, inputs: &[&str], output: &str, name: &str, more: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = inputs.iter().flat_map(|input| field(1, input)).collect();
    bytes.extend([field(2, output), field(3, name), field(4, op)].concat());
    bytes.extend_from_slice(more);
    field(1, bytes)
}

/// Encodes a model of one input `x` and one output `y`, with more fields of its graph.
pub fn model(nodes: &[Vec<u8>], more: &[u8]) -> Vec<u8> {
    let graph =
        [nodes.concat(), field(2, "g"), more.to_vec(), field(11, value("x", &[2])), field(12, value("y", &[2]))]
            .concat();
    [number(1, 8), field(7, graph), field(8, [field(1, ""), number(2, 17)].concat())].concat()
}
