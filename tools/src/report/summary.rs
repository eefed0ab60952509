//! A report as one JSON object: the output of `--json` and the content of `summary.json`.
//!
//! ```text
//! graph        name of the graph
//! outcome      "finished" | "stopped" | "failed" | "deadline passed" | "refused" | "not started"
//! exit_code    of limen-run, gates included
//! degraded     calls failed, messages were lost or nodes were abandoned, and the run went on
//! started      seconds since 1970, or null if nothing was started
//! wall_s       seconds
//! nodes[]      name, kind, worker (index of workers), taken, done, failed, held, turns, pool_empty, over_budget, gaps, restarts, batches, abandoned,
//!              lost {reason: n}, thinned {reason: n}, backend (or null) {name, device, threads, memory in bytes, ready, calls, failed, last_error (or null)}, metrics {name: number}
//! edges[]      from, to, capacity, when_full, crossing, sent, received, lost {reason: n}, thinned (how many of `lost` were discarded on purpose), left, counted
//! handles[]    name, kind ("inlet" | "outlet" | "tap"), sent, received, lost {reason: n}, thinned (as for edges), left, counted
//! workers[]    name, cpu (null: any), floats (null, or why it is not pinned), cpus (those it may run on), refused (null or why), wait, real_time (null, or policy and priority), abandoned
//! paths[]      from, to, deadline_ns, on_miss (or null), count, samples (those of the count that were recorded), late and judged (or null), untracked_behind (a node, or null), p50 .. max in ns, closure_p99
//! tails[]      why the slowest messages of a path were slow: from, to, quantile, limit_ns, beyond (messages), judged (how many of them), causes[] {cause, node (or null), behind (a node, or null), messages, excess_ns (over the median, in all), longest_ns, text}
//! histograms[] tag, node, to (or null), term, unit ("ns" | "messages"), count, samples, min, p50, p90, p99, p999, max, mean
//! metrics      {name: number}, by the names of --fail-on: lost, lost.reason, thinned, left, failed, and each node's as node.name
//! failures[]   of the first failed calls: node, call, number, text, panicked
//! failed_calls the number of all failed calls
//! notes[]      sentences
//! bugs[]       sentences; broken laws and other bugs of the engine
//! gates[]      gate, tripped, value (or null), text
//! problems[]   of a refused graph: code, file, line, column, message, help (or null)
//! error        why a planned graph did not start, or null
//! ```
//!
//! A quantile with fewer than ten samples beyond it is null. Keys may be added, but are never removed.

mod gather;

use crate::report::exit_code::exit_code;
use crate::report::gate::GateVerdict;
use crate::text::escape::{one_line, plain_json};
use crate::text::number::seconds;
use limen::{Problems, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::UNIX_EPOCH;

/// The summary of one run, or why there was none.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct Summary {
    pub graph: String,
    pub outcome: String,
    pub exit_code: u8,
    pub degraded: bool,
    pub started: Option<f64>,
    pub wall_s: f64,
    pub nodes: Vec<NodeSummary>,
    pub edges: Vec<EdgeSummary>,
    pub handles: Vec<HandleSummary>,
    pub workers: Vec<WorkerSummary>,
    pub paths: Vec<PathSummary>,
    pub tails: Vec<TailSummary>,
    pub histograms: Vec<HistogramSummary>,
    pub metrics: BTreeMap<String, f64>,
    pub failures: Vec<FailureSummary>,
    pub failed_calls: u64,
    pub notes: Vec<String>,
    pub bugs: Vec<String>,
    pub gates: Vec<GateSummary>,
    pub problems: Vec<ProblemSummary>,
    pub error: Option<String>,
}

/// One node of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in NodeReport")]
pub struct NodeSummary {
    pub name: String,
    pub kind: String,
    pub worker: usize,
    pub taken: u64,
    pub done: u64,
    pub failed: u64,
    pub held: u64,
    pub turns: u64,
    pub pool_empty: u64,
    pub over_budget: u64,
    pub gaps: u64,
    pub restarts: u64,
    pub batches: u64,
    pub abandoned: bool,
    pub lost: BTreeMap<String, u64>,
    pub thinned: BTreeMap<String, u64>,
    pub backend: Option<BackendSummary>,
    pub metrics: BTreeMap<String, f64>,
}

