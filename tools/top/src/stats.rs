//! What a monitor answers, and what happened between two answers.

use crate::text;
use crate::threads::ThreadTimes;
use limen_run::MonitorStats;
use serde::Deserialize;
use serde_json::Value;
use std::ops::Deref;

/// The object `stats` of an answer. Names are free of control characters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    stats: MonitorStats,
    /// The object itself.
    whole: Value,
    threads: ThreadTimes,
}

impl Deref for Stats {
    type Target = MonitorStats;

    fn deref(&self) -> &MonitorStats {
        &self.stats
    }
}

/// The node of an end of an edge, `node/port`.
pub(crate) fn node_of(end: &str) -> &str {
    end.split_once('/').map_or(end, |(node, _)| node)
}

impl Stats {
    /// Reads an answer.
    ///
    /// # Errors
    /// The monitor's error, or that it is not what a monitor answers.
    pub(crate) fn read(mut answer: Value) -> Result<Stats, String> {
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            return Err(error.to_string());
        }
        let whole = answer.get_mut("stats").map(Value::take).filter(Value::is_object);
        let whole = whole.ok_or("the answer has no `stats`: this is not the socket of a monitor")?;
        let mut stats =
            MonitorStats::deserialize(&whole).map_err(|error| format!("the answer cannot be read: {error}"))?;
        clean(&mut stats);
        let threads = ThreadTimes::read(stats.pid);
        Ok(Stats { stats, whole, threads })
    }

    /// The object, with `rate` in nodes and edges (a second, since `before`) and `cpu` in workers
    /// (the part of a CPU, or null).
    pub(crate) fn with_rates(&self, before: &Stats) -> Value {
        let (mut whole, shown) = (self.whole.clone(), Shown::new(self.clone(), Some(before)));
        let mut add = |list: &str, key: &str, values: Vec<Value>| {
            let there = whole.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for (one, value) in there.filter_map(Value::as_object_mut).zip(values) {
                one.insert(key.into(), value);
            }
        };
        // To six digits behind the point.
        let rounded = |value: f64| (value * 1e6).round() / 1e6;
        add("nodes", "rate", shown.node_rates.iter().map(|rate| rounded(*rate).into()).collect());
        add("edges", "rate", shown.edge_rates.iter().map(|rate| rounded(*rate).into()).collect());
        add("workers", "cpu", shown.cpus.iter().map(|cpu| cpu.map(rounded).into()).collect());
        whole
    }
}

/// Removes control characters from names.
fn clean(stats: &mut MonitorStats) {
    let clean = |text: &mut String| *text = text::name(text);
    [&mut stats.graph, &mut stats.run, &mut stats.state].into_iter().for_each(clean);
    stats.nodes.iter_mut().flat_map(|node| [&mut node.stats.node, &mut node.kind, &mut node.role]).for_each(clean);
    stats.edges.iter_mut().flat_map(|edge| [&mut edge.from, &mut edge.to]).for_each(clean);
    stats.paths.iter_mut().flat_map(|path| [&mut path.from, &mut path.to]).for_each(clean);
    for worker in &mut stats.workers {
        [&mut worker.name, &mut worker.wait].into_iter().chain(&mut worker.nodes).for_each(clean);
    }
}

/// What is shown: the last answer, and what happened since the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) stats: Stats,
    /// Calls and messages a second, in the order of the answer.
    pub(crate) node_rates: Vec<f64>,
    pub(crate) edge_rates: Vec<f64>,
    /// The part of a CPU that each worker used.
    pub(crate) cpus: Vec<Option<f64>>,
}

