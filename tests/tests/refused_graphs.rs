//! Wrong graphs: all problems are reported at once, each with its place and a remedy, and nothing is started.

use limen::{Layers, Options, Plan, Spec};
use limen_tests::{plan, registry};

/// A graph's text and, for each problem in the order of the file, `line:column code` and a part of its text.
fn check(graph: &str, expected: &[(&str, &str)]) {
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

#[test]
fn malformed_files_are_refused() {
    check("", &[("1:1 E0113", "empty")]);
    check("[1, 2]", &[("1:1 E0105", "a graph is a map, not a list")]);
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  c: { kind: collect, inputs: a }\n",
        &[("4:31 E0105", "help: write `from: a`")],
    );
    check("version: 2\nnodes: {}", &[("1:10 E0111", "version"), ("2:8 E0113", "no nodes")]);
    check(
        "version: 1\nnode: {}\nnodes:\n  A: { kind: numbers }\n  b: { kindd: collect, from: a }\n",
        &[
            ("2:1 E0103", "did you mean `nodes`?"),
            ("4:3 E0110", "`A` cannot be the name"),
            ("5:8 E0103", "did you mean `kind`?"),
        ],
    );
}

/// \[H2\]
#[test]
fn wrong_connections_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: step, from: aa }\n  c: { kind: collect, from: a/outt }\n",
        &[("4:26 E0120", "did you mean `a`?"), ("5:29 E0123", "did you mean `out`?")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: step, from: a }\n  b: { kind: step }\n  c: { kind: numbers, from: d }\n  d: { kind: collect, from: c }\n",
        &[
            ("3:26 E0121", "takes from itself"),
            ("4:3 E0125", "nothing is connected"),
            ("5:3 E0122", "form a cycle"),
            ("5:29 E0125", "is a source"),
        ],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  p: { kind: pair, inputs: { a: a, c: a } }\n  q: { kind: pair, from: a }\n",
        &[
            ("4:3 E0125", "`b` of `p` is not connected"),
            ("4:39 E0123", "no input `c`"),
            ("5:3 E0125", "`a` of `q`"),
            ("5:3 E0125", "`b` of `q`"),
            ("5:26 E0123", "several inputs"),
        ],
    );
}

/// What the default would do is no error of the file.
#[test]
fn a_join_that_cannot_be_read_is_one_problem() {
    let text = "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: numbers }\n  p: { kind: pair, inputs: { a: { from: a, when_full: drop_oldest }, b: b }, \
                join: { policy: by_time, within: WITHIN } }\n  c: { kind: collect, from: p }\n";
    check(&text.replace("WITHIN", "10"), &[("5:111 E0104", "the number 10 is not a time with its unit")]);
    check(
        &text.replace("join: { policy: by_time, within: WITHIN }", "budget: 1ms"),
        &[("5:3 E0134", "could wait forever")],
    );
}

#[test]
fn blocking_cycles_are_refused() {
    check(
        "version: 1\nnodes:\n  s: { kind: numbers }\n  a: { kind: pair, inputs: { a: s, b: b } }\n  b: { kind: step, from: a }\n",
        &[("4:3 E0122", "`a`, `b` form a cycle")],
    );
}

