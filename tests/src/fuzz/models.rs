//! Models that no exporter writes.

use super::pick;
use crate::protobuf::{field, model, node, number, tensor};

/// Operators with shape inference, and some unknown ones.
const OPS: &[&str] = &[
    "Add",
    "AveragePool",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "Einsum",
    "Expand",
    "Gather",
    "Gemm",
    "Identity",
    "If",
    "Loop",
    "MatMul",
    "MaxPool",
    "OneHot",
    "Pad",
    "Range",
    "Reshape",
    "Resize",
    "Shape",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
    "Upsample",
    "Frobnicate",
    "",
];

const NUMBERS: &[u64] = &[0, 1, 2, 3, 63, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];

/// Makes a model of a few random nodes.
pub fn made_up(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut names: Vec<String> = ["x", "w", "i", ""].map(String::from).to_vec();
    let mut nodes = Vec::new();
    for n in 0..1 + rng.usize(..6) {
        let inputs: Vec<String> = (0..rng.usize(..5)).map(|_| pick(rng, &names).clone()).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let mut more = Vec::new();
        for _ in 0..rng.usize(..3) {
            let name = pick(
                rng,
                &[
                    "axis",
                    "axes",
                    "perm",
                    "pads",
                    "kernel_shape",
                    "strides",
                    "dilations",
                    "group",
                    "k",
                    "value_ints",
                    "shape",
                    "equation",
                    "output_shape",
                    "value",
                ],
            );
            let mut attribute = field(1, *name);
            match rng.u8(..5) {
                0 => attribute.extend(number(3, *pick(rng, NUMBERS))),
                1 => {
                    attribute.extend(field(4, *pick(rng, &["ab,bc->ac", "->", "a->aaaaaaaa", "ij", "\u{e9}->", ",,"])))
                }
                2 => attribute.extend(field(5, tensor("t", &[*pick(rng, NUMBERS)], &[0; 8]))),
                3 => attribute.extend(field(6, [node("Relu", &["x"], "q", "", &[]), field(2, "g")].concat())),
                _ => (0..rng.usize(..6)).for_each(|_| attribute.extend(number(8, *pick(rng, NUMBERS)))),
            }
            more.extend(field(5, attribute));
        }
        let output = if rng.u8(..8) == 0 { pick(rng, &names).clone() } else { format!("a{n}") };
        nodes.push(node(pick::<&str>(rng, OPS), &inputs, &output, "", &more));
        names.push(output);
    }
    nodes.push(node("Relu", &[pick(rng, &names).as_str()], "y", "", &[]));
    let numbers: Vec<u8> = (0..3).flat_map(|_| number(7, *pick(rng, NUMBERS))).collect();
    let longs = [number(1, 3), number(2, 7), field(8, "i"), numbers].concat();
    let dims: Vec<u64> = (0..rng.usize(..4)).map(|_| *pick(rng, NUMBERS)).collect();
    model(&nodes, &[field(5, tensor("w", &dims, &[0; 8])), field(5, longs)].concat())
}

/// An operator: name, inputs, output, attributes.
type Real = (&'static str, &'static str, char, &'static [(&'static str, char)]);

