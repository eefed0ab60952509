//! Wrong graphs: all problems are reported at once, each with its place and a remedy, and nothing
//! is started.

use limen::{Layers, Options, Plan, Spec};
use limen_tests::recorded::assert_recorded;
use limen_tests::{plan, registry};
use std::path::Path;

/// A graph's text and, for each problem in the order of the file, `line:column code` and a part of
/// its text.
pub(crate) fn check(graph: &str, expected: &[(&str, &str)]) {
    let problems = match plan(graph) {
        Ok(_) => panic!("not refused:\n{graph}"),
        Err(problems) => problems,
    };
    let found: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{graph}\n{}", found.join("\n"));
    for (found, (place, part)) in found.iter().zip(expected) {
        let (line_column, code) = place.split_once(' ').unwrap();
        let at = if line_column == "-" { "test.yaml: ".into() } else { format!("test.yaml:{line_column}: ") };
        assert!(found.starts_with(&format!("{at}error[{code}]")), "{found}\nexpected {place}\n{graph}");
        assert!(found.contains(part), "{found}\nexpected {part}\n{graph}");
        assert!(found.contains("help: "), "no remedy: {found}");
    }
}

/// Each graph of `tests/refused/NAME.yaml` is refused with the problems in `NAME.txt`. Lines of
/// `---` separate graphs and texts.
pub(crate) fn recorded(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("refused").join(name).with_extension("yaml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.yaml");
    let graphs = std::fs::read_to_string(&path).unwrap();
    let texts = graphs.split("---\n").map(|graph| {
        std::fs::write(&file, graph).unwrap();
        let planned = Plan::from_file(&file, &Layers::default(), &registry(), &Options::default());
        let problems = planned.map_or_else(|problems| problems, |_| panic!("not refused:\n{graph}"));
        let lines = problems.0.iter().map(|problem| {
            let said = problem.to_string().replace(&format!("{}/", folder.path().display()), "");
            // A wrong value of a config has the message of its type. The range of a CPU depends on
            // the machine.
            assert!(problem.help.is_some() || problem.code == "E0104", "no remedy: {said}");
            match said.split_once(" must be ") {
                Some((core, _)) if problem.code == "E0141" => format!("{core} is out of range\n"),
                _ => said + "\n",
            }
        });
        lines.collect::<String>()
    });
    assert_recorded(&path.with_extension("txt"), &texts.collect::<Vec<_>>().join("---\n"));
}

#[test]
fn malformed_files_are_refused() {
    recorded("malformed_files");
    check("", &[("1:1 E0113", "empty")]);
}

/// Promise (checking): limen rejects connections that cannot work.
#[test]
fn wrong_connections_are_refused() {
    recorded("wrong_connections");
}

#[test]
fn blocking_cycles_are_refused() {
    recorded("blocking_cycles");
}

#[test]
fn wrong_capacities_kinds_and_configs_are_refused() {
    recorded("wrong_capacities_kinds_and_configs");
    for (capacity, message) in [
        ("0", "must be 1 to"),
        ("9223372036854775808", "must be 1 to"),
        ("-1", "must be 1 to"),
        ("many", "must be 1 to"),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: collect, from: {{ from: a, capacity: {capacity} }} }}\n"
        );
        check(&graph, &[("4:50 E0106", message)]);
    }
    // A help is within the range of the key.
    for (times, help) in
        [(8, "write `capacity: 8`"), (1 << 24, "write `capacity: 16777216`"), ((1 << 24) + 1, "remove `capacity`")]
    {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  s: {{ kind: split, config: {{ times: {times} }}, from: a }}\n  \
             b: {{ kind: collect, from: {{ from: s, capacity: 4 }} }}\n"
        );
        let problems = limen_tests::plan(&graph).expect_err("refused").to_string();
        assert!(problems.contains("E0133") && problems.contains(help), "{problems}");
    }
}

/// Wrong values hide neither each other nor problems of the graph's structure.
#[test]
fn wrong_values_do_not_hide_other_problems() {
    recorded("wrong_values");
}

