//! The keys and types of the JSON objects that scripts read: `--json` and the statistics of a
//! monitor.

use crate::monitor::Watched;
use crate::program::Folder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// On a simulated clock, so that every value is the same in each run.
const GRAPH: &str = "
version: 1
nodes:
  cam: { kind: synthetic, config: { pattern: counter, rate: 100Hz, count: 200 } }
  slow: { kind: pass, from: { from: cam, when_full: drop_oldest, capacity: 2 }, on_error: skip, fault: { delay: 5ms, error_every: 20 } }
  other: { kind: synthetic, config: { pattern: noise, shape: [4], dtype: f32, rate: 30Hz, count: 60 } }
  model: { kind: infer, from: other, config: { backend: mock, mock: { inputs: { x: 'f32[4]' }, outputs: { y: 'f32[1]' } } } }
  both: { kind: 'null', inputs: { a: slow, b: model }, join: { policy: by_time, anchor: b, within: 4ms } }
  lines: { kind: file, config: { path: lines.txt, framing: lines, rate: 50Hz } }
  imu: { kind: decode, config: { format: json, fields: [{ name: gyr, type: f32 }] }, from: lines }
  out: { kind: 'null', from: imu }
paths: [{ from: cam, to: both, deadline: 6ms, on_miss: drop }, { from: lines, to: out, deadline: 10ms }]
";

const LIVE: &str = "
version: 1
nodes:
  a: { kind: synthetic, config: { pattern: noise, shape: [4], dtype: f32, rate: 200Hz } }
  t: { kind: throttle, config: { rate: 100Hz }, from: a }
  m: { kind: infer, from: t, config: { backend: mock, mock: { inputs: { x: 'f32[4]' }, outputs: { y: 'f32[1]' } } } }
  z: { kind: 'null', from: m }
paths: [{ from: a, to: z, deadline: 10ms }]
";

/// Deprecated names are there too, until 0.2: `thinned`, `closure_p99`, and of an edge `messages`
/// and `highest`.
const SUMMARY: &[&str] = &[
    " bugs:list critical:list degraded:bool edges:list error:null exit_code:number failed_calls:number failures:list gates:list graph:text handles:list histograms:list metrics:object nodes:list notes:list outcome:text paths:list problems:list started:number tails:list wall_s:number workers:list",
    "edges[] capacity:number counted:bool crossing:bool discarded:number from:text left:number lost:object received:number sent:number thinned:number to:text when_full:text",
    "edges[].lost expired:number unmatched:number",
    "failures[] call:text node:text number:number panicked:bool text:text",
    "gates[] gate:text text:text tripped:bool value:number",
    "histograms[] count:number max:number mean:number min:number node:text p50:null|number p90:null|number p99:null p999:null samples:number tag:text term:text to:null|text unit:text",
    "metrics both.messages:number discarded:number failed:number gaps:number imu.malformed:number imu.missing:number left:number lost:number lost.expired:number lost.malformed:number lost.unmatched:number missed:number model.batches:number model.mean_batch:number out.messages:number over_budget:number restarts:number thinned:number",
    "nodes[] abandoned:bool backend:null|object batches:number criticality:text discarded:object done:number failed:number gaps:number held:number kind:text lost:object metrics:object name:text over_budget:number pool_empty:number restarts:number taken:number thinned:object turns:number worker:number",
    "nodes[].backend calls:number device:text failed:number last_error:null memory:number name:text ready:bool threads:number",
    "nodes[].lost malformed:number",
    "nodes[].metrics batches:number malformed:number mean_batch:number messages:number missing:number",
    "paths[] closure_p99:null count:number criticality:null|text deadline_ns:null|number from:text judged:null|number late:null|number max:number on_miss:null|text p50:number p90:null p99:null p999:null residual_p99:null samples:number silent:bool to:text untracked_behind:null",
    "tails[] beyond:number causes:list from:text judged:number limit_ns:number quantile:number to:text",
    "workers[] abandoned:bool cpu:number cpus:list floats:null name:text real_time:null refused:null wait:text",
];

const STATS: &[&str] = &[
    ": edges elapsed_s graph nodes paths pid run started state workers",
    "edges[]: bytes capacity depth from highest lost messages peak_depth sent starves_s to",
    "nodes[]: backend compute connected discarded disconnects done failed incidents kind lost name queue role settings stale taken thinned worker",
    "nodes[].backend: calls device failed last_error memory name ready threads",
    "nodes[].compute: count max p50 p99 within_s",
    "nodes[].discarded: stopped",
    "nodes[].queue: count max p50 p99 within_s",
    "nodes[].settings[]: least most name",
    "nodes[].thinned: stopped",
    "paths[]: deadline from judged latency missed silent_s to",
    "paths[].latency: count max p50 p99 within_s",
    "workers[]: cpu name nodes wait",
];

/// A line for each object: its path, and its keys with the types of their values.
fn keys(value: &Value) -> Vec<String> {
    fn walk<'a>(path: &str, value: &'a Value, found: &mut BTreeMap<String, BTreeMap<&'a str, BTreeSet<&'static str>>>) {
        match value {
            Value::Array(list) => list.iter().for_each(|one| walk(&format!("{path}[]"), one, found)),
            Value::Object(object) => {
                for (key, value) in object {
                    let kind = match value {
                        Value::Null => "null",
                        Value::Bool(_) => "bool",
                        Value::Number(_) => "number",
                        Value::String(_) => "text",
                        Value::Array(_) => "list",
                        Value::Object(_) => "object",
                    };
                    found.entry(path.into()).or_default().entry(key).or_default().insert(kind);
                    walk(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, found);
                }
            }
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    walk("", value, &mut found);
    let shown = |(key, kinds): (&str, BTreeSet<&str>)| format!(" {key}:{}", Vec::from_iter(kinds).join("|"));
    found.into_iter().map(|(path, keys)| path + &keys.into_iter().map(shown).collect::<String>()).collect()
}

#[test]
fn the_keys_of_a_summary_stay() {
    let folder = Folder::with("summary-keys", GRAPH);
    std::fs::write(folder.0.join("lines.txt"), "{\"gyr\":1}\n{\"gyro\":2}\n".repeat(50)).unwrap();
    let json = folder.run("graph.yaml --simulated --json --fail-on lost>999").expect(0, "", "").json();
    assert_eq!(keys(&json), SUMMARY);
    let refused = folder.run("missing.yaml --json").expect(2, "", "").json();
    let names = |json: &Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&refused), names(&json));
}

/// Quantiles need samples, so types differ from run to run.
#[test]
fn the_keys_of_the_statistics_stay() {
    let folder = Folder::with("stats-keys", LIVE);
    let run = Watched::begin(&folder, "graph.yaml --monitor --duration 1m");
    let mut client = run.client();
    let is_whole = |stats: &Value| {
        let has = |list: &str, key: &str| {
            stats[list].as_array().is_some_and(|all| all.iter().any(|one| one[key].is_object()))
        };
        has("nodes", "queue") && has("nodes", "compute") && has("nodes", "backend") && has("paths", "latency")
    };
    let stats = client.stats_with(is_whole);
    client.ask(&serde_json::json!({ "ask": "stop" }));
    run.end().expect(0, "", "");
    let names = |line: String| -> String {
        let (path, keys) = line.split_once(' ').unwrap_or((&line, ""));
        let keys = keys.split(' ').map(|key| key.split(':').next().unwrap_or(""));
        format!("{path}: {}", Vec::from_iter(keys).join(" "))
    };
    assert_eq!(keys(&stats).into_iter().map(names).collect::<Vec<_>>(), STATS);
}
