//! Models, damaged and made up: what is said of a file, before any runtime sees it, is found or refused. H4.
//!
//! What the runtimes make of them is tried where a process may die for it.

use super::{attack, damage, files, pick, root};
use limen_backends::onnx::Artifact;
use limen_tests::protobuf::{field, model, node, number, tensor};
use std::path::Path;

/// Operators whose shapes are followed, and some that nobody knows.
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

/// A model of a few nodes, each of anything.
fn made_up(rng: &mut fastrand::Rng) -> Vec<u8> {
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

fn look(bytes: Vec<u8>) -> bool {
    Artifact::parse(Path::new("/nowhere/model.onnx"), bytes).map_err(|error| error.to_string()).is_ok()
}

#[test]
fn damaged_models_are_understood_or_refused() {
    let mut shipped: Vec<Vec<u8>> =
        files(&root().join("graphs"), &["onnx"]).into_iter().map(|path| std::fs::read(path).unwrap()).collect();
    shipped.retain(|bytes| bytes.len() < 1 << 20);
    assert!(!shipped.is_empty());
    attack("models", 1000, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = if rng.bool() { made_up(&mut rng) } else { pick(&mut rng, &shipped).clone() };
        if rng.u8(..3) > 0 {
            damage(&mut rng, &mut bytes);
        }
        Ok(look(bytes))
    });
}

#[test]
fn models_that_were_found_are_still_refused() {
    for path in files(&root().join("tests/fuzz/cases"), &["onnx"]) {
        look(std::fs::read(path).unwrap());
    }
}
