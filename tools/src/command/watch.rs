//! Watches a run: prints its events, writes its intervals to the log, and stops it at its end time.

use super::arguments::RunArguments;
use crate::dump::IntervalLog;
use crate::monitor::Monitor;
use crate::page::ReportPage;
use crate::terminal::events::RateLimiter;
use crate::terminal::interrupt::{Interrupt, name_unfinished};
use crate::terminal::log::{self, print_error, print_info};
use crate::terminal::progress::ProgressLine;
use crate::text::escape::one_line;
use limen::{Events, Plan, Report, RunError, Running};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// A run that has ended.
pub(super) struct Ended {
    pub(super) report: Report,
    /// The path of the interval log, if one was asked for.
    pub(super) log: Option<io::Result<PathBuf>>,
    /// The page, if one was asked for.
    pub(super) page: Option<ReportPage>,
}

/// Runs a plan to its end, its `--duration`, a signal, or a monitor's request to stop.
pub(super) fn execute(plan: Plan, arguments: &RunArguments, monitor: Option<Monitor>) -> Result<Ended, RunError> {
    // Printed even with `--quiet`.
    for node in plan.nodes() {
        node.notices.iter().for_each(|notice| print_error(&format!("limen-run: `{}` {}", node.name, one_line(notice))));
    }
    if let (None, None, false) = (arguments.duration, arguments.frames, arguments.quiet)
        && let Some(node) = plan.nodes().iter().find(|node| node.endless)
    {
        let name = one_line(&node.name);
        print_info(&format!(
            "limen-run: `{name}` does not end by itself: stop the run with Ctrl-C, --duration or --frames"
        ));
    }
    let interrupt = Interrupt::install();
    let duration = arguments.duration.map(|duration| duration.0);
    let progress = ProgressLine::new(&plan, arguments.frames, duration, arguments.quiet);
    let name = plan.graph().to_string();
    let page = arguments.report.is_some().then(|| ReportPage::new(&plan));
    let mut running = plan.wire()?.start()?;
    interrupt.stops(running.stopper());
    let every = arguments.interval.map_or(Duration::from_secs(1), |interval| interval.0);
    let folder = arguments.histograms.as_ref().filter(|_| !every.is_zero());
    let log = folder.map(|folder| IntervalLog::create(folder, &name, running.started()));
    // The page has a point a second whatever the log has.
    let every = if page.is_some() && every.is_zero() { Duration::from_secs(1) } else { every };
    let intervals = Intervals { log, every, last: Instant::now() };
    let mut watch =
        Watch { events: running.events(), limiter: RateLimiter::default(), progress, intervals, page, monitor };
    watch.intervals.write(&running, true, &mut watch.page);
    let end = arguments.duration.and_then(|d| Instant::now().checked_add(d.0));
    if !watch.until(&mut running, end) {
        running.stopper().stop();
        // From here the graph's own `run.stop` is the deadline.
        watch.until(&mut running, None);
    }
    let report = running.wait();
    watch.print_events(true);
    watch.progress.clear();
    let log = watch.intervals.log.map(|log| log?.finish(&report));
    // A node that hangs will never complete its file.
    name_unfinished();
    Ok(Ended { report, log, page: watch.page })
}

/// Writes the histograms of each interval to the log.
struct Intervals {
    log: Option<io::Result<IntervalLog>>,
    every: Duration,
    /// The last write.
    last: Instant,
}

impl Intervals {
    /// Writes the intervals that have ended, if one is due. After an error, which is reported at the end, writes nothing more.
    fn write(&mut self, running: &Running, at_once: bool, page: &mut Option<ReportPage>) {
        if page.is_none() && !matches!(self.log, Some(Ok(_))) {
            return;
        }
        // Some intervals arrive a little after they are due.
        if !at_once && self.last.elapsed() + POLL < self.every {
            return;
        }
        let intervals = running.intervals();
        if intervals.is_empty() {
            return;
        }
        self.last = Instant::now();
        if let Some(page) = page {
            page.add_intervals(&intervals);
        }
        if let Some(Ok(log)) = &mut self.log
            && let Err(error) = log.write(&intervals)
        {
            self.log = Some(Err(error));
        }
    }
}

/// How often events are read and the progress line is drawn.
const POLL: Duration = Duration::from_millis(100);

/// Everything that watches a run.
struct Watch {
    events: Events,
    limiter: RateLimiter,
    progress: ProgressLine,
    intervals: Intervals,
    page: Option<ReportPage>,
    monitor: Option<Monitor>,
}

impl Watch {
    /// Watches until the graph has ended or `end` is reached; returns whether the graph has ended.
    fn until(&mut self, running: &mut Running, end: Option<Instant>) -> bool {
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let has_ended = running.wait_for(left.min(POLL));
            self.print_events(false);
            self.intervals.write(running, false, &mut self.page);
            // Asked once for all: an edge tells its highest fill since it was asked last.
            let monitor_asks = self.monitor.as_mut().is_some_and(Monitor::read);
            let is_asked = self.page.is_some() || self.progress.is_due() || monitor_asks;
            let edges = if is_asked { running.edge_stats() } else { Vec::new() };
            if let Some(page) = &mut self.page {
                page.look(&edges);
            }
            if let Some(monitor) = &mut self.monitor {
                monitor.answer(running, &edges);
            }
            if has_ended {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.progress.show(running, &edges);
        }
    }

    /// Prints new events; if `all`, also those that the rate limit still withholds.
    #[allow(clippy::disallowed_methods, reason = "lines of a log begin with the wall-clock time")]
    fn print_events(&mut self, all: bool) {
        for event in self.events.by_ref() {
            if let Some(page) = &mut self.page {
                page.add_event(&event);
            }
            if let Some(line) = self.limiter.add(event) {
                self.progress.print_above(|| log::print_event(&line));
            }
        }
        for line in self.limiter.due(SystemTime::now(), all) {
            self.progress.print_above(|| log::print_event(&line));
        }
    }
}
