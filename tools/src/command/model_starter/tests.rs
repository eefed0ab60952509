//! Which graph a model gets.

use super::*;

pub(super) type Sides<'a> = &'a [(&'a str, &'a str)];

pub(super) fn inspection(inputs: Sides<'_>, outputs: Sides<'_>) -> Inspection {
    let binding = |(port, spec): &(&str, &str)| serde_json::json!({ "port": port, "name": port, "spec": spec });
    let sides = |sides: &[(&str, &str)]| sides.iter().map(binding).collect::<Vec<_>>();
    let (inputs, outputs) = (sides(inputs), sides(outputs));
    serde_json::from_value(serde_json::json!({ "format": "onnx", "sha256": "", "inputs": inputs, "outputs": outputs }))
        .unwrap()
}

fn starter(models: &[(Sides<'_>, Sides<'_>)], asked: Option<InputKind>) -> Result<ModelStarter, String> {
    let named = |(at, (inputs, outputs)): (usize, &(Sides<'_>, Sides<'_>))| {
        (inspection(inputs, outputs), format!("m{at}.onnx"))
    };
    let models: Vec<_> = models.iter().enumerate().map(named).collect();
    ModelStarter::of(&models, "robot", asked, &Tried { sides: SIDES[0], ..Tried::default() })
}

fn expect(graph: &str, parts: &[&str]) {
    // Long comments are broken into lines.
    let joined = graph.replace("\n    # ", " ");
    for part in parts {
        assert!(graph.contains(part) || joined.contains(part), "{part}:\n{graph}");
    }
    for line in graph.lines().filter(|line| line.contains('#')) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    limen::Spec::from_text(graph, "graph.yaml").unwrap();
}

