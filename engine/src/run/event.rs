//! Events of a running graph, as values.
//!
//! Workers put notices into a bounded queue ([`crate::run::running`]); readers get them from it as
//! events. Where and how often events are shown is up to the reader.

use crate::base::policy::OnError;
use crate::base::unit::show_ns;
use crate::edge::Reason;
use crate::host::clock::Time;
use crate::host::cpu_throttle::CpuThrottle;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Something that happened while a graph ran: a failure, a loss, a missed deadline, a disconnect.
/// [`Display`](fmt::Display) formats it without the time.
///
/// ```
/// use limen::{Event, EventKind};
/// fn show(event: &Event) {
///     match &event.kind {
///         EventKind::Failed { node, text, .. } => eprintln!("{node} failed: {text}"),
///         kind if kind.is_recovery() => eprintln!("over: {event}"),
///         kind => eprintln!("{}: {event}", kind.name()),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The time, by the run's clock.
    pub time: Time,
    /// The same moment by the wall clock, as set when the event was read.
    pub wall: SystemTime,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A call of a node failed.
    Failed {
        /// Name of the node.
        node: String,
        /// The call that failed: `call`, `next`, `infer`, `finish`, `drop`; `restart` if the node
        /// has used up its restarts.
        call: &'static str,
        /// How many calls of the node had ended before.
        number: u64,
        /// The error or panic message, at most 256 bytes.
        text: String,
        /// Whether it panicked.
        panicked: bool,
        /// The node's `on_error` policy.
        then: OnError,
    },
    /// A failed node will be restarted.
    Restarting {
        /// Name of the node.
        node: String,
        /// The time until the restart.
        after: Duration,
    },
    /// A failed node has been restarted.
    Restarted {
        /// Name of the node.
        node: String,
    },
    /// A failed node is detached, and the rest of the graph continues (`on_error: detach`).
    Detached {
        /// Name of the node.
        node: String,
    },
    /// An input has been silent for longer than its `expect_every`. Reported once per silence.
    Gap {
        /// Name of the node that reads from the edge.
        node: String,
        /// The edge, as `node/port -> node/port`.
        edge: String,
        /// Its `expect_every`.
        every: Duration,
    },
    /// Messages come again through an input that has been silent for longer than its
    /// `expect_every`.
    GapEnded {
        /// Name of the node that reads from the edge.
        node: String,
        /// The edge, as `node/port -> node/port`.
        edge: String,
        /// How long it was silent.
        after: Duration,
    },
    /// The last message of a node that checks their age is too old, or none arrived. Reported once
    /// until a younger message arrives.
    Stale {
        /// Name of the node.
        node: String,
        /// The age from which a message is too old.
        limit: Duration,
    },
    /// A node whose messages were too old has a younger message.
    StaleEnded {
        /// Name of the node.
        node: String,
        /// For how long it had none.
        after: Duration,
    },
    /// A turn of a node has taken longer than `watchdog` and has not ended.
    Hangs {
        /// Name of the node.
        node: String,
        /// The `watchdog` of the graph.
        limit: Duration,
    },
    /// A model call in flight, which its worker does not wait for, has taken longer than `watchdog`
    /// and has not ended.
    Overdue {
        /// Name of the node.
        node: String,
        /// The `watchdog` of the graph.
        limit: Duration,
    },
    /// A turn or call that took longer than `watchdog` has ended.
    Returned {
        /// Name of the node.
        node: String,
        /// How long it took.
        took: Duration,
    },
    /// An edge lost a larger fraction of its messages than `drops_above` allows. Reported at most
    /// once a second per edge and reason.
    Lost {
        /// The edge, as `node/port -> node/port`.
        edge: String,
        /// Why they were lost.
        reason: Reason,
        /// How many were lost. More than `of` if messages of earlier windows were queued.
        count: u64,
        /// How many were sent in this window.
        of: u64,
        /// The time since the last check.
        within: Duration,
        /// For a join, the part of latencies upstream of it that took longest, if that explains the
        /// loss; else empty.
        slowest: String,
    },
    /// A node itself lost a larger number of messages than `drops_above` allows for the calls that
    /// it had. Reported at most once a second per node and reason.
    LostInside {
        /// Name of the node.
        node: String,
        /// Why they were lost: `malformed`, `too_large`, `overrun`, `unsent`.
        reason: String,
        /// How many were lost.
        count: u64,
        /// How many calls it had in this window.
        of: u64,
        /// The time since the last check.
        within: Duration,
        /// What was wrong with the first of them, at most 256 bytes; empty if the node does not say
        /// it.
        first: String,
    },
    /// Something was wrong with a larger number of a node's messages than `drops_above` allows for
    /// the calls that it had, and they are not lost: values are missing. Reported once, and again
    /// after a second without any.
    Incidents {
        /// Name of the node.
        node: String,
        /// What was wrong: `missing`.
        what: String,
        /// With how many messages.
        count: u64,
        /// How many calls it had in this window.
        of: u64,
        /// The time since the last check.
        within: Duration,
        /// What was wrong with the first of them, at most 256 bytes.
        first: String,
    },
    /// What cost a node messages is over: a disk is no longer full. Reported at most once a second
    /// per node and reason.
    Recovered {
        /// Name of the node.
        node: String,
        /// Why messages were lost: `disk_full`.
        reason: String,
        /// How many were lost for it so far.
        lost: u64,
    },
    /// An attempt of a node to open its device, or to connect to its peer, has failed. Reported
    /// when the error is another than last time.
    NotConnected {
        /// Name of the node.
        node: String,
        /// What failed, with the system's error, at most 256 bytes.
        why: String,
    },
    /// A node lost its device or peer. Reported at most once a second per node.
    Disconnected {
        /// Name of the node.
        node: String,
        /// How many connections ended since the last check.
        count: u64,
        /// Why the last of them ended, at most 256 bytes; empty if the node does not say it.
        why: String,
    },
    /// A node has its device or a peer again.
    Reconnected {
        /// Name of the node.
        node: String,
    },
    /// The clock that gives a source's messages their times was set back, and a new segment began.
    /// Reported at most once a second per node.
    SteppedBack {
        /// Name of the node.
        node: String,
        /// How often since the last such event.
        count: u64,
        /// By how much the last time.
        by: Duration,
    },
    /// Nothing has arrived through a path with a deadline for 3 s, or three times as long as usual.
    /// Reported once per silence.
    Silent {
        /// The path, as `source -> sink`.
        path: String,
        /// For how long.
        time: Duration,
    },
    /// Messages arrive again through a path that was silent.
    SilenceEnded {
        /// The path, as `source -> sink`.
        path: String,
        /// How long nothing had arrived.
        after: Duration,
    },
    /// A join has had no set for a second, or three times as long as usual, because one of its
    /// inputs gets no messages while others do. Reported once until it has a set again.
    Starves {
        /// Name of the node.
        node: String,
        /// The edge that it waits for, as `node/port -> node/port`.
        edge: String,
        /// For how long it has had no set.
        time: Duration,
    },
    /// A join that starved has sets again.
    StarvingEnded {
        /// Name of the node.
        node: String,
        /// How long it had had no set.
        after: Duration,
    },
    /// Messages of a path came after its deadline. Reported at most once a second per path.
    Missed {
        /// The path, as `source -> sink`.
        path: String,
        /// How many came too late.
        count: u64,
        /// How many were judged in this window.
        of: u64,
        /// The path's deadline.
        deadline: Duration,
        /// The time since the last check.
        within: Duration,
        /// The part of the path's latencies that took longest, and how long; empty if none stands
        /// out or it is not known yet.
        slowest: String,
    },
    /// The wall clock was set. No time measured by the graph depends on it.
    ClockSet {
        /// By how many nanoseconds; negative if it was set back.
        by: i64,
    },
    /// Something kept CPUs of the run from doing as much as they can. Reported at most once a
    /// second.
    CpuThrottled {
        /// What it was.
        by: CpuThrottle,
    },
    /// The system or a node refused a request: pinning, real time, a setting.
    Refused {
        /// The request and the reason.
        text: String,
    },
    /// Events were lost because the queue was full.
    EventsLost {
        /// How many.
        count: u64,
    },
}

