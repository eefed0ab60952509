//! Events of a running graph on stderr: one line per event, at most one a second for each kind and
//! node or edge.
//!
//! The first event is printed at once. Those that follow within a second are counted, and printed
//! as one line when the second is over: `… ×37 more: ` and the last of them. Seconds in which less
//! than one message in a hundred missed its deadline are added up, and printed as one line a
//! minute.

use crate::text::escape::one_line;
use limen::{Event, EventKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time between two lines about one kind of event at one node or edge.
const EVERY: Duration = Duration::from_secs(1);

/// The time between two lines about a path of which few messages miss the deadline, and how many of
/// a hundred are few.
const FEW_EVERY: Duration = Duration::from_secs(60);
const FEW_PERCENT: u64 = 1;

/// Events of one kind at one place: when they were last printed, and how many came since.
#[derive(Debug)]
struct Withheld {
    printed: SystemTime,
    /// The time until the next line.
    every: Duration,
    more: u64,
    last: Option<Event>,
}

/// Limits the rate of event lines.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    withheld: BTreeMap<(&'static str, String), Withheld>,
    /// Whether few missed deadlines are added up.
    sums: bool,
}

/// An event to print, and the number of events that it stands for, itself included; 0 if it was not
/// withheld.
#[derive(Debug)]
pub(crate) struct EventLine {
    event: Event,
    more: u64,
}

impl RateLimiter {
    /// `is_json`: programs get every second in which a deadline was missed.
    pub(crate) fn new(is_json: bool) -> Self {
        RateLimiter { withheld: BTreeMap::new(), sums: !is_json }
    }

    /// Adds an event; returns its line if it is to be printed now.
    pub(crate) fn add(&mut self, mut event: Event) -> Option<EventLine> {
        let key = (event.kind.name(), place(&event.kind));
        let every = if self.sums && are_few(&event.kind) { FEW_EVERY } else { EVERY };
        if let Some(withheld) = self.withheld.get_mut(&key) {
            let is_sum =
                self.sums && withheld.last.take().is_some_and(|before| add_misses(&mut event.kind, &before.kind));
            withheld.more = if is_sum { 1 } else { withheld.more + 1 };
            (withheld.last, withheld.every) = (Some(event), every);
            return None;
        }
        self.withheld.insert(key, Withheld { printed: event.wall, every, more: 0, last: None });
        Some(EventLine { event, more: 0 })
    }

    /// Returns the lines for events withheld for a second, or for all withheld events if `all`.
    /// Forgets kinds and places without an event for a second.
    pub(crate) fn due(&mut self, now: SystemTime, all: bool) -> Vec<EventLine> {
        let mut lines = Vec::new();
        self.withheld.retain(|_, withheld| {
            // `duration_since` fails if the wall clock was set back: the event is due then, too.
            let is_due = all || now.duration_since(withheld.printed).map_or(true, |passed| passed >= withheld.every);
            if !is_due {
                return true;
            }
            let Some(event) = withheld.last.take() else { return false };
            lines.push(EventLine { event, more: std::mem::take(&mut withheld.more) });
            withheld.printed = now;
            true
        });
        lines
    }
}

/// Whether few messages of a path missed its deadline.
fn are_few(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Missed { count, of, .. } if count.saturating_mul(100) < of.saturating_mul(FEW_PERCENT))
}

/// Adds the misses of earlier seconds; false for other events.
fn add_misses(to: &mut EventKind, before: &EventKind) -> bool {
    let (EventKind::Missed { count, of, within, .. }, EventKind::Missed { count: more, of: judged, within: time, .. }) =
        (to, before)
    else {
        return false;
    };
    (*count, *of, *within) = (*count + more, *of + judged, *within + *time);
    true
}

/// The place of an event: its node or edge, or its text if it has neither.
fn place(kind: &EventKind) -> String {
    match kind {
        EventKind::Lost { edge, reason, .. } => format!("{edge} {}", reason.name()),
        EventKind::LostInside { node, reason, .. }
        | EventKind::Recovered { node, reason, .. }
        | EventKind::Incidents { node, what: reason, .. } => format!("{node} {reason}"),
        EventKind::Refused { text } => text.clone(),
        EventKind::CpuThrottled { by } => format!("{:?}", std::mem::discriminant(by)),
        kind => kind.edge().or(kind.path()).or(kind.node()).unwrap_or_default().to_string(),
    }
}

impl EventLine {
    /// The line as text.
    pub(crate) fn text(&self) -> String {
        let when = humantime::format_rfc3339_millis(self.event.wall);
        let more = if self.more > 1 { format!("… ×{} more: ", self.more) } else { String::new() };
        format!("{when} {more}{}", one_line(&self.event.to_string()))
    }

