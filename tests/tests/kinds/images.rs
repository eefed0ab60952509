//! The kinds for images: their parts, places, colours and sizes.

use super::{check, plan, png, refused, run};
use limen::Report;
use limen_tests::files::npy_of;
use std::fs;
use std::path::Path;

/// An RGB image with the levels 0, 10, 20 and so on.
fn rgb_png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let levels: Vec<u8> = (0..width * height * 3).map(|n| (n * 10) as u8).collect();
    encoder.write_header().unwrap().write_image_data(&levels).unwrap();
    bytes
}

fn text(folder: &Path) -> String {
    fs::read_to_string(folder.join("out.txt")).unwrap()
}

/// The expected numbers of this and the next two tests were computed with OpenCV 5.0.0
/// (`cv2.cvtColor`, `cv2.resize`) and NumPy.
#[test]
fn a_part_of_an_image_in_other_colours() {
    let graph = "
  a: { kind: synthetic, config: { pattern: ramp, width: 8, height: 4, count: 1 } }
  b: { kind: crop, config: { x: 5, y: 1, width: 2, height: 2 }, from: a }
  c: { kind: colour, config: { to: bgr }, from: b }
  d: { kind: colour, config: { from: bgr, to: grey }, from: c }
  e: { kind: colour, config: { from: grey, to: rgb }, from: d }
  f: { kind: jsonl, config: { path: out.txt }, inputs: { part: b, bgr: c, grey: d, rgb: e } }";
    let expected = "{\"seq\":0,\"part\":[[[3,6,7],[4,7,9]],[[5,7,8],[6,8,10]]],\"bgr\":[[[7,6,3],[9,7,4]],[[8,7,5],[10,8,6]]],\
                    \"grey\":[[[5],[6]],[[7],[8]]],\"rgb\":[[[5,5,5],[6,6,6]],[[7,7,7],[8,8,8]]]}";
    check(&[], graph, expected);
}

#[test]
fn an_image_is_put_into_a_frame_and_its_boxes_are_taken_out() {
    let boxes = npy_of(&[1, 2, 6], &[0.0, 1.0, 3.0, 2.5, 0.5, 7.0, -9.0, 0.0, 99.0, 6.0, 0.25, 1.0]);
    let graph = "
  a: { kind: synthetic, config: { pattern: ramp, width: 8, height: 4, count: 1 } }
  b: { kind: letterbox, config: { width: 6, height: 6 }, from: a }
  n: { kind: npy, config: { path: boxes.npy } }
  c: { kind: unletterbox, inputs: { boxes: n, placement: b/placement } }
  d: { kind: jsonl, config: { path: out.txt }, inputs: { image: b/image, placement: b/placement, boxes: c } }";
    let image = "[[[114,114,114],[114,114,114],[114,114,114],[114,114,114],[114,114,114],[114,114,114]],\
                 [[0,0,0],[0,2,2],[1,3,4],[2,4,6],[3,6,8],[3,7,10]],\
                 [[2,2,1],[3,3,3],[3,4,4],[4,6,7],[5,7,9],[5,8,10]],\
                 [[4,3,1],[4,4,3],[5,6,5],[6,7,7],[6,8,9],[7,9,11]],\
                 [[114,114,114],[114,114,114],[114,114,114],[114,114,114],[114,114,114],[114,114,114]],\
                 [[114,114,114],[114,114,114],[114,114,114],[114,114,114],[114,114,114],[114,114,114]]]";
    let expected = format!(
        "{{\"seq\":0,\"image\":{image},\"placement\":[0.75,0.75,0,1,8,4],\
         \"boxes\":[[0,0,4,2,0.5,7],[0,0,8,4,0.25,1]]}}"
    );
    check(&[("boxes.npy", &boxes)], graph, &expected);
}