impl Shown {
    /// Without an answer before, rates are those since the start.
    pub(crate) fn new(stats: Stats, before: Option<&Stats>) -> Self {
        // That of another run says nothing.
        let before = before.filter(|before| before.run == stats.run && before.elapsed_s < stats.elapsed_s);
        let within = stats.elapsed_s - before.map_or(0.0, |before| before.elapsed_s);
        let rate = |now: u64, then: Option<u64>| {
            let more = now.saturating_sub(then.unwrap_or(0)) as f64;
            if within > 0.0 { more / within } else { 0.0 }
        };
        let nodes = stats.nodes.iter().enumerate();
        let node_rates =
            nodes.map(|(at, node)| rate(node.stats.done, before.and_then(|b| Some(b.nodes.get(at)?.stats.done))));
        let edges = stats.edges.iter().enumerate();
        let edge_rates = edges.map(|(at, edge)| rate(edge.sent, before.and_then(|b| Some(b.edges.get(at)?.sent))));
        let cpus = stats.workers.iter().map(|worker| stats.threads.used(&worker.name, &before?.threads));
        let (node_rates, edge_rates, cpus) = (node_rates.collect(), edge_rates.collect(), cpus.collect());
        Shown { node_rates, edge_rates, cpus, stats }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A small graph after `elapsed_s`, in which everything has done `done`.
    pub(crate) fn stats(elapsed_s: f64, done: u64) -> Stats {
        let window = json!({ "within_s": 1.0, "count": done, "p50": 1_250, "p99": 48_000, "max": 2_000_000 });
        let few = json!({ "within_s": 1.0, "count": 3, "p50": null, "p99": null, "max": 9_500 });
        let node = |name: &str, kind: &str, role: &str, failed: u64| {
            let queue = if role == "source" { Value::Null } else { few.clone() };
            json!({ "name": name, "kind": kind, "role": role, "worker": 0, "taken": done, "done": done, "failed": failed,
                    "backend": null, "queue": queue, "compute": window, "settings": [] })
        };
        let edge = |from: &str, to: &str, depth: u64, lost: u64| {
            json!({ "from": from, "to": to, "depth": depth, "bytes": null, "peak_depth": depth + 10,
                    "capacity": 64, "sent": done, "lost": lost })
        };
        let stats = json!({
            "graph": "robot", "run": "3f9c1d20", "pid": 0, "started": 0.0, "elapsed_s": elapsed_s, "state": "running",
            "nodes": [
                node("camera", "v4l2", "source", 0), node("lidar", "udp", "source", 0),
                node("resize", "resize", "transform", 0), node("net", "infer", "infer", 2),
                node("fuse_camera_and_lidar_of_the_head", "synchronize", "transform", 0),
                node("log", "csv", "sink", 0), node("evil\x1b[2J\n", "null", "sink", 0),
            ],
            "edges": [
                edge("camera/image", "resize/in", 0, 0), edge("resize/out", "net/in", 54, 17),
                edge("net/out", "fuse_camera_and_lidar_of_the_head/a", 1, 0),
                edge("lidar/bytes", "fuse_camera_and_lidar_of_the_head/b", 32, 0),
                edge("fuse_camera_and_lidar_of_the_head/out", "log/in", 0, 0),
                edge("fuse_camera_and_lidar_of_the_head/out", "evil\x1b[2J\n/in", 0, 0),
            ],
            "paths": [
                { "from": "camera", "to": "log", "latency": window, "deadline": 5_000_000, "judged": done, "missed": 12 }, { "from": "lidar", "to": "log", "latency": few },
            ],
            "workers": [
                { "name": "limen-0", "cpu": 0, "wait": "park", "nodes": ["camera", "resize", "log", "evil\x1b[2J\n"] },
                { "name": "limen-1", "cpu": 1, "wait": "spin", "nodes": ["net", "fuse_camera_and_lidar_of_the_head"] },
                { "name": "limen-lidar", "cpu": null, "wait": "park", "nodes": ["lidar"] },
            ],
        });
        Stats::read(json!({ "version": 1, "ok": true, "stats": stats })).unwrap()
    }

    #[test]
    fn rates_are_those_between_two_answers() {
        let (first, second) = (stats(10.0, 1000), stats(12.0, 1500));
        for (before, expected) in [(None, 125.0), (Some(&first), 250.0), (Some(&stats(13.0, 9)), 125.0)] {
            let shown = Shown::new(second.clone(), before);
            assert!(shown.node_rates.iter().chain(&shown.edge_rates).all(|rate| *rate == expected), "{shown:?}");
        }
        let object = second.with_rates(&first);
        assert_eq!((&object["nodes"][0]["rate"], &object["edges"][1]["rate"]), (&json!(250.0), &json!(250.0)));
        assert_eq!((&object["workers"][0]["cpu"], &object["nodes"][3]["failed"]), (&Value::Null, &json!(2)));
        // Counters that went back are those of something else.
        let again = Shown::new(stats(20.0, 5), Some(&first));
        assert!(again.node_rates.iter().all(|rate| *rate == 0.0));
    }

    #[test]
    fn an_answer_that_is_none_is_refused() {
        for (answer, expected) in [
            (json!({ "version": 1, "ok": false, "error": "no" }), "no"),
            (json!({ "version": 1, "ok": true }), "this is not the socket of a monitor"),
            (json!([1]), "this is not the socket of a monitor"),
            (json!({ "stats": { "nodes": 7 } }), "the answer cannot be read: "),
        ] {
            let why = Stats::read(answer).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        // Keys may be added, and a monitor of another version may not have all.
        assert_eq!(Stats::read(json!({ "stats": { "graph": "a", "new": 1 } })).unwrap().graph, "a");
    }
}
