//! `limen-run` itself: read the arguments, plan, run, print, judge.
//!
//! Everything it prints is made by the crate's public functions; here is only what belongs to a program: streams,
//! signals, exit codes. Reports go to stdout and nothing else does; a stdout that was closed early is not an error.

use crate::arguments::{Arguments, RunArguments, Verb};
use crate::dump::Dump;
use crate::gate::Verdict;
use crate::interrupt::Interrupt;
use crate::kinds::{kinds_json, show_kinds};
use crate::plan::show_plan;
use crate::progress::{EVERY, Progress};
use crate::report::{count, show_report};
use crate::run_info::{GraphFile, RunInfo};
use crate::summary::Summary;
use crate::table::one_line;
use limen::{PathPlan, Plan, Problems, Registry, Report, RunError, Running, Spec};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A node failed, or something could not be written.
const FAILED: u8 = 1;
/// Bad arguments, or a graph that was refused.
const REFUSED: u8 = 2;
/// A gate tripped.
const GATE: u8 = 3;

/// The whole of `limen-run`, with the kinds of a registry.
///
/// Installs a panic hook and a signal handler: call it from `main` and do nothing else there.
///
/// ```no_run
/// std::process::ExitCode::from(limen_run::main(limen_run::registry()));
/// ```
pub fn main(registry: Registry) -> ExitCode {
    std::panic::set_hook(Box::new(limen::panic_hook));
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help that nobody reads any more is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(REFUSED));
        }
    };
    let code = match arguments.verb {
        Some(Verb::Kinds { json: true }) => print(&kinds_json(&registry), 0),
        Some(Verb::Kinds { json: false }) => print(&show_kinds(&registry), 0),
        Some(Verb::Run(run)) => run_graph(&run, &registry),
        None => run_graph(&arguments.run, &registry),
    };
    ExitCode::from(code)
}

/// The exit code of a run and its gates: the report's own where it is not 0, else 3 where a gate tripped.
pub fn exit_code(report: &Report, verdicts: &[Verdict]) -> u8 {
    match report.exit_code() {
        0 if verdicts.iter().any(|v| v.tripped) => GATE,
        code => code,
    }
}

/// Prints on stdout and gives the exit code on, unless stdout cannot be written.
fn print(text: &str, code: u8) -> u8 {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        // `limen-run .. | head` has what it wanted.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
        Err(error) => {
            complain(&format!("limen-run: stdout: {error}"));
            code.max(FAILED)
        }
    }
}

/// Says something on stderr. Where that is closed there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Problems of a graph on stderr. Excerpts of the graph file with carets belong here, and only here.
fn show_problems(problems: &Problems) {
    complain(&problems.to_string());
    complain(&format!("{}; nothing was started", count(problems.0.len(), "problem")));
}

fn run_graph(arguments: &RunArguments, registry: &Registry) -> u8 {
    let path = arguments.graph.clone().unwrap_or_default();
    let refused = |name: &str, problems: &Problems| {
        show_problems(problems);
        if arguments.json { print(&Summary::refused(name, problems).json(), REFUSED) } else { REFUSED }
    };
    let mut spec = match Spec::from_file(&path) {
        Ok(spec) => spec,
        Err(problems) => return refused(&path.file_stem().unwrap_or_default().to_string_lossy(), &problems),
    };
    arguments.open_folders(&mut spec);
    let name = spec.name.clone();
    let plan = match Plan::with_options(spec, registry, &arguments.options()) {
        Ok(plan) => plan,
        Err(problems) => return refused(&name, &problems),
    };
    for gate in &arguments.fail_on {
        if let Err(error) = gate.check(&plan) {
            return not_started(arguments, &name, &format!("--fail-on '{gate}': {error}"), REFUSED);
        }
    }
    if arguments.check {
        return checked(arguments, &plan);
    }
    if arguments.plan {
        return print(&show_plan(&plan), 0);
    }
    // Found out now, not after an hour of measuring.
    for (option, folder) in [("--out", &arguments.out), ("--histograms", &arguments.histograms)] {
        if let Some(folder) = folder
            && let Err(error) = fs::create_dir_all(folder)
        {
            return not_started(arguments, &name, &format!("{option} {}: {error}", folder.display()), REFUSED);
        }
    }
    let paths = plan.paths().to_vec();
    let graph = GraphFile::read(path);
    match execute(plan, arguments) {
        Ok(report) => finish(&report, &paths, &graph, arguments),
        Err(error) => {
            let code = if matches!(error, RunError::Build { .. }) { FAILED } else { REFUSED };
            not_started(arguments, &name, &error.to_string(), code)
        }
    }
}

fn checked(arguments: &RunArguments, plan: &Plan) -> u8 {
    let (nodes, edges) = (plan.nodes().len(), plan.edges().len());
    if arguments.json {
        let object = serde_json::json!({ "graph": plan.graph(), "nodes": nodes, "edges": edges, "ok": true });
        return print(&format!("{object:#}\n"), 0);
    }
    let name = one_line(plan.graph());
    print(&format!("graph `{name}`: {}, {}: ok\n", count(nodes, "node"), count(edges, "edge")), 0)
}

fn not_started(arguments: &RunArguments, name: &str, error: &str, code: u8) -> u8 {
    complain(&format!("limen-run: {}; nothing has run", one_line(error)));
    if arguments.json { print(&Summary::not_started(name, error, code).json(), code) } else { code }
}

/// Runs a plan to its end, its `--duration`, or a signal.
fn execute(plan: Plan, arguments: &RunArguments) -> Result<Report, RunError> {
    let interrupt = Interrupt::install();
    let mut progress = Progress::new(&plan, arguments.quiet);
    let mut running = plan.wire()?.start()?;
    interrupt.stops(running.stopper());
    let end = arguments.duration.and_then(|d| Instant::now().checked_add(d.0));
    if !watch(&mut running, end, &mut progress) {
        running.stopper().stop();
    }
    // From here the graph's own `run.stop` is the deadline.
    let report = running.wait();
    progress.clear();
    Ok(report)
}

/// Watches until the graph has ended or a time has come; true when it has ended.
fn watch(running: &mut Running, end: Option<Instant>, progress: &mut Progress) -> bool {
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        if running.wait_for(left.min(EVERY)) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        progress.show(running);
    }
}

/// Prints, dumps and judges a report.
fn finish(report: &Report, paths: &[PathPlan], graph: &GraphFile, arguments: &RunArguments) -> u8 {
    let verdicts: Vec<Verdict> = arguments.fail_on.iter().map(|gate| gate.judge(report)).collect();
    let summary = Summary::new(report, paths, &verdicts);
    let mut code = summary.exit_code;
    code = match arguments.json {
        true => print(&summary.json(), code),
        false => print(&show_report(report, paths, arguments.detail()), code),
    };
    for verdict in verdicts.iter().filter(|v| v.tripped || arguments.verbose) {
        complain(&format!("gate: {}", one_line(&verdict.text)));
    }
    if let Some(folder) = &arguments.histograms {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let run = RunInfo::new(report, graph, words);
        match (Dump { report, summary: &summary, run: &run }).write(folder) {
            Ok(files) if !arguments.quiet => {
                complain(&format!("limen-run: {} in {}", count(files.len(), "file"), folder.display()));
            }
            Ok(_) => {}
            Err(error) => {
                complain(&format!("limen-run: --histograms: {error}"));
                code = code.max(FAILED);
            }
        }
    }
    code
}
