//! The outputs of models, and sound for models.

use super::{check, plan, refused, run};
use limen_tests::files::{npy_of, wav};
use std::fs;

#[test]
fn boxes_of_a_yolo_model_are_decoded_and_suppressed() {
    // Four numbers and two classes of eight candidates: two overlap, one is of the other class, the
    // rest have no score.
    let rows = [
        [10.0, 11.0, 10.0, 50.0, 0.0, 0.0, 0.0, 0.0],
        [10.0, 10.0, 10.0, 50.0, 0.0, 0.0, 0.0, 0.0],
        [8.0, 8.0, 8.0, 20.0, 0.0, 0.0, 0.0, 0.0],
        [4.0, 4.0, 4.0, 10.0, 0.0, 0.0, 0.0, 0.0],
        [0.75, 0.5, 0.125, 0.25, 0.0, 0.0, 0.0, 0.0],
        [0.125, 0.25, 0.875, 0.125, 0.0, 0.0, 0.0, 0.0],
    ];
    let array = npy_of(&[1, 6, 8], rows.as_flattened());
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
    refused(&node(""), &["matches several layouts", "`layout: v5` or `layout: v10`"]);
    refused(
        &node("layout: v8, classes: 80"),
        &["expected the output of a YOLO v8 model with 80 classes, found f32[300,6]", "write `layout: v10`"],
    );
    refused(
        &node("layout: yolox, width: 64"),
        &["`width` requires `height`", "a candidate per cell of 8, 16 and 32 pixels"],
    );
    refused(
        &node("layout: v10, multi_label: true, max_boxes: 0, classes: 0"),
        &["remove `multi_label`", "must be at least 1, got 0"],
    );
    refused(
        &node("").replace("[300, 6]", "[300, 84]"),
        &["a v5 model with 79 classes, and a v8 model with 80 and swapped dims", "`classes: 79`", "`order: [1, 0]`"],
    );
    refused(&node("classes: 80").replace("[300, 6]", "[116, 300]"), &["`dim: 0` and `to: 84`"]);
    let folder = tempfile::tempdir().unwrap();
    let report = run(folder.path(), &node("layout: v10"));
    assert_eq!(report.metric("z.messages"), Some(2.0));
    // Numbers from 0 to 1 are no pixels.
    for (candidates, advice) in
        [("300", "corner; export the model with boxes in pixels"), ("336", "write `layout: yolox` for a YOLOX model")]
    {
        let node = node("layout: v5").replace("from: s }", "from: s, on_error: skip }").replace("300", candidates);
        let report = run(folder.path(), &node);
        assert_eq!(report.failed_calls, 2);
        assert!(report.failures[0].text.contains(advice), "{:?}", report.failures);
    }
    // The coefficients of masks are no scores.
    let mut rows = rows;
    rows[5][7] = 1.7;
    fs::write(folder.path().join("a.npy"), npy_of(&[1, 6, 8], rows.as_flattened())).unwrap();
    let report = run(folder.path(), &graph.replace("from: a }", "from: a, on_error: skip }"));
    assert_eq!(report.failed_calls, 1);
    assert!(report.failures[0].text.contains("a score must be 0 to 1, got 1.7"), "{:?}", report.failures);
}

#[test]
fn a_sound_is_played_as_fast_as_its_frames() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.wav"), wav(1, 8_000, &[1; 25])).unwrap();
    // 25 frames of 125 µs each in messages of ten: the third is shorter, unless it is padded.
    for (tail, expected) in
        [("send", [0, 1_250, 2_500, 3_125, 4_375, 5_625]), ("pad", [0, 1_250, 2_500, 3_750, 5_000, 6_250])]
    {
        let graph = format!(
            "\n  a: {{ kind: wav, config: {{ path: s.wav, frames: 10, real_time: true, repeat: 2, tail: {tail} }} }}\n  \
             z: {{ kind: outlet, from: a }}"
        );
        let mut wired = plan(folder.path(), &graph).unwrap().wire().unwrap();
        let mut outlet = wired.outlet::<limen::Tensor>("z").unwrap();
        let running = wired.start().unwrap();
        let mut origins = Vec::new();
        while let Ok(message) = outlet.recv() {
            origins.push(message.header().origin.0);
        }
        let found: Vec<u64> = origins.iter().map(|origin| (origin - origins[0]) / 1_000).collect();
        assert_eq!(found, expected, "{tail}: {:?}", running.wait().failures);
    }
}

