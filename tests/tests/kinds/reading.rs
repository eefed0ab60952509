//! Text in images: regions at any angle, their parts, and what was read in them, together again.

use super::{plan, refused, run};
use limen_tests::files::npy_of;
use std::fs;
use std::path::Path;

/// A grey image.
fn grey_png(width: u32, height: u32, level: impl Fn(u32, u32) -> u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let levels: Vec<u8> = (0..width * height).map(|at| level(at % width, at / width)).collect();
    encoder.write_header().unwrap().write_image_data(&levels).unwrap();
    bytes
}

/// The field of each line of `out.txt`.
fn field(folder: &Path, name: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("out.txt")).unwrap();
    text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()[name].take()).collect()
}

/// The map is that of the test in `decode_db`. Each expected row is a box, its score and its quad.
/// They are those of OpenCV 5.0.0: `dilate` with ones of 2 × 2, `connectedComponents`, the mean of
/// each label's pixels, `minAreaRect` of the pixels, its sides expanded by the formula, `boxPoints`
/// in the order of PaddleOCR's `get_mini_boxes`, clipped to 39 and 23.
#[test]
fn regions_at_any_angle_are_those_of_opencv() {
    let noise = |i: usize| ((i * i * 37 + i * 11 + 5) % 1000) as f32 / 1000.0;
    let pixel = |i: usize| noise(i / 40 / 4 * 10 + i % 40 / 4) * 0.75 + noise(i) * 0.25;
    let map: Vec<f32> = (0..24 * 40).map(pixel).collect();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.npy"), npy_of(&[1, 24, 40], &map)).unwrap();
    for (config, expected) in [
        (
            "threshold: 0.65, dilation: false",
            &[
                [0.0, 2.333, 6.667, 9.667, 0.782, 0.0, 2.714, 5.286, 2.714, 5.286, 8.286, 0.0, 8.286],
                [0.0, 7.32, 20.68, 24.0, 0.753, 0.0, 7.696, 19.304, 7.696, 19.304, 23.0, 0.0, 23.0],
                [10.091, 6.091, 17.909, 16.909, 0.741, 10.5, 6.5, 16.5, 6.5, 16.5, 15.5, 10.5, 15.5],
                [14.375, 6.375, 40.0, 24.0, 0.75, 13.886, 11.331, 39.0, 4.297, 39.0, 23.0, 18.861, 23.0],
                [16.429, 0.0, 27.571, 10.571, 0.812, 21.5, 0.0, 29.912, 4.0, 24.0, 9.912, 15.588, 1.5],
                [24.692, 0.0, 34.308, 10.308, 0.794, 25.091, 0.0, 32.909, 0.0, 32.909, 8.909, 25.091, 8.909],
            ][..],
        ),
        (
            "threshold: 0.8, dilation: true",
            &[
                [0.0, 2.125, 6.875, 10.875, 0.677, 0.0, 2.5, 5.5, 2.5, 5.5, 9.5, 0.0, 9.5],
                [10.125, 6.125, 18.875, 14.875, 0.69, 10.5, 6.5, 17.5, 6.5, 17.5, 13.5, 10.5, 13.5],
                [18.125, 0.0, 26.875, 6.875, 0.718, 18.5, 0.0, 25.5, 0.0, 25.5, 5.5, 18.5, 5.5],
                [25.812, 0.0, 35.188, 9.188, 0.728, 26.2, 0.0, 33.8, 0.0, 33.8, 7.8, 26.2, 7.8],
                [2.125, 10.125, 10.875, 18.875, 0.724, 2.5, 10.5, 9.5, 10.5, 9.5, 17.5, 2.5, 17.5],
                [2.714, 19.714, 9.286, 24.0, 0.741, 3.1, 20.1, 7.9, 20.1, 7.9, 23.0, 3.1, 23.0],
                [10.125, 14.125, 18.875, 22.875, 0.652, 10.5, 14.5, 17.5, 14.5, 17.5, 21.5, 10.5, 21.5],
                [22.333, 14.333, 29.667, 22.667, 0.694, 25.284, 13.853, 29.347, 15.884, 26.116, 22.347, 22.053, 20.316],
                [25.429, 15.429, 38.571, 24.0, 0.664, 25.008, 19.336, 34.864, 14.408, 38.392, 21.464, 28.536, 23.0],
                [30.333, 10.333, 38.667, 17.667, 0.758, 30.714, 10.714, 37.286, 10.714, 37.286, 16.286, 30.714, 16.286],
            ][..],
        ),
    ] {
        let graph = format!(
            "
  a: {{ kind: npy, config: {{ path: a.npy }} }}
  d: {{ kind: decode_db, config: {{ box_threshold: 0.5, {config} }}, from: a }}
  z: {{ kind: jsonl, config: {{ path: out.txt }}, inputs: {{ boxes: d/boxes, quads: d/quads }} }}"
        );
        run(folder.path(), &graph);
        let numbers = |name| serde_json::from_value::<Vec<Vec<f64>>>(field(folder.path(), name).remove(0)).unwrap();
        let (boxes, quads) = (numbers("boxes"), numbers("quads"));
        assert_eq!((boxes.len(), quads.len()), (expected.len(), expected.len()), "{config}");
        for ((found, quad), expected) in boxes.iter().zip(&quads).zip(expected) {
            let found = found[..5].iter().chain(quad);
            assert!(found.clone().zip(expected).all(|(a, b)| (a - b).abs() < 2e-3), "{found:?} is not {expected:?}");
        }
    }
}

