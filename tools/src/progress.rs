//! One line on a terminal that says how far a run is. Off where stderr is not a terminal.

use crate::table::one_line;
use limen::unit::show_ns;
use limen::{Plan, Role, Running};
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Often enough to see that it moves, rarely enough to cost nothing.
pub(crate) const EVERY: Duration = Duration::from_millis(500);

/// What fits on the narrowest terminal in use without wrapping.
const WIDTH: usize = 79;

/// The line, and which nodes it counts.
#[derive(Debug)]
pub(crate) struct Progress {
    ends: Vec<String>,
    began: Instant,
    shown: bool,
    on: bool,
}

impl Progress {
    /// Counts the sources and sinks of a plan.
    pub(crate) fn new(plan: &Plan, quiet: bool) -> Self {
        let ends = plan.nodes().iter().filter(|n| matches!(n.role, Role::Source | Role::Sink));
        Progress {
            ends: ends.map(|n| n.name.clone()).collect(),
            began: Instant::now(),
            shown: false,
            on: !quiet && stderr().is_terminal(),
        }
    }

    /// Writes the line anew.
    pub(crate) fn show(&mut self, running: &Running) {
        if !self.on {
            return;
        }
        let stats = running.stats();
        let counts = stats.iter().filter(|s| self.ends.contains(&s.node)).map(|s| format!("{} {}", s.node, s.done));
        let time = show_ns(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let line = format!("{time}  {}", counts.collect::<Vec<_>>().join("  "));
        let line: String = one_line(&line).chars().take(WIDTH).collect();
        self.shown = write!(stderr(), "\r\x1b[K{line}").is_ok();
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            // A terminal that is gone is not this run's problem.
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