/// The expected levels are those of `cv2.copyMakeBorder` with 9, then `cv2.resize`.
#[test]
fn an_image_is_filled_before_it_is_scaled() {
    let boxes = npy_of(&[1, 2, 6], &[1.25, 1.25, 2.5, 2.5, 0.5, 7.0, -9.0, 0.0, 99.0, 6.0, 0.25, 1.0]);
    for (config, image, placement, corners) in [
        (
            "width: 5, height: 5, at: top_left",
            "[[[0,0,0],[1,2,3],[2,4,5],[2,5,7],[3,7,10]],\
                 [[3,2,1],[4,4,4],[4,5,6],[5,7,8],[6,9,10]],\
                 [[7,6,5],[7,7,6],[7,8,8],[8,9,9],[8,9,10]],\
                 [[9,9,9],[9,9,9],[9,9,9],[9,9,9],[9,9,9]],\
                 [[9,9,9],[9,9,9],[9,9,9],[9,9,9],[9,9,9]]]",
            "0.625,0.625,0,0,8,4",
            "2,2,4,4",
        ),
        (
            "width: 5, height: 5",
            "[[[9,9,9],[9,9,9],[9,9,9],[9,9,9],[9,9,9]],\
                 [[1,1,1],[2,2,3],[2,4,5],[3,5,7],[3,7,9]],\
                 [[2,2,1],[3,3,3],[4,5,6],[4,7,8],[5,8,10]],\
                 [[4,4,2],[5,5,4],[6,7,6],[6,8,8],[7,9,10]],\
                 [[9,9,9],[9,9,9],[9,9,9],[9,9,9],[9,9,9]]]",
            "0.625,0.625,0,1.25,8,4",
            "2,0,4,2",
        ),
        (
            "width: 6, height: 2",
            "[[[9,9,9],[1,1,1],[2,3,4],[3,5,7],[4,7,10],[9,9,9]],\
                 [[9,9,9],[4,3,2],[5,5,5],[6,7,8],[7,9,11],[9,9,9]]]",
            "0.5,0.5,1,0,8,4",
            "0.5,2.5,3,4",
        ),
    ] {
        let graph = format!(
            "
  a: {{ kind: synthetic, config: {{ pattern: ramp, width: 8, height: 4, count: 1 }} }}
  b: {{ kind: letterbox, config: {{ {config}, fill: 9, order: fill_first }}, from: a }}
  n: {{ kind: npy, config: {{ path: boxes.npy }} }}
  c: {{ kind: unletterbox, inputs: {{ boxes: n, placement: b/placement }} }}
  d: {{ kind: jsonl, config: {{ path: out.txt }}, inputs: {{ image: b/image, placement: b/placement, boxes: c }} }}"
        );
        let expected = format!(
            "{{\"seq\":0,\"image\":{image},\"placement\":[{placement}],\
             \"boxes\":[[{corners},0.5,7],[0,0,8,4,0.25,1]]}}"
        );
        check(&[("boxes.npy", &boxes)], &graph, &expected);
    }
    refused(
        "
  s: { kind: synthetic, config: { pattern: noise, width: 9, height: 40 } }
  x: { kind: letterbox, config: { width: 1000, height: 1, order: fill_first }, from: s }
  z: { kind: null, from: x/image }",
        &["got 40000 × 40 for an image of 9 × 40", "`order: scale_first`"],
    );
}

#[test]
fn boxes_become_parts_that_are_gathered_again() {
    let graph = |keys: &str| {
        format!(
            "
  a: {{ kind: synthetic, config: {{ pattern: ramp, width: 8, height: 4, channels: 1, count: 1 }} }}
  n: {{ kind: npy, config: {{ path: boxes.npy }} }}
  b: {{ kind: crop_boxes, config: {{ width: 3, height: 2, fill: 5{keys} }}, inputs: {{ image: a, boxes: n }} }}
  c: {{ kind: gather, config: {{ max: 3 }}, from: b }}
  d: {{ kind: jsonl, config: {{ path: out.txt }}, inputs: {{ parts: c }} }}"
        )
    };
    let row = |corners: [f32; 4]| [&corners[..], &[0.9, 0.0]].concat();
    // The second is rounded outwards, the last is outside.
    let corners = [[2.0, 1.0, 6.0, 3.0], [0.5, 0.5, 7.5, 3.2], [9.0, 9.0, 12.0, 12.0]];
    let boxes = npy_of(&[1, 3, 6], &corners.map(row).concat());
    let [first, second, third] =
        ["[[[2],[3],[3]],[[4],[5],[5]]]", "[[[1],[2],[4]],[[4],[5],[7]]]", "[[[5],[5],[5]],[[5],[5],[5]]]"];
    for (keys, expected) in [
        ("", format!("{{\"seq\":0,\"parts\":[{first},{second},{third}]}}")),
        (", max: 2", format!("{{\"seq\":0,\"parts\":[{first},{second}]}}")),
        (", max: 1", format!("{{\"seq\":0,\"parts\":[{first}]}}")),
    ] {
        check(&[("boxes.npy", &boxes)], &graph(keys), &expected);
    }
    let narrow = npy_of(&[1, 1, 6], &row([3.0, 0.0, 5.0, 4.0]));
    let expected = "{\"seq\":0,\"parts\":[[[[2],[5],[5]],[[5],[5],[5]]]]}";
    check(&[("boxes.npy", &narrow)], &graph(", keep_aspect: true"), expected);
}

