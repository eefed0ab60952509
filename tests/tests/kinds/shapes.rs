//! The kinds that change shapes.

use super::{check, refused, run};
use std::fs;

/// Each output of a row of six numbers equals what NumPy makes of it, for every element type.
#[test]
fn elements_of_every_type_are_moved_as_by_numpy() {
    // r = row.reshape(2, -1); then as JSON: r, r.T, r[:, ::-1], r[:, -1], r[1:, 0:3:2], np.pad(r,
    // ((1, 0), (0, 1)), constant_values=7), np.concatenate([r, r[:, ::-1]], 1),
    // np.stack([r, r[:, ::-1]], -1).
    let expected = r#"
{"seq":0,"r":[[0,1,2],[3,4,5]],"t":[[0,3],[1,4],[2,5]],"back":[[2,1,0],[5,4,3]],"i":[2,5],"s":[[3,5]],"p":[[7,7,7,7],[0,1,2,7],[3,4,5,7]],"c":[[0,1,2,2,1,0],[3,4,5,5,4,3]],"k":[[[0,2],[1,1],[2,0]],[[3,5],[4,4],[5,3]]]}
{"seq":1,"r":[[10,20,30],[40,50,60]],"t":[[10,40],[20,50],[30,60]],"back":[[30,20,10],[60,50,40]],"i":[30,60],"s":[[40,60]],"p":[[7,7,7,7],[10,20,30,7],[40,50,60,7]],"c":[[10,20,30,30,20,10],[40,50,60,60,50,40]],"k":[[[10,30],[20,20],[30,10]],[[40,60],[50,50],[60,40]]]}"#;
    for dtype in ["f32", "f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"] {
        let graph = format!(
            "
  a: {{ kind: csv, config: {{ path: in.csv, columns: [a, b, c, d, e, f] }} }}
  row: {{ kind: cast, config: {{ dtype: {dtype} }}, from: a }}
  r: {{ kind: reshape, config: {{ shape: [2, -1] }}, from: row }}
  t: {{ kind: transpose, config: {{ order: [1, 0] }}, from: r }}
  back: {{ kind: slice, config: {{ dim: -1, step: -1 }}, from: r }}
  i: {{ kind: slice, config: {{ dim: 1, index: -1 }}, from: r }}
  last: {{ kind: slice, config: {{ from: 1 }}, from: r }}
  s: {{ kind: slice, config: {{ dim: 1, from: 0, to: 3, step: 2 }}, from: last }}
  p: {{ kind: pad, config: {{ before: [1, 0], after: [0, 1], value: 7 }}, from: r }}
  c: {{ kind: concat, config: {{ dim: 1 }}, inputs: {{ left: r, right: back }} }}
  k: {{ kind: stack, config: {{ dim: -1 }}, inputs: {{ one: r, other: back }} }}
  z: {{ kind: jsonl, config: {{ path: out.txt }}, inputs: {{ r: r, t: t, back: back, i: i, s: s, p: p, c: c, k: k }} }}"
        );
        check(&[("in.csv", b"a,b,c,d,e,f\n0,1,2,3,4,5\n10,20,30,40,50,60\n")], &graph, expected);
    }
}

#[test]
fn lengths_may_vary_from_message_to_message() {
    let graph = "
  a: { kind: synthetic, config: { pattern: counter, dtype: f32, count: 5 } }
  w: { kind: window, config: { length: 3 }, from: a }
  column: { kind: reshape, config: { shape: [-1, 1] }, from: w }
  line: { kind: transpose, config: { order: [1, 0] }, from: column }
  rest: { kind: slice, config: { from: 1 }, from: w }
  two: { kind: slice, config: { from: -2 }, from: w }
  p: { kind: pad, config: { to: [4], value: -1 }, from: w }
  c: { kind: concat, inputs: { w: w, rest: rest } }
  k: { kind: stack, inputs: { two: two, again: two } }
  z: { kind: jsonl, config: { path: out.txt }, inputs: { column: column, line: line, rest: rest, two: two, p: p, c: c, k: k } }";
    let expected = r#"
{"seq":0,"column":[[0],[1],[2]],"line":[[0,1,2]],"rest":[1,2],"two":[1,2],"p":[0,1,2,-1],"c":[0,1,2,1,2],"k":[[1,2],[1,2]]}
{"seq":3,"column":[[3],[4]],"line":[[3,4]],"rest":[4],"two":[3,4],"p":[3,4,-1,-1],"c":[3,4,4],"k":[[3,4],[3,4]]}"#;
    check(&[], graph, expected);
}

