//! Every stock kind in a graph that runs: what goes in, what comes out, and how a wrong graph is
//! refused.

#[path = "kinds/decoding.rs"]
mod decoding;
#[path = "kinds/digits.rs"]
mod digits;
#[path = "kinds/flushing.rs"]
mod flushing;
#[path = "kinds/reading.rs"]
mod reading;
#[path = "kinds/replaying.rs"]
mod replaying;
#[path = "kinds/sensor_messages.rs"]
mod sensor_messages;
#[path = "kinds/shapes.rs"]
mod shapes;
#[path = "kinds/sound.rs"]
mod sound;

use limen::{Drain, Plan, Registry, Report, Spec, Tensor};
use std::fs;
use std::path::Path;
use std::time::Duration;

#[path = "kinds/images.rs"]
mod images;

fn plan(folder: &Path, graph: &str) -> Result<Plan, String> {
    let file = folder.join("graph.yaml");
    fs::write(&file, format!("version: 1\ngraph: test\nnodes:\n{graph}")).unwrap();
    let registry = Registry::new().with(limen_tests::stock_nodes);
    let spec = Spec::from_file(&file).map_err(|e| e.to_string())?;
    Plan::new(spec, &registry).map_err(|e| e.to_string())
}

/// Runs a graph in a folder until it ends.
fn run(folder: &Path, graph: &str) -> Report {
    let plan = plan(folder, graph).unwrap_or_else(|problems| panic!("{problems}\n{graph}"));
    let report = limen_tests::finished(plan.wire().unwrap().start().unwrap());
    assert!(report.bugs.is_empty(), "{:?}", report.bugs);
    report
}

/// Runs a graph that writes `out.txt` and compares what it wrote.
fn check(files: &[(&str, &[u8])], graph: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let report = run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    assert_eq!(text.trim_end(), expected.trim(), "{:?}\n{graph}", report.failures);
}

/// The problems of a graph, all in one text, contain each of these.
fn refused(graph: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.csv"), "a,b\n1,2\n").unwrap();
    let Err(problems) = plan(folder.path(), graph) else { panic!("not refused:\n{graph}") };
    for text in expected {
        assert!(problems.contains(text), "`{text}` is not in:\n{problems}");
    }
}

/// A grey image of 2 × 1 pixels.
fn png(levels: [u8; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&levels).unwrap();
    bytes
}

#[test]
fn a_counter_counts() {
    let graph = "
  a: { kind: synthetic, config: { pattern: counter, count: 3 } }
  b: { kind: pass, from: a }
  c: { kind: jsonl, config: { path: out.txt }, inputs: { n: b } }";
    check(&[], graph, "{\"seq\":0,\"n\":0}\n{\"seq\":1,\"n\":1}\n{\"seq\":2,\"n\":2}");
}

/// A program that takes what they send sees another segment at each pass over what they read.
#[test]
fn a_source_that_repeats_begins_another_segment() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.csv"), "x\n1\noops\n2\n").unwrap();
    fs::write(folder.path().join("t.txt"), "one\ntwo").unwrap();
    (0..2).for_each(|n| fs::write(folder.path().join(format!("{n}.png")), png([n, n])).unwrap());
    let make = "  a: { kind: synthetic, config: { pattern: noise, shape: [4, 1], dtype: f32, count: 2 } }
  b: { kind: npy, config: { path: t.npy }, from: a }
  c: { kind: wav, config: { path: t.wav, sample_rate: 8kHz }, from: a }";
    run(folder.path(), make);
    for (source, port) in [
        ("kind: csv, config: { path: t.csv, columns: [x], repeat: 3 }, on_error: skip", "a"),
        ("kind: file, config: { path: t.txt, framing: lines, repeat: 3 }", "a"),
        ("kind: image_files, config: { path: \"*.png\", repeat: 3 }", "a/image"),
        ("kind: npy, config: { path: t.npy, repeat: 3 }", "a"),
        ("kind: wav, config: { path: t.wav, frames: 4, repeat: 3 }", "a"),
    ] {
        let graph = format!("  a: {{ {source} }}\n  z: {{ kind: outlet, from: {port} }}");
        let mut wired = plan(folder.path(), &graph).unwrap_or_else(|problems| panic!("{problems}")).wire().unwrap();
        let mut outlet = wired.outlet::<Tensor>("z").unwrap();
        let running = wired.start().unwrap();
        let mut segments = Vec::new();
        while let Ok(message) = outlet.recv() {
            segments.push(message.header().segment);
        }
        assert_eq!(segments, [0, 0, 1, 1, 2, 2], "{source}: {:?}", running.wait().failures);
    }
}

