//! The program from a user's point of view: output, exit codes, signals.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A temporary folder for one test, with a graph in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(crate) fn with(test: &str, graph: &str) -> Self {
        // Two tests may give the same name.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("limen-run-{test}-{}-{made}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("graph.yaml"), graph).unwrap();
        Folder(folder)
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = limen_tests::command(env!("CARGO_BIN_EXE_limen-run"), &self.0);
        command.args(words.split_whitespace());
        command
    }

    pub(crate) fn run(&self, words: &str) -> Ran {
        Ran::from(self.command(words).output().unwrap())
    }

    /// A shell that executes commands, such as `ulimit`, and then the program.
    pub(crate) fn command_after(&self, commands: &str, words: &str) -> Command {
        let script = format!("{commands}; exec {} {words}", env!("CARGO_BIN_EXE_limen-run"));
        let mut command = limen_tests::command("sh", &self.0);
        command.args(["-c", &script]);
        command
    }

    pub(crate) fn run_after(&self, commands: &str, words: &str) -> Ran {
        Ran::from(self.command_after(commands, words).output().unwrap())
    }
}

/// The output and exit code of a run.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, out: &str, err: &str) -> &Self {
        let seen = format!("code {:?}\n--- out\n{}--- err\n{}", self.code, self.out, self.err);
        assert_eq!(self.code, Some(code), "{seen}");
        assert!(self.out.contains(out), "no {out:?} on stdout of {seen}");
        assert!(self.err.contains(err), "no {err:?} on stderr of {seen}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        // Trailing text is an error of the parser: there is exactly one object.
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in:\n{}", self.out))
    }
}

/// Checks the exit code of a run, and that it printed these parts.
#[track_caller]
pub(crate) fn says(ran: &Ran, code: i32, parts: &[&str]) {
    // Long lines are folded.
    let all = format!("{} {}", ran.out, ran.err).split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
    assert_eq!(ran.code, Some(code), "{all}");
    parts.iter().for_each(|part| assert!(all.contains(part), "no `{part}`: {all}"));
}

/// Sets the times that `calibrate` stored for a backend in a cache, ns.
#[track_caller]
pub(crate) fn set_times(cache: &Path, backend: &str, ns: u64) {
    let mut files = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|ending| ending == "json")).unwrap();
    let mut table: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let name = format!(" {backend} (");
    let mut times: Vec<&mut Value> = table
        .as_object_mut()
        .unwrap()
        .iter_mut()
        .filter_map(|(key, time)| key.contains(&name).then_some(time))
        .collect();
    assert!(!times.is_empty(), "nothing was measured with {backend}");
    times.iter_mut().for_each(|time| **time = ns.into());
    fs::write(file, table.to_string()).unwrap();
}

pub(crate) const COUNTING: &str = "
version: 1
graph: counting
nodes:
  numbers: { kind: synthetic, config: { pattern: counter, count: 2000 } }
  nothing: { kind: 'null', from: numbers }
paths: [{ from: numbers, to: nothing, deadline: 10s }]
";

/// A mock whose one call lasts long enough for a test to act before it ends.
pub(crate) const SLOW: &str = "
version: 1
nodes:
  numbers: { kind: synthetic, config: { pattern: counter, dtype: f32, shape: [1] } }
  slow:
    kind: infer
    config: { backend: mock, mock: { inputs: { x: 'f32[1]' }, outputs: { y: 'f32[1]' }, latency: 800ms } }
    from: { from: numbers, capacity: 1 }
  nothing: { kind: 'null', from: slow }
  seen: { kind: console, from: numbers }
run: { stop: 30s }
";

#[test]
fn a_run_prints_its_report() {
    let folder = Folder::with("report", COUNTING);
    let ran = folder.run("graph.yaml --telemetry full");
    ran.expect(0, "counting: finished in ", "").expect(0, "2000 messages from 1 source, 0 lost\n", "");
    ran.expect(0, "numbers -> nothing  2000", "").expect(0, "accounting: balanced on 1 edge and 2 nodes\n", "");
    assert_eq!(ran.err, "");
    folder.run("run graph.yaml -q").expect(0, "", "");
    assert_eq!(folder.run("graph.yaml -q").out, "");
    folder.run("graph.yaml -v").expect(0, "numbers->nothing.e2e", "");
    folder.run("graph.yaml --frames 7").expect(0, "7 messages from 1 source", "");
}