#[test]
fn wrong_capacities_kinds_and_configs_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numberz, config: { count: 1 } }\n  b: { kind: numbers, config: { cont: 1 } }\n  c: { kind: numbers, config: { count: -3 } }\n",
        &[("3:14 E0124", "did you mean `numbers`?"), ("4:33 E0103", "did you mean `count`?"), ("5:40 E0104", "-3")],
    );
    for (capacity, message) in
        [("0", "from 1 to"), ("9223372036854775808", "from 1 to"), ("-1", "from 1 to"), ("many", "from 1 to")]
    {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: collect, from: {{ from: a, capacity: {capacity} }} }}\n"
        );
        check(&graph, &[("4:50 E0106", message)]);
    }
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  s: { kind: split, config: { times: 8 }, from: a }\n  b: { kind: collect, from: { from: s, capacity: 4 } }\n  c: { kind: collect, from: { from: s, when_full: latest, capacity: 4 } }\n",
        &[("5:50 E0133", "below the 8 messages"), ("6:69 E0133", "holds one message")],
    );
    // A help is within the range of the key.
    for (times, help) in
        [(8, "write at least 8"), (1 << 24, "write at least 16777216"), ((1 << 24) + 1, "leave it out")]
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
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.yaml");
    let text = "version: 1\nnodes:\n  a: { kind: numbers, cpu: 1024, config: { count: x, period_ns: -1, unbounded: 2 } }\n  \
                b: { kind: step, core: 900, from: { from: a, capacity: 0 } }\n  d: { kind: collect, from: d }\n  \
                e: { kind: collect, cpu: 1000, from: b }\nrun: { stop: 1, strict: 2, telemetry: al, drops_above: 3 }\n";
    std::fs::write(&file, text).unwrap();
    let problems = Plan::from_file(&file, &Layers::default(), &registry(), &Options::default()).unwrap_err();
    let found: Vec<_> = problems.0.iter().map(|p| (p.place.line, p.place.column, p.code)).collect();
    let expected = [
        (3, 28, "E0106"),
        (3, 51, "E0104"),
        (3, 65, "E0104"),
        (3, 80, "E0104"),
        (4, 26, "E0141"),
        (4, 58, "E0106"),
        (5, 29, "E0121"),
        (6, 28, "E0141"),
        (7, 14, "E0104"),
        (7, 25, "E0104"),
        (7, 39, "E0104"),
        (7, 56, "E0104"),
    ];
    assert_eq!(found, expected, "{problems}");
}

/// Planning goes on beside what could not be read, and reports nothing that only follows from it.
#[test]
fn independent_problems_are_all_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.yaml");
    for (text, expected) in [
        (
            "version: 1\nnodes:\n  a: { kind: numbers, config: { cuont: 3 } }\n  b: { kind: steb, from: a }\n  \
             c: { kind: step, from: ee }\n  d: { kind: step, form: e }\n  e: { kind: numbers }\n  \
             f: { kind: step, from: e/outt }\n  g: { kind: collect, from: { from: e, capacity: 0 } }\n  \
             h: { kind: collect, core: 900, from: e }\n  i: { kind: step, from: i }\n\
             paths: [ { from: e, to: hh, deadline: 10 } ]\nrun: { stop: 5 }\n",
            &[
                (3, 33, "E0103"),
                (4, 14, "E0124"),
                (5, 26, "E0120"),
                (6, 20, "E0103"),
                (8, 26, "E0123"),
                (9, 50, "E0106"),
                (10, 29, "E0141"),
                (11, 26, "E0121"),
                (12, 10, "E0120"),
                (12, 39, "E0104"),
                (13, 14, "E0104"),
            ][..],
        ),
        // Nodes without a kind, with a wrong name, without the input that could not be read.
        (
            "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { from: aa }\n  c: { kind: collect, from: b }\n  \
             d: { kind: pair, inptus: { a: a, b: a } }\n  e: { kind: collect, from: d }\n  F: { kind: numbers }\n  \
             g: { kind: collect, from: F }\n  h: [1]\n  i: { kind: collect, from: h }\n  \
             j: { kind: pair, inputs: { a: a, b: 3 } }\n  k: { kind: 5, from: a }\n  l: { kind: collect, from: k }\n\
             paths: [ { from: a, to: c }, { from: h, to: i }, { form: a, to: cc } ]\n",
            &[
                (4, 3, "E0112"),
                (4, 14, "E0120"),
                (6, 20, "E0103"),
                (8, 3, "E0110"),
                (10, 6, "E0105"),
                (12, 39, "E0105"),
                (13, 14, "E0105"),
                (15, 50, "E0120"),
                (15, 52, "E0103"),
            ],
        ),
        // What concerns several nodes is found beside another one that is wrong.
        (
            "version: 1\nnodes:\n  x: { kind: nope }\n  a: { kind: numbers }\n  \
             p: { kind: pair, inputs: { a: a, b: { from: a, when_full: latest } } }\n  \
             q: { kind: pair, inputs: { a: p, b: x } }\n  c: { kind: collect, from: p }\n  d: { kind: collect, from: a }\n\
             paths: [ { from: p, to: c }, { from: a, to: q }, { from: a, to: d, deadline: 10 } ]\n",
            &[(3, 14, "E0124"), (5, 3, "E0134"), (9, 10, "E0137"), (9, 30, "E0137"), (9, 78, "E0104")],
        ),
        // The defaults or the nodes that could not be read may be what seems to be missing.
        (
            "version: 1\ndefualts: { }\nnodes:\n  a: { kind: numbers }\n  \
             p: { kind: pair, inputs: { a: a, b: { from: a, when_full: latest } } }\n  c: { kind: collect, from: pp }\n",
            &[(2, 1, "E0103"), (6, 29, "E0120")],
        ),
        (
            "version: 1\ninclude: [nope.yaml]\nnodes:\n  b: { kind: step, from: camera }\n  c: { kind: collet, from: b }\n\
             paths: [ { from: camera, to: c } ]\n",
            &[(2, 11, "E0148"), (5, 14, "E0124")],
        ),
        // A misspelt key is not missing as well.
        (
            "vesion: 1\nnodes:\n  a: { kidn: numbers }\n  b: { kind: collect, from: { form: a } }\n  \
             c: { kind: collect, from: a, config: { } }\npaths: [ { from: a, too: b } ]\n",
            &[(1, 1, "E0103"), (3, 8, "E0103"), (4, 31, "E0103"), (6, 21, "E0103")],
        ),
        ("version: 1\nnodes: [a, b]\npaths: [ { from: a, to: b } ]\n", &[(2, 8, "E0105")]),
    ] {
        std::fs::write(&file, text).unwrap();
        let problems = Plan::from_file(&file, &Layers::default(), &registry(), &Options::default()).unwrap_err();
        let found: Vec<_> = problems.0.iter().map(|p| (p.place.line, p.place.column, p.code)).collect();
        assert_eq!(found, expected, "{text}\n{problems}");
    }
}