#[test]
fn pixels_become_normalized_planes() {
    // Every second pixel of a ramp: (x·(c+1))/2 + (y·(3−c))/2 + 7·n.
    let graph = "
  a: { kind: synthetic, config: { pattern: ramp, width: 4, height: 2, channels: 2, count: 2 } }
  b: { kind: resize, config: { width: 2, height: 1, filter: nearest }, from: a }
  c: { kind: to_tensor, config: { range: [0, 255] }, from: b }
  d: { kind: normalize, config: { mean: [1, 2], std: [1, 0.5] }, from: c }
  e: { kind: jsonl, config: { path: out.txt }, inputs: { raw: b, x: d } }";
    let expected = r#"
{"seq":0,"raw":[[[1,2],[2,4]]],"x":[[[0,1]],[[0,4]]]}
{"seq":1,"raw":[[[8,9],[9,11]]],"x":[[[7,8]],[[14,18]]]}"#;
    check(&[], graph, expected);
}

/// As `(x - mean) / std` of NumPy, which broadcasts along the last dim.
#[test]
fn a_vector_is_normalized_by_element() {
    let graph = "
  a: { kind: synthetic, config: { pattern: ramp, width: 4, height: 2, channels: 2, count: 2 } }
  b: { kind: resize, config: { width: 2, height: 1, filter: nearest }, from: a }
  c: { kind: to_tensor, config: { range: [0, 255] }, from: b }
  d: { kind: reshape, config: { shape: [4] }, from: c }
  e: { kind: normalize, config: { mean: [1, 2, 2, 4], std: [1, 2, 4, 0.5] }, from: d }
  f: { kind: reshape, config: { shape: [2, 2] }, from: c }
  g: { kind: normalize, config: { mean: [1, 2], std: [1, 0.5] }, from: f }
  h: { kind: jsonl, config: { path: out.txt }, inputs: { x: e, y: g } }";
    let expected = r#"
{"seq":0,"x":[0,0,0,0],"y":[[0,0],[1,4]]}
{"seq":1,"x":[7,3.5,1.75,14],"y":[[7,14],[8,18]]}"#;
    check(&[], graph, expected);
}

/// A division by zero is a number of its type and is counted, as is one that a type has no room
/// for.
#[test]
fn formulas_without_a_finite_result_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), "x\n2\n0\n-0.5\n").unwrap();
    let graph = "
  a: { kind: csv, config: { path: in.csv, columns: [x] } }
  m:
    kind: map
    config: { outputs: { q: 'x * x / x', n: { formula: '1 / x', dtype: u8 } } }
    inputs: { x: a }
  out: { kind: jsonl, config: { path: out.txt }, inputs: { q: m/q, n: m/n } }";
    let report = run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    let expected =
        "{\"seq\":0,\"q\":[2],\"n\":[0]}\n{\"seq\":1,\"q\":[null],\"n\":[255]}\n{\"seq\":2,\"q\":[-0.5],\"n\":[0]}";
    assert_eq!(text.trim_end(), expected);
    let metric = |name: &str| report.metric(&format!("m.{name}"));
    // Messages are counted: one in which a formula gave no finite number, and one whose number the
    // type has no room for.
    assert_eq!((metric("not_finite"), metric("clipped")), (Some(1.0), Some(1.0)));
}

