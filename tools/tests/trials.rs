//! Models that crash, hang or exhaust their process are refused, and do not harm the program.

use crate::program::Folder;
use limen::policy::Trials;
use limen::{Layers, Options, Plan};
use limen_infer::BackendOptions;
use limen_tests::protobuf::{field, number};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const GRAPH: &str = "
version: 1
nodes:
  a: { kind: synthetic, config: { pattern: noise, shape: [2], dtype: f32, count: 4 } }
  m: { kind: infer, config: { model: model.onnx }, from: a }
  b: { kind: 'null', from: m }
";

/// A graph's input or output: `n` items of two numbers, or one value.
fn value(name: &str, elem: u64, is_item: bool) -> Vec<u8> {
    let dims = if is_item { [field(1, field(2, "n")), field(1, number(1, 2))].concat() } else { Vec::new() };
    [field(1, name), field(2, field(1, [number(1, elem), field(2, dims)].concat()))].concat()
}

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: &[u8]) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|name| field(1, name)).collect();
    let names: Vec<u8> = outputs.iter().flat_map(|name| field(2, name)).collect();
    field(1, [inputs, names, field(3, outputs[0]), field(4, op), attribute.to_vec()].concat())
}

pub(crate) fn integer(name: &str, n: u64) -> Vec<u8> {
    field(5, [field(1, name), number(3, n), number(20, 2)].concat())
}

pub(crate) const FLOAT: u64 = 1;
pub(crate) const I64: u64 = 7;
const BOOL: u64 = 9;

/// The file of a model with the input `x` and the output `y` of these shapes.
pub(crate) fn model_with(x: &[u64], y: &[u64], parts: &[Vec<u8>]) -> Vec<u8> {
    let value = |name: &str, shape: &[u64]| {
        let dims: Vec<u8> = shape.iter().flat_map(|length| field(1, number(1, *length))).collect();
        [field(1, name), field(2, field(1, [number(1, FLOAT), field(2, dims)].concat()))].concat()
    };
    let graph = [parts.concat(), field(2, "g"), field(11, value("x", x)), field(12, value("y", y))].concat();
    [number(1, 8), field(7, graph), field(8, number(2, 17))].concat()
}

pub(crate) fn weight(name: &str, elem: u64, dims: &[u64], bytes: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| number(1, *dim)).collect();
    field(5, [dims, number(2, elem), field(8, name), field(9, bytes)].concat())
}

fn model(parts: &[Vec<u8>]) -> Vec<u8> {
    let ends = [field(2, "g"), field(11, value("x", FLOAT, true)), field(12, value("y", FLOAT, true))];
    let graph = [parts.concat(), ends.concat()].concat();
    [number(1, 8), field(7, graph), field(8, number(2, 17))].concat()
}

/// A model that loops 2⁴⁰ times.
fn endless() -> Vec<u8> {
    let body = [
        node("Identity", &["c"], &["c2"], &[]),
        node("Relu", &["v"], &["v2"], &[]),
        field(2, "body"),
        [value("i", I64, false), value("c", BOOL, false), value("v", FLOAT, true)].map(|v| field(11, v)).concat(),
        [value("c2", BOOL, false), value("v2", FLOAT, true)].map(|v| field(12, v)).concat(),
    ];
    let attribute = field(5, [field(1, "body"), field(6, body.concat()), number(20, 5)].concat());
    let turns = weight("turns", I64, &[], &(1_u64 << 40).to_le_bytes());
    model(&[node("Loop", &["turns", "yes", "x"], &["y"], &attribute), turns, weight("yes", BOOL, &[], &[1])])
}

/// A model that allocates 160 GB: it computes the length from its input.
fn hungry() -> Vec<u8> {
    model(&[
        node("ReduceSum", &["x"], &["s"], &integer("keepdims", 0)),
        node("Exp", &["s"], &["e"], &[]),
        node("Mul", &["e", "many"], &["l"], &[]),
        node("Cast", &["l"], &["k"], &integer("to", I64)),
        node("ConstantOfShape", &["k"], &["z"], &[]),
        node("ReduceSum", &["z"], &["r"], &integer("keepdims", 0)),
        node("Add", &["x", "r"], &["y"], &[]),
        weight("many", FLOAT, &[2], &[2e5_f32.to_le_bytes(), 2e5_f32.to_le_bytes()].concat()),
    ])
}

fn with(test: &str, model: &[u8]) -> Folder {
    let folder = Folder::with(test, GRAPH);
    fs::write(folder.0.join("model.onnx"), model).unwrap();
    folder
}

/// The running child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

/// The state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut parts = text.rsplit_once(')')?.1.split_whitespace();
    Some((parts.next()?.chars().next()?, parts.next()?.parse().ok()?))
}