    /// The line as JSON: `time` (seconds since 1970), `level`, `message`, `event` (its kind), `at`
    /// (ns of the run's clock), `node` and `edge` or `path` if it has them, and `count`, the number
    /// of events it stands for.
    pub(crate) fn json(&self) -> Value {
        let Event { wall, kind, .. } = &self.event;
        let time = wall.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let mut object = json!({
            "time": time,
            "level": if kind.is_recovery() { "info" } else { "warning" },
            "message": kind.to_string(),
            "event": kind.name(),
            "at": self.event.time.0,
            "count": self.more.max(1),
        });
        for (key, value) in [("node", kind.node()), ("edge", kind.edge()), ("path", kind.path())] {
            if let Some(value) = value {
                object[key] = value.into();
            }
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::Time;

    fn event(ms: u64, kind: EventKind) -> Event {
        // Only a run can make an event.
        let mut event = limen_event();
        event.wall = UNIX_EPOCH + Duration::from_millis(ms);
        event.time = Time(ms * 1_000_000);
        event.kind = kind;
        event
    }

    /// Some event, made by a run with a failing node.
    fn limen_event() -> Event {
        let text = "version: 1\nnodes:\n  n: { kind: synthetic, config: { pattern: counter, count: 1 }, on_error: skip, \
                    fault: { error_at: 1 } }\n  z: { kind: \"null\", from: n }\n";
        let plan = limen::Plan::new(limen::Spec::from_text(text, "g.yaml").unwrap(), &crate::registry()).unwrap();
        let mut graph = plan.wire().unwrap().drive(limen::Clock::Simulated(Default::default())).unwrap();
        graph.turn();
        graph.next_event().unwrap()
    }

    #[test]
    fn the_first_event_is_printed_at_once_and_further_ones_once_a_second() {
        let mut limiter = RateLimiter::new(false);
        let returned = |node: &str| EventKind::Restarted { node: node.into() };
        let clock = |by| EventKind::ClockSet { by };
        let mut lines = Vec::new();
        let mut print = |due: Vec<EventLine>| lines.extend(due.iter().map(EventLine::text));
        for n in 0..80 {
            print(limiter.add(event(n * 10, returned("arm"))).into_iter().collect());
        }
        print(limiter.add(event(800, returned("leg"))).into_iter().collect());
        print(limiter.add(event(810, clock(-1_000_000_000))).into_iter().collect());
        for ms in [900, 1_000, 1_100] {
            print(limiter.due(UNIX_EPOCH + Duration::from_millis(ms), false));
        }
        // Within a second after such a line events are counted again; after a quiet second they are
        // printed at once.
        print(limiter.add(event(1_500, returned("arm"))).into_iter().collect());
        print(limiter.due(UNIX_EPOCH + Duration::from_millis(2_000), false));
        print(limiter.due(UNIX_EPOCH + Duration::from_millis(3_000), false));
        print(limiter.add(event(4_500, returned("leg"))).into_iter().collect());
        print(limiter.add(event(4_600, returned("leg"))).into_iter().collect());
        print(limiter.due(UNIX_EPOCH + Duration::from_millis(4_700), true));
        let lines: Vec<&str> = lines.iter().map(|line| line.strip_prefix("1970-01-01T00:00:0").unwrap()).collect();
        assert_eq!(
            lines,
            [
                "0.000Z `arm` was restarted",
                "0.800Z `leg` was restarted",
                "0.810Z the wall clock was set back by 1.00 s, which does not affect measured times",
                "0.790Z … ×79 more: `arm` was restarted",
                "1.500Z `arm` was restarted",
                "4.500Z `leg` was restarted",
                "4.600Z `leg` was restarted",
            ]
        );
        assert!(limiter.due(UNIX_EPOCH + Duration::from_secs(9), false).is_empty());
        assert!(limiter.withheld.is_empty(), "{limiter:?}");
    }

    #[test]
    fn few_missed_deadlines_are_one_line_a_minute() {
        let ms = Duration::from_millis;
        let missed = |count| EventKind::Missed {
            path: "cam -> act".into(),
            count,
            of: 1000,
            deadline: ms(10),
            within: ms(1000),
            slowest: String::new(),
        };
        for (is_json, many_at, expected) in [
            (false, None, &["0 1 of 1000", "60 60 of 60000", "120 60 of 60000", "129 9 of 9000"][..]),
            // More than one in a hundred are printed with those before them.
            (false, Some(30), &["0 1 of 1000", "30 49 of 30000", "90 60 of 60000", "129 39 of 39000"]),
        ] {
            let mut limiter = RateLimiter::new(is_json);
            let mut lines: Vec<EventLine> = Vec::new();
            for second in 0..130 {
                let count = if many_at == Some(second) { 20 } else { 1 };
                lines.extend(limiter.add(event(second * 1000, missed(count))));
                lines.extend(limiter.due(UNIX_EPOCH + ms(second * 1000), false));
            }
            lines.extend(limiter.due(UNIX_EPOCH + ms(130_000), true));
            let shown = |line: &EventLine| match &line.event.kind {
                EventKind::Missed { count, of, .. } => {
                    format!("{} {count} of {of}", line.event.wall.duration_since(UNIX_EPOCH).unwrap().as_secs())
                }
                _ => line.text(),
            };
            assert!(lines.iter().all(|line| !line.text().contains('…')));
            assert_eq!(lines.iter().map(shown).collect::<Vec<_>>(), expected);
        }
        let mut json = RateLimiter::new(true);
        let mut told = 0;
        for second in 0..100 {
            told += json.add(event(second * 1000, missed(1))).into_iter().count();
            told += json.due(UNIX_EPOCH + ms(second * 1000), false).len();
        }
        assert!(told >= 99, "{told}");
    }

    #[test]
    fn a_json_line_has_all_keys() {
        let mut limiter = RateLimiter::new(true);
        let kind = || EventKind::Hangs { node: "arm".into(), limit: Duration::from_millis(100) };
        let line = limiter.add(event(1_500, kind())).unwrap();
        assert_eq!(
            line.json(),
            json!({ "time": 1.5, "level": "warning", "event": "hangs", "node": "arm", "at": 1_500_000_000, "count": 1,
                    "message": "`arm` has not returned for more than 100 ms" })
        );
        assert!(limiter.add(event(1_600, kind())).is_none() && limiter.add(event(1_700, kind())).is_none());
        let lines = limiter.due(UNIX_EPOCH + Duration::from_secs(3), false);
        assert_eq!((lines.len(), &lines[0].json()["count"]), (1, &json!(2)));
    }
}
