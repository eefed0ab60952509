//! Joins that could wait forever, pair what does not belong together, or contradict themselves.

use crate::refused_graphs::{check, recorded};
use limen::{Layers, Options, Plan};
use limen_tests::files::{npy_of, wav};
use limen_tests::registry;

/// What the default would do is no error of the file.
#[test]
fn a_join_that_cannot_be_read_is_one_problem() {
    let text = "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: numbers }\n  p: { kind: pair, inputs: { a: { from: a, when_full: drop_oldest }, b: b }, \
                join: { policy: by_time, within: WITHIN } }\n  c: { kind: collect, from: p }\n";
    check(&text.replace("WITHIN", "10"), &[("5:111 E0104", "expected a duration such as `10ms`, found the number 10")]);
    check(
        &text.replace("join: { policy: by_time, within: WITHIN }", "budget: 1ms"),
        &[("5:3 E0134", "could wait forever")],
    );
}

/// Promise (joins): limen rejects a join that could wait forever for a lost message.
#[test]
fn joins_of_lossy_streams_are_refused() {
    recorded("joins_of_lossy_streams");
}

/// Promise (joins): A join by time of independent sources needs no `patience`, whatever an upstream
/// edge loses.
///
/// By time, a later message of a stream proves that an earlier one was lost. Only a source shared
/// by both inputs, or another node that waits, could keep it from arriving.
#[test]
fn joins_by_time_of_independent_streams_may_be_lossy() {
    let graph = |b: &str, rest: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  o: {{ kind: numbers }}\n  g: {{ kind: gate, from: o }}\n  \
             p: {{ kind: collect, inputs: {{ x: a, y: {b} }}, join: {{ policy: by_time, within: 1ms }} }}\n{rest}"
        )
    };
    for b in ["g", "{ from: o, when_full: latest }", "{ from: o, max_age: 1ms }"] {
        let problems = limen_tests::plan(&graph(b, "  z: { kind: collect, from: g }\n")).map(|_| ());
        assert_eq!(problems.map_err(|problems| problems.to_string()), Ok(()), "{b}");
    }
    let other = "  q: { kind: collect, inputs: { x: o, y: g }, join: { patience: 4 } }\n";
    assert!(limen_tests::plan(&graph("g", other)).is_ok());
    check(&graph("{ from: a, when_full: latest }", ""), &[("6:3 E0134", "may lose messages")]);
    let other = "  q: { kind: collect, inputs: { x: o, y: o } }\n";
    check(&graph("g", other), &[("6:3 E0134", "`g` may drop messages")]);
}

/// Promise (joins): limen rejects a join whose edges an upstream node that multiplies messages can
/// fill.
///
/// From a seed: a stream that multiplies fills the edges that its partner has to pass.
#[test]
fn joins_of_streams_that_multiply_are_refused() {
    recorded("joins_of_streams_that_multiply");
}

/// Promise (joins): limen rejects contradictory join policies.
#[test]
fn contradictory_join_policies_are_refused() {
    let graph = |node: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: numbers }}\n  {node}\n  z: {{ kind: trail, from: m }}\n"
        )
    };
    for (node, place, part) in [
        (
            "m: { kind: merge, inputs: { x: a, y: b }, join: { policy: sample } }",
            "5:51 E0139",
            "`policy` must be `in_turn`, `oldest_first` or `priority`, got `sample`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: in_turn } }",
            "5:50 E0139",
            "`policy` must be `zip`, `by_time` or `sample`, got `in_turn`",
        ),
        ("m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time } }", "5:50 E0139", "requires `within`"),
        ("m: { kind: pair, inputs: { a: a, b: b }, join: { wait: 1ms } }", "5:50 E0139", "`wait` require"),
        ("m: { kind: pair, inputs: { a: a, b: b }, join: { policy: sample, trigger: c } }", "5:50 E0139", "got `c`"),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { pick: newest } }",
            "5:50 E0139",
            "require `policy: by_time`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time, within: 1ms, anchor: c } }",
            "5:50 E0139",
            "`anchor` must be one of `a`, `b`, got `c`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time, within: 1ms, pick: interpolate } }",
            "5:50 E0139",
            "`pick: interpolate` requires an `anchor`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time, within: 1ms, pick: interpolate, anchor: a } }",
            "5:50 E0139",
            "`b` cannot be interpolated: u64[] is not `f32`",
        ),
        ("m: { kind: step, from: a, join: { patience: 1 } }", "5:35 E0139", "`join` requires several inputs"),
        (
            "m: { kind: merge, inputs: { x: a, y: a }, join: { policy: in_turn } }",
            "5:3 E0134",
            "several inputs come from `a`",
        ),
    ] {
        check(&graph(node), &[(place, part)]);
    }
}

