//! Keys that have a new name: the old one is read as the new one, with a notice that names that.

use limen::{Plan, Registry, Spec};

fn registry() -> Registry {
    Registry::new().with(limen_tests::stock_nodes).with(limen_infer::register)
}

fn plan(registry: &Registry, graph: &str) -> Result<Plan, String> {
    let spec = Spec::from_text(&format!("version: 1\nnodes:\n{graph}"), "g.yaml").map_err(|e| e.to_string())?;
    Plan::new(spec, registry).map_err(|e| e.to_string())
}

/// Every renamed key: a graph with `KEY` in place of the old name, the old name and the new one.
const RENAMED: [(&str, &str, &str); 6] = [
    ("  n: { kind: serial, config: { KEY: none, baud: 9600 } }\n  z: { kind: 'null', from: n }\n", "device", "path"),
    (
        "  a: { kind: timer, config: { rate: 1Hz } }\n  n: { kind: serial, config: { KEY: none, baud: 9600 }, from: a }\n",
        "device",
        "path",
    ),
    ("  n: { kind: v4l2, config: { KEY: /dev/video0 } }\n  z: { kind: 'null', from: n }\n", "device", "path"),
    ("  n: { kind: audio, config: { KEY: default, frames: 10 } }\n  z: { kind: 'null', from: n }\n", "device", "pcm"),
    (
        "  a: { kind: synthetic, config: { pattern: counter, dtype: f32, shape: [1, 2] } }\n  \
           n: { kind: infer, config: { KEY: cpu, backend: mock, mock: { inputs: { x: 'f32[2]' }, outputs: { y: 'f32[2]' } } }, from: a }\n  \
           z: { kind: 'null', from: n }\n",
        "device",
        "provider",
    ),
    (
        "  a: { kind: synthetic, config: { pattern: counter, dtype: f32, shape: [1], rate: 10Hz } }\n  \
           n: { kind: concat, inputs: { x: a, y: a }, join: { policy: by_time, within: 1ms, KEY: 5ms } }\n  \
           z: { kind: 'null', from: n }\n",
        "hold",
        "wait",
    ),
];

#[test]
fn an_old_key_is_read_as_the_new_one_and_the_plan_names_that() {
    let registry = registry();
    for (graph, old, new) in RENAMED {
        let [before, now] = [old, new].map(|key| plan(&registry, &graph.replace("KEY", key)));
        match (before, now) {
            (Ok(before), Ok(now)) => {
                let notices = |plan: &Plan| plan.nodes().iter().flat_map(|n| n.notices.clone()).collect::<Vec<_>>();
                let mut notices_before = notices(&before);
                notices_before.retain(|notice| !notice.contains("deprecated"));
                assert_eq!(notices_before, notices(&now), "{graph}");
                let (line, key) = graph.lines().enumerate().find(|(_, line)| line.contains("KEY")).unwrap();
                let place = format!("g.yaml:{}:{}", line + 3, key.find("KEY").unwrap() + 1);
                let note = format!("`n` uses `{old}`, a deprecated name of `{new}`: write `{new}` ({place})");
                let note = format!("{note} or run `limen-run migrate g.yaml`");
                assert_eq!(before.notes().iter().filter(|there| **there == note).count(), 1, "{:?}", before.notes());
            }
            // What a machine lacks is said in the same words, at the value.
            (before, now) => {
                let messages = |problems: String| {
                    problems
                        .lines()
                        .map(|line| line.split_once("error[").map_or(line, |(_, what)| what).to_string())
                        .collect::<Vec<_>>()
                };
                let [before, now] = [before, now].map(|planned| messages(planned.err().unwrap_or_default()));
                assert_eq!(before, now, "{graph}");
                assert!(!before.is_empty() && before.iter().all(|line| !line.contains("unknown key")), "{before:?}");
            }
        }
    }
}

#[test]
fn a_key_under_both_names_is_refused() {
    let graph =
        "  n: { kind: serial, config: { device: none, path: none, baud: 9600 } }\n  z: { kind: 'null', from: n }\n";
    let problems = plan(&registry(), graph).unwrap_err();
    assert!(problems.contains("g.yaml:3:32: error[E0103]: unknown key `device`"), "{problems}");
    let graph = RENAMED[5].0.replace("KEY: 5ms", "hold: 5ms, wait: 5ms");
    let problems = plan(&registry(), &graph).unwrap_err();
    assert!(problems.contains("error[E0103]: unknown key `hold`"), "{problems}");
}

#[test]
fn a_kind_that_replaces_another_has_no_old_keys() {
    let registry = registry().source::<limen_nodes_core::source::timer::Timer>("serial");
    let graph = "  n: { kind: serial, config: { device: none } }\n  z: { kind: 'null', from: n }\n";
    let problems = plan(&registry, graph).unwrap_err();
    assert!(problems.contains("unknown key `device`"), "{problems}");
}
