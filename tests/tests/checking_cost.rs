//! The cost of checking a graph or a model is linear in its size, for every list that either may
//! have.
//!
//! Each case is a text with one long list, at one size and at four times that size, which a
//! separate process reads. `LIMEN_GROWTH=4194304` tests the maximum size of graphs.

use limen::Plan;
use limen_infer::onnx::Artifact;
use limen_tests::cost::{self, Cost};
use limen_tests::protobuf::{self, field, model, node, tensor};
use nix::sys::resource::{Resource, setrlimit};
use std::fmt::Write as _;

/// Bytes of the larger text of each pair.
fn largest() -> usize {
    std::env::var("LIMEN_GROWTH").ok().and_then(|bytes| bytes.parse().ok()).unwrap_or(160 << 10)
}

/// A graph with lines for each number between a head and a tail.
fn lines(head: &str, count: usize, each: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = format!("version: 1\n{head}");
    (0..count).for_each(|n| text += &each(n));
    text + tail
}

const SOURCE: &str = "nodes:\n  s: { kind: numbers, config: { count: 9 } }\n";

type Make<T> = (&'static str, fn(usize) -> T);

/// Comma-separated items for each number.
fn list(count: usize, each: impl Fn(usize) -> String) -> String {
    (0..count).map(each).collect::<Vec<_>>().join(", ")
}

/// The predecessor of a node in a chain.
fn before(n: usize) -> String {
    if n == 0 { "s".into() } else { format!("n{}", n - 1) }
}

const GRAPHS: &[Make<String>] = &[
    ("a chain", |n| lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: {} }}\n", before(i)), "")),
    ("a chain, each with a sink", |n| {
        lines(
            SOURCE,
            n,
            |i| format!("  n{i}: {{ kind: step, from: {} }}\n  z{i}: {{ kind: collect, from: n{i} }}\n", before(i)),
            &format!("paths: [{}]\n", list(n, |i| format!("{{ from: s, to: z{i}, deadline: 1s, on_miss: drop }}"))),
        )
    }),
    ("many sinks of one source", |n| lines(SOURCE, n, |i| format!("  z{i}: {{ kind: collect, from: s }}\n"), "")),
    ("`null` as a kind", |n| lines(SOURCE, n, |i| format!("  z{i}: {{ kind: null, from: s }}\n"), "")),
    ("pairs of source and sink, with paths", |n| {
        lines(
            "nodes:\n",
            n,
            |i| format!("  s{i}: {{ kind: numbers }}\n  z{i}: {{ kind: collect, from: s{i} }}\n"),
            &format!("paths: [{}]\n", list(n, |i| format!("{{ from: s{i}, to: z{i}, deadline: 1s, on_miss: drop }}"))),
        )
    }),
    ("one path, many times", |n| {
        let each = |_| "  - { from: s, to: z, deadline: 1s }\n".to_string();
        lines(&format!("{SOURCE}  z: {{ kind: collect, from: s }}\npaths:\n"), n, each, "")
    }),
    ("paths of nodes that are not there", |n| {
        lines(&format!("{SOURCE}paths:\n"), n, |i| format!("  - {{ from: a{i}, to: b{i}, deadline: 1s }}\n"), "")
    }),
    ("sources merged one by one", |n| {
        lines(
            SOURCE,
            n,
            |i| {
                let from = before(i);
                format!(
                    "  s{i}: {{ kind: numbers }}\n  n{i}: {{ kind: merge, inputs: {{ a: {from}, b: s{i} }}, join: {{ policy: in_turn, patience: 9 }} }}\n"
                )
            },
            &format!(
                "  z: {{ kind: collect, from: {} }}\npaths: [{}]\n",
                before(n),
                list(n, |i| format!("{{ from: s{i}, to: z, deadline: 1s }}"))
            ),
        )
    }),
    ("joins by time one behind the other", |n| {
        lines(
            SOURCE,
            n,
            |i| {
                let from = before(i);
                format!(
                    "  s{i}: {{ kind: numbers }}\n  n{i}: {{ kind: pair, inputs: {{ a: {from}, b: s{i} }}, join: {{ policy: by_time, within: 1us }} }}\n"
                )
            },
            "",
        )
    }),
    ("joins of two sources", |n| {
        let each = |i| {
            format!("  n{i}: {{ kind: pair, inputs: {{ a: s, b: t }}, join: {{ policy: by_time, within: 1us }} }}\n")
        };
        lines(&format!("{SOURCE}  t: {{ kind: numbers }}\n"), n, each, "")
    }),
    ("joins of what may be lost", |n| {
        lines(
            SOURCE,
            n,
            |i| {
                format!(
                    "  n{i}: {{ kind: pair, inputs: {{ a: {}, b: {{ from: s, when_full: drop_oldest }} }} }}\n",
                    before(i)
                )
            },
            "",
        )
    }),
    ("cycles", |n| {
        let each = |i| {
            format!(
                "  n{i}: {{ kind: merge, inputs: {{ a: {}, b: {{ from: n{}, when_full: drop_oldest }} }}, join: {{ policy: in_turn, patience: 9 }} }}\n",
                before(i),
                (i + 1) % n.max(1)
            )
        };
        lines(SOURCE, n, each, "  z: { kind: collect, from: n0 }\npaths: [{ from: s, to: z, deadline: 1s }]\n")
    }),
    ("a circle that blocks", |n| {
        lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: n{} }}\n", (i + 1) % n), "")
    }),
    ("takes from nowhere", |n| lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: m{i} }}\n"), "")),
    ("kinds that are not there", |n| lines(SOURCE, n, |i| format!("  n{i}: {{ kind: m{i}, from: s }}\n"), "")),
    ("clocks at nodes that are not sources", |n| {
        lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: {}, clock: {{ offset: 1s }} }}\n", before(i)), "")
    }),
    ("outputs that are not there", |n| lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: s/m{i} }}\n"), "")),
    ("inputs of one node", |n| {
        lines(
            SOURCE,
            0,
            |_| String::new(),
            &format!("  n: {{ kind: merge, inputs: {{ {} }} }}\n", list(n, |i| format!("i{i}: s"))),
        )
    }),
    ("inputs that a node does not have", |n| {
        lines(
            SOURCE,
            0,
            |_| String::new(),
            &format!("  n: {{ kind: pair, inputs: {{ {} }} }}\n", list(n, |i| format!("i{i}: s"))),
        )
    }),
    ("outputs of one node", |n| {
        let fields = list(n, |i| format!("{{ name: f{i}, type: u8, at: {i} }}"));
        let head = format!(
            "nodes:\n  u: {{ kind: udp, config: {{ listen: \"127.0.0.1:9\", max_bytes: 64 }} }}\n  d: {{ kind: decode, config: {{ format: struct, fields: [{fields}] }}, from: u }}\n"
        );
        lines(&head, n, |i| format!("  z{i}: {{ kind: collect, from: d }}\n"), "")
    }),
    ("one file, written by all", |n| {
        lines(
            SOURCE,
            n,
            |i| format!("  z{i}: {{ kind: csv, config: {{ path: f.csv, exists: overwrite }}, from: s }}\n"),
            "",
        )
    }),
    ("cores", |n| lines(&format!("{SOURCE}cores:\n"), n, |i| format!("  {i}: {{ wait: park }}\n"), "")),
    ("unknown keys", |n| lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: s, colour: 3 }}\n"), "")),
    ("unknown keys of one config", |n| {
        lines(
            &format!("{SOURCE}  n:\n    kind: step\n    from: s\n    config:\n"),
            n,
            |i| format!("      k{i}: 3\n"),
            "",
        )
    }),
    ("variables that are not set", |n| {
        lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: \"${{LIMEN_NOWHERE_{i}}}\" }}\n"), "")
    }),
    ("values of variables", |n| {
        lines(SOURCE, n, |i| format!("  n{i}: {{ kind: step, from: \"${{LIMEN_NOWHERE_{i}:-s}}\" }}\n"), "")
    }),
    ("profiles", |n| {
        lines(&format!("{SOURCE}profiles:\n"), n, |i| format!("  p{i}: {{ nodes: {{ s: {{ core: 0 }} }} }}\n"), "")
    }),
    ("defaults of kinds", |n| {
        let head = lines(SOURCE, n, |i| format!("  n{i}: {{ kind: k{i}, from: s }}\n"), "defaults:\n  kinds:\n");
        lines(head.trim_start_matches("version: 1\n"), n, |i| format!("    k{i}: {{ core: 0 }}\n"), "")
    }),
    ("subgraphs, each used once", |n| {
        let head = lines(SOURCE, n, |i| format!("  n{i}: {{ subgraph: g{i}, from: s }}\n"), "subgraphs:\n");
        let each =
            |i| format!("  g{i}: {{ inputs: {{ x: any }}, nodes: {{ z: {{ kind: collect, from: inputs/x }} }} }}\n");
        lines(head.trim_start_matches("version: 1\n"), n, each, "")
    }),
    ("outputs of a subgraph", |n| {
        let inner = list(n, |i| format!("n{i}: {{ kind: numbers }}"));
        let outputs = list(n, |i| format!("o{i}: n{i}"));
        let head = format!(
            "subgraphs:\n  g: {{ outputs: {{ {outputs} }}, nodes: {{ {inner} }} }}\nnodes:\n  g: {{ subgraph: g }}\n"
        );
        lines(&head, n, |i| format!("  z{i}: {{ kind: collect, from: g/o{i} }}\n"), "")
    }),
    ("inputs of a subgraph", |n| {
        let inner = list(n, |i| format!("n{i}: {{ kind: collect, from: inputs/i{i} }}"));
        let inputs = list(n, |i| format!("i{i}: any"));
        let given = list(n, |i| format!("i{i}: s"));
        let tail = format!(
            "  g: {{ subgraph: g, inputs: {{ {given} }} }}\nsubgraphs:\n  g: {{ inputs: {{ {inputs} }}, nodes: {{ {inner} }} }}\n"
        );
        lines(SOURCE, 0, |_| String::new(), &tail)
    }),
    ("parameters of a subgraph", |n| {
        let inner = list(n, |i| format!("n{i}: {{ kind: numbers, config: {{ count: \"${{p{i}}}\" }} }}"));
        let parameters = list(n, |i| format!("p{i}: ~"));
        let given = list(n, |i| format!("p{i}: {i}"));
        format!(
            "version: 1\nnodes: {{ g: {{ subgraph: g, config: {{ {given} }} }} }}\nsubgraphs:\n  g: {{ parameters: {{ {parameters} }}, nodes: {{ {inner} }} }}\n"
        )
    }),
    ("parameters that are not there", |n| {
        let given = list(n, |i| format!("p{i}: {i}"));
        format!(
            "version: 1\nnodes: {{ g: {{ subgraph: g, config: {{ {given} }} }} }}\nsubgraphs:\n  g: {{ nodes: {{ s: {{ kind: numbers }} }} }}\n"
        )
    }),
    ("nodes laid over those of a subgraph", |n| {
        let inner = list(n, |i| format!("n{i}: {{ kind: numbers }}"));
        let over = list(n, |i| format!("n{i}: {{ core: 0 }}"));
        format!(
            "version: 1\nnodes: {{ g: {{ subgraph: g, nodes: {{ {over} }} }} }}\nsubgraphs:\n  g: {{ nodes: {{ {inner} }} }}\n"
        )
    }),
    ("live sources that join", |n| {
        lines(
            "nodes:\n",
            n,
            |i| {
                let from = if i == 0 { "t0".into() } else { format!("n{}", i - 1) };
                format!(
                    "  t{i}: {{ kind: timer, config: {{ rate: 1Hz }} }}\n  n{i}: {{ kind: merge, inputs: {{ a: {from}, b: t{i} }}, join: {{ policy: in_turn, patience: 9 }} }}\n"
                )
            },
            "",
        )
    }),
    ("parts taken apart and put together", |n| {
        lines(
            "nodes:\n  y: { kind: synthetic, config: { pattern: noise, shape: [4, 2], dtype: f32 } }\n",
            n,
            |i| {
                let from = if i == 0 { "y".into() } else { format!("g{}", i - 1) };
                format!(
                    "  c{i}: {{ kind: scatter, from: {from} }}\n  g{i}: {{ kind: gather, config: {{ max: 4 }}, from: c{i} }}\n"
                )
            },
            "",
        )
    }),
    ("a long text", |n| format!("version: 1\ngraph: {}\n{SOURCE}", "x".repeat(n))),
    ("long names", |n| format!("version: 1\nnodes:\n  {}: {{ kind: {} }}\n", "n".repeat(n / 2), "k".repeat(n / 2))),
    ("a list in a config", |n| {
        format!("version: 1\nnodes:\n  s: {{ kind: numbers, config: {{ count: [{}] }} }}\n", list(n, |i| i.to_string()))
    }),
    ("a comment", |n| format!("version: 1\n{SOURCE}# {}\n", "x".repeat(n))),
    ("aliases", |n| {
        let mut text = format!("version: 1\n{SOURCE}");
        (0..n)
            .for_each(|i| _ = writeln!(text, "  n{i}: {{ kind: step, from: {} }}", if i == 0 { "&a s" } else { "*a" }));
        text
    }),
];

