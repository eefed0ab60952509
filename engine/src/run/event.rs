//! Events: what happens to a graph while it runs, as values.
//!
//! Workers put what they notice into a bounded queue ([`crate::run::running`]); here is what comes out of it for whoever reads, and how it is
//! said in words. Whether, where and how often it is said is the reader's affair.

use crate::base::policy::OnError;
use crate::base::unit::show_ns;
use crate::edge::Reason;
use crate::host::clock::Time;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Something that happened while a graph ran. [`Display`](fmt::Display) says it in words, without the time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When, by the run's clock.
    pub time: Time,
    /// The same moment by the wall clock, as that stood when the event was read.
    pub wall: SystemTime,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A call of a node failed.
    Failed {
        /// The node.
        node: String,
        /// Which of its calls: `call`, `next`, `infer`, `finish`, `drop`; `restart` where it has been built again too often.
        call: &'static str,
        /// How many calls of the node had ended before.
        number: u64,
        /// What it said, at most 256 bytes of it.
        text: String,
        /// Whether it panicked.
        panicked: bool,
        /// What follows.
        then: OnError,
    },
    /// A node that failed is to be built again.
    Restarting {
        /// The node.
        node: String,
        /// How long after this.
        after: Duration,
    },
    /// A node that failed has been built again.
    Restarted {
        /// The node.
        node: String,
    },
    /// A node that failed is out, and the rest goes on (`on_error: detach`).
    Detached {
        /// The node.
        node: String,
    },
    /// An input has been silent for longer than its `expect_every`. Said once for each silence.
    Gap {
        /// The node that waits.
        node: String,
        /// The edge, as `node/port -> node/port`.
        edge: String,
        /// Its `expect_every`.
        every: Duration,
    },
    /// A turn of a node has lasted for longer than `watchdog`, and lasts.
    Hangs {
        /// The node.
        node: String,
        /// The `watchdog` of the graph.
        limit: Duration,
    },
    /// A call of a model that its worker does not wait for has lasted for longer than `watchdog`, and lasts.
    Overdue {
        /// The node.
        node: String,
        /// The `watchdog` of the graph.
        limit: Duration,
    },
    /// A turn or call that lasted for longer than `watchdog` has ended.
    Returned {
        /// The node.
        node: String,
        /// How long it took.
        took: Duration,
    },
    /// An edge lost a larger part of its messages than `drops_above` allows. Said once a second, edge and reason.
    Lost {
        /// The edge, as `node/port -> node/port`.
        edge: String,
        /// Why they were lost.
        reason: Reason,
        /// How many.
        count: u64,
        /// Of how many that were sent in this time.
        of: u64,
        /// The time since edges were last looked at.
        within: Duration,
    },
    /// Somebody set the wall clock. No time that the graph measures depends on it.
    ClockSet {
        /// By how many nanoseconds; negative where it was set back.
        by: i64,
    },
    /// The system, or a node, refused something that was asked of it: pinning, real time, a setting.
    Refused {
        /// What, and why.
        text: String,
    },
    /// So many events happened that nobody will hear of: nobody read for too long.
    EventsLost {
        /// How many.
        count: u64,
    },
}