/// Planning goes on beside what could not be read, and reports nothing that only follows from it.
#[test]
fn independent_problems_are_all_reported_once() {
    recorded("independent_problems");
}

/// Promise (checking): limen rejects cores and memory that do not exist.
#[test]
fn impossible_cores_and_memory_are_refused() {
    recorded("impossible_cores_and_memory");
}

#[test]
fn sizes_without_a_bound_are_refused() {
    recorded("sizes_without_a_bound");
}

/// What only follows from a problem is not a problem of its own.
#[test]
fn consequences_of_a_problem_are_not_reported() {
    let graph = |a: &str, others: &str| format!("version: 1\nnodes:\n  b: {{ kind: numbers }}\n  a: {a}\n{others}");
    let sized = |a: &str| {
        format!(
            "  s: {{ kind: sized, inputs: {{ a: {a}, b: b }} }}\n  t: {{ kind: sized, inputs: {{ a: s, b: b }} }}\n"
        )
    };
    let zero = "{ kind: synthetic, config: { pattern: noise, shape: [0] } }";
    let unbounded = "{ kind: numbers, config: { unbounded: true } }";
    let good = "{ kind: numbers }";
    for (a, others, place, part) in [
        (zero, sized("a"), "4:59 E0130", "a length must be at least 1, got 0"),
        (
            zero,
            format!("  p: {{ kind: pass, from: a }}\n{}", sized("p")),
            "4:59 E0130",
            "a length must be at least 1, got 0",
        ),
        (good, sized("c"), "5:34 E0120", "unknown node `c`"),
        (good, sized("a/x"), "5:34 E0123", "has no output `x`"),
        ("{ kind: nubmers }", sized("a"), "4:14 E0124", "unknown kind"),
        (unbounded, sized("a"), "4:31 E0129", "has no bound"),
        (unbounded, "  v: { kind: 'null', from: a }\n".into(), "4:31 E0129", "has no bound"),
    ] {
        check(&graph(a, &others), &[(place, part)]);
    }
    // Other problems of these nodes are.
    let both = "  s: { kind: sized, inputs: { b: b } }\n  t: { kind: sized, inputs: { a: s, c: b } }\n";
    check(
        &graph(good, both),
        &[
            ("5:3 E0125", "input `a` of `s` is not connected"),
            ("6:3 E0125", "leave it to `a`"),
            ("6:40 E0123", "node `t` has no input `c`"),
        ],
    );
}

#[test]
fn impossible_faults_and_deadlines_are_refused() {
    recorded("impossible_faults_and_deadlines");
}

/// Promise (edges): limen rejects contradictory watermarks.
#[test]
fn contradictory_watermarks_are_refused() {
    recorded("contradictory_watermarks");
    let graph = |edge: &str| {
        format!("version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: collect, from: {{ from: a, {edge} }} }}\n")
    };
    check(&graph("soft_capacity: 9, capacity: 4"), &[("4:55 E0133", "must be at most the `capacity` of 4, got 9")]);
    check(&graph("soft_bytes: 9B"), &[("4:52 E0133", "`soft_bytes` requires `max_bytes`")]);
    check(
        &graph("soft_bytes: 9B, max_bytes: 8B"),
        &[("4:52 E0133", "`soft_bytes` must be at most `max_bytes` (8 B), got 9 B")],
    );
    check(&graph("soft_evict: true, soft_capacity: 2"), &[("4:52 E0133", "requires `when_full: drop_oldest`")]);
    check(&graph("when_full: latest, max_bytes: 8B"), &[("4:70 E0133", "requires a `when_full` other than `latest`")]);
    check(&graph("max_bytes: 0B"), &[("4:51 E0133", "`max_bytes` must be at least 1B")]);
    check(&graph("max_bytes: 8"), &[("4:51 E0104", "expected a size such as `4MiB`, found the number 8")]);
    let inputs = |count| (0..count).map(|i| format!("i{i}: s{i}")).collect::<Vec<_>>().join(", ");
    let merge = |count| {
        let sources: String = (0..count).map(|i| format!("  s{i}: {{ kind: numbers }}\n")).collect();
        let inputs = inputs(count);
        format!(
            "version: 1\nnodes:\n  m: {{ qos: normal, kind: merge, inputs: {{ {inputs} }} }}\n  k: {{ kind: collect, from: m }}\n{sources}"
        )
    };
    check(&merge(3), &[("3:13 E0144", "write `qos` at `s0` or `s1` or `s2`")]);
    check(&merge(9), &[("3:13 E0144", "write `qos` at `s0` or `s1` or `s2` or another source")]);
}

