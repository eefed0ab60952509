//! Every policy has a graph in `graphs/policies` with its expected result beside it: simulated, so
//! always the same. `LIMEN_BLESS=1` rewrites the expected results.

use limen::{Plan, Report, Spec};
use limen_tests::recorded::is_recorded;
use limen_tests::registry;
use std::fmt::Write as _;
use std::path::Path;

/// The part of a report that shows a policy: counts, losses by reason, outcome.
fn shown(report: &Report) -> String {
    let mut text = format!("{}, exit code {}\n", report.outcome.name(), report.exit_code());
    for edge in &report.edges {
        let _ = write!(text, "{} -> {}: sent {}, received {}", edge.from, edge.to, edge.sent, edge.received);
        for (reason, n) in &edge.lost {
            let _ = write!(text, ", {} {n}", reason.name());
        }
        text.push('\n');
    }
    for node in &report.nodes {
        let _ = write!(text, "{}: done {}", node.name, node.done);
        let counted = [
            ("failed", node.failed),
            ("over_budget", node.over_budget),
            ("gaps", node.gaps),
            ("restarts", node.restarts),
        ];
        for (name, n) in counted.into_iter().filter(|(_, n)| *n > 0) {
            let _ = write!(text, ", {name} {n}");
        }
        for (name, value) in node.metrics.iter() {
            let _ = write!(text, ", {name} {value}");
        }
        text.push('\n');
    }
    for path in &report.deadlines {
        let _ = writeln!(text, "{} -> {}: missed {}", path.from, path.to, path.missed);
    }
    for wrong in &report.critical {
        let _ = writeln!(text, "{wrong}");
    }
    text
}

/// Promise (edges): Each graph in `graphs/policies` produces the recorded result beside it.
#[test]
fn every_policy_graph_gives_the_recorded_result() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/policies");
    let mut wrong = Vec::new();
    let mut graphs = 0;
    for file in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        graphs += 1;
        let plan = Spec::from_file(&file).and_then(|spec| Plan::new(spec, &registry()));
        let plan = plan.unwrap_or_else(|problems| panic!("{problems}"));
        let simulation = plan.wire().unwrap().simulate(1).unwrap();
        // A schedule shows only in the order of a worker's passes.
        let is_scheduled = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("schedule_"));
        let report = if is_scheduled { simulation.run_as_scheduled(1_000_000) } else { simulation.run(1_000_000) };
        let report = report.unwrap_or_else(|stuck| panic!("{}: {stuck}", file.display()));
        assert_eq!(report.bugs, Vec::<String>::new(), "{}", file.display());
        let found = shown(&report);
        if !is_recorded(&file.with_extension("txt"), &found) {
            wrong.push(format!("{}:\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(graphs >= 40, "{graphs} graphs");
}