/// \[T3\]
#[test]
fn impossible_cores_and_memory_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, core: 900 }\n  b: { kind: step, cpu: 1024, from: a }\n  c: { kind: collect, cpu: 1000, from: b }\n",
        &[("4:25 E0106", "from 0 to 1023")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, core: 900 }\n  c: { kind: collect, cpu: 1000, from: a }\n",
        &[("3:29 E0141", "core 900 does not exist"), ("4:28 E0141", "CPU 1000")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  c: { kind: collect, from: a }\ncores: { 900: { wait: park } }\n",
        &[("5:15 E0141", "core 900 does not exist")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: collect, from: { from: a, capacity: 1000000 } }\nrun: { max_memory: 1MiB }\n",
        &[("5:20 E0136", "the largest pool is `a/out`")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: collect, from: a }\nrun: { stop: 5, stric: true }\n",
        &[("5:14 E0104", "not a time with its unit"), ("5:17 E0103", "did you mean `strict`?")],
    );
}

#[test]
fn sizes_without_a_bound_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, config: { unbounded: true } }\n  b: { kind: collect, from: a }\n",
        &[("3:31 E0129", "the size of `a/out` has no bound"), ("4:29 E0128", "a/out` gives u64[?]")],
    );
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
        (zero, sized("a"), "4:59 E0130", "a length of 0"),
        (zero, format!("  p: {{ kind: pass, from: a }}\n{}", sized("p")), "4:59 E0130", "a length of 0"),
        (good, sized("c"), "5:34 E0120", "there is no node `c`"),
        (good, sized("a/x"), "5:34 E0123", "has no output `x`"),
        ("{ kind: nubmers }", sized("a"), "4:14 E0124", "there is no kind"),
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
fn joins_of_lossy_streams_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  p: { kind: pair, inputs: { a: a, b: { from: a, when_full: latest } } }\n  c: { kind: collect, from: p }\n",
        &[("4:3 E0134", "may lose messages")],
    );
    // Not only the edge itself may be lossy, but also any edge upstream, unless it is upstream of the other inputs too.
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  s: { kind: add, config: { n: 1 }, from: a, on_error: skip }\n  \
         t: { kind: numbers }\n  \
         q: { kind: pair, join: { policy: by_time, within: 1us, patience: 4 }, inputs: { a: a, b: t } }\n  \
         p: { kind: pair, inputs: { a: a, b: s } }\n  r: { kind: pair, inputs: { a: q, b: a } }\n  \
         c: { kind: collect, from: p }\n  d: { kind: collect, from: r }\n",
        &[("7:3 E0134", "`s` skips messages it fails on"), ("8:3 E0134", "`q` stops waiting for partners")],
    );
}

