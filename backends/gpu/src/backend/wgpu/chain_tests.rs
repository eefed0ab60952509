//! Graphs whose models stay on the device, on the adapter of this machine, which may compute on the
//! CPU; without one they are skipped.

use super::adapter::{adapter, adapter_number};
use super::resident::shared_device;
use crate::backend::chain::{models, plan, run};
use crate::test_models::{floats, model_of_opset};
use limen::message::Header;
use limen::{Tensor, Time, Wired};
use limen_infer::BackendOptions;
use rten_onnx::onnx::DataType as D;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn options() -> BackendOptions {
    BackendOptions { allow_software: true, ..BackendOptions::default() }
}

fn has_adapter() -> bool {
    let found = adapter_number(&options());
    if let Err(error) = &found {
        println!("skipped: {error}");
    }
    found.is_ok()
}

fn wired(folder: &Path, nodes: &str) -> Wired {
    plan(folder, nodes, true).unwrap_or_else(|problems| panic!("{problems}")).wire().unwrap()
}

fn model(name: &str, from: &str, file: &str, keys: &str) -> String {
    format!("  {name}: {{ kind: infer, config: {{ model: {file}.onnx, backend: wgpu }}, from: {from}{keys} }}\n")
}

/// What the chain gives.
fn expected(seq: u64) -> Vec<f32> {
    (0..5).map(|at| ((seq * 10 + at) as f32 * 2.0 + 0.5) * 3.0 + 1.0).collect()
}

fn chain(keys: &str) -> String {
    model("x", "a", "double", keys) + &model("y", "x", "add", keys) + &model("c", "y", "triple", keys)
}

#[test]
fn a_chain_of_models_stays_on_the_device_and_waits_once() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    let (found, report) = run(wired(folder.path(), &chain("")), 50, |_| ());
    let names: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "a_to_wgpu", "x", "y", "c", "c_to_host", "z"]);
    assert_eq!(found, (0..50).map(|seq| (seq, expected(seq))).collect::<Vec<_>>());
    assert_eq!(report.metric("c_to_host.host_waits"), Some(50.0));
    assert!(["a_to_wgpu", "x", "y", "c"].iter().all(|name| report.metric(&format!("{name}.host_waits")).is_none()));
}

/// Several consumers, some on the host, and a model alone, which copies within its calls.
#[test]
fn messages_on_the_device_have_several_consumers() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    let alone = model("c", "a", "double", "");
    let (found, report) = run(wired(folder.path(), &alone), 5, |_| ());
    assert_eq!((report.nodes.len(), &found[4].1[..]), (3, &[80.0, 82.0, 84.0, 86.0, 88.0][..]));
    let two = model("x", "a", "double", "")
        + &model("y", "x", "add", "")
        + &model("c", "x", "triple", "")
        + "  w: { kind: outlet, config: { hold: 64 }, from: y }\n";
    let mut wired = wired(folder.path(), &two);
    let mut other = wired.outlet::<Tensor>("w").unwrap();
    let (found, _) = run(wired, 20, |_| ());
    assert_eq!(found.len(), 20);
    for seq in 0..20u64 {
        let message = other.try_recv().unwrap();
        let values: Vec<f32> = (0..5).map(|at| (seq * 10 + at) as f32 * 2.0 + 0.5).collect();
        assert_eq!((message.header().seq, message.body.as_slice::<f32>().unwrap()), (seq, &values[..]));
    }
}

/// Runs a test in a process of its own, because all tests share the device.
fn apart(test: &str) {
    let module = module_path!().split_once("::").unwrap().1;
    let test = &format!("{module}::{test}");
    let ran = Command::new(std::env::current_exe().unwrap()).args(["--exact", test, "--ignored"]).output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && out.contains("1 passed"), "{out}{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_destroyed_device_is_opened_again() {
    apart("a_destroyed_device");
}

#[test]
fn a_fallback_makes_the_calls_of_a_lost_device() {
    apart("a_fallback");
}

