//! Collects the results of a run's workers, and makes the report.

use crate::base::policy::Pick;
use crate::base::unit::show_ns;
use crate::edge::Reason;
use crate::exec::mailbox::Subject;
use crate::exec::shared::lock;
use crate::exec::worker;
use crate::ledger::{Recorded, Term};
use crate::node::metrics::Metrics;
use crate::plan::Role;
use crate::report::{
    DeadlineReport, EdgeReport, FailureReport, HistogramReport, NodeReport, Outcome, Report, WorkerReport,
};
use crate::run::running::Running;
use std::collections::HashMap;

/// The results of all workers of a run.
#[derive(Default)]
struct RunResults {
    /// By worker: whether it left no result, because it did not end.
    abandoned: Vec<bool>,
    /// By node: its own metrics.
    metrics: HashMap<usize, Metrics>,
    /// By edge: messages still in it.
    left: HashMap<usize, u64>,
    /// By edge: how far the nearest message was from one that it could have been joined with, ns.
    nearest: HashMap<usize, u64>,
    histograms: Vec<(Subject, Term, Recorded)>,
    bugs: Vec<String>,
}

impl RunResults {
    fn of(outcomes: Vec<Option<worker::WorkerOutcome>>) -> Self {
        let abandoned = outcomes.iter().map(Option::is_none).collect();
        let mut all = RunResults { abandoned, ..RunResults::default() };
        let mut remains = Vec::new();
        for outcome in outcomes.into_iter().flatten() {
            all.bugs.extend(outcome.bug);
            all.histograms.extend(outcome.histograms);
            for ended in outcome.ended {
                all.metrics.insert(ended.node, ended.metrics);
                for one in ended.left {
                    *all.left.entry(one.edge).or_default() += one.counted;
                    all.nearest.extend(one.nearest.map(|distance| (one.edge, distance)));
                    remains.extend(one.remains.map(|r| (one.edge, r)));
                }
            }
        }
        // Every thread that will end has ended, so the contents of the rings are final.
        for (edge, end) in remains {
            *all.left.entry(edge).or_default() += end.count();
        }
        all
    }
}

impl Running {
    /// Makes the report of a run that has ended; `late` if threads had to be abandoned.
    pub(super) fn report(&mut self, late: bool) -> Report {
        let wall = self.started.elapsed();
        let mut results = RunResults::of(std::mem::take(&mut self.outcomes));
        let failures = std::mem::take(&mut *lock(&self.shared.failures));
        let plan = &self.plan;
        let has_ended = |node: usize| !results.abandoned[plan.nodes()[node].worker];
        let handles = self.endpoints.iter().map(|(node, endpoint)| endpoint.report(has_ended(*node))).collect();
        let outcome = if late {
            Outcome::DeadlinePassed
        } else if failures.stop {
            Outcome::Failed
        } else if self.shared.is_stopping() {
            Outcome::Stopped
        } else {
            Outcome::Finished
        };
        let name = |i: usize| plan.nodes()[i].name.clone();
        let throttled = self.watcher.conclude();
        let tails = lock(&self.watcher.tails).reports(&results.histograms, &name);
        let mut report = Report {
            graph: plan.graph().to_string(),
            run_id: self.shared.run_id.clone(),
            started: self.started_at,
            wall,
            outcome,
            nodes: self.node_reports(&mut results, &failures.counts, outcome),
            edges: self.edge_reports(&results),
            workers: self.worker_reports(&results),
            handles,
            histograms: self.histogram_reports(std::mem::take(&mut results.histograms)),
            deadlines: self.deadline_reports(),
            tails,
            critical: Vec::new(),
            failures: failures.kept.iter().map(|f| FailureReport::new(name(f.node), f)).collect(),
            failed_calls: failures.counts.values().sum(),
            bugs: results.bugs,
            notes: [plan.notes().to_vec(), std::mem::take(&mut *lock(&self.shared.notes)), throttled].concat(),
        };
        report.check_accounting(|edge| results.left.get(&edge).copied().unwrap_or(0));
        report.judge_criticality();
        report
    }

    fn node_reports(
        &self,
        results: &mut RunResults,
        failures: &HashMap<usize, u64>,
        outcome: Outcome,
    ) -> Vec<NodeReport> {
        self.plan
            .nodes()
            .iter()
            .enumerate()
            .map(|(i, node)| {
                let counts = &self.counts[i];
                let mut metrics = results.metrics.remove(&i).unwrap_or_default();
                metrics.add_live(&counts.live);
                counts.live.notes().iter().for_each(|note| self.shared.note_of(i, note));
                if node.role == Role::Sink && counts.taken.get() == 0 {
                    let note = match outcome {
                        Outcome::Failed => "no message arrived before the failure, and every file is unchanged".into(),
                        _ => format!("no message arrived, and nothing was written: {}", self.why_empty(i)),
                    };
                    self.shared.note_of(i, &note);
                }
                let nearest = node.in_edges.iter().filter_map(|edge| results.nearest.get(edge)).min();
                if let Some(nearest) = nearest.filter(|_| counts.taken.get() == 0) {
                    let (away, within) = (show_ns(*nearest), show_ns(node.stage.rule.within));
                    metrics.set("nearest_partner_ms", *nearest as f64 / 1e6);
                    let partner = match node.stage.rule.pick {
                        Pick::Interpolate => {
                            "interpolation requires a partner on each side, and the farther of the two nearest partners"
                        }
                        _ => "the nearest partner",
                    };
                    let note = format!("no messages matched: {partner} was {away} away (`within` is {within})");
                    self.shared.note_of(i, &note);
                }
                NodeReport {
                    name: node.name.clone(),
                    kind: node.kind.clone(),
                    worker: node.worker,
                    taken: counts.taken.get(),
                    done: counts.done.get(),
                    failed: counts.failed.get(),
                    lost: counts.lost.get(),
                    held: counts.held.get(),
                    turns: counts.turns.get(),
                    pool_empty: counts.pool_empty.get(),
                    over_budget: counts.over_budget.get(),
                    gaps: counts.gaps.get(),
                    restarts: counts.restarts.get(),
                    batches: counts.batches.get(),
                    abandoned: results.abandoned[node.worker],
                    criticality: node.criticality(),
                    failures: failures.get(&i).copied().unwrap_or(0),
                    backend: self.shared.backend_status(i, counts.batches.get()),
                    metrics,
                }
            })
            .collect()
    }