#[test]
fn check_and_plan_start_nothing() {
    let folder = Folder::with("check", COUNTING);
    let ran = folder.run("graph.yaml --check");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (Some(0), "graph `counting`: 2 nodes, 1 edge: ok\n", "")
    );
    assert_eq!(folder.run("graph.yaml --check --json").json()["ok"], true);
    folder.run("graph.yaml --plan").expect(0, "memory: ", "");
}

#[test]
fn a_plan_is_printed_as_json() {
    let folder = Folder::with("plan-json", COUNTING);
    for words in ["graph.yaml --plan --json", "plan graph.yaml --json --why", "check graph.yaml --json"] {
        let plan = folder.run(words).json();
        assert_eq!((&plan["graph"], &plan["nodes"][1]["kind"]), (&"counting".into(), &"null".into()), "{words}");
        assert_eq!(plan["threads"][0]["nodes"], serde_json::json!(["numbers", "nothing"]), "{words}");
        let edge = &plan["edges"][0];
        assert_eq!((&edge["capacity"], &edge["crossing"]), (&64.into(), &false.into()), "{words}: {edge}");
        assert_eq!(plan["paths"][0]["deadline"].as_u64(), Some(10_000_000_000), "{words}");
        assert!(plan["memory"]["total"].as_u64() > plan["memory"]["events"].as_u64(), "{words}");
        assert!(plan["nodes"][0]["why"].as_str().is_some_and(|why| !why.is_empty()), "{words}");
        assert_eq!(plan["ok"].as_bool(), words.starts_with("check").then_some(true), "{words}");
    }
}

/// Without arguments the verbs are listed; an unknown verb is named.
#[test]
fn verbs_are_listed_and_unknown_ones_named() {
    let folder = Folder::with("verbs", COUNTING);
    let bare = folder.run("");
    bare.expect(2, "", "Usage: limen-run <GRAPH>\n").expect(2, "", "\n  check           Check a graph and print every");
    for (words, said) in [
        ("chek", "expected a command or a graph file, found `chek`; did you mean `check`?\n"),
        ("chek graph.yaml", "expected a command or a graph file, found `chek`; did you mean `check`?\n"),
        ("chek graph.yaml --json", "expected a command or a graph file, found `chek`; did you mean `check`?\n"),
        (
            "camera graph.yaml",
            "expected a command, or a graph file whose path ends in .yaml or .yml or contains `/`, found `camera`\n",
        ),
        ("camera", "the commands: run, check, plan, "),
        ("graph.yaml other.yaml", "'other.yaml' cannot be used with '<GRAPH>'"),
    ] {
        assert_eq!(folder.run(words).expect(2, "", said).out, "", "{words}");
    }
}