/// Polls until a value is there, or panics.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match look() {
            Some(found) => return found,
            None if Instant::now() > end => panic!("{what}"),
            None => std::thread::yield_now(),
        }
    }
}

const GOOD: &str = "tried in this process";

fn good() -> Vec<u8> {
    model(&[node("Relu", &["x"], &["y"], &[])])
}

/// Promise (models): limen rejects a model that kills its trial process, with the name of the node.
///
/// Attack (deadly models): models that crash or exhaust their process; expected: refused with the
/// name of the node, within `--model-limits`
#[test]
fn a_model_that_crashes_its_process_is_refused() {
    for (name, model, limits, how) in [
        ("endless", endless(), "cpu=1s", "used more than 1s of CPU time while `rten` ran the model on zeros"),
        // Where it was by then depends on the machine.
        ("late", endless(), "wall=300ms", "was still running after 300ms and was killed"),
        ("hungry", hungry(), "memory=500MiB", "needed more than 500 MiB of memory while `rten` ran the model on zeros"),
    ] {
        let folder = with(&format!("trial-{name}"), &model);
        let all = ["check", "run", "plan", "dot", "compile --cache kept", "calibrate --cache kept"];
        for verb in all.into_iter().take(if name == "hungry" { 6 } else { 1 }) {
            let ran = folder.run(&format!("{verb} graph.yaml --model-limits {limits}"));
            let how = how.split(" while").next().filter(|_| verb.starts_with("calibrate")).unwrap_or(how);
            ran.expect(2, "", how).expect(2, "", "error[E0130]: `m`: `model.onnx` was tried in a separate process");
            ran.expect(2, "", "help: raise the limit with `--model-limits ");
            assert!(!ran.err.contains("panicked") && !ran.err.contains("memory allocation of"), "{}", ran.err);
        }
    }
}

/// Promise (models): Every command that loads a model applies `--model-limits`.
#[test]
fn every_verb_that_loads_a_model_applies_the_limits() {
    let folder = with("trial-verbs", &good());
    for words in [
        "check graph.yaml",
        "dot graph.yaml",
        "inspect model.onnx",
        "inspect model.onnx --json",
        "verify-backend graph.yaml --against rten",
        "calibrate graph.yaml --cache kept",
        "compile graph.yaml --cache kept",
        "graph.yaml --shadow rten",
    ] {
        folder.run(words).expect(0, "", "");
        folder.run(&format!("{words} --model-limits none")).expect(0, "", "");
        // A model is not tried twice.
        fs::remove_dir_all(folder.0.join("kept")).unwrap_or_default();
        let refused = folder.run(&format!("{words} --model-limits memory=1B"));
        refused.expect(2, "", "was tried in a separate process, which needed more than 1 B of memory");
    }
    folder.run("plan graph.yaml --model-limits none").expect(0, GOOD, "");
    let planned = folder.run("plan graph.yaml");
    assert!(!planned.expect(0, "backend rten", "").out.contains(GOOD), "{}", planned.out);
}

/// Promise (models): With `--cache`, a known model is not tried again, and any other model is.
#[test]
fn results_of_trials_are_cached() {
    let folder = with("trial-kept", &good());
    folder.run("check graph.yaml --cache kept").expect(0, "", "");
    // With this limit any trial would fail.
    let cached = "plan graph.yaml --cache kept --model-limits memory=1B";
    folder.run(cached).expect(0, "tried earlier: the result was read from kept", "");
    let files = || fs::read_dir(folder.0.join("kept")).unwrap().map(|entry| entry.unwrap().path());
    let entry = files().next().unwrap();
    let whole = fs::read(&entry).unwrap();
    fs::write(&entry, &whole[..whole.len() - 1]).unwrap();
    folder.run(cached).expect(2, "", "needed more than 1 B of memory");
    fs::write(&entry, &whole).unwrap();
    folder.run(cached).expect(0, "tried earlier", "");
    // Another model needs another trial, and so does another way to call it.
    fs::write(folder.0.join("model.onnx"), model(&[node("Neg", &["x"], &["y"], &[])])).unwrap();
    folder.run(cached).expect(2, "", "needed more than 1 B of memory");
    fs::write(folder.0.join("model.onnx"), good()).unwrap();
    folder.run(&format!("{cached} --set nodes.m.config.batch.max=2")).expect(2, "", "needed more than 1 B");
    folder.run(cached).expect(0, "tried earlier", "");
}

