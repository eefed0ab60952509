//! `run.json`: the machine, the command line and the graph file of a run, so that a reader can tell
//! whether two dumps are comparable.
//!
//! The machine's properties are read from `/proc` and `/sys` after the run; a property that cannot
//! be read is null.

use crate::text::escape::plain_json;
use crate::text::number::seconds;
use limen::{Report, files};
use serde::Serialize;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// The maximum size of a graph file.
const MAX_BYTES: u64 = 4 << 20;

/// The graph file of a run, as named in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphFile {
    /// The path as it was given on the command line.
    pub path: PathBuf,
    /// The 64-bit FNV-1a hash of its bytes; `None` if it could not be read.
    pub hash: Option<u64>,
}

impl GraphFile {
    /// Reads and hashes a file.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let hash = files::read(&path, MAX_BYTES).ok().map(|bytes| fnv1a(&bytes));
        GraphFile { path, hash }
    }
}

/// Tells versions of a file apart; not for security.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The content of `run.json`.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// The graph's name.
    pub graph: String,
    /// The id of the run.
    pub run: String,
    /// The path of the graph file.
    pub file: String,
    /// FNV-1a 64 of the file's bytes, hexadecimal.
    pub graph_fnv1a64: Option<String>,
    /// The command line, or its equivalent in an embedding program.
    pub arguments: Vec<String>,
    /// Version of limen.
    pub limen: &'static str,
    /// Seconds since 1970.
    pub started: Option<f64>,
    /// Seconds.
    pub wall_s: f64,
    /// Whether some messages were recorded for others, so that counts of histograms are estimates.
    pub sampled: bool,
    /// The threads.
    pub workers: Vec<WorkerInfo>,
    /// The kernel's scheduling policy of the process.
    pub scheduling: Option<&'static str>,
    /// `/proc/version`.
    pub kernel: Option<String>,
    /// Model of the first CPU.
    pub cpu: Option<String>,
    /// CPUs that are online.
    pub cpus_online: Option<String>,
    /// The clock that stamps come from.
    pub clock: &'static str,
    /// The kernel's clock source behind that clock.
    pub clock_source: Option<String>,
}

/// A thread in `run.json`.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerInfo {
    /// The name under which reports show the thread.
    pub name: String,
    /// The CPU it was pinned to by the plan; null for any.
    pub cpu_asked: Option<usize>,
    /// The CPUs the kernel let it run on.
    pub cpus_got: Vec<usize>,
    /// Why these are not the CPUs asked for.
    pub refused: Option<String>,
    /// How it waits.
    pub wait: &'static str,
    /// The kernel's real-time policy and priority; null for a normal thread.
    pub real_time: Option<String>,
    /// Frequency governor of its CPU.
    pub governor: Option<String>,
}

impl RunInfo {
    /// Collects the information about a run that has just ended on this machine.
    pub fn new(report: &Report, graph: &GraphFile, arguments: impl IntoIterator<Item = String>) -> Self {
        RunInfo {
            graph: report.graph.clone(),
            run: report.run_id.clone(),
            file: graph.path.display().to_string(),
            graph_fnv1a64: graph.hash.map(|hash| format!("{hash:016x}")),
            arguments: arguments.into_iter().collect(),
            limen: env!("CARGO_PKG_VERSION"),
            started: report.started.duration_since(UNIX_EPOCH).ok().map(seconds),
            wall_s: seconds(report.wall),
            sampled: report.histograms.iter().any(|one| one.recorded.samples < one.recorded.histogram.len()),
            workers: report
                .workers
                .iter()
                .map(|w| WorkerInfo {
                    name: w.name.clone(),
                    cpu_asked: w.cpu,
                    cpus_got: w.pinned.got.clone(),
                    refused: w.pinned.refused.clone(),
                    wait: w.wait.name(),
                    real_time: w.pinned.real_time.map(|real_time| real_time.to_string()),
                    governor: w
                        .cpu
                        .and_then(|cpu| read(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))),
                })
                .collect(),
            scheduling: files::system_text("/proc/self/stat").ok().and_then(|stat| scheduling(&stat)),
            kernel: read("/proc/version"),
            cpu: files::system_text("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
            cpus_online: read("/sys/devices/system/cpu/online"),
            clock: "CLOCK_MONOTONIC",
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }

    /// Returns the object as JSON text with a final newline.
    pub fn json(&self) -> String {
        // Only text, numbers and lists of those: this cannot fail.
        plain_json(serde_json::to_string_pretty(self).unwrap_or_default() + "\n")
    }
}

/// The trimmed text of a small file.
fn read(path: &str) -> Option<String> {
    files::system_text(path).ok().map(|text| text.trim().to_string()).filter(|text| !text.is_empty())
}

/// The scheduling policy of the process: field 41 of `/proc/self/stat`.
fn scheduling(stat: &str) -> Option<&'static str> {
    // The second field, the program's name, may hold spaces and parentheses; the rest begins after
    // the last one.
    let policy = stat.rsplit_once(')')?.1.split_whitespace().nth(38)?;
    Some(match policy {
        "0" => "SCHED_OTHER",
        "1" => "SCHED_FIFO",
        "2" => "SCHED_RR",
        "3" => "SCHED_BATCH",
        "5" => "SCHED_IDLE",
        "6" => "SCHED_DEADLINE",
        _ => return None,
    })
}

/// The CPU's model: `model name` on x86; on ARM, where the kernel prints only numbers, the part
/// number.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    field("model name").or_else(|| field("Model")).or_else(|| field("CPU part").map(|part| format!("ARM part {part}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_report;

    #[test]
    fn the_hash_is_fnv1a() {
        // Test vectors of the reference implementation.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_kernels_files_are_parsed() {
        let stat = format!("17 (a b) c) S {}0 0", "1 ".repeat(37));
        assert_eq!(scheduling(&stat), Some("SCHED_OTHER"));
        assert_eq!(scheduling("nonsense"), None);
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Xeon: fast\n"), Some("Xeon: fast".into()));
        assert_eq!(cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n"), Some("ARM part 0xd0c".into()));
        assert_eq!(cpu_model(""), None);
    }

    #[test]
    fn a_missing_file_has_no_hash() {
        let info = RunInfo::new(&test_report::report(), &GraphFile::read("/nowhere/g.yaml"), ["x".to_string()]);
        let json: serde_json::Value = serde_json::from_str(&info.json()).unwrap();
        assert_eq!(json["graph_fnv1a64"], serde_json::Value::Null);
        assert_eq!(json["workers"][1]["cpus_got"], serde_json::json!([1]));
        assert!(json["scheduling"].as_str().is_some_and(|policy| policy.starts_with("SCHED_")));
    }
}