impl EventKind {
    /// The word used in logs: `failed`, `gap`, `hangs`.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Failed { .. } => "failed",
            EventKind::Restarting { .. } => "restarting",
            EventKind::Restarted { .. } => "restarted",
            EventKind::Detached { .. } => "detached",
            EventKind::Gap { .. } => "gap",
            EventKind::Hangs { .. } => "hangs",
            EventKind::Overdue { .. } => "overdue",
            EventKind::Returned { .. } => "returned",
            EventKind::Lost { .. } => "lost",
            EventKind::ClockSet { .. } => "clock_set",
            EventKind::Refused { .. } => "refused",
            EventKind::EventsLost { .. } => "events_lost",
        }
    }

    /// The node it happened to.
    pub fn node(&self) -> Option<&str> {
        match self {
            EventKind::Failed { node, .. }
            | EventKind::Restarting { node, .. }
            | EventKind::Restarted { node }
            | EventKind::Detached { node }
            | EventKind::Gap { node, .. }
            | EventKind::Hangs { node, .. }
            | EventKind::Overdue { node, .. }
            | EventKind::Returned { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The edge it happened to, as `node/port -> node/port`.
    pub fn edge(&self) -> Option<&str> {
        match self {
            EventKind::Gap { edge, .. } | EventKind::Lost { edge, .. } => Some(edge),
            _ => None,
        }
    }

    /// Whether it tells that something which went wrong is over.
    pub fn is_recovery(&self) -> bool {
        matches!(self, EventKind::Restarted { .. } | EventKind::Returned { .. })
    }
}

fn show(time: &Duration) -> String {
    show_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventKind::Failed { node, call, number, text, then, .. } => {
                let s = if *number == 1 { "" } else { "s" };
                let then = if *then == OnError::Stop { "; the run stops" } else { "" };
                write!(f, "`{node}` failed in `{call}` after {number} call{s}: {text}{then}")
            }
            EventKind::Restarting { node, after } => write!(f, "`{node}` is built again in {}", show(after)),
            EventKind::Restarted { node } => write!(f, "`{node}` has been built again and goes on"),
            EventKind::Detached { node } => write!(f, "`{node}` is taken out; the rest goes on"),
            EventKind::Gap { edge, every, .. } => {
                write!(f, "nothing came through {edge} for more than {}", show(every))
            }
            EventKind::Hangs { node, limit } => {
                write!(f, "`{node}` has been in one turn for more than {}", show(limit))
            }
            EventKind::Overdue { node, limit } => {
                write!(f, "a call of `{node}` has been on its way for more than {}", show(limit))
            }
            EventKind::Returned { node, took } => write!(f, "`{node}` returned after {}", show(took)),
            EventKind::Lost { edge, reason, count, of, within } => {
                let (reason, within) = (reason.name(), show(within));
                write!(f, "{edge} lost {count} of {of} messages in {within} ({reason})")
            }
            EventKind::ClockSet { by } => {
                let way = if *by < 0 { "back" } else { "forward" };
                write!(f, "the wall clock was set {way} by {}; no time measured here depends on it", {
                    show_ns(by.unsigned_abs())
                })
            }
            EventKind::Refused { text } => f.write_str(text),
            EventKind::EventsLost { count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "{count} event{s} lost: nobody read them in time")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_said_with_units() {
        let node = || "arm".to_string();
        let edge = || "imu/out -> arm/in".to_string();
        let ms = Duration::from_millis;
        let failed = |panicked, then| EventKind::Failed {
            node: node(),
            call: "call",
            number: 1,
            text: "no current".into(),
            panicked,
            then,
        };
        for (kind, expected) in [
            (failed(false, OnError::Skip), "`arm` failed in `call` after 1 call: no current"),
            (failed(true, OnError::Stop), "`arm` failed in `call` after 1 call: no current; the run stops"),
            (EventKind::Restarting { node: node(), after: ms(100) }, "`arm` is built again in 100 ms"),
            (EventKind::Restarted { node: node() }, "`arm` has been built again and goes on"),
            (EventKind::Detached { node: node() }, "`arm` is taken out; the rest goes on"),
            (
                EventKind::Gap { node: node(), edge: edge(), every: ms(100) },
                "nothing came through imu/out -> arm/in for more than 100 ms",
            ),
            (EventKind::Hangs { node: node(), limit: ms(1000) }, "`arm` has been in one turn for more than 1.00 s"),
            (EventKind::Returned { node: node(), took: ms(1234) }, "`arm` returned after 1.23 s"),
            (
                EventKind::Overdue { node: node(), limit: ms(20) },
                "a call of `arm` has been on its way for more than 20.0 ms",
            ),
            (
                EventKind::Lost { edge: edge(), reason: Reason::FullNewest, count: 3, of: 200, within: ms(1000) },
                "imu/out -> arm/in lost 3 of 200 messages in 1.00 s (full_newest)",
            ),
            (
                EventKind::ClockSet { by: -3_000_000_000 },
                "the wall clock was set back by 3.00 s; no time measured here depends on it",
            ),
            (EventKind::Refused { text: "no CPU 9".into() }, "no CPU 9"),
            (EventKind::EventsLost { count: 7 }, "7 events lost: nobody read them in time"),
        ] {
            assert_eq!(kind.to_string(), expected);
        }
    }
}