/// By time, a later message of a stream proves that an earlier one was lost. Only a source shared by both inputs, or another node
/// that waits, could keep it from arriving.
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

/// From a seed: a stream that multiplies fills the edges that its partner has to pass.
#[test]
fn joins_of_streams_that_multiply_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  s: { kind: split, config: { times: 4 }, from: a }\n  \
         t: { kind: step, from: a }\n  m: { kind: merge, inputs: { x: a, y: t } }\n  p: { kind: pair, inputs: { a: a, b: s } }\n  \
         q: { kind: pair, inputs: { a: m, b: a } }\n  r: { kind: pair, inputs: { a: m, b: m } }\n  c: { kind: collect, from: p }\n  \
         d: { kind: collect, from: q }\n  e: { kind: collect, from: r }\n",
        &[("7:3 E0134", "`s` makes several messages from one"), ("8:3 E0134", "`m` merges several streams")],
    );
}

#[test]
fn impossible_faults_and_deadlines_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  \
         b: { kind: step, from: { from: a, max_age: 5, on_gap: never }, fault: { panic_at: 0 } }\n  \
         c: { kind: collect, from: { from: b, on_gap: stop }, fault: { drop: 1.5 } }\n  \
         d: { kind: collect, from: b, fault: { hangs_at: 1 } }\n  \
         e: { kind: collect, from: b, fault: { delay_to: 1ms } }\n\
         paths:\n  - { from: a, to: c, on_miss: drop }\n  - { from: a, to: d, deadline: 1ms, on_miss: explode }\n",
        &[
            ("4:46 E0104", "the number 5 is not a time"),
            ("4:57 E0104", "`never` is not one of"),
            ("4:73 E0138", "calls count from 1"),
            ("5:48 E0118", "without `expect_every`"),
            ("5:63 E0138", "fractions from 0 to 1"),
            ("6:41 E0103", "did you mean `hang_at`?"),
            ("7:39 E0138", "`delay_to` without"),
            ("9:5 E0118", "without a deadline"),
            ("10:47 E0104", "`explode` is not one of"),
        ],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, fault: { drop: 0.1 } }\n  \
         b: { kind: collect, from: a, fault: { duplicate: 1 } }\n",
        &[
            ("3:30 E0138", "a source takes no messages that `drop` could lose"),
            ("4:39 E0138", "only messages of a source or a transform"),
        ],
    );
}

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
            "takes one message at a time",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: in_turn } }",
            "5:50 E0139",
            "all its inputs together",
        ),
        ("m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time } }", "5:50 E0139", "needs `within`"),
        ("m: { kind: pair, inputs: { a: a, b: b }, join: { hold: 1ms } }", "5:50 E0139", "`hold` belong to"),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: sample, trigger: c } }",
            "5:50 E0139",
            "`trigger: c`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { pick: newest } }",
            "5:50 E0139",
            "belong to `policy: by_time`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time, within: 1ms, anchor: c } }",
            "5:50 E0139",
            "`anchor: c` names none of its inputs",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time, within: 1ms, pick: interpolate } }",
            "5:50 E0139",
            "`pick: interpolate` needs an `anchor`",
        ),
        (
            "m: { kind: pair, inputs: { a: a, b: b }, join: { policy: by_time, within: 1ms, pick: interpolate, anchor: a } }",
            "5:50 E0139",
            "`b` cannot be interpolated: u64[] is not `f32`",
        ),
        ("m: { kind: step, from: a, join: { patience: 1 } }", "5:35 E0139", "`join` with one input"),
        ("m: { kind: merge, inputs: { x: a, y: a }, join: { policy: in_turn } }", "5:3 E0134", "several come from `a`"),
    ] {
        check(&graph(node), &[(place, part)]);
    }
}