#[test]
fn a_sampling_node_on_one_branch_of_a_join_is_refused() {
    recorded("a_sampling_node_on_one_branch_of_a_join");
}

/// Promise (joins): Without `patience`, limen rejects two joins of the same sources that can block
/// each other.
///
/// From a seed: each join waits for the source that the other one blocks.
#[test]
fn two_joins_of_the_same_sources_out_of_step_are_refused() {
    let graph = |join: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: numbers }}\n  \
             m: {{ kind: merge, inputs: {{ a: a, b: b }}, join: {{ policy: oldest_first{join} }} }}\n  \
             t: {{ kind: pair, inputs: {{ a: a, b: b }}, join: {{ policy: by_time, within: 1ms{join} }} }}\n  \
             c: {{ kind: collect, from: m }}\n  d: {{ kind: collect, inputs: {{ x: a, y: b }} }}\n  \
             e: {{ kind: collect, from: t }}\n"
        )
    };
    check(
        &graph(""),
        &[
            ("5:3 E0134", "`m` (`policy: oldest_first`) could deadlock: `d` waits for the same sources"),
            ("6:3 E0134", "`t` (`policy: by_time`) could deadlock: `d` waits for the same sources"),
        ],
    );
    assert!(limen_tests::plan(&graph(", patience: 4")).is_ok());
}

/// Promise (joins): A join by sequence of the outputs of a `synchronize` by time or by sampling
/// requires `patience`.
///
/// From a seed: the outputs carry messages of different sequences, and a full edge keeps the
/// partners from arriving.
#[test]
fn a_join_of_synchronized_outputs_out_of_step_is_refused() {
    let graph = |policy: &str, join: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: numbers }}\n  \
             s: {{ kind: synchronize, inputs: {{ x: a, y: b }}, join: {{ policy: {policy} }} }}\n  \
             c: {{ kind: collect, inputs: {{ x: s/x, y: s/y }}{join} }}\n"
        )
    };
    for policy in ["by_time, within: 1ms", "sample"] {
        let why = "`s` forwards each input to another output, and the outputs may drift apart";
        check(&graph(policy, ""), &[("6:3 E0134", why)]);
        assert!(limen_tests::plan(&graph(policy, ", join: { patience: 4 }")).is_ok(), "{policy}");
    }
    assert!(limen_tests::plan(&graph("zip", "")).is_ok());
}

#[test]
fn a_deadline_that_drops_on_one_branch_of_a_join_is_refused() {
    recorded("a_deadline_that_drops_on_one_branch_of_a_join");
}