    fn edge_reports(&self, results: &RunResults) -> Vec<EdgeReport> {
        let plan = &self.plan;
        plan.edges()
            .iter()
            .enumerate()
            .map(|(i, edge)| {
                let shared = &self.edges[i];
                // Only a loop that is ended loses messages by a stop: they are left in it.
                let lost = Reason::ALL.iter().copied().filter(|r| *r != Reason::Stopped).map(|r| (r, shared.lost(r)));
                EdgeReport {
                    from: edge.from_name.clone(),
                    to: edge.to_name.clone(),
                    capacity: edge.capacity,
                    when_full: edge.when_full(),
                    crossing: edge.crossing,
                    sent: shared.producer.moved.get(),
                    received: shared.consumer.moved.get(),
                    lost: lost.filter(|(_, n)| *n > 0).collect(),
                    discards_unmatched: edge.discards_unmatched,
                    left: results.left.get(&i).copied().unwrap_or(0) + shared.lost(Reason::Stopped),
                    counted: !results.abandoned[plan.nodes()[edge.from].worker]
                        && !results.abandoned[plan.nodes()[edge.to].worker],
                }
            })
            .collect()
    }

    fn worker_reports(&self, results: &RunResults) -> Vec<WorkerReport> {
        self.plan
            .workers()
            .iter()
            .enumerate()
            .map(|(i, w)| WorkerReport {
                name: w.name.clone(),
                cpu: w.place.cpu,
                floats: w.floats(),
                wait: w.place.wait,
                pinned: self.pinned.get(i).cloned().unwrap_or_default(),
                abandoned: results.abandoned[i],
            })
            .collect()
    }

    fn histogram_reports(&self, histograms: Vec<(Subject, Term, Recorded)>) -> Vec<HistogramReport> {
        let name = |i: usize| self.plan.nodes()[i].name.clone();
        histograms
            .into_iter()
            .filter(|(_, _, recorded)| recorded.samples > 0)
            .map(|(subject, term, recorded)| {
                let (node, to) = match subject {
                    Subject::Node(node) => (name(node), None),
                    Subject::Path(from, to) => (name(from), Some(name(to))),
                };
                HistogramReport { node, to, term, recorded }
            })
            .collect()
    }

    /// Why a sink has no messages: the node nearest to it that sent none, or used none.
    fn why_empty(&self, sink: usize) -> String {
        let (nodes, sent) = (self.plan.nodes(), |edge: &usize| self.edges[*edge].producer.moved.get());
        let mut at = sink;
        // A cycle has no more steps than nodes.
        for _ in nodes {
            let Some(edge) = nodes[at].in_edges.iter().find(|edge| sent(edge) == 0) else { break };
            at = self.plan.edges()[*edge].from;
            if nodes[at].in_edges.is_empty() {
                return format!("`{}` sent no messages", nodes[at].name);
            }
            match self.counts[at].taken.get() {
                0 => {}
                taken => {
                    let s = if taken == 1 { "" } else { "s" };
                    return format!("`{}` read {taken} message{s} and sent none", nodes[at].name);
                }
            }
        }
        format!("`{0}` used none of the messages sent to `{0}`", nodes[at].name)
    }

    fn deadline_reports(&self) -> Vec<DeadlineReport> {
        let silences = self.watcher.silences();
        let expired = |node: &usize| -> u64 {
            let edges = &self.plan.nodes()[*node].in_edges;
            edges.iter().map(|edge| self.edges[*edge].lost(Reason::Expired)).sum()
        };
        self.plan
            .paths()
            .iter()
            .zip(self.judged.iter())
            .enumerate()
            .filter_map(|(at, (path, judged))| {
                Some(DeadlineReport {
                    from: path.from.clone(),
                    to: path.to.clone(),
                    deadline: path.deadline?,
                    on_miss: path.on_miss,
                    judged: judged.all.get(),
                    missed: judged.missed.get(),
                    silent: silences.get(&at).is_some_and(|(_, is_now)| *is_now),
                    untracked_behind: path.untracked_behind.clone(),
                    criticality: path.criticality,
                    silences: silences.get(&at).map_or(0, |(count, _)| *count),
                    expired: path.route.iter().map(expired).sum(),
                })
            })
            .collect()
    }
}
