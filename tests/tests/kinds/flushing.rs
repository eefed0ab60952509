//! File sinks that are never without a message: what waits in memory, and how often they write.

use limen::node::{Building, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Clock, Message, Plan, Registry, SimulatedClock, Spec, Tensor, Time, Turned};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs;

/// How long each call of [`Slow`] takes, ns: 20 messages a second.
const CALL_NS: u64 = 50_000_000;

#[derive(Debug, Deserialize, JsonSchema)]
struct Config {}

/// Passes messages on. The simulated clock advances while it is called, so the next message is
/// always waiting.
#[derive(Debug)]
struct Slow(Clock);

impl Node for Slow {
    type Config = Config;
    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in").output_forwarding("out", given.single().cloned(), "in"))
    }
    fn build(_: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Slow(cx.clock()))
    }
}

impl Transform for Slow {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if let Clock::Simulated(clock) = &self.0 {
            clock.advance(CALL_NS);
        }
        out.send(input);
        Ok(())
    }
}

/// The number of messages in a file.
fn messages(name: &str, bytes: &[u8]) -> u64 {
    match name {
        "a.csv" => bytes.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1) as u64,
        "a.bin" => bytes.len() as u64 / 8,
        "a.jsonl" => bytes.iter().filter(|byte| **byte == b'\n').count() as u64,
        // The header says how many.
        "a.npy" => {
            let text = String::from_utf8_lossy(bytes);
            text.split_once("'shape': (").and_then(|(_, rest)| rest.split(',').next()?.parse().ok()).unwrap_or(0)
        }
        // As does the end of this one.
        "a.wav" => {
            let at = bytes.windows(4).position(|name| name == b"data").unwrap_or(bytes.len());
            bytes.get(at + 4..at + 8).map_or(0, |size| u64::from(u32::from_le_bytes(size.try_into().unwrap())) / 4)
        }
        other => panic!("{other}"),
    }
}

/// Promise (files): A file sink keeps a row in memory for at most one second.
#[test]
fn a_message_waits_in_memory_for_a_second_at_most() {
    const FILES: [(&str, &str); 5] =
        [("csv", "a.csv"), ("jsonl", "a.jsonl"), ("file", "a.bin"), ("npy", "a.npy"), ("wav", "a.wav")];
    for (kind, name) in FILES {
        let folder = tempfile::tempdir().unwrap();
        let (dtype, more) = match kind {
            "wav" => ("f32", ", sample_rate: 8kHz"),
            "file" => ("u64", ", framing: raw"),
            _ => ("u64", ""),
        };
        let graph = format!(
            "version: 1
nodes:
  a: {{ kind: synthetic, config: {{ pattern: counter, dtype: {dtype}, shape: [1], count: 200 }} }}
  s: {{ kind: slow, from: {{ from: a, capacity: 1 }} }}
  z: {{ kind: {kind}, from: {{ from: s, capacity: 1 }}, config: {{ path: {name}, exists: fail{more} }} }}"
        );
        let file = folder.path().join("graph.yaml");
        fs::write(&file, graph).unwrap();
        let registry = Registry::new().with(limen_tests::stock_nodes).transform::<Slow>("slow");
        let plan =
            Plan::new(Spec::from_file(&file).unwrap(), &registry).unwrap_or_else(|problems| panic!("{problems}"));
        let clock = SimulatedClock::new(Time(1));
        let mut driven = plan.wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
        // When each message reached the sink, and how often the file grew.
        let (mut taken, mut written, mut writes) = (Vec::new(), 0, 0);
        while driven.turn() != Turned::Ended && taken.len() < 200 {
            let now = clock.now();
            taken.resize(driven.stats()[2].done as usize, now);
            let before = std::mem::replace(&mut written, messages(name, &fs::read(folder.path().join(name)).unwrap()));
            writes += u32::from(written > before);
            let old = taken.iter().filter(|at| now.since(**at) >= 1_000_000_000).count() as u64;
            assert!(
                written >= old,
                "{kind}: {written} of {} messages are written, {old} are older than 1 s",
                taken.len()
            );
        }
        // 10 s, twice a second, and once at the beginning.
        assert!((10..=22).contains(&writes), "{kind}: {writes} writes");
        let report = driven.run();
        assert_eq!((report.exit_code(), report.bugs.len()), (0, 0), "{kind}");
    }
}