/// A list in a formula has one number for each element of the last dim, also beyond the elements
/// that are computed at a time.
#[test]
fn a_formula_takes_a_list_for_the_elements_of_the_last_dim() {
    let graph = "
  a: { kind: csv, config: { path: in.csv, columns: [x, y, z] } }
  m: { kind: map, from: a, config: { outputs: { n: 'clamp((in - [-0.5, 1, 2]) / [0.5, 2, 4], -10, 10)' } } }
  long: { kind: stack, inputs: { a: a, b: a }, config: {} }
  wide: { kind: pad, from: long, config: { before: [0, 0], after: [28, 0], value: 1 } }
  w: { kind: map, from: wide, config: { outputs: { n: 'in * [1, 10, 100]' } } }
  last: { kind: slice, from: w/n, config: { dim: 0, from: 29 } }
  named:
    kind: map
    config: { outputs: { n: 'clamp((x - m) / s, -10, top)' } }
    inputs: { x: a, m: { value: [-0.5, 1, 2] }, s: { value: [0.5, 2, 4] }, top: { value: 10 } }
  out: { kind: jsonl, config: { path: out.txt }, inputs: { n: m/n, named: named, last: last } }";
    let line = |seq: u32, n: &str| format!("{{\"seq\":{seq},\"n\":[{n}],\"named\":[{n}],\"last\":[[1,10,100]]}}");
    let expected = [line(0, "1,0,-0.5"), line(1, "10,-1.5,0.25")].join("\n");
    check(&[("in.csv", b"x,y,z\n0,1,0\n90,-2,3\n")], graph, &expected);
    for (value, expected) in [
        ("[1, 2, 3]", &["expected a list of 2 for the input f32[2], found a list of 3", "write 2 numbers"][..]),
        ("[[1, 2]]", &["expected a number, or a list of numbers"]),
    ] {
        let graph = format!(
            "  a: {{ kind: csv, config: {{ path: t.csv, columns: [a, b] }} }}\n  m: {{ kind: map, inputs: {{ x: a, m: {{ value: {value} }} }}, \
             config: {{ outputs: {{ y: 'x - m' }} }} }}\n  z: {{ kind: 'null', from: m }}"
        );
        refused(&graph, expected);
    }
    refused(
        "  a: { kind: csv, config: { path: t.csv, columns: [a, b] } }\n  m: { kind: map, from: a, config: { outputs: { y: 'in - [1, 2, 3]' } } }\n  \
         z: { kind: 'null', from: m }",
        &["expected a list of 2 for the input f32[2], found a list of 3", "write 2 numbers"],
    );
}

/// Stamps and counters keep their digits in formulas and conversions, or the loss is seen.
#[test]
fn stamps_and_counters_keep_their_digits() {
    let columns =
        "columns: [{ name: t, type: i64 }, { name: n, type: u32 }, { name: s, type: f64 }, { name: hi, type: u16 }]";
    let graph = format!(
        "
  a: {{ kind: csv, config: {{ path: in.csv, {columns} }} }}
  t: {{ kind: cast, from: a/t, config: {{ dtype: f64 }}, on_error: skip }}
  m: {{ kind: map, inputs: {{ n: a/n, s: a/s }}, config: {{ outputs: {{ n: 'n + 1', s: 's - 1', past: 'n > s' }} }} }}
  hi: {{ kind: map, from: a/hi, config: {{ outputs: {{ c: 'in * 65536 + 1' }} }} }}
  x: {{ kind: csv, config: {{ path: t.txt }}, from: t }}
  out: {{ kind: csv, config: {{ path: out.txt }}, inputs: {{ n: m/n, s: m/s, past: m/past, c: hi/c }} }}"
    );
    let folder = tempfile::tempdir().unwrap();
    let table = "t,n,s,hi\n9007199254740993,1700000000,1700000000.125,1\n9007199254740992,4294967295,1,40000\n";
    fs::write(folder.path().join("in.csv"), table).unwrap();
    let report = run(folder.path(), &graph);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("t.txt").trim(), "seq,in\n1,9007199254740992");
    let expected = "seq,n,s,past,c\n0,1700000001,1699999999.125,0,65537\n1,4294967296,0,1,2621440000";
    assert_eq!(read("out.txt").trim(), expected);
    let failures = format!("{:?}", report.failures);
    assert!(
        failures.contains("f64 cannot represent 9007199254740993 exactly: write `scale: 1` to allow rounding"),
        "{failures}"
    );
    assert_eq!((report.metric("m.rounded"), report.metric("hi.rounded")), (Some(0.0), Some(1.0)));
}

