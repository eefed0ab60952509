//! The parts of a report in JSON whose keys are not simply the names of their fields.

use super::{EdgeReport, HandleKind, HandleReport, HistogramReport, Outcome, Reason, TailCause, TailCauseReport, Term};
use crate::base::json::{as_nanos, by_name, object};
use crate::node::metrics::Metrics;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

by_name!(HandleKind, Outcome, Reason, TailCause, Term);

fn by_reason(lost: &[(Reason, u64)]) -> BTreeMap<&'static str, u64> {
    lost.iter().map(|(reason, n)| (reason.name(), *n)).collect()
}

/// The keys `lost`, `discarded` and `metrics`.
impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let lost: BTreeMap<&str, u64> = self.losses().collect();
        let discarded: BTreeMap<&str, u64> = self.discards().collect();
        let metrics: BTreeMap<&str, f64> = self.iter().collect();
        object!(to, lost: lost, discarded: discarded, metrics: metrics)
    }
}

/// Serializes what messages pass through: some of its fields, then what became of the messages.
macro_rules! by_fate {
    ($type:ty: $($field:ident),*) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                object!(
                    to,
                    $($field: self.$field,)*
                    sent: self.sent,
                    received: self.received,
                    lost: by_reason(&self.lost),
                    discarded: self.discarded_total(),
                    left: self.left,
                    counted: self.counted,
                )
            }
        }
    };
}

by_fate!(EdgeReport: from, to, capacity, when_full, crossing);
by_fate!(HandleReport: name, kind);

impl Serialize for HistogramReport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (histogram, quantile) = (&self.recorded.histogram, |q| self.recorded.quantile(q));
        let any = !histogram.is_empty();
        object!(
            to,
            tag: self.tag(),
            node: self.node,
            to: self.to,
            term: self.term,
            unit: self.unit(),
            count: histogram.len(),
            samples: self.recorded.samples,
            min: any.then(|| histogram.min()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: any.then(|| histogram.max()),
            mean: any.then(|| (histogram.mean() * 10.0).round() / 10.0),
        )
    }
}

impl Serialize for TailCauseReport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        object!(
            to,
            cause: self.cause,
            node: self.node,
            behind: self.behind,
            messages: self.messages,
            excess_ns: as_nanos(self.excess),
            longest_ns: as_nanos(self.longest),
            text: self.to_string(),
        )
    }
}

/// The cause as a table shows it.
impl fmt::Display for TailCauseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.as_deref().unwrap_or("?");
        match (self.cause, &self.behind) {
            (TailCause::Queued, Some(behind)) if behind == node => {
                write!(f, "queued at {node} after earlier calls")
            }
            (TailCause::Queued, Some(behind)) => write!(f, "queued at {node} after calls of {behind}"),
            (TailCause::Queued, None) => write!(f, "queued at {node}"),
            (TailCause::Partner, _) => write!(f, "waited at {node} for a partner"),
            (TailCause::Batch, _) => write!(f, "waited at {node} for a batch"),
            (TailCause::NoRoom, _) => write!(f, "no room downstream of {node}"),
            (TailCause::WokenLate, _) => write!(f, "{node} was woken late"),
            (TailCause::Preempted, _) => write!(f, "{node} was preempted"),
            (TailCause::Blocked, _) => write!(f, "{node} waited in the kernel"),
            (TailCause::PageFault, _) => write!(f, "page faults in {node}"),
            (TailCause::Quota, _) => write!(f, "{node} was stopped: the CPU quota was used up"),
            (TailCause::SlowCpu, _) => write!(f, "a long call of {node} on a CPU that was slowed down"),
            (TailCause::Restarted, _) => write!(f, "{node} had failed and was restarted"),
            (TailCause::Migrated, _) => write!(f, "{node} was moved to another CPU"),
            (TailCause::Cold, _) => write!(f, "{node} was cold: first call, or after a pause"),
            (TailCause::DeviceBusy, _) => write!(f, "the device of {node} was busy"),
            (TailCause::Compute, _) => write!(f, "a long call of {node}"),
            (TailCause::Source, _) => write!(f, "old when {node} sent it"),
            (TailCause::ClockStep, _) => write!(f, "{node}: the wall clock was set"),
            (TailCause::Unexplained, _) => f.write_str("unexplained"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::policy::{RealTime, RtPolicy};
    use crate::report::{TailReport, WorkerReport};
    use serde_json::{json, to_value};
    use std::time::Duration;

    /// The parts that a simulated run does not have; `tools/tests/json_keys.rs` has the others.
    #[test]
    fn tails_handles_and_threads_have_their_keys() {
        let (node, behind) = (Some("a".into()), Some("b".into()));
        let (excess, longest) = (Duration::from_micros(5), Duration::from_micros(7));
        let cause = TailCauseReport { cause: TailCause::Queued, node, behind, messages: 3, excess, longest };
        let (from, to, limit) = ("a".into(), "z".into(), Duration::from_nanos(9));
        let tail = TailReport { from, to, quantile: 0.5, limit, beyond: 4, judged: 3, causes: vec![cause] };
        let (name, kind) = ("in".into(), HandleKind::Inlet);
        let lost = vec![(Reason::Superseded, 2), (Reason::Stopped, 1)];
        let handle = HandleReport { name, kind, sent: 9, received: 6, lost, left: 0, counted: true };
        let mut worker = WorkerReport { name: "limen-0".into(), ..WorkerReport::default() };
        worker.pinned.real_time = Some(RealTime { policy: RtPolicy::Rr, priority: 7 });
        for (found, expected) in [
            (
                to_value(tail),
                json!({ "from": "a", "to": "z", "quantile": 0.5, "limit_ns": 9, "beyond": 4, "judged": 3,
                        "causes": [{ "cause": "queued", "node": "a", "behind": "b", "messages": 3, "excess_ns": 5000,
                                     "longest_ns": 7000, "text": "queued at a after calls of b" }] }),
            ),
            (
                to_value(handle),
                json!({ "name": "in", "kind": "inlet", "sent": 9, "received": 6,
                        "lost": { "superseded": 2, "stopped": 1 }, "discarded": 2, "left": 0, "counted": true }),
            ),
            (
                to_value(worker),
                json!({ "name": "limen-0", "cpu": null, "floats": null, "cpus": [], "refused": null,
                        "wait": "adaptive", "real_time": "rr 7", "abandoned": false }),
            ),
        ] {
            assert_eq!(found.unwrap(), expected);
        }
    }
}