fn relus(n: usize) -> Vec<Vec<u8>> {
    (0..n.min(20_000)).map(|i| node("Relu", &["x"], &format!("a{i}"), "", &[])).collect()
}

/// A node with a subgraph.
fn nested(name: &str, output: &str, inner: &[Vec<u8>]) -> Vec<u8> {
    let graph: Vec<u8> = [inner.concat(), field(2, b"g")].concat();
    node("If", &["x"], output, name, &field(5, [field(1, b"then_branch"), field(6, &graph)].concat()))
}

fn relu() -> Vec<Vec<u8>> {
    vec![node("Relu", &["x"], "y", "", &[])]
}

const MODELS: &[Make<Vec<u8>>] = &[
    ("nodes", |n| model(&[relus(n), relu()].concat(), &[])),
    ("nodes within one of a long name", |n| model(&[nested(&"n".repeat(20 * n), "y", &relus(n))], &[])),
    ("nodes ten deep within long names", |n| {
        let name = "n".repeat(2 * n);
        let deep = (0..10).fold(relus(n), |inner, i| vec![nested(&name, &format!("d{i}"), &inner)]);
        model(&[nested(&name, "y", &deep)], &[])
    }),
    ("inputs that a node of a long name lacks", |n| {
        let lacks: Vec<String> = (0..n).map(|i| format!("w{i}")).collect();
        let lacks: Vec<&str> = lacks.iter().map(String::as_str).collect();
        model(&[node("Add", &lacks, "y", &"n".repeat(10 * n), &[])], &[])
    }),
    ("outputs that two nodes make", |n| model(&vec![node("Relu", &["x"], "y", "", &[]); n.min(20_000)], &[])),
    ("weights", |n| {
        let weights: Vec<Vec<u8>> = (0..n).map(|i| field(5, tensor(&format!("w{i}"), &[1], &[0; 4]))).collect();
        model(&relu(), &weights.concat())
    }),
    ("weights of the wrong length", |n| {
        let weights: Vec<Vec<u8>> = (0..n).map(|i| field(5, tensor(&format!("w{i}"), &[1], &[0; 3]))).collect();
        model(&relu(), &weights.concat())
    }),
    ("weights of one node of a long name", |n| {
        let weights = vec![field(10, tensor("", &[1], &[0; 4])); n].concat();
        model(
            &[node("Relu", &["x"], "y", &"n".repeat(10 * n), &field(5, [field(1, b"values"), weights].concat()))],
            &[],
        )
    }),
    ("dims of a weight", |n| model(&relu(), &field(5, tensor("w", &vec![1; n], &[0; 4])))),
    ("inputs", |n| {
        let inputs: Vec<Vec<u8>> = (0..n).map(|i| field(11, protobuf::value(&format!("i{i}"), &[2]))).collect();
        model(&relu(), &inputs.concat())
    }),
    ("outputs", |n| {
        let outputs: Vec<Vec<u8>> = (0..n).map(|_| field(12, protobuf::value("y", &[2]))).collect();
        model(&relu(), &outputs.concat())
    }),
    ("attributes", |n| {
        let attributes: Vec<Vec<u8>> = (0..n).map(|i| field(5, field(1, format!("a{i}").as_bytes()))).collect();
        model(&[node("Conv", &["x", "x"], "y", "", &attributes.concat())], &[])
    }),
    ("axes", |n| {
        let axes: Vec<Vec<u8>> = (0..n).map(|i| protobuf::number(8, 2 + i as u64)).collect();
        model(&[node("Unsqueeze", &["x"], "y", "", &field(5, [field(1, b"axes"), axes.concat()].concat()))], &[])
    }),
    ("numbers put together", |n| {
        let numbers: Vec<Vec<u8>> = (0..60).map(|i| protobuf::number(7, i)).collect();
        let weight = [protobuf::number(1, 60), protobuf::number(2, 7), field(8, b"w"), numbers.concat()].concat();
        model(&[node("Concat", &vec!["w"; n], "y", "", &[])], &field(5, weight))
    }),
    ("graphs of one node", |n| {
        let graphs: Vec<Vec<u8>> = (0..n).map(|_| field(11, field(2, b"g"))).collect();
        model(&[node("If", &["x"], "y", "", &field(5, [field(1, b"branches"), graphs.concat()].concat()))], &[])
    }),
    ("parts of one file", |n| {
        let part = |i: usize| {
            let place = field(13, [field(1, b"location"), field(2, b"weights.bin")].concat());
            field(
                5,
                [
                    protobuf::number(1, 1),
                    protobuf::number(2, 1),
                    field(8, format!("w{i}").as_bytes()),
                    place,
                    protobuf::number(14, 1),
                ]
                .concat(),
            )
        };
        model(&relu(), &(0..n).map(part).collect::<Vec<_>>().concat())
    }),
];

