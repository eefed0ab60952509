//! What goes wrong inside nodes and on paths is seen while the graph runs: in events and
//! statistics, with the report's numbers.

use limen::node::{
    Building, Connected, ConnectionStatus, DiscardCounter, Emit, IncidentCounter, LossCounter, Metrics, Node,
    NodeError, NodeStats, PlanErrors, Planning, Ports, Transform,
};
use limen::{Clock, Driven, Event, EventKind, Message, Plan, SimulatedClock, Spec, Tensor, Time};
use std::time::Duration;

/// Loses messages by their numbers, and its device.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {
    /// Every so many messages one is lost.
    #[serde(default)]
    malformed_every: u64,
    /// The messages from the first to the second number are dropped on purpose.
    #[serde(default)]
    silent: (u64, u64),
    /// The device is gone from the first to the second number.
    #[serde(default)]
    gone: (u64, u64),
    /// From the first to the second number messages are lost because there is no room.
    #[serde(default)]
    no_room: (u64, u64),
    /// The messages from each first to its second number have a missing value.
    #[serde(default)]
    missing: Vec<(u64, u64)>,
}

struct Lossy {
    config: Config,
    malformed: LossCounter,
    no_room: LossCounter,
    silenced: DiscardCounter,
    missing: IncidentCounter,
    connection: ConnectionStatus,
    seen: u64,
}

impl Node for Lossy {
    type Config = Config;

    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.single().cloned().expect("it is connected");
        Ok(Ports::new().input("in", spec.clone()).output("out", spec).selective())
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let (malformed, connection) = (cx.lost("malformed"), cx.connection());
        connection.begun();
        let (no_room, silenced) = (cx.lost("no_room"), cx.discarded("silenced"));
        let missing = cx.incidents("missing");
        Ok(Lossy { config, malformed, no_room, silenced, missing, connection, seen: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        // Known only at the end, beside what was counted before.
        to.lost("malformed", 1);
    }
}

impl Transform for Lossy {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.seen += 1;
        let Config { malformed_every, silent, gone, no_room, ref missing } = self.config;
        if self.seen == gone.0 {
            self.connection.ended_because("unplugged");
        }
        if missing.iter().any(|(from, to)| (*from..*to).contains(&self.seen)) {
            let seen = self.seen;
            self.missing.note(1, || format!("in number {seen}"));
        }
        if (gone.0 + 1..gone.1).contains(&self.seen) {
            self.connection.failed("could not be opened again: no such device");
        }
        if self.seen == no_room.1 {
            self.no_room.recovered();
        }
        if self.seen == gone.1 {
            self.connection.begun();
        }
        if self.seen.checked_rem(malformed_every) == Some(0) {
            let seen = self.seen;
            self.malformed.lose(1, || format!("number {seen}"));
        } else if (no_room.0..no_room.1).contains(&self.seen) {
            self.no_room += 1;
        } else if (silent.0..silent.1).contains(&self.seen) {
            self.silenced += 1;
        } else {
            out.send(input);
        }
        Ok(())
    }
}

/// A hundred numbers a second through a lossy node, on a simulated clock. Returns the events, and
/// the run after `seconds`.
fn drive(source: &str, lossy: &str, seconds: u64) -> (Vec<Event>, Driven) {
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {source} }} }}\n  b: {{ kind: lossy, from: a, {lossy} }}\n  \
         z: {{ kind: collect, from: b }}\n  keeps: {{ kind: numbers, config: {{ period_ns: 10000000 }} }}\n  \
         on: {{ kind: collect, from: keeps }}\npaths: [{{ from: a, to: z, deadline: 1s }}]\n"
    );
    drive_graph(&graph, seconds)
}

fn drive_graph(graph: &str, seconds: u64) -> (Vec<Event>, Driven) {
    let spec = Spec::from_text(graph, "test.yaml").unwrap();
    let plan = Plan::new(spec, &limen_tests::registry().transform::<Lossy>("lossy")).unwrap();
    limen_tests::drive(plan, Duration::from_secs(seconds))
}

const RATE: &str = "period_ns: 10000000";

fn node(driven: &Driven, name: &str) -> NodeStats {
    driven.stats().into_iter().find(|node| node.node == name).unwrap()
}

fn names<'a>(events: &'a [Event], of: &[&str]) -> Vec<&'a Event> {
    events.iter().filter(|event| of.contains(&event.kind.name())).collect()
}

