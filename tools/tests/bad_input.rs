//! User errors are refused with their place and a remedy, without starting anything, with exit
//! code 2. A bad file is named and counted.

use crate::program::{Folder, Ran};
use std::path::Path;

/// A folder with a good image, a corrupt image, a model, and a corrupt model.
fn folder(name: &str) -> Folder {
    let made = Folder::with(name, "");
    let folder = &made.0;
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
    made
}

fn run(folder: &Folder, graph: &str, words: &str) -> Ran {
    std::fs::write(folder.0.join("graph.yaml"), graph).unwrap();
    folder.run(&format!("graph.yaml {words}"))
}

/// Promise (checking): limen rejects an invalid graph with the location of each error and a
/// suggested fix.
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
            vec!["a rate such as `30Hz`"],
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
            vec!["at least the 8 messages of one call, got 4"],
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
        let ran = run(&folder, &graph, "");
        ran.expect(2, "", &format!("graph.yaml:{place}")).expect(2, "", "help: ").expect(2, "", "nothing was started");
        for part in parts {
            ran.expect(2, "", part);
        }
    }
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
    run(&folder, &graph(""), "").expect(1, "", "`camera` failed").expect(1, "", "0001-");
    run(&folder, &graph(", on_error: skip"), "--fail-on messages!=3 --fail-on failed!=1").expect(0, "", "");
}
