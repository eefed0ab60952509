//! Stock kinds beside themselves on the devices of this machine, which may compute on the CPU: an
//! adapter of wgpu, and an NVIDIA GPU or the driver stub. Without any they are skipped.

use limen::message::{DType, Header};
use limen::plan::Role;
use limen::report::Term;
use limen::{Folders, Plan, Problems, Registry, Spec, Tensor, Time};
use limen_infer::BackendOptions;
use std::collections::BTreeSet;
use std::time::Duration;

/// The devices of this machine.
fn devices() -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    #[cfg(feature = "wgpu")]
    found.extend((!crate::backend::gpu_adapters().is_empty()).then_some("wgpu"));
    #[cfg(feature = "cuda")]
    found.extend(crate::backend::cuda_devices().is_ok_and(|all| !all.is_empty()).then_some("cuda"));
    if found.is_empty() {
        println!("skipped: there is no device");
    }
    found
}

fn plan(text: &str) -> Result<Plan, Problems> {
    plan_in(Folders::default(), text)
}

fn plan_in(folders: Folders, text: &str) -> Result<Plan, Problems> {
    let options = BackendOptions { allow_software: true, ..BackendOptions::default() };
    let registry = Registry::new()
        .with(limen_nodes_core::register)
        .with(limen_vision::register)
        .with(limen_infer::register_with(options))
        .with(crate::register);
    let mut spec = Spec::from_text(text, "stock.yaml").unwrap();
    spec.folders = folders;
    Plan::new(spec, &registry)
}

/// A kind on the host, and on the device.
fn graph(device: &str, spec: &str, kind: &str, config: &str, outputs: &[&str]) -> String {
    let comma = if config.is_empty() { "" } else { ", " };
    let mut text = format!(
        "version: 1\nnodes:\n  a: {{ kind: inlet, config: {{ spec: '{spec}', capacity: 4 }} }}\n  \
         host: {{ kind: {kind}, config: {{ {config} }}, from: a }}\n  \
         gpu: {{ kind: {kind}, config: {{ {config}{comma}device: {device} }}, from: a }}\n"
    );
    for (at, output) in outputs.iter().enumerate() {
        for side in ["host", "gpu"] {
            let port = if output.is_empty() { String::new() } else { format!("/{output}") };
            text += &format!("  {side}{at}: {{ kind: outlet, config: {{ hold: 2 }}, from: {side}{port} }}\n");
        }
    }
    text
}

/// The numbers of a tensor.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::U8 => tensor.as_slice::<u8>().unwrap().iter().map(|level| f64::from(*level)).collect(),
        DType::I32 => tensor.as_slice::<i32>().unwrap().iter().map(|number| f64::from(*number)).collect(),
        _ => tensor.as_slice::<f32>().unwrap().iter().map(|number| f64::from(*number)).collect(),
    }
}

/// Fills a message with numbers that look random.
fn fill(tensor: &mut limen::TensorMut, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    match tensor.dtype() {
        DType::U8 => tensor.as_mut_slice::<u8>().unwrap().iter_mut().for_each(|level| *level = next() as u8),
        _ => {
            let numbers = tensor.as_mut_slice::<f32>().unwrap();
            numbers.iter_mut().for_each(|number| *number = (next() % 2000) as f32 / 1000.0 - 1.0);
            numbers[1] = f32::NAN;
        }
    }
}

#[test]
fn stock_kinds_give_the_same_on_the_device() {
    devices().into_iter().for_each(same_on);
}