/// The text of a loss in a second with too few losses for an event is not that of a later event.
#[test]
fn an_event_has_the_text_of_its_own_losses() {
    // Of every hundred numbers one or two are lost: 61, then 122 and 183.
    let graph = "version: 1\nrun: { drops_above: 0.015 }\nnodes:\n  a: { kind: numbers, config: { period_ns: 10000000 } }\n  \
                 b: { kind: lossy, from: a, config: { malformed_every: 61 } }\n  z: { kind: collect, from: b }\n";
    let (events, _) = drive_graph(graph, 3);
    let told = names(&events, &["lost_inside"]);
    assert!(told.len() == 1 && told[0].to_string().ends_with("number 122"), "{events:?}");
}

/// Promise (events): Losses inside a node are counted by reason during the run, with the same
/// totals as in the report.
#[test]
fn losses_inside_a_node_are_events_and_statistics() {
    for (every, told) in [(10, true), (200, false), (0, false)] {
        let (events, driven) = drive(RATE, &format!("config: {{ malformed_every: {every} }}"), 5);
        let told_of = names(&events, &["lost_inside"]);
        assert_eq!(told_of.len(), if told { 4 } else { 0 }, "{every}: {events:?}");
        for event in told_of {
            let EventKind::LostInside { node, reason, count, of, within, first } = &event.kind else { continue };
            assert!(first.starts_with("number ") && event.to_string().ends_with(first.as_str()), "{event}");
            assert_eq!((node.as_str(), reason.as_str(), event.kind.node()), ("b", "malformed", Some("b")));
            assert!((9..=11).contains(count) && (95..=106).contains(of), "{event}");
            assert!((1000..1100).contains(&within.as_millis()), "{event}");
        }
        let live = node(&driven, "b").lost["malformed"];
        assert!(live.abs_diff(500_u64.checked_div(every).unwrap_or(0)) <= 1, "{every}: {live}");
        let report = driven.finish();
        let lost = report.node("b").unwrap().lost_total();
        // The one that the node reports at its end is added.
        assert!((live + 1..=live + 2).contains(&lost), "{every}: {live} {lost}");
        assert_eq!(report.losses()["malformed"], lost);
        // The one of the end has no reason.
        let first = format!("`b`: {} malformed; the first: number {every}", lost - 1);
        assert_eq!(report.notes.contains(&first), every > 0, "{:?}", report.notes);
    }
}

/// Promise (events): A restarted node adds to its previous loss counts.
#[test]
fn a_restarted_node_goes_on_counting() {
    let faults = "on_error: { restart: { max: 9, backoff: 1ms } }, fault: { error_every: 50 }";
    let (events, driven) = drive(RATE, &format!("config: {{ malformed_every: 10 }}, {faults}"), 3);
    assert!(events.iter().any(|event| event.kind.name() == "restarted"), "{events:?}");
    let live = node(&driven, "b").lost["malformed"];
    assert!((20..=30).contains(&live), "{live}");
    let report = driven.finish();
    let node = report.node("b").unwrap();
    // One more for each time that it ended.
    assert!(node.lost_total().abs_diff(live + node.restarts + 1) <= 1, "{live} {node:?}");
    // It was built with a device each time, and never lost one.
    assert_eq!(node.metrics.iter().find(|(name, _)| *name == "disconnects"), Some(("disconnects", 0.0)));
    assert!(names(&events, &["disconnected", "reconnected"]).is_empty(), "{events:?}");
}

/// Promise (events): The loss of a device or peer, with its reason, and the return of the device
/// are events.
#[test]
fn a_lost_device_is_an_event_and_so_is_its_return() {
    for (gone, expected, connected) in [
        ("[150, 350]", &["disconnected", "not_connected", "reconnected"][..], true),
        // Within a second.
        ("[110, 130]", &["disconnected", "reconnected"], true),
        // It could not be opened for long, which is told once.
        ("[150, 9000]", &["disconnected", "not_connected"], false),
        ("[150, 0]", &["disconnected"], false),
        ("[0, 0]", &[], true),
    ] {
        let (events, driven) = drive(RATE, &format!("config: {{ gone: {gone} }}"), 5);
        let told: Vec<&str> = names(&events, &["not_connected", "disconnected", "reconnected"])
            .iter()
            .map(|event| event.kind.name())
            .collect();
        assert_eq!(told, expected, "{gone}");
        for event in names(&events, &["disconnected"]) {
            assert_eq!(event.to_string(), "`b` was disconnected: unplugged");
        }
        let stats = node(&driven, "b");
        assert_eq!((stats.connected, stats.disconnects), (Some(connected), u64::from(!told.is_empty())), "{gone}");
        let source = node(&driven, "a");
        assert_eq!((source.connected, source.disconnects), (None, 0));
        let report = driven.finish();
        let note = "`b`: could not be opened again: no such device".to_string();
        assert_eq!(report.notes.contains(&note), gone == "[150, 9000]", "{gone}: {:?}", report.notes);
    }
}