/// The expected levels are those of PaddleOCR's `get_rotate_crop_image` and `cv2.resize`, with
/// OpenCV 5.0.0. The second quad is turned, the third has no pixel.
#[test]
fn quads_become_parts() {
    let quads = [
        [3.0, 2.0, 18.0, 4.0, 17.0, 9.0, 2.5, 7.0],
        [10.0, 0.5, 13.0, 1.0, 12.0, 11.0, 8.5, 10.5],
        [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0],
    ];
    let expected: [[[u8; 12]; 6]; 3] = [
        [
            [50, 64, 79, 92, 106, 122, 139, 156, 172, 189, 206, 241],
            [60, 75, 90, 104, 120, 136, 154, 172, 189, 212, 239, 127],
            [71, 87, 102, 118, 134, 152, 171, 189, 215, 218, 155, 55],
            [82, 99, 115, 132, 149, 168, 187, 210, 216, 167, 64, 36],
            [93, 110, 128, 145, 164, 183, 204, 231, 172, 75, 34, 49],
            [102, 121, 139, 157, 177, 196, 219, 242, 95, 8, 42, 70],
        ],
        [
            [102, 116, 132, 149, 166, 183, 199, 230, 242, 186, 84, 20],
            [99, 113, 129, 146, 163, 180, 196, 223, 239, 191, 91, 17],
            [93, 107, 123, 139, 156, 172, 189, 209, 232, 199, 104, 10],
            [87, 101, 117, 133, 149, 165, 181, 198, 221, 207, 141, 58],
            [82, 96, 111, 127, 142, 157, 173, 189, 207, 216, 202, 161],
            [79, 93, 108, 123, 138, 153, 168, 184, 199, 220, 232, 213],
        ],
        [
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
            [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
        ],
    ];
    let graph = "
  a: { kind: image_files, config: { path: a.png } }
  q: { kind: npy, config: { path: q.npy } }
  p: { kind: crop_boxes, config: { width: 12, height: 6, keep_aspect: true, fill: 5 }, inputs: { image: a/image, quads: q } }
  g: { kind: gather, config: { max: 3 }, from: p }
  z: { kind: jsonl, config: { path: out.txt }, inputs: { parts: g } }";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.png"), grey_png(24, 12, |x, y| (x * 7 + y * 11 + x * y) as u8)).unwrap();
    fs::write(folder.path().join("q.npy"), npy_of(&[1, 3, 8], quads.as_flattened())).unwrap();
    run(folder.path(), graph);
    let parts: Vec<[[[u8; 1]; 12]; 6]> = serde_json::from_value(field(folder.path(), "parts").remove(0)).unwrap();
    for (part, expected) in parts.iter().zip(&expected) {
        let pairs = part.as_flattened().as_flattened().iter().zip(expected.as_flattened());
        assert!(pairs.clone().all(|(a, b)| a.abs_diff(*b) <= 1), "{part:?} is not {expected:?}");
    }
    assert_eq!(parts.len(), expected.len());
    let hostile = [f32::NAN, 1e30, -1e30, f32::INFINITY, 0.0, 1.0, 1e9, -0.0].repeat(3);
    fs::write(folder.path().join("q.npy"), npy_of(&[1, 3, 8], &hostile)).unwrap();
    assert_eq!(run(folder.path(), graph).failed_calls, 0);
    refused(
        "
  s: { kind: synthetic, config: { pattern: noise, width: 8, height: 4 } }
  b: { kind: synthetic, config: { pattern: noise, shape: [4, 6], dtype: f32 } }
  x: { kind: crop_boxes, config: { width: 2, height: 2 }, inputs: { image: s, quads: b } }
  z: { kind: null, from: x }",
        &["dim 1 must be 8, got 6"],
    );
}

