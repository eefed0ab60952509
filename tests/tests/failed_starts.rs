//! A run that does not begin leaves every file as it was, whatever kept it from beginning and
//! whichever sinks were built before.

use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Sink, Transform};
use limen::report::Outcome;
use limen::{Clock, Message, Plan, Registry, Report, RunError, SimulatedClock, Spec, Tensor, Time, Wired};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A sink that cannot be built.
struct Unbuildable;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {
    how: How,
}

#[derive(Clone, Copy, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum How {
    Error,
    Panic,
    Hang,
}

/// Whether builds that hang may end.
static RELEASED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

impl Node for Unbuildable {
    type Config = Config;
    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input_any(name)))
    }
    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        match config.how {
            How::Error => {}
            How::Panic => panic!("on purpose"),
            How::Hang => {
                let released = RELEASED.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(RELEASED.1.wait_while(released, |released| !*released));
            }
        }
        Err(NodeError::other("on purpose"))
    }
}

impl Sink for Unbuildable {
    type In = Tensor;
    fn take(&mut self, _: Message<Tensor>) -> Result<(), NodeError> {
        Ok(())
    }
}

/// A node whose every call fails.
struct Broken;

impl Node for Broken {
    type Config = ();
    fn ports(_: &(), given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().input_any("in");
        Ok(given.single().map_or(ports.clone(), |spec| ports.output("out", spec.clone())))
    }
    fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Broken)
    }
}

impl Transform for Broken {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, _: Message<Tensor>, _: &mut Emit<Tensor>) -> Result<(), NodeError> {
        Err(NodeError::other("on purpose"))
    }
}

fn registry() -> Registry {
    limen_tests::registry().sink::<Unbuildable>("unbuildable").transform::<Broken>("broken")
}

/// Every sink that writes a file, and the source that it takes messages from.
const SINKS: [(&str, &str, &str); 7] = [
    ("csv", "path: out.csv", "numbers"),
    ("jsonl", "path: out.jsonl", "numbers"),
    ("npy", "path: out.npy", "numbers"),
    ("wav", "path: out.wav, sample_rate: 16kHz", "numbers"),
    ("file", "path: out.bin, framing: raw", "bytes"),
    ("candump", "path: out.log, interface: can0", "bytes"),
    ("record", "path: out.mcap", "numbers"),
];

