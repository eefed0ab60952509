//! `backend: cuda` from a user's point of view, on the driver stub. The lane `cuda` sets
//! `LIMEN_CUDA_STUB` to its folder, with builds of it that lack something. Without the variable,
//! these tests do nothing.

use crate::program::{Folder, Ran, says, set_times};
use crate::trials::{FLOAT, model_with, node, weight};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const GRAPH: &str = "
version: 1
nodes:
  numbers: { kind: synthetic, config: { pattern: counter, dtype: f32, shape: [4], count: 20 } }
  steps: { kind: threshold, config: { at: 10, device: cuda }, from: numbers }
  nothing: { kind: 'null', from: steps }
";

const MODEL: &str = "
version: 1
nodes:
  noise: { kind: synthetic, config: { pattern: noise, shape: [1, 8, 8], dtype: f32, count: 10 } }
  digit: { kind: infer, config: { model: digits.onnx, backend: auto }, from: noise }
  nothing: { kind: 'null', from: digit }
";

/// The folder of the stub, if the environment names it.
fn stub() -> Option<PathBuf> {
    std::env::var_os("LIMEN_CUDA_STUB").map(PathBuf::from).filter(|path| path.is_dir())
}

/// Runs the program with the libraries of a folder.
fn run(folder: &Folder, words: &str, libraries: &Path, switches: &[(&str, &str)]) -> Ran {
    let mut command = folder.command(words);
    command.env("LD_LIBRARY_PATH", libraries);
    for (switch, value) in switches {
        command.env(format!("CUDA_STUB_{switch}"), value);
    }
    Ran::from(command.output().unwrap())
}

#[test]
fn a_gpu_is_chosen_by_its_number_or_name() {
    let Some(stub) = stub() else { return };
    let folder = Folder::with("cuda-gpu", GRAPH);
    let two = [("DEVICES", "2")];
    let listed = run(&folder, "doctor", &stub, &two);
    says(&listed, 0, &["CUDA: 0, driver stub", "CUDA: 1, driver stub"]);
    for gpu in ["0", "1", "STUB"] {
        says(&run(&folder, &format!("graph.yaml --gpu {gpu} --fail-on lost>0"), &stub, &two), 0, &["20 messages"]);
    }
    for (gpu, parts) in [
        ("2", ["GPU `2` (`--gpu`) was not found", "GPU 0 is `driver stub"]),
        ("radeon", ["GPU `radeon`", "GPU 1 is `driver"]),
    ] {
        says(&run(&folder, &format!("check graph.yaml --gpu {gpu}"), &stub, &two), 2, &parts);
    }
}

/// `calibrate` measures the device, and `auto` selects it when it was measured to be the fastest.
#[test]
fn auto_and_calibrate_see_a_gpu() {
    let Some(stub) = stub() else { return };
    let folder = Folder::with("cuda-auto", MODEL);
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    let ran = |words: &str, libraries: &Path| run(&folder, words, libraries, &[("CHECK", "0")]);
    let unmeasured = "`cuda` was not measured on this machine";
    says(&ran("plan graph.yaml --cache kept", &stub), 0, &[unmeasured]);
    says(&ran("calibrate graph.yaml --cache kept", &stub), 0, &["`cuda`: ", "with the copies to the device and back"]);
    set_times(&folder.0.join("kept"), "cuda", 1);
    says(
        &ran("plan graph.yaml --cache kept", &stub),
        0,
        &["`cuda` 1 ns", "`cuda` runs the model", "digit: backend cuda"],
    );
    says(&ran("graph.yaml --cache kept -v", &stub), 0, &["digit: cuda on driver stub", "accounting: balanced"]);
    // Without the driver, the plan says why another one runs.
    let none = folder.0.join("none");
    fs::create_dir(&none).unwrap();
    says(&ran("plan graph.yaml --cache kept", &none), 0, &["`cuda` is not available: NVIDIA's driver", "`rten` "]);
    let missed = "`cuda` was measured to be faster, but is not available: NVIDIA's driver";
    assert!(
        ran("graph.yaml --cache kept", &none).err.split_whitespace().collect::<Vec<_>>().join(" ").contains(missed)
    );
}

#[test]
fn a_gpu_meets_what_is_required_of_it() {
    let Some(stub) = stub() else { return };
    let folder = Folder::with("cuda-require", "");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    for require in ["device: cuda", "device: gpu", "memory: device", "streams: true", "graph_capture: true"] {
        let digit = format!("backend: cuda, require: {{ {require} }}");
        fs::write(folder.0.join("graph.yaml"), MODEL.replace("backend: auto", &digit)).unwrap();
        says(&run(&folder, "check graph.yaml", &stub, &[("CHECK", "0")]), 0, &["ok"]);
    }
}

