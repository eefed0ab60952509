//! A made-up report, for the tests of all code that reads reports.

use limen::Report;
use limen::node::Metrics;
use limen::policy::{Wait, WhenFull};
use limen::report::{
    Counts, DeadlineReport, EdgeReport, HistogramReport, NodeReport, Reason, Recorded, Term, WorkerReport,
};
use std::time::{Duration, UNIX_EPOCH};

fn node(name: &str, kind: &str, worker: usize, done: u64, metrics: &[(&str, f64)]) -> NodeReport {
    let mut figures = Metrics::default();
    metrics.iter().for_each(|(name, value)| figures.set(*name, *value));
    let mut node = NodeReport::default();
    (node.name, node.kind, node.worker) = (name.into(), kind.into(), worker);
    (node.taken, node.done, node.turns, node.metrics) = (done, done, 2 * done, figures);
    node
}

fn edge(from: &str, to: &str, sent: u64, lost: &[(Reason, u64)]) -> EdgeReport {
    let gone: u64 = lost.iter().map(|(_, n)| n).sum();
    let mut edge = EdgeReport::default();
    (edge.from, edge.to, edge.capacity) = (from.into(), to.into(), 64);
    (edge.when_full, edge.crossing) = (if gone > 0 { WhenFull::Latest } else { WhenFull::Block }, gone > 0);
    (edge.sent, edge.received, edge.lost, edge.counted) = (sent, sent - gone, lost.to_vec(), true);
    edge
}

fn histogram(node: &str, to: Option<&str>, term: Term, digits: u8, values: &[u64]) -> HistogramReport {
    let mut histogram = Counts::new(digits);
    values.iter().for_each(|value| histogram.record(*value, 1));
    let recorded = Recorded { samples: histogram.len(), histogram };
    HistogramReport { node: node.into(), to: to.map(String::from), term, recorded }
}

fn worker(name: &str, cpu: Option<usize>, wait: Wait) -> WorkerReport {
    let mut worker = WorkerReport::default();
    (worker.name, worker.cpu, worker.wait) = (name.into(), cpu, wait);
    worker.floats = cpu.is_none().then_some("it waits");
    worker.pinned.got = cpu.map_or_else(|| vec![0, 1], |cpu| vec![cpu]);
    worker
}

fn deadline(to: &str, judged: u64, missed: u64) -> DeadlineReport {
    let mut deadline = DeadlineReport::default();
    (deadline.from, deadline.to, deadline.deadline) = ("camera".into(), to.into(), 4_000_000);
    (deadline.judged, deadline.missed) = (judged, missed);
    deadline
}

/// `camera` sends 140 messages, 40 are superseded, 100 pass `digit` and end in `score` and
/// `labels`.
pub(crate) fn report() -> Report {
    let compute: Vec<u64> = (1..=100).map(|n| n * 10_000).collect();
    let e2e: Vec<u64> = (1..=100).map(|n| n * 50_000).collect();
    let mut report = Report::empty("digits", UNIX_EPOCH + Duration::from_millis(1_700_000_000_250));
    report.wall = Duration::from_millis(1620);
    report.deadlines = vec![deadline("labels", 100, 20), deadline("score", 0, 0)];
    report.nodes = vec![
        node("camera", "image_files", 0, 140, &[]),
        node("digit", "infer", 1, 100, &[("mean_batch", 7.9)]),
        node("score", "accuracy", 0, 100, &[("accuracy", 0.998), ("odd", f64::NAN)]),
        node("labels", "csv", 2, 100, &[]),
    ];
    report.edges = vec![
        edge("camera/image", "digit/in", 140, &[(Reason::Superseded, 40)]),
        edge("digit/out", "score/in", 100, &[]),
        edge("digit/out", "labels/in", 100, &[]),
    ];
    report.workers = vec![
        worker("limen-0", Some(0), Wait::Adaptive),
        worker("limen-1", Some(1), Wait::Spin),
        worker("limen-labels", None, Wait::Park),
    ];
    report.histograms = vec![
        histogram("digit", None, Term::Queue, 2, &compute[..50]),
        histogram("digit", None, Term::Compute, 3, &compute),
        histogram("digit", None, Term::Batch, 2, &[7, 8, 8]),
        histogram("labels", None, Term::Residual, 2, &[100; 100]),
        histogram("camera", Some("labels"), Term::EndToEnd, 3, &e2e),
    ];
    report
}
