//! A made-up report, for the tests of all code that reads reports.

use hdrhistogram::Histogram;
use limen::Report;
use limen::node::Metrics;
use limen::policy::{OnMiss, Wait, WhenFull};
use limen::report::{
    DeadlineReport, EdgeReport, HistogramReport, NodeReport, Outcome, Pinned, Reason, Recorded, Term, WorkerReport,
};
use std::time::{Duration, UNIX_EPOCH};

fn node(name: &str, kind: &str, worker: usize, done: u64, metrics: &[(&str, f64)]) -> NodeReport {
    let mut figures = Metrics::default();
    metrics.iter().for_each(|(name, value)| figures.set(*name, *value));
    NodeReport {
        name: name.into(),
        kind: kind.into(),
        worker,
        taken: done,
        done,
        failed: 0,
        held: 0,
        turns: 2 * done,
        pool_empty: 0,
        over_budget: 0,
        gaps: 0,
        restarts: 0,
        batches: 0,
        abandoned: false,
        backend: None,
        metrics: figures,
    }
}

fn edge(from: &str, to: &str, sent: u64, lost: &[(Reason, u64)]) -> EdgeReport {
    let gone: u64 = lost.iter().map(|(_, n)| n).sum();
    EdgeReport {
        from: from.into(),
        to: to.into(),
        capacity: 64,
        when_full: if gone > 0 { WhenFull::Latest } else { WhenFull::Block },
        crossing: gone > 0,
        sent,
        received: sent - gone,
        lost: lost.to_vec(),
        thins: false,
        left: 0,
        counted: true,
    }
}

fn histogram(node: &str, to: Option<&str>, term: Term, digits: u8, values: &[u64]) -> HistogramReport {
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, digits).unwrap();
    values.iter().for_each(|value| histogram.record(*value).unwrap());
    let recorded = Recorded { samples: histogram.len(), histogram };
    HistogramReport { node: node.into(), to: to.map(String::from), term, recorded }
}

fn worker(name: &str, cpu: Option<usize>, wait: Wait) -> WorkerReport {
    let pinned = Pinned { got: cpu.map_or_else(|| vec![0, 1], |cpu| vec![cpu]), real_time: None, refused: None };
    let floats = cpu.is_none().then_some("it waits");
    WorkerReport { name: name.into(), cpu, floats, wait, pinned, abandoned: false }
}

fn deadline(to: &str, judged: u64, missed: u64) -> DeadlineReport {
    DeadlineReport {
        from: "camera".into(),
        to: to.into(),
        deadline: 4_000_000,
        on_miss: OnMiss::Count,
        judged,
        missed,
        untold_behind: None,
    }
}

/// `camera` sends 140 messages, 40 are superseded, 100 pass `digit` and end in `score` and `labels`.
pub(crate) fn report() -> Report {
    let compute: Vec<u64> = (1..=100).map(|n| n * 10_000).collect();
    let e2e: Vec<u64> = (1..=100).map(|n| n * 50_000).collect();
    Report {
        graph: "digits".into(),
        started: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
        wall: Duration::from_millis(1620),
        outcome: Outcome::Finished,
        deadlines: vec![deadline("labels", 100, 20), deadline("score", 0, 0)],
        nodes: vec![
            node("camera", "image_files", 0, 140, &[]),
            node("digit", "infer", 1, 100, &[("mean_batch", 7.9)]),
            node("score", "accuracy", 0, 100, &[("accuracy", 0.998), ("odd", f64::NAN)]),
            node("labels", "csv", 2, 100, &[]),
        ],
        handles: Vec::new(),
        edges: vec![
            edge("camera/image", "digit/in", 140, &[(Reason::Superseded, 40)]),
            edge("digit/out", "score/in", 100, &[]),
            edge("digit/out", "labels/in", 100, &[]),
        ],
        workers: vec![
            worker("limen-0", Some(0), Wait::Adaptive),
            worker("limen-1", Some(1), Wait::Spin),
            worker("limen-labels", None, Wait::Park),
        ],
        histograms: vec![
            histogram("digit", None, Term::Queue, 2, &compute[..50]),
            histogram("digit", None, Term::Compute, 3, &compute),
            histogram("digit", None, Term::Batch, 2, &[7, 8, 8]),
            histogram("labels", None, Term::Closure, 2, &[100; 100]),
            histogram("camera", Some("labels"), Term::EndToEnd, 3, &e2e),
        ],
        failures: Vec::new(),
        failed_calls: 0,
        bugs: Vec::new(),
        notes: Vec::new(),
    }
}