#[test]
fn a_sound_without_frames_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (samples, keys, expected) in [
        (&[][..], "", "must have at least 1 frame, got 0"),
        (&[7], ", sample_rate: 16kHz", "must have at least 1 frame after resampling to 16000 Hz, got 0"),
    ] {
        fs::write(folder.path().join("s.wav"), wav(1, 44_100, samples)).unwrap();
        let graph = format!(
            "\n  a: {{ kind: wav, config: {{ path: s.wav, frames: 10{keys} }} }}\n  z: {{ kind: null, from: a }}"
        );
        let Err(problems) = plan(folder.path(), &graph) else { panic!("not refused: {keys}") };
        assert!(problems.contains(expected), "{problems}");
    }
}

#[test]
fn the_vector_that_is_not_finite_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("n.npy"), npy_of(&[1, 2], &[1.0, f32::NAN])).unwrap();
    fs::write(folder.path().join("i.npy"), npy_of(&[1, 2], &[f32::INFINITY, 0.0])).unwrap();
    fs::write(folder.path().join("x.npy"), npy_of(&[1, 2], &[1.0, 2.0])).unwrap();
    for (a, b, expected) in [("n", "x", "a: "), ("x", "n", "b: "), ("x", "i", "b: "), ("n", "i", "a: ")] {
        let graph = format!(
            "\n  p: {{ kind: npy, config: {{ path: {a}.npy }} }}\n  q: {{ kind: npy, config: {{ path: {b}.npy }} }}\n  \
             c: {{ kind: cosine, inputs: {{ a: p, b: q }}, on_error: skip }}\n  z: {{ kind: null, from: c }}"
        );
        let report = run(folder.path(), &graph);
        let expected = format!("{expected}the elements of a vector must be finite");
        assert!(report.failures[0].text.contains(&expected), "{a} {b}: {:?}", report.failures);
    }
}

/// What decoders allocate counts.
#[test]
fn the_buffers_of_decoders_are_planned() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = |kind: &str, shape: &str| {
        format!(
            "\n  s: {{ kind: synthetic, config: {{ pattern: noise, shape: {shape}, dtype: f32, count: 1 }} }}\n  \
             x: {{ {kind}, from: s }}\n  z: {{ kind: null, from: x }}"
        )
    };
    for (kind, shape, least) in [
        // A score and an index for each candidate, and twice for the best.
        ("kind: decode_yolo", "[84, 8400]", 8_400 * 16 + 2_000 * 16),
        ("kind: decode_yolo, config: { multi_label: true, max_boxes: 100000 }", "[84, 8400]", 200_000 * 16),
        ("kind: nms", "[5000, 6]", 5_000 * 16),
        ("kind: embeddings", "[9, 1000]", 8_000),
    ] {
        let planned = plan(folder.path(), &nodes(kind, shape)).unwrap();
        assert!(planned.memory().nodes >= least, "{kind}: {}", planned.memory().nodes);
    }
}

