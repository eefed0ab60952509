//! Watches a run: prints its events, writes its intervals to the log, and stops it at its end time.

use super::arguments::RunArguments;
use crate::dump::IntervalLog;
use crate::metrics::RunMetrics;
#[cfg(feature = "otlp")]
use crate::metrics::exporter::{Exported, OtlpExporter};
use crate::metrics::server::MetricsServer;
use crate::monitor::Monitor;
use crate::page::ReportPage;
use crate::picture::Picture;
use crate::terminal::events::RateLimiter;
use crate::terminal::interrupt::{Interrupt, name_unfinished};
use crate::terminal::log::{self, print_error, print_info};
use crate::terminal::progress::ProgressLine;
use crate::text::escape::one_line;
use crate::trace::TraceFile;
#[cfg(feature = "otlp")]
use limen::run::NodeStats;
use limen::run::{EdgeStats, IntervalReport, Spans};
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
    /// How many spans are missing in the trace, if one was asked for.
    pub(super) trace: Option<io::Result<u64>>,
    /// The picture, if one was asked for.
    pub(super) picture: Option<Picture>,
    /// The last message to a collector, to be sent when everything else is done, because that may
    /// take some time.
    #[cfg(feature = "otlp")]
    pub(super) export: Option<LastExport>,
}

/// A message to a collector that is still to be sent.
#[cfg(feature = "otlp")]
pub(super) struct LastExport {
    exporter: OtlpExporter,
    message: Vec<u8>,
}

#[cfg(feature = "otlp")]
impl LastExport {
    /// Sends it, and tells what became of all of the run.
    pub(super) fn send(self) {
        let url = one_line(self.exporter.url());
        let Exported { taken, lost, error } = self.exporter.finish(self.message);
        if let Some(error) = error {
            let (of, error) = (taken + lost, one_line(&error));
            print_error(&format!("limen-run: --otlp {url}: {lost} of {of} messages failed (first error: {error})"));
        }
    }
}

/// Who is told of a run while it goes on.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) server: Option<MetricsServer>,
    #[cfg(feature = "otlp")]
    pub(super) exporter: Option<OtlpExporter>,
    pub(super) monitor: Option<Monitor>,
}

impl Listeners {
    fn want_metrics(&self) -> bool {
        #[cfg(feature = "otlp")]
        if self.exporter.is_some() {
            return true;
        }
        self.server.is_some()
    }
}

/// Prints what the user must know of a plan before it runs.
pub(super) fn print_notices(plan: &Plan, arguments: &RunArguments) {
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
}

/// Runs a plan to its end, its `--duration`, a signal, or a monitor's request to stop. Tells the
/// listeners of it.
pub(super) fn execute(plan: Plan, arguments: &RunArguments, listeners: Listeners) -> Result<Ended, RunError> {
    print_notices(&plan, arguments);
    let interrupt = Interrupt::install();
    let _unwaiting = log::Unwaiting::begin();
    let duration = arguments.duration.map(|duration| duration.0);
    let progress = ProgressLine::new(&plan, arguments.frames, duration, arguments.quiet);
    let name = plan.graph().to_string();
    let page = arguments.report.is_some().then(|| ReportPage::new(&plan));
    let trace = arguments.trace.as_ref().map(|path| TraceFile::create(path, &plan));
    let picture = arguments.has_picture().then(|| Picture::new(&plan));
    let mut metrics = listeners.want_metrics().then(|| RunMetrics::new(&plan));
    let mut running = plan.wire()?.start()?;
    if let Some(metrics) = &mut metrics {
        metrics.set_run_id(running.run_id());
    }
    interrupt.stops(running.stopper());
    let every = arguments.interval.map_or(Duration::from_secs(1), |interval| interval.0);
    let folder = arguments.histograms.as_ref().filter(|_| !every.is_zero());
    let log = folder.map(|folder| IntervalLog::create(folder, &name, running.started()));
    // The page and the metrics have a point a second whatever the log has.
    let every = if (page.is_some() || metrics.is_some()) && every.is_zero() { Duration::from_secs(1) } else { every };
    let intervals = Intervals { log, every, last: Instant::now() };
    let mut watch = Watch {
        events: running.events(),
        limiter: RateLimiter::new(log::is_json()),
        progress,
        intervals,
        page,
        picture,
        metrics,
        listeners,
        trace: Tracing { file: trace, spans: running.spans() },
    };
    watch.write_intervals(&running, true);
    let end = arguments.duration.and_then(|d| Instant::now().checked_add(d.0));
    if !watch.until(&mut running, end) {
        running.stopper().stop();
        // From here the graph's own `run.stop` is the deadline.
        watch.until(&mut running, None);
    }
    #[cfg(feature = "otlp")]
    let (edges, stats) = (running.edge_stats(), running.stats());
    let report = running.wait();
    #[cfg(feature = "otlp")]
    let export = watch.last_export(&edges, &stats, &report);
    watch.print_events(true);
    watch.progress.clear();
    watch.trace.write(&[]);
    let log = watch.intervals.log.map(|log| log?.finish(&report));
    let trace = watch.trace.file.map(|file| file?.finish());
    // A node that hangs will never complete its file.
    name_unfinished();
    if let Some(picture) = &mut watch.picture {
        picture.finish(&report);
    }
    Ok(Ended {
        report,
        log,
        page: watch.page,
        picture: watch.picture,
        trace,
        #[cfg(feature = "otlp")]
        export,
    })
}