fn same_on(device: &str) {
    for (spec, kind, config, outputs, tolerance) in [
        ("u8[6,5,3]", "to_tensor", "", &[""][..], 0.0),
        ("u8[6,5,3]", "to_tensor", "layout: hwc, range: [-1, 1]", &[""], 0.0),
        ("u8[7,9,1]", "to_tensor", "range: [0, 255]", &[""], 0.0),
        ("f32[3,4,5]", "normalize", "mean: [0.5, 0.25, 0], std: [0.5, 2, 3], layout: chw", &[""], 1e-6),
        ("f32[4,5,3]", "normalize", "mean: [0.5, 0.25, 0], std: [0.5, 2, 3], layout: hwc", &[""], 1e-6),
        ("f32[17]", "normalize", "mean: [0.5], std: [0.25]", &[""], 1e-6),
        ("f32[3]", "normalize", "mean: [0.5, 0.25, 0], std: [0.5, 2, 3]", &[""], 1e-6),
        ("f32[4,3]", "normalize", "mean: [0.5, 0.25, 0], std: [0.5, 2, 3]", &[""], 1e-6),
        ("u8[11,13,3]", "crop", "x: 2, y: 3, width: 7, height: 5", &[""], 0.0),
        ("u8[11,13,1]", "crop", "width: 13, height: 11", &[""], 0.0),
        ("u8[40,60,3]", "resize", "width: 33, height: 17, filter: nearest", &[""], 0.0),
        ("u8[40,60,3]", "resize", "width: 33, height: 17, filter: linear", &[""], 1.0),
        ("u8[40,60,3]", "resize", "width: 33, height: 17", &[""], 1.0),
        ("u8[129,65,1]", "resize", "width: 8, height: 16", &[""], 1.0),
        ("u8[5,4,3]", "resize", "width: 64, height: 63, filter: linear", &[""], 1.0),
        ("u8[5,4,3]", "resize", "width: 64, height: 63", &[""], 1.0),
        ("u8[5,4,4]", "resize", "width: 7, height: 3, filter: linear", &[""], 1.0),
        ("u8[48,64,3]", "letterbox", "width: 32, height: 32", &["image", "placement"], 1.0),
        ("u8[9,31,3]", "letterbox", "width: 20, height: 30, fill: 7, at: top_left", &["image", "placement"], 1.0),
        ("f32[3,7]", "threshold", "at: 0.25", &[""], 0.0),
        ("f32[1000]", "argmax", "", &["index", "value"], 0.0),
        ("f32[4,5]", "argmax", "", &["index", "value"], 0.0),
    ] {
        let text = graph(device, spec, kind, config, outputs);
        let case = format!("{kind} {{ {config} }} of {spec} on {device}");
        compare(&case, Folders::default(), &text, outputs.len(), tolerance);
    }
}

/// Runs a graph of a kind on the host and on a device, and compares their outputs.
fn compare(case: &str, folders: Folders, text: &str, outputs: usize, tolerance: f64) {
    let plan = plan_in(folders, text).unwrap_or_else(|problems| panic!("{case}: {problems}"));
    let mut wired = plan.wire().unwrap();
    let mut inlet = wired.inlet::<Tensor>("a").unwrap();
    let mut outlets: Vec<_> = (0..outputs)
        .map(|at| ["host", "gpu"].map(|side| wired.outlet::<Tensor>(&format!("{side}{at}")).unwrap()))
        .collect();
    let running = wired.start().unwrap();
    for seq in 0..5 {
        let mut tensor = inlet.loan(&Header::new(seq, Time::ZERO)).unwrap();
        fill(&mut tensor, seq);
        inlet.send_timeout(tensor, Duration::from_secs(120)).unwrap();
        for sides in &mut outlets {
            let [host, gpu] = sides.each_mut().map(|outlet| outlet.recv_timeout(Duration::from_secs(120)).unwrap());
            assert_eq!((host.body.shape(), host.body.dtype()), (gpu.body.shape(), gpu.body.dtype()), "{case}");
            let (host, gpu) = (numbers(&host.body), numbers(&gpu.body));
            for (at, (host, gpu)) in std::iter::zip(&host, &gpu).enumerate() {
                let is_near = (host - gpu).abs() <= tolerance || host.is_nan() && gpu.is_nan();
                assert!(is_near, "{case}: message {seq}, element {at}: {host} on the host, {gpu} on the device");
            }
        }
    }
    inlet.close();
    let report = running.wait();
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!(report.metric("gpu.device_lost"), Some(0.0), "{case}");
}