/// Promise (events): A path with a deadline that delivers nothing is one event, unless its source
/// has ended.
#[test]
fn a_path_without_deliveries_is_silent() {
    for (source, lossy, expected, is_silent) in [
        // From the first second to the eighth, and to the end.
        (RATE, "silent: [100, 800]", 1, false),
        (RATE, "silent: [100, 8000]", 1, true),
        // From the beginning on.
        (RATE, "silent: [0, 8000]", 1, true),
        (RATE, "", 0, false),
        // The source has ended.
        ("period_ns: 10000000, count: 100", "", 0, false),
        ("period_ns: 2000000000", "", 0, false),
    ] {
        let (events, driven) = drive(source, &format!("config: {{ {lossy} }}"), 12);
        let told = names(&events, &["silent"]);
        assert_eq!(told.len(), expected, "{source} {lossy}: {events:?}");
        for event in told {
            let EventKind::Silent { path, time } = &event.kind else { continue };
            assert_eq!((path.as_str(), event.kind.path()), ("a -> z", Some("a -> z")));
            assert!((3000..5100).contains(&time.as_millis()), "{event}");
            assert!(event.to_string().starts_with("a -> z: nothing arrived for "), "{event}");
        }
        let silent = driven.path_stats().into_iter().find(|path| path.deadline.is_some()).unwrap().silent;
        assert_eq!(
            silent.is_some_and(|time| time >= Duration::from_secs(3)),
            is_silent,
            "{source} {lossy}: {silent:?}"
        );
        let ended = names(&events, &["silence_ended"]);
        assert_eq!(ended.len(), expected - usize::from(is_silent), "{source} {lossy}: {events:?}");
        for event in ended {
            let EventKind::SilenceEnded { after, .. } = &event.kind else { continue };
            assert!((6000..8100).contains(&after.as_millis()), "{event}");
        }
        let report = driven.finish();
        assert_eq!(report.deadlines[0].silent, is_silent, "{source} {lossy}");
        let empty =
            report.notes.iter().find(|note| note.starts_with("`z`: no message arrived, and nothing was written: "));
        assert_eq!(empty.is_some(), lossy == "silent: [0, 8000]", "{source} {lossy}: {:?}", report.notes);
        assert!(empty.is_none_or(|note| note.contains("`b` read ") && note.ends_with(" and sent none")));
    }
}

/// Promise (events): The end of a node's losses is an event; discarded messages are only
/// statistics.
#[test]
fn the_end_of_losses_is_an_event_and_discards_are_statistics() {
    let (events, driven) = drive(RATE, "config: { no_room: [150, 250], silent: [300, 350] }", 5);
    let ended = names(&events, &["recovered"]);
    let [event] = &ended[..] else { panic!("{events:?}") };
    assert_eq!(event.to_string(), "`b` has recovered (no_room) and has lost 100 messages so far");
    let stats = node(&driven, "b");
    assert_eq!((stats.lost["no_room"], stats.discarded["silenced"]), (100, 50));
    let report = driven.finish();
    assert_eq!(report.metric("b.silenced"), Some(50.0));
    assert_eq!(report.node("b").unwrap().discarded_total(), 50);
}

