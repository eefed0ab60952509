//! Latencies of a report: of nodes, sources, joins and paths, and how many messages they were
//! recorded of.

use crate::report::index::ReportIndex;
use crate::text::number::percent;
use crate::text::paragraph::paragraph;
use crate::text::table::Table;
use limen::Report;
use limen::report::{DeadlineReport, NodeReport, Recorded, Term};
use limen::unit::show_ns;
use std::time::Duration;

/// The sources: nodes without an incoming edge.
pub(super) fn sources<'a>(report: &'a Report, index: &ReportIndex<'_>) -> impl Iterator<Item = &'a NodeReport> {
    report.nodes.iter().filter(|node| index.incoming(&node.name).is_empty())
}

/// A quantile for a table; `–` if too few samples lie beyond it.
fn at(recorded: Option<&Recorded>, q: f64) -> String {
    match recorded {
        None => String::new(),
        Some(recorded) => recorded.quantile(q).map_or_else(|| "–".into(), show_ns),
    }
}

/// The histogram of a term, unless the term was always 0: a node that can make messages wait and
/// never did is shown like one that cannot.
fn if_any<'a>(index: &ReportIndex<'a>, node: &str, term: Term) -> Option<&'a Recorded> {
    index.term(node, term).filter(|recorded| recorded.histogram.max() > 0)
}