/// The weights of a file are those of the host: of `f32`, transposed, and of 8 bits.
#[test]
fn layers_give_the_same_on_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<u8> =
        (0..40 * 37u32).flat_map(|n| ((n * 7919 % 1000) as f32 / 1000.0 - 0.5).to_le_bytes()).collect();
    std::fs::write(folder.path().join("w.bin"), numbers).unwrap();
    let weights = |shape: [usize; 2], more: &str| {
        let bytes = shape[0] * shape[1];
        format!(
            "{{ file: w.bin, dtype: f32, shape: [1480], \
             transform: [{{ slice: {{ to: {bytes} }} }}, {{ reshape: [{}, {}] }}{more}] }}",
            shape[0], shape[1]
        )
    };
    let bias = |n: usize| {
        format!("{{ file: w.bin, dtype: f32, shape: [1480], transform: [{{ slice: {{ from: 9, to: {} }} }}] }}", n + 9)
    };
    let layer = |shape: [usize; 2], more: &str, activation: &str| {
        format!("weight: {}, bias: {}, activation: {activation}", weights(shape, more), bias(shape[0]))
    };
    let (wide, narrow) = (layer([40, 37], "", "relu"), layer([3, 40], "", "tanh"));
    let turned = format!("weight: {}", weights([5, 7], ", { transpose: [1, 0] }"));
    for device in devices() {
        for (spec, kind, config) in [
            ("f32[3]", "linear", layer([5, 3], "", "none")),
            ("f32[4,37]", "linear", wide.clone()),
            ("f32[2,3,37]", "linear", layer([40, 37], "", "sigmoid")),
            ("f32[37]", "linear", layer([1, 37], "", "tanh")),
            ("f32[2,1]", "linear", layer([6, 1], "", "relu")),
            ("f32[2,5]", "linear", turned.clone()),
            ("f32[9,37]", "linear", layer([40, 37], ", { quantize: symmetric }", "none")),
            ("f32[9,37]", "linear", layer([40, 37], ", { quantize: asymmetric }", "relu")),
            ("f32[9,37]", "mlp", format!("layers: [{{ {wide} }}, {{ {narrow} }}]")),
        ] {
            let text = graph(device, spec, kind, &config, &[""]);
            let folders = Folders { graph: folder.path().to_path_buf(), ..Folders::default() };
            compare(&format!("{kind} {{ {config} }} of {spec} on {device}"), folders, &text, 1, 1e-5);
        }
        // The checks of the host, also of a file.
        let wrong = graph(device, "f32[3]", "linear", &layer([5, 4], "", "none"), &[""]);
        let folders = Folders { graph: folder.path().to_path_buf(), ..Folders::default() };
        let problems = plan_in(folders, &wrong).unwrap_err().to_string();
        assert!(
            problems.contains("expected f32[..., 4] (rows of 4 numbers, as the weights), found f32[3]"),
            "{problems}"
        );
    }
}

/// Programs without the feature name the same kinds.
#[test]
fn the_list_of_kinds_is_that_of_the_registry() {
    let registry = Registry::new()
        .with(limen_nodes_core::register)
        .with(limen_vision::register)
        .with(limen_infer::register)
        .with(crate::register);
    let takes_device = |name: &&str| {
        let kind = registry.kinds().find(|kind| kind.name == **name).unwrap();
        let schema = kind.schema();
        schema.get("properties").and_then(|all| all.get("device")).is_some()
    };
    // Sources and sinks name a device of the machine, such as a camera.
    let transforms = registry.kinds().filter(|kind| kind.role == Role::Transform).map(|kind| kind.name.as_str());
    let copies = ["to_device", "to_host"];
    let found: BTreeSet<&str> = transforms.filter(|name| !copies.contains(name)).filter(takes_device).collect();
    assert_eq!(found, crate::kind::ON_DEVICE.into());
}

/// As on the host, the call fails.
#[test]
fn a_maximum_of_nothing_but_nan_fails_the_call() {
    devices().into_iter().for_each(fails_without_a_maximum);
}

fn fails_without_a_maximum(device: &str) {
    let text = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: 'f32[3]', capacity: 4 } }\n  \
                gpu: { kind: argmax, config: { device: wgpu }, from: a, on_error: skip }\n  \
                z: { kind: outlet, config: { hold: 2 }, from: gpu/index }\n";
    let mut wired = plan(&text.replace("wgpu", device)).unwrap().wire().unwrap();
    let (mut inlet, mut outlet) = (wired.inlet::<Tensor>("a").unwrap(), wired.outlet::<Tensor>("z").unwrap());
    let running = wired.start().unwrap();
    let least = f32::NEG_INFINITY;
    let messages = [[1.0, 3.0, 2.0], [f32::NAN; 3], [f32::NAN, -1.0, -2.0], [f32::NAN, least, least]];
    for (seq, numbers) in messages.into_iter().enumerate() {
        let mut tensor = inlet.loan(&Header::new(seq as u64, Time::ZERO)).unwrap();
        tensor.as_mut_slice::<f32>().unwrap().copy_from_slice(&numbers);
        inlet.send_timeout(tensor, Duration::from_secs(120)).unwrap();
    }
    inlet.close();
    let found: Vec<_> = std::iter::from_fn(|| outlet.recv_timeout(Duration::from_secs(120)).ok())
        .map(|message| (message.header().seq, message.body.as_slice::<i32>().unwrap()[0]))
        .collect();
    assert_eq!(found, [(0, 1), (2, 1), (3, 1)]);
    let report = running.wait();
    assert_eq!(report.nodes.iter().find(|node| node.name == "gpu").map(|node| node.failed), Some(1), "{report:?}");
    assert!(report.failures[0].text.contains("found only NaN"), "{:?}", report.failures);
}