/// A graph with every sink. `bad` is another node, which lies before the sink number `at` and after
/// the others; `keys` are those of all nodes.
fn graph(exists: &str, bad: &str, at: usize, keys: &str) -> String {
    // Only a build that hangs is given up, however busy the machine is.
    let run = if bad.contains("hang") { "run: { start: 100ms }\n" } else { "" };
    let mut text = format!(
        "version: 1\n{run}nodes:\n  \
         numbers: {{ kind: synthetic, config: {{ pattern: counter, dtype: f32, shape: [4], count: 3 }}{keys} }}\n  \
         bytes: {{ kind: synthetic, config: {{ pattern: counter, dtype: u8, shape: [16], count: 3 }}{keys} }}\n"
    );
    for (index, (kind, config, from)) in SINKS.into_iter().enumerate() {
        if index == at {
            text.push_str(bad);
        }
        let can_append = !matches!(kind, "npy" | "wav");
        let exists = match (kind, exists) {
            ("record", "fail") => ", exists: fail",
            ("record", _) => "",
            (_, "replace") => "",
            (_, "append") if can_append => ", exists: append",
            (_, "append") => "",
            _ => ", exists: fail",
        };
        text.push_str(&format!("  {kind}: {{ kind: {kind}, config: {{ {config}{exists} }}, from: {from}{keys} }}\n"));
    }
    if at == SINKS.len() {
        text.push_str(bad);
    }
    text
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

fn wire(folder: &Path, text: &str) -> Wired {
    let file = folder.join("graph.yaml");
    fs::write(&file, text).unwrap();
    let spec = Spec::from_file(&file).unwrap();
    fs::remove_file(file).unwrap();
    Plan::new(spec, &registry()).unwrap_or_else(|problems| panic!("{problems}\n{text}")).wire().unwrap()
}

/// Fills the folder with results of an earlier run; `exists: fail` has none.
fn earlier_results(folder: &Path, exists: &str) {
    for file in fs::read_dir(folder).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    if exists != "fail" {
        for (kind, config, _) in SINKS {
            let name = config.trim_start_matches("path: ").split(',').next().unwrap();
            let text = if kind == "csv" { "seq,in_0,in_1,in_2,in_3\n7,1,2,3,4\n" } else { "precious" };
            fs::write(folder.join(name), text).unwrap();
        }
    }
}

/// Promise (files): A run that does not begin leaves every file as it was.
#[test]
fn a_run_that_does_not_begin_leaves_every_file_as_it_was() {
    let simulated = || Clock::Simulated(SimulatedClock::new(Time(1)));
    type Way = (&'static str, &'static str, fn(Wired) -> Option<RunError>);
    let unbuildable: [Way; 5] = [
        ("started, error", "unbuildable, config: { how: error }, from: numbers", |wired| wired.start().err()),
        ("started, panic", "unbuildable, config: { how: panic }, from: numbers", |wired| wired.start().err()),
        ("driven, error", "unbuildable, config: { how: error }, from: numbers", |wired| {
            wired.drive(Clock::Monotonic).err()
        }),
        ("driven, panic", "unbuildable, config: { how: panic }, from: numbers", |wired| {
            wired.drive(Clock::Monotonic).err()
        }),
        ("simulated, error", "unbuildable, config: { how: error }, from: numbers", |wired| wired.simulate(1).err()),
    ];
    let refused: [Way; 2] = [
        ("started, inlet", "inlet, config: { spec: \"f32[4]\" }", |wired| wired.start().err()),
        ("driven, inlet", "inlet, config: { spec: \"f32[4]\" }", |wired| wired.drive(Clock::Monotonic).err()),
    ];
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for exists in ["replace", "append", "fail"] {
        earlier_results(folder, exists);
        let before = contents(folder);
        for keys in ["", ", core: 0"] {
            for (way, kind, start) in unbuildable.into_iter().chain(refused) {
                for at in 0..=SINKS.len() {
                    let bad = format!("  bad: {{ kind: {kind}{keys} }}\n");
                    let error = start(wire(folder, &graph(exists, &bad, at, keys)));
                    assert!(error.is_some(), "{way}: it began");
                    assert!(
                        contents(folder) == before,
                        "{way}, {exists}{keys}, at {at}: {:?}",
                        contents(folder).keys()
                    );
                }
            }
            let whole = || wire(folder, &graph(exists, "", 0, keys));
            drop(whole());
            drop(whole().drive(simulated()).unwrap());
            drop(whole().drive(simulated()).unwrap().finish());
            drop(whole().simulate(1).unwrap());
            assert!(contents(folder) == before, "dropped, {exists}{keys}: {:?}", contents(folder).keys());
        }
        // One that begins writes all of them, and nothing else.
        let report = wire(folder, &graph(exists, "", 0, "")).start().unwrap().wait();
        assert_eq!(report.exit_code(), 0, "{exists}: {:?}", report.failures);
        let after = contents(folder);
        let expected = before.len().max(SINKS.len()) + usize::from(exists != "fail");
        assert_eq!(after.len(), expected, "{exists}: {:?}", after.keys());
        assert!(after["out.csv"].ends_with(b"2,2,0,0,0\n"), "{}", String::from_utf8_lossy(&after["out.csv"]));
    }
}

/// How a graph is run, with its name.
type Way = (&'static str, fn(Wired) -> Report);

/// Promise (files): A failure before the first message leaves every file as it was.
///
/// The failure stops the whole run, so sinks of other nodes may end without a message, too.
#[test]
fn a_failure_before_the_first_message_leaves_every_file_as_it_was() {
    let ways: [Way; 3] = [
        ("started", |wired| wired.start().unwrap().wait()),
        ("driven", |wired| wired.drive(Clock::Monotonic).unwrap().run()),
        ("simulated", |wired| wired.simulate(1).unwrap().run(10_000).unwrap()),
    ];
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for exists in ["replace", "append", "fail"] {
        earlier_results(folder, exists);
        let before = contents(folder);
        for (way, run) in ways {
            let broken = "  a: { kind: broken, from: numbers }\n  b: { kind: broken, from: bytes }\n";
            let text = graph(exists, "", 0, "").replace("from: numbers", "from: a").replace("from: bytes", "from: b");
            let report = run(wire(folder, &(text + broken)));
            assert_eq!(report.outcome, Outcome::Failed, "{way}");
            assert!(contents(folder) == before, "{way}, {exists}: {:?}", contents(folder).keys());
        }
    }
}

/// Promise (files): A build that hangs leaves every file as it was.
///
/// The files of a worker that hangs are discarded as soon as it goes on.
#[test]
fn a_build_that_hangs_leaves_every_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    earlier_results(folder, "replace");
    let before = contents(folder);
    let bad = "  bad: { kind: unbuildable, config: { how: hang }, from: numbers, core: 0 }\n";
    let error = wire(folder, &graph("replace", bad, SINKS.len(), ", core: 0")).start().unwrap_err();
    assert!(error.to_string().contains("`run.start`"), "{error}");
    *RELEASED.0.lock().unwrap() = true;
    RELEASED.1.notify_all();
    let end = Instant::now() + Duration::from_secs(60);
    while contents(folder) != before && Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(contents(folder) == before, "{:?}", contents(folder).keys());
}