#[test]
fn contradictory_watermarks_are_refused() {
    let graph = |edge: &str| {
        format!("version: 1\nnodes:\n  a: {{ kind: numbers }}\n  b: {{ kind: collect, from: {{ from: a, {edge} }} }}\n")
    };
    check(&graph("soft_capacity: 9, capacity: 4"), &[("4:55 E0133", "above the edge's capacity of 4")]);
    check(&graph("soft_bytes: 9B"), &[("4:52 E0133", "needs a hard one")]);
    check(&graph("soft_bytes: 9B, max_bytes: 8B"), &[("4:52 E0133", "the soft watermark is above the hard one")]);
    check(&graph("soft_evict: true, soft_capacity: 2"), &[("4:52 E0133", "only `drop_oldest` evicts")]);
    check(&graph("when_full: latest, max_bytes: 8B"), &[("4:70 E0133", "holds one message")]);
    check(&graph("max_bytes: 0B"), &[("4:51 E0133", "no message could ever pass")]);
    check(&graph("max_bytes: 8"), &[("4:51 E0104", "not a size with its unit")]);
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  s: { kind: split, config: { times: 8 }, from: a }\n  \
         b: { kind: collect, from: { from: s, urgent_capacity: 4 } }\n",
        &[("5:57 E0133", "below the 8 messages")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, qos: urgent }\n  b: { kind: step, from: a, qos: normal, clock: { offset: auto } }\n  \
         c: { kind: pair, inputs: { a: a, b: { from: b, urgent_capacity: 4 } } }\n  d: { kind: collect, from: c }\n",
        &[("4:34 E0144", "write `qos` at `a`"), ("4:49 E0144", "write `clock` at `a`"), ("5:3 E0134", "overtake")],
    );
    let inputs = |count| (0..count).map(|i| format!("i{i}: s{i}")).collect::<Vec<_>>().join(", ");
    let merge = |count| {
        let sources: String = (0..count).map(|i| format!("  s{i}: {{ kind: numbers }}\n")).collect();
        let inputs = inputs(count);
        format!(
            "version: 1\nnodes:\n  m: {{ qos: normal, kind: merge, inputs: {{ {inputs} }} }}\n  k: {{ kind: collect, from: m }}\n{sources}"
        )
    };
    check(&merge(3), &[("3:13 E0144", "write `qos` at `s0` or `s1` or `s2`")]);
    check(&merge(9), &[("3:13 E0144", "write `qos` at `s0` or `s1` or `s2` or 6 more")]);
}

#[test]
fn impossible_restarts_clocks_and_cores_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, on_error: { restart: { max: 0 } } }\n  b: { kind: collect, from: a, on_error: { retry: 3 } }\n",
        &[("3:33 E0106", "never restarts"), ("4:44 E0103", "unknown key `retry`")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, clock: { offset: 3 } }\n  b: { kind: collect, from: a }\ncores: { 0: { rt: { priority: 100 }, schedule: fair } }\n",
        &[("3:40 E0104", "not a time with its unit"), ("5:48 E0104", "fair")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: collect, from: a }\ncores: { 0: { rt: { priority: 100 } } }\n",
        &[("5:13 E0106", "no such real-time priority")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers, on_error: { restart: { max: 3, within: 700ms } } }\n  b: { kind: collect, from: a, on_error: {} }\n  \
         c: { kind: csv, config: { path: x.csv }, inputs: { n: a }, on_error: restart }\n",
        &[("3:33 E0106", "write `within:` longer than 700 ms"), ("4:42 E0105", "is a word or `restart`")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  c: { kind: csv, config: { path: x.csv }, inputs: { n: a }, on_error: restart }\n",
        &[("4:3 E0147", "each restart would overwrite")],
    );
}