/// A frame is uploaded once, as bytes, and only the label comes back.
#[test]
fn a_frame_is_uploaded_once() {
    devices().into_iter().for_each(uploads_once);
}

fn uploads_once(device: &str) {
    let text = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: 'u8[32,32,3]', capacity: 4 } }\n  \
                small: { kind: resize, config: { width: 16, height: 16, filter: linear, device: wgpu }, from: a }\n  \
                floats: { kind: to_tensor, config: { device: wgpu }, from: small }\n  \
                best: { kind: argmax, config: { device: wgpu }, from: floats }\n  \
                z: { kind: outlet, config: { hold: 2 }, from: best/index }\n";
    let plan = plan(&text.replace("wgpu", device)).unwrap();
    let mut wired = plan.wire().unwrap();
    let (mut inlet, mut outlet) = (wired.inlet::<Tensor>("a").unwrap(), wired.outlet::<Tensor>("z").unwrap());
    let running = wired.start().unwrap();
    for seq in 0..20 {
        let mut tensor = inlet.loan(&Header::new(seq, Time::ZERO)).unwrap();
        tensor.as_mut_slice::<u8>().unwrap().fill(7);
        // Elsewhere in each frame: what is left of an earlier one is no answer.
        let column = seq as usize % 16;
        tensor.as_mut_slice::<u8>().unwrap()[3 * (32 * 8 + 2 * column) + 1] = 200;
        inlet.send_timeout(tensor, Duration::from_secs(120)).unwrap();
        let index = outlet.recv_timeout(Duration::from_secs(120)).unwrap().body.as_slice::<i32>().unwrap()[0];
        assert_eq!(index, 256 + 16 * 4 + column as i32);
    }
    inlet.close();
    let report = running.wait();
    let names: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
    let upload = format!("a_to_{device}");
    assert_eq!(names, ["a", &upload, "small", "floats", "best", "best_index_to_host", "z"]);
    assert_eq!(report.metric("best_index_to_host.host_waits"), Some(20.0));
    // The host times every upload, the device one call in sixteen if it has a clock.
    let samples = |node: &str, term| report.histogram(node, term).map(|recorded| recorded.samples);
    assert_eq!(samples(&upload, Term::Upload), Some(20));
    for (node, term) in [("small", Term::Kernel), ("best_index_to_host", Term::Download)] {
        assert!(samples(node, term).is_some_and(|samples| samples <= 1), "{node}");
    }
    assert_eq!(samples("small", Term::Upload), None);
}