#[test]
fn the_nodes_follow_from_types_shapes_and_names() {
    let image = ("images", "f32[batch,3,height,width]");
    let cases: [(Sides<'_>, Sides<'_>, Option<InputKind>, &[&str]); 26] = [
        (&[image], &[("scores", "f32[batch,1000]")], None, &["kind: image_files", "layout: chw", "out/scores.npy"]),
        (&[image], &[("label", "i32[batch]")], Some(InputKind::Camera), &["kind: synthetic", "out/label.csv"]),
        (&[("x", "f32[n,1,28,28]")], &[("y", "f32[n,9]")], Some(InputKind::Camera), &["height: 480, channels: 1,"]),
        (&[("x", "f32[n,4]")], &[("y", "f32[n,9]")], Some(InputKind::Wav), &["kind: wav", "frames: 4"]),
        (
            &[image],
            &[("output0", "f32[batch,84,anchors]")],
            None,
            &["kind: letterbox", "layout: v8", "kind: nms", "kind: unletterbox", "boxes.jsonl"],
        ),
        (&[image], &[("output0", "f32[1,25200,85]")], None, &["layout: v5"]),
        (&[image, ("right", "f32[n,3,h,w]")], &[("y", "f32[n,9]")], None, &["images: pixels, right: pixels_2"]),
        // An image that becomes an image.
        (&[("img_in", "f32[n,3,h,w]")], &[("img_out", "f32[n,3,h,w]")], None, &["img_in: pixels", "img_out.npy"]),
        (
            &[("x", "f32[n,floor(a,2),4]")],
            &[("y", "f32[n]")],
            None,
            &["path: x.npy", "lengths that the model leaves open are a guess"],
        ),
        (&[("x", "u8[1,64,48,3]")], &[("y", "f32[1]")], None, &["width: 48, height: 64", "x: scaled"]),
        (
            &[("input", "f32[n,t]"), ("state", "f32[2,n,128]"), ("sr", "i32[]")],
            &[("output", "f32[n,1]"), ("staten", "f32[a,b,c]")],
            None,
            &["kind: wav", "state: [{ input: state, output: staten }]", "sr: { value: 16000 }", "out/output.csv"],
        ),
        (
            &[("input_ids", "i32[n,s]"), ("attention_mask", "i32[n,s]")],
            &[("hidden", "f32[n,s,384]")],
            None,
            &["path: input_ids.npy", "attention_mask: attention_mask_array", "out/hidden.npy"],
        ),
        (
            &[("a", "f32[n,4]"), ("b", "f32[n,4]"), ("h_in", "f32[1,n,8]")],
            &[("y", "f32[n,4]"), ("h_out", "f32[1,n,8]")],
            None,
            &["a: { from: a_array, stream: true }", "b: b_array", "input: h_in, output: h_out"],
        ),
        // Names say what is no image and no recording.
        (
            &[("degraded_audio", "f32[n,1,frames,257]"), ("rater_embed", "f32[n,64]")],
            &[("y", "f32[]")],
            None,
            &["path: degraded_audio.npy", "a guess from the names", "rater_embed: rater_embed_array"],
        ),
        (
            &[("input", "f32[n,3,frames,160]"), ("h0", "f32[4,1,64]")],
            &[("y", "f32[n]")],
            None,
            &["path: input.npy", "it has the shape of an image (`--input images`)", "path: h0.npy"],
        ),
        (
            &[("degraded_audio", "f32[n,1,frames,257]")],
            &[("y", "f32[n]")],
            Some(InputKind::Images),
            &["kind: image_files", "width: 257, height: 320"],
        ),
        (&[("x", "f32[n,76,32,1]")], &[("y", "f32[n]")], None, &["image_files", "a guess from the shape, which"]),
        // A recording by its name, by a sample rate, or beside a state.
        (&[("waveform", "f32[n,1,t]")], &[("y", "f32[n]")], None, &["frames: 512", "shape: [1, 512]", "guesses: "]),
        (
            &[("input", "f32[n,t]"), ("state", "f32[2,n,128]")],
            &[("output", "f32[n,1]"), ("staten", "f32[a,n,c]")],
            None,
            &["kind: wav", "guesses: `frames`, `sample_rate`, that it is sound (else `--input npy`)"],
        ),
        (
            &[("input", "f32[n,40]"), ("state", "f32[2,n,128]")],
            &[("output", "f32[n,1]"), ("staten", "f32[2,n,128]")],
            None,
            &["path: input.npy"],
        ),
        (&[("x", "f32[n,43844,1]")], &[("y", "f32[n]")], None, &["path: x.npy", "if it is sound, `--input wav` reads"]),
        (
            &[("x", "f32[n,43844,1]")],
            &[("y", "f32[n]")],
            Some(InputKind::Wav),
            &["frames: 43844", "shape: [43844, 1]", "guesses: `sample_rate`; `context: N`"],
        ),
        (
            &[("x", "f32[n,t]"), ("rater_embed", "f32[n,64]"), ("sr", "i32[]")],
            &[("y", "f32[n]")],
            None,
            &["x: samples, rater_embed: rater_embed_array", "a recording; guesses: `frames`; `context"],
        ),
        (&[("sr", "i32[]")], &[("y", "f32[]")], None, &["path: sr.npy"]),
        (&[image], &[("y", "f32[n]")], None, &["`filter: linear` as OpenCV does; the size is a guess"]),
        (
            &[("images", "f32[n,3,640,640]")],
            &[("y", "f32[1,8400,85]")],
            None,
            &["layout: v5", "the other possibility is `layout: yolox`"],
        ),
    ];
    for (inputs, outputs, asked, expected) in cases {
        expect(&starter(&[(inputs, outputs)], asked).unwrap().graph, expected);
    }
}