/// Lost more often than it is opened again: no message is lost, and every number is right.
#[test]
#[ignore = "started by the test above, in a process of its own"]
fn a_fallback() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    let destroy = |seq: u64| {
        if seq % 5 == 4
            && let Ok((_, api)) = shared_device(&options()).api()
        {
            api.device.device.destroy();
        }
    };
    let node = "  c: { kind: infer, config: { model: double.onnx, backend: wgpu, fallback: rten }, from: a }\n";
    let (found, report) = run(wired(folder.path(), node), 40, destroy);
    let expected: Vec<_> = (0..40).map(|seq| (seq, (0..5).map(|at| (seq * 10 + at) as f32 * 2.0).collect())).collect();
    assert_eq!(found, expected);
    assert_eq!(report.failed_calls, 0, "{:?}", report.failures);
    // Four losses, then the device is not opened any more.
    let calls = report.metric("c.fallback_calls").unwrap();
    assert!((20.0..=28.0).contains(&calls), "{calls}");
    for (config, expected) in [
        (
            "backend: rten, fallback: tract",
            "`fallback` requires `backend: wgpu` or `backend: cuda`, got `backend: rten`",
        ),
        ("backend: wgpu, fallback: mock", "write `fallback: rten`"),
    ] {
        let node = format!("  c: {{ kind: infer, config: {{ model: double.onnx, {config} }}, from: a }}\n");
        let problems = plan(folder.path(), &node, false).unwrap_err().to_string();
        assert!(problems.contains(expected), "{config}: {problems}");
    }
}

#[test]
fn a_kernel_that_takes_too_long_is_given_up() {
    apart("an_endless_kernel");
}

/// A call that takes a second, with a limit of 50 ms: the run ends with an error long before.
#[test]
#[ignore = "started by the test above, in a process of its own"]
fn an_endless_kernel() {
    if !has_adapter() {
        return;
    }
    if adapter(adapter_number(&options()).unwrap()).get_info().device_type != wgpu::DeviceType::Cpu {
        return println!("skipped: a GPU is faster than the limit");
    }
    let folder = tempfile::tempdir().unwrap();
    let slow = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = y[id.x % 5u];
    for (var n = 0u; n < 6000u; n++) { sum = sum * 1.0000001 + 0.5; }
    if (sum < 0.0) { y[0] = sum; }
}";
    std::fs::write(folder.path().join("k.wgsl"), slow).unwrap();
    let nodes = "  c:\n    kind: kernel\n    config: { source: k.wgsl, inputs: { x: [n] }, outputs: { y: { dtype: f32, shape: [n] } }, \
                 grid: [20000], in_place: { y: x }, time_limit: 50ms, allow_kernels: true }\n    from: a\n";
    let mut wired = wired(folder.path(), nodes);
    let mut inlet = wired.inlet::<Tensor>("a").unwrap();
    let mut outlet = wired.outlet::<Tensor>("z").unwrap();
    let running = wired.start().unwrap();
    let mut tensor = inlet.loan(&Header::new(0, Time::ZERO)).unwrap();
    tensor.as_mut_slice::<f32>().unwrap().fill(1.0);
    inlet.send_timeout(tensor, Duration::from_secs(120)).unwrap();
    assert!(outlet.recv_timeout(Duration::from_secs(60)).is_err());
    inlet.close();
    let report = running.wait();
    let failures: Vec<&str> = report.failures.iter().map(|failure| failure.text.as_str()).collect();
    assert!(failures.iter().any(|text| text.contains("a call did not finish within 50ms")), "{failures:?}");
    assert_eq!(report.node("c").map(|node| node.failed), Some(1), "the node whose call it was");
}

