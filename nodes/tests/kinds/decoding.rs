//! The outputs of models.

use super::{check, refused, run};

/// An array as NumPy writes it, an item per message.
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let length = (header.len() as u16).to_le_bytes();
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &values].concat()
}

#[test]
fn boxes_of_a_yolo_model_are_decoded_and_suppressed() {
    // Four numbers and two classes of eight candidates: two overlap, one is of the other class, the rest have no score.
    let rows = [
        [10.0, 11.0, 10.0, 50.0, 0.0, 0.0, 0.0, 0.0],
        [10.0, 10.0, 10.0, 50.0, 0.0, 0.0, 0.0, 0.0],
        [8.0, 8.0, 8.0, 20.0, 0.0, 0.0, 0.0, 0.0],
        [4.0, 4.0, 4.0, 10.0, 0.0, 0.0, 0.0, 0.0],
        [0.75, 0.5, 0.125, 0.25, 0.0, 0.0, 0.0, 0.0],
        [0.125, 0.25, 0.875, 0.125, 0.0, 0.0, 0.0, 0.0],
    ];
    let array = npy("(1, 6, 8)", rows.as_flattened());
    let graph = "
  a: { kind: npy, config: { path: a.npy } }
  d: { kind: decode_yolo, from: a }
  n: { kind: nms, config: { iou: 0.45 }, from: d }
  z: { kind: jsonl, config: { path: out.txt }, inputs: { d: d, n: n } }";
    let expected = r#"{"seq":0,"d":[[6,8,14,12,0.875,1],[6,8,14,12,0.75,0],[7,8,15,12,0.5,0]],"n":[[6,8,14,12,0.875,1],[6,8,14,12,0.75,0]]}"#;
    check(&[("a.npy", &array)], graph, expected);
    let source = "\n  s: { kind: synthetic, config: { pattern: noise, shape: [300, 6], dtype: f32, count: 2 } }\n  ";
    let node = |config: &str| {
        format!("{source}x: {{ kind: decode_yolo, config: {{ {config} }}, from: s }}\n  z: {{ kind: null, from: x }}")
    };
    refused(&node(""), &["can have several layouts", "`layout: v5` or `layout: v10`"]);
    refused(
        &node("layout: v8, classes: 80"),
        &["not the output of a YOLO v8 model with 80 classes", "f32[4+classes,candidates]"],
    );
    refused(
        &node("layout: v10, multi_label: true, max_boxes: 0, classes: 0"),
        &["remove `multi_label`", "0 is not possible"],
    );
    let folder = tempfile::tempdir().unwrap();
    let report = run(folder.path(), &node("layout: v10"));
    assert_eq!(report.metric("z.messages"), Some(2.0));
}
