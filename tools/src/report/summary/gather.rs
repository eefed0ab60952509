//! Converts the parts of a [`Report`] to those of a [`Summary`](super::Summary).

use super::{
    BackendSummary, EdgeSummary, FailureSummary, GateSummary, HandleSummary, HistogramSummary, NodeSummary,
    PathSummary, ProblemSummary, TailCauseSummary, TailSummary, WorkerSummary,
};
use crate::report::gate::GateVerdict;
use crate::text::causes::cause_text;
use limen::report::{
    EdgeReport, FailureReport, HandleReport, HistogramReport, NodeReport, Recorded, TailReport, Term, WorkerReport,
};
use limen::{Problem, Report};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn node(n: &NodeReport) -> NodeSummary {
    NodeSummary {
        name: n.name.clone(),
        kind: n.kind.clone(),
        worker: n.worker,
        taken: n.taken,
        done: n.done,
        failed: n.failed,
        held: n.held,
        turns: n.turns,
        pool_empty: n.pool_empty,
        over_budget: n.over_budget,
        gaps: n.gaps,
        restarts: n.restarts,
        batches: n.batches,
        abandoned: n.abandoned,
        lost: by_name(n.metrics.losses().map(|(reason, n)| (reason.to_string(), n))),
        thinned: by_name(n.metrics.thinning().map(|(reason, n)| (reason.to_string(), n))),
        backend: n.backend.as_ref().map(|backend| BackendSummary {
            name: backend.backend,
            device: backend.device.clone(),
            threads: backend.threads,
            memory: backend.memory,
            ready: backend.ready,
            calls: backend.calls,
            failed: backend.failed,
            last_error: backend.last_error.clone(),
        }),
        metrics: by_name(n.metrics.iter().map(|(name, value)| (name.to_string(), value))),
    }
}

pub(super) fn metrics(report: &Report) -> BTreeMap<String, f64> {
    let own =
        report.nodes.iter().flat_map(|n| n.metrics.iter().map(|(name, value)| (format!("{}.{name}", n.name), value)));
    let of_all = ["lost", "thinned", "left", "failed", "missed", "over_budget", "gaps", "restarts"]
        .into_iter()
        .filter_map(|name| Some((name.to_string(), report.metric(name)?)));
    let lost = report.losses().into_iter().map(|(reason, n)| (format!("lost.{reason}"), n as f64));
    // The metric of a node with such a name wins, as it does in an expression.
    by_name(lost.chain(of_all).chain(own))
}

/// `collect` would sort the pairs first: code that is compiled for every type of them.
fn by_name<K: Ord, V>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut all = BTreeMap::new();
    all.extend(pairs);
    all
}

pub(super) fn edge(e: &EdgeReport) -> EdgeSummary {
    EdgeSummary {
        from: e.from.clone(),
        to: e.to.clone(),
        capacity: e.capacity,
        when_full: e.when_full.name(),
        crossing: e.crossing,
        sent: e.sent,
        received: e.received,
        lost: by_name(e.lost.iter().map(|(reason, n)| (reason.name(), *n))),
        thinned: e.thinned_total(),
        left: e.left,
        counted: e.counted,
    }
}

pub(super) fn handle(h: &HandleReport) -> HandleSummary {
    HandleSummary {
        name: h.name.clone(),
        kind: h.kind.name(),
        sent: h.sent,
        received: h.received,
        lost: by_name(h.lost.iter().map(|(reason, n)| (reason.name(), *n))),
        thinned: h.thinned_total(),
        left: h.left,
        counted: h.counted,
    }
}

pub(super) fn worker(w: &WorkerReport) -> WorkerSummary {
    WorkerSummary {
        name: w.name.clone(),
        cpu: w.cpu,
        floats: w.floats,
        cpus: w.pinned.got.clone(),
        refused: w.pinned.refused.clone(),
        wait: w.wait.name(),
        real_time: w.pinned.real_time.map(|real_time| real_time.to_string()),
        abandoned: w.abandoned,
    }
}

pub(super) fn histogram(one: &HistogramReport) -> HistogramSummary {
    let h = &one.recorded.histogram;
    let any = !h.is_empty();
    HistogramSummary {
        tag: one.tag(),
        node: one.node.clone(),
        to: one.to.clone(),
        term: one.term.name(),
        unit: if one.term == Term::Batch { "messages" } else { "ns" },
        count: h.len(),
        samples: one.recorded.samples,
        min: any.then(|| h.min()),
        p50: one.recorded.quantile(0.5),
        p90: one.recorded.quantile(0.9),
        p99: one.recorded.quantile(0.99),
        p999: one.recorded.quantile(0.999),
        max: any.then(|| h.max()),
        mean: any.then(|| (h.mean() * 10.0).round() / 10.0),
    }
}

pub(super) fn paths(report: &Report) -> Vec<PathSummary> {
    let path = |from: &str, to: &str, recorded: Option<&Recorded>| {
        let deadline = report.deadlines.iter().find(|d| d.from == from && d.to == to);
        PathSummary {
            from: from.into(),
            to: to.into(),
            deadline_ns: deadline.map(|d| d.deadline),
            on_miss: deadline.map(|d| d.on_miss.name()),
            count: recorded.map_or(0, |r| r.histogram.len()),
            samples: recorded.map_or(0, |r| r.samples),
            late: deadline.map(|d| d.missed),
            judged: deadline.map(|d| d.judged),
            untracked_behind: deadline.and_then(|d| d.untracked_behind.clone()),
            p50: recorded.and_then(|r| r.quantile(0.5)),
            p90: recorded.and_then(|r| r.quantile(0.9)),
            p99: recorded.and_then(|r| r.quantile(0.99)),
            p999: recorded.and_then(|r| r.quantile(0.999)),
            max: recorded.map(|r| r.histogram.max()),
            closure_p99: report.histogram(to, Term::Closure).and_then(|r| r.quantile(0.99)),
        }
    };
    let recorded = report.paths().map(|(from, to, recorded)| path(from, to, Some(recorded)));
    let silent = report.deadlines.iter().filter(|p| !report.paths().any(|(from, to, _)| from == p.from && to == p.to));
    recorded.chain(silent.map(|p| path(&p.from, &p.to, None))).collect()
}

pub(super) fn failure(f: &FailureReport) -> FailureSummary {
    FailureSummary { node: f.node.clone(), call: f.call, number: f.number, text: f.text.clone(), panicked: f.panicked }
}

pub(super) fn gate(v: &GateVerdict) -> GateSummary {
    GateSummary { gate: v.gate.clone(), tripped: v.tripped, value: v.value, text: v.text.clone() }
}

pub(super) fn problem(p: &Problem) -> ProblemSummary {
    ProblemSummary {
        code: p.code,
        file: p.place.file.to_string(),
        line: p.place.line,
        column: p.place.column,
        message: p.message.clone(),
        help: p.help.clone(),
    }
}

pub(super) fn tail(t: &TailReport) -> TailSummary {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let causes = t.causes.iter().map(|cause| TailCauseSummary {
        cause: cause.cause.name(),
        node: cause.node.clone(),
        behind: cause.behind.clone(),
        messages: cause.messages,
        excess_ns: nanos(cause.excess),
        longest_ns: nanos(cause.longest),
        text: cause_text(cause),
    });
    TailSummary {
        from: t.from.clone(),
        to: t.to.clone(),
        quantile: t.quantile,
        limit_ns: nanos(t.limit),
        beyond: t.beyond,
        judged: t.judged,
        causes: causes.collect(),
    }
}