#[test]
fn what_is_missing_is_named_and_where_it_comes_from() {
    let Some(stub) = stub() else { return };
    let folder = Folder::with("cuda-missing", GRAPH);
    let libraries = |name: &str, files: &[(&str, &str)]| {
        let made = folder.0.join(name);
        fs::create_dir_all(&made).unwrap();
        for (from, file) in files {
            symlink(stub.join(from).join(file), made.join(file)).unwrap();
        }
        made
    };
    let (driver, nvrtc) = ("libcuda.so.1", "libnvrtc.so.12");
    let none = libraries("none", &[]);
    let no_compiler = libraries("no-compiler", &[("", driver)]);
    let no_launch = libraries("no-launch", &[("without", driver), ("", nvrtc)]);
    let no_cubin = libraries("no-cubin", &[("", driver), ("without", nvrtc)]);
    let no_products = libraries("no-products", &[("", driver), ("", nvrtc)]);
    let parts = ["cuBLASLt (`libcublasLt.so`) is not found", "cuDNN (`libcudnn.so`) is not found", "limen's own"];
    says(&run(&folder, "doctor", &no_products, &[]), 0, &parts);
    let no_convolution = libraries(
        "no-convolution",
        &[("", driver), ("", nvrtc), ("", "libcublasLt.so.12"), ("without", "libcudnn.so.9")],
    );
    let parts = ["cuDNN (`libcudnn.so`) is too old", "`cudnnConvolutionForward`", "limen's own"];
    says(&run(&folder, "doctor", &no_convolution, &[]), 0, &parts);
    let not_a_library = libraries("not-a-library", &[]);
    fs::write(not_a_library.join(driver), "text").unwrap();
    let driver_missing = ["NVIDIA's driver (`libcuda.so.1`) is not found", "install NVIDIA's driver"];
    for (libraries, switches, parts) in [
        (&none, &[][..], &driver_missing[..]),
        (&not_a_library, &[], &driver_missing),
        (&no_compiler, &[], &["NVRTC (`libnvrtc.so`) is not found", "pip install nvidia-cuda-nvrtc"]),
        (&no_launch, &[], &["is too old: install a version with the function `cuLaunchKernel`"]),
        (&no_cubin, &[], &["is too old: install a version with the function `nvrtcGetCUBIN`"]),
        (&stub, &[("DEVICES", "0")], &["NVIDIA's driver finds no GPU"]),
        (&stub, &[("ARCH", "30")], &["does not support this GPU (sm_30; ", "an earlier NVRTC for an older GPU"]),
    ] {
        let doctor = run(&folder, "doctor", libraries, switches);
        assert_eq!(doctor.code, Some(0), "{}", doctor.err);
        let ran = run(&folder, "check graph.yaml", libraries, switches);
        says(&ran, 2, parts);
        says(&ran, 2, &["graph.yaml:5:"]);
    }
}

#[test]
fn products_in_tf32_need_a_gpu_and_a_library_that_have_them() {
    let Some(stub) = stub() else { return };
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/graph.yaml");
    let graph = graph.display();
    let folder = Folder::with("cuda-tf32", "");
    let plain = folder.0.join("plain");
    fs::create_dir(&plain).unwrap();
    ["libcuda.so.1", "libnvrtc.so.12", "kernel"]
        .iter()
        .for_each(|file| symlink(stub.join(file), plain.join(file)).unwrap());
    let set = "--set nodes.digit.config.backend=cuda --set nodes.digit.config.precision=tf32";
    for (libraries, arch, code, parts) in [
        (&stub, "90", 0, &[][..]),
        (&stub, "75", 2, &["the GPU must be sm_80 or later, got sm_75"]),
        (&plain, "90", 2, &["`precision: tf32`", "libcublasLt.so", "is not found"]),
    ] {
        let switches = [("ARCH", arch), ("CHECK", "0")];
        says(&run(&folder, &format!("check {graph} {set}"), libraries, &switches), code, parts);
    }
}

