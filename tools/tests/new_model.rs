//! Graphs that `limen-run new --model` writes: each runs, or says why not.

use crate::program::Folder;
use crate::trials::{FLOAT, I64, integer, node, weight};
use limen_tests::protobuf::{field, number};
use std::fs;

/// An input or output of a model; a dim is a number or a name.
fn side(tag: u64, (name, elem, dims): Side<'_>) -> Vec<u8> {
    let dim = |dim: &&str| field(1, dim.parse().map_or_else(|_| field(2, dim), |length| number(1, length)));
    let dims: Vec<u8> = dims.iter().flat_map(dim).collect();
    field(tag, [field(1, name), field(2, field(1, [number(1, elem), field(2, dims)].concat()))].concat())
}

type Side<'a> = (&'a str, u64, &'a [&'a str]);

/// The file of a model.
fn model(inputs: &[Side<'_>], outputs: &[Side<'_>], parts: &[Vec<u8>], metadata: &[(&str, &str)]) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|input| side(11, *input)).collect();
    let outputs: Vec<u8> = outputs.iter().flat_map(|output| side(12, *output)).collect();
    let entry = |(key, value): &(&str, &str)| field(14, [field(1, key), field(2, value)].concat());
    let metadata: Vec<u8> = metadata.iter().flat_map(entry).collect();
    let graph = [parts.concat(), field(2, "g"), inputs, outputs].concat();
    [number(1, 8), field(7, graph), field(8, number(2, 17)), metadata].concat()
}

fn longs(name: &str, numbers: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    weight(name, I64, &[numbers.len() as u64], &bytes)
}

fn float(name: &str, number: f32) -> Vec<u8> {
    weight(name, FLOAT, &[], &number.to_le_bytes())
}

/// Nodes that add the mean of a tensor to another, and 1 to the tensor.
fn memory(x: &str, y: &str, state: &str, next: &str) -> Vec<Vec<u8>> {
    vec![
        node("ReduceMean", &[state], &["mean"], &integer("keepdims", 0)),
        node("Add", &[x, "mean"], &[y], &[]),
        float("one", 1.0),
        node("Add", &[state, "one"], &[next], &[]),
    ]
}

/// A detector that gives 300 boxes of 6 numbers for an image.
fn end_to_end() -> Vec<Vec<u8>> {
    vec![
        node("GlobalAveragePool", &["images"], &["p"], &[]),
        node("Flatten", &["p"], &["f"], &[]),
        longs("twice", &[1, 2]),
        node("Tile", &["f", "twice"], &["t"], &[]),
        longs("rows", &[1]),
        node("Unsqueeze", &["t", "rows"], &["u"], &[]),
        longs("times", &[1, 300, 1]),
        node("Tile", &["u", "times"], &["output0"], &[]),
    ]
}

