//! What the nodes of a run did, and which part of their threads' time it took.

use super::nanoseconds;
use crate::report::index::ReportIndex;
use limen::Report;
use limen::report::{NodeReport, Recorded, Term};

/// A turn takes messages of at most this many ns, as far as it is known before.
const TURN: f64 = 20_000.0;
/// Calls of at least this many ns are timed one by one, others together with their burst.
const SLOW: f64 = 1_000.0;

/// What a node did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeLoad {
    /// Calls a second.
    pub(super) rate: Option<f64>,
    /// The share of its thread's time that its calls took, from 0 to 1.
    pub(super) share: Option<f64>,
    pub(super) p50: Option<u64>,
    pub(super) p99: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) failed: u64,
    /// Messages lost before the node had them as messages, or after it took them, such as
    /// `3 too_large`.
    pub(super) lost: Vec<String>,
}

/// Returns what each node did. The shares of a thread's nodes add up to 1 at most.
pub(super) fn loads(report: &Report) -> Vec<NodeLoad> {
    let wall = nanoseconds(report.wall).max(1) as f64;
    let mut loads: Vec<NodeLoad> = Vec::with_capacity(report.nodes.len());
    let mut of_threads = vec![0.0; report.workers.len()];
    let index = ReportIndex::new(report);
    for node in &report.nodes {
        let compute = index.term(&node.name, Term::Compute);
        let share = compute.map(|compute| time_in_calls(node, compute.histogram.mean()) / wall);
        if let (Some(share), Some(sum)) = (share, of_threads.get_mut(node.worker)) {
            *sum += share;
        }
        let calls = (node.done + node.failed) as f64;
        loads.push(NodeLoad {
            rate: Some(calls * 1e9 / wall),
            share,
            p50: compute.and_then(|compute| compute.quantile(0.5)),
            p99: compute.and_then(|compute| compute.quantile(0.99)),
            max: compute.map(|compute: &Recorded| compute.histogram.max()),
            failed: node.failed,
            lost: node.metrics.losses().filter(|(_, n)| *n > 0).map(|(reason, n)| format!("{n} {reason}")).collect(),
        });
    }
    for (load, node) in loads.iter_mut().zip(&report.nodes) {
        // Estimates, and calls in flight at the same time, may exceed the whole.
        let sum = of_threads.get(node.worker).copied().unwrap_or(0.0).max(1.0);
        load.share = load.share.map(|share| share / sum);
    }
    loads
}

/// Estimates the time of all calls of a node, ns, from the mean of what was recorded.
fn time_in_calls(node: &NodeReport, mean: f64) -> f64 {
    let calls = (node.done + node.failed) as f64;
    if node.batches > 0 {
        // Every message of a batch has the time of the batch.
        return node.batches as f64 * mean;
    }
    let turns = (node.turns as f64).min(calls);
    // Messages of a burst of short calls have the time of the burst; longer calls are timed one by
    // one.
    let is_timed_alone = mean >= SLOW && calls * mean <= turns * TURN;
    if is_timed_alone || mean >= TURN { calls * mean } else { turns * mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(calls: u64, turns: u64, batches: u64) -> NodeReport {
        let mut node = NodeReport::default();
        (node.done, node.turns, node.batches) = (calls, turns, batches);
        node
    }

    #[test]
    fn the_time_of_calls_counts_a_burst_once() {
        for (calls, turns, batches, mean, expected) in [
            // One at a time, with turns in which there was nothing to do.
            (100, 5_000, 0, 500.0, 50_000.0),
            // Bursts of 64 short calls, each recorded with the time of all.
            (64_000, 1_000, 0, 6_400.0, 6_400_000.0),
            // Calls of 2 µs in bursts of ten, timed one by one.
            (1_000, 100, 0, 2_000.0, 2_000_000.0),
            (10, 10, 0, 5e6, 5e7),
            // A model with batches of eight.
            (80, 10, 10, 1e6, 1e7),
            (0, 10, 0, 0.0, 0.0),
        ] {
            assert_eq!(time_in_calls(&node(calls, turns, batches), mean), expected, "{calls} {turns} {batches} {mean}");
        }
    }

    #[test]
    fn the_nodes_of_a_thread_share_its_time() {
        let report = crate::report::test_report::report();
        let loads = loads(&report);
        // 100 calls with a mean of 505 µs in 1.62 s.
        let share = loads[1].share.unwrap();
        assert!((share - 0.0312).abs() < 0.001, "{share}");
        assert_eq!((loads[0].share, loads[0].p50), (None, None));
        assert_eq!(
            (loads[1].p50, loads[1].p99),
            (report.histogram("digit", Term::Compute).unwrap().quantile(0.5), None)
        );
        let mut busy = crate::report::test_report::report();
        busy.nodes[2].worker = 1;
        busy.wall = std::time::Duration::from_micros(10_000);
        busy.histograms[0].term = Term::Compute;
        busy.histograms[0].node = "score".into();
        let of = |n: usize| super::loads(&busy)[n].share.unwrap();
        assert!((of(1) + of(2) - 1.0).abs() < 1e-9 && of(1) > of(2), "{} {}", of(1), of(2));
    }
}