/// Without memory for large batches, the calls are made in parts, with the same labels; without
/// memory for one item, nothing starts.
#[test]
fn a_batch_without_memory_is_called_in_parts() {
    let Some(stub) = stub() else { return };
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/digits/digits.onnx");
    let graph = "
version: 1
nodes:
  a: { kind: synthetic, config: { pattern: noise, shape: [1, 8, 8], dtype: f32, count: 128 } }
  m: { kind: infer, config: { model: digits.onnx, backend: cuda, batch: { max: 64, within: 60s } }, from: { from: a, capacity: 128 } }
  best: { kind: argmax, from: m }
  labels: { kind: csv, config: { path: out/labels.csv }, inputs: { label: best/index } }
";
    let folder = Folder::with("cuda-memory", graph);
    fs::copy(model, folder.0.join("digits.onnx")).unwrap();
    let labels = |memory: &str, is_halved: bool| {
        let ran = run(&folder, "graph.yaml --fail-on lost>0", &stub, &[("MEMORY", memory), ("CHECK", "0")]);
        says(&ran, 0, &["m: batches 2"]);
        assert_eq!(ran.out.contains("halved_calls"), is_halved, "{}", ran.out);
        fs::read_to_string(folder.0.join("out/labels.csv")).unwrap()
    };
    let plenty = labels("4000000000", false);
    assert_eq!(plenty.lines().count(), 129);
    assert_eq!(labels("1000000", true), plenty);
    let none = run(&folder, "check graph.yaml", &stub, &[("MEMORY", "100000"), ("CHECK", "0")]);
    says(&none, 2, &["the device has no memory left", "CUDA_ERROR_OUT_OF_MEMORY"]);
}

/// A folder with a kernel that stores outside of all memory when it gets one of these numbers; each
/// message is its number.
fn with_faults(test: &str, at: &str) -> Folder {
    let graph = "
version: 1
nodes:
  a: { kind: synthetic, config: { pattern: counter, dtype: f32, shape: [4], count: 40, rate: 100Hz } }
  k:
    kind: kernel
    on_error: skip
    config:
      source: k.cu
      entry: add
      inputs: { x: [n] }
      outputs: { y: { dtype: f32, shape: [n] } }
      grid: [1]
      block: [4]
      arguments: [x, y]
      allow_kernels: true
    from: a
  t: { kind: threshold, config: { at: 10, device: cuda }, on_error: skip, from: k }
  other: { kind: threshold, config: { at: 10 }, from: a }
  b: { kind: 'null', from: t }
  c: { kind: 'null', from: other }
";
    let folder = Folder::with(test, graph);
    let kernel = "extern \"C\" __global__ void add(const float *x, float *y) {
    y[threadIdx.x] = x[threadIdx.x] + 1.0f;
    if (threadIdx.x == 0 && (AT)) { *(float *)16 = 1.0f; }
}
";
    fs::write(folder.0.join("k.cu"), kernel.replace("AT", at)).unwrap();
    folder
}

/// A store outside of all memory ends the device for its process. That is this one, and nothing is
/// computed on it any more; or one of its own, which is started again, and one message is lost.
#[test]
fn a_process_of_its_own_is_started_again() {
    let Some(stub) = stub() else { return };
    let folder = with_faults("cuda-isolated", "x[0] == 5.0f");
    let ran = |isolation: &str| {
        run(&folder, &format!("graph.yaml --allow-kernels --set run.isolation={isolation}"), &stub, &[])
    };
    let fault = "CUDA_ERROR_ILLEGAL_ADDRESS (700)";
    says(&ran("none"), 0, &["b: messages 5", "c: messages 40", fault, "accounting: balanced"]);
    let apart = ran("process");
    says(&apart, 0, &["c: messages 40", fault, "device_reopened 1", "accounting: balanced"]);
    // What was under way or in the memory of the device is lost, too.
    assert!((30..40).contains(&arrived(&apart)), "{}", apart.out);
    // Not for ever: three times in a minute.
    let folder = with_faults("cuda-isolated-often", "x[0] > 5.0f");
    let often = run(&folder, "graph.yaml --allow-kernels --set run.isolation=process", &stub, &[]);
    says(
        &often,
        0,
        &["b: messages 6", "c: messages 40", "lost again after it was rebuilt 3 times", "accounting: balanced"],
    );
    let stopped = "graph.yaml --allow-kernels --set run.isolation=process --set nodes.k.on_error=stop";
    says(&run(&folder, stopped, &stub, &[]), 1, &["b: messages 6", fault, "accounting: balanced"]);
}

/// How many messages have arrived at `b`.
fn arrived(ran: &Ran) -> u32 {
    let line = ran.out.lines().find_map(|line| line.strip_prefix("b: messages ")).unwrap();
    line.trim().parse().unwrap()
}