pub(super) fn latencies(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let mut table = Table::new([
        "<node",
        "calls",
        "failed",
        "queue p50",
        "p99",
        "wait p50",
        "p99",
        "batch wait p50",
        "p99",
        "blocked p99",
        "compute p50",
        "p99",
        "max",
    ]);
    for node in &report.nodes {
        let of = |term| index.term(&node.name, term);
        let if_any = |term| if_any(index, &node.name, term);
        let failed = if node.failed > 0 { node.failed.to_string() } else { String::new() };
        table.row([
            node.name.clone(),
            node.done.to_string(),
            failed,
            at(of(Term::Queue), 0.5),
            at(of(Term::Queue), 0.99),
            at(if_any(Term::Wait), 0.5),
            at(if_any(Term::Wait), 0.99),
            at(if_any(Term::BatchWait), 0.5),
            at(if_any(Term::BatchWait), 0.99),
            at(if_any(Term::Blocked), 0.99),
            at(of(Term::Compute), 0.5),
            at(of(Term::Compute), 0.99),
            of(Term::Compute).map_or_else(String::new, |r| show_ns(r.histogram.max())),
        ]);
    }
    text.push('\n');
    table.write(text);
    // The lateness of a source is part of every latency that begins there.
    let mut table = Table::new(["<begun by", "source p50", "p90", "p99", "max"]);
    for source in sources(report, index) {
        if let Some(recorded) = if_any(index, &source.name, Term::Source) {
            let quantiles = [0.5, 0.9, 0.99].map(|q| at(Some(recorded), q));
            table.row(std::iter::once(source.name.clone()).chain(quantiles).chain([show_ns(recorded.histogram.max())]));
        }
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

/// What calls took on devices, where their clocks were read, and what passing messages to them
/// took.
pub(super) fn devices(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let mut table = Table::new(["<node on a device", "<term", "n", "p50", "p90", "p99", "max", "<clock"]);
    for node in &report.nodes {
        for term in [Term::Upload, Term::Kernel, Term::Download] {
            let Some(recorded) = if_any(index, &node.name, term) else { continue };
            let clock = if term == Term::Upload { "host" } else { "device" };
            let quantiles = [0.5, 0.9, 0.99].map(|q| at(Some(recorded), q));
            let begin = [node.name.clone(), term.name().into(), recorded.samples.to_string()];
            let end = [show_ns(recorded.histogram.max()), clock.into()];
            table.row(begin.into_iter().chain(quantiles).chain(end));
        }
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

/// Of each join: how far apart the messages it combined began, and how long the first of them
/// waited for the others. Joins whose messages always began together are left out.
pub(super) fn joins(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let mut table = Table::new(["<join", "n", "skew p50", "p99", "max", "wait p50", "p99", "max"]);
    for node in &report.nodes {
        let Some(skew) = if_any(index, &node.name, Term::Skew) else { continue };
        let wait = index.term(&node.name, Term::Wait);
        table.row([
            node.name.clone(),
            skew.samples.to_string(),
            at(Some(skew), 0.5),
            at(Some(skew), 0.99),
            show_ns(skew.histogram.max()),
            at(wait, 0.5),
            at(wait, 0.99),
            wait.map_or_else(String::new, |wait| show_ns(wait.histogram.max())),
        ]);
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

pub(super) fn path_latencies(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let mut table =
        Table::new(["<path", "n", "p50", "p90", "p99", "p99.9", "max", "residual p99", "deadline", "missed"]);
    for (from, to, recorded) in report.paths() {
        let deadline = index.deadline(from, to);
        table.row([
            format!("{from} -> {to}"),
            recorded.samples.to_string(),
            at(Some(recorded), 0.5),
            at(Some(recorded), 0.9),
            at(Some(recorded), 0.99),
            at(Some(recorded), 0.999),
            show_ns(recorded.histogram.max()),
            at(index.term(to, Term::Residual), 0.99),
            deadline.map_or_else(String::new, |d| show_ns(d.deadline)),
            deadline.map_or_else(String::new, misses),
        ]);
    }
    for path in &report.deadlines {
        if !index.has_path(&path.from, &path.to) {
            let none = std::iter::repeat_n(String::new(), 6);
            let begin = [format!("{} -> {}", path.from, path.to), "0".into()];
            table.row(begin.into_iter().chain(none).chain([show_ns(path.deadline), misses(path)]));
        }
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
    let mut table = Table::new(["<age where used again", "n", "p50", "p90", "p99", "max"]);
    for (from, to, recorded) in report.ages() {
        let quantiles = [0.5, 0.9, 0.99].map(|q| at(Some(recorded), q));
        let begin = [format!("{from} -> {to}"), recorded.samples.to_string()];
        table.row(begin.into_iter().chain(quantiles).chain([show_ns(recorded.histogram.max())]));
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
    if text.contains('–') {
        text.push_str("\n–: fewer than ten samples lie beyond it\n");
    }
}

/// Why the slowest messages of each path were slow: at most `most` causes of each.
pub(super) fn tails(text: &mut String, report: &Report, most: usize) {
    let mut table = Table::new(["<slowest of", "over", "n", "<because", "longest"]);
    for tail in &report.tails {
        let mut path = format!("{} -> {}", tail.from, tail.to);
        let mut limit = show_duration(tail.limit);
        for cause in tail.causes.iter().take(most) {
            table.row([
                std::mem::take(&mut path),
                std::mem::take(&mut limit),
                cause.messages.to_string(),
                cause.to_string(),
                show_duration(cause.longest),
            ]);
        }
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

fn show_duration(duration: Duration) -> String {
    show_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// How many messages missed a path's deadline, of those judged by it.
fn misses(path: &DeadlineReport) -> String {
    let missed: String = match (&path.untracked_behind, path.judged, path.missed) {
        (Some(_), ..) => "not judged".into(),
        (None, 0, _) => "none judged".into(),
        (None, _, 0) => "0".into(),
        (None, judged, missed) => format!("{missed} ({})", percent(missed, judged.max(missed))),
    };
    if path.silent { missed + ", silent at the end" } else { missed }
}

/// The share of messages whose latency was recorded: all, unless there was a warm-up or sampling
/// under load. Counted at the sinks.
pub(super) fn coverage(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let ends = |node: &&NodeReport| index.outgoing(&node.name).is_empty();
    let arrived: u64 = report.nodes.iter().filter(ends).map(|n| n.done).sum();
    // A message has one residual, however many paths end with it.
    let residuals = || report.histograms.iter().filter(|one| one.term == Term::Residual).map(|one| &one.recorded);
    let measured: u64 = residuals().map(|recorded| recorded.samples).sum();
    let stood_for: u64 = residuals().map(|recorded| recorded.histogram.len()).sum();
    if measured == 0 && arrived > 0 {
        text.push_str("\nno end-to-end latency was recorded; `--telemetry full` records every message\n");
    } else if measured < arrived {
        let share = percent(measured, arrived);
        let sampled = match stood_for > measured {
            true => {
                "; of bursts in quick succession one in sixteen is recorded and stands for all, unless `--telemetry full`"
            }
            false => "",
        };
        text.push('\n');
        let line = format!(
            "latencies were recorded of {share} of the messages{sampled}; counts and losses include all messages"
        );
        paragraph(text, "", &line);
    }
}
