//! A report as one JSON object: the output of `--json` and the content of `summary.json`.
//!
//! ```text
//! graph        name of the graph
//! outcome      "finished" | "stopped" | "failed" | "deadline passed" | "refused" | "not started"
//! exit_code    of limen-run, gates included
//! degraded     calls failed, messages were lost or nodes were abandoned, and the run went on
//! started      seconds since 1970, or null if nothing was started
//! wall_s       seconds
//! nodes[]      name, kind, worker (index of workers), taken, done, failed, held, turns, pool_empty, over_budget, gaps, restarts, batches, abandoned, criticality ("critical" | "normal" | "best_effort"),
//!              lost {reason: n}, discarded {reason: n}, backend (or null) {name, device, threads, memory in bytes, ready, calls, failed, last_error (or null)}, metrics {name: number}
//! edges[]      from, to, capacity, when_full, crossing, sent, received, lost {reason: n}, discarded (how many of `lost` were discarded on purpose), left, counted
//! handles[]    name, kind ("inlet" | "outlet" | "tap"), sent, received, lost {reason: n}, discarded (as for edges), left, counted
//! workers[]    name, cpu (null: any), floats (null, or why it is not pinned), cpus (those it may run on), refused (null or why), wait, real_time (null, or policy and priority), abandoned
//! paths[]      from, to, deadline_ns, on_miss (or null), count, samples (those of the count that were recorded), late and judged (or null), silent (nothing arrived at the end), untracked_behind (a node, or null), criticality (or null), p50 .. max in ns, residual_p99 (of the sink)
//! tails[]      why the slowest messages of a path were slow: from, to, quantile, limit_ns, beyond (messages), judged (how many of them), causes[] {cause, node (or null), behind (a node, or null), messages, excess_ns (over the median, in all), longest_ns, text}
//! histograms[] tag, node, to (or null), term, unit ("ns" | "messages"), count, samples, min, p50, p90, p99, p999, max, mean
//! metrics      {name: number}, by the names of --fail-on: lost, lost.reason, discarded, left, failed, and each node's as node.name
//! critical[]   sentences; what went wrong at critical nodes and paths, which fails the run
//! failures[]   of the first failed calls: node, call, number, text, panicked
//! failed_calls the number of all failed calls
//! notes[]      sentences
//! bugs[]       sentences; sums of messages that do not balance, and other bugs of the engine
//! gates[]      gate, tripped, value (or null), text
//! problems[]   of a refused graph: code, file, line, column, message, help (or null)
//! error        why a planned graph did not start, or null
//! ```
//!
//! A quantile with fewer than ten samples beyond it is null. Keys may be added, but are never
//! removed. Until 0.2, deprecated names are written beside the new ones: `thinned` of `discarded`,
//! `closure_p99` of `residual_p99`.

use crate::old_names;
use crate::report::exit_code::exit_code;
use crate::report::gate::GateVerdict;
use crate::report::index::ReportIndex;
use crate::text::escape::{one_line, plain_json};
use crate::text::number::seconds;
use limen::report::{
    EdgeReport, FailureReport, HandleReport, HistogramReport, NodeReport, Recorded, TailReport, Term, WorkerReport,
};
use limen::{Problem, Problems, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::UNIX_EPOCH;

/// The summary of one run, or why there was none: the parts of its [`Report`] with what follows
/// from them.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct Summary<'a> {
    pub graph: &'a str,
    pub outcome: &'static str,
    pub exit_code: u8,
    pub degraded: bool,
    pub started: Option<f64>,
    pub wall_s: f64,
    #[serde(serialize_with = "old_names::serialize")]
    pub nodes: &'a [NodeReport],
    #[serde(serialize_with = "old_names::serialize")]
    pub edges: &'a [EdgeReport],
    #[serde(serialize_with = "old_names::serialize")]
    pub handles: &'a [HandleReport],
    pub workers: &'a [WorkerReport],
    #[serde(serialize_with = "old_names::serialize")]
    pub paths: Vec<PathSummary<'a>>,
    pub tails: &'a [TailReport],
    pub histograms: &'a [HistogramReport],
    #[serde(serialize_with = "old_names::serialize")]
    pub metrics: BTreeMap<String, f64>,
    pub critical: &'a [String],
    pub failures: &'a [FailureReport],
    pub failed_calls: u64,
    pub notes: &'a [String],
    pub bugs: &'a [String],
    pub gates: &'a [GateVerdict],
    pub problems: &'a [Problem],
    pub error: Option<&'a str>,
}

/// One path of a [`Summary`]: its latency end to end in nanoseconds, and its deadline.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the module's table says what each field holds")]
pub struct PathSummary<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub deadline_ns: Option<u64>,
    pub on_miss: Option<&'static str>,
    pub count: u64,
    pub samples: u64,
    pub late: Option<u64>,
    pub judged: Option<u64>,
    pub silent: bool,
    pub untracked_behind: Option<&'a str>,
    pub criticality: Option<&'static str>,
    pub p50: Option<u64>,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: Option<u64>,
    pub residual_p99: Option<u64>,
}