#[test]
fn boxes_beyond_the_most_are_counted() {
    let graph = "
  a: { kind: synthetic, config: { pattern: scenes, width: 128, height: 96, count: 20, seed: 7 } }
  b: { kind: nms, from: a/boxes }
  c: { kind: crop_boxes, config: { width: 16, height: 8, max: 1, filter: bilinear }, inputs: { image: a/image, boxes: b } }
  d: { kind: to_tensor, from: c }
  e: { kind: gather, config: { max: 1 }, from: d }
  f: { kind: null, from: e }
  g: { kind: jsonl, config: { path: out.txt }, inputs: { boxes: b } }";
    let folder = tempfile::tempdir().unwrap();
    let report = run(folder.path(), graph);
    let rows = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["boxes"].as_array().unwrap().len();
    let counts: Vec<_> = text(folder.path()).lines().map(rows).collect();
    let (sent, all) = (counts.iter().filter(|n| **n > 0).count(), counts.iter().sum::<usize>());
    assert!(all > sent && sent > 0, "{counts:?}");
    assert_eq!(report.metric("f.messages"), Some(sent as f64));
    assert_eq!(report.metric("c.left_out"), Some((all - sent) as f64));
}

/// A graph of `image_files` and one node, in a folder with a grey image of 2 × 1 pixels and an RGB
/// image of 3 × 2.
fn files(keys: &str, node: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.png"), png([1, 2])).unwrap();
    fs::write(folder.path().join("b.png"), rgb_png(3, 2)).unwrap();
    let graph = format!(
        "\n  a: {{ kind: image_files, config: {{ path: \"*.png\"{keys} }}, on_error: skip }}\n  \
         b: {{ {node}, from: a/image, on_error: skip }}\n  \
         c: {{ kind: jsonl, config: {{ path: out.txt }}, inputs: {{ x: b }} }}"
    );
    (folder, graph)
}

/// The pixels that came to the sink, a message a line, and the report.
fn written(keys: &str, node: &str) -> (String, Report) {
    let (folder, graph) = files(keys, node);
    let report = run(folder.path(), &graph);
    (text(folder.path()).replace("\"seq\":", ""), report)
}

#[test]
fn images_of_several_sizes_and_colours_are_read() {
    let rgb = "[[[1,1,1],[2,2,2]]]";
    for (keys, node, expected) in [
        (
            ", channels: 3",
            "kind: pass",
            format!(
                "{{0,\"x\":{rgb}}}\n{{1,\"x\":[[[0,10,20],[30,40,50],[60,70,80]],[[90,100,110],[120,130,140],[150,160,170]]]}}\n"
            ),
        ),
        (
            ", channels: 1",
            "kind: pass",
            "{0,\"x\":[[[1],[2]]]}\n{1,\"x\":[[[8],[38],[68]],[[98],[128],[158]]]}\n".into(),
        ),
        (
            ", channels: 3",
            "kind: crop, config: { width: 1, height: 1 }",
            "{0,\"x\":[[[1,1,1]]]}\n{1,\"x\":[[[0,10,20]]]}\n".into(),
        ),
        // The same as `cv2.resize` of each.
        (
            ", channels: 3",
            "kind: resize, config: { width: 2, height: 1, filter: linear }",
            format!("{{0,\"x\":{rgb}}}\n{{1,\"x\":[[[53,63,73],[98,108,118]]]}}\n"),
        ),
    ] {
        let (lines, report) = written(keys, node);
        assert_eq!((lines, report.failed_calls), (expected, 0), "{keys} {node}");
    }
    let (lines, report) = written(", channels: 4", "kind: crop, config: { width: 3, height: 1 }");
    assert_eq!(lines, "{1,\"x\":[[[0,10,20,255],[30,40,50,255],[60,70,80,255]]]}\n");
    assert!(
        report.failures[0].text.contains("`x` + `width` must be at most the 2 columns of the image, got 3"),
        "{:?}",
        report.failures
    );
}