#[cfg(feature = "wgpu")]
#[test]
fn what_a_device_cannot_do_is_said_at_its_place() {
    if !devices().contains(&"wgpu") {
        return;
    }
    let input = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: 'SPEC', capacity: 4 } }\n  ";
    for (spec, node, parts) in [
        (
            "u8[4,4,3]",
            "resize, config: { width: 2, height: 2, filter: area, device: wgpu }",
            &["`nearest`, `linear` or `bilinear`"][..],
        ),
        ("u8[4,4,4]", "resize, config: { width: 2, height: 2, device: wgpu }", &["opacity"]),
        ("u8[4,4,3]", "to_tensor, config: { dtype: f16, device: wgpu }", &["`dtype` must be `f32` on a device"]),
        ("u8[4,4,3]", "letterbox, config: { width: 2, height: 2, order: fill_first, device: wgpu }", &["scale_first"]),
        (
            "f32[4]",
            "threshold, config: { at: 0.5, release: 0.2, device: wgpu }",
            &["`release` must be 0.5 (`at`) on a device"],
        ),
        (
            "f32[4]",
            "threshold, config: { at: 0.5, device: metal }",
            &["`device` must be one of `cpu`, ", "got `metal`", "remove `device`"],
        ),
        ("u8[<=4,4,3]", "to_tensor, config: { device: wgpu }", &["must have a fixed shape", "remove `device`"]),
        ("u8[4,4,3]", "crop, config: { width: 5, height: 2, device: wgpu }", &["the 4 columns of the image, got 5"]),
        ("f32[4]", "softmax, config: { device: wgpu }", &["device"]),
        // As on the host.
        ("u8[4,4,3]", "normalize, config: { mean: [0], std: [1], device: wgpu }", &["E0128", "u8[4,4,3]", "f32"]),
        ("i32[4]", "argmax, config: { device: wgpu }", &["E0128", "i32[4]"]),
        ("f32[4,4,3]", "resize, config: { width: 2, height: 2, device: wgpu }", &["E0128", "f32[4,4,3]"]),
        ("u8[4,4]", "crop, config: { width: 2, height: 2, device: wgpu }", &["E0128", "u8[4,4]"]),
        ("u8[4]", "to_tensor, config: { device: wgpu }", &["E0128", "u8[4]"]),
        ("u8[40000,2,1]", "resize, config: { width: 2, height: 2, device: wgpu }", &["1 to 32768 pixels"]),
    ] {
        let text = input.replace("SPEC", spec)
            + &format!("k: {{ kind: {node}, from: a }}\n  z: {{ kind: 'null', from: k }}\n");
        let problems = plan(&text).map(drop).unwrap_err().to_string();
        for part in parts {
            assert!(problems.contains(part), "{node}: {part}: {problems}");
        }
    }
}

/// Only Mesa 22's driver that computes on the CPU was seen to do so.
#[cfg(feature = "wgpu")]
#[test]
fn a_loop_that_the_driver_would_end_is_refused() {
    let ends_loops = |adapter: &crate::GpuAdapter| adapter.is_software && adapter.about.contains("Mesa 22");
    if !crate::backend::gpu_adapters().iter().all(ends_loops) || !devices().contains(&"wgpu") {
        return println!("skipped: the driver ends no loops");
    }
    let text = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: 'f32[9000000]', capacity: 4 } }\n  \
                k: { kind: argmax, config: { device: wgpu }, from: a }\n  z: { kind: 'null', from: k/index }\n";
    let problems = plan(text).map(drop).unwrap_err().to_string();
    assert!(problems.contains("a loop must have"), "{problems}");
}

/// Boxes on a grid that overlap their neighbours, some without a score or a corner.
fn fill_boxes(tensor: &mut limen::TensorMut, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below) as f32
    };
    let rows = tensor.as_mut_slice::<f32>().unwrap().as_chunks_mut::<6>().0;
    for (at, row) in rows.iter_mut().enumerate() {
        let [x, y] = [next(100), next(100)];
        // Few scores, so that some are equal.
        *row = [x, y, x + 8.0 + next(9), y + 8.0 + next(9), next(50) / 50.0, next(3)];
        match at % 17 {
            3 => row[4] = f32::NAN,
            5 => row[0] = f32::NAN,
            7 => row[4] = f32::NEG_INFINITY,
            11 => row.swap(0, 2),
            _ => {}
        }
    }
}

#[test]
fn suppression_gives_the_same_boxes_on_the_device() {
    devices().into_iter().for_each(suppresses_on);
}

fn suppresses_on(device: &str) {
    for (most, varies, config) in [
        (40, true, ""),
        (200, true, "iou: 0.3, max_boxes: 7"),
        (2500, true, "across_classes: true, max_boxes: 100"),
        (33, true, "iou: 0"),
        (64, false, "iou: 0.4"),
        (65, false, "iou: 1, max_boxes: 20"),
        (1, false, ""),
    ] {
        let bound = if varies { "≤" } else { "" };
        let spec = &format!("f32[{bound}{most},6]");
        let counts = if varies { [0, 1, most / 2, most - 1, most] } else { [most; 5] };
        let case = format!("{{ {config} }} of {spec} on {device}");
        let text = graph(device, spec, "nms", config, &[""]);
        let mut wired = plan(&text).unwrap_or_else(|problems| panic!("{case}: {problems}")).wire().unwrap();
        let mut inlet = wired.inlet::<Tensor>("a").unwrap();
        let mut sides = ["host0", "gpu0"].map(|side| wired.outlet::<Tensor>(side).unwrap());
        let running = wired.start().unwrap();
        for (seq, count) in (0..).zip(counts) {
            let mut tensor = inlet.loan(&Header::new(seq, Time::ZERO)).unwrap();
            if varies {
                tensor.set_len(0, count).unwrap();
            }
            fill_boxes(&mut tensor, seq);
            inlet.send_timeout(tensor, Duration::from_secs(120)).unwrap();
            let [host, gpu] = sides.each_mut().map(|outlet| outlet.recv_timeout(Duration::from_secs(120)).unwrap());
            assert_eq!(host.body.shape(), gpu.body.shape(), "{case}: message {seq} of {count} boxes");
            let bits = |tensor: &Tensor| -> Vec<u32> {
                tensor.as_slice::<f32>().unwrap().iter().map(|number| number.to_bits()).collect()
            };
            assert_eq!(bits(&host.body), bits(&gpu.body), "{case}: message {seq}");
        }
        inlet.close();
        running.wait();
    }
}