#[test]
fn impossible_restarts_clocks_and_cores_are_refused() {
    recorded("impossible_restarts_clocks_and_cores");
}

/// Promise (scheduling): limen rejects a graph whose helper thread would share a core that spins.
#[test]
fn a_helper_needs_a_core_that_does_not_spin() {
    let own = plan("version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: collect, from: a }\n");
    let cpus = own.map_or_else(|problems| panic!("{problems}"), |plan| plan.workers()[0].cpu().into_iter().collect());
    let options = Options { cpus: Some(cpus), ..Options::default() };
    let problems = |sink: &str, in_flight: usize, wait: &str| {
        let text = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  m:\n    kind: infer\n    config: {{ backend: mock, in_flight: {in_flight}, \
             mock: {{ inputs: {{ in: u64 }}, outputs: {{ out: u64 }} }} }}\n    from: a\n  b: {{ kind: {sink}, from: m }}\n\
             cores: {{ 0: {{ wait: {wait} }} }}\n"
        );
        let spec = Spec::from_text(&text, "test.yaml").unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        Plan::with_options(spec, &registry(), &options).err().map(|problems| problems.to_string()).unwrap_or_default()
    };
    for (sink, in_flight, place, who) in
        [("console", 1, "8:3", "`b`"), ("collect", 2, "4:3", "`m`"), ("console", 2, "4:3", "`m`")]
    {
        let said = problems(sink, in_flight, "spin");
        let expected = format!("test.yaml:{place}: error[E0142]: {who} needs a helper thread");
        assert!(said.contains(&expected), "{sink}: {said}");
        assert_eq!(problems(sink, in_flight, "park"), "");
    }
    assert_eq!(problems("collect", 1, "spin"), "");
}

/// Promise (scheduling): A node that may block in the kernel has a helper thread on its core, with
/// the real-time settings of that core.
#[test]
fn a_helper_thread_runs_on_the_core_of_its_node() {
    let graph = |wait: &str, more: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0 }}\n  b: {{ kind: step, config: {{ blocking: true }}, from: a, core: 0 }}\n  \
             c: {{ kind: step, config: {{ blocking: true }}, from: b }}\n  d: {{ kind: collect, from: c, core: 0 }}\n\
             cores: {{ 0: {{ wait: {wait}, schedule: deadline{more} }} }}\n"
        )
    };
    let plan = plan(&graph("adaptive", "")).unwrap_or_else(|problems| panic!("{problems}"));
    let of = |name: &str| {
        let node = plan.nodes().iter().find(|node| node.name == name).unwrap();
        let worker = &plan.workers()[node.worker];
        (
            worker.name.clone(),
            worker.cpu().is_some(),
            worker.is_helper(),
            worker.wait().name(),
            worker.floats().is_some(),
        )
    };
    let cpu = plan.workers()[0].cpu().unwrap();
    assert_eq!(of("a"), (format!("limen-{cpu}"), true, false, "adaptive", false));
    assert_eq!(of("d"), of("a"));
    assert_eq!(of("b"), ("limen-b".into(), true, true, "park", false));
    assert_eq!(of("c"), ("limen-c".into(), false, true, "park", true));
    let b = plan.nodes().iter().find(|node| node.name == "b").unwrap();
    assert_eq!(plan.workers()[b.worker].cpu(), Some(cpu));
    check(&graph("spin", ""), &[("4:3 E0142", "but a worker spins on its core")]);
    // The helper has the core's real-time policy.
    let spec = Spec::from_text(&graph("park", ", rt: { priority: 40 }"), "test.yaml").unwrap();
    let options = Options { allow_rt: true, ..Options::default() };
    let asked = |plan: &Plan| -> Vec<_> {
        let asked = plan.workers().iter().filter(|worker| worker.real_time().is_some());
        asked.map(|worker| worker.name.clone()).collect()
    };
    if let Ok(plan) = Plan::with_options(spec, &registry(), &options) {
        assert_eq!(asked(&plan), [format!("limen-{cpu}"), "limen-b".into()]);
    }
}