/// Promise (joins): limen rejects a join by sequence of sources with different rates.
#[test]
fn joins_by_number_of_streams_of_different_rates_are_refused() {
    let graph = |a: &str, b: &str, keys: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ {a} }}\n  b: {{ {b} }}\n  s: {{ kind: cast, config: {{ dtype: f32 }}, from: a }}\n  \
             c: {{ kind: csv, config: {{ path: out/x.csv }}, inputs: {{ x: s, y: b }}{keys} }}\n"
        )
    };
    let timer = |rate: &str| format!("kind: timer, config: {{ rate: {rate} }}");
    let camera = |rate: &str| format!("kind: synthetic, config: {{ pattern: counter, rate: {rate} }}");
    let udp = "kind: udp, config: { listen: 9123 }";
    check(
        &graph(&timer("1kHz"), &camera("30Hz"), ""),
        &[(
            "6:3 E0157",
            "by sequence number: `a` produces a message every 1.00 ms, `b` produces a message every 33.3 ms. The pairs drift apart",
        )],
    );
    let notes = |a: &str, b: &str, keys: &str| {
        let plan = limen_tests::plan(&graph(a, b, keys)).unwrap();
        plan.notes().iter().filter(|note| note.contains("by sequence number")).count()
    };
    let counted = "kind: timer, config: { rate: 1kHz, count: 100 }";
    for (a, b, keys, expected) in [
        (&*timer("30Hz"), &*camera("30Hz"), "", 0),
        // Sources that end, lossy paths and unknown rates are allowed.
        (counted, &*camera("30Hz"), "", 1),
        (&*timer("1kHz"), "kind: synthetic, config: { pattern: counter }", "", 0),
        (&*timer("1kHz"), &*camera("30Hz"), ", join: { policy: sample }", 0),
        (&*timer("1kHz"), &*camera("30Hz"), ", join: { policy: by_time, within: 1ms }", 0),
        ("kind: synthetic, config: { pattern: counter }", "kind: synthetic, config: { pattern: counter }", "", 0),
    ] {
        assert_eq!(notes(a, b, keys), expected, "{a}, {b}{keys}");
    }
    for (b, anchor, expected) in [("30Hz", "", 1), ("30Hz", ", anchor: y", 0), ("1kHz", "", 0)] {
        let join = format!(", join: {{ policy: by_time, within: 1ms{anchor} }}");
        let plan = limen_tests::plan(&graph(&timer("1kHz"), &camera(b), &join)).unwrap();
        let said = "without an `anchor`: `a` produces a message every 1.00 ms, `b` produces a message every 33.3 ms";
        assert_eq!(
            plan.notes().iter().filter(|note| note.contains(said)).count(),
            expected,
            "{join}: {:?}",
            plan.notes()
        );
    }
    for (a, b, keys, expected) in [
        (
            "10Hz",
            "5Hz",
            "within: 20ms",
            "at most 50 % of the messages of `a` find a partner. To match more, write `pick: interpolate` with `within: 200ms`, or `anchor: y`",
        ),
        // A message is used once, however long the window is.
        (
            "10Hz",
            "5Hz",
            "within: 1s, pick: newest",
            "at most 50 % of the messages of `a` find a partner. To match more, write `pick: interpolate` with `within: 200ms`, or `anchor: y`",
        ),
        ("30Hz", "20Hz", "within: 20ms", "at most 66 % of the messages of `a` find a partner"),
        (
            "30Hz",
            "10Hz",
            "within: 70ms, pick: interpolate",
            "at most 66 % of the messages of `a` find a partner. To match more, write `within: 100ms`",
        ),
        (
            "30Hz",
            "10Hz",
            "within: 20ms, pick: interpolate",
            "at most 33 % of the messages of `a` find a partner. To match more, write `within: 100ms`",
        ),
        ("30Hz", "10Hz", "within: 100ms, pick: interpolate", ""),
        ("5Hz", "10Hz", "within: 20ms", ""),
        ("30Hz", "29.97Hz", "within: 20ms", ""),
        ("10Hz", "10Hz", "within: 1ms", ""),
    ] {
        let graph = |between: &str| {
            format!(
                "version: 1\nnodes:\n  a: {{ {} }}\n  b: {{ {} }}\n  f: {{ kind: cast, config: {{ dtype: f32 }}, from: b }}\n  \
                 p: {{ {between}, from: a }}\n  \
                 s: {{ kind: synchronize, inputs: {{ x: p, y: f }}, join: {{ policy: by_time, anchor: x, {keys} }} }}\n  \
                 c: {{ kind: \"null\", from: s/x }}\n  d: {{ kind: \"null\", from: s/y }}\n",
                timer(a),
                timer(b)
            )
        };
        let notes = |between: &str| limen_tests::plan(&graph(between)).unwrap().notes().join("\n");
        let found = notes("kind: pass");
        assert_eq!(found.contains("find a partner"), !expected.is_empty(), "{a} {b} {keys}: {found}");
        assert!(found.contains(expected), "{a} {b} {keys}: {found}");
        // Nothing is known of the rate downstream of a node that leaves messages out.
        let found = notes("kind: decimate, config: { keep_every: 2 }");
        assert!(!found.contains("find a partner"), "{a} {b} {keys}: {found}");
    }
    let live = format!(
        "version: 1\nnodes:\n  a: {{ {} }}\n  u: {{ {udp} }}\n  c: {{ kind: \"null\", inputs: {{ x: a, y: u }} }}\n",
        timer("1kHz")
    );
    let plan = limen_tests::plan(&live).unwrap();
    let said = "`a` produces a message every 1.00 ms, the rate of `u` is unknown. The pairs drift apart";
    assert!(plan.notes().iter().any(|note| note.contains(said)), "{:?}", plan.notes());
}

