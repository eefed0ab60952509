//! Streams of bytes, sound and arrays: data is passed unchanged, and no peer can stop the graph or
//! make it lose messages uncounted.

mod files;
mod network;
mod readiness;
mod serial;
mod viewers;

use limen::{Drain, Plan, Problems, Report, Running, Spec};
use std::fs;
use std::path::Path;

/// A folder with a graph in it.
struct Graph {
    folder: tempfile::TempDir,
    allowed: Vec<String>,
}

impl Graph {
    fn new() -> Self {
        Graph { folder: tempfile::tempdir().unwrap(), allowed: Vec::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn plan(&self, nodes: &str) -> Result<Plan, Problems> {
        self.write("graph.yaml", format!("version: 1\nnodes:\n{nodes}"));
        let mut spec = Spec::from_file(self.path().join("graph.yaml"))?;
        spec.folders.allowed = self.allowed.iter().map(Into::into).collect();
        Plan::new(spec, &limen_tests::registry())
    }

    #[track_caller]
    fn start(&self, nodes: &str) -> Running {
        let plan = self.plan(nodes).unwrap_or_else(|problems| panic!("{problems}\n{nodes}"));
        plan.wire().unwrap().start().unwrap_or_else(|error| panic!("{error}\n{nodes}"))
    }

    /// Runs until the graph ends by itself.
    #[track_caller]
    fn run(&self, nodes: &str) -> Report {
        end(self.start(nodes))
    }

    /// Simulates until the graph ends by itself.
    #[track_caller]
    fn turn(&self, nodes: &str) -> Report {
        let plan = self.plan(nodes).unwrap_or_else(|problems| panic!("{problems}\n{nodes}"));
        let simulation = plan.wire().unwrap().simulate(1).unwrap_or_else(|error| panic!("{error}\n{nodes}"));
        checked(simulation.run(1_000_000).unwrap_or_else(|stuck| panic!("{stuck}\n{nodes}")))
    }

    /// All problems of a graph, in one text.
    #[track_caller]
    fn refused(&self, nodes: &str) -> String {
        match self.plan(nodes) {
            Ok(_) => panic!("not refused:\n{nodes}"),
            Err(problems) => problems.to_string(),
        }
    }
}

#[track_caller]
fn end(running: Running) -> Report {
    checked(limen_tests::finished(running))
}

/// Stops a graph whose sources do not end, and returns its report.
#[track_caller]
fn stop(running: Running) -> Report {
    checked(running.stop(Drain::within(limen_tests::PATIENCE)))
}

#[track_caller]
fn checked(report: Report) -> Report {
    assert!(report.bugs.is_empty(), "{:?}", report.bugs);
    report
}

/// Compares metrics of a report.
#[track_caller]
fn figures(report: &Report, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(report.metric(name), Some(*value), "{name} of {:?}", report.nodes);
    }
}