/// Writes the histograms of each interval to the log.
struct Intervals {
    log: Option<io::Result<IntervalLog>>,
    every: Duration,
    /// The last write.
    last: Instant,
}

impl Intervals {
    /// Takes the intervals that have ended, if one is due, and writes them to the log. After an
    /// error, which is reported at the end, writes nothing more.
    fn take(&mut self, running: &Running, at_once: bool) -> Vec<IntervalReport> {
        // Some intervals arrive a little after they are due.
        if !at_once && self.last.elapsed() + POLL < self.every {
            return Vec::new();
        }
        let intervals = running.intervals();
        if intervals.is_empty() {
            return intervals;
        }
        self.last = Instant::now();
        if let Some(Ok(log)) = &mut self.log
            && let Err(error) = log.write(&intervals)
        {
            self.log = Some(Err(error));
        }
        intervals
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
    picture: Option<Picture>,
    metrics: Option<RunMetrics>,
    listeners: Listeners,
    trace: Tracing,
}

/// The trace, if one was asked for. After an error, which is reported at the end, nothing more is
/// written.
struct Tracing {
    file: Option<io::Result<TraceFile>>,
    spans: Spans,
}

impl Tracing {
    fn is_on(&self) -> bool {
        matches!(self.file, Some(Ok(_)))
    }

    fn try_write(&mut self, write: impl FnOnce(&mut TraceFile, &Spans) -> io::Result<()>) {
        if let Some(Ok(file)) = &mut self.file
            && let Err(error) = write(file, &self.spans)
        {
            self.file = Some(Err(error));
        }
    }

    fn write(&mut self, edges: &[EdgeStats]) {
        self.try_write(|file, spans| file.write(spans, edges));
    }
}

impl Watch {
    /// Takes the intervals that have ended, if anyone wants them and one is due.
    fn write_intervals(&mut self, running: &Running, at_once: bool) {
        if self.page.is_none() && self.metrics.is_none() && !matches!(self.intervals.log, Some(Ok(_))) {
            return;
        }
        let intervals = self.intervals.take(running, at_once);
        if let Some(page) = &mut self.page {
            page.add_intervals(&intervals);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.add_intervals(&intervals);
        }
    }

    /// Whether anything but the progress line shows edges.
    fn wants_edges(&self) -> bool {
        self.page.is_some() || self.picture.is_some() || self.metrics.is_some() || self.trace.is_on()
    }

    /// Watches until the graph has ended or `end` is reached; returns whether the graph has ended.
    fn until(&mut self, running: &mut Running, end: Option<Instant>) -> bool {
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let has_ended = running.wait_for(left.min(POLL));
            self.print_events(false);
            self.write_intervals(running, false);
            // Asked once for all: an edge tells its peak depth since it was asked last.
            let monitor_asks = self.listeners.monitor.as_mut().is_some_and(Monitor::read);
            let is_asked = self.wants_edges() || self.progress.is_due() || monitor_asks;
            let edges = if is_asked { running.edge_stats() } else { Vec::new() };
            if let Some(page) = &mut self.page {
                page.look(&edges);
            }
            self.trace.write(&edges);
            if let Some(picture) = &mut self.picture {
                picture.look(&edges);
            }
            if let Some(metrics) = &mut self.metrics {
                metrics.look(&edges);
                if let Some(server) = &mut self.listeners.server {
                    server.poll(|| {
                        metrics.look_at_paths(&running.path_stats());
                        metrics.text(&running.stats())
                    });
                }
                #[cfg(feature = "otlp")]
                if let Some(exporter) = &mut self.listeners.exporter {
                    exporter.poll(|| {
                        metrics.look_at_paths(&running.path_stats());
                        otlp(metrics, &running.stats(), running.started())
                    });
                }
            }
            if let Some(monitor) = &mut self.listeners.monitor {
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

    /// The metrics of a run that has ended, to be sent.
    #[cfg(feature = "otlp")]
    fn last_export(&mut self, edges: &[EdgeStats], nodes: &[NodeStats], report: &Report) -> Option<LastExport> {
        let (metrics, exporter) = (self.metrics.as_mut()?, self.listeners.exporter.take()?);
        metrics.look(edges);
        metrics.conclude(report);
        Some(LastExport { exporter, message: otlp(metrics, nodes, report.started) })
    }

    /// Prints new events; if `all`, also those that the rate limit still withholds.
    #[allow(clippy::disallowed_methods, reason = "lines of a log begin with the wall-clock time")]
    fn print_events(&mut self, all: bool) {
        for event in self.events.by_ref() {
            if let Some(page) = &mut self.page {
                page.add_event(&event);
            }
            self.trace.try_write(|file, _| file.add_event(&event));
            if let Some(line) = self.limiter.add(event) {
                self.progress.print_above(|| log::print_event(&line));
            }
        }
        for line in self.limiter.due(SystemTime::now(), all) {
            self.progress.print_above(|| log::print_event(&line));
        }
    }
}

/// The metrics as a message of OTLP.
#[cfg(feature = "otlp")]
#[allow(clippy::disallowed_methods, reason = "a collector wants the wall-clock time")]
fn otlp(metrics: &RunMetrics, nodes: &[NodeStats], started: SystemTime) -> Vec<u8> {
    metrics.otlp(nodes, started, SystemTime::now())
}