/// \[L9\]
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

/// A node that may block in the kernel gets a helper thread on its core, with the settings of that core.
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

#[test]
fn a_sampling_node_on_one_branch_of_a_join_is_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: numbers }\n  \
         s: { kind: pair, inputs: { a: a, b: b }, join: { policy: sample, trigger: a } }\n  \
         c: { kind: collect, inputs: { x: a, y: s } }\n",
        &[("6:3 E0134", "`s` samples, and drops messages that arrive before the first of its other inputs")],
    );
}

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
            ("5:3 E0134", "`m` takes its inputs oldest_first, and `d` waits for the same sources"),
            ("6:3 E0134", "`t` takes its inputs by_time, and `d` waits for the same sources"),
        ],
    );
    assert!(limen_tests::plan(&graph(", patience: 4")).is_ok());
}

/// From a seed: the outputs carry messages of different sequences, and a full edge keeps the partners from arriving.
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
        let why = "`s` forwards each input by its own output, not in step";
        check(&graph(policy, ""), &[("6:3 E0134", why)]);
        assert!(limen_tests::plan(&graph(policy, ", join: { patience: 4 }")).is_ok(), "{policy}");
    }
    assert!(limen_tests::plan(&graph("zip", "")).is_ok());
}

#[test]
fn a_deadline_that_drops_on_one_branch_of_a_join_is_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: step, from: a }\n  \
         c: { kind: collect, inputs: { x: a, y: b } }\npaths: [{ from: a, to: c, deadline: 1ms, on_miss: drop }]\n",
        &[("5:3 E0134", "`b` may drop messages: it could wait forever for a partner")],
    );
}

#[test]
fn deadlines_shorter_than_planned_delays_are_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  d: { kind: delay, config: { by: 20ms }, from: a }\n  \
         s: { kind: step, from: d }\n  c: { kind: collect, from: s }\n  e: { kind: collect, from: a }\n\
         paths: [{ from: a, to: c, deadline: 19ms }, { from: a, to: e, deadline: 19ms }]\n",
        &[("8:37 E0145", "takes at least 20.0 ms, because `d` waits")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  b: { kind: numbers }\n  \
         c: { kind: collect, inputs: { x: a, y: b }, join: { policy: by_time, within: 1ms, hold: 30ms, patience: 4 } }\n\
         paths: [{ from: b, to: c, deadline: 10ms }]\n",
        &[("6:37 E0145", "because `c` waits")],
    );
}

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
            &[("7:37 E0145", "takes at least 17.0 ms, because `m` takes 15.0 ms a call, and the deadline is 16.0 ms")],
        );
    }
    // A budget is not a measurement, so it is only a note.
    let notes = |keys: &str, mock: &str, deadline: &str| {
        let plan = limen_tests::plan(&graph(keys, mock, deadline)).unwrap();
        plan.notes().iter().filter(|note| note.contains("miss")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(notes("", ", latency: 15ms", "18ms"), Vec::<String>::new());
    assert_eq!(
        notes(", budget: 9ms", "", "10ms"),
        [
            "`a` to `c` may take 11.0 ms, because `m` may take 9.00 ms a call (`budget`), and the deadline is 10.0 ms: slow messages will miss it"
        ]
    );
    assert_eq!(notes(", budget: 7ms", "", "10ms"), Vec::<String>::new());
}

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
            "together by their numbers: `a` begins one each 1.00 ms, `b` begins one each 33.3 ms, and the pairs drift apart",
        )],
    );
    let notes = |a: &str, b: &str, keys: &str| {
        let plan = limen_tests::plan(&graph(a, b, keys)).unwrap();
        plan.notes().iter().filter(|note| note.contains("by their numbers")).count()
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
        let said = "without an `anchor`: `a` begins one each 1.00 ms, `b` begins one each 33.3 ms";
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
            "at most 50 % of the messages of `a` find a partner; write `pick: interpolate` with `within: 200ms`, or `anchor: y`",
        ),
        // A message is used once, however long the window is.
        (
            "10Hz",
            "5Hz",
            "within: 1s, pick: newest",
            "at most 50 % of the messages of `a` find a partner; write `pick: interpolate` with `within: 200ms`, or `anchor: y`",
        ),
        ("30Hz", "20Hz", "within: 20ms", "at most 66 % of the messages of `a` find a partner"),
        (
            "30Hz",
            "10Hz",
            "within: 70ms, pick: interpolate",
            "at most 66 % of the messages of `a` find a partner; write `within: 100ms`",
        ),
        (
            "30Hz",
            "10Hz",
            "within: 20ms, pick: interpolate",
            "at most 33 % of the messages of `a` find a partner; write `within: 100ms`",
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
    let said = "`a` begins one each 1.00 ms, nothing says how many `u` begins, and the pairs drift apart";
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

/// Files and made-up data without a rate are sent at once, and a sampling join would take whatever comes last.
#[test]
fn a_sampling_join_behind_a_source_without_a_rate_is_refused_with_a_help_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let npy = |items: usize| {
        let header =
            format!("{:<117}\n", format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({items}, 2), }}"));
        [&b"\x93NUMPY\x01\x00\x76\x00"[..], header.as_bytes(), &vec![0; items * 8]].concat()
    };
    let wav = [
        &b"RIFF\x24\x7d\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\0\x7d\0\0"[..],
        &[0; 32_000],
    ]
    .concat();
    std::fs::write(at("a.npy"), npy(3)).unwrap();
    std::fs::write(at("one.npy"), npy(1)).unwrap();
    std::fs::write(at("a.wav"), wav).unwrap();
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
                "error[E0167]: `j` samples messages of `a`, which has no rate: which one is newest when another arrives is up to the \
                 threads\n    help: write `{paced}` in the `config` of `a`, so that it sends by the clock"
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

