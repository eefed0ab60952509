//! A run on a simulated clock, on this thread: `--simulated`.

use super::arguments::RunArguments;
use super::watch::{Ended, print_notices};
use crate::page::ReportPage;
use crate::picture::Picture;
use crate::terminal::events::RateLimiter;
use crate::terminal::interrupt::{Interrupt, name_unfinished};
use crate::terminal::log;
use crate::text::escape::one_line;
use limen::{Clock, Plan, RunError, SimulatedClock, Time};
use std::time::{Duration, SystemTime};

/// What the report says of the times in it.
const NOTE: &str =
    "on a simulated clock, which jumps to what is due next: waits are as in a real run, and computing takes no time";

/// The kinds that reach outside the process, where time is the machine's.
const OUTSIDE: [&str; 8] = ["audio", "can", "foxglove", "serial", "stdin", "tcp", "udp", "v4l2"];

/// Returns why a plan cannot run on a simulated clock.
fn obstacle(plan: &Plan, frames: Option<u64>) -> Option<String> {
    if let Some(node) = plan.nodes().iter().find(|node| OUTSIDE.contains(&&*node.kind)) {
        let (name, kind) = (one_line(&node.name), &node.kind);
        return Some(format!("`{name}` ({kind}) needs real time: run the graph without `--simulated`"));
    }
    let endless = plan.nodes().iter().find(|node| node.endless && !node.paced && frames.is_none())?;
    let name = one_line(&endless.name);
    Some(format!("`{name}` must have a `rate` or an end on a simulated clock: write `rate`, or add `--frames N`"))
}

/// Runs a plan to its end, to its `--duration` by the simulated clock, or to a signal.
#[allow(clippy::disallowed_methods, reason = "lines of a log begin with the wall-clock time")]
pub(super) fn execute(plan: Plan, arguments: &RunArguments) -> Result<Ended, RunError> {
    if let Some(why) = obstacle(&plan, arguments.frames) {
        return Err(RunError::Refused(why));
    }
    print_notices(&plan, arguments);
    let interrupt = Interrupt::install();
    let _unwaiting = log::Unwaiting::begin();
    let mut page = arguments.report.is_some().then(|| ReportPage::new(&plan));
    let mut picture = arguments.has_picture().then(|| Picture::new(&plan));
    // No message begins at zero.
    let clock = SimulatedClock::new(Time(1));
    let graph = plan.wire()?.drive(Clock::Simulated(clock.clone()))?;
    if graph.has_descriptors() {
        let why =
            "a node waits for a device, a socket or a pipe, which need real time: run the graph without `--simulated`";
        return Err(RunError::Refused(why.into()));
    }
    interrupt.stops(graph.stopper());
    let (mut events, mut limiter) = (graph.events(), RateLimiter::new(log::is_json()));
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end = arguments.duration.map_or(Time::NEVER, |length| clock.now() + nanos(length.0));
    let mut report = graph.run_until(end, || {
        for event in events.by_ref() {
            if let Some(page) = &mut page {
                page.add_event(&event);
            }
            limiter.add(event).iter().for_each(log::print_event);
        }
        limiter.due(SystemTime::now(), false).iter().for_each(log::print_event);
    });
    limiter.due(SystemTime::now(), true).iter().for_each(log::print_event);
    name_unfinished();
    report.notes.insert(0, NOTE.into());
    if let Some(picture) = &mut picture {
        picture.finish(&report);
    }
    Ok(Ended {
        report,
        log: None,
        page,
        trace: None,
        picture,
        #[cfg(feature = "otlp")]
        export: None,
    })
}