/// The backend of a [`NodeSummary`] that runs a model.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in BackendStatus")]
pub struct BackendSummary {
    pub name: &'static str,
    pub device: String,
    pub threads: usize,
    pub memory: u64,
    pub ready: bool,
    pub calls: u64,
    pub failed: u64,
    pub last_error: Option<String>,
}

/// One edge of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in EdgeReport")]
pub struct EdgeSummary {
    pub from: String,
    pub to: String,
    pub capacity: usize,
    pub when_full: &'static str,
    pub crossing: bool,
    pub sent: u64,
    pub received: u64,
    pub lost: BTreeMap<&'static str, u64>,
    pub thinned: u64,
    pub left: u64,
    pub counted: bool,
}

/// One handle of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in HandleReport")]
pub struct HandleSummary {
    pub name: String,
    pub kind: &'static str,
    pub sent: u64,
    pub received: u64,
    pub lost: BTreeMap<&'static str, u64>,
    pub thinned: u64,
    pub left: u64,
    pub counted: bool,
}

/// One thread of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in WorkerReport")]
pub struct WorkerSummary {
    pub name: String,
    pub cpu: Option<usize>,
    pub floats: Option<&'static str>,
    pub cpus: Vec<usize>,
    pub refused: Option<String>,
    pub wait: &'static str,
    pub real_time: Option<String>,
    pub abandoned: bool,
}

/// One path of a [`Summary`]: end to end, nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct PathSummary {
    pub from: String,
    pub to: String,
    pub deadline_ns: Option<u64>,
    pub on_miss: Option<&'static str>,
    pub count: u64,
    pub samples: u64,
    pub late: Option<u64>,
    pub judged: Option<u64>,
    pub untracked_behind: Option<String>,
    pub p50: Option<u64>,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: Option<u64>,
    pub closure_p99: Option<u64>,
}

/// The slowest messages of a path of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct TailSummary {
    pub from: String,
    pub to: String,
    pub quantile: f64,
    pub limit_ns: u64,
    pub beyond: u64,
    pub judged: u64,
    pub causes: Vec<TailCauseSummary>,
}

/// One cause of a [`TailSummary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct TailCauseSummary {
    pub cause: &'static str,
    pub node: Option<String>,
    pub behind: Option<String>,
    pub messages: u64,
    pub excess_ns: u64,
    pub longest_ns: u64,
    pub text: String,
}

/// One histogram of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct HistogramSummary {
    pub tag: String,
    pub node: String,
    pub to: Option<String>,
    pub term: &'static str,
    pub unit: &'static str,
    pub count: u64,
    pub samples: u64,
    pub min: Option<u64>,
    pub p50: Option<u64>,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: Option<u64>,
    pub mean: Option<f64>,
}

/// One failed call of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in FailureReport")]
pub struct FailureSummary {
    pub node: String,
    pub call: &'static str,
    pub number: u64,
    pub text: String,
    pub panicked: bool,
}

/// One gate of a [`Summary`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in Verdict")]
pub struct GateSummary {
    pub gate: String,
    pub tripped: bool,
    pub value: Option<f64>,
    pub text: String,
}

/// One problem of a refused graph.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "as in Problem")]
pub struct ProblemSummary {
    pub code: &'static str,
    pub file: String,
    pub line: u64,
    pub column: u64,
    pub message: String,
    pub help: Option<String>,
}

impl Summary {
    /// Summarizes a run. The exit code follows from the report and the verdicts.
    pub fn new(report: &Report, verdicts: &[GateVerdict]) -> Self {
        Summary {
            graph: report.graph.clone(),
            outcome: report.outcome.name().into(),
            exit_code: exit_code(report, verdicts),
            degraded: report.is_degraded(),
            started: report.started.duration_since(UNIX_EPOCH).ok().map(seconds),
            wall_s: seconds(report.wall),
            nodes: report.nodes.iter().map(gather::node).collect(),
            edges: report.edges.iter().map(gather::edge).collect(),
            handles: report.handles.iter().map(gather::handle).collect(),
            workers: report.workers.iter().map(gather::worker).collect(),
            paths: gather::paths(report),
            tails: report.tails.iter().map(gather::tail).collect(),
            histograms: report.histograms.iter().map(gather::histogram).collect(),
            metrics: gather::metrics(report),
            failures: report.failures.iter().map(gather::failure).collect(),
            failed_calls: report.failed_calls,
            notes: report.notes.clone(),
            bugs: report.bugs.clone(),
            gates: verdicts.iter().map(gather::gate).collect(),
            problems: Vec::new(),
            error: None,
        }
    }

