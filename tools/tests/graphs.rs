//! Every graph under `graphs/` runs, and gives the result recorded beside it.
//! `.ci/lanes/packages/graphs` runs those whose results a script checks: `track`, `navigate`, `bag`
//! and `replay`.

use crate::program::{Folder, Ran};
use serde_json::Value;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
#[cfg(feature = "wgpu")]
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn graphs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs")
}

/// Every backend of this build: models give the same result on each.
const BACKENDS: &[&str] = &[
    "rten",
    #[cfg(feature = "tract")]
    "tract",
    #[cfg(feature = "ort")]
    "ort",
];

/// Runs a graph with its output in a new folder; returns its report and that folder.
fn run(graph: &str, set: &[&str]) -> (Value, Folder) {
    let out = Folder::with(graph, "");
    let mut command = out.command("--json --out .");
    command.arg(graphs().join(graph).join("graph.yaml")).args(set.iter().flat_map(|set| ["--set", set]));
    let ran = Ran::from(command.env("LIMEN_ALLOW_SOFTWARE", "1").output().unwrap());
    let report = ran.expect(0, "", "").json();
    assert_eq!(report["bugs"].as_array().map(Vec::len), Some(0), "{graph}: {report}");
    (report, out)
}

/// Runs a graph that reads files of the folder `listen`.
fn run_beside_listen(folder: &Folder, graph: &str) -> Ran {
    std::fs::write(folder.0.join("graph.yaml"), graph).unwrap();
    let mut command = folder.command("graph.yaml --quiet --allow-path");
    Ran::from(command.arg(graphs().join("listen").canonicalize().unwrap()).output().unwrap())
}

fn metric(report: &Value, node: &str, name: &str) -> f64 {
    let nodes = report["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|n| n["name"] == node).unwrap_or_else(|| panic!("no node {node}"));
    node["metrics"][name].as_f64().unwrap_or_else(|| panic!("no metric {name} in {node}"))
}

/// Rows of a table without quotes in it.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_string).collect()).collect()
}

/// Compares a table with the recorded one of a graph: the first two columns are equal, the third
/// differs by less than a tolerance.
#[track_caller]
fn agree(graph: &str, found: &Path, tolerance: f64) {
    let (found, recorded) = (rows(found), rows(&graphs().join(graph).join("expected.csv")));
    assert_eq!((found.len(), &found[0]), (recorded.len(), &recorded[0]));
    for (found, recorded) in found[1..].iter().zip(&recorded[1..]) {
        assert_eq!(found[..2], recorded[..2]);
        let off = found[2].parse::<f64>().unwrap() - recorded[2].parse::<f64>().unwrap();
        assert!(off.abs() < tolerance, "{found:?} is off by {off}");
    }
}

#[test]
fn digits_are_recognized() {
    for backend in BACKENDS {
        let (report, out) = run("digits", &[&format!("nodes.digit.config.backend={backend}")]);
        assert_eq!(metric(&report, "score", "total"), 6400.0);
        assert!(metric(&report, "score", "accuracy") >= 0.97);
        let rows = rows(&out.0.join("out/labels.csv"));
        assert_eq!(rows[0], ["seq", "file", "label", "score"]);
        assert_eq!(rows.len(), 1 + 6400);
        // Rows are in order, and each matches the file it names: the digit is the last part of the
        // name.
        let right = rows[1..].iter().enumerate().filter(|(i, row)| {
            assert_eq!(row[0], i.to_string());
            row[1].ends_with(&format!("-{}.png", row[2]))
        });
        assert!(right.count() >= 6208, "97 % of 6400");
    }
}

#[test]
fn classify_agrees_with_onnxruntime() {
    for backend in BACKENDS {
        let (_, out) = run("classify", &[&format!("nodes.classifier.config.backend={backend}")]);
        let found = rows(&out.0.join("out/top.csv"));
        let recorded = rows(&graphs().join("classify/expected.csv"));
        assert_eq!(found.len(), 1 + 90);
        let column = |name: &str| found[0].iter().position(|c| c == name).unwrap_or_else(|| panic!("{:?}", found[0]));
        let (mut winners, mut worst) = (0, 0.0f64);
        for row in &recorded[1..] {
            let (seq, rank): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
            let at = &found[1 + seq];
            let score: f64 = at[column(&format!("score_{rank}"))].parse().unwrap();
            worst = worst.max((score - row[3].parse::<f64>().unwrap()).abs());
            winners += usize::from(rank == 0 && at[column(&format!("class_{rank}"))] == row[2]);
        }
        // A resize that differs by one level in a few pixels moves a logit by at most 0.12; the
        // closest two winners are 0.01 apart.
        assert!(winners >= 89, "{winners} of 90 winners");
        assert!(worst < 0.05, "a score is off by {worst}");
    }
}