/// Output fits 80 columns even with long names.
#[test]
fn tables_fit_eighty_columns() {
    let (camera, robot) = ("left_camera_on_the_robots_second_head", "a_part_of_the_robot_that_has_a_long_name");
    let graph = COUNTING
        .replace("numbers", camera)
        .replace("kind: 'null'", "kind: 'null', on_error: skip")
        .replace("nothing", robot)
        + "cores: { 0: { schedule: throughput } }\n";
    let folder = Folder::with("eighty", &graph);
    for words in [
        "graph.yaml --plan",
        "graph.yaml --plan --why",
        "graph.yaml -v --telemetry full",
        "kinds",
        "",
        "--help",
        "-h",
        "doctor",
    ] {
        let ran = folder.run(words);
        let text = format!("{}{}", ran.out, ran.err);
        assert!(!text.is_empty() && ran.code <= Some(2), "{words}");
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{words}: {long:#?}");
    }
    // Names that were cut are still distinct.
    let plan = folder.run("graph.yaml --plan").out;
    assert!(plan.contains("left_camera") && plan.contains("skip") && plan.contains("throughput"), "{plan}");
}

#[test]
fn every_problem_is_printed_and_counted() {
    let folder = Folder::with("problems", "version: 2\nnodes:\n  a: { kind: nul }\n  b: { kind: 'null', fro: a }\n");
    let ran = folder.run("graph.yaml");
    ran.expect(2, "", "error[E0111]: `version` must be 1, got 2\n --> graph.yaml:1:10\n").expect(
        2,
        "",
        "1 | version: 2\n",
    );
    ran.expect(2, "", "\n\n3 problems; nothing was started\n");
    assert_eq!(ran.out, "");
    let json = folder.run("graph.yaml --json").json();
    assert_eq!((&json["outcome"], json["problems"].as_array().unwrap().len()), (&"refused".into(), 3));
    folder.run("./none.yaml").expect(2, "", "1 problem; nothing was started\n");
}

#[test]
fn json_is_one_object_whatever_else_prints() {
    let folder = Folder::with("json", &COUNTING.replace("'null'", "console"));
    let ran = folder.run("graph.yaml --json --frames 3 --histograms h");
    let json = ran.json();
    assert_eq!(
        (&json["graph"], &json["exit_code"], &json["paths"][0]["late"]),
        (&"counting".into(), &0.into(), &0.into())
    );
    assert_eq!(
        json,
        serde_json::from_str::<Value>(&fs::read_to_string(folder.0.join("h/summary.json")).unwrap()).unwrap()
    );
    assert!(folder.0.join("h/counting.hlog").exists() && folder.0.join("h/run.json").exists());
}

#[test]
fn gates_are_parsed_before_the_run_and_judged_after() {
    let folder = Folder::with("gates", COUNTING);
    let with = |gate: &str, more: &str| {
        Ran::from(folder.command(&format!("graph.yaml {more}")).args(["--fail-on", gate]).output().unwrap())
    };
    with("lost > 0", "").expect(0, "finished", "");
    with("lost == 0", "").expect(3, "finished", "gate: lost == 0 holds (lost is 0)\n");
    with("accuracy < 0.97", "").expect(
        3,
        "finished",
        "gate: accuracy < 0.97 cannot be judged: the report has no figure `accuracy`",
    );
    with("lost = 0", "").expect(2, "", "expected one of < <= > >= == !=");
    // Deprecated words are accepted until 0.2.
    let warning = "--fail-on 'thinned > 0': `thinned` is a deprecated name of `discarded`: write `discarded`\n";
    with("thinned > 0", "").expect(0, "finished", warning);
    with("max(nothing.closure) < 1h", "").expect(3, "finished", "holds (max(nothing.residual) is ");
    let json = with("discarded > 0", "--json").expect(0, "", "").json();
    for (new, old) in [("/edges/0/discarded", "/edges/0/thinned"), ("/metrics/discarded", "/metrics/thinned")] {
        assert!(json.pointer(new).is_some() && json.pointer(new) == json.pointer(old), "{json:#}");
    }
    with("p99(nobody.queue) > 1s", "").expect(2, "", "the graph has no node `nobody`; the nodes are: numbers, nothing");
    let json = with("max(e2e) < 1ns", "--json").expect(0, "", "").json();
    assert_eq!((&json["gates"][0]["tripped"], &json["exit_code"]), (&false.into(), &0.into()));
}

#[test]
fn options_can_be_set_in_the_environment() {
    let folder = Folder::with("env", COUNTING);
    let ran = folder.command("graph.yaml").env("LIMEN_JSON", "1").env("LIMEN_FRAMES", "5").output().unwrap();
    assert_eq!(Ran::from(ran).json()["edges"][0]["sent"], 5);
    let ran = folder.command("graph.yaml").env("LIMEN_FAIL_ON", "lost > 0; left == 0").output().unwrap();
    Ran::from(ran).expect(3, "", "gate: left == 0 holds");
    let ran = folder.command("kinds").env("LIMEN_FRAMES", "5").output().unwrap();
    Ran::from(ran).expect(0, "synthetic", "");
}

#[test]
fn a_node_that_cannot_be_built_exits_with_1() {
    let folder = Folder::with("build", &COUNTING.replace("kind: 'null'", "kind: csv, config: { path: a/b/c.csv }"));
    let ran = folder.run("graph.yaml --json --out o");
    ran.expect(1, "", "limen-run: node `nothing` could not be built: ");
    assert_eq!(ran.json()["outcome"], "not started");
}

#[test]
fn a_failing_node_exits_with_1_and_is_named() {
    let failing = SLOW.replace("latency: 800ms", "fail_at: 3");
    let folder = Folder::with("failing", &failing);
    folder.run("graph.yaml").expect(1, "failed: node `slow` failed in `infer`", "").expect(
        1,
        "graph: failed after",
        "",
    );
    let panicking = failing.replace("fail_at: 3", "panic_at: 3");
    let folder = Folder::with("panicking", &panicking);
    folder.run("graph.yaml -q").expect(1, "failed: node `slow` failed in `infer`", "");
}

#[test]
fn a_run_that_reaches_its_duration_exits_with_0() {
    let folder = Folder::with("duration", &COUNTING.replace(", count: 2000", ", rate: 100Hz"));
    folder.run("graph.yaml --duration 200ms").expect(0, "counting: stopped after ", "");
}

/// Promise (output): A closed stdout is not an error.
#[test]
fn a_closed_stdout_is_no_error() {
    let folder = Folder::with("pipe", COUNTING);
    let mut child = folder.command("graph.yaml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Sends a signal again and again: those that follow the first one too soon are the same request.
pub(crate) fn signal_until_it_ends(child: &mut Child, name: &str) {
    while child.try_wait().unwrap().is_none() {
        signal(child, name);
    }
}

/// Promise (stops): The first signal drains the run, and the second one ends the process.
#[test]
fn the_first_signal_drains_and_the_second_exits() {
    for (name, second, code) in [
        ("INT", None, 0),
        ("TERM", None, 0),
        ("TERM", Some("INT"), 130),
        ("INT", Some("TERM"), 143),
        ("HUP", Some("HUP"), 129),
    ] {
        let folder = Folder::with(&format!("signal-{name}"), SLOW);
        let mut child = folder.command("graph.yaml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut out = BufReader::new(child.stdout.take().unwrap());
        // A number was printed, so messages move, and the source always has another one for the
        // slow node.
        out.read_line(&mut String::new()).unwrap();
        signal(&child, name);
        for said in ["limen-run: `numbers` does not end by itself: stop the run with Ctrl-C", "limen-run: stopping"] {
            let mut line = String::new();
            err.read_line(&mut line).unwrap();
            assert!(line.starts_with(said), "{line}");
        }
        if let Some(second) = second {
            signal_until_it_ends(&mut child, second);
        }
        let mut report = String::new();
        out.read_to_string(&mut report).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name} {second:?}: {report}");
        assert_eq!(report.contains("graph: stopped after"), second.is_none(), "{report}");
    }
}

/// Promise (stops): Signals within half a second count as one request.
///
/// `timeout`, `sudo` and `npm` deliver one request twice: to the process and to its group.
#[test]
fn signals_within_half_a_second_are_one_request() {
    use nix::sys::signal::{Signal, kill};
    let pairs = [[Signal::SIGINT, Signal::SIGTERM], [Signal::SIGHUP, Signal::SIGTERM]];
    for pair in pairs {
        let folder = Folder::with("twice", SLOW);
        let mut child = folder.command("graph.yaml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        let process = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        // A stopped process gets both at once when it goes on.
        for signal in [Signal::SIGSTOP].into_iter().chain(pair).chain([Signal::SIGCONT]) {
            kill(process, signal).unwrap();
        }
        let (mut report, mut said) = (String::new(), String::new());
        out.read_to_string(&mut report).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{pair:?}: {said}");
        assert!(report.contains("graph: stopped after"), "{pair:?}: {report}");
        assert_eq!(said.matches("limen-run: stopping").count(), 1, "{pair:?}: {said}");
    }
}

/// Promise (stops): A process continues after SIGSTOP and SIGCONT, and its message accounting
/// balances.
#[test]
fn a_process_continues_after_sigstop_and_its_counts_balance() {
    let folder = Folder::with("paused", SLOW);
    let mut child = folder.command("graph.yaml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    signal(&child, "STOP");
    // The kernel reports the stopped state.
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    while state() != Some('T') {
        std::thread::yield_now();
    }
    signal(&child, "CONT");
    // Another number: it continues.
    out.read_line(&mut String::new()).unwrap();
    signal(&child, "INT");
    let mut report = String::new();
    out.read_to_string(&mut report).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{report}");
    assert!(report.contains("accounting: balanced on"), "{report}");
}

#[test]
fn a_starter_graph_runs() {
    let folder = Folder::with("new", COUNTING);
    folder.run("new some/robot").expect(0, "limen-run some/robot/graph.yaml", "");
    folder.run("some/robot/graph.yaml --frames 3").expect(0, "accounting: balanced", "");
    folder.run("check some/robot/graph.yaml").expect(0, "graph `robot`", "");
    folder.run("new some/robot").expect(2, "", "exists");
    for words in ["some/robot", "check some/robot", "plan some/robot"] {
        folder.run(words).expect(
            2,
            "",
            "expected a graph file, found the folder `some/robot`; did you mean `some/robot/graph.yaml`?",
        );
    }
    let hint = Ran::from(folder.command("new").arg("my robot").output().unwrap());
    hint.expect(0, "limen-run 'my robot/graph.yaml' --plan", "");
    // As LIMEN_ONNXRUNTIME gives it, which is set for every verb.
    folder.run("new without-model --onnxruntime none.so").expect(0, "limen-run without-model/graph.yaml", "");
}

#[test]
fn a_node_that_works_for_nobody_is_noted() {
    let alone = "\nversion: 1\nnodes:\n  numbers: { kind: synthetic, config: { pattern: counter, count: 3 } }\n";
    Folder::with("alone", alone).run("check graph.yaml").expect(0, "note: no node reads the outputs of `numbers`", "");
}

#[test]
fn a_matrix_the_wrong_way_round_is_recognized() {
    let graph = "
version: 1
nodes:
  noise: { kind: synthetic, config: { pattern: noise, shape: [4], dtype: f32, count: 3 } }
  head: { kind: linear, config: { weight: { file: w.bin, dtype: f32, shape: [4, 8] } }, from: noise }
  nothing: { kind: 'null', from: head }
";
    let folder = Folder::with("transposed", graph);
    fs::write(folder.0.join("w.bin"), [0; 128]).unwrap();
    folder.run("check graph.yaml").expect(2, "", "write `transform: [{ transpose: [1, 0] }]` in `weight`");
}

#[test]
fn dot_doctor_and_explain_print_their_output() {
    let folder = Folder::with("dot", COUNTING);
    folder.run("dot graph.yaml").expect(0, "digraph \"counting\"", "").expect(0, "\"numbers\" -> \"nothing\"", "");
    folder.run("plan graph.yaml").expect(0, "memory:", "");
    folder.run("doctor").expect(0, "clock source: ", "");
    assert!(folder.run("doctor --json").json()["findings"].as_array().is_some_and(|found| found.len() > 5));
    folder.run("explain e0122").expect(0, "a cycle in which every edge blocks", "");
    folder.run("explain resize").expect(0, "width: a whole number; required", "");
    folder.run("explain infer").expect(0, "      `against`: `rten`, `tract`", "");
    folder.run("explain stdin").expect(0, "      `length_le`: A length prefix of 4 bytes", "");
    folder.run("explain nonsense").expect(2, "", "expected a code such as E0122");
}

#[test]
fn memory_is_locked_or_the_refusal_is_reported() {
    let folder = Folder::with("mlock", &format!("{COUNTING}run: {{ mlock: true }}\n"));
    let ran = folder.run("graph.yaml --json");
    ran.expect(0, "counting", "");
    let is_refused =
        ran.json()["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains("locking memory"));
    folder.run("graph.yaml --strict").expect(
        if is_refused { 2 } else { 0 },
        "",
        if is_refused { "ulimit -l" } else { "" },
    );
}

#[test]
fn a_graph_is_overridden_from_the_command_line() {
    let graph = format!("{COUNTING}profiles: {{ short: {{ nodes: {{ numbers: {{ config: {{ count: 20 }} }} }} }} }}\n");
    let folder = Folder::with("layers", &graph);
    fs::write(folder.0.join("over.yaml"), "nodes: { numbers: { config: { count: 30 } } }\n").unwrap();
    let count = |words: &str| folder.run(&format!("graph.yaml --json {words}")).json()["nodes"][1]["done"].clone();
    assert_eq!(count("--profile short"), 20);
    assert_eq!(count("--profile short --overlay over.yaml"), 30);
    assert_eq!(count("--overlay over.yaml --set nodes.numbers.config.count=40"), 40);
    let mut command = folder.command("expand graph.yaml");
    let expanded = Ran::from(command.env("LIMEN_SET", "nodes.numbers.config.count=7;run.stop=9s").output().unwrap());
    expanded.expect(0, "count: 7 # --set nodes.numbers.config.count=7", "").expect(0, "stop: 9s", "");
    // What it printed runs as it is in the same folder.
    fs::write(folder.0.join("flat.yaml"), &expanded.out).unwrap();
    assert_eq!(folder.run("flat.yaml --json").json()["nodes"][1]["done"], 7);
}

#[test]
fn environment_variables_are_expanded_only_if_listed() {
    let graph = COUNTING.replace("count: 2000", "count: \"${LIMEN_TEST_COUNT:-3}\"");
    let folder = Folder::with("variables", &graph);
    let expand = |words: &str| {
        let mut command = folder.command(&format!("expand graph.yaml {words}"));
        Ran::from(command.env("LIMEN_TEST_COUNT", "12").output().unwrap())
    };
    expand("").expect(0, "count: ${LIMEN_TEST_COUNT:-3}", "");
    expand("--env LIMEN_TEST_COUNT").expect(0, "count: 12", "");
    let mut command = folder.command("graph.yaml --json");
    let ran = Ran::from(command.env("LIMEN_TEST_COUNT", "12").output().unwrap());
    assert_eq!(ran.json()["nodes"][1]["done"], 12);
    // Nor through a parameter, within a longer text.
    let graph = "version: 1\nsubgraphs:\n  s: { parameters: { at: ~ }, nodes: { n: { kind: csv, config: { path: \"to-${at}.csv\" } } } }\n\
                 nodes: { x: { subgraph: s, config: { at: \"<${LIMEN_TEST_COUNT:-3}>\" } } }\n";
    let folder = Folder::with("hidden", graph);
    let mut command = folder.command("expand graph.yaml");
    let ran = Ran::from(command.env("LIMEN_TEST_COUNT", "12").output().unwrap());
    ran.expect(0, "path: to-<${LIMEN_TEST_COUNT:-3}>.csv", "");
    assert!(!ran.out.contains("12"), "{}", ran.out);
}

#[test]
fn stderr_can_be_json() {
    let folder = Folder::with("log", "version: 2\nnodes:\n  a: { kind: nul }\n");
    let ran = folder.run("graph.yaml --log-format json");
    ran.expect(2, "", "");
    let lines: Vec<Value> = ran.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes: Vec<&str> = lines.iter().filter_map(|line| line["code"].as_str()).collect();
    assert_eq!(codes, ["E0111", "E0124"], "{}", ran.err);
    assert!(lines.iter().all(|line| line["level"] == "error" && line["time"].as_f64().is_some_and(|t| t > 1e9)));
    assert_eq!((&lines[1]["line"], &lines[1]["column"]), (&3.into(), &14.into()));
}

#[test]
fn a_plan_explains_its_choices() {
    let folder = Folder::with("why", COUNTING);
    let ran = folder.run("plan graph.yaml --why");
    ran.expect(0, "numbers: on CPU ", "").expect(
        0,
        "numbers/value -> nothing/in: holds 64 messages\n    one burst within a thread",
        "",
    );
    ran.expect(0, "numbers/value: ", "");
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let folder = Folder::with(&format!("completions-{shell}"), COUNTING);
        folder.run(&format!("completions {shell}")).expect(0, "limen-run", "").expect(0, "profile", "");
    }
}

/// Promise (handles): `limen-run` plans a graph with inlets and outlets, but does not run it.
#[test]
fn a_graph_with_inlets_and_outlets_is_planned_and_not_run() {
    let graph = "version: 1\nnodes:\n  a: { kind: inlet, config: { spec: u64 } }\n  z: { kind: outlet, from: a }\n";
    let folder = Folder::with("inlet", graph);
    folder.run("check graph.yaml").expect(0, "2 nodes, 1 edge: ok", "");
    folder.run("graph.yaml").expect(2, "", "no program is connected to the inlets and outlets `a`, `z`: run");
    assert_eq!(folder.run("graph.yaml --json").json()["outcome"], "not started");
}

/// Promise (memory): limen rejects a plan that exceeds the address space of the process (`ulimit
/// -v`).
#[test]
fn a_plan_beyond_the_address_space_limit_is_refused() {
    let graph = "version: 1\nnodes:\n  a: { kind: synthetic, config: { pattern: counter, count: 10 } }\n  \
                 b: { kind: \"null\", from: { from: a, capacity: 16000000 } }\nrun: { max_memory: 64GiB }\n";
    Folder::with("addresses", graph).run_after("ulimit -v 1500000", "graph.yaml").expect(
        2,
        "",
        "address space with `ulimit -v`",
    );
}