#[test]
fn what_does_not_fit_is_refused_with_the_kind_that_helps() {
    let names: Vec<String> = (0..17).map(|n| format!("i{n}: a")).collect();
    let wide = |kind: &str| {
        format!(
            "\n  a: {{ kind: synthetic, config: {{ pattern: counter, dtype: f32, count: 1 }} }}\n  \
             x: {{ {kind}, inputs: {{ {} }} }}",
            names.join(", ")
        )
    };
    for kind in ["kind: concat", "kind: stack"] {
        refused(
            &format!("{}\n  z: {{ kind: null, from: x }}", wide(kind)),
            &["at most 16 inputs, got 17", "another node"],
        );
    }
    refused(&format!("{}\n  z: {{ kind: null, from: x }}", wide("kind: merge")), &["at most 16 inputs, got 17"]);
    refused(&wide("kind: jsonl, config: { path: o.jsonl }"), &["at most 16 inputs, got 17"]);
    let varying = "
  a: { kind: synthetic, config: { pattern: counter, dtype: f32, count: 5 } }
  w: { kind: window, config: { length: 3 }, from: a }";
    for node in ["kind: window, config: { length: 2 }", "kind: npy, config: { path: o.npy }"] {
        refused(
            &format!("{varying}\n  x: {{ {node}, from: w }}\n  y: {{ kind: null, from: w }}"),
            &["`pad` node with `to`"],
        );
    }
    let vector =
        "\n  a: { kind: synthetic, config: { pattern: noise, shape: [6], dtype: f32 } }\n  n: { kind: nms, from: a }";
    refused(&format!("{vector}\n  z: {{ kind: null, from: n }}"), &["expects f32[n,6]"]);
}

/// A message that lacks what the config asks for is a failed call, and the next one is taken.
#[test]
fn a_message_that_does_not_fit_is_a_failed_call() {
    for (node, expected, why) in [
        ("kind: slice, config: { index: 2 }, from: w", "0,2", "expected an element 2 in dim 0, found f32[2]"),
        ("kind: reshape, config: { shape: [3, -1] }, from: w", "0,0,1,2", "expected a multiple of 3 elements, found 2"),
        ("kind: stack, inputs: { a: w, b: part }", "3,3,4,3,4", "b: expected the shape of `a` (f32[3]), found f32[2]"),
    ] {
        let graph = format!(
            "
  a: {{ kind: synthetic, config: {{ pattern: counter, dtype: f32, count: 5 }} }}
  w: {{ kind: window, config: {{ length: 3 }}, from: a }}
  part: {{ kind: slice, config: {{ to: 2 }}, from: w }}
  x: {{ {node}, on_error: skip }}
  z: {{ kind: jsonl, config: {{ path: out.txt }}, inputs: {{ x: x }} }}"
        );
        let folder = tempfile::tempdir().unwrap();
        let report = run(folder.path(), &graph);
        assert_eq!(report.failed_calls, 1, "{node}");
        assert!(report.failures[0].text.contains(why), "{:?}", report.failures);
        let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
        let row = text.trim_end().replace("{\"seq\":", "").replace("\"x\":", "").replace(['[', ']', '}'], "");
        assert_eq!(row, expected, "{node}");
    }
}