#[test]
fn softmax_gives_probabilities() {
    let (report, out) = run("scores", &[]);
    assert_eq!(metric(&report, "saved", "items"), 50.0);
    agree("scores", &out.0.join("out/best.csv"), 1e-6);
    // The probabilities of each frame sum to 1.
    let chances = std::fs::read(out.0.join("out/chances.npy")).unwrap();
    let numbers: Vec<f32> = chances[256..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(numbers.len(), 300);
    assert!(numbers.chunks_exact(6).all(|frame| (frame.iter().sum::<f32>() - 1.0).abs() < 1e-5));
}

#[test]
fn detect_finds_the_drawn_objects() {
    for backend in BACKENDS {
        // Every frame, however slow the machine is.
        let sets = [&format!("nodes.detector.config.backend={backend}"), "nodes.pixels.from.when_full=block"];
        let (report, out) = run("detect", &sets);
        let recorded: Value =
            serde_json::from_str(&std::fs::read_to_string(graphs().join("detect/expected.json")).unwrap()).unwrap();
        for name in ["precision", "recall"] {
            let (found, expected) = (metric(&report, "score", name), recorded[name].as_f64().unwrap());
            assert!((found - expected).abs() < 0.02, "{name}: {found}, recorded {expected}");
        }
        let lines = std::fs::read_to_string(out.0.join("out/objects.jsonl")).unwrap();
        let frames: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(frames.len(), 200);
    }
}

/// The state is passed from call to call.
#[test]
fn listen_agrees_with_onnxruntime() {
    for backend in BACKENDS {
        let (report, out) = run("listen", &[&format!("nodes.ear.config.backend={backend}")]);
        agree("listen", &out.0.join("out/heard.csv"), 1e-4);
        let node = report["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "ear").unwrap();
        assert_eq!((node["backend"]["name"].as_str(), node["backend"]["calls"].as_u64()), (Some(*backend), Some(301)));
    }
}

/// `.ci/lanes/packages/graphs` compares it with where voice is.
#[test]
fn voice_agrees_with_numpy() {
    let (_, out) = run("voice", &[]);
    agree("voice", &out.0.join("out/voice.csv"), 1e-3);
}

/// Each repetition gives the scores of the first; with `on_end: keep` it starts with the state of
/// the end of the sound, and the first scores differ. `.ci/lanes/packages/graphs` checks that
/// memory does not grow with the length.
#[test]
fn repeated_sound_resets_the_state() {
    let heard = |on_end: &str| {
        let (_, out) = run("listen", &["nodes.sound.config.repeat=20", &format!("nodes.ear.config.on_end={on_end}")]);
        let rows = rows(&out.0.join("out/heard.csv"));
        assert_eq!(rows.len(), 1 + 20 * 301);
        rows
    };
    let rows = heard("reset");
    for pass in rows[1..].chunks(301) {
        assert!(std::iter::zip(pass, &rows[1..]).all(|(row, first)| row[1..] == first[1..]));
    }
    let rows = heard("keep");
    let score = |at: usize| rows[at][2].parse::<f64>().unwrap();
    assert!(
        (score(1) - score(1 + 301)).abs() > 0.1,
        "the first pass starts with an empty state, the second with that of the end of the sound"
    );
    assert!(
        (score(1 + 301) - score(1 + 2 * 301)).abs() < 1e-4,
        "two seconds of silence later that is the same each time"
    );
}

/// Two streams through one model, in batches, give the same scores as each alone. With
/// `on_skip: reset` a stream that misses messages starts with an empty state.
#[test]
fn streams_that_share_a_model_do_not_share_its_state() {
    let listen = graphs().join("listen").canonicalize().unwrap();
    let folder = Folder::with("streams", "");
    let heard = |backend: &str, between: &str, config: &str| {
        let listen = listen.display();
        let text = format!(
            "version: 1\nnodes:\n  one: {{ kind: wav, config: {{ path: {listen}/sound.wav, frames: 80, tail: pad }} }}\n  \
             two: {{ kind: wav, config: {{ path: {listen}/sound.wav, frames: 80, tail: pad }} }}\n{between}  \
             ear: {{ kind: infer, config: {{ model: {listen}/listener.onnx, backend: {backend}, batch: {{ max: 4 }}, \
             state: [{{ input: state, output: next_state }}]{config} }}, from: last }}\n  best: {{ kind: argmax, from: ear }}\n  \
             table: {{ kind: csv, config: {{ path: heard.csv }}, inputs: {{ class: best/index, score: best/value }} }}\n"
        );
        run_beside_listen(&folder, &text).expect(0, "", "");
        rows(&folder.0.join("heard.csv"))
    };
    let expected = rows(&graphs().join("listen/expected.csv"));
    let off = |row: &[String]| {
        let seq: usize = row[0].parse().unwrap();
        (row[2].parse::<f64>().unwrap() - expected[1 + seq][2].parse::<f64>().unwrap()).abs()
    };
    for backend in BACKENDS {
        let merged = "  last: { kind: merge, inputs: { a: one, b: two } }\n";
        let both = heard(backend, merged, "");
        assert_eq!(both.len(), 1 + 2 * 301);
        assert!(both[1..].iter().all(|row| off(row) < 1e-4), "{backend}");
        let discarded =
            "  last: { kind: decimate, config: { keep_every: 2 }, from: one }\n  none: { kind: \"null\", from: two }\n";
        let anew = heard(backend, discarded, ", on_skip: reset");
        assert_eq!(anew.len(), 1 + 151);
        assert!(off(&anew[1]) < 1e-4 && anew[100..].iter().any(|row| off(row) > 0.05), "{backend}");
        assert_ne!(heard(backend, discarded, "")[100], anew[100], "{backend}: kept, the state is another");
    }
}

/// With a state that is always zeros, each message is heard as the first.
#[test]
fn a_models_input_may_have_a_constant_value() {
    let listen = graphs().join("listen").canonicalize().unwrap();
    let folder = Folder::with("constant", "");
    let run = |state: &str| {
        let listen = listen.display();
        let text = format!(
            "version: 1\nnodes:\n  sound: {{ kind: wav, config: {{ path: {listen}/sound.wav, frames: 80, tail: pad }} }}\n  \
             ear: {{ kind: infer, config: {{ model: {listen}/listener.onnx }}, inputs: {{ sound: sound, state: {state} }} }}\n  \
             best: {{ kind: argmax, from: ear/scores }}\n  rest: {{ kind: \"null\", from: ear/next_state }}\n  \
             table: {{ kind: csv, config: {{ path: heard.csv }}, inputs: {{ class: best/index, score: best/value }} }}\n"
        );
        run_beside_listen(&folder, &text)
    };
    let zeros = vec!["0"; 24].join(", ");
    run(&format!("{{ value: [[{zeros}]] }}")).expect(0, "", "");
    let (heard, expected) = (rows(&folder.0.join("heard.csv")), rows(&graphs().join("listen/expected.csv")));
    let score = |rows: &[Vec<String>], at: usize| rows[at][2].parse::<f64>().unwrap();
    assert_eq!(heard.len(), expected.len());
    assert!((score(&heard, 1) - score(&expected, 1)).abs() < 1e-4);
    assert!((2..heard.len()).any(|at| (score(&heard, at) - score(&expected, at)).abs() > 0.05));
    for (state, expected) in [
        ("{ value: [0] }", "E0130"),
        (
            "{ value: [0] }",
            "the value of input `state`: expected f32[batch,24] as one item of `state`, found the shape [1]",
        ),
        ("{ value: 1, capacity: 4 }", "E0103"),
    ] {
        run(state).expect(2, "", expected);
    }
}

#[test]
fn printed_numbers_are_those_of_the_trigger_or_the_anchor() {
    let sources = "version: 1\nnodes:\n  fast: { kind: synthetic, config: { pattern: counter, rate: 1kHz, count: 200 } }\n  \
                   slow: { kind: synthetic, config: { pattern: counter, rate: 100Hz, count: 20 } }\n";
    for (join, of) in [
        ("policy: sample, trigger: y", 2),
        ("policy: sample, trigger: x", 1),
        ("policy: by_time, within: 3ms, anchor: y", 2),
        ("policy: by_time, within: 3ms, anchor: x", 1),
    ] {
        for (kind, config) in [("csv", "path: rows"), ("jsonl", "path: rows"), ("console", "every: 1")] {
            let sink = format!(
                "  z: {{ kind: {kind}, inputs: {{ x: fast, y: slow }}, join: {{ {join} }}, config: {{ {config} }} }}\n"
            );
            let folder = Folder::with("numbers", &format!("{sources}{sink}"));
            let printed = folder.run("graph.yaml --simulated -q").expect(0, "", "").out.clone();
            let text = std::fs::read_to_string(folder.0.join("rows")).unwrap_or(printed);
            // Every source counts from 0, so a value is the number of its message.
            let numbers = |line: &str| -> Vec<u64> {
                line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
            };
            let lines = text.lines().filter(|line| !line.starts_with("graph: "));
            let rows: Vec<Vec<u64>> = lines.skip(usize::from(kind == "csv")).map(numbers).collect();
            assert!(rows.len() > 10, "{kind}, {join}: {text}");
            assert!(rows.iter().all(|row| row.len() == 3 && row[0] == row[of]), "{kind}, {join}: {text}");
        }
    }
}

/// Each message comes after a gap that is too long, so each starts with an empty state, as it does
/// if the previous message is missing. The clock is simulated, so a simulated clock scheduling does
/// not change the gaps.
#[test]
fn a_gap_resets_the_streams_of_an_input() {
    let listen = graphs().join("listen").canonicalize().unwrap();
    let folder = Folder::with("silence", "");
    let heard = |between: &str, from: &str, config: &str| {
        let listen = listen.display();
        let text = format!(
            "version: 1\nnodes:\n  one: {{ kind: wav, config: {{ path: {listen}/sound.wav, frames: 80, tail: pad, real_time: true }} }}\n\
             {between}  ear: {{ kind: infer, config: {{ model: {listen}/listener.onnx, \
             state: [{{ input: state, output: next_state }}]{config} }}, from: {from} }}\n  best: {{ kind: argmax, from: ear }}\n  \
             table: {{ kind: csv, config: {{ path: {}/heard.csv }}, inputs: {{ class: best/index, score: best/value }} }}\n",
            folder.0.display()
        );
        let allowed = vec![listen.to_string().into(), folder.0.clone()];
        let layers = limen::Layers { allowed, ..limen::Layers::default() };
        let spec = limen::Spec::from_text_with(&text, "silence.yaml", &layers).unwrap();
        let plan = limen::Plan::new(spec, &limen_run::registry()).unwrap();
        let report = plan.wire().unwrap().simulate(1).unwrap().run_as_scheduled(1_000_000).unwrap();
        assert_eq!(report.exit_code(), 0);
        (rows(&folder.0.join("heard.csv")), report.node("ear").unwrap().gaps)
    };
    let silent = |may_be: &str| heard("", &format!("{{ from: one, expect_every: {may_be}, on_gap: reset }}"), "");
    let (anew, gaps) = silent("4ms");
    assert_eq!((anew.len(), gaps), (1 + 301, 300));
    let (missing, _) =
        heard("  half: { kind: decimate, config: { keep_every: 2 }, from: one }\n", "half", ", on_skip: reset");
    for row in &missing[1..] {
        let seq: usize = row[0].parse().unwrap();
        assert_eq!(anew[1 + seq], *row, "message {seq} begins with nothing");
    }
    let (kept, gaps) = silent("15ms");
    assert_eq!(gaps, 0);
    assert_ne!(kept[100], anew[100], "without a silence the state stays");
}

/// Pairs two sensors by time. Here a thread sends the packets of the inertial sensor;
/// `.ci/lanes/packages/graphs` runs the script beside the graph, and checks timings, which this
/// test leaves out because the machine may be busy.
#[test]
fn fusion_pairs_two_sensors_by_time() {
    let (frames, within) = (60, 10_000_000);
    let actuator = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = limen_tests::udp_port();
    let is_over = AtomicBool::new(false);
    let out = Folder::with("fusion", "");
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let sensor = UdpSocket::bind("127.0.0.1:0").unwrap();
            let begin = Instant::now();
            for number in 0u32.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let due = Duration::from_millis(number.into());
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
                let mut packet = Vec::from(number.to_le_bytes());
                packet.extend((u64::from(number) * 1000).to_le_bytes());
                (0..6u8).for_each(|axis| packet.extend(f32::from(axis).to_le_bytes()));
                // One packet in fifty is truncated. The graph may not listen yet.
                let length = if number % 50 == 7 { 20 } else { packet.len() };
                let _ = sensor.send_to(&packet[..length], ("127.0.0.1", port));
            }
        });
        let mut command = out.command("--json --duration 3s --out .");
        command
            .arg(graphs().join("fusion/graph.yaml"))
            .args(["--set", &format!("nodes.packets.config.listen={port}")])
            .args(["--set", &format!("nodes.command.config.to={}", actuator.local_addr().unwrap().port())])
            .args(["--set", &format!("nodes.camera.config.count={frames}")]);
        let output = command.output().unwrap();
        is_over.store(true, Ordering::Relaxed);
        Ran::from(output)
    });
    let (report, text) = (ran.expect(0, "", "").json(), &ran.out);
    assert_eq!(report["bugs"].as_array().map(Vec::len), Some(0), "{text}");
    // Every frame has a command, or is counted as one without a reading in time.
    let rows = rows(&out.0.join("out/log.csv"));
    let edges = report["edges"].as_array().unwrap();
    let lost = |to: &str| {
        let lost = &edges.iter().find(|edge| edge["to"] == to).unwrap()["lost"];
        lost.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>()
    };
    let paired = rows.len() as u64 - 1;
    let sent =
        report["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "camera").unwrap()["done"].as_u64();
    assert!(paired > 0 && sent == Some(paired + lost("steer/image")), "{paired}: {text}");
    for edge in edges.iter().map(|edge| edge["to"].as_str().unwrap()).filter(|to| !to.starts_with("steer/")) {
        assert_eq!(lost(edge), 0, "{edge}: {text}");
    }
    // Truncated packets were dropped and reported, and stopped nothing.
    assert!(metric(&report, "imu", "malformed") > 0.0);
    let notes = report["notes"].as_array().unwrap();
    let shown = |note: &Value| note.as_str().unwrap().contains("the first: expected 36 bytes, found 20: ");
    assert!(notes.iter().any(shown), "{notes:?}");
    // Paired messages began together, however busy the machine was, and the deadlines of both
    // sources apply to them.
    let histograms = report["histograms"].as_array().unwrap();
    let skew = histograms.iter().find(|found| found["tag"] == "steer.skew").unwrap();
    assert_eq!(skew["count"].as_u64(), Some(paired));
    assert!(skew["max"].as_u64().unwrap() <= within + within / 50, "{skew}");
    let paths = report["paths"].as_array().unwrap();
    for source in ["camera", "packets"] {
        let path = paths.iter().find(|path| path["from"] == source && path["to"] == "command").unwrap();
        assert_eq!((path["count"].as_u64(), path["judged"].as_u64()), (Some(paired), Some(paired)), "{path}");
        assert!(path["late"].as_u64() <= Some(paired), "{path}");
    }
    // The actuator received what the log contains.
    actuator.set_nonblocking(true).unwrap();
    for row in &rows[1..] {
        let mut bytes = [0; 64];
        let n = actuator.recv(&mut bytes).unwrap();
        let command: Vec<f32> =
            bytes[..n].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(command, [row[1].parse::<f32>().unwrap(), row[2].parse().unwrap()]);
    }
    assert!(actuator.recv(&mut [0; 64]).is_err(), "more commands than rows");
}

