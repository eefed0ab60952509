//! What a running graph says on stderr: one line an event, as many of one kind at one node or edge as one a second.
//!
//! The first of a kind is said at once. What follows it within a second is counted, and told in one line when the second is over:
//! `… ×37 more: ` and the last of them.

use crate::text::escape::one_line;
use limen::{Event, EventKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often one kind of event at one node or edge is told.
const EVERY: Duration = Duration::from_secs(1);

/// Events of one kind at one place: when they were last told, and what has come since.
#[derive(Debug)]
struct Kept {
    told: SystemTime,
    more: u64,
    last: Option<Event>,
}

/// Decides which events are told.
#[derive(Debug, Default)]
pub(crate) struct Teller(BTreeMap<(&'static str, String), Kept>);

/// An event that is told, and for how many it stands, itself included; 0 for one that was not kept back.
#[derive(Debug)]
pub(crate) struct Told {
    event: Event,
    more: u64,
}

impl Teller {
    /// An event happened. What is to be told of it now.
    pub(crate) fn hear(&mut self, event: Event) -> Option<Told> {
        let key = (event.kind.name(), place(&event.kind));
        if let Some(kept) = self.0.get_mut(&key) {
            kept.more += 1;
            kept.last = Some(event);
            return None;
        }
        self.0.insert(key, Kept { told: event.wall, more: 0, last: None });
        Some(Told { event, more: 0 })
    }

    /// What was counted for a second, or where `all`, at all, is told; what has been quiet for a second is forgotten.
    pub(crate) fn due(&mut self, now: SystemTime, all: bool) -> Vec<Told> {
        let mut told = Vec::new();
        self.0.retain(|_, kept| {
            // A wall clock that was set back does not silence anybody.
            let is_due = all || now.duration_since(kept.told).map_or(true, |passed| passed >= EVERY);
            if !is_due {
                return true;
            }
            let Some(event) = kept.last.take() else { return false };
            told.push(Told { event, more: std::mem::take(&mut kept.more) });
            kept.told = now;
            true
        });
        told
    }
}

/// Where it happened; what has no place is told by what it says.
fn place(kind: &EventKind) -> String {
    match kind {
        EventKind::Lost { edge, reason, .. } => format!("{edge} {}", reason.name()),
        EventKind::Refused { text } => text.clone(),
        kind => kind.edge().or(kind.node()).unwrap_or_default().to_string(),
    }
}

impl Told {
    /// The line for people.
    pub(crate) fn text(&self) -> String {
        let when = humantime::format_rfc3339_millis(self.event.wall);
        let more = if self.more > 1 { format!("… ×{} more: ", self.more) } else { String::new() };
        format!("{when} {more}{}", one_line(&self.event.to_string()))
    }

    /// The line for programs: `time` (seconds since 1970), `level`, `message`, `event` (its kind), `at` (ns of the run's clock), `node`
    /// and `edge` where it has them, and `count`, for how many events it stands.
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
        for (key, value) in [("node", kind.node()), ("edge", kind.edge())] {
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
        // There is no other way to one but a run.
        let mut event = limen_event();
        event.wall = UNIX_EPOCH + Duration::from_millis(ms);
        event.time = Time(ms * 1_000_000);
        event.kind = kind;
        event
    }

    /// Any event at all: a run whose node fails has one.
    fn limen_event() -> Event {
        let text = "version: 1\nnodes:\n  n: { kind: synthetic, config: { pattern: counter, count: 1 }, on_error: skip, \
                    fault: { error_at: 1 } }\n  z: { kind: \"null\", from: n }\n";
        let plan = limen::Plan::new(limen::Spec::from_text(text, "g.yaml").unwrap(), &crate::registry()).unwrap();
        let mut graph = plan.wire().unwrap().drive(limen::Clock::Simulated(Default::default())).unwrap();
        graph.turn();
        graph.next_event().unwrap()
    }

    #[test]
    fn the_first_is_told_at_once_and_others_once_a_second() {
        let mut teller = Teller::default();
        let returned = |node: &str| EventKind::Restarted { node: node.into() };
        let clock = |by| EventKind::ClockSet { by };
        let mut lines = Vec::new();
        let mut tell = |told: Vec<Told>| lines.extend(told.iter().map(Told::text));
        for n in 0..80 {
            tell(teller.hear(event(n * 10, returned("arm"))).into_iter().collect());
        }
        tell(teller.hear(event(800, returned("leg"))).into_iter().collect());
        tell(teller.hear(event(810, clock(-1_000_000_000))).into_iter().collect());
        for ms in [900, 1_000, 1_100] {
            tell(teller.due(UNIX_EPOCH + Duration::from_millis(ms), false));
        }
        // Within the second after a line that stood for others it is counted again; after a quiet second it is told at once.
        tell(teller.hear(event(1_500, returned("arm"))).into_iter().collect());
        tell(teller.due(UNIX_EPOCH + Duration::from_millis(2_000), false));
        tell(teller.due(UNIX_EPOCH + Duration::from_millis(3_000), false));
        tell(teller.hear(event(4_500, returned("leg"))).into_iter().collect());
        tell(teller.hear(event(4_600, returned("leg"))).into_iter().collect());
        tell(teller.due(UNIX_EPOCH + Duration::from_millis(4_700), true));
        let lines: Vec<&str> = lines.iter().map(|line| line.strip_prefix("1970-01-01T00:00:0").unwrap()).collect();
        assert_eq!(
            lines,
            [
                "0.000Z `arm` was restarted",
                "0.800Z `leg` was restarted",
                "0.810Z the wall clock was set back by 1.00 s; no time measured here depends on it",
                "0.790Z … ×79 more: `arm` was restarted",
                "1.500Z `arm` was restarted",
                "4.500Z `leg` was restarted",
                "4.600Z `leg` was restarted",
            ]
        );
        assert!(teller.due(UNIX_EPOCH + Duration::from_secs(9), false).is_empty());
        assert!(teller.0.is_empty(), "{teller:?}");
    }

    #[test]
    fn a_line_for_programs_has_everything() {
        let mut teller = Teller::default();
        let kind = || EventKind::Hangs { node: "arm".into(), limit: Duration::from_millis(100) };
        let told = teller.hear(event(1_500, kind())).unwrap();
        assert_eq!(
            told.json(),
            json!({ "time": 1.5, "level": "warning", "event": "hangs", "node": "arm", "at": 1_500_000_000, "count": 1,
                    "message": "`arm` has been in one turn for more than 100 ms" })
        );
        assert!(teller.hear(event(1_600, kind())).is_none() && teller.hear(event(1_700, kind())).is_none());
        let told = teller.due(UNIX_EPOCH + Duration::from_secs(3), false);
        assert_eq!((told.len(), &told[0].json()["count"]), (1, &json!(2)));
    }
}