#[test]
fn gather_without_a_matching_scatter_is_refused() {
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  s: { kind: step, from: a }\n  \
         g: { kind: gather, config: { max: 4 }, from: s }\n  t: { kind: trail, from: g }\n",
        &[("5:3 E0146", "messages from `a` were not taken apart")],
    );
    check(
        "version: 1\nnodes:\n  a: { kind: numbers }\n  s: { kind: scatter, from: a }\n  t: { kind: trail, from: s }\n",
        &[("4:29 E0130", "cannot be split into rows")],
    );
    let apart = |more: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers }}\n  w: {{ kind: window, config: {{ length: 8, tail: drop }}, from: a }}\n  \
             v: {{ kind: window, config: {{ length: 3 }}, from: w }}\n  s: {{ kind: scatter, from: v }}\n{more}"
        )
    };
    check(
        &apart("  r: { kind: scatter, from: s }\n  t: { kind: trail, from: r }\n"),
        &[("7:3 E0146", "scatters parts that `s` made")],
    );
    check(
        &apart("  g: { kind: gather, config: { max: 2 }, from: s }\n  t: { kind: trail, from: g }\n"),
        &[("7:30 E0146", "takes 2 parts, but `s` makes up to 3")],
    );
}

#[test]
fn too_many_sources_are_refused() {
    let nodes: String = (0..=1 << 16).map(|n| format!("  n{n}: {{ kind: numbers }}\n")).collect();
    let said = limen_tests::plan(&format!("version: 1\nnodes:\n{nodes}")).unwrap_err().to_string();
    assert!(said.contains("error[E0158]") && said.contains("65537 sources; at most 65536"), "{said}");
}

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
    check(&cycle("q", row), &[("4:47 E0128", "elements are f32, not u64")]);
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

/// A graph that takes too long to plan is refused, and the remedy works.
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
    check(&merges(2500), &[("- E0169", "let fewer nodes depend on many sources")]);
    plan(&merges(250)).unwrap();
}