#[test]
fn boxes_of_text_are_decoded_from_a_map() {
    let mut map = vec![0.0; 24 * 12];
    (0..4 * 12).for_each(|i| map[(4 + i / 12) * 24 + 6 + i % 12] = 0.75);
    // 12 × 4 pixels: expanded by 48 · 2 / 32 = 3.
    let expected = r#"{"seq":0,"in":[[3,1,21,11,0.75,0]]}"#;
    for shape in [&[1, 12, 24][..], &[1, 1, 12, 24]] {
        let graph = "
  a: { kind: npy, config: { path: a.npy } }
  d: { kind: decode_db, config: { unclip: 2 }, from: a }
  z: { kind: jsonl, config: { path: out.txt }, from: d }";
        check(&[("a.npy", &npy_of(shape, &map))], graph, expected);
    }
    let source = "\n  s: { kind: synthetic, config: { pattern: noise, shape: [2, 4, 4], dtype: f32 } }\n  ";
    refused(
        &format!(
            "{source}x: {{ kind: decode_db, config: {{ threshold: 2, box_threshold: -1, unclip: 101, max_boxes: 1001 }}, from: s }}\n  z: {{ kind: null, from: x }}"
        ),
        &[
            "got 2",
            "got -1",
            "`unclip` must be 0 to 100, got 101",
            "got 1001",
            "a map of probabilities, found f32[2,4,4]",
        ],
    );
}

