//! The progress line of a run. Off if stderr is not a terminal, and if nodes of the graph print lines on the same terminal: those
//! show the progress.

use crate::terminal::log;
use crate::text::escape::one_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use limen::plan::Role;
use limen::{Plan, Running};
use std::io::{IsTerminal, stderr, stdout};
use std::time::{Duration, Instant};

/// The time between two updates.
const EVERY: Duration = Duration::from_millis(500);

/// The line and the nodes that it counts.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    began: Instant,
    shown: Instant,
    bound: Bound,
    /// Sources and sinks.
    ends: Vec<(String, Role)>,
}

/// What bounds a run, if anything.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Time,
    Messages,
    None,
}

impl ProgressLine {
    /// A bar if the end of the run is known, else a spinner.
    pub(crate) fn new(plan: &Plan, frames: Option<u64>, duration: Option<Duration>, quiet: bool) -> Self {
        let prints = stdout().is_terminal() && plan.nodes().iter().any(|node| prints_lines(&node.kind));
        let on = !quiet && !log::is_json() && stderr().is_terminal() && !prints;
        let target = if on { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        // The number of messages of all sources, if it is known for each.
        let sources = plan.nodes().iter().filter(|node| node.role == Role::Source);
        let of = |total: Option<u64>| total.into_iter().chain(frames).min();
        let messages = sources.map(|source| of(source.total)).sum::<Option<u64>>();
        let (bound, length, template) = match (duration, messages) {
            (Some(duration), _) => (Bound::Time, Some(millis(duration)), "{bar:30} {elapsed}, {eta} left  {wide_msg}"),
            (None, Some(messages)) => (Bound::Messages, Some(messages), "{bar:30} {pos}/{len}, {eta} left  {wide_msg}"),
            (None, None) => (Bound::None, None, "{spinner} {elapsed}  {wide_msg}"),
        };
        let bar = ProgressBar::with_draw_target(length, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let ends = plan.nodes().iter().filter(|node| matches!(node.role, Role::Source | Role::Sink));
        let ends = ends.map(|node| (node.name.clone(), node.role)).collect();
        ProgressLine { bar, began: Instant::now(), shown: Instant::now(), bound, ends }
    }

    /// Prints something above the line.
    pub(crate) fn print_above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Updates the line, unless it was updated just now.
    pub(crate) fn show(&mut self, running: &Running) {
        if self.bar.is_hidden() || self.shown.elapsed() < EVERY {
            return;
        }
        self.shown = Instant::now();
        let stats = running.stats();
        let done = |name: &str| stats.iter().find(|stats| stats.node == name).map_or(0, |stats| stats.done);
        let counts: Vec<String> =
            self.ends.iter().map(|(name, _)| format!("{} {}", one_line(name), done(name))).collect();
        self.bar.set_message(counts.join("  "));
        match self.bound {
            Bound::Time => self.bar.set_position(millis(self.began.elapsed())),
            Bound::Messages => {
                let sources = self.ends.iter().filter(|(_, role)| *role == Role::Source);
                self.bar.set_position(sources.map(|(name, _)| done(name)).sum());
            }
            Bound::None => self.bar.tick(),
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Whether nodes of a kind print lines on stdout.
fn prints_lines(kind: &str) -> bool {
    matches!(kind, "console" | "stdout")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
