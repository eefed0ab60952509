//! Why messages were slow, in words.

use limen::report::{TailCause, TailCauseReport};

/// A cause as a table shows it.
pub(crate) fn cause_text(report: &TailCauseReport) -> String {
    let node = report.node.as_deref().unwrap_or("?");
    match (report.cause, &report.behind) {
        (TailCause::Queued, Some(behind)) if behind == node => format!("queued at {node} behind its earlier calls"),
        (TailCause::Queued, Some(behind)) => format!("queued at {node} behind {behind}"),
        (TailCause::Queued, None) => format!("queued at {node}"),
        (TailCause::Partner, _) => format!("waited at {node} for a partner"),
        (TailCause::Batch, _) => format!("waited at {node} for a batch"),
        (TailCause::NoRoom, _) => format!("no room behind {node}"),
        (TailCause::WokenLate, _) => format!("{node} was woken late"),
        (TailCause::Preempted, _) => format!("{node} was preempted"),
        (TailCause::Blocked, _) => format!("{node} waited in the kernel"),
        (TailCause::PageFault, _) => format!("page faults in {node}"),
        (TailCause::Quota, _) => format!("{node} stood still: the CPU quota was used up"),
        (TailCause::SlowCpu, _) => format!("a long call of {node} on a CPU that was slowed down"),
        (TailCause::Restarted, _) => format!("{node} had failed and was restarted"),
        (TailCause::Migrated, _) => format!("{node} was moved to another CPU"),
        (TailCause::Cold, _) => format!("{node} was cold: first call, or after a pause"),
        (TailCause::DeviceBusy, _) => format!("the device of {node} was busy"),
        (TailCause::Compute, _) => format!("a long call of {node}"),
        (TailCause::Source, _) => format!("old when {node} sent it"),
        (TailCause::ClockStep, _) => format!("{node}: the wall clock was set"),
        _ => "unexplained".into(),
    }
}