/// On the adapter of this machine, which may compute on the CPU; skipped where there is none.
#[cfg(feature = "wgpu")]
#[test]
fn a_device_hears_what_the_cpu_hears() {
    let plan = |drivers: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_limen-run"));
        command.arg(graphs().join("listen/graph.yaml")).args(["--plan", "--allow-software"]);
        command.args(["--set", "nodes.ear.config.backend=wgpu"]);
        // Older loaders know only the second name.
        drivers.iter().for_each(|path| _ = command.env("VK_DRIVER_FILES", path).env("VK_ICD_FILENAMES", path));
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stderr), text(output.stdout))
    };
    let (code, problems, _) = plan(Some("/nonexistent"));
    assert!(code == Some(2) && problems.contains("install the Vulkan driver of the GPU"), "{code:?}: {problems}");
    let (code, problems, shown) = plan(None);
    if problems.contains("no adapter was found") {
        println!("skipped: {problems}");
        return;
    }
    assert_eq!(code, Some(0), "{problems}");
    assert!(shown.contains("ear: runs on `") && shown.contains("driver"), "{shown}");
    let (_, out) = run("listen", &["nodes.ear.config.backend=wgpu"]);
    agree("listen", &out.0.join("out/heard.csv"), 1e-4);
}

/// Each reading that is too hot is sent on, in the frames that a program in Python expects.
#[test]
fn bus_warns_of_heat() {
    let (_, out) = run("bus", &[]);
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let (found, expected) = (read(out.0.join("out/warnings.log")), read(graphs().join("bus/expected.txt")));
    let frames: Vec<&str> = found.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(frames, expected.lines().collect::<Vec<_>>());
}