/// The device is destroyed while the graph runs: what was on it is lost and counted, and what
/// follows is right.
#[test]
#[ignore = "started by the test above, in a process of its own"]
fn a_destroyed_device() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    let destroy = |seq: u64| {
        if seq == 10 {
            shared_device(&options()).api().unwrap().1.device.device.destroy();
        }
    };
    let (found, report) = run(wired(folder.path(), &chain(", on_error: skip")), 30, destroy);
    assert!(found.len() < 30 && found.len() >= 25, "{}: {:?}", found.len(), report.failures);
    assert!(found.iter().all(|(seq, values)| *values == expected(*seq)), "{found:?}");
    assert_eq!(found.last().map(|(seq, _)| *seq), Some(29));
    assert!(
        report.failed_calls > 0 && report.failures.iter().all(|failure| failure.text.contains("the device was lost"))
    );
    // A model alone is loaded anew, too.
    let alone = model("c", "a", "double", ", on_error: skip");
    let (found, report) = run(wired(folder.path(), &alone), 30, destroy);
    assert!((28..30).contains(&found.len()), "{}: {:?}", found.len(), report.failures);
    assert_eq!(found.last().map(|(seq, _)| *seq), Some(29));
}

/// Reads `x`, adds a constant, and writes every second element of it; counts in `i32` beside it.
const SHADER: &str = "override PLUS: f32;
override LENGTH: u32;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> places: array<i32>;
@compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= LENGTH) { return; }
    y[id.x] = x[2u * id.x] + PLUS;
    places[id.x] = i32(2u * id.x);
}
";

fn kernel(keys: &str, more: &str) -> String {
    format!(
        "  k:\n    kind: kernel\n    config:\n      source: k.wgsl\n      inputs: {{ x: [n] }}\n      \
         outputs: {{ y: {{ dtype: f32, shape: ['ceil_div(n, 2)'] }}, places: {{ dtype: i32, shape: ['ceil_div(n, 2)'] }} }}\n      \
         grid: ['ceil_div(n, 4)']\n      constants: {{ PLUS: 7, LENGTH: 'ceil_div(n, 2)' }}\n      {keys}\n{more}"
    )
}

#[test]
fn a_kernel_of_the_graph_stays_on_the_device() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    std::fs::write(folder.path().join("k.wgsl"), SHADER).unwrap();
    // Between a model on the device and the host; one of its outputs is taken, the other is not.
    let nodes = model("m", "a", "double", "")
        + &kernel("allow_kernels: true", "    inputs: { x: m }\n")
        + "  w: { kind: outlet, config: { hold: 64 }, from: k/places }\n  c: { kind: to_host, config: { device: wgpu }, from: k/y }\n";
    let mut wired = wired(folder.path(), &nodes);
    let mut places = wired.outlet::<Tensor>("w").unwrap();
    let (found, report) = run(wired, 12, |_| ());
    let expected: Vec<(u64, Vec<f32>)> =
        (0..12).map(|seq| (seq, [0, 2, 4].map(|at| (seq * 10 + at) as f32 * 2.0 + 7.0).to_vec())).collect();
    assert_eq!(found, expected);
    assert_eq!(places.try_recv().unwrap().body.as_slice::<i32>().unwrap(), [0, 2, 4]);
    assert_eq!(report.failed_calls, 0, "{:?}", report.failures);
    // What a shader does not write is zero, and not what an earlier message left.
    let odd = SHADER
        .replace("    y[id.x] = x", "    if ((u32(x[0]) / 20u) % 2u == 1u) { y[id.x] = x")
        .replace("+ PLUS;", "+ PLUS; }");
    std::fs::write(folder.path().join("k.wgsl"), odd).unwrap();
    let nodes = model("m", "a", "double", "")
        + &kernel(
            "allow_kernels: true",
            "    inputs: { x: m }\n  c: { kind: to_host, config: { device: wgpu }, from: k/y }\n",
        );
    let (found, _) = run(self::wired(folder.path(), &nodes), 12, |_| ());
    for (seq, values) in &found {
        assert!(values.iter().all(|value| (*value == 0.0) == (seq % 2 == 0)), "{seq}: {values:?}");
    }
}

