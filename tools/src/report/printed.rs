//! The printed report of a run: one headline, then tables.
//!
//! Quantiles with too few samples are printed as `–`; a term that a node does not have is left
//! blank.

mod full;
mod latency;

use crate::report::index::ReportIndex;
use crate::text::escape::one_line;
use crate::text::number::{count, figure, if_some, percent};
use crate::text::paragraph::paragraph;
use crate::text::table::Table;
use latency::sources;
use limen::Report;
use limen::backend::BackendStatus;
use limen::report::{EdgeReport, HandleKind, NodeReport, Outcome, Reason};
use limen::unit::{show_bytes, show_ns};
use std::fmt::Write;

/// How much of a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Detail {
    /// Only problems; nothing for a good run.
    Problems,
    /// The headline, latencies, losses, figures.
    #[default]
    Usual,
    /// Also every edge, every thread and every histogram.
    Full,
}

/// The most failures that are printed, unless `-v` asks for all: later ones are rarely different.
const FAILURES: usize = 5;

/// The most causes of slow messages that are printed of a path, unless `-v` asks for all.
const CAUSES: usize = 4;

/// Formats a report as text.
pub fn show_report(report: &Report, detail: Detail) -> String {
    let mut text = String::new();
    let index = ReportIndex::new(report);
    let bad = report.exit_code() != 0 || report.is_degraded();
    if detail != Detail::Problems || bad {
        headline(&mut text, report, &index);
        report.critical.iter().for_each(|wrong| paragraph(&mut text, "critical: ", wrong));
    }
    if detail != Detail::Problems {
        latency::latencies(&mut text, report, &index);
        latency::joins(&mut text, report, &index);
        latency::devices(&mut text, report, &index);
        latency::path_latencies(&mut text, report, &index);
        latency::tails(&mut text, report, if detail == Detail::Full { usize::MAX } else { CAUSES });
        latency::coverage(&mut text, report, &index);
        losses(&mut text, report);
        handles(&mut text, report);
        figures(&mut text, report);
    }
    if detail == Detail::Full {
        full::edges(&mut text, report);
        full::threads(&mut text, report);
        backends(&mut text, report);
        full::histograms(&mut text, report);
    }
    if detail != Detail::Problems || !report.bugs.is_empty() {
        accounting(&mut text, report, &index);
    }
    if detail != Detail::Problems {
        report.notes.iter().for_each(|note| paragraph(&mut text, "note: ", note));
    }
    failures(&mut text, report, if detail == Detail::Full { usize::MAX } else { FAILURES });
    text
}

/// The number of messages that a source began. Its ports carry parts of the same messages, so this
/// is the count of the busiest one.
fn begun_by(index: &ReportIndex<'_>, source: &NodeReport) -> u64 {
    index.outgoing(&source.name).iter().map(|e| e.sent).max().unwrap_or(source.done)
}

fn headline(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let ended = match report.outcome {
        Outcome::Finished => "finished in",
        Outcome::Stopped => "stopped after",
        Outcome::Failed => "failed after",
        Outcome::DeadlinePassed => "did not stop in time, abandoned after",
        _ => "ended after",
    };
    let wall = show_ns(u64::try_from(report.wall.as_nanos()).unwrap_or(u64::MAX));
    let messages: u64 = sources(report, index).map(|s| begun_by(index, s)).sum();
    let _ = write!(
        text,
        "{}: {ended} {wall}, {} from {}, {} lost",
        one_line(&report.graph),
        count(usize::try_from(messages).unwrap_or(usize::MAX), "message"),
        count(sources(report, index).count(), "source"),
        report.lost_total()
    );
    if report.discarded_total() > 0 {
        let _ = write!(text, ", {} discarded", report.discarded_total());
    }
    if report.failed_calls > 0 {
        let _ = write!(text, ", {} failed", count(usize::try_from(report.failed_calls).unwrap_or(usize::MAX), "call"));
    }
    let abandoned: Vec<&str> = report.nodes.iter().filter(|n| n.abandoned).map(|n| n.name.as_str()).collect();
    if !abandoned.is_empty() {
        let _ = write!(text, ", abandoned: {}", one_line(&abandoned.join(", ")));
    }
    let degraded = report.is_degraded() && report.exit_code() == 0;
    text.push_str(if degraded { " (degraded)\n" } else { "\n" });
}