#[test]
fn what_is_rounded_or_bounded_is_said() {
    let found = inspection(&[("x", "f32[n,4]")], &[("y", "f32[k,6]")]);
    let mut model = Model::of(&found, "m.onnx").unwrap();
    model.inputs[0].is_narrowed = true;
    model.outputs[0].depends_on_values = true;
    let starter = |tried: &Tried| ModelStarter::for_models(&[model.clone()], "robot", None, tried).unwrap();
    let first = starter(&Tried::default());
    assert!(first.warnings[0].contains("expects f64 at `x`"), "{:?}", first.warnings);
    let mut plain = Model::of(&found, "m.onnx").unwrap();
    let said = |model: &Model| {
        ModelStarter::for_models(std::slice::from_ref(model), "robot", None, &Tried::default()).unwrap()
    };
    assert!(!said(&plain).graph.contains("allow_narrowing"));
    plain.computes_f64 = true;
    expect(&said(&plain).graph, &["allow_narrowing: true", "computes with f64"]);
    plain.outputs[0].is_narrowed = true;
    expect(&said(&plain).graph, &["allow_narrowing: true", "produces f64 at `y`"]);
    assert!(first.records[0].request.max["y"][0] > 1000, "a trial shows how many there are");
    expect(&first.graph, &["allow_narrowing: true", "max: { y: 1000 }", "no trial produced rows", "path: out/y.jsonl"]);
    let longest = [("y".to_string(), 700)].into();
    let trial = TriedModel { has_case: true, longest, ..TriedModel::default() };
    let models = [("model".to_string(), trial)].into();
    let after = starter(&Tried { models, ..Tried::default() }).graph;
    expect(&after, &["max: { y: 1400 }", "a trial on noise produced 700", "verify: { case: verify.npz }"]);
}

#[test]
fn a_trial_that_shows_yolox_decides_layout_and_range() {
    let found = inspection(&[("images", "f32[1,3,416,416]")], &[("y", "f32[1,3549,6]")]);
    let trial = TriedModel { greatest: [("y".to_string(), 2.4)].into(), ..TriedModel::default() };
    let models = [("model".to_string(), trial)].into();
    let tried = Tried { sides: SIDES[0], models, ..Tried::default() };
    let starter = ModelStarter::of(&[(found, "m.onnx".into())], "robot", None, &tried).unwrap();
    expect(
        &starter.graph,
        &["layout: yolox", "by a trial: the greatest number, 2.4", "range: [0, 255]", "YOLOX is trained on levels"],
    );
}

#[test]
fn two_models_are_a_chain() {
    let image = ("x", "f32[n,3,h,w]");
    let map = ("map", "f32[a,1,b,c]");
    let yolo = ("boxes", "f32[n,84,anchors]");
    let cases: [(Sides<'_>, Sides<'_>, Sides<'_>, Sides<'_>, &[&str]); 5] = [
        (
            &[image],
            &[map],
            &[("y", "f32[n,3,48,w]")],
            &[("steps", "f32[n,t,97]")],
            &[
                "from: detector/map",
                "kind: normalize",
                "image: bgr, quads: placed",
                "width: 800, height: 48",
                "text: text_all",
            ],
        ),
        (
            &[image],
            &[yolo],
            &[("y", "f32[n,3,64,64]")],
            &[("classes", "f32[n,10]")],
            &[
                "layout: v8",
                "image: camera/image",
                "width: 64, height: 64, max: 100",
                "class: class_all, score: score_all",
            ],
        ),
        (&[image], &[yolo], &[("y", "f32[n,1,h,w]")], &[("classes", "f32[n,10]")], &["to: grey", "image: coloured"]),
        (&[image], &[yolo], &[("y", "u8[n,h,w,3]")], &[("steps", "f32[n,t,97]")], &["y: parts", "image: bgr"]),
        (
            &[image],
            &[map],
            &[("y", "f32[n,3,h,w]")],
            &[("box", "f32[n,4]"), ("a", "f32[n,4]")],
            &["box: box_all, a: a_all", "from: second/a"],
        ),
    ];
    for (inputs, outputs, second, results, expected) in cases {
        let starter = starter(&[(inputs, outputs), (second, results)], None).unwrap();
        expect(&starter.graph, expected);
        assert_eq!(starter.records.len(), 2);
    }
}