#[test]
fn every_graph_runs() {
    let mean = field(5, [field(1, "axes"), number(8, 1), number(20, 7)].concat());
    let ultralytics = [
        ("task", "detect"),
        ("stride", "32"),
        ("imgsz", "[64, 96]"),
        ("names", r#"{0: 'code', 1: "a ${HOME}", 2: 'bar'}"#),
        ("end2end", "True"),
    ];
    // A size that no image has, and numbers of classes that no list has.
    let lies =
        [("stride", "32"), ("imgsz", "[99999999, 99999999]"), ("names", "{4294967295: 'a'}"), ("end2end", "True")];
    let first = field(5, [field(1, "axes"), number(8, 0), number(20, 7)].concat());
    let cases: [(&str, Vec<u8>, &[&str]); 11] = [
        (
            // A cloud of points: the first dim is no batch, as the output shows.
            "points",
            model(
                &[("points", FLOAT, &["num_points", "3"])],
                &[("code", FLOAT, &["3"])],
                &[node("ReduceMax", &["points"], &["code"], &[integer("keepdims", 0), first.clone()].concat())],
                &[],
            ),
            &["batch_dim: none", "a guess: no output has the dim `num_points`", "path: out/code.csv"],
        ),
        (
            // A network on graphs: with one node, there is none for the edges.
            "nodes",
            model(
                &[("feat", FLOAT, &["num_nodes", "4"]), ("edges", I64, &["2", "num_edges"])],
                &[("y", FLOAT, &["num_nodes", "4"])],
                &[
                    longs("flat", &[-1]),
                    node("Reshape", &["edges", "flat"], &["ends"], &[]),
                    node("Gather", &["feat", "ends"], &["g"], &[]),
                    node("ReduceMean", &["g"], &["mean"], &first),
                    node("Add", &["feat", "mean"], &["y"], &[]),
                ],
                &[],
            ),
            &["batch_dim: none", "a guess: the model does not run with this dim as a batch"],
        ),
        (
            // YAML has other values of these names, and the model has a state.
            "words",
            model(
                &[("null", FLOAT, &["n", "3"]), ("true", FLOAT, &["n", "4"])],
                &[("false", FLOAT, &["n", "3"]), ("yes", FLOAT, &["n", "4"])],
                &[node("Neg", &["null"], &["false"], &[]), node("Neg", &["true"], &["yes"], &[])],
                &[],
            ),
            &[r#""null": "#, r#""true": "#],
        ),
        (
            // Declared without dims.
            "noshape",
            model(
                &[("x", FLOAT, &["n", "3", "h", "w"])],
                &[("y", FLOAT, &[])],
                &[node("ReduceMean", &["x"], &["y"], &mean)],
                &[],
            ),
            &["path: out/y.npy"],
        ),
        (
            // One dim of two inputs, of which each alone would have another length.
            "twolengths",
            model(
                &[("states", FLOAT, &["n", "length", "8"]), ("mask", I64, &["n", "length"])],
                &[("y", FLOAT, &["n", "length", "8"])],
                &[
                    node("Cast", &["mask"], &["m"], &integer("to", FLOAT)),
                    longs("axes", &[2]),
                    node("Unsqueeze", &["m", "axes"], &["u"], &[]),
                    node("Mul", &["states", "u"], &["y"], &[]),
                ],
                &[],
            ),
            &["path: mask.npy"],
        ),
        (
            // A state of which only the shape is that of one.
            "dtln",
            model(
                &[("input_2", FLOAT, &["1", "1", "257"]), ("input_3", FLOAT, &["1", "2", "128", "2"])],
                &[("activation_2", FLOAT, &["1", "1", "257"]), ("stack_2", FLOAT, &["1", "2", "128", "2"])],
                &memory("input_2", "activation_2", "input_3", "stack_2"),
                &[],
            ),
            &["state: [{ input: input_3, output: stack_2 }]", "a guess: `input_3` and `stack_2` are a state"],
        ),
        (
            // The shape of an image.
            "fsmn",
            model(
                &[("speech", FLOAT, &["1", "frames", "400"]), ("in_cache0", FLOAT, &["1", "128", "19", "1"])],
                &[("logits", FLOAT, &["1", "frames", "400"]), ("out_cache0", FLOAT, &["1", "128", "l", "1"])],
                &memory("speech", "logits", "in_cache0", "out_cache0"),
                &[],
            ),
            &["state: [{ input: in_cache0, output: out_cache0 }]"],
        ),
        (
            // It grows from call to call.
            "growing",
            model(
                &[("x", FLOAT, &["n", "4"]), ("past_key", FLOAT, &["1", "past", "4"])],
                &[("y", FLOAT, &["n", "4"]), ("present_key", FLOAT, &["1", "total", "4"])],
                &[
                    node("Neg", &["x"], &["y"], &[]),
                    node("Concat", &["past_key", "past_key"], &["present_key"], &integer("axis", 1)),
                ],
                &[],
            ),
            &["past_key: past_key_array", "`past_key` and `present_key` look like a state, but cannot be a state here"],
        ),
        (
            "ultralytics",
            model(
                &[("images", FLOAT, &["batch", "3", "height", "width"])],
                &[("output0", FLOAT, &["batch", "300", "6"])],
                &end_to_end(),
                &ultralytics,
            ),
            &[
                "kind: letterbox",
                "width: 96, height: 64",
                "layout: v10",
                r#"labels: ["code", "a $${HOME}", "bar"]"#,
                "`imgsz` of the model's metadata",
            ],
        ),
        (
            "lies",
            model(
                &[("images", FLOAT, &["batch", "3", "height", "width"])],
                &[("output0", FLOAT, &["batch", "300", "6"])],
                &end_to_end(),
                &lies,
            ),
            &["width: 320, height: 320", "layout: v10"],
        ),
        (
            // An item for the table `y`, and one for the list: of as many rows as values say.
            "values",
            model(
                &[("x", FLOAT, &["n", "4"])],
                &[("y", FLOAT, &["n", "4"]), ("z", I64, &["2", "k"])],
                &[node("Neg", &["x"], &["y"], &[]), node("NonZero", &["x"], &["z"], &[])],
                &[],
            ),
            &["path: out/y.csv", "path: out/z.jsonl", "max: { z: "],
        ),
    ];
    let folder = Folder::with("new-models", "");
    for (name, model, expected) in cases {
        fs::write(folder.0.join("m.onnx"), model).unwrap();
        folder.run(&format!("new {name} --model m.onnx")).expect(0, "/graph.yaml --plan", "");
        let written = fs::read_to_string(folder.0.join(name).join("graph.yaml")).unwrap();
        // Long comments are broken into lines.
        let joined = written.replace("\n    # ", " ");
        for part in expected {
            assert!(written.contains(part) || joined.contains(part), "{name}: {part}\n{written}");
        }
        let left = [".trial-run", "out"].map(|left| folder.0.join(name).join(left).exists());
        assert_eq!(left, [false; 2], "{name}");
        folder.run(&format!("{name}/graph.yaml -q")).expect(0, "", "");
    }
}

#[test]
fn a_graph_that_does_not_run_says_why() {
    let x = [("x", FLOAT, &["n", "4"][..])];
    let places = |nodes: Vec<Vec<u8>>| model(&x, &[("y", FLOAT, &["n", "4"])], &nodes, &[]);
    let cases = [
        ("unknown", places(vec![node("Wrong", &["x"], &["y"], &[])]), "E0130", ""),
        (
            // It takes zeros, and no other numbers: those of the file.
            "picky",
            places(vec![
                float("many", 1000.0),
                node("Mul", &["x", "many"], &["m"], &[]),
                node("Cast", &["m"], &["at"], &integer("to", I64)),
                weight("table", FLOAT, &[1], &0f32.to_le_bytes()),
                node("Gather", &["table", "at"], &["y"], &[]),
            ]),
            "node `model` failed",
            "",
        ),
    ];
    let folder = Folder::with("new-models-that-fail", "");
    for (name, model, why, left) in cases {
        fs::write(folder.0.join("m.onnx"), model).unwrap();
        let says = format!("{name}/graph.yaml does not run: ");
        folder.run(&format!("new {name} --model m.onnx")).expect(2, left, &says).expect(2, left, why);
        let written = fs::read_to_string(folder.0.join(name).join("graph.yaml")).unwrap();
        let comment: String = written.lines().filter_map(|line| line.strip_prefix("# ")).collect::<Vec<_>>().join(" ");
        assert!(comment.contains("It does not run yet: ") && comment.contains(why), "{written}");
        let left = [".trial-run", "out"].map(|left| folder.0.join(name).join(left).exists());
        assert_eq!(left, [false; 2], "{name}");
        // The file can be read, and fails for that reason alone.
        let ran = folder.run(&format!("{name}/graph.yaml -q"));
        assert_ne!(ran.code, Some(0), "{written}");
    }
}