impl EventKind {
    /// The word used in logs: `failed`, `gap`, `hangs`.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the node it happened to.
    pub fn node(&self) -> Option<&str> {
        match self {
            EventKind::Failed { node, .. }
            | EventKind::Restarting { node, .. }
            | EventKind::Restarted { node }
            | EventKind::Detached { node }
            | EventKind::Gap { node, .. }
            | EventKind::GapEnded { node, .. }
            | EventKind::Stale { node, .. }
            | EventKind::StaleEnded { node, .. }
            | EventKind::Hangs { node, .. }
            | EventKind::Overdue { node, .. }
            | EventKind::LostInside { node, .. }
            | EventKind::Incidents { node, .. }
            | EventKind::Recovered { node, .. }
            | EventKind::NotConnected { node, .. }
            | EventKind::Disconnected { node, .. }
            | EventKind::Reconnected { node }
            | EventKind::SteppedBack { node, .. }
            | EventKind::Starves { node, .. }
            | EventKind::StarvingEnded { node, .. }
            | EventKind::Returned { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Returns the edge it happened to, as `node/port -> node/port`.
    pub fn edge(&self) -> Option<&str> {
        match self {
            EventKind::Gap { edge, .. }
            | EventKind::GapEnded { edge, .. }
            | EventKind::Lost { edge, .. }
            | EventKind::Starves { edge, .. } => Some(edge),
            _ => None,
        }
    }

    /// Returns the path it happened to, as `source -> sink`.
    pub fn path(&self) -> Option<&str> {
        match self {
            EventKind::Missed { path, .. } | EventKind::Silent { path, .. } | EventKind::SilenceEnded { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }

    /// Returns whether it reports the end of a problem.
    pub fn is_recovery(&self) -> bool {
        matches!(
            self,
            EventKind::Restarted { .. }
                | EventKind::Returned { .. }
                | EventKind::GapEnded { .. }
                | EventKind::StaleEnded { .. }
                | EventKind::Recovered { .. }
                | EventKind::Reconnected { .. }
                | EventKind::SilenceEnded { .. }
                | EventKind::StarvingEnded { .. }
        )
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
            EventKind::Restarting { node, after } => write!(f, "`{node}` restarts in {}", show(after)),
            EventKind::Restarted { node } => write!(f, "`{node}` was restarted"),
            EventKind::Detached { node } => write!(f, "`{node}` is detached, other nodes continue"),
            EventKind::Gap { edge, every, .. } => {
                write!(f, "no message arrived on {edge} for more than {}", show(every))
            }
            EventKind::GapEnded { edge, after, .. } => {
                write!(f, "messages arrive on {edge} again after {}", show(after))
            }
            EventKind::Stale { node, limit } => {
                write!(f, "`{node}` is stale: no message younger than {} arrived", show(limit))
            }
            EventKind::StaleEnded { node, after } => write!(f, "`{node}` is fresh again after {}", show(after)),
            EventKind::Hangs { node, limit } => {
                write!(f, "`{node}` has not returned for more than {}", show(limit))
            }
            EventKind::Overdue { node, limit } => {
                write!(f, "a call of `{node}` has been in flight for more than {}", show(limit))
            }
            EventKind::Returned { node, took } => write!(f, "`{node}` returned after {}", show(took)),
            EventKind::Lost { edge, reason, count, of, within, slowest } => {
                let at = edge.rsplit_once(" -> ").map_or(edge.as_str(), |(_, to)| to);
                // These had arrived earlier, so they may be more than those of the window.
                let queued = match reason {
                    Reason::FullOldest | Reason::Expired | Reason::Unmatched => "queued ",
                    _ => "",
                };
                let (s, reason, within) = (if *count == 1 { "" } else { "s" }, reason.name(), show(within));
                write!(
                    f,
                    "lost {count} {queued}message{s} at {at} ({reason}); {of} arrived in this window of {within}"
                )?;
                if slowest.is_empty() { Ok(()) } else { write!(f, "; slowest upstream: {slowest}") }
            }
            EventKind::LostInside { node, reason, count, of, within, first } => {
                let (s, calls) = (if *count == 1 { "" } else { "s" }, if *of == 1 { "call" } else { "calls" });
                write!(f, "`{node}` lost {count} message{s} ({reason}) in {of} {calls} within {}", show(within))?;
                if first.is_empty() { Ok(()) } else { write!(f, "; the first: {first}") }
            }
            EventKind::Incidents { node, what, count, of, within, first } => {
                let (s, calls) = (if *count == 1 { "" } else { "s" }, if *of == 1 { "call" } else { "calls" });
                write!(f, "`{node}`: {count} message{s} ({what}) in {of} {calls} within {}", show(within))?;
                if first.is_empty() { Ok(()) } else { write!(f, "; the first: {first}") }
            }
            EventKind::Recovered { node, reason, lost } => {
                let s = if *lost == 1 { "" } else { "s" };
                write!(f, "`{node}` has recovered ({reason}) and has lost {lost} message{s} so far")
            }
            EventKind::NotConnected { node, why } => write!(f, "`{node}` {why}"),
            EventKind::Disconnected { node, count, why } => {
                write!(f, "`{node}` was disconnected")?;
                match (count, why.is_empty()) {
                    (1, true) => Ok(()),
                    (1, false) => write!(f, ": {why}"),
                    (_, true) => write!(f, " {count} times"),
                    (_, false) => write!(f, " {count} times, the last time: {why}"),
                }
            }
            EventKind::Reconnected { node } => write!(f, "`{node}` is connected again"),
            EventKind::SteppedBack { node, count, by } => {
                let times = if *count == 1 { String::new() } else { format!("{count} times, the last time ") };
                write!(f, "the message clock of `{node}` was set back {times}by {}: a new segment begins", show(by))
            }
            EventKind::Silent { path, time } => write!(f, "{path}: nothing arrived for {}", show(time)),
            EventKind::SilenceEnded { path, after } => {
                write!(f, "{path}: messages arrive again after {}", show(after))
            }
            EventKind::StarvingEnded { node, after } => write!(f, "`{node}` reads sets again after {}", show(after)),
            EventKind::Starves { node, edge, time } => {
                write!(f, "`{node}` has read no set for {}: no message arrives on {edge}", show(time))
            }
            EventKind::Missed { path, count, of, deadline, within, slowest } => {
                let (deadline, within) = (show(deadline), show(within));
                write!(f, "{path} missed its deadline of {deadline}: {count} of {of} messages in {within}")?;
                if slowest.is_empty() { Ok(()) } else { write!(f, "; slowest part: {slowest}") }
            }
            EventKind::ClockSet { by } => {
                let direction = if *by < 0 { "back" } else { "forward" };
                write!(f, "the wall clock was set {direction} by {}, which does not affect measured times", {
                    show_ns(by.unsigned_abs())
                })
            }
            EventKind::CpuThrottled { by } => by.fmt(f),
            EventKind::Refused { text } => f.write_str(text),
            EventKind::EventsLost { count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "{count} event{s} lost: the queue was full")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_events_have_units() {
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
            (EventKind::Restarting { node: node(), after: ms(100) }, "`arm` restarts in 100 ms"),
            (EventKind::Restarted { node: node() }, "`arm` was restarted"),
            (EventKind::Detached { node: node() }, "`arm` is detached, other nodes continue"),
            (
                EventKind::Gap { node: node(), edge: edge(), every: ms(100) },
                "no message arrived on imu/out -> arm/in for more than 100 ms",
            ),
            (
                EventKind::Stale { node: node(), limit: ms(100) },
                "`arm` is stale: no message younger than 100 ms arrived",
            ),
            (EventKind::StaleEnded { node: node(), after: ms(230) }, "`arm` is fresh again after 230 ms"),
            (EventKind::Hangs { node: node(), limit: ms(1000) }, "`arm` has not returned for more than 1.00 s"),
            (EventKind::Returned { node: node(), took: ms(1234) }, "`arm` returned after 1.23 s"),
            (
                EventKind::Overdue { node: node(), limit: ms(20) },
                "a call of `arm` has been in flight for more than 20.0 ms",
            ),
            (
                EventKind::Lost {
                    edge: edge(),
                    reason: Reason::FullNewest,
                    count: 3,
                    of: 200,
                    within: ms(1000),
                    slowest: String::new(),
                },
                "lost 3 messages at arm/in (full_newest); 200 arrived in this window of 1.00 s",
            ),
            (
                EventKind::Lost {
                    edge: edge(),
                    reason: Reason::Unmatched,
                    count: 119,
                    of: 30,
                    within: ms(1000),
                    slowest: String::new(),
                },
                "lost 119 queued messages at arm/in (unmatched); 30 arrived in this window of 1.00 s",
            ),
            (
                EventKind::Lost {
                    edge: edge(),
                    reason: Reason::Expired,
                    count: 1,
                    of: 0,
                    within: ms(1000),
                    slowest: String::new(),
                },
                "lost 1 queued message at arm/in (expired); 0 arrived in this window of 1.00 s",
            ),
            (
                EventKind::LostInside {
                    node: node(),
                    reason: "malformed".into(),
                    count: 9,
                    of: 200,
                    within: ms(1000),
                    first: String::new(),
                },
                "`arm` lost 9 messages (malformed) in 200 calls within 1.00 s",
            ),
            (
                EventKind::LostInside {
                    node: node(),
                    reason: "malformed".into(),
                    count: 9,
                    of: 200,
                    within: ms(1000),
                    first: "`gyro` is missing: \"{}\"".into(),
                },
                "`arm` lost 9 messages (malformed) in 200 calls within 1.00 s; the first: `gyro` is missing: \"{}\"",
            ),
            (EventKind::Silent { path: "imu -> arm".into(), time: ms(3000) }, "imu -> arm: nothing arrived for 3.00 s"),
            (
                EventKind::Starves { node: node(), edge: edge(), time: ms(1000) },
                "`arm` has read no set for 1.00 s: no message arrives on imu/out -> arm/in",
            ),
            (
                EventKind::GapEnded { node: node(), edge: edge(), after: ms(4200) },
                "messages arrive on imu/out -> arm/in again after 4.20 s",
            ),
            (
                EventKind::SilenceEnded { path: "imu -> arm".into(), after: ms(4200) },
                "imu -> arm: messages arrive again after 4.20 s",
            ),
            (EventKind::StarvingEnded { node: node(), after: ms(4200) }, "`arm` reads sets again after 4.20 s"),
            (
                EventKind::Recovered { node: node(), reason: "disk_full".into(), lost: 37 },
                "`arm` has recovered (disk_full) and has lost 37 messages so far",
            ),
            (
                EventKind::NotConnected { node: node(), why: "could not be opened again: no such device".into() },
                "`arm` could not be opened again: no such device",
            ),
            (EventKind::Disconnected { node: node(), count: 1, why: String::new() }, "`arm` was disconnected"),
            (
                EventKind::Disconnected { node: node(), count: 2, why: "unplugged".into() },
                "`arm` was disconnected 2 times, the last time: unplugged",
            ),
            (EventKind::Reconnected { node: node() }, "`arm` is connected again"),
            (
                EventKind::SteppedBack { node: node(), count: 1, by: Duration::from_millis(4_900) },
                "the message clock of `arm` was set back by 4.90 s: a new segment begins",
            ),
            (
                EventKind::SteppedBack { node: node(), count: 3, by: Duration::from_secs(2) },
                "the message clock of `arm` was set back 3 times, the last time by 2.00 s: a new segment begins",
            ),
            (
                EventKind::Missed {
                    path: "imu -> arm".into(),
                    count: 3,
                    of: 200,
                    deadline: ms(20),
                    within: ms(1000),
                    slowest: "queued at arm (4.80 s)".into(),
                },
                "imu -> arm missed its deadline of 20.0 ms: 3 of 200 messages in 1.00 s; slowest part: queued at arm (4.80 s)",
            ),
            (
                EventKind::ClockSet { by: -3_000_000_000 },
                "the wall clock was set back by 3.00 s, which does not affect measured times",
            ),
            (
                EventKind::CpuThrottled { by: CpuThrottle::Quota { times: 3, stopped: ms(240) } },
                "the CPU quota was used up in 3 periods, which stopped CPUs for 240 ms in total",
            ),
            (
                EventKind::CpuThrottled { by: CpuThrottle::Heat { cpu: Some(2), times: 1 } },
                "heat slowed CPU 2 down 1 time",
            ),
            (
                EventKind::CpuThrottled { by: CpuThrottle::Frequency { cpus: 1, khz: 1_200_000, of_khz: 3_600_000 } },
                "the frequency of 1 CPU is limited to 1.20 of 3.60 GHz",
            ),
            (EventKind::Refused { text: "no CPU 9".into() }, "no CPU 9"),
            (EventKind::EventsLost { count: 7 }, "7 events lost: the queue was full"),
        ] {
            assert_eq!(kind.to_string(), expected);
        }
    }
}