/// The process of a device that runs for a program.
fn process_of(program: u32) -> i32 {
    let children = format!("/proc/{program}/task/{program}/children");
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        let all = fs::read_to_string(&children).unwrap_or_default();
        let is_device = |child: &&str| {
            fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("limen-device-process"))
        };
        if let Some(child) = all.split_whitespace().find(is_device) {
            return child.parse().unwrap();
        }
        std::thread::yield_now();
    }
    panic!("program {program} starts no process for its device")
}

/// Longer than anything here takes.
const LONGEST: Duration = Duration::from_secs(60);

/// Whatever ends the process of a device, what it was doing is lost, and it is started again.
#[test]
fn a_process_that_is_killed_is_started_again() {
    let Some(stub) = stub() else { return };
    let folder = with_faults("cuda-killed", "false");
    for signal in [Signal::SIGKILL, Signal::SIGSEGV] {
        let words = "graph.yaml --allow-kernels --set run.isolation=process --set nodes.a.config.count=100 \
                     --set nodes.c.kind=csv --set nodes.c.config.path=out/c.csv";
        let mut command = folder.command(words);
        command.env("LD_LIBRARY_PATH", &stub).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.spawn().unwrap();
        let process = process_of(program.id());
        // Its sinks open their files when it begins to run.
        let begun = Instant::now();
        while !folder.0.join("out/c.csv").exists() && begun.elapsed() < LONGEST {
            std::thread::yield_now();
        }
        kill(Pid::from_raw(process), signal).unwrap();
        let ran = Ran::from(program.wait_with_output().unwrap());
        says(&ran, 0, &["rows 100", "accounting: balanced"]);
        fs::remove_file(folder.0.join("out/c.csv")).unwrap();
        let arrived = arrived(&ran);
        assert!((80..=100).contains(&arrived), "{}", ran.out);
        // Between two calls, nothing is lost.
        let how = format!("the device process was ended by signal {}", signal as i32);
        assert!(arrived == 100 || ran.out.replace("\n        ", " ").contains(&how), "{}", ran.out);
    }
}

/// A kernel that never ends holds the process of its device, which is ended instead.
#[test]
fn a_process_with_an_endless_kernel_is_ended() {
    let Some(stub) = stub() else { return };
    let folder = with_faults("cuda-endless", "false");
    let endless = "extern \"C\" __global__ void add(const float *x, float *y) {
    volatile float number = x[threadIdx.x];
    while (number == 5.0f) {}
    y[threadIdx.x] = number;
}
";
    fs::write(folder.0.join("k.cu"), endless).unwrap();
    let words = "graph.yaml --allow-kernels --set run.isolation=process --set nodes.k.config.time_limit=100ms";
    // The stub would give it up by itself.
    let patient = [("CHECK", "0"), ("SECONDS", "100"), ("STEPS", "1000000000000")];
    let ran = run(&folder, words, &stub, &patient);
    says(&ran, 0, &["c: messages 40", "the device process did not finish a call within 100ms", "accounting: balanced"]);
    assert!((30..40).contains(&arrived(&ran)), "{}", ran.out);
}

#[test]
fn models_give_the_same_in_a_process_of_its_own() {
    let Some(stub) = stub() else { return };
    let graph = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../graphs/{name}/graph.yaml"));
    let folder = Folder::with("cuda-isolated-models", "");
    let set = "--set run.isolation=process --fail-on lost>0 --out out";
    let switches = [("CHECK", "0")];
    let digits = format!(
        "{} {set} --set nodes.digit.config.backend=cuda --set nodes.camera.config.repeat=1 --fail-on accuracy<0.97",
        graph("digits").display()
    );
    says(&run(&folder, &digits, &stub, &switches), 0, &["accuracy 1"]);
    let listen = format!("{} {set} --set nodes.ear.config.backend=cuda", graph("listen").display());
    says(&run(&folder, &listen, &stub, &switches), 0, &[]);
    let columns = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split(',').take(2).collect::<Vec<_>>().join(",")).collect::<Vec<_>>()
    };
    let expected = columns(&graph("listen").with_file_name("expected.csv"));
    assert_eq!(columns(&folder.0.join("out/out/heard.csv")), expected);
}

/// A folder with a graph that runs two products of matrices on each message.
fn with_products(test: &str) -> Folder {
    let graph = "
version: 1
nodes:
  a: { kind: synthetic, config: { pattern: noise, shape: [16, 32], dtype: f32 } }
  m: { kind: infer, config: { model: m.onnx, backend: cuda }, from: a }
  b: { kind: 'null', from: m }
run: { stop: 120s }
";
    let folder = Folder::with(test, graph);
    let ones = 1f32.to_le_bytes().repeat(32 * 32);
    let parts = [
        node("MatMul", &["x", "w"], &["p"], &[]),
        node("Tanh", &["p"], &["t"], &[]),
        node("MatMul", &["t", "w"], &["y"], &[]),
        weight("w", FLOAT, &[32, 32], &ones),
    ];
    fs::write(folder.0.join("m.onnx"), model_with(&[16, 32], &[16, 32], &parts)).unwrap();
    folder
}