/// Real operators with their inputs (`f` floats, `i` several integers, `s` one integer, `b`
/// booleans, `w` a matrix), output, and attributes, in the same letters (`t` an equation).
const REAL: &[Real] = &[
    ("Add", "ff", 'f', &[]),
    ("ArgMax", "f", 'i', &[("axis", 's'), ("keepdims", 's')]),
    ("AveragePool", "f", 'f', &[("kernel_shape", 'i'), ("strides", 'i'), ("pads", 'i'), ("ceil_mode", 's')]),
    ("BatchNormalization", "fffff", 'f', &[]),
    ("Clip", "fff", 'f', &[]),
    ("Compress", "fi", 'f', &[("axis", 's')]),
    ("Concat", "ff", 'f', &[("axis", 's')]),
    ("ConstantOfShape", "i", 'f', &[]),
    ("Conv", "ff", 'f', &[("kernel_shape", 'i'), ("strides", 'i'), ("pads", 'i'), ("dilations", 'i'), ("group", 's')]),
    ("ConvTranspose", "fw", 'f', &[("strides", 'i'), ("output_padding", 'i'), ("output_shape", 'i')]),
    ("CumSum", "fs", 'f', &[("reverse", 's')]),
    ("DepthToSpace", "f", 'f', &[("blocksize", 's')]),
    ("Div", "ff", 'f', &[]),
    ("Einsum", "fw", 'f', &[("equation", 't')]),
    ("Exp", "f", 'f', &[]),
    ("Expand", "fi", 'f', &[]),
    ("EyeLike", "f", 'f', &[("k", 's')]),
    ("Flatten", "f", 'f', &[("axis", 's')]),
    ("GRU", "fff", 'f', &[("hidden_size", 's')]),
    ("Gather", "fi", 'f', &[("axis", 's')]),
    ("GatherElements", "fi", 'f', &[("axis", 's')]),
    ("GatherND", "fi", 'f', &[("batch_dims", 's')]),
    ("Gemm", "fwf", 'f', &[("transA", 's'), ("transB", 's')]),
    ("LSTM", "fff", 'f', &[("hidden_size", 's')]),
    ("LayerNormalization", "ff", 'f', &[("axis", 's')]),
    ("MatMul", "fw", 'f', &[]),
    ("MaxPool", "f", 'f', &[("kernel_shape", 'i'), ("strides", 'i'), ("pads", 'i'), ("dilations", 'i')]),
    ("Mod", "ii", 'i', &[("fmod", 's')]),
    ("NonZero", "f", 'i', &[]),
    ("OneHot", "isf", 'f', &[("axis", 's')]),
    ("Pad", "fi", 'f', &[]),
    ("Pow", "ff", 'f', &[]),
    ("Range", "sss", 'i', &[]),
    ("ReduceMax", "f", 'f', &[("axes", 'i'), ("keepdims", 's')]),
    ("ReduceSum", "fi", 'f', &[("keepdims", 's')]),
    ("Reshape", "fi", 'f', &[("allowzero", 's')]),
    ("Resize", "fff", 'f', &[]),
    ("ScatterElements", "fif", 'f', &[("axis", 's')]),
    ("ScatterND", "fif", 'f', &[]),
    ("Shape", "f", 'i', &[("start", 's'), ("end", 's')]),
    ("Slice", "fiiii", 'f', &[]),
    ("Softmax", "f", 'f', &[("axis", 's')]),
    ("Split", "fi", 'f', &[("axis", 's'), ("num_outputs", 's')]),
    ("Squeeze", "fi", 'f', &[]),
    ("Tile", "fi", 'f', &[]),
    ("TopK", "fs", 'f', &[("axis", 's'), ("largest", 's')]),
    ("Transpose", "f", 'f', &[("perm", 'i')]),
    ("Trilu", "fs", 'f', &[("upper", 's')]),
    ("Unsqueeze", "fi", 'f', &[]),
    ("Where", "bff", 'f', &[]),
];

/// An integer that is valid in a shape, or an absurd one.
fn integer(rng: &mut fastrand::Rng) -> i64 {
    match rng.u8(..10) {
        0 => *pick(rng, &[63, 1 << 16, 1 << 20, 1 << 31, 1 << 40, i64::MAX, i64::MIN, -9]),
        _ => rng.i64(-2..5),
    }
}

/// A `TensorProto` of `i64`.
fn integers(name: &str, dims: &[u64], values: &[i64]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| number(1, *dim)).collect();
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [dims, number(2, 7), field(8, name), field(9, raw)].concat()
}