/// The spectrum of a constant has one bin, and frames go on from message to message.
#[test]
fn samples_become_spectra() {
    let graph = "
  a: { kind: csv, config: { path: in.csv, columns: [x] } }
  s: { kind: stft, config: { length: 4, hop: 2, window: none }, from: a }
  out: { kind: jsonl, config: { path: out.txt }, inputs: { v: s } }";
    let expected = "{\"seq\":3,\"v\":[[4,0,0]]}\n{\"seq\":5,\"v\":[[4,0,0]]}";
    check(&[("in.csv", b"x\n1\n1\n1\n1\n1\n1\n1\n")], graph, expected);
}

#[test]
fn a_table_goes_in_and_out() {
    let table = b"t,x,y\n0,1,-2\n1,oops,0\n2,3,3\n";
    let graph = "
  a: { kind: csv, config: { path: in.csv, columns: [x, y], repeat: 2 }, on_error: skip }
  best: { kind: argmax, from: a }
  top: { kind: top_k, config: { k: 2 }, from: a }
  soft: { kind: softmax, from: a }
  whole: { kind: cast, config: { dtype: u8, scale: 10 }, from: a }
  out:
    kind: csv
    config: { path: out.txt }
    inputs: { i: best/index, v: best/value, top: top/index, p: soft, w: whole }";
    let expected = "
seq,i,v,top_0,top_1,p_x,p_y,w_x,w_y
0,0,1,0,1,0.95257413,0.047425874,10,0
2,0,3,0,1,0.5,0.5,30,30
3,0,1,0,1,0.95257413,0.047425874,10,0
5,0,3,0,1,0.5,0.5,30,30";
    check(&[("in.csv", table)], graph, expected);
}

