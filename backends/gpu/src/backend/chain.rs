//! Graphs of nodes on a device, from an inlet to an outlet, for tests.

use crate::test_models::{floats, model_of_opset};
use limen::message::Header;
use limen::{Folders, Plan, Problems, Registry, Report, Spec, Tensor, Time, Wired};
use limen_infer::BackendOptions;
use rten_onnx::onnx::DataType as D;
use std::path::Path;
use std::time::Duration;

/// Models that multiply and add, in a folder.
pub(super) fn models(folder: &Path) {
    for (name, by, plus) in [("double", 2.0, 0.0), ("add", 1.0, 0.5), ("triple", 3.0, 1.0)] {
        let weights = [floats("by", &[], &[by]), floats("plus", &[], &[plus])];
        let (x, y) = (("x", D::FLOAT, &["n", "5"][..]), ("y", D::FLOAT, &["n", "5"][..]));
        let bytes = model_of_opset(18, &[x], &[y], &weights, &["m = Mul x by", "y = Add m plus"]);
        std::fs::write(folder.join(format!("{name}.onnx")), bytes).unwrap();
    }
}

/// Plans nodes between the inlet `a`, which takes five numbers, and an outlet, which gives what `c`
/// gives.
pub(super) fn plan(folder: &Path, nodes: &str, allow_kernels: bool) -> Result<Plan, Problems> {
    let text = format!(
        "version: 1\nnodes:\n  a: {{ kind: inlet, config: {{ spec: 'f32[5]', capacity: 8 }} }}\n{nodes}  \
         z: {{ kind: outlet, config: {{ hold: 8 }}, from: c }}\n"
    );
    let options = BackendOptions { allow_software: true, allow_kernels, ..BackendOptions::default() };
    let registry = Registry::new()
        .with(limen_infer::register_with(options))
        .with(crate::register)
        .inlet::<Tensor>("inlet")
        .outlet::<Tensor>("outlet");
    let mut spec = Spec::from_text(&text, "chain.yaml").unwrap();
    spec.folders = Folders { graph: folder.to_path_buf(), ..Folders::default() };
    Plan::new(spec, &registry)
}

/// Sends messages one after the other; `between` runs before each. Returns what arrived and the
/// report.
pub(super) fn run(mut wired: Wired, n: u64, mut between: impl FnMut(u64)) -> (Vec<(u64, Vec<f32>)>, Report) {
    let mut inlet = wired.inlet::<Tensor>("a").unwrap();
    let mut outlet = wired.outlet::<Tensor>("z").unwrap();
    let running = wired.start().unwrap();
    let mut found = Vec::new();
    for seq in 0..n {
        between(seq);
        let mut tensor = inlet.loan(&Header::new(seq, Time::ZERO)).unwrap();
        let values = tensor.as_mut_slice::<f32>().unwrap();
        values.iter_mut().zip(0..).for_each(|(value, at)| *value = (seq * 10 + at) as f32);
        inlet.send_timeout(tensor, Duration::from_secs(120)).unwrap();
        // One that is lost does not arrive.
        if let Ok(message) = outlet.recv_timeout(Duration::from_millis(500)) {
            found.push((message.header().seq, message.body.as_slice::<f32>().unwrap().to_vec()));
        }
    }
    inlet.close();
    while let Ok(message) = outlet.recv_timeout(Duration::from_secs(120)) {
        found.push((message.header().seq, message.body.as_slice::<f32>().unwrap().to_vec()));
    }
    let report = running.wait();
    assert_eq!(report.bugs, Vec::<String>::new());
    (found, report)
}