#[test]
fn a_kernel_that_does_not_fit_is_refused_with_every_reason() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let allowed = "allow_kernels: true";
    let from = "    inputs: { x: a }\n  c: { kind: to_host, config: { device: wgpu }, from: k/y }\n";
    let refused = |shader: &str, nodes: &str, is_allowed: bool, expected: &[&str]| {
        std::fs::write(here.join("k.wgsl"), shader).unwrap();
        let problems =
            plan(here, nodes, is_allowed).err().unwrap_or_else(|| panic!("{expected:?} is planned")).to_string();
        for part in expected {
            assert!(problems.contains(part), "{part}: {problems}");
        }
    };
    refused(SHADER, &kernel("", from), false, &["write `allow_kernels: true`", "start with `--allow-kernels`"]);
    refused(SHADER, &kernel(allowed, from), false, &["not allowed to run the kernel"]);
    let broken = SHADER.replace("+ PLUS;", "+ PLU;");
    refused(&broken, &kernel(allowed, from), true, &["`k.wgsl`: line 8, column"]);
    let others = SHADER.replace("var<storage, read> x", "var<storage, read> z").replace("x[2u", "z[2u");
    refused(
        &others,
        &kernel(allowed, from),
        true,
        &["`z` (binding 2) is neither an input nor an output", "(`y`, `z`, `places`), found `x`"],
    );
    let written = SHADER
        .replace("var<storage, read> x: array<f32>", "var<storage, read_write> x: array<u32>")
        .replace("x[2u * id.x] +", "f32(x[2u * id.x]) +");
    refused(
        &written,
        &kernel(allowed, from),
        true,
        &["declare `x` as `var<storage, read>`", "`x` is f32, the shader has u32"],
    );
    let long = SHADER.replace("x: array<f32>", "x: array<f32, 6>");
    refused(&long, &kernel(allowed, from), true, &["`x` must have at most 20 bytes, got 24"]);
    refused(
        SHADER,
        &kernel(allowed, from).replace("LENGTH:", "LENGHT:"),
        true,
        &["(`PLUS`, `LENGTH`), found `LENGHT`", "`override LENGTH` of the shader has no value"],
    );
    refused(
        SHADER,
        &kernel(allowed, from).replace("x: [n]", "x: [n, m]"),
        true,
        &["`inputs.x` must have one name per dim of f32[5], got 2"],
    );
    refused(
        SHADER,
        &kernel(allowed, from).replace("grid: ['ceil_div(n, 4)']", "grid: ['d * 2']"),
        true,
        &["expected a dim (`n`), found `d`"],
    );
    refused(
        SHADER,
        &kernel(allowed, from).replace("grid: ['ceil_div(n, 4)']", "grid: ['n * 1000000']"),
        true,
        &["`grid` must be at most"],
    );
    let huge = SHADER.replace("@workgroup_size(2)", "@workgroup_size(65536)");
    refused(&huge, &kernel(allowed, from), true, &["`k.wgsl`: ", "Workgroup size is out of range"]);
    refused(
        SHADER,
        &kernel(allowed, from).replace("LENGTH: 'ceil_div(n, 2)'", "LENGTH: 2.5"),
        true,
        &["`constants.LENGTH` must be a whole number, got 2.5"],
    );
    let unused = SHADER.replace("    places[id.x] = i32(2u * id.x);\n", "");
    refused(&unused, &kernel(allowed, from), true, &["found `places`"]);
    refused(
        SHADER,
        &kernel(allowed, from).replace("inputs: { x: [n] }", "inputs: {}"),
        true,
        &["`inputs` must have at least 1 entry"],
    );
    std::fs::remove_file(here.join("k.wgsl")).unwrap();
    let problems = plan(here, &kernel(allowed, from), true).unwrap_err().to_string();
    assert!(problems.contains("`k.wgsl`: No such file"), "{problems}");
}