/// The parts of the headline's totals: messages lost, and messages discarded on purpose.
fn losses(text: &mut String, report: &Report) {
    let mut table = Table::new(["<lost or discarded", "<reason", "lost", "discarded", "of those sent"]);
    for edge in &report.edges {
        for (reason, n) in &edge.lost {
            let name = format!("{} -> {}", edge.from, edge.to);
            let (lost, discarded) = if edge.is_discarded(*reason) { (0, *n) } else { (*n, 0) };
            table.row([name, reason.name().into(), if_some(lost), if_some(discarded), percent(*n, edge.sent)]);
        }
    }
    for handle in report.handles.iter().filter(|h| h.kind != HandleKind::Tap) {
        for (reason, n) in &handle.lost {
            let (lost, discarded) = if *reason == Reason::Superseded { (0, *n) } else { (*n, 0) };
            let name = format!("{} {}", handle.kind.name(), handle.name);
            table.row([name, reason.name().into(), if_some(lost), if_some(discarded), percent(*n, handle.sent)]);
        }
    }
    for node in &report.nodes {
        for (reason, n) in node.metrics.losses() {
            table.row([node.name.clone(), reason.into(), n.to_string(), String::new(), String::new()]);
        }
        for (reason, n) in node.metrics.discards() {
            let part = percent(n, node.done + node.failed);
            table.row([node.name.clone(), reason.into(), String::new(), n.to_string(), part]);
        }
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
    let mut table = Table::new(["<left in", "messages", "of those sent"]);
    for edge in report.edges.iter().filter(|e| e.left > 0) {
        let name = format!("{} -> {}", edge.from, edge.to);
        table.row([name, edge.left.to_string(), percent(edge.left, edge.sent)]);
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

/// Messages between the graph and the embedding program.
fn handles(text: &mut String, report: &Report) {
    let mut table = Table::new(["<to and from the program", "<by", "sent", "received", "lost", "discarded", "left"]);
    for handle in &report.handles {
        table.row([
            handle.name.clone(),
            handle.kind.name().into(),
            handle.sent.to_string(),
            handle.received.to_string(),
            handle.lost_total().to_string(),
            if_some(handle.discarded_total()),
            handle.left.to_string(),
        ]);
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

/// The status of each backend at the end.
fn backends(text: &mut String, report: &Report) {
    let backends = report.nodes.iter().filter_map(|node| node.backend.as_ref().map(|backend| (&node.name, backend)));
    for (at, (node, status)) in backends.enumerate() {
        if at == 0 {
            text.push('\n');
        }
        let BackendStatus { backend, device, threads, memory, calls, failed, .. } = status;
        let ready = if status.ready { "ready" } else { "not ready" };
        let (threads, calls) = (count(*threads, "thread"), count(*calls as usize, "call"));
        let mut line =
            format!("{backend} on {device}, {ready}, {threads}, {}, {calls}, {failed} failed", show_bytes(*memory));
        if let Some(error) = &status.last_error {
            line.push_str(&format!("; last error: {}", one_line(error)));
        }
        paragraph(text, &format!("{}: ", one_line(node)), &line);
    }
}

fn figures(text: &mut String, report: &Report) {
    let mut first = true;
    for node in &report.nodes {
        let counted = [("over_budget", node.over_budget), ("gaps", node.gaps), ("restarts", node.restarts)];
        let counted = counted.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, n as f64));
        let all = node.metrics.notable().chain(counted).map(|(name, value)| format!("{name} {}", figure(value)));
        let all: Vec<String> = all.collect();
        if !all.is_empty() {
            if std::mem::take(&mut first) {
                text.push('\n');
            }
            paragraph(text, &format!("{}: ", one_line(&node.name)), &all.join(", "));
        }
    }
}

fn accounting(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    let counted = report.edges.iter().filter(|e| e.counted).count();
    let answered = report.nodes.iter().filter(|n| !n.abandoned).count();
    text.push('\n');
    if report.bugs.is_empty() {
        let _ = write!(text, "accounting: balanced on {} and {}", count(counted, "edge"), count(answered, "node"));
    } else {
        let _ = write!(text, "accounting: NOT BALANCED, which is a bug in limen; please report it with this text");
    }
    if counted < report.edges.len() {
        let rest = count(report.edges.len() - counted, "edge");
        let _ = write!(text, " ({rest} not counted: a thread did not answer)");
    }
    text.push('\n');
    recorded_edges(text, report, index);
    report.bugs.iter().for_each(|bug| paragraph(text, "bug: ", bug));
}

/// The accounting of each edge into a recording: whoever reads the file later asks what is missing
/// in it.
fn recorded_edges(text: &mut String, report: &Report, index: &ReportIndex<'_>) {
    for node in report.nodes.iter().filter(|node| node.kind == "record") {
        let edges = index.incoming(&node.name).iter().filter(|edge| edge.counted);
        let sums: Vec<String> = edges.map(|edge| balance(&node.name, edge)).collect();
        if !sums.is_empty() {
            paragraph(text, &format!("{}: ", one_line(&node.name)), &sums.join(", "));
        }
    }
}

/// What became of the messages of an edge: `image 20 sent = 18 received + 2 unmatched`.
fn balance(node: &str, edge: &EdgeReport) -> String {
    let port = edge.to.strip_prefix(node).map_or(&*edge.to, |port| port.trim_start_matches('/'));
    let lost: u64 = edge.lost.iter().map(|(_, n)| n).sum();
    let sign = if edge.sent == edge.received + lost + edge.left { "=" } else { "≠" };
    let mut sum = format!("{} {} sent {sign} {} received", one_line(port), edge.sent, edge.received);
    for (reason, n) in edge.lost.iter().filter(|(_, n)| *n > 0) {
        let _ = write!(sum, " + {n} {}", reason.name());
    }
    if edge.left > 0 {
        let _ = write!(sum, " + {} left", edge.left);
    }
    sum
}

fn failures(text: &mut String, report: &Report, most: usize) {
    report.failures.iter().take(most).for_each(|failure| paragraph(text, "failed: ", &failure.to_string()));
    let printed = report.failures.len().min(most) as u64;
    let more = report.failed_calls.saturating_sub(printed);
    if more > 0 && printed > 0 {
        let _ = writeln!(text, "failed: and {more} more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_report;
    use limen::report::FailureReport;

    #[test]
    fn a_good_run_is_printed_in_full() {
        let text = show_report(&test_report::report(), Detail::Usual);
        let expected = "\
digits: finished in 1.62 s, 140 messages from 1 source, 0 lost, 40 discarded

node    calls  queue p50  p99  compute p50  p99      max
camera    140
digit     100     251 µs    –       500 µs    –  1.00 ms
score     100
labels    100

path                n      p50      p90  p99  p99.9      max  residual p99
camera -> labels  100  2.50 ms  4.50 ms    –      –  5.00 ms             –
camera -> score     0

path              deadline       missed
camera -> labels   4.00 ms  20 (20.0 %)
camera -> score    4.00 ms  none judged

–: fewer than ten samples lie beyond it

latencies were recorded of 50.0 % of the messages; counts and losses include all
messages

lost or discarded         reason      discarded  of those sent
camera/image -> digit/in  superseded         40         28.6 %

digit: mean_batch 7.9
score: accuracy 0.998, odd NaN

accounting: balanced on 3 edges and 4 nodes
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_sums_of_recorded_edges_are_printed() {
        let mut report = test_report::report();
        report.nodes[3].kind = "record".into();
        let lines: Vec<String> = show_report(&report, Detail::Usual).lines().map(str::to_string).collect();
        let at = lines.iter().position(|line| line.starts_with("accounting: balanced")).unwrap();
        assert_eq!(lines[at + 1], "labels: in 100 sent = 100 received");
        let edge = report.edges.iter_mut().find(|edge| edge.to == "labels/in").unwrap();
        (edge.received, edge.left) = (60, 30);
        edge.lost.push((Reason::Superseded, 10));
        let text = show_report(&report, Detail::Usual);
        assert!(text.contains("labels: in 100 sent = 60 received + 10 superseded + 30 left\n"), "{text}");
        report.edges.iter_mut().for_each(|edge| edge.received = 61);
        assert!(show_report(&report, Detail::Usual).contains("labels: in 100 sent ≠ 61 received"));
    }

    #[test]
    fn a_good_run_has_no_problems_to_print() {
        assert_eq!(show_report(&test_report::report(), Detail::Problems), "");
    }

    #[test]
    fn lost_and_discarded_messages_have_separate_columns_and_totals() {
        let mut report = test_report::report();
        report.edges[0].lost.push((Reason::Unmatched, 10));
        report.nodes[3].metrics.lost("unwritten", 3);
        report.nodes[3].metrics.discarded("stopped", 50);
        report.nodes[3].metrics.lost("partial", 0);
        for (discards_unmatched, headline, unmatched) in [
            (false, "13 lost, 90 discarded (degraded)\n", "unmatched     10                    7.14 %\n"),
            (true, "3 lost, 100 discarded (degraded)\n", "unmatched                10         7.14 %\n"),
        ] {
            report.edges[0].discards_unmatched = discards_unmatched;
            let text = show_report(&report, Detail::Usual);
            assert!(
                text.lines().next().is_some_and(|line| headline.starts_with(line.split_once("source, ").unwrap().1))
            );
            let expected = format!(
                "lost or discarded         reason      lost  discarded  of those sent\n\
                 camera/image -> digit/in  superseded               40         28.6 %\n\
                 camera/image -> digit/in  {unmatched}\
                 labels                    unwritten      3\n\
                 labels                    stopped                  50         50.0 %\n\n"
            );
            assert!(text.contains(&expected), "{expected}in:\n{text}");
            assert!(text.contains("labels: stopped 50, unwritten 3\n"), "{text}");
        }
        // Messages cut off by a stop are lost, but that is not a failure.
        let mut report = test_report::report();
        report.nodes[0].metrics.lost("stopped", 2);
        assert_eq!((report.lost_total(), report.is_degraded()), (2, false));
    }

    #[test]
    fn problems_are_always_printed() {
        let mut report = test_report::report();
        report.outcome = Outcome::Failed;
        report.failed_calls = 3;
        report.nodes[1].failed = 3;
        let mut failure = FailureReport::default();
        (failure.node, failure.call, failure.number) = ("digit".into(), "infer", 12);
        failure.text = "bad \u{1b}[2Jmodel".into();
        report.failures.push(failure);
        report.bugs.push("edge a -> b: sent 2 is not received 1 + lost 0 + left 0".into());
        let text = show_report(&report, Detail::Problems);
        for line in [
            "digits: failed after 1.62 s, 140 messages from 1 source, 0 lost, 40 discarded, 3 calls failed\n",
            "accounting: NOT BALANCED",
            "bug: edge a -> b: sent 2 is not received 1 + lost 0 + left 0\n",
            "failed: node `digit` failed in `infer` after 12 calls: bad \\u{1b}[2Jmodel\n",
            "failed: and 2 more\n",
        ] {
            assert!(text.contains(line), "{line:?} in:\n{text}");
        }
        assert!(!text.contains("compute"), "{text}");
    }

    #[test]
    fn no_line_exceeds_the_width() {
        let mut report = test_report::report();
        report.nodes[1].name = "n".repeat(64);
        report.edges[0].to = format!("{}/in", "n".repeat(64));
        report.notes.push("word ".repeat(60));
        let text = show_report(&report, Detail::Full);
        assert!(text.lines().all(|line| line.chars().count() <= crate::text::paragraph::WIDTH), "{text}");
        assert!(text.contains("limen-labels    any  0-1"), "{text}");
        assert!(text.contains("limen-labels floats: it waits\n"), "{text}");
    }

    #[test]
    fn a_run_that_recorded_nothing_says_so() {
        let mut report = test_report::report();
        report.histograms.clear();
        let text = show_report(&report, Detail::Usual);
        assert!(text.contains("no end-to-end latency was recorded"), "{text}");
        assert!(text.contains("camera -> labels  0"), "{text}");
    }
}