/// Three images, of which the second shows no text. The boxes are 3 × 4 pixels, which are the
/// scores of 4 steps and 3 classes.
#[test]
fn the_lines_of_an_image_are_gathered() {
    let (width, height) = (24, 12);
    let (he, h, e) = ([1, 0, 2, 2], [0, 1, 1, 0], [2, 0, 0, 0]);
    let pages = [&[(2, 5, he), (12, 6, h)][..], &[], &[(9, 1, e)]];
    let mut maps = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    for (page, number) in pages.iter().zip(0..) {
        let step = |x: u32, y: u32| {
            let region =
                page.iter().find(|(left, top, _)| (*left..left + 3).contains(&x) && (*top..top + 4).contains(&y));
            region.map(|(left, top, classes)| classes[(y - top) as usize] == x - left)
        };
        let level = |x, y| if step(x, y) == Some(true) { 255 } else { 51 };
        fs::write(folder.path().join(format!("{number}.png")), grey_png(width, height, level)).unwrap();
        maps.extend((0..width * height).map(|at| if step(at % width, at / width).is_some() { 0.75 } else { 0.0 }));
    }
    fs::write(folder.path().join("maps.npy"), npy_of(&[3, 12, 24], &maps)).unwrap();
    fs::write(folder.path().join("symbols.txt"), "h\né\n").unwrap();
    let graph = "
  image: { kind: image_files, config: { path: \"*.png\" } }
  map: { kind: npy, config: { path: maps.npy } }
  found: { kind: decode_db, config: { unclip: 0, max_boxes: 9 }, from: map }
  part: { kind: crop_boxes, config: { width: 3, height: 4, empty: send }, inputs: { image: image/image, boxes: found } }
  pixels: { kind: to_tensor, from: part }
  scores: { kind: reshape, config: { shape: [4, 3] }, from: pixels }
  read: { kind: decode_ctc, config: { alphabet: symbols.txt }, from: scores }
  text: { kind: gather, config: { max: 8 }, from: read/text }
  sure: { kind: gather, config: { max: 8 }, from: read/score }
  row: { kind: scatter, config: { empty: send }, from: found }
  rows: { kind: gather, config: { max: 9 }, from: row }
  z:
    kind: jsonl
    config: { path: out.txt }
    inputs: { boxes: rows, text: text, score: sure }
    join: { patience: 8 }";
    let expected = [
        r#"{"seq":0,"boxes":[[2,5,5,9,0.75,0],[12,6,15,10,0.75,0]],"text":"hé\nh","score":[1,1]}"#,
        r#"{"seq":1,"boxes":[],"text":"","score":[]}"#,
        r#"{"seq":2,"boxes":[[9,1,12,5,0.75,0]],"text":"é","score":[1]}"#,
    ];
    let lines = |graph: &str| {
        let report = run(folder.path(), graph);
        assert_eq!(report.failed_calls, 0, "{:?}", report.failures);
        fs::read_to_string(folder.path().join("out.txt")).unwrap()
    };
    assert_eq!(lines(graph), expected.map(|line| format!("{line}\n")).concat());
    // By default the second image sends no part, so that there is nothing to gather.
    let dropped = graph.replace(", empty: send", "");
    assert_eq!(lines(&dropped), [expected[0], expected[2]].map(|line| format!("{line}\n")).concat());
    for (from, to, expected) in [
        ("{ max: 8 }, from: read/text", "{ max: 7 }, from: read/text", "at least the 8 parts"),
        ("from: read/text }", "from: image/name }", "no `scatter` splits the messages"),
        ("from: row }", "from: found }", "at most 5 dims, found f32[≤9,6]"),
    ] {
        let Err(problems) = plan(folder.path(), &graph.replace(from, to)) else { panic!("not refused: {to}") };
        assert!(problems.contains(expected), "`{expected}` is not in:\n{problems}");
    }
}