/// The text of a case with at most about this many bytes.
fn text_of(group: &str, name: &str, bytes: usize) -> Vec<u8> {
    let make = |n: usize| match group {
        "graph" => GRAPHS.iter().find(|(known, _)| *known == name).expect("known").1(n).into_bytes(),
        _ => MODELS.iter().find(|(known, _)| *known == name).expect("known").1(n),
    };
    let (few, more) = (make(50).len(), make(100).len());
    let each = (more.saturating_sub(few) as f64 / 50.0).max(0.1);
    let mut count = (bytes as f64 / each) as usize;
    loop {
        let text = make(count);
        // Longer numbers make longer lines.
        if text.len() <= bytes || count < 50 {
            return text;
        }
        count = count * 15 / 16;
    }
}

#[test]
#[ignore = "one case in a separate process, started by the tests below"]
fn one() {
    let case = cost::case();
    let [group, name, bytes] = case.split('|').collect::<Vec<_>>()[..] else { panic!("{case}") };
    let text = text_of(group, name, bytes.parse().unwrap());
    setrlimit(Resource::RLIMIT_CPU, 120, 120).unwrap();
    setrlimit(Resource::RLIMIT_AS, 4 << 30, 4 << 30).unwrap();
    let before = Cost::of_process();
    if group == "graph" {
        let text = String::from_utf8(text).unwrap();
        let plan =
            limen::Spec::from_text(&text, "graph.yaml").and_then(|spec| Plan::new(spec, &limen_tests::registry()));
        match plan {
            Ok(plan) => drop((inspect(&plan), plan)),
            Err(problems) => drop(problems.to_string()),
        }
    } else {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("weights.bin"), [0; 64]).unwrap();
        drop(Artifact::parse(&folder.path().join("model.onnx"), text).map_err(|error| error.to_string()));
    }
    let after = Cost::of_process();
    Cost { time: after.time - before.time, memory: after.memory - before.memory }.print();
}

