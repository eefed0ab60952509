//! The parts of a report that only `-v` prints: every edge, every thread, every histogram.

use crate::text::number::{figure, if_some};
use crate::text::reasons::floating;
use crate::text::table::Table;
use limen::Report;
use limen::report::Term;
use limen::unit::show_ns;

pub(super) fn edges(text: &mut String, report: &Report) {
    let mut table =
        Table::new(["<edge", "sent", "received", "lost", "discarded", "left", "capacity", "<when full", "<crosses"]);
    for edge in &report.edges {
        table.row([
            format!("{} -> {}", edge.from, edge.to),
            edge.sent.to_string(),
            edge.received.to_string(),
            edge.lost_total().to_string(),
            if_some(edge.discarded_total()),
            edge.left.to_string(),
            edge.capacity.to_string(),
            edge.when_full.name().into(),
            if edge.crossing { "threads".into() } else { "".into() },
        ]);
    }
    text.push('\n');
    table.write(text);
}

pub(super) fn threads(text: &mut String, report: &Report) {
    let headings = ["<thread", "asked", "<got CPUs", "<wait", "<node", "turns", "no free slot"];
    let mut table = Table::new(headings).named_by(4);
    for (i, worker) in report.workers.iter().enumerate() {
        // The thread is named once, beside its first node.
        let asked = worker.cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string());
        let mut thread = [worker.name.clone(), asked, cpus(&worker.pinned.got), worker.wait.name().into()];
        for node in report.nodes.iter().filter(|node| node.worker == i) {
            let empty = if node.pool_empty > 0 { node.pool_empty.to_string() } else { String::new() };
            table.row(std::mem::take(&mut thread).into_iter().chain([
                node.name.clone(),
                node.turns.to_string(),
                empty,
            ]));
        }
    }
    text.push('\n');
    table.write(text);
    floating(text, report.workers.iter().map(|worker| (worker.name.as_str(), worker.floats)));
}

/// A set of CPUs in the kernel's notation: `0-3,6`.
fn cpus(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *cpu => *end = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let show = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(show).collect::<Vec<_>>().join(",")
}

pub(super) fn histograms(text: &mut String, report: &Report) {
    let mut table = Table::new(["<histogram", "n", "min", "p50", "p90", "p99", "p99.9", "max", "mean"]);
    for one in &report.histograms {
        let h = &one.recorded.histogram;
        let show = |value: u64| if one.term == Term::Batch { value.to_string() } else { show_ns(value) };
        let at = |q| one.recorded.quantile(q).map_or_else(|| "–".into(), show);
        let mean = if one.term == Term::Batch { figure(h.mean()) } else { show_ns(h.mean() as u64) };
        table.row([
            one.tag(),
            one.recorded.samples.to_string(),
            show(h.min()),
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            show(h.max()),
            mean,
        ]);
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_cpus_are_written_as_ranges() {
        assert_eq!(cpus(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(cpus(&[]), "");
    }
}