/// Values that are missing cost no message. They are told when they begin, also after a second
/// without any.
#[test]
fn missing_values_are_events_and_statistics() {
    for (missing, told) in
        [("[[150, 350]]", 1), ("[[150, 160]]", 1), ("[[150, 160], [350, 360]]", 2), ("[]", 0), ("[[50, 9000]]", 1)]
    {
        let (events, driven) = drive(RATE, &format!("config: {{ missing: {missing} }}"), 5);
        let events = names(&events, &["incidents"]);
        assert_eq!(events.len(), told, "{missing}: {events:?}");
        for event in events {
            let EventKind::Incidents { node, what, first, .. } = &event.kind else { continue };
            assert_eq!((node.as_str(), what.as_str(), event.kind.node()), ("b", "missing", Some("b")));
            assert!(first.starts_with("in number ") && event.to_string().ends_with(first.as_str()), "{event}");
        }
        let count = node(&driven, "b").incidents["missing"];
        let report = driven.finish();
        assert_eq!((count > 0, report.metric("b.missing")), (told > 0, Some(count as f64)));
        assert_eq!(report.node("b").unwrap().lost_total(), 1, "only what the node says at its end");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.csv"), "t,v\n".to_string() + &"1,\n".repeat(1_000)).unwrap();
    std::fs::write(folder.path().join("x.txt"), "{\"v\":null}\n".repeat(1_000)).unwrap();
    let csv = "  n: { kind: csv, config: { path: x.csv, rate: 100Hz } }\n";
    let json = "  l: { kind: file, config: { path: x.txt, framing: lines, rate: 100Hz } }\n  \
                n: { kind: decode, from: l, config: { format: json, fields: [{ name: v, type: f64 }] } }\n";
    for nodes in [csv, json] {
        let path = folder.path().join("graph.yaml");
        std::fs::write(&path, format!("version: 1\nnodes:\n{nodes}  z: {{ kind: 'null', from: n }}\n")).unwrap();
        let plan = Plan::from_file(path, &Default::default(), &limen_tests::registry(), &Default::default());
        let (events, driven) = limen_tests::drive(plan.unwrap(), Duration::from_secs(5));
        assert_eq!(names(&events, &["incidents"]).len(), 1, "{nodes}: {events:?}");
        assert!(node(&driven, "n").incidents["missing"] >= 400, "{nodes}");
        driven.finish();
    }
}

/// A join of numbers that always come and of those of a lossy node.
fn join(rate: &str, silent: &str) -> String {
    format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ {rate} }} }}\n  \
         b: {{ kind: lossy, from: a, config: {{ silent: {silent} }} }}\n  \
         keeps: {{ kind: numbers, config: {{ period_ns: 10000000 }} }}\n  \
         j: {{ kind: pair, inputs: {{ a: keeps, b: b }}, join: {{ policy: by_time, within: 1ms, anchor: a, patience: 1000 }} }}\n  \
         z: {{ kind: collect, from: j }}\n"
    )
}

/// Promise (events): A join that receives nothing on one input while others receive messages is one
/// event within two seconds.
#[test]
fn a_join_that_starves_names_the_input() {
    for (rate, silent, told) in [
        (RATE, "[100, 450]", 1),
        (RATE, "[100, 120]", 0),
        (RATE, "[0, 450]", 1),
        ("count: 100, period_ns: 10000000", "[0, 0]", 0),
    ] {
        let (events, driven) = drive_graph(&join(rate, silent), 7);
        let starves = names(&events, &["starves"]);
        assert_eq!(starves.len(), told, "{rate} {silent}: {events:?}");
        for event in starves {
            assert_eq!((event.kind.node(), event.kind.edge()), (Some("j"), Some("b/out -> j/b")));
            let EventKind::Starves { time, .. } = &event.kind else { continue };
            assert!((1000..2100).contains(&time.as_millis()), "{event}");
        }
        let ended: Vec<_> = names(&events, &["starving_ended"]).iter().map(|event| event.kind.node()).collect();
        assert_eq!(ended, vec![Some("j"); told], "{rate} {silent}: {events:?}");
        driven.finish();
    }
}

/// Promise (events): The statistics show how long a join has waited for an input.
#[test]
fn the_edge_that_a_join_starves_for_has_the_time() {
    for (until, expected) in [(1, None), (4, Some("b/out -> j/b")), (8, None)] {
        let (_, driven) = drive_graph(&join(RATE, "[100, 450]"), until);
        let edges = driven.edge_stats();
        let starving: Vec<String> = edges
            .iter()
            .filter(|edge| edge.starves.is_some_and(|time| time >= Duration::from_secs(1)))
            .map(|edge| format!("{} -> {}", edge.from, edge.to))
            .collect();
        assert_eq!(starving.first().map(String::as_str), expected, "after {until} s: {edges:?}");
        driven.finish();
    }
}

/// Changes a byte in the middle of the fourth chunk of a recording.
fn damage_a_chunk(file: &mut [u8]) {
    let (mut at, mut chunks) = (8, 0);
    loop {
        let length = u64::from_le_bytes(file[at + 1..at + 9].try_into().unwrap()) as usize;
        chunks += usize::from(file[at] == 6);
        if chunks == 4 {
            file[at + 9 + length / 2] ^= 0xFF;
            return;
        }
        at += 9 + length;
    }
}