/// Asks a plan for what `limen-run` prints.
fn inspect(plan: &Plan) -> usize {
    plan.memory().total() + plan.notes().len()
}

/// Densely connected graphs: the cost of searching them is quadratic up to a bound.
const DENSE: &[&str] = &[
    "sources merged one by one",
    "joins by time one behind the other",
    "joins of what may be lost",
    "live sources that join",
];

/// The time of searches up to that bound in an unoptimized build, in ms.
const BOUND: i64 = 5_000;

/// Checks that four times the size costs at most four times as much, plus a margin for noise.
fn is_linear(group: &str, name: &str) -> Result<(), String> {
    let walks = if DENSE.contains(&name) { BOUND } else { 0 };
    let cases = [largest() / 4, largest()].map(|bytes| format!("{group}|{name}|{bytes}"));
    let limit = |few: Cost| Cost { time: few.time * 6 + 100 + walks, memory: few.memory * 5 + (16 << 10) };
    cost::check_growth("checking_cost::one", cases.each_ref().map(String::as_str), limit)
}

fn all<'a>(group: &str, names: impl Iterator<Item = &'a str>) {
    let only = std::env::var("LIMEN_GROWTH_ONLY").unwrap_or_default();
    let wrong: Vec<String> = names
        .filter(|name| name.contains(&only))
        .filter_map(|name| is_linear(group, name).err().map(|why| format!("{name}: {why}")))
        .collect();
    assert!(wrong.is_empty(), "the cost grows faster than the size:\n{}", wrong.join("\n"));
}

/// Promise (checking): Checking a graph takes time and memory in proportion to its file.
///
/// Attack (growth of a graph): every list of a graph, four times as long; expected: at most four
/// times the time and memory
#[test]
fn the_cost_of_checking_a_graph_is_linear() {
    all("graph", GRAPHS.iter().map(|(name, _)| *name));
}

/// Promise (checking): Checking a model takes time and memory in proportion to its file.
///
/// Attack (growth of a model): every list of a model, four times as long; expected: at most four
/// times the time and memory
#[test]
fn the_cost_of_checking_a_model_is_linear() {
    all("model", MODELS.iter().map(|(name, _)| *name));
}