#[test]
fn a_file_that_no_longer_fits_fails_its_call() {
    let (folder, graph) = files(", channels: 3", "kind: pass");
    let planned = plan(folder.path(), &graph).unwrap();
    fs::write(folder.path().join("a.png"), rgb_png(4, 1)).unwrap();
    let report = planned.wire().unwrap().start().unwrap().wait();
    assert_eq!(report.failed_calls, 1);
    let said = &report.failures[0].text;
    let expected = "a.png: the file changed after planning: expected u8[≤2,≤3,3], found 4 × 1 pixels with 3 channels";
    assert!(said.contains(expected), "{said}");
    assert!(text(folder.path()).starts_with("{\"seq\":1,"));
}

#[test]
fn images_that_differ_are_refused_where_they_do_not_fit() {
    let three = ", channels: 3";
    for (keys, node, expected) in [
        (
            "",
            "kind: pass",
            &["files with the same number of channels, found 1 in `", "a.png` and 3 in `", "write `channels: 3`"][..],
        ),
        (", channels: 2", "kind: pass", &["`channels` must be 1, 3 or 4, got 2"]),
        (
            three,
            "kind: window, config: { length: 2 }",
            &["at most 5 dims, found u8[≤2,≤3,3]", "`resize` or `letterbox`"],
        ),
        (
            three,
            "kind: npy, config: { path: x.npy }",
            &["expected one shape for all messages", "`resize` or `letterbox`"],
        ),
        (
            three,
            "kind: crop, config: { width: 4, height: 1, y: 3 }",
            &["at most the 3 columns of the image, got 4", "at most the 2 rows of the image"],
        ),
    ] {
        let (folder, graph) = files(keys, node);
        let Err(problems) = plan(folder.path(), &graph) else { panic!("not refused:\n{graph}") };
        for text in expected {
            assert!(problems.contains(text), "`{text}` is not in:\n{problems}");
        }
    }
    // A file that is no image fails its call, as long as there is another one.
    let (folder, graph) = files("", "kind: pass");
    fs::write(folder.path().join("a.png"), "no image").unwrap();
    assert!(plan(folder.path(), &graph).is_ok());
    fs::write(folder.path().join("b.png"), "no image").unwrap();
    let Err(problems) = plan(folder.path(), &graph) else { panic!("not refused") };
    assert!(problems.contains("none of the files can be read") && problems.contains("a.png"), "{problems}");
}

#[test]
fn wrong_configs_are_refused_with_the_way_out() {
    let source = "\n  s: { kind: synthetic, config: { pattern: noise, width: 8, height: 4 } }";
    for (node, expected) in [
        (
            "kind: crop, config: { x: 8, width: 1, height: 4 }",
            &["`x` + `width` must be at most the 8 columns of the image, got 9"][..],
        ),
        (
            "kind: crop, config: { width: 0, height: 40000 }",
            &["pixels, got 0", "got 40000", "write a smaller `height`"],
        ),
        ("kind: colour, config: { to: rgb }", &["must differ"]),
        ("kind: colour, config: { from: grey, to: rgb }", &["expected 1 channel for `from`, found 3", "`from: bgr`"]),
        ("kind: letterbox, config: { width: 0, height: 40000 }", &["pixels, got 0", "got 40000"]),
        ("kind: letterbox, config: { width: 1, height: 1, fill: 256 }", &["256"]),
        ("kind: resize, config: { width: 1, height: 1, filter: cubic }", &["cubic", "lanczos3"]),
    ] {
        refused(&format!("{source}\n  x: {{ {node}, from: s }}\n  z: {{ kind: null, from: x/image }}"), expected);
    }
    let parts = format!(
        "{source}\n  b: {{ kind: synthetic, config: {{ pattern: noise, shape: [4, 6], dtype: f32 }} }}\n  \
         x: {{ kind: crop_boxes, config: {{ width: 0, height: 2, max: 1025 }}, inputs: {{ image: s, boxes: b }} }}\n  \
         z: {{ kind: null, from: x }}"
    );
    refused(&parts, &["pixels, got 0", "must be 1 to 1024, got 1025"]);
    let short = parts.replace("width: 0", "width: 2").replace("max: 1025", "max: 4");
    refused(
        &short.replace("z: {", "g: { kind: gather, config: { max: 3 }, from: x }\n  z: {"),
        &["at least the 4 parts"],
    );
    refused(&short.replace("[4, 6]", "[4, 5]"), &["dim 1 must be 6, got 5"]);
}