#[test]
fn a_kernel_works_in_place() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let halve = "override GAIN: f32;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y) && id.x != 1u) { y[id.x] = y[id.x] * GAIN; }
}";
    std::fs::write(folder.path().join("k.wgsl"), halve).unwrap();
    let config = "source: k.wgsl, inputs: { x: [n] }, outputs: { y: { dtype: f32, shape: [n] } }, grid: [1], constants: { GAIN: 0.5 }";
    let node = |keys: &str| {
        format!("  c:\n    kind: kernel\n    config: {{ {config}, {keys}, allow_kernels: true }}\n    from: a\n")
    };
    let (found, _) = run(wired(folder.path(), &node("in_place: { y: x }")), 6, |_| ());
    for (seq, values) in found {
        let expected: Vec<f32> = (0..5)
            .map(|at| (seq * 10 + at) as f32)
            .enumerate()
            .map(|(at, x)| if at == 1 { x } else { x * 0.5 })
            .collect();
        assert_eq!(values, expected);
    }
    for (keys, expected) in [
        ("in_place: { z: x }", "found `z: x`"),
        ("in_place: {}", "(`y`), found `x`"),
        ("in_place: { y: x }, time_limit: 0s", "above 0 s and at most 120 s"),
    ] {
        let problems = plan(folder.path(), &node(keys), true).unwrap_err().to_string();
        assert!(problems.contains(expected), "{keys}: {problems}");
    }
}

/// A call whose integers do not fit is found out after its output was sent on. Everything before
/// and after is right, also the copies to the host, whose memory the failed one had taken.
#[test]
fn a_call_that_fails_on_the_device_loses_only_its_message() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    models(folder.path());
    let weights = [floats("c", &[], &[20.5]), floats("big", &[], &[1e9])];
    let nodes = ["d = Sub x c", "s = Mul d d", "q = Div big s", "i = Cast q to==7", "y = Cast i to==1"];
    let (x, y) = (("x", D::FLOAT, &["n", "5"][..]), ("y", D::FLOAT, &["n", "5"][..]));
    std::fs::write(folder.path().join("far.onnx"), model_of_opset(18, &[x], &[y], &weights, &nodes)).unwrap();
    let chain = model("m", "a", "far", ", on_error: skip") + &model("c", "m", "double", "");
    let (found, report) = run(wired(folder.path(), &chain), 20, |_| ());
    // Only the numbers of message 2 are that near to 20.5.
    assert_eq!(
        found.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        [&[0, 1][..], &(3..20).collect::<Vec<u64>>()].concat()
    );
    for (seq, values) in &found {
        let expected = (0..5).map(|at| (1e9 / ((seq * 10 + at) as f32 - 20.5).powi(2)).trunc() * 2.0);
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() <= 1e-4 * expected.abs() + 2.0, "{seq}: {value} is not {expected}");
        }
    }
    let node = |name: &str| report.node(name).unwrap();
    assert_eq!((report.failed_calls, node("m").failed), (1, 1), "{:?}", report.failures);
    assert!(report.failures[0].text.contains("a result does not fit 32 bits"), "{:?}", report.failures);
    assert_eq!(report.losses()["device_lost"], node("c").lost + node("c_to_host").lost);
}

#[test]
fn an_adapter_is_chosen_by_its_number_or_name() {
    if !has_adapter() {
        return;
    }
    let first = adapter(0).get_info();
    let software = first.device_type == wgpu::DeviceType::Cpu;
    let found = |gpu: &str, allow_software| {
        adapter_number(&BackendOptions { gpu: Some(gpu.into()), allow_software, ..options() })
    };
    assert_eq!(found("0", true).unwrap(), 0);
    let named = found(&first.name.to_uppercase(), true).unwrap();
    assert_eq!(adapter(named).get_info().name, first.name);
    for (gpu, allow_software, parts) in [
        ("99", true, &["GPU `99` (`--gpu`) was not found", first.name.as_str()][..]),
        ("no such name", true, &["GPU `no such name` (`--gpu`) was not found"]),
        ("0", false, &["expected a GPU for `--gpu`", "`--allow-software`"]),
    ] {
        match found(gpu, allow_software) {
            Ok(number) => assert!(number == 0 && !software && !allow_software, "{gpu}: {number}"),
            Err(error) => parts.iter().for_each(|part| assert!(error.to_string().contains(part), "{gpu}: {error}")),
        }
    }
    // Whoever uses the device hears it, too.
    let absent = BackendOptions { gpu: Some("99".into()), ..options() };
    assert!(shared_device(&absent).api().unwrap_err().to_string().contains("GPU `99` (`--gpu`) was not found"));
}
