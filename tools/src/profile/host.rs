//! The host of a run, and how two differ: latencies of different hosts compare the hosts.

use limen::files;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The largest `run.json` that is read.
const MAX_BYTES: u64 = 16 << 20;

/// The host and the settings of a run, as its `run.json` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The version of limen.
    pub limen: String,
    /// Model of the CPU.
    pub cpu: Option<String>,
    /// CPUs that are online, in the kernel's notation.
    pub cpus_online: Option<String>,
    /// `/proc/version`.
    pub kernel: Option<String>,
    /// The kernel's scheduling policy of the process.
    pub scheduling: Option<String>,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// The hash of the graph file.
    pub graph_fnv1a64: Option<String>,
    /// Whether counts of histograms are estimates.
    pub sampled: bool,
    /// The threads.
    pub workers: Vec<HostWorker>,
}

/// A thread of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostWorker {
    /// The CPUs it could run on.
    pub cpus_got: Vec<usize>,
    /// How it waited.
    pub wait: String,
    /// Its real-time policy and priority; `None` for a normal thread.
    pub real_time: Option<String>,
    /// Frequency governor of its CPU.
    pub governor: Option<String>,
}

/// A property in which the runs of two sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDifference {
    /// The property.
    pub what: &'static str,
    /// Its values among the runs of one side.
    pub base: Vec<String>,
    /// Its values among the runs of the other.
    pub new: Vec<String>,
    /// Whether latencies of the two cannot be compared.
    pub is_decisive: bool,
}

impl Host {
    /// Reads a `run.json`; `None` if there is none, or it is something else.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let host: Host = serde_json::from_slice(&files::read(path, MAX_BYTES).ok()?).ok()?;
        (!host.limen.is_empty()).then_some(host)
    }

    /// Returns the properties that matter, and whether each is decisive.
    fn properties(&self) -> [(&'static str, bool, String); 9] {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".into());
        let of_workers = |property: fn(&HostWorker) -> Option<String>| {
            let all: BTreeSet<String> = self.workers.iter().filter_map(property).collect();
            if all.is_empty() { "none".into() } else { Vec::from_iter(all).join(", ") }
        };
        let real_time = match of_workers(|worker| worker.real_time.clone()) {
            none if none == "none" => String::new(),
            real_time => format!(", {real_time}"),
        };
        let cpus: BTreeSet<usize> = self.workers.iter().flat_map(|worker| worker.cpus_got.iter().copied()).collect();
        let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
        // `Linux version 6.18.44 (..) ..`
        let kernel = self.kernel.as_deref().map(|text| text.split_whitespace().nth(2).unwrap_or(text).to_string());
        [
            ("CPU", true, or_unknown(&self.cpu)),
            ("CPUs online", true, or_unknown(&self.cpus_online)),
            ("governor", true, of_workers(|worker| worker.governor.clone())),
            ("scheduling policy", true, or_unknown(&self.scheduling) + &real_time),
            ("kernel", false, or_unknown(&kernel)),
            ("clock source", false, or_unknown(&self.clock_source)),
            ("CPUs of the threads", false, cpus.join(", ")),
            ("waits of the threads", false, of_workers(|worker| Some(worker.wait.clone()))),
            ("version of limen", false, self.limen.clone()),
        ]
    }

    /// Returns the properties in which the hosts of two sides differ. Of two runs on one host none
    /// is decisive.
    pub fn differences(base: &[&Host], new: &[&Host]) -> Vec<HostDifference> {
        let empty = Host::default().properties();
        let values = |hosts: &[&Host], at: usize| {
            let all: BTreeSet<String> = hosts.iter().map(|host| host.properties()[at].2.clone()).collect();
            Vec::from_iter(all)
        };
        let one = |(at, (what, is_decisive, _)): (usize, &(&'static str, bool, String))| {
            let (base, new) = (values(base, at), values(new, at));
            (base != new).then_some(HostDifference { what, base, new, is_decisive: *is_decisive })
        };
        if base.is_empty() || new.is_empty() {
            return Vec::new();
        }
        empty.iter().enumerate().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(change: impl Fn(&mut Host)) -> Host {
        let worker = HostWorker {
            cpus_got: vec![0],
            wait: "adaptive".into(),
            real_time: None,
            governor: Some("performance".into()),
        };
        let mut host = Host {
            limen: "0.1.0".into(),
            cpu: Some("EPYC".into()),
            cpus_online: Some("0-1".into()),
            kernel: Some("Linux version 6.18.44 (x@y) #1 SMP".into()),
            scheduling: Some("SCHED_OTHER".into()),
            clock_source: Some("tsc".into()),
            graph_fnv1a64: None,
            sampled: false,
            workers: vec![worker],
        };
        change(&mut host);
        host
    }

    #[test]
    fn differences_are_named() {
        type Case = (fn(&mut Host), &'static str, bool, &'static str);
        let cases: [Case; 7] = [
            (|h| h.cpu = Some("Xeon".into()), "CPU", true, "Xeon"),
            (|h| h.cpus_online = Some("0-3".into()), "CPUs online", true, "0-3"),
            (|h| h.workers[0].governor = Some("powersave".into()), "governor", true, "powersave"),
            (|h| h.workers[0].real_time = Some("FIFO 40".into()), "scheduling policy", true, "SCHED_OTHER, FIFO 40"),
            (|h| h.kernel = Some("Linux version 6.1.0 (x@y)".into()), "kernel", false, "6.1.0"),
            (|h| h.clock_source = None, "clock source", false, "not known"),
            (|h| h.workers[0].cpus_got = vec![1, 0], "CPUs of the threads", false, "0, 1"),
        ];
        for (change, what, is_decisive, value) in cases {
            let differences = Host::differences(&[&host(|_| ()), &host(|_| ())], &[&host(change)]);
            assert_eq!(differences.len(), 1, "{what}");
            assert_eq!((differences[0].what, differences[0].is_decisive), (what, is_decisive));
            assert_eq!(differences[0].new, [value]);
        }
        assert!(Host::differences(&[&host(|_| ())], &[&host(|_| ())]).is_empty());
        assert!(Host::differences(&[], &[&host(|_| ())]).is_empty());
    }
}
