//! What `decode`, `map` and `encode` cost for a message of 64 bytes, beside nodes that pass it on:
//! `cargo bench -p limen-benches --bench formats [-- long | ROW]`. One core, as fast as possible;
//! rows take turns, and the median of all rounds counts. The nodes' own cost is what they add to a
//! chain of the same source and sink.

use limen::message::{DType, PortSpec, TensorMut};
use limen::node::{Building, Connected, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Room, Source};
use limen::{Drain, Options, Plan, Registry, Spec, Tensor};
use limen_benches::{BenchConfig, host, median, register};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Sends 16 numbers of type `f32`, as a sensor has them, as fast as possible.
#[derive(Debug)]
struct Numbers;

impl Node for Numbers {
    type Config = BenchConfig;

    fn ports(_: &BenchConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output("out", PortSpec::fixed(DType::U8, [64])))
    }

    fn build(_: BenchConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Numbers)
    }
}

impl Source for Numbers {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let header = out.header(out.now());
        let mut tensor = out.loan(&header)?;
        write(&mut tensor, header.seq);
        out.send(tensor);
        Ok(Next::More)
    }

    fn next_burst(&mut self, room: &mut Room<'_, Tensor>) -> Result<Next, NodeError> {
        let filled = room.fill(u64::MAX, room.now(), |tensor, seq| {
            write(tensor, seq);
            Ok(())
        })?;
        if filled > 0 { Ok(Next::More) } else { room.each(|out| self.next(out)) }
    }
}

fn write(tensor: &mut TensorMut, seq: u64) {
    for (at, number) in tensor.bytes_mut().chunks_exact_mut(4).enumerate() {
        let value = (seq % 1000) as f32 * 0.37 - at as f32 * 12.5;
        number.copy_from_slice(&value.to_le_bytes());
    }
}

/// 16 numbers as one vector.
const VECTOR: &str = "[{ name: v, type: f32, repeat: 16 }]";
/// As three vectors.
const THREE: &str =
    "[{ name: a, type: f32, repeat: 6 }, { name: b, type: f32, repeat: 6 }, { name: c, type: f32, repeat: 4 }]";

/// What a chain costs without the nodes between its source and its sink.
const ALONE: &str = "source and sink alone";

/// The nodes between a source of packets and a sink, in a line: `{}` is the node before.
fn rows() -> Vec<(&'static str, Vec<String>)> {
    let node = |kind: &str, config: &str| format!("kind: {kind}, config: {{ {config} }}, from: '{{}}'");
    let coded = |kind: &str, format: &str| node(kind, &format!("format: {format}, fields: {VECTOR}"));
    let through = |format: &str| {
        vec![coded("decode", "struct"), coded("encode", format), coded("decode", format), coded("encode", "struct")]
    };
    let pass = || node("handle_pass", "bytes: 64");
    vec![
        (ALONE, Vec::new()),
        ("three nodes that pass it on", vec![pass(), pass(), pass()]),
        (
            "decode, map, encode: one vector",
            vec![coded("decode", "struct"), node("map", "outputs: { v: 'in * 2 + 1' }"), coded("encode", "struct")],
        ),
        (
            "decode, map, encode: three vectors, joined",
            vec![
                node("decode", &format!("format: struct, fields: {THREE}")),
                "kind: map, config: { outputs: { b: 'in * 2 + 1' } }, from: '{}/b'".into(),
                format!(
                    "kind: encode, config: {{ format: struct, fields: {THREE} }}, inputs: {{ a: n1/a, b: '{{}}/b', c: n1/c }}"
                ),
            ],
        ),
        ("decode, encode", vec![coded("decode", "struct"), coded("encode", "struct")]),
        ("through json", through("json")),
        ("through cbor", through("cbor")),
        ("through csv", through("csv")),
    ]
}

/// Messages per second at the sink.
fn rate(nodes: &[String], seconds: f64) -> f64 {
    let registry = Registry::new()
        .with(limen_nodes_core::register)
        .with(limen_codec::register)
        .with(register)
        .source::<Numbers>("numbers");
    let mut text = "version: 1\nnodes:\n  n0: { kind: numbers, core: 0 }\n".to_string();
    for (at, node) in nodes.iter().enumerate() {
        let _ = writeln!(text, "  n{}: {{ {}, core: 0 }}", at + 1, node.replace("{}", &format!("n{at}")));
    }
    let last = nodes.len();
    let _ = writeln!(text, "  sink: {{ kind: \"null\", core: 0, from: n{last} }}\nrun: {{ stop: 10s, strict: true }}");
    let spec = Spec::from_text(&text, "formats.yaml").unwrap_or_else(|e| panic!("{e}"));
    let plan = Plan::with_options(spec, &registry, &Options::default()).unwrap_or_else(|e| panic!("{text}{e}"));
    let mut running = plan.wire().expect("wires").start().expect("starts");
    let began = Instant::now();
    assert!(!running.wait_for(Duration::from_secs_f64(seconds)), "ended by itself");
    let report = running.stop(Drain::within(Duration::from_secs(10)));
    let seconds = began.elapsed().as_secs_f64();
    assert!(report.bugs.is_empty() && report.exit_code() == 0 && report.lost_total() == 0, "{report:#?}");
    report.node("sink").map_or(0, |sink| sink.done) as f64 / seconds
}

fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let (is_long, row) = (words.iter().any(|word| word == "long"), words.iter().find(|word| *word != "long"));
    let (rounds, seconds) = if is_long { (9, 2.0) } else { (5, 0.5) };
    let mut rows = rows();
    rows.retain(|(name, _)| *name == ALONE || row.is_none_or(|row| name.contains(row.as_str())));
    let mut figures = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        for ((_, nodes), figures) in rows.iter().zip(&mut figures) {
            figures.push(1e9 / rate(nodes, seconds));
        }
    }
    println!("{}; 64 bytes, one core, ns a message: median of {rounds} rounds, spread as max/min;", host());
    println!("last, the nodes between source and sink: the median of what they add in each round\n");
    for ((name, _), whole) in rows.iter().zip(&figures) {
        let added = whole.iter().zip(&figures[0]).map(|(whole, alone)| whole - alone).collect();
        let ((ns, spread), (added, _)) = (median(whole.clone()), median(added));
        println!("{name:<46} {ns:>8.0}   {spread:.2} {added:>8.0}");
    }
}