/// The device ends at one launch after the other, some of which are products of the library: the
/// run ends, and says why.
#[test]
fn an_error_in_a_product_ends_the_run() {
    let Some(stub) = stub() else { return };
    let folder = with_products("cuda-product");
    says(&run(&folder, "graph.yaml --frames 5 --fail-on lost>0", &stub, &[]), 0, &["5 messages"]);
    for (fault, n) in ["700@launch", "719@launch"].into_iter().flat_map(|fault| (1..15).map(move |n| (fault, n))) {
        let fault = format!("{fault}:{n}");
        // Within the trial, within planning, or within the run.
        for words in ["graph.yaml --frames 100", "graph.yaml --frames 100 --model-limits none"] {
            let ran = run(&folder, words, &stub, &[("FAULT", &fault)]);
            assert!(matches!(ran.code, Some(1 | 2)), "{fault}: {:?} {} {}", ran.code, ran.out, ran.err);
            assert!(ran.err.contains("CUDA_ERROR"), "{fault}: {} {}", ran.out, ran.err);
        }
    }
}

/// Needs an adapter for `wgpu`, which may compute on the CPU.
#[cfg(feature = "wgpu")]
#[test]
fn messages_go_from_one_device_to_another_through_the_host() {
    let Some(stub) = stub() else { return };
    let folder = Folder::with("cuda-wgpu", "");
    if run(&folder, "doctor", &stub, &[]).out.contains("GPU: none found") {
        return;
    }
    let labels = |name: &str, devices: [&str; 3]| {
        let [small, floats, best] = devices.map(|device| match device {
            "cpu" => String::new(),
            device => format!(", device: {device}"),
        });
        let best = best.strip_prefix(", ").map_or_else(String::new, |device| format!(", config: {{ {device} }}"));
        let graph = format!(
            "
version: 1
nodes:
  a: {{ kind: synthetic, config: {{ pattern: noise, shape: [32, 32, 3], dtype: u8, count: 20 }} }}
  small: {{ kind: resize, config: {{ width: 16, height: 16, filter: nearest{small} }}, from: a }}
  floats: {{ kind: to_tensor, config: {{ layout: chw{floats} }}, from: small }}
  best: {{ kind: argmax{best}, from: floats }}
  z: {{ kind: csv, config: {{ path: '{name}.csv' }}, inputs: {{ v: best/index }} }}
"
        );
        fs::write(folder.0.join("graph.yaml"), graph).unwrap();
        says(&run(&folder, "graph.yaml --allow-software --fail-on lost>0", &stub, &[("CHECK", "0")]), 0, &[]);
        fs::read_to_string(folder.0.join(format!("{name}.csv"))).unwrap()
    };
    let host = labels("host", ["cpu", "cpu", "cpu"]);
    assert_eq!(host.lines().count(), 21, "{host}");
    for (name, devices) in [("both", ["wgpu", "cuda", "wgpu"]), ("other", ["cuda", "wgpu", "cuda"])] {
        assert!(labels(name, devices) == host, "{name}");
    }
}

#[test]
fn calls_need_nothing_new_of_the_driver() {
    let Some(stub) = stub() else { return };
    let folder = with_products("cuda-growth");
    let counts = |frames: u32| {
        let file = folder.0.join(format!("counts-{frames}"));
        let switches = [("REPORT", file.to_str().unwrap()), ("CHECK", "0")];
        let words = format!("graph.yaml --model-limits none --frames {frames} --fail-on lost>0");
        says(&run(&folder, &words, &stub, &switches), 0, &[]);
        // A line for each process that has loaded the libraries; the program ends last.
        let lines = fs::read_to_string(&file).unwrap();
        let counts: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        let calls = counts["graph_launches"].as_u64().unwrap();
        assert!(calls >= u64::from(frames), "{frames}: {counts}");
        ["allocations", "peak_bytes", "captures", "streams", "events", "modules", "live", "host_live"]
            .map(|name| counts[name].as_u64().unwrap_or_else(|| panic!("no {name} in {counts}")))
    };
    assert_eq!(counts(1_000), counts(100_000));
}