/// Promise (time): limen rejects a deadline that is shorter than the waits of the graph.
#[test]
fn deadlines_shorter_than_planned_delays_are_refused() {
    recorded("deadlines_shorter_than_planned_delays");
}

/// Promise (time): limen rejects a deadline shorter than a known call time, and notes one that a
/// call may exceed.
#[test]
fn deadlines_shorter_than_a_call_are_refused() {
    let graph = |keys: &str, mock: &str, deadline: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  d: {{ kind: delay, config: {{ by: 2ms }}, from: a }}\n  \
             m: {{ kind: infer, config: {{ backend: mock, mock: {{ inputs: {{ x: u64 }}, outputs: {{ y: u64 }}{mock} }} }}, from: d{keys} }}\n  \
             c: {{ kind: collect, from: m }}\npaths: [{{ from: a, to: c, deadline: {deadline} }}]\n"
        )
    };
    for mock in [", latency: 15ms", ", latency: 10ms, per_item: 5ms"] {
        check(
            &graph("", mock, "16ms"),
            &[("7:37 E0145", "must be at least 17.0 ms, got 16.0 ms: `m` takes 15.0 ms per call")],
        );
    }
    // A budget is not a measurement, so it is only a note.
    let notes = |keys: &str, mock: &str, deadline: &str| {
        let plan = limen_tests::plan(&graph(keys, mock, deadline)).unwrap();
        plan.notes().iter().filter(|note| note.contains("its deadline")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(notes("", ", latency: 15ms", "18ms"), Vec::<String>::new());
    assert_eq!(
        notes(", budget: 9ms", "", "10ms"),
        [
            "the path from `a` to `c` may take 11.0 ms, more than its deadline of 10.0 ms: `m` may take 9.00 ms per call (`budget`)"
        ]
    );
    assert_eq!(notes(", budget: 7ms", "", "10ms"), Vec::<String>::new());
}

/// Promise (filters and groups): limen rejects a `gather` without a matching `scatter`.
#[test]
fn gather_without_a_matching_scatter_is_refused() {
    recorded("gather_without_a_matching_scatter");
    let apart = |more: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  w: {{ kind: window, config: {{ length: 8, tail: drop }}, from: a }}\n  \
             v: {{ kind: window, config: {{ length: 3 }}, from: w }}\n  s: {{ kind: scatter, from: v }}\n{more}"
        )
    };
    check(
        &apart("  r: { kind: scatter, from: s }\n  t: { kind: trail, from: r }\n"),
        &[("7:3 E0146", "scatters parts that `s` has scattered already")],
    );
    check(
        &apart("  g: { kind: gather, config: { max: 2 }, from: s }\n  t: { kind: trail, from: g }\n"),
        &[("7:30 E0146", "must be at least the 3 parts of `s`, got 2")],
    );
}

#[test]
fn too_many_sources_are_refused() {
    let nodes: String = (0..=1 << 16).map(|n| format!("  n{n}: {{ kind: numbers }}\n")).collect();
    let said = limen_tests::plan(&format!("version: 1\nnodes:\n{nodes}")).unwrap_err().to_string();
    assert!(said.contains("error[E0158]") && said.contains("at most 65535 sources, got 65537"), "{said}");
}