#[test]
fn text_is_decoded_from_the_scores_of_symbols() {
    // Blank, h, é, space.
    let steps: [[f32; 4]; 6] = [
        [0.0, 0.75, 0.0, 0.25],
        [0.0, 0.5, 0.25, 0.25],
        [0.75, 0.0, 0.0, 0.25],
        [0.0, 0.5, 0.25, 0.25],
        [0.25, 0.0, 0.25, 0.5],
        [0.0, 0.0, 1.0, 0.0],
    ];
    let array = npy_of(&[1, 6, 4], steps.as_flattened());
    let files: [(&str, &[u8]); 2] = [("a.npy", &array), ("symbols.txt", "h\né\n".as_bytes())];
    let graph = "
  a: { kind: npy, config: { path: a.npy } }
  d: { kind: decode_ctc, config: { alphabet: symbols.txt, space: true }, from: a }
  z: { kind: jsonl, config: { path: out.txt }, inputs: { text: d/text, score: d/score } }";
    check(&files, graph, r#"{"seq":0,"text":"hh é","score":0.6875}"#);
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
    for (from, to, expected) in [
        (
            ", space: true",
            "",
            &["expected 3 classes for the symbols of the alphabet and the blank, found 4", "`space: true`"][..],
        ),
        ("symbols.txt", "a.npy", &["expected UTF-8 text", "one symbol per line"]),
        ("symbols.txt", "../symbols.txt", &["--allow-path"]),
        ("space: true", "space: true, blank: 0", &["`first`, `last`"]),
    ] {
        let Err(problems) = plan(folder.path(), &graph.replace(from, to)) else { panic!("not refused: {to}") };
        expected.iter().for_each(|text| assert!(problems.contains(text), "`{text}` is not in:\n{problems}"));
    }
}

#[test]
fn embeddings_are_compared() {
    let tokens = npy_of(&[2, 3, 2], &[6.0, 0.0, 0.0, 8.0, 9.0, 9.0, 0.0, 1.0, 0.0, 3.0, 9.0, 9.0]);
    let mask = b"a,b,c\n1,1,0\n1,2,0\n";
    let references = npy_of(&[3, 2], &[-1.0, 0.0, 0.0, 2.0, 3.0, 4.0]);
    let files: [(&str, &[u8]); 3] = [("t.npy", &tokens), ("m.csv", mask), ("r.npy", &references)];
    let graph = "
  t: { kind: npy, config: { path: t.npy } }
  m: { kind: csv, config: { path: m.csv, columns: [a, b, c] } }
  i: { kind: cast, config: { dtype: i32 }, from: m }
  e: { kind: embeddings, inputs: { in: t, mask: i } }
  raw: { kind: embeddings, config: { pool: max, normalize: false }, from: t }
  near: { kind: cosine, config: { references: r.npy }, from: e }
  same: { kind: cosine, inputs: { a: e, b: e } }
  z:
    kind: jsonl
    config: { path: out.txt }
    inputs: { e: e, raw: raw, index: near/index, s: near/similarity, same: same }";
    let expected = r#"
{"seq":0,"e":[0.6,0.8],"raw":[9,9],"index":2,"s":1,"same":1}
{"seq":1,"e":[0,1],"raw":[9,9],"index":1,"s":1,"same":1}"#;
    check(&files, graph, expected);
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
    for (from, to, expected) in [
        ("mask: i }", "mask: m }", &["expected integers for `mask`, found f32[3]", "`cast`"][..]),
        ("from: e }\n  same", "from: t }\n  same", &["expected rank 1, found rank 2"]),
        ("references: r.npy", "references: t.npy", &["expected 2 dims, found 3", "numpy.save"]),
        (", config: { references: r.npy }", "", &["write `references: FILE.npy`"]),
        ("b: e }", "b: m }", &["dim 0 must be 2, got 3"]),
        ("from: t }", "from: m }\n  v: { kind: embeddings, inputs: { in: m, mask: i } }", &["found a single vector"]),
    ] {
        let Err(problems) = plan(folder.path(), &graph.replace(from, to)) else { panic!("not refused: {to}") };
        expected.iter().for_each(|text| assert!(problems.contains(text), "`{text}` is not in:\n{problems}"));
    }
}

/// Messages begin with the end of the message before, and with silence in each pass.
#[test]
fn sound_is_mixed_and_has_context() {
    let sound = wav(2, 8_000, &[0x4000, 0, 0x2000, 0, 0x1000, 0x1000, 0x4000, 0x4000, -0x4000, -0x4000]);
    let graph = |config: &str| {
        format!(
            "
  a: {{ kind: wav, config: {{ path: a.wav, frames: 2, channels: mono, context: 1, repeat: 2{config} }} }}
  z: {{ kind: jsonl, config: {{ path: out.txt }}, from: a }}"
        )
    };
    let pass = |first: usize, last: &str| {
        format!(
            "{{\"seq\":{first},\"in\":[[0],[0.25],[0.125]]}}\n{{\"seq\":{},\"in\":[[0.125],[0.125],[0.5]]}}\n{{\"seq\":{},\"in\":{last}}}\n",
            first + 1,
            first + 2
        )
    };
    for (config, last) in [("", "[[0.5],[-0.5]]"), (", tail: pad", "[[0.5],[-0.5],[0]]")] {
        check(&[("a.wav", &sound)], &graph(config), &(pass(0, last) + &pass(3, last)));
    }
}

#[test]
fn sound_is_resampled_to_the_rate_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    // A tone of 441 Hz: 100 frames per period at 44.1 kHz, 36.28 at 16 kHz.
    let tone = |n: usize, rate: f64| (std::f64::consts::TAU * 441.0 * n as f64 / rate).sin() / 2.0;
    let samples: Vec<i16> = (0..4_410).map(|n| (tone(n, 44_100.0) * 32_768.0).round() as i16).collect();
    fs::write(folder.path().join("a.wav"), wav(1, 44_100, &samples)).unwrap();
    let graph = "
  a: { kind: wav, config: { path: a.wav, frames: 512, sample_rate: 16kHz } }
  z: { kind: jsonl, config: { path: out.txt }, from: a }";
    let planned = plan(folder.path(), graph).unwrap();
    let notes = &planned.nodes()[0].notes;
    assert_eq!(notes[..], ["resampled from 44100 to 16000 frames per second"]);
    run(folder.path(), graph);
    let text = fs::read_to_string(folder.path().join("out.txt")).unwrap();
    let mut found: Vec<f64> = Vec::new();
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let frames: Vec<[f64; 1]> = serde_json::from_value(object["in"].clone()).unwrap();
        found.extend(frames.as_flattened());
    }
    assert_eq!((found.len(), text.lines().count()), (1_600, 4));
    for (n, found) in found.iter().enumerate().take(1_500).skip(100) {
        assert!((found - tone(n, 16_000.0)).abs() < 1e-4, "frame {n} is {found}, not {}", tone(n, 16_000.0));
    }
    for (rate, expected) in [("0.5Hz", "must be a whole number"), ("70.001kHz", "write another rate")] {
        let Err(problems) = plan(folder.path(), &graph.replace("16kHz", rate)) else { panic!("not refused: {rate}") };
        assert!(problems.contains(expected), "{problems}");
    }
    let Err(problems) =
        plan(folder.path(), &graph.replace("a.wav", "b.wav").replace("16kHz", "1mHz, context: 9999999"))
    else {
        panic!("not refused")
    };
    for expected in ["b.wav", "must be a whole number", "`context` must be at most 1048576, got 9999999"] {
        assert!(problems.contains(expected), "{problems}");
    }
}

