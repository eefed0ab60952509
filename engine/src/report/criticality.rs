//! What went wrong at critical nodes and paths.

use super::{DeadlineReport, NodeReport, Outcome, Reason, Report};
use crate::base::policy::Criticality;
use crate::base::unit::show_ns;

/// A number of things: `1 message`, `2 messages`.
fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl Report {
    /// Lists what went wrong at critical nodes and paths. The run has failed if there is anything.
    pub(crate) fn judge_criticality(&mut self) {
        let nodes = self.nodes.iter().filter(|node| node.criticality == Criticality::Critical);
        let paths = self.deadlines.iter().filter(|path| path.criticality == Criticality::Critical);
        let of_nodes = nodes.flat_map(|node| self.wrong_at(node));
        self.critical = of_nodes.chain(paths.flat_map(wrong_on)).collect();
        if !self.critical.is_empty() && matches!(self.outcome, Outcome::Finished | Outcome::Stopped) {
            self.outcome = Outcome::Failed;
        }
    }

    fn wrong_at(&self, node: &NodeReport) -> Vec<String> {
        let name = format!("critical node `{}`", node.name);
        let mut wrong = Vec::new();
        if node.failures > 0 {
            wrong.push(format!("{name} failed {}", count(node.failures, "time")));
        }
        if node.abandoned {
            wrong.push(format!("{name} was abandoned: its thread did not end"));
        }
        for (reason, n) in node.metrics.losses().filter(|(reason, _)| *reason != Reason::Stopped.name()) {
            wrong.push(format!("{name} lost {} ({reason})", count(n, "message")));
        }
        let is_into = |to: &str| to.rsplit_once('/').is_some_and(|(consumer, _)| consumer == node.name);
        for edge in self.edges.iter().filter(|edge| is_into(&edge.to)) {
            for (reason, n) in edge.lost.iter().filter(|(reason, _)| !edge.is_discarded(*reason)) {
                wrong.push(format!("{name}: {} lost at {} ({})", count(*n, "message"), edge.to, reason.name()));
            }
        }
        wrong
    }
}

fn wrong_on(path: &DeadlineReport) -> Vec<String> {
    let name = format!("critical path {} -> {}", path.from, path.to);
    let mut wrong = Vec::new();
    if path.missed > 0 {
        let (missed, deadline) = (count(path.missed, "message"), show_ns(path.deadline));
        wrong.push(format!("{name}: {missed} of {} missed the deadline of {deadline}", path.judged));
    }
    if path.expired > 0 {
        wrong.push(format!("{name}: {} lost on the way (expired)", count(path.expired, "message")));
    }
    if path.judged == 0 {
        wrong.push(format!("{name}: no message arrived"));
    } else if path.silences > 0 {
        let at_end = if path.silent { ", also at the end" } else { "" };
        wrong.push(format!("{name}: nothing arrived for a while {}{at_end}", count(path.silences, "time")));
    }
    wrong
}