    /// Summarizes a refused graph.
    pub fn refused(graph: &str, problems: &Problems) -> Self {
        Summary {
            graph: graph.into(),
            outcome: "refused".into(),
            exit_code: 2,
            problems: problems.0.iter().map(gather::problem).collect(),
            ..Summary::default()
        }
    }

    /// Summarizes a planned graph that did not start.
    pub fn not_started(graph: &str, error: &str, exit_code: u8) -> Self {
        let (outcome, error) = ("not started".into(), Some(error.into()));
        Summary { graph: graph.into(), outcome, exit_code, error, ..Summary::default() }
    }

    /// Returns the object as JSON text with a final newline.
    pub fn json(&self) -> String {
        // Every key is text and every value a number, text, or a list or map of those: this cannot fail.
        plain_json(serde_json::to_string_pretty(self).unwrap_or_default() + "\n")
    }

    /// Returns CSV text: a heading, and a row for each histogram. The cell of a quantile with too few samples is empty.
    pub fn csv(&self) -> String {
        let mut text = String::from("tag,unit,count,min,p50,p90,p99,p99.9,max,mean,samples\n");
        let cell = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
        for h in &self.histograms {
            let numbers = [h.min, h.p50, h.p90, h.p99, h.p999, h.max].map(cell).join(",");
            let mean = h.mean.map_or_else(String::new, |m| format!("{m:.1}"));
            let tag = quoted(&one_line(&h.tag));
            let _ = writeln!(text, "{tag},{},{},{numbers},{mean},{}", h.unit, h.count, h.samples);
        }
        text
    }
}

/// A field of a CSV file, in quotes if it needs them.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn the_object_has_all_keys() {
        let mut report = made_up::report();
        report.nodes[3].metrics.thinned("stopped", 2);
        let gate = "accuracy < 0.999".parse::<crate::Gate>().unwrap().judge(&report);
        let summary = Summary::new(&report, &[gate]);
        let json: serde_json::Value = serde_json::from_str(&summary.json()).unwrap();
        for (pointer, expected) in [
            ("/graph", "digits".into()),
            ("/outcome", "finished".into()),
            ("/exit_code", 3.into()),
            ("/degraded", false.into()),
            ("/started", 1_700_000_000.25.into()),
            ("/wall_s", 1.62.into()),
            ("/nodes/1/done", 100.into()),
            ("/edges/0/lost/superseded", 40.into()),
            ("/edges/0/thinned", 40.into()),
            ("/nodes/3/lost", serde_json::json!({})),
            ("/nodes/3/thinned/stopped", 2.into()),
            ("/edges/0/when_full", "latest".into()),
            ("/workers/2/cpus/1", 1.into()),
            ("/workers/2/floats", "it waits".into()),
            ("/paths/0/late", 20.into()),
            ("/paths/0/p50", 2_500_607.into()),
            ("/paths/0/p99", serde_json::Value::Null),
            ("/histograms/4/tag", "camera->labels.e2e".into()),
            ("/histograms/2/unit", "messages".into()),
            ("/histograms/1/count", 100.into()),
            ("/nodes/2/metrics/accuracy", 0.998.into()),
            ("/metrics/score.accuracy", 0.998.into()),
            ("/metrics/score.odd", serde_json::Value::Null),
            ("/metrics/lost", 0.0.into()),
            ("/metrics/thinned", 42.0.into()),
            ("/gates/0/tripped", true.into()),
            ("/problems", serde_json::json!([])),
            ("/error", serde_json::Value::Null),
        ] {
            assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}");
        }
    }

    #[test]
    fn the_csv_has_a_row_for_each_histogram() {
        let csv = Summary::new(&made_up::report(), &[]).csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 6, "{csv}");
        assert_eq!(lines[3], "digit.batch,messages,3,7,,,,,8,7.7,3");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn a_refused_graph_has_an_object_with_its_problems() {
        let problems = limen::Spec::from_text("version: 1\nnodes: {}", "g.yaml").unwrap_err();
        let json: serde_json::Value = serde_json::from_str(&Summary::refused("g", &problems).json()).unwrap();
        assert_eq!(json["problems"][0]["code"], "E0113");
        assert_eq!((&json["exit_code"], &json["problems"][0]["line"]), (&2.into(), &2.into()));
    }
}