#[test]
fn models_that_do_not_fit_each_other_are_refused() {
    let image = ("x", "f32[n,3,h,w]");
    let map = ("map", "f32[a,1,b,c]");
    let plain: (Sides<'_>, Sides<'_>) = (&[("x", "f32[n,4]")], &[("y", "f32[n,4]")]);
    let text: (Sides<'_>, Sides<'_>) = (&[image], &[map]);
    for (models, asked, why) in [
        (
            &[plain, text][..],
            None,
            "as [n,84,8400]; `m0.onnx` expects `x` f32[?,4] and produces `y` f32[?,4]: begin with one `--model`",
        ),
        (
            &[text, plain],
            None,
            "at least one output; `m1.onnx` expects `x` f32[?,4] and produces `y` f32[?,4]: begin with one `--model`",
        ),
        (&[text, text, text], None, "that the detector finds), found 3"),
        (&[text, text], Some(InputKind::Wav), "write `--input images` or `--input camera`"),
    ] {
        let error = starter(models, asked).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn an_input_that_no_input_of_the_model_can_be_is_refused() {
    use InputKind::{Camera, Images, Wav};
    let image = &[("x", "f32[n,3,h,w]")][..];
    let sound = &[("input", "f32[n,t]"), ("state", "f32[2,n,128]"), ("sr", "i32[]")][..];
    for (inputs, asked, why) in [
        (
            image,
            Wav,
            "`wav` cannot be the `--input` of a model that expects `x` f32[?,3,?,?]: remove `--input`, or write `images` or `camera` or `npy`",
        ),
        (
            sound,
            Camera,
            "`input` f32[?,?], `state` f32[2,?,128], `sr` i32[]: remove `--input`, or write `wav` or `npy`",
        ),
        (&[("x", "f32[n,4]")], Images, "`x` f32[?,4]: remove `--input`, or write `wav` or `npy`"),
        (&[("x", "i32[n,4]")], Wav, "`x` i32[?,4]: remove `--input`, or write `npy`"),
        (&[("x", "f32[n,40,t]")], Wav, "`x` f32[?,40,?]: remove `--input`, or write `npy`"),
        (&[("sr", "i32[]")], Wav, "`sr` i32[]: remove `--input`, or write `npy`"),
    ] {
        let outputs = &[("output", "f32[n,1]"), ("staten", "f32[2,n,128]")];
        let error = starter(&[(inputs, outputs)], Some(asked)).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    // One that fits is enough.
    let both = &[("x", "f32[n,3,h,w]"), ("goal", "f32[n,4]")];
    assert!(starter(&[(both, &[("y", "f32[n,4]")])], Some(Camera)).is_ok());
}

#[test]
fn arrays_have_the_size_of_images_and_one_length() {
    let shapes = |inputs: Sides<'_>, asked| {
        let starter = starter(&[(inputs, &[("y", "f32[n]")])], asked).unwrap();
        let lengths: Vec<usize> = starter.files.iter().map(|(_, bytes)| bytes.len() / 4).collect();
        (starter.records[0].request.shapes.clone(), starter.records[0].request.items, lengths)
    };
    let (of_images, items, lengths) = shapes(&[("x", "f32[n,3,h,w]")], Some(InputKind::Npy));
    assert_eq!(of_images["x"], [3, 320, 320]);
    assert_eq!(lengths[0] / (3 * 320 * 320), items);
    let (_, items, lengths) = shapes(&[("a", "f32[n,901,257]"), ("b", "f32[n,64]")], None);
    assert!(items < ITEMS && lengths[0] / (901 * 257) == items && (lengths[1] - 32) / 64 == items, "{lengths:?}");
}

#[test]
fn a_name_is_text_and_a_huge_input_is_refused() {
    let found = inspection(&[("x", "f32[n,4]")], &[("y", "f32[n,4]")]);
    let named = [(found, "a, b: {c}\nd.onnx".to_string())];
    let graph = ModelStarter::of(&named, "robot", None, &Tried::default()).unwrap().graph;
    expect(&graph, &[r#"model: "a, b: {c}\nd.onnx", backend"#]);
    let huge = starter(&[(&[("x", "f32[n,99999,99999,99999]")], &[("y", "f32[n,4]")])], None).unwrap_err();
    assert!(huge.contains("at most 64 MiB, got the shape"), "{huge}");
}