impl<'a> Summary<'a> {
    /// Summarizes a run. The exit code follows from the report and the verdicts.
    pub fn new(report: &'a Report, verdicts: &'a [GateVerdict]) -> Self {
        Summary {
            graph: &report.graph,
            outcome: report.outcome.name(),
            exit_code: exit_code(report, verdicts),
            degraded: report.is_degraded(),
            started: report.started.duration_since(UNIX_EPOCH).ok().map(seconds),
            wall_s: seconds(report.wall),
            nodes: &report.nodes,
            edges: &report.edges,
            handles: &report.handles,
            workers: &report.workers,
            paths: paths(report),
            tails: &report.tails,
            histograms: &report.histograms,
            metrics: metrics(report),
            critical: &report.critical,
            failures: &report.failures,
            failed_calls: report.failed_calls,
            notes: &report.notes,
            bugs: &report.bugs,
            gates: verdicts,
            problems: &[],
            error: None,
        }
    }

    /// Summarizes a refused graph.
    pub fn refused(graph: &'a str, problems: &'a Problems) -> Self {
        Summary { graph, outcome: "refused", exit_code: 2, problems: &problems.0, ..Summary::default() }
    }

    /// Summarizes a planned graph that did not start.
    pub fn not_started(graph: &'a str, error: &'a str, exit_code: u8) -> Self {
        Summary { graph, outcome: "not started", exit_code, error: Some(error), ..Summary::default() }
    }

    /// Returns the object as JSON text with a final newline.
    pub fn json(&self) -> String {
        // Every key is text and every value a number, text, or a list or map of those: this cannot
        // fail.
        plain_json(serde_json::to_string_pretty(self).unwrap_or_default() + "\n")
    }

    /// Returns CSV text: a heading, and a row for each histogram. The cell of a quantile with too
    /// few samples is empty.
    pub fn csv(&self) -> String {
        let mut text = String::from("tag,unit,count,min,p50,p90,p99,p99.9,max,mean,samples\n");
        let cell = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
        for one in self.histograms {
            let Recorded { histogram, samples } = &one.recorded;
            let any = !histogram.is_empty();
            let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|q| one.recorded.quantile(q));
            let (min, max) = (any.then(|| histogram.min()), any.then(|| histogram.max()));
            let numbers = [min, p50, p90, p99, p999, max].map(cell).join(",");
            let mean = if any { format!("{:.1}", (histogram.mean() * 10.0).round() / 10.0) } else { String::new() };
            let (tag, unit, count) = (quoted(&one_line(&one.tag())), one.unit(), histogram.len());
            let _ = writeln!(text, "{tag},{unit},{count},{numbers},{mean},{samples}");
        }
        text
    }
}

fn paths(report: &Report) -> Vec<PathSummary<'_>> {
    let index = ReportIndex::new(report);
    let path = |from, to, recorded: Option<&Recorded>| {
        let deadline = index.deadline(from, to);
        let quantile = |q| recorded.and_then(|r| r.quantile(q));
        PathSummary {
            from,
            to,
            deadline_ns: deadline.map(|d| d.deadline),
            on_miss: deadline.map(|d| d.on_miss.name()),
            count: recorded.map_or(0, |r| r.histogram.len()),
            samples: recorded.map_or(0, |r| r.samples),
            late: deadline.map(|d| d.missed),
            judged: deadline.map(|d| d.judged),
            silent: deadline.is_some_and(|d| d.silent),
            untracked_behind: deadline.and_then(|d| d.untracked_behind.as_deref()),
            criticality: deadline.map(|d| d.criticality.name()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: recorded.map(|r| r.histogram.max()),
            residual_p99: index.term(to, Term::Residual).and_then(|r| r.quantile(0.99)),
        }
    };
    let recorded = report.paths().map(|(from, to, recorded)| path(from, to, Some(recorded)));
    let silent = report.deadlines.iter().filter(|p| !index.has_path(&p.from, &p.to));
    recorded.chain(silent.map(|p| path(&p.from, &p.to, None))).collect()
}

fn metrics(report: &Report) -> BTreeMap<String, f64> {
    let own =
        report.nodes.iter().flat_map(|n| n.metrics.iter().map(|(name, value)| (format!("{}.{name}", n.name), value)));
    let of_all = ["lost", "discarded", "left", "failed", "missed", "over_budget", "gaps", "restarts"]
        .into_iter()
        .filter_map(|name| Some((name.to_string(), report.metric(name)?)));
    let lost = report.losses().into_iter().map(|(reason, n)| (format!("lost.{reason}"), n as f64));
    // The metric of a node with such a name wins, as it does in an expression. `collect` would sort
    // the pairs first: code that is compiled for every type of them.
    let mut all = BTreeMap::new();
    all.extend(lost.chain(of_all).chain(own));
    all
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
    use crate::report::test_report;

    #[test]
    fn the_object_has_all_keys() {
        let mut report = test_report::report();
        report.nodes[3].metrics.discarded("stopped", 2);
        let gate = "accuracy < 0.999".parse::<crate::Gate>().unwrap().judge(&report);
        let gates = [gate];
        let summary = Summary::new(&report, &gates);
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
            ("/edges/0/discarded", 40.into()),
            ("/nodes/3/lost", serde_json::json!({})),
            ("/nodes/3/discarded/stopped", 2.into()),
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
            ("/metrics/discarded", 42.0.into()),
            ("/gates/0/tripped", true.into()),
            ("/problems", serde_json::json!([])),
            ("/error", serde_json::Value::Null),
        ] {
            assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}");
        }
    }

    #[test]
    fn the_csv_has_a_row_for_each_histogram() {
        let report = test_report::report();
        let csv = Summary::new(&report, &[]).csv();
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
