//! User errors are refused with their place and a remedy, without starting anything, with exit code 2. Errors during a run are
//! named, counted, and handled as the policy says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a good image, a corrupt image, a model, and a corrupt model.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("limen-bad-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("images")).unwrap();
    std::fs::create_dir_all(folder.join("mixed")).unwrap();
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits");
    let mut images: Vec<_> = std::fs::read_dir(digits.join("data")).unwrap().map(|e| e.unwrap().path()).collect();
    images.sort();
    for image in &images[..4] {
        for sub in ["images", "mixed"] {
            std::fs::copy(image, folder.join(sub).join(image.file_name().unwrap())).unwrap();
        }
    }
    let good = std::fs::read(&images[1]).unwrap();
    std::fs::write(folder.join("mixed").join(images[1].file_name().unwrap()), &good[..good.len() / 2]).unwrap();
    let model = std::fs::read(digits.join("digits.onnx")).unwrap();
    std::fs::write(folder.join("digits.onnx"), &model).unwrap();
    std::fs::write(folder.join("cut.onnx"), &model[..model.len() / 2]).unwrap();
    std::fs::write(folder.join("text.onnx"), "this is not a model").unwrap();
    folder
}

fn run(folder: &Path, graph: &str, words: &[&str]) -> (Option<i32>, String) {
    let file = folder.join("graph.yaml");
    std::fs::write(&file, graph).unwrap();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_limen-run"))
        .current_dir(folder)
        .arg("graph.yaml")
        .args(words)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&stderr).into_owned() + &String::from_utf8_lossy(&stdout);
    (status.code(), text)
}

/// \[H1\]
#[test]
fn every_wrong_graph_is_refused_with_its_place_and_a_remedy() {
    let folder = folder("refused");
    let camera = "  camera: { kind: image_files, config: { path: images/*.png } }\n";
    let pixels = "  pixels: { kind: to_tensor, from: camera/image }\n";
    for (nodes, place, parts) in [
        (
            "  a: { kind: image_files, config: { path: nothing/*.png } }\n  b: { kind: null, from: a/image }\n",
            "3:43",
            vec!["nothing/*.png"],
        ),
        (
            "  a: { kind: image_files, config: { path: ../*.png } }\n  b: { kind: null, from: a/image }\n",
            "3:43",
            vec!["leaves the graph's folder", "--allow-path"],
        ),
        (
            "  a: { kind: image_files, config: { path: images/*.png, rate: 30 } }\n  b: { kind: null, from: a/image }\n",
            "3:63",
            vec!["a rate with its unit"],
        ),
        (
            "  a: { kind: image_files, config: { path: images/*.png, rat: 30Hz } }\n  b: { kind: null, from: a/image }\n",
            "3:57",
            vec!["did you mean `rate`?"],
        ),
        (
            "  a: { kind: timer, config: { rate: 10Hz } }\n  m: { kind: infer, config: { model: digits.onnx }, from: a }\n  b: { kind: null, from: m }\n",
            "4:59",
            vec!["u64[]", "f32[1,8,8]"],
        ),
        (
            "CAMERA  m: { kind: infer, config: { model: digits.onnx }, from: camera/image }\n  b: { kind: null, from: m }\n",
            "4:59",
            vec!["u8[8,8,1]", "f32[1,8,8]", "to_tensor"],
        ),
        (
            "CAMERAPIXELS  m: { kind: infer, config: { model: gone.onnx }, from: pixels }\n  b: { kind: null, from: m }\n",
            "5:38",
            vec!["gone.onnx"],
        ),
        (
            "CAMERAPIXELS  m: { kind: infer, config: { model: cut.onnx }, from: pixels }\n  b: { kind: null, from: m }\n",
            "5:38",
            vec!["cut.onnx"],
        ),
        (
            "CAMERAPIXELS  m: { kind: infer, config: { model: text.onnx }, from: pixels }\n  b: { kind: null, from: m }\n",
            "5:38",
            vec!["text.onnx"],
        ),
        (
            "CAMERAPIXELS  m: { kind: infer, config: { model: digits.onnx, backend: cuda }, from: pixels }\n  b: { kind: null, from: m }\n",
            "5:60",
            vec!["rten"],
        ),
        (
            "CAMERAPIXELS  m: { kind: infer, config: { model: digits.onnx, batch: { max: 8 } }, from: { from: pixels, capacity: 4 } }\n  b: { kind: null, from: m }\n",
            "5:104",
            vec!["capacity 4 is below the 8"],
        ),
        (
            "CAMERAPIXELS  d: { kind: decode_boxes, config: { stride: 8, width: 64, height: 64 }, inputs: { scores: pixels, boxes: pixels } }\n  b: { kind: null, from: d }\n",
            "5:",
            vec!["max_boxes"],
        ),
        (
            "CAMERA  c: { kind: csv, config: { path: ../../out.csv }, inputs: { name: camera/name } }\n",
            "4:",
            vec!["leaves the graph's folder"],
        ),
    ] {
        let graph = format!("version: 1\nnodes:\n{}", nodes.replace("CAMERA", camera).replace("PIXELS", pixels));
        let (code, text) = run(&folder, &graph, &[]);
        assert_eq!(code, Some(2), "{graph}\n{text}");
        assert!(text.contains(&format!("graph.yaml:{place}")), "no {place} in\n{text}\n{graph}");
        assert!(text.contains("help: ") && text.contains("nothing was started"), "{text}\n{graph}");
        for part in parts {
            assert!(text.contains(part), "no {part:?} in\n{text}\n{graph}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_corrupt_image_is_named_or_skipped_and_counted() {
    let folder = folder("corrupt");
    let graph = |keys: &str| {
        format!(
            "version: 1\nnodes:\n  camera: {{ kind: image_files, config: {{ path: mixed/*.png }}{keys} }}\n  \
             b: {{ kind: null, from: camera/image }}\n"
        )
    };
    let (code, text) = run(&folder, &graph(""), &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("`camera` failed") && text.contains("0001-"), "{text}");
    let (code, text) =
        run(&folder, &graph(", on_error: skip"), &["--fail-on", "messages != 3", "--fail-on", "failed != 1"]);
    assert_eq!(code, Some(0), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Simulates a disk that is full after 16 KiB by a limit on the size of files, whose signal is ignored, so that writing fails.
fn run_on_a_full_disk(folder: &Path, graph: &str, words: &str) -> (Option<i32>, String) {
    std::fs::write(folder.join("graph.yaml"), graph).unwrap();
    let limited = format!("trap '' XFSZ; ulimit -f 16; exec {} graph.yaml {words}", env!("CARGO_BIN_EXE_limen-run"));
    let Output { status, stdout, stderr } =
        Command::new("bash").current_dir(folder).args(["-c", &limited]).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned() + &String::from_utf8_lossy(&stdout))
}

#[test]
fn a_full_disk_is_an_error_of_the_sink_that_names_the_file() {
    let folder = folder("full");
    let graph = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, count: 100000 } }\n  \
                 full: { kind: csv, config: { path: full.csv }, on_error: POLICY, inputs: { n: a } }\n  \
                 other: { kind: null, from: a }\n";
    let (code, text) = run_on_a_full_disk(&folder, &graph.replace("POLICY", "stop"), "");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("`full` failed") && text.contains("full.csv"), "{text}");
    // With `detach` the other branch receives everything, and the messages that the sink did not take are counted.
    let words = "--fail-on 'messages != 100000' --fail-on 'lost == 0'";
    let (code, text) = run_on_a_full_disk(&folder, &graph.replace("POLICY", "detach"), words);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("detached"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}
