//! A short run of a new graph in this process, to see that it runs; nothing that it writes is kept.

use limen::{Drain, Options, Plan, Problems, Registry, Spec};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Calls of each source.
const CALLS: u64 = 3;
/// The first call of a model may take seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a run that did not end may take to stop.
const STOP: Duration = Duration::from_secs(5);

/// A folder for the output of a run. It is removed with all that is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> io::Result<Scratch> {
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing else can be done about one that cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Plans and runs the graph of a file until each source has made a few calls.
///
/// # Errors
/// Why it does not run.
pub(super) fn try_run(graph: &Path, registry: &Registry, options: &Options) -> Result<(), String> {
    let folder = graph.with_file_name(".trial-run");
    let scratch =
        Scratch::new(folder).map_err(|error| format!("the folder of the trial run cannot be created: {error}"))?;
    let options = Options { frames: Some(CALLS), out: Some(scratch.0.clone()), ..options.clone() };
    let plan = Spec::from_file(graph).and_then(|spec| Plan::with_options(spec, registry, &options));
    let plan = plan.map_err(|problems| show(&problems))?;
    let ends = plan.nodes().iter().filter(|node| node.outputs.is_empty());
    let ends: Vec<String> = ends.map(|node| node.name.clone()).collect();
    let wired = plan.wire().map_err(|error| error.to_string())?;
    let mut running = wired.start().map_err(|error| error.to_string())?;
    let has_ended = running.wait_for(LIMIT);
    let report = running.stop(Drain::within(STOP));
    if let Some(failure) = report.failures.first() {
        return Err(failure.to_string());
    }
    // A detector that finds nothing has no parts for the nodes after it.
    let has_result = ends.iter().any(|node| report.node(node).is_some_and(|node| node.done > 0));
    match (has_result, has_ended) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("no message reached `{}`", ends.join("` or `"))),
        (false, false) => Err(format!("no message reached `{}` within {} s", ends.join("` or `"), LIMIT.as_secs())),
    }
}

/// Returns the problems of a graph with their codes and what helps, without their places.
pub(super) fn show(problems: &Problems) -> String {
    let one = |problem: &limen::Problem| {
        let help = problem.help.as_ref().map_or(String::new(), |help| format!(" (help: {help})"));
        format!("error[{}]: {}{help}", problem.code, problem.message)
    };
    problems.0.iter().take(MOST).map(one).collect::<Vec<_>>().join("; ")
}

/// The most problems that a comment lists.
const MOST: usize = 5;