#[test]
fn the_layout_of_an_image_follows_its_dims() {
    let graph = |order: &str| {
        format!(
            "
  a: {{ kind: synthetic, config: {{ pattern: noise, width: 4, height: 3 }} }}
  x: {{ kind: transpose, config: {{ order: {order} }}, from: a }}
  y: {{ kind: cast, config: {{ dtype: f32 }}, from: x }}
  z: {{ kind: normalize, config: {{ mean: [1, 2, 3], std: [1] }}, from: y }}
  end: {{ kind: null, from: z }}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    super::plan(folder.path(), &graph("[2, 0, 1]")).unwrap();
    refused(&graph("[2, 1, 0]"), &["declares no channel dim"]);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let huge = u64::MAX;
    for (node, expected) in [
        (
            "kind: reshape, config: { shape: [4, 2] }, from: s",
            &["expected 8 elements for [4, 2], found 6 in f32[2,3]"][..],
        ),
        ("kind: reshape, config: { shape: [0, -2, -1, -1] }, from: s", &["got 0", "got -2", "-1 at most once"]),
        ("kind: transpose, config: { order: [0, 0] }, from: s", &["dim 0 occurs twice"]),
        (
            "kind: transpose, config: { order: [2] }, from: s",
            &["expected 2 dims as in the input, found 1", "a dim must be 0 to 1, got 2"],
        ),
        (
            "kind: slice, config: { dim: 2, step: 0 }, from: s",
            &["`step` must be at least 1, or at most -1, got 0", "`dim` must be -2 to 1 for f32[2,3], got 2"],
        ),
        (
            "kind: slice, config: { dim: -1, from: 4, to: -9 }, from: s",
            &["for dim 1 of f32[2,3], got 4", "for dim 1 of f32[2,3], got -9"],
        ),
        (
            "kind: pad, config: { to: [1, 3], value: 0.5 }, from: w",
            &["must be a value of u8, got 0.5", "`to[0]` must be at least 2"],
        ),
        (&format!("kind: pad, config: {{ after: [{huge}, 0] }}, from: s"), &["cannot allocate"]),
        ("kind: concat, from: s", &["at least 2 inputs"]),
        ("kind: concat, inputs: { a: s, b: w }", &["expected f32 (the type of `a`), found u8", "dtype: f32"]),
        (
            "kind: concat, inputs: { a: s, b: t }",
            &["expected the shape of `a` (f32[2,3]) apart from dim 0, found f32[3,2]"],
        ),
        ("kind: stack, config: { dim: 3 }, inputs: { a: s, b: s }", &["`dim` must be -3 to 2, got 3"]),
    ] {
        let graph = format!(
            "
  s: {{ kind: synthetic, config: {{ pattern: noise, shape: [2, 3], dtype: f32 }} }}
  w: {{ kind: synthetic, config: {{ pattern: noise, shape: [2, 3] }} }}
  t: {{ kind: transpose, config: {{ order: [1, 0] }}, from: s }}
  x: {{ {node} }}
  end: {{ kind: null, inputs: {{ x: x, w: w, t: t }} }}"
        );
        refused(&graph, expected);
    }
}

/// A node that is planned before the one it takes from knows nothing of its input: it accepts any
/// tensor and has no buffers.
#[test]
fn a_node_that_closes_a_cycle_fails_and_does_not_panic() {
    for node in [
        "kind: reshape, config: { shape: [3] }",
        "kind: transpose, config: { order: [5, 4, 3, 2, 1, 0] }",
        "kind: slice, config: { dim: 9, index: 9 }",
        "kind: slice, config: { dim: -9, from: 9, step: -9 }",
        "kind: pad, config: { before: [9, 9], value: 0.5 }",
        "kind: pad, config: { to: [1] }",
    ] {
        let graph = format!(
            "
  a: {{ kind: synthetic, config: {{ pattern: counter, count: 3 }} }}
  m: {{ kind: merge, inputs: {{ a: a, x: x }} }}
  x: {{ {node}, inputs: {{ in: {{ from: m, when_full: latest }} }} }}
  end: {{ kind: null, from: m }}"
        );
        let report = run(tempfile::tempdir().unwrap().path(), &graph);
        assert!(report.failures[0].text.contains("no pool"), "{:?}", report.failures);
    }
}
