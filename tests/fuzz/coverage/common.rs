//! Helpers of the targets: a folder for the input file, and a graph that reads it. Not every target
//! needs all of them.

#![allow(dead_code, clippy::disallowed_methods, reason = "see above; tests make their own files")]

use limen::{Plan, Spec};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder for this process, in memory if possible.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = base.join(format!("limen-coverage-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    })
}

/// Simulates a graph whose source reads the bytes to their end. Returns if the graph is refused.
pub(crate) fn read(config: &str, file: &str, bytes: &[u8]) {
    std::fs::write(folder().join(file), bytes).expect("a file");
    run(&format!(
        "version: 1\nnodes:\n  r: {{ {config}, on_error: skip }}\n  z: {{ kind: 'null', from: r }}\nrun: {{ max_memory: 256MiB }}\n"
    ));
}

/// Simulates a graph whose files are in the folder. Returns if it is refused.
pub(crate) fn run(text: &str) {
    let mut spec = Spec::from_text(text, "graph.yaml").expect("the graph is a graph");
    spec.folders.graph = folder().to_path_buf();
    let Ok(plan) = Plan::new(spec, &limen_tests::registry()) else { return };
    let Ok(simulation) = plan.wire().and_then(|wired| wired.simulate(1)) else { return };
    match simulation.run(1_000_000) {
        Ok(report) => assert!(report.bugs.is_empty(), "{:?}", report.bugs),
        Err(stuck) => panic!("{stuck}"),
    }
}