#[test]
fn a_sampling_join_behind_a_source_that_runs_ahead_of_the_clock_is_refused() {
    let graph = |keys: &str, join: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 5{keys} }} }}\n  b: {{ kind: numbers, config: {{ count: 5 }} }}\n  \
             p: {{ kind: pass, from: a }}\n  c: {{ kind: collect, inputs: {{ x: p, y: b }}, join: {{ {join} }} }}\n"
        )
    };
    check(
        &graph(", ahead: true", "policy: sample, trigger: y"),
        &[("6:3 E0167", "`c` samples messages of `a`, which runs ahead of the clock")],
    );
    for (keys, join) in
        [("", "policy: sample, trigger: y"), (", ahead: true", "policy: by_time, within: 1ms, anchor: y")]
    {
        assert!(limen_tests::plan(&graph(keys, join)).is_ok(), "{keys} {join}");
    }
}

/// Promise (joins): limen rejects a sampling join of a source that does not wait for a clock, and
/// its help works.
///
/// Files and made-up data without a rate are sent at once, and a sampling join would take whatever
/// comes last.
#[test]
fn a_sampling_join_behind_a_source_without_a_rate_is_refused_with_a_help_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let npy = |items: usize| npy_of(&[items, 2], &vec![0.0; items * 2]);
    std::fs::write(at("a.npy"), npy(3)).unwrap();
    std::fs::write(at("one.npy"), npy(1)).unwrap();
    std::fs::write(at("a.wav"), wav(1, 16_000, &[0; 16_000])).unwrap();
    std::fs::write(at("a.csv"), "x,y\n1,2\n3,4\n").unwrap();
    std::fs::create_dir(at("images")).unwrap();
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/digits/data/0144-3.png");
    for name in ["images/0-1.png", "images/1-2.png"] {
        std::fs::copy(image, at(name)).unwrap();
    }
    let plan = |nodes: &str| {
        let text = format!("version: 1\nnodes:\n  t: {{ kind: timer, config: {{ rate: 30Hz }} }}\n{nodes}");
        std::fs::write(at("graph.yaml"), text).unwrap();
        Plan::from_file(at("graph.yaml"), &Layers::default(), &registry(), &Options::default())
    };
    let sample = |from: &str, trigger: &str| {
        format!(
            "  j: {{ kind: \"null\", inputs: {{ t: t, a: {from} }}, join: {{ policy: sample, trigger: {trigger} }} }}\n"
        )
    };
    for (kind, config, paced, port) in [
        ("csv", "path: a.csv", "rate: 30Hz", ""),
        ("npy", "path: a.npy", "rate: 30Hz", ""),
        ("npy", "path: one.npy, repeat: 2", "rate: 30Hz", ""),
        ("file", "path: a.csv", "rate: 30Hz", ""),
        ("image_files", "path: 'images/*.png'", "rate: 30Hz", "/image"),
        ("synthetic", "pattern: counter", "rate: 30Hz", ""),
        ("wav", "path: a.wav, frames: 512", "real_time: true", ""),
    ] {
        for trigger in ["t", "a"] {
            let graph = |more: &str| {
                format!("  a: {{ kind: {kind}, config: {{ {config}{more} }} }}\n  p: {{ kind: pass, from: a{port} }}\n")
                    + &sample("p", trigger)
            };
            let problems = plan(&graph("")).err().unwrap_or_else(|| panic!("{kind} is not refused")).to_string();
            let expected = format!(
                "error[E0167]: `j` samples messages of `a`, which has no rate: the sampled message depends on thread \
                 timing\n    help: write `{paced}` in the `config` of `a`"
            );
            assert!(problems.contains(&expected), "{kind}: {problems}");
            // With the help, or with a join that waits for both.
            plan(&graph(&format!(", {paced}"))).unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
    // What is as slow as a source with a rate, and what is sent once.
    let unpaced = "  a: { kind: synthetic, config: { pattern: counter } }\n";
    for (nodes, from, is_refused) in [
        (format!("{unpaced}  z: {{ kind: pair, inputs: {{ a: a, b: t }} }}\n"), "z", false),
        (format!("{unpaced}  z: {{ kind: merge, inputs: {{ a: a, b: t }} }}\n"), "z", true),
        ("  a: { kind: npy, config: { path: one.npy } }\n".into(), "a", false),
        ("  a: { kind: synthetic, config: { pattern: counter, count: 1 } }\n".into(), "a", false),
        ("  a: { kind: synthetic, config: { pattern: counter, count: 2 } }\n".into(), "a", true),
    ] {
        let planned = plan(&(nodes.clone() + &sample(from, "t")));
        let problems = planned.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(problems.contains("E0167"), is_refused, "{nodes}{problems}");
        assert_eq!(planned.is_err(), is_refused, "{nodes}{problems}");
    }
}

/// Promise (joins): limen rejects a join of branches that share the output of a join by time, if
/// each message takes only one branch.
#[test]
fn a_rejoin_of_different_routes_after_a_join_by_time_is_refused() {
    let graph = |routes: &str, log: &str| {
        format!(
            "version: 1\nnodes:\n  imu: {{ kind: timer, config: {{ rate: 1kHz, count: 300 }} }}\n  \
             cam: {{ kind: timer, config: {{ rate: 50Hz, count: 15 }} }}\n  \
             pair: {{ kind: router, config: {{ routes: [{routes}] }}, inputs: {{ in: imu, by: cam }}, join: {{ policy: by_time, within: 1ms }} }}\n  \
             copy: {{ kind: pass, from: pair/all }}\n  log: {{ kind: \"null\", inputs: {{ {log} }} }}\n"
        )
    };
    // Every message that `log` takes came through `pair`, so it arrives on both routes.
    let diamond = graph("{ to: all, when: else }", "a: { from: pair/all, capacity: 4 }, b: copy");
    for seed in 0..50 {
        let report = limen_tests::turn(&diamond, seed);
        assert_eq!((report.bugs.len(), report.node("log").unwrap().done), (0, 15), "seed {seed}");
    }
    // A message on one route is not on the other, so the join could wait for ever.
    check(
        &graph("{ to: all, when: '< 5' }, { to: rest, when: else }", "a: pair/all, b: pair/rest"),
        &[("7:3 E0134", "`pair` may drop messages")],
    );
    check(
        &graph("{ to: all, when: else }", "a: imu, b: cam, c: copy"),
        &[("5:3 E0134", "`log` waits for the same sources"), ("7:3 E0134", "`pair`")],
    );
}