/// Extreme configs are refused, or run: none causes a panic.
#[test]
fn extreme_configs_are_harmless() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "a\n").unwrap();
    fs::write(folder.path().join("r.npy"), npy_of(&[1, 6], &[0.0; 6])).unwrap();
    fs::write(folder.path().join("s.wav"), wav(2, 44_100, &[i16::MIN; 2_000])).unwrap();
    let most = "18446744073709551615";
    let values = ["0", "1", "65535", "4294967295", most, "-1", "1e308", ".nan", ".inf", "-.inf"];
    for shape in ["[6]", "[1, 6]", "[84, 6]", "[6, 90]", "[1, 6, 6]", "[1, 1, 1, 1]"] {
        for node in [
            "decode_yolo, config: { layout: v5, threshold: X }",
            "decode_yolo, config: { layout: v8, threshold: X, multi_label: true, max_boxes: 1 }",
            "decode_yolo, config: { layout: v10, max_boxes: X }",
            "decode_yolo, config: { classes: X }",
            "decode_yolo, config: { layout: yolox, threshold: X }",
            "decode_yolo, config: { layout: yolox, width: X, height: 64 }",
            "decode_db, config: { threshold: X, box_threshold: 0 }",
            "decode_db, config: { box_threshold: X, threshold: 0 }",
            "decode_db, config: { unclip: X, max_boxes: 1000 }",
            "decode_db, config: { max_boxes: X, threshold: 0 }",
            "decode_ctc, config: { alphabet: a.txt }",
            "embeddings, config: { pool: max }",
            "cosine, config: { references: r.npy }",
        ] {
            for value in values {
                let graph = format!(
                    "\n  s: {{ kind: synthetic, config: {{ pattern: noise, shape: {shape}, dtype: f32, count: 2 }} }}
  x: {{ kind: {}, from: s }}\n  z: {{ kind: null, from: x }}",
                    node.replace('X', value)
                );
                if plan(folder.path(), &graph).is_ok() {
                    assert_eq!(run(folder.path(), &graph).failed_calls, 0, "{graph}");
                }
                if !node.contains('X') {
                    break;
                }
            }
        }
    }
    for key in [
        "frames: X",
        "frames: 9, context: X",
        "frames: 9, sample_rate: XHz",
        "frames: 9, sample_rate: X",
        "frames: 9, repeat: X",
    ] {
        for value in ["0", "1", "65535", "4294967295", most, "-1", "1.5", ".nan"] {
            let key = key.replace('X', value);
            let graph =
                format!("\n  s: {{ kind: wav, config: {{ path: s.wav, {key} }} }}\n  z: {{ kind: null, from: s }}");
            let planned = plan(folder.path(), &graph);
            if planned.is_ok() && !key.starts_with("frames: 9, repeat") {
                assert_eq!(run(folder.path(), &graph).failed_calls, 0, "{graph}");
            }
        }
    }
}