/// `.ci/lanes/cuda/run` runs this with an error of the driver stub at one call after the other, in
/// a process each: an error after which a device is of no use to a process, or one of a single
/// call. Each message is right, or lost and counted.
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an error of the driver stub, and a process of its own"]
fn after_an_error_of_the_device_no_message_is_wrong() {
    let policy = std::env::var("LIMEN_ON_ERROR").unwrap_or_else(|_| "stop".into());
    let text = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: 'f32[33]', capacity: 4 } }\n  \
                half: { kind: normalize, config: { mean: [0], std: [2], device: cuda }, from: a, on_error: POLICY }\n  \
                more: { kind: normalize, config: { mean: [1], std: [1], device: cuda }, from: half, on_error: POLICY }\n  \
                best: { kind: argmax, config: { device: cuda }, from: more, on_error: POLICY }\n  \
                z: { kind: outlet, config: { hold: 2 }, from: best/value }\n  \
                other: { kind: outlet, config: { hold: 2 }, from: a }\n";
    let planned = plan(&text.replace("POLICY", &policy)).map_err(|error| error.to_string());
    // Calls are made while planning too.
    let wired = planned.and_then(|plan| plan.wire().map_err(|error| error.to_string()));
    let mut wired = match wired {
        Ok(wired) => wired,
        Err(why) => return assert!(why.contains("cuda") && why.contains("CUDA_ERROR"), "{why}"),
    };
    let mut inlet = wired.inlet::<Tensor>("a").unwrap();
    let mut outlets = ["z", "other"].map(|name| wired.outlet::<Tensor>(name).unwrap());
    let running = match wired.start() {
        Ok(running) => running,
        Err(why) => return assert!(why.to_string().contains("CUDA_ERROR"), "{why}"),
    };
    let (mut sent, mut right, mut others) = (0, 0, 0);
    for seq in 0..30 {
        let Ok(mut tensor) = inlet.loan(&Header::new(seq, Time::ZERO)) else { break };
        let numbers = tensor.as_mut_slice::<f32>().unwrap();
        numbers.fill(-1.0);
        numbers[seq as usize] = 2.0 * seq as f32 + 4.0;
        if inlet.send_timeout(tensor, Duration::from_secs(120)).is_err() {
            break;
        }
        sent += 1;
        others += usize::from(outlets[1].recv_timeout(Duration::from_secs(120)).is_ok());
        if let Ok(message) = outlets[0].recv_timeout(Duration::from_millis(50)) {
            let seq = message.header().seq;
            assert_eq!(message.body.as_slice::<f32>().unwrap(), [seq as f32 + 1.0], "message {seq}");
            right += 1;
        }
    }
    inlet.close();
    while let Ok(message) = outlets[0].recv_timeout(Duration::from_secs(120)) {
        assert_eq!(message.body.as_slice::<f32>().unwrap(), [message.header().seq as f32 + 1.0]);
        right += 1;
    }
    let report = running.wait();
    assert_eq!(report.bugs, Vec::<String>::new());
    let sum = |of: fn(&limen::report::NodeReport) -> u64| report.nodes.iter().map(of).sum::<u64>();
    println!("{sent} sent, {right} right, {others} on the host, {} failed", sum(|node| node.failed));
    assert!(right == sent || sum(|node| node.failed) > 0, "{right} of {sent} and no failure");
    if policy == "skip" {
        assert_eq!((sent, others), (30, 30), "the other branch goes on");
    } else if right < sent {
        assert_eq!(report.exit_code(), 1);
    }
}