/// Promise (models): Two graphs of one process use the cache folders of their own registries.
#[test]
fn two_graphs_of_one_process_keep_what_they_find_in_their_own_folders() {
    let folder = with("trial-two-caches", &good());
    let keeping_in = |name: &str| {
        let options = BackendOptions { cache: Some(folder.0.join(name)), ..BackendOptions::default() };
        limen_run::registry().with_extension(options)
    };
    let plan = |registry: &limen::Registry| {
        let trials = Trials { program: Some(env!("CARGO_BIN_EXE_limen-run").into()), ..Trials::default() };
        let options = Options { trials, ..Options::default() };
        Plan::from_file(folder.0.join("graph.yaml"), &Layers::default(), registry, &options).unwrap()
    };
    let kept = |name: &str| {
        let files = fs::read_dir(folder.0.join(name)).into_iter().flatten();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (one, two) = (keeping_in("one"), keeping_in("two"));
    plan(&one);
    assert_eq!((kept("one").len(), kept("two").len()), (1, 0));
    plan(&two);
    assert_eq!(kept("two"), kept("one"));
    fs::remove_dir_all(folder.0.join("one")).unwrap();
    plan(&limen_run::registry());
    plan(&two);
    assert_eq!((kept("one").len(), kept("two").len()), (0, 1));
}

/// A trial loads whatever its graph names; the process that runs the graph has room for one
/// library.
#[cfg(feature = "ort")]
#[test]
fn a_graph_with_another_library_of_onnx_runtime_is_refused() {
    let folder = with("trial-two-libraries", &good());
    fs::write(folder.0.join("graph.yaml"), GRAPH.replace("model.onnx }", "model.onnx, backend: ort }")).unwrap();
    let first = std::path::PathBuf::from(std::env::var_os("ORT_DYLIB_PATH").expect("as .ci/backends sets it"));
    let (link, copy) = (folder.0.join("link.so"), folder.0.join("copy.so"));
    std::os::unix::fs::symlink(&first, &link).unwrap();
    fs::copy(&first, &copy).unwrap();
    let plan = |onnxruntime: Option<&Path>| {
        let options = BackendOptions { onnxruntime: onnxruntime.map(Path::to_path_buf), ..BackendOptions::default() };
        let registry = limen_run::registry().with_extension(options);
        let trials = Trials { program: Some(env!("CARGO_BIN_EXE_limen-run").into()), ..Trials::default() };
        let options = Options { trials, ..Options::default() };
        Plan::from_file(folder.0.join("graph.yaml"), &Layers::default(), &registry, &options).map(|_| ())
    };
    for same in [None, Some(&*first), Some(&*link)] {
        assert!(plan(same).is_ok(), "{same:?}: {}", plan(same).unwrap_err());
    }
    let why = plan(Some(&copy)).unwrap_err().to_string();
    for part in ["`m`", "copy.so` is not loaded", &*first.to_string_lossy(), "run this graph in another process"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

/// Promise (models): If a program neither serves trials nor names one that does, the plan says so.
#[test]
fn an_embedding_program_names_the_program_for_trials() {
    let plan = |folder: &Folder, trials: Trials| {
        let options = Options { trials, ..Options::default() };
        let graph = folder.0.join("graph.yaml");
        Plan::from_file(&graph, &Layers::default(), &limen_run::registry(), &options)
    };
    let notes = |plan: &Plan| plan.nodes().iter().flat_map(|node| node.notes.clone()).collect::<Vec<_>>().join("\n");
    let program = |name: &str| Trials { program: Some(name.into()), ..Trials::default() };
    let folder = with("trial-embedded", &good());
    assert!(notes(&plan(&folder, Trials::default()).unwrap()).contains("call `limen_infer::trial::serve` first"));
    let tried = plan(&folder, program(env!("CARGO_BIN_EXE_limen-run"))).unwrap();
    assert!(!notes(&tried).contains(GOOD), "{}", notes(&tried));
    assert_eq!(tried.wire().unwrap().start().unwrap().wait().exit_code(), 0);
    assert!(Path::new("/bin/true").exists());
    let hungry = with("trial-embedded-hungry", &hungry());
    for (name, how) in [
        (env!("CARGO_BIN_EXE_limen-run"), "needed more than 1.00 GiB of memory"),
        ("/bin/true", "is `/bin/true`, which does not answer as limen"),
        ("/nowhere/limen", "could not be started: /nowhere/limen: No such file"),
    ] {
        let problems = plan(&hungry, program(name)).map(|_| ()).unwrap_err().to_string();
        assert!(problems.contains("`m`") && problems.contains(how), "{name}: {problems}");
    }
}

/// Promise (models): A restarted model does not need its file.
#[test]
fn a_planned_model_does_not_need_its_file() {
    let folder = with("trial-planned", &good());
    let graph = folder.0.join("graph.yaml");
    let keys = "model.onnx }, fault: { error_at: 2 }, on_error: { restart: { max: 3, backoff: 1ms } }";
    fs::write(&graph, GRAPH.replace("model.onnx }", keys)).unwrap();
    let trials = Trials { program: Some(env!("CARGO_BIN_EXE_limen-run").into()), ..Trials::default() };
    let options = Options { trials, ..Options::default() };
    let plan = Plan::from_file(&graph, &Layers::default(), &limen_run::registry(), &options).unwrap();
    fs::remove_file(folder.0.join("model.onnx")).unwrap();
    let report = plan.wire().unwrap().start().unwrap().wait();
    let node = report.nodes.iter().find(|node| node.name == "m").unwrap();
    assert_eq!((report.exit_code(), node.failed, node.restarts), (0, 1, 1), "{:?}", report.failures);
}

/// Promise (models): The weights of `linear` and `mlp` are read during planning.
#[test]
fn planned_weights_do_not_need_their_file() {
    let graph = GRAPH.replace("kind: infer", "kind: linear").replace("model: model.onnx", WEIGHTS);
    let folder = Folder::with("trial-weights", &graph);
    fs::write(folder.0.join("w.bin"), [0; 16]).unwrap();
    let plan = || {
        let graph = folder.0.join("graph.yaml");
        Plan::from_file(graph, &Layers::default(), &limen_run::registry(), &Options::default())
    };
    let planned = plan().unwrap();
    fs::remove_file(folder.0.join("w.bin")).unwrap();
    let report = planned.wire().unwrap().start().unwrap().wait();
    assert_eq!(report.exit_code(), 0, "{:?}", report.failures);
    assert!(plan().is_err());
}

const WEIGHTS: &str = "weight: { file: w.bin, dtype: f32, shape: [2, 2] }";

/// Promise (models): A trial does not outlive the process that started it.
#[test]
fn a_trial_does_not_outlive_its_parent() {
    let folder = with("trial-orphan", &endless());
    let mut asks = folder.command("check graph.yaml --model-limits cpu=1h,wall=1h").spawn().unwrap();
    let word = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("trial\0");
    let trial = until("no trial begins", || children(asks.id()).into_iter().find(word));
    // The limits are set before anything is read.
    let limits = || fs::read_to_string(format!("/proc/{trial}/limits")).unwrap_or_default();
    until("it has no limits", || {
        limits().lines().any(|l| l.starts_with("Max cpu time") && l.contains("3600")).then_some(())
    });
    asks.kill().unwrap();
    asks.wait().unwrap();
    until("it goes on", || stat(trial).is_none_or(|(state, _)| state == 'Z').then_some(()));
}

/// Promise (models): `backend: auto` skips a backend that crashes on the model.
#[test]
fn a_backend_that_crashes_on_a_model_is_skipped() {
    let folder = with("trial-auto", &hungry());
    let ran = folder.run("plan graph.yaml --set nodes.m.config.backend=auto --model-limits memory=500MiB");
    let died =
        "`rten` cannot run the model: `model.onnx` was tried in a separate process, which needed more than 500 MiB";
    // If another backend is built in, that one may succeed.
    match ran.code {
        Some(2) => _ = ran.expect(2, "", "no backend of this program runs `model.onnx`").expect(2, "", died),
        _ => _ = ran.expect(0, "m: backend ", "").expect(0, "`rten` cannot run the model", ""),
    }
}

/// The file of a model, and the file of its weights beside it.
#[test]
fn a_model_above_the_limit_of_its_size_is_refused_with_the_one_that_it_needs() {
    let beside = |key: &str, value: &str| field(13, [field(1, key), field(2, value)].concat());
    let place = [beside("location", "w.data"), beside("length", "8"), number(14, 1)].concat();
    let outside = field(5, [number(1, 2), number(2, FLOAT), field(8, "w"), place].concat());
    let adds = || node("Add", &["x", "w"], &["y"], &[]);
    let inside = model(&[adds(), weight("w", FLOAT, &[2], &[0; 8]), weight("unused", FLOAT, &[1024], &[0; 4096])]);
    for (name, model, data, why) in [
        ("inside", inside, vec![], "got 4."),
        (
            "outside",
            model(&[adds(), outside]),
            vec![0; 4096],
            "the weight file `w.data` and the model together must have",
        ),
    ] {
        let folder = with(name, &model);
        fs::write(folder.0.join("w.data"), data).unwrap();
        let help = "write `--model-limits size=1GiB` (in a program, `Trials::size`)";
        for (verb, before) in [
            ("check graph.yaml", "\n  = help: "),
            ("inspect model.onnx", "KiB: "),
            ("new robot --model model.onnx", "KiB: "),
        ] {
            let ran = folder.run(&format!("{verb} --model-limits size=1KiB"));
            ran.expect(2, "", why).expect(2, "", "must have at most 1.00 KiB").expect(
                2,
                "",
                &format!("{before}{help}"),
            );
            assert!(!folder.0.join("robot").exists());
            folder.run(&format!("{verb} --model-limits size=1GiB")).expect(0, "", "");
            let _ = fs::remove_dir_all(folder.0.join("robot"));
        }
    }
}