/// Promise (checking): The connection that closes a cycle is type-checked like any other.
///
/// The producer is not planned yet when the consumer is.
#[test]
fn the_edge_that_closes_a_cycle_is_type_checked() {
    let cycle = |from: &str, rest: &str| {
        format!(
            "version: 1\nnodes:\n  s: {{ kind: numbers }}\n  p: {{ kind: pair, inputs: {{ a: s, b: {{ from: {from}, when_full: \
             latest }} }}, join: {{ policy: sample, trigger: a }} }}\n{rest}"
        )
    };
    let sink = cycle("z", "  z: { kind: collect, from: p }\n");
    check(&sink, &[("4:47 E0123", "`z` is a sink and has no outputs")]);
    let nothing = cycle("q/there", "  q: { kind: step, from: p }\n  z: { kind: collect, from: q }\n");
    check(&nothing, &[("4:47 E0123", "no output `there`")]);
    let unknown = cycle("q", "  q: { kind: nothing, from: p }\n");
    check(&unknown, &[("5:14 E0124", "nothing")]);
    let row = "  q: { kind: cast, config: { dtype: f32 }, from: p }\n  z: { kind: 'null', from: q }\n";
    check(&cycle("q", row), &[("4:47 E0128", "expected u64 elements, found f32")]);
    assert!(plan(&cycle("q", "  q: { kind: step, from: p }\n  z: { kind: collect, from: q }\n")).is_ok());
}

/// A kind that a program registers all the same is there.
#[test]
fn a_kind_of_another_build_is_named_with_a_way_to_get_it() {
    let registry = registry().without_kinds(&["decode_x", "numbers"], "build it with `--features x`");
    let graph = "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: KIND, from: a }\n";
    let plan = |kind| Plan::new(Spec::from_text(&graph.replace("KIND", kind), "g.yaml").unwrap(), &registry);
    let said = plan("decode_x").unwrap_err().to_string();
    let expected = "g.yaml:4:14: error[E0124]: this program was built without the kind `decode_x`\n    help: build it with `--features x`";
    assert_eq!(said, expected);
    assert!(plan("collect").is_ok());
}

/// Control characters are escaped, wherever they are.
#[test]
fn bidirectional_characters_in_names_are_escaped() {
    let graph = "version: 1\nnodes:\n  \"a\\u202e\": { kind: \"nu\\u202ell\", \"\\u2066key\": 1 }\n";
    let said = limen_tests::plan(graph).unwrap_err().to_string();
    assert!(
        said.contains("\\u{202e}") && !said.contains(|c| c != '\n' && limen::text::is_terminal_control(c)),
        "{said}"
    );
}

/// Promise (checking): limen rejects a graph that takes too long to plan, with advice that works.
#[test]
fn a_graph_that_takes_too_long_to_plan_is_refused() {
    let joins = |count: usize, join: &str| {
        let mut text = "version: 1\nnodes:\n  n0: { kind: numbers }\n".to_string();
        for n in 1..=count {
            let before = n - 1;
            text += &format!("  n{n}: {{ kind: pair, inputs: {{ a: n{before}, b: n0 }}{join} }}\n");
        }
        text + &format!("  z: {{ kind: collect, from: n{count} }}\n")
    };
    check(&joins(1500, ""), &[("- E0169", "write `join: { patience: 16 }` at nodes with several inputs")]);
    plan(&joins(1500, ", join: { patience: 16 }")).unwrap();
    let merges = |count: usize| {
        let mut text = "version: 1\nnodes:\n  n0: { kind: numbers }\n".to_string();
        for n in 1..=count {
            let before = n - 1;
            text += &format!(
                "  s{n}: {{ kind: numbers }}\n  n{n}: {{ kind: merge, inputs: {{ a: n{before}, b: s{n} }}, join: {{ policy: \
                 in_turn, patience: 16 }} }}\n"
            );
        }
        text + &format!("  z: {{ kind: collect, from: n{count} }}\n")
    };
    check(&merges(2500), &[("- E0169", "connect fewer nodes to many sources")]);
    plan(&merges(250)).unwrap();
}