fn attribute(rng: &mut fastrand::Rng, name: &str, letter: char) -> Vec<u8> {
    let (value, kind) = match letter {
        't' => (field(4, *pick(rng, &["ab,bc->ac", "ab,ab->", "ab,cd->abcd", "aa,bc->ac", "a...,b->b"])), 3),
        's' => (number(3, integer(rng).cast_unsigned()), 2),
        _ => ((0..1 + rng.usize(..4)).flat_map(|_| number(8, integer(rng).cast_unsigned())).collect(), 7),
    };
    field(5, [field(1, name), value, number(20, kind)].concat())
}

/// A `Loop` with `turns` iterations, whose body passes on a condition and floats.
fn loop_node(input: &str, turns: &str, output: &str) -> Vec<u8> {
    let value = |tag, name: &str, elem| field(tag, [field(1, name), field(2, field(1, number(1, elem)))].concat());
    let body = [
        node("Identity", &["c"], "c2", "", &[]),
        node("Exp", &["v"], "v2", "", &[]),
        field(2, "body"),
        [value(11, "i", 7), value(11, "c", 9), value(11, "v", 1)].concat(),
        [value(12, "c2", 9), value(12, "v2", 1)].concat(),
    ];
    let body = field(5, [field(1, "body"), field(6, body.concat()), number(20, 5)].concat());
    node("Loop", &[turns, "yes", input], output, "turns", &body)
}

/// Makes a model for the runtimes: real operators on inputs of the right type, with absurd numbers.
/// Its input `x` is `f32[n,2]`, and usually so is its output `y`.
pub fn plausible(rng: &mut fastrand::Rng) -> Vec<u8> {
    let (mut floats, mut several) =
        (vec!["x".to_string(), "w".into()], vec!["i0".to_string(), "i1".into(), "i2".into()]);
    let mut nodes = Vec::new();
    for n in 0..1 + rng.usize(..4) {
        let output = format!("a{n}");
        if rng.u8(..12) == 0 {
            let input = pick(rng, &floats).clone();
            nodes.push(loop_node(&input, pick::<&str>(rng, &["s0", "s1"]), &output));
            floats.push(output);
            continue;
        }
        let (op, takes, gives, attributes) = pick(rng, REAL);
        let inputs: Vec<String> = takes
            .chars()
            .map(|letter| match letter {
                // Often the newest value, so that operators form chains.
                'f' if rng.bool() => floats[floats.len() - 1].clone(),
                'f' => pick(rng, &floats).clone(),
                'i' => pick(rng, &several).clone(),
                's' => (*pick(rng, &["s0", "s1"])).into(),
                'b' => "yes".into(),
                _ => "w".into(),
            })
            .collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let mut more = Vec::new();
        for (name, letter) in *attributes {
            if rng.u8(..3) == 0 {
                more.extend(attribute(rng, name, *letter));
            }
        }
        nodes.push(node(op, &inputs, &output, &format!("n{n}"), &more));
        let made = if *gives == 'f' { &mut floats } else { &mut several };
        made.push(output);
    }
    let last = &floats[floats.len() - 1];
    if rng.u8(..4) == 0 {
        nodes.push(node("Relu", &[last], "y", "", &[]));
    } else {
        let keepdims = field(5, [field(1, "keepdims"), number(3, 0), number(20, 2)].concat());
        nodes.push(node("ReduceSum", &[last], "r", "", &keepdims));
        nodes.push(node("Add", &["x", "r"], "y", "", &[]));
    }
    let weight: Vec<u8> = (0..4).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let mut more = field(5, tensor("w", &[2, 2], &weight));
    for name in ["i0", "i1", "i2"] {
        let length = if rng.u8(..8) == 0 { 0 } else { 1 + rng.usize(..3) };
        let values: Vec<i64> = (0..length).map(|_| integer(rng)).collect();
        more.extend(field(5, integers(name, &[values.len() as u64], &values)));
    }
    for name in ["s0", "s1"] {
        more.extend(field(5, integers(name, &[], &[integer(rng)])));
    }
    more.extend(field(5, [number(2, 9), field(8, "yes"), field(9, [1])].concat()));
    model(&nodes, &more)
}