#[test]
fn images_come_with_names_and_labels_and_a_bad_one_is_skipped() {
    let (a, c) = (png([1, 2]), png([3, 4]));
    let files: [(&str, &[u8]); 3] = [("data/a-7.png", &a), ("data/b-8.png", b"no image"), ("data/c_-9.png", &c)];
    let graph = "
  a: { kind: image_files, config: { path: data/*.png, label: stem, rate: 1kHz }, on_error: skip }
  b: { kind: csv, config: { path: out.txt }, inputs: { name: a/name, label: a/label, p: a/image } }";
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
    let report = run(folder.path(), graph);
    assert_eq!(report.failed_calls, 1);
    assert!(report.failures[0].text.contains("b-8.png"), "{:?}", report.failures);
    let rows = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    // The failed call has a sequence number of its own, and so has the one that came before its
    // time.
    let rows: Vec<_> = rows.lines().map(|row| row.split_once(',').unwrap().1).collect();
    assert_eq!(rows, ["name,label,p_0,p_1", "a-7.png,7,1,2", "c_-9.png,9,3,4"]);
}

/// Promise (messages): Sinks write bytes as text only if the port declares text.
#[test]
fn bytes_are_text_only_where_the_port_says_so() {
    let mask = "
  a: { kind: synthetic, config: { pattern: counter, dtype: f32, count: 4 } }
  w: { kind: window, config: { length: 3 }, from: a }
  t: { kind: threshold, config: { at: 2 }, from: w }
  p: { kind: pass, from: t }
  z: { kind: jsonl, config: { path: out.txt }, inputs: { mask: p } }";
    check(&[], mask, "{\"seq\":0,\"mask\":[0,0,1]}\n{\"seq\":3,\"mask\":[1]}");
    let lines = |keys: &str, kind: &str| {
        format!(
            "\n  a: {{ kind: file, config: {{ path: in.txt{keys} }} }}\n  p: {{ kind: pass, from: a }}\n  \
             z: {{ kind: {kind}, config: {{ path: out.txt }}, inputs: {{ x: p }} }}"
        )
    };
    for (keys, kind, expected) in [
        ("", "jsonl", "{\"seq\":0,\"x\":\"hi\"}\n{\"seq\":1,\"x\":\"ho\"}"),
        ("", "csv", "seq,x\n0,hi\n1,ho"),
        (", content: bytes", "jsonl", "{\"seq\":0,\"x\":[104,105]}\n{\"seq\":1,\"x\":[104,111]}"),
        (", framing: raw", "jsonl", "{\"seq\":0,\"x\":[104,105,10,104,111]}"),
        (", framing: raw, content: text", "csv", "seq,x\n0,\"hi\nho\""),
    ] {
        check(&[("in.txt", b"hi\nho")], &lines(keys, kind), expected);
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.txt"), "hi").unwrap();
    let Err(problems) = plan(folder.path(), &lines(", framing: raw", "csv")) else { panic!("not refused") };
    assert!(problems.contains("content: text") && problems.contains("decode"), "{problems}");
}

/// Promise (messages): `decode` counts a packet that does not match its fields as `malformed`, and
/// a note shows the first one.
#[test]
fn packets_are_decoded() {
    // Sequence, time, two numbers, of which the second message lacks the last.
    let packet = |seq: u32, time: u64, x: f32, y: f32| {
        [&seq.to_be_bytes()[..], &time.to_be_bytes(), &x.to_le_bytes(), &y.to_le_bytes()].concat()
    };
    let packets = [packet(7, 1 << 40, 0.5, -1.0), packet(8, 2, 3.0, 4.0)[..16].to_vec(), packet(9, 3, 5.0, 6.0)];
    let framed: Vec<u8> = packets.iter().flat_map(|p| [&(p.len() as u32).to_be_bytes()[..], p].concat()).collect();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.bin"), framed).unwrap();
    let graph = "
  a: { kind: file, config: { path: in.bin, framing: length, max_bytes: 64B } }
  d:
    kind: decode
    config:
      format: struct
      endian: big
      fields:
        - { name: number, type: u32 }
        - { name: time, type: u64 }
        - { name: x, type: f32, endian: little, to: at }
        - { name: y, type: f32, endian: little, to: at }
        - { name: low, type: u8, offset: 3 }
    from: a
  z: { kind: csv, config: { path: out.txt }, inputs: { n: d/number, t: d/time, at: d/at } }";
    let report = run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    assert_eq!(text, "seq,n,t,at_x,at_y\n0,7,1099511627776,0.5,-1\n2,9,3,5,6\n");
    assert_eq!((report.metric("d.malformed"), report.failed_calls), (Some(1.0), 0));
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.starts_with("`d`: 1 malformed; the first: expected at least 20 bytes, found 16: ")),
        "{:?}",
        report.notes
    );
    for (from, to, expected) in [
        (
            "max_bytes: 64B",
            "max_bytes: 16B",
            &["graph.yaml:15:19", "`y` must end at byte 16 or earlier (the longest message), got 20"][..],
        ),
        ("offset: 3", "offset: 64", &["`low` must end at byte 64 or earlier"]),
        ("type: u32", "type: u33", &["u33"]),
        ("format: struct", "format: xml", &["`xml`", "struct"]),
        ("offset: 3", "offest: 3", &["offest"]),
        ("inputs: { n: d/number", "inputs: { n: d/nmber", &["has no output `nmber`", "number"]),
    ] {
        let Err(problems) = plan(folder.path(), &graph.replace(from, to)) else { panic!("not refused: {to}") };
        for text in expected {
            assert!(problems.contains(text), "`{text}` is not in:\n{problems}");
        }
    }
    let source = "\n  s: { kind: synthetic, config: { pattern: noise, shape: [4], dtype: f32 } }\n  ";
    refused(
        &format!(
            "{source}d: {{ kind: decode, config: {{ format: struct, fields: [{{ name: a, type: u8 }}] }}, from: s }}"
        ),
        &["expected u8[≤n], found f32[4]", "`udp`"],
    );
}

#[test]
fn the_truth_scores_1_against_itself() {
    let graph = "
  a: { kind: synthetic, config: { pattern: scenes, width: 256, height: 192, count: 20, seed: 7 } }
  b: { kind: nms, from: a/boxes }
  c: { kind: score, config: { task: boxes }, inputs: { predicted: b, truth: a/boxes } }
  d: { kind: console, config: { every: 1000 }, from: a/boxes }
  e: { kind: null, from: a/image }";
    let report = run(tempfile::tempdir().unwrap().path(), graph);
    for (metric, expected) in [("c.precision", 1.0), ("c.recall", 1.0), ("c.missed", 0.0), ("e.messages", 20.0)] {
        assert_eq!(report.metric(metric), Some(expected), "{metric}");
    }
    assert!(report.metric("c.true_positives") > Some(20.0));
}

#[test]
fn labels_are_compared_one_by_one() {
    let graph = "
  a: { kind: synthetic, config: { pattern: counter, dtype: i32, count: 4 } }
  b: { kind: cast, config: { dtype: i32, scale: 0.5, offset: 0.5 }, from: a }
  c: { kind: score, inputs: { predicted: b, truth: a } }";
    let report = run(tempfile::tempdir().unwrap().path(), graph);
    // 0, 1, 2, 3 become 0, 1, 1, 2.
    for (metric, expected) in [("c.accuracy", 0.5), ("c.correct", 2.0), ("c.total", 4.0)] {
        assert_eq!(report.metric(metric), Some(expected), "{metric}");
    }
}

#[test]
fn boxes_are_decoded_from_two_answers() {
    // Two cells of stride 8 with two classes each.
    let graph = "
  s: { kind: csv, config: { path: s.csv } }
  d: { kind: synthetic, config: { pattern: noise, shape: [2, 4], dtype: f32, count: 1 } }
  b: { kind: decode_boxes, config: { stride: 8, width: 16, height: 8, max_boxes: 4 }, inputs: { scores: s, boxes: d } }
  c: { kind: null, from: b }";
    refused(&graph.replace("s.csv", "t.csv"), &["expected rank 2, found rank 1"]);
    let graph = "
  s: { kind: synthetic, config: { pattern: noise, shape: [2, 3], dtype: f32, count: 9 } }
  d: { kind: synthetic, config: { pattern: noise, shape: [2, 4], dtype: f32, count: 9 } }
  b: { kind: decode_boxes, config: { stride: 8, width: 16, height: 8, max_boxes: 3, threshold: 0.1 }, inputs: { scores: s, boxes: d } }
  c: { kind: jsonl, config: { path: out.txt }, from: b }";
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let rows: Vec<[f64; 6]> = serde_json::from_value(object["in"].clone()).unwrap();
        assert!(rows.len() <= 3 && rows.is_sorted_by(|a, b| a[4] >= b[4]), "{line}");
        for [x0, y0, x1, y1, score, class] in rows {
            assert!(score > 0.1 && [0.0, 1.0, 2.0].contains(&class), "{line}");
            let cell = if x0 < 4.5 { 4.0 } else { 12.0 };
            assert!((cell - 1.0..=cell).contains(&x0) && (cell..=cell + 1.0).contains(&x1), "{line}");
            assert!((3.0..=4.0).contains(&y0) && (4.0..=5.0).contains(&y1), "{line}");
        }
    }
    assert_eq!(text.lines().count(), 9);
}

#[test]
fn a_timer_ticks_until_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "
  a: { kind: timer, config: { rate: 1kHz } }
  b: { kind: jsonl, config: { path: out.txt }, inputs: { tick: a } }";
    let mut running = plan(folder.path(), graph).unwrap().wire().unwrap().start().unwrap();
    while running.stats()[0].done < 50 {
        assert!(!running.wait_for(Duration::from_millis(1)), "a timer does not end");
    }
    let report = running.stop(Drain::within(Duration::from_secs(120)));
    assert!(report.bugs.is_empty() && report.failed_calls == 0, "{report:?}");
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    // It ticks once a period and no faster: if it is late, it catches up.
    let most = report.wall.as_millis() as usize + 1;
    assert!((50..=most).contains(&text.lines().count()), "{} ticks in {most} periods", text.lines().count());
    for (n, line) in text.lines().enumerate() {
        assert_eq!(line, format!("{{\"seq\":{n},\"tick\":{n}}}"));
    }
}

#[test]
fn a_rate_spreads_messages_over_time() {
    let graph = "
  a: { kind: synthetic, config: { pattern: counter, count: 21, rate: 200Hz } }
  b: { kind: null, from: a }";
    let report = run(tempfile::tempdir().unwrap().path(), graph);
    assert!(report.wall >= Duration::from_millis(100), "{:?}", report.wall);
    assert_eq!(report.metric("b.messages"), Some(21.0));
}

#[test]
fn wrong_graphs_are_refused_with_the_way_out() {
    let sink = "\n  z: { kind: null, from: a }";
    refused(
        &format!("\n  a: {{ kind: image_files, config: {{ path: data/*.png }} }}{sink}"),
        &["no file matches `data/*.png`"],
    );
    refused(
        &format!("\n  a: {{ kind: csv, config: {{ path: t.csv, columns: [a, c] }} }}{sink}"),
        &["unknown column `c`"],
    );
    refused(&format!("\n  a: {{ kind: csv, config: {{ path: ../t.csv }} }}{sink}"), &["--allow-path"]);
    refused(
        &format!("\n  a: {{ kind: synthetic, config: {{ pattern: ramp, width: 0, height: 9, shape: [1] }} }}{sink}"),
        &["must be at least 1 for `pattern: ramp`, got 0", "`width`, `height` and `channels`, not `shape`"],
    );
    let source = "\n  s: { kind: synthetic, config: { pattern: noise, width: 8, height: 4 } }";
    for (node, expected) in [
        ("kind: to_tensor, config: { range: [1, 1] }", &["must differ, got 1 twice"][..]),
        ("kind: to_tensor, config: { dtype: u8 }", &["expected one of `f32`, `f16`, found `u8`"]),
        ("kind: normalize, config: { mean: [0], std: [1] }", &["expected f32 elements, found u8", "to_tensor"]),
        ("kind: argmax", &["expected f32 elements, found u8"]),
        ("kind: softmax", &["expected f32 elements, found u8"]),
        ("kind: top_k, config: { k: 3 }", &["expected f32 elements, found u8"]),
        (
            "kind: nms, config: { max_boxes: 301, iou: 2 }",
            &["`max_boxes` must be 1 to 300, got 301", "`iou` must be 0 to 1, got 2"],
        ),
        ("kind: resize, config: { width: 0, height: 70000 }", &["pixels, got 0", "got 70000"]),
        ("kind: cast, config: { dtype: f31 }", &["f31"]),
        ("kind: csv, config: { path: a/b/c.csv }", &["does not exist"]),
        ("kind: csv, config: { path: t.csv, exists: fail }", &["already exists"]),
        ("kind: console, config: { every: 0 }", &["`every` must be at least 1, got 0"]),
    ] {
        refused(&format!("{source}\n  x: {{ {node}, from: s }}"), expected);
    }
    let image = "
  s: { kind: synthetic, config: { pattern: noise, width: 800, height: 4 } }
  x: { kind: csv, config: { path: o.csv }, from: s }";
    refused(image, &["at most 1024 columns, got 9601", "jsonl"]);
    let boxes = "
  s: { kind: synthetic, config: { pattern: scenes, width: 64, height: 64 } }
  x: { kind: csv, config: { path: o.csv }, from: s/boxes }";
    refused(boxes, &["expected tensors of a fixed shape", "jsonl"]);
    let layout = "
  s: { kind: synthetic, config: { pattern: noise, shape: [3, 4, 4], dtype: f32 } }
  x: { kind: normalize, config: { mean: [1, 2, 3], std: [1] }, from: s }
  y: { kind: null, from: x }";
    refused(layout, &["declares no channel dim", "layout: chw"]);
    let elements = "
  s: { kind: synthetic, config: { pattern: noise, shape: [5, 3], dtype: f32 } }
  x: { kind: normalize, config: { mean: [1, 2], std: [1] }, from: s }
  y: { kind: null, from: x }";
    refused(
        elements,
        &["expected 3 values, found 2: the input, f32[5,3], has 3 elements in its last dim", "write 3 values"],
    );
    let cells = "
  s: { kind: synthetic, config: { pattern: noise, shape: [5, 3], dtype: f32 } }
  d: { kind: synthetic, config: { pattern: noise, shape: [5, 4], dtype: f32 } }
  x: { kind: decode_boxes, config: { stride: 8, width: 32, height: 16, max_boxes: 9 }, inputs: { scores: s, boxes: d } }
  y: { kind: null, from: x }";
    refused(cells, &["expected 4 × 2 = 8 cells for 32 × 16 pixels with a stride of 8, found 5 in f32[5,3]"]);
    let two = "
  s: { kind: synthetic, config: { pattern: counter } }
  x: { kind: csv, config: { path: o.csv }, from: s }
  y: { kind: jsonl, config: { path: ./o.csv }, from: s }";
    refused(two, &["both write to"]);
}
