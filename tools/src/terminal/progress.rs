//! The progress line of a run: what sources and sinks did and how fast, what was lost, and the
//! slowest node of the last second. Off if stderr is not a terminal, and if nodes of the graph
//! print lines on the same terminal: those show the progress.

use crate::terminal::log;
use crate::text::escape::one_line;
use crate::text::number::figure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use limen::plan::Role;
use limen::run::{EdgeStats, NodeStats};
use limen::{Plan, Running};
use std::collections::HashMap;
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
    bound: RunBound,
    /// Sources and sinks.
    ends: Vec<(String, Role)>,
    /// What all sources had begun at which time.
    before: (Instant, u64),
}

/// What bounds a run, if anything.
#[derive(Clone, Copy, Debug)]
enum RunBound {
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
            (Some(duration), _) => {
                (RunBound::Time, Some(millis(duration)), "{bar:30} {elapsed}, {eta} left  {wide_msg}")
            }
            (None, Some(messages)) => {
                (RunBound::Messages, Some(messages), "{bar:30} {pos}/{len}, {eta} left  {wide_msg}")
            }
            (None, None) => (RunBound::None, None, "{spinner} {elapsed}  {wide_msg}"),
        };
        let bar = ProgressBar::with_draw_target(length, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let ends = plan.nodes().iter().filter(|node| matches!(node.role, Role::Source | Role::Sink));
        let ends = ends.map(|node| (node.name.clone(), node.role)).collect();
        let now = Instant::now();
        ProgressLine { bar, began: now, shown: now, bound, ends, before: (now, 0) }
    }

    /// Prints something above the line.
    pub(crate) fn print_above(&self, print: impl FnOnce()) {
        // The line is redrawn when stderr is read again.
        if self.bar.is_hidden() || !log::takes_lines() { print() } else { self.bar.suspend(print) }
    }

    /// Whether there is a line, and it was not updated just now.
    pub(crate) fn is_due(&self) -> bool {
        !self.bar.is_hidden() && self.shown.elapsed() >= EVERY && log::takes_lines()
    }

    /// Updates the line if that is due.
    pub(crate) fn show(&mut self, running: &Running, edges: &[EdgeStats]) {
        if !self.is_due() {
            return;
        }
        self.shown = Instant::now();
        let stats = running.stats();
        let done: HashMap<&str, u64> = stats.iter().map(|stats| (&*stats.node, stats.done)).collect();
        let done = |name: &str| done.get(name).copied().unwrap_or(0);
        let sources = self.ends.iter().filter(|(_, role)| *role == Role::Source);
        let begun: u64 = sources.map(|(name, _)| done(name)).sum();
        let lost: u64 = edges.iter().map(|edge| edge.lost).sum();
        let (then, before) = std::mem::replace(&mut self.before, (self.shown, begun));
        let rate = begun.saturating_sub(before) as f64 / (self.shown - then).as_secs_f64().max(1e-9);
        self.bar.set_message(line(
            rate,
            lost,
            slowest(&stats),
            self.ends.iter().map(|(name, _)| (&**name, done(name))),
        ));
        match self.bound {
            RunBound::Time => self.bar.set_position(millis(self.began.elapsed())),
            RunBound::Messages => {
                let sources = self.ends.iter().filter(|(_, role)| *role == Role::Source);
                self.bar.set_position(sources.map(|(name, _)| done(name)).sum());
            }
            RunBound::None => self.bar.tick(),
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if log::takes_lines() {
            self.bar.finish_and_clear();
        }
    }
}

/// The text of the line; what matters most comes first, because a narrow terminal cuts it off.
fn line<'a>(rate: f64, lost: u64, slowest: Option<(&str, u64)>, ends: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut text = format!("{}/s", figure(rate.round()));
    if lost > 0 {
        text += &format!("  lost {lost}");
    }
    if let Some((name, time)) = slowest {
        text += &format!("  slowest {} {}", one_line(name), limen::unit::show_ns(time));
    }
    ends.for_each(|(name, done)| text += &format!("  {} {done}", one_line(name)));
    text
}

/// The node whose calls took longest in the last second, by their median, or by the longest where
/// there were few.
fn slowest(stats: &[NodeStats]) -> Option<(&str, u64)> {
    let times = stats.iter().filter_map(|stats| {
        let window = stats.compute.filter(|window| window.count > 0)?;
        Some((stats.node.as_str(), window.p50.or(window.max)?))
    });
    times.max_by_key(|(_, time)| *time)
}

/// Whether nodes of a kind print lines on stdout.
fn prints_lines(kind: &str) -> bool {
    matches!(kind, "console" | "stdout")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_what_matters() {
        let ends = [("cam", 12_000u64), ("out", 11_990)];
        for (lost, slowest, expected) in [
            (0, None, "4000/s  cam 12000  out 11990"),
            (10, Some(("net", 1_250_000)), "4000/s  lost 10  slowest net 1.25 ms  cam 12000  out 11990"),
        ] {
            assert_eq!(line(3999.6, lost, slowest, ends.into_iter()), expected);
        }
    }
}
