//! Beside a run: what it says goes to the terminal, what its intervals recorded into the log, and it ends when it is to.

use super::arguments::RunArguments;
use crate::dump::IntervalLog;
use crate::terminal::events::Teller;
use crate::terminal::interrupt::{Interrupt, name_unfinished};
use crate::terminal::log::{self, complain, tell};
use crate::terminal::progress::Progress;
use crate::text::escape::one_line;
use limen::{Events, Plan, Report, RunError, Running};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Runs a plan to its end, its `--duration`, or a signal. Says where the interval log is, where one was asked for.
pub(super) fn execute(plan: Plan, arguments: &RunArguments) -> Result<(Report, Option<io::Result<PathBuf>>), RunError> {
    // Nobody who runs a graph is to miss these: `--quiet` does not leave them out.
    for node in plan.nodes() {
        node.notices.iter().for_each(|notice| complain(&format!("limen-run: `{}` {}", node.name, one_line(notice))));
    }
    if let (None, None, false) = (arguments.duration, arguments.frames, arguments.quiet)
        && let Some(node) = plan.nodes().iter().find(|node| node.endless)
    {
        let name = one_line(&node.name);
        tell(&format!(
            "limen-run: `{name}` does not end by itself: Ctrl-C ends the run, as do --duration and --frames"
        ));
    }
    let interrupt = Interrupt::install();
    let duration = arguments.duration.map(|duration| duration.0);
    let progress = Progress::new(&plan, arguments.frames, duration, arguments.quiet);
    let name = plan.graph().to_string();
    let mut running = plan.wire()?.start()?;
    interrupt.stops(running.stopper());
    let every = arguments.interval.map_or(Duration::from_secs(1), |interval| interval.0);
    let folder = arguments.histograms.as_ref().filter(|_| !every.is_zero());
    let log = folder.map(|folder| IntervalLog::create(folder, &name, running.started()));
    let intervals = Intervals { log, every, last: Instant::now() };
    let mut watch = Watch { events: running.events(), teller: Teller::default(), progress, intervals };
    watch.intervals.look(&running, true);
    let end = arguments.duration.and_then(|d| Instant::now().checked_add(d.0));
    if !watch.until(&mut running, end) {
        running.stopper().stop();
        // From here the graph's own `run.stop` is the deadline.
        watch.until(&mut running, None);
    }
    let report = running.wait();
    watch.tell(true);
    watch.progress.clear();
    let log = watch.intervals.log.map(|log| log?.finish(&report));
    // A node that hangs has not completed its file, and never will.
    name_unfinished();
    Ok((report, log))
}

/// What was recorded in each interval, on its way into the log.
struct Intervals {
    log: Option<io::Result<IntervalLog>>,
    every: Duration,
    /// When something was written last.
    last: Instant,
}

impl Intervals {
    /// Writes what has come, where it is time. After an error, which is told at the end, nothing more.
    fn look(&mut self, running: &Running, at_once: bool) {
        let Some(Ok(log)) = &mut self.log else { return };
        // Some come a moment later than they were asked for.
        if !at_once && self.last.elapsed() + LOOK < self.every {
            return;
        }
        let intervals = running.intervals();
        if intervals.is_empty() {
            return;
        }
        self.last = Instant::now();
        if let Err(error) = log.write(&intervals) {
            self.log = Some(Err(error));
        }
    }
}

/// How often a run is looked at: events are read, the line on the terminal is drawn.
const LOOK: Duration = Duration::from_millis(100);

/// Who sits beside a run and says what happens.
struct Watch {
    events: Events,
    teller: Teller,
    progress: Progress,
    intervals: Intervals,
}

impl Watch {
    /// Watches until the graph has ended or a time has come; true when it has ended.
    fn until(&mut self, running: &mut Running, end: Option<Instant>) -> bool {
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let has_ended = running.wait_for(left.min(LOOK));
            self.tell(false);
            self.intervals.look(running, false);
            if has_ended {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            self.progress.show(running);
        }
    }

    /// Says what has happened since; where `all`, also what was counted for less than a second.
    #[allow(
        clippy::disallowed_methods,
        reason = "lines of a log are told apart by the time that stands in front of them"
    )]
    fn tell(&mut self, all: bool) {
        for event in self.events.by_ref() {
            if let Some(told) = self.teller.hear(event) {
                self.progress.aside(|| log::tell_of(&told));
            }
        }
        for told in self.teller.due(SystemTime::now(), all) {
            self.progress.aside(|| log::tell_of(&told));
        }
    }
}
