//! `--dot`, `--svg`, `--mermaid`: pictures of a graph in one file, of its plan or of a run.

mod dot;
mod load;
mod mermaid;
pub(crate) mod outline;
mod svg;

use crate::text::number::{count, figure};
use limen::plan::{EdgePlan, WorkerPlan};
use limen::run::EdgeStats;
use limen::unit::show_ns;
use limen::{Plan, Report};
use load::{NodeLoad, loads};
use outline::PlanOutline;

/// A picture of a graph: its nodes in groups by thread, and its edges. Of a run also which nodes
/// their threads spent their time in, how many messages passed each edge, its peak depth, and what
/// was lost.
///
/// ```no_run
/// use limen_run::Picture;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = limen::Plan::from_file("graph.yaml", &Default::default(), &limen_run::registry(), &Default::default())?;
/// let mut picture = Picture::new(&plan);
/// std::fs::write("plan.svg", picture.svg())?;
/// let mut running = plan.wire()?.start()?;
/// while !running.wait_for(Duration::from_millis(100)) {
///     picture.look(&running.edge_stats());
/// }
/// picture.finish(&running.wait());
/// std::fs::write("run.svg", picture.svg())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Picture {
    graph: String,
    outline: PlanOutline,
    threads: Vec<Thread>,
    edges: Vec<Edge>,
    /// What the nodes did; empty before the run has ended.
    loads: Vec<NodeLoad>,
    /// One line about the run.
    outcome: Option<String>,
}

#[derive(Clone, Debug)]
struct Thread {
    name: String,
    /// The CPU it is pinned to, in words.
    on: String,
    nodes: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Edge {
    from: String,
    to: String,
    when_full: &'static str,
    is_lossy: bool,
    crossing: bool,
    capacity: usize,
    peak_depth: u64,
    moved: Option<Moved>,
}

/// What passed an edge.
#[derive(Clone, Debug)]
struct Moved {
    sent: u64,
    /// Lost messages by reason, such as `7 overrun`.
    lost: Vec<String>,
    lost_total: u64,
    discarded: u64,
}

impl Picture {
    /// The picture of a plan.
    pub fn new(plan: &Plan) -> Self {
        let thread = |worker: &WorkerPlan| Thread {
            name: worker.name.clone(),
            on: worker.cpu().map_or_else(|| "any CPU".into(), |cpu| format!("CPU {cpu}")),
            nodes: worker.nodes.clone(),
        };
        let edge = |edge: &EdgePlan| Edge {
            from: edge.from_name.clone(),
            to: edge.to_name.clone(),
            when_full: edge.when_full().name(),
            is_lossy: edge.when_full().is_lossy(),
            crossing: edge.crossing,
            capacity: edge.capacity,
            peak_depth: 0,
            moved: None,
        };
        Picture {
            graph: plan.graph().to_string(),
            outline: PlanOutline::new(plan),
            threads: plan.workers().iter().map(thread).collect(),
            edges: plan.edges().iter().map(edge).collect(),
            loads: Vec::new(),
            outcome: None,
        }
    }

    /// Reads the queue depth of every edge ([`Running::edge_stats`](limen::Running::edge_stats));
    /// to be called about ten times a second.
    pub fn look(&mut self, edges: &[EdgeStats]) {
        for (edge, stats) in self.edges.iter_mut().zip(edges) {
            edge.peak_depth = edge.peak_depth.max(stats.peak_depth);
        }
    }

    /// Makes it the picture of a run that has ended.
    pub fn finish(&mut self, report: &Report) {
        self.loads = loads(report);
        for (edge, report) in self.edges.iter_mut().zip(&report.edges) {
            let lost = report.lost.iter().filter(|(reason, _)| !report.is_discarded(*reason));
            edge.moved = Some(Moved {
                sent: report.sent,
                lost: lost.map(|(reason, n)| format!("{n} {}", reason.name())).collect(),
                lost_total: report.lost_total(),
                discarded: report.discarded_total(),
            });
        }
        for (thread, report) in self.threads.iter_mut().zip(&report.workers) {
            if report.pinned.refused.is_some() {
                thread.on += ", refused";
            }
        }
        let mut outcome = format!("{} after {}", report.outcome.name(), show_ns(nanoseconds(report.wall)));
        for (n, what) in [(report.lost_total(), "lost"), (report.discarded_total(), "discarded")] {
            if n > 0 {
                outcome += &format!(", {n} {what}");
            }
        }
        if report.failed_calls > 0 {
            let calls = usize::try_from(report.failed_calls).unwrap_or(usize::MAX);
            outcome += &format!(", {}", count(calls, "failed call"));
        }
        self.outcome = Some(outcome);
    }

    /// What is said about a node below its name and kind: its load and its times.
    fn about(&self, node: usize) -> Vec<String> {
        let Some(load) = self.loads.get(node) else { return Vec::new() };
        let mut lines = Vec::new();
        if let Some(rate) = load.rate.filter(|rate| *rate > 0.0) {
            let share = load.share.map_or_else(String::new, |share| format!(" · {} busy", percent(share)));
            lines.push(format!("{}/s{share}", figure(rate)));
        }
        match (load.p50, load.p99, load.max) {
            (Some(p50), Some(p99), _) => lines.push(format!("p50 {} · p99 {}", show_ns(p50), show_ns(p99))),
            (Some(p50), None, Some(max)) => lines.push(format!("p50 {} · max {}", show_ns(p50), show_ns(max))),
            (None, _, Some(max)) => lines.push(format!("max {}", show_ns(max))),
            _ => {}
        }
        lines
    }

    /// What went wrong at a node.
    fn problem(&self, node: usize) -> Option<String> {
        let load = self.loads.get(node)?;
        let failed = (load.failed > 0).then(|| format!("{} failed", load.failed));
        let lost = load.lost.iter().map(|lost| format!("lost {lost}"));
        let all: Vec<String> = failed.into_iter().chain(lost).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The share of its thread's time that a node's calls took.
    fn heat(&self, node: usize) -> f64 {
        self.loads.get(node).and_then(|load| load.share).unwrap_or(0.0)
    }
}

impl Edge {
    /// Its peak depth and its capacity.
    fn peak_depth(&self) -> String {
        format!("{} of {}", self.peak_depth.min(self.capacity as u64), self.capacity)
    }

    fn lost(&self) -> Option<String> {
        let moved = self.moved.as_ref().filter(|moved| moved.lost_total > 0)?;
        Some(format!("lost {}", moved.lost.join(", ")))
    }

    fn discarded(&self) -> Option<String> {
        let discarded = self.moved.as_ref().map_or(0, |moved| moved.discarded);
        (discarded > 0).then(|| format!("{discarded} discarded"))
    }
}

/// A share of a whole.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent >= 10.0 => format!("{percent:.0} %"),
        _ if percent >= 0.1 => format!("{percent:.1} %"),
        _ => "< 0.1 %".into(),
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A colour between two, as `#rrggbb`.
fn mixed(cold: [u8; 3], hot: [u8; 3], share: f64) -> String {
    let part = |n: usize| (f64::from(cold[n]) + (f64::from(hot[n]) - f64::from(cold[n])) * share).round() as u8;
    format!("#{:02x}{:02x}{:02x}", part(0), part(1), part(2))
}