/// Promise (events): Losses of stock nodes are visible when they happen.
#[test]
fn losses_of_stock_nodes_are_seen_while_they_run() {
    let numbers = |rate: &str| format!("  a: {{ kind: numbers, config: {{ {rate} }} }}\n");
    let silent = |more: &str| format!("  b: {{ kind: lossy, from: a, config: {{ {more} }} }}\n");
    let window =
        "  n: { kind: window, from: { from: b, expect_every: 50ms, on_gap: reset }, config: { length: 1000 } }\n";
    let parts = "  a: { kind: synthetic, config: { pattern: counter, shape: [4], rate: 100Hz } }\n  \
                 s: { kind: scatter, from: a }\n  b: { kind: lossy, from: s, config: { malformed_every: 7 } }\n";
    let gather = "  n: { kind: gather, from: b, config: { max: 4, within: 20ms, missing: drop } }\n";
    let end = "  z: { kind: 'null', from: n }\n";
    let sink = |kind: &str, path: &str| {
        format!("  n: {{ kind: {kind}, from: a, on_error: skip, config: {{ path: {path}, exists: fail }} }}\n")
    };
    let recording = "  n: { kind: replay, config: { path: r.mcap } }\n  z: { kind: 'null', from: n/x }\n";
    for (nodes, reason, prepare, first) in [
        (
            numbers(RATE) + &silent("silent: [100, 150]") + window + end,
            "dropped",
            "",
            "upstream messages were lost when the window held ",
        ),
        (parts.to_string() + gather + end, "dropped", "", "the message is incomplete (parts that arrived: 3)"),
        (numbers(RATE) + &sink("csv", "x.csv"), "unwritten", "x.csv", "the file was deleted"),
        (numbers(RATE) + &sink("jsonl", "x.jsonl"), "unwritten", "x.jsonl", "the file was deleted"),
        (numbers(RATE) + &sink("npy", "x.npy"), "unwritten", "x.npy", "the file was deleted"),
        (numbers(RATE) + &sink("record", "x.mcap"), "unwritten", "x.mcap", "the file was deleted"),
        (recording.to_string(), "unreadable", "damaged", "from byte "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let graph = |nodes: &str| {
            let path = folder.path().join("graph.yaml");
            std::fs::write(&path, format!("version: 1\nrun: {{ drops_above: 0 }}\nnodes:\n{nodes}")).unwrap();
            let registry = limen_tests::registry().transform::<Lossy>("lossy");
            Plan::from_file(path, &Default::default(), &registry, &Default::default()).unwrap_or_else(|e| panic!("{e}"))
        };
        if prepare == "damaged" {
            let record = "  r: { kind: record, inputs: { x: a }, config: { path: r.mcap } }\n";
            limen_tests::drive(graph(&(numbers(RATE) + record)), Duration::from_secs(6)).1.finish();
            let path = folder.path().join("r.mcap");
            let mut file = std::fs::read(&path).unwrap();
            damage_a_chunk(&mut file);
            std::fs::write(&path, file).unwrap();
        }
        let clock = SimulatedClock::new(Time(1_000_000_000));
        let mut driven = graph(&nodes).wire().unwrap().drive(Clock::Simulated(clock.clone())).unwrap();
        let mut events = Vec::new();
        for second in 1..=5 {
            events.extend(limen_tests::drive_on(&mut driven, &clock, Time(1_000_000_000 * (second + 1))));
            if second == 2 && prepare.starts_with("x.") {
                std::fs::remove_file(folder.path().join(prepare)).unwrap();
            }
        }
        let live = node(&driven, "n").lost.get(reason).copied().unwrap_or(0);
        let told: u64 = names(&events, &["lost_inside"])
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::LostInside { node, reason: why, count, .. } if node == "n" && why == reason => Some(count),
                _ => None,
            })
            .sum();
        assert!(
            live > 0 && told > 0 && told <= live,
            "{nodes}: {live} lost, {told} told: {events:?} {:?}",
            driven.stats()
        );
        let texts = events.iter().filter_map(|event| match &event.kind {
            EventKind::LostInside { node, first, .. } if node == "n" => Some(first.as_str()),
            _ => None,
        });
        assert!(texts.clone().count() > 0 && texts.clone().all(|text| text.starts_with(first)), "{nodes}: {events:?}");
        let report = driven.finish();
        assert!(report.losses()[reason] >= live, "{nodes}");
        let said = report.notes.iter().any(|note| note.contains(&format!(" {reason}; the first: {first}")));
        assert_eq!(said, !first.is_empty(), "{nodes}: {:?}", report.notes);
    }
}
