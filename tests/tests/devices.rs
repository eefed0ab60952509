//! Messages in the memory of a device: a mock that does its work late, in an order drawn from a
//! seed, and fails or is lost as configured.

use limen::message::Header;
use limen::report::Outcome;
use limen::{Plan, Problems, Report, Spec, Tensor, Time};
use limen_gpu::device::{MockDevice, MockFaults};
use limen_tests::{figure, finished};
use std::time::Duration;

/// Plans a graph on a mock device, which is returned too.
fn plan(text: &str, faults: MockFaults) -> (Result<Plan, Problems>, MockDevice) {
    let device = MockDevice::new(faults);
    let registry = limen_tests::registry().with(|registry| device.clone().register(registry));
    let spec = Spec::from_text(&format!("version: 1\nnodes:\n{text}"), "test.yaml").unwrap();
    (Plan::new(spec, &registry), device)
}

/// Simulates a graph; the seed draws both the order of turns and the order of the device's work.
fn turn(text: &str, seed: u64, faults: MockFaults) -> (Report, MockDevice) {
    let (plan, device) = plan(text, MockFaults { seed, ..faults });
    let plan = plan.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let simulation = plan.wire().unwrap().simulate(seed).unwrap();
    let report = simulation.run(1_000_000).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}\n{text}"));
    assert_eq!(report.bugs, Vec::<String>::new(), "seed {seed}");
    (report, device)
}

/// Three nodes on the device, between nodes of the host.
fn chain(count: u64, on_error: &str) -> String {
    let step = |name: &str, from: &str, add: u64| {
        format!("  {name}: {{ kind: mock_step, config: {{ add: {add} }}, from: {from}{on_error} }}\n")
    };
    format!(
        "  a: {{ kind: numbers, config: {{ count: {count} }} }}\n{}{}{}  c: {{ kind: collect, from: z }}\n",
        step("x", "a", 100),
        step("y", "x", 20),
        step("z", "y", 3)
    )
}

#[test]
fn copies_are_inserted_at_both_ends_of_a_chain() {
    let (plan, _) = plan(&chain(1, ""), MockFaults::default());
    let plan = plan.unwrap();
    let names: Vec<&str> = plan.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "a_to_mock", "x", "y", "z", "z_to_host", "c"]);
    let inserted: Vec<_> = plan.nodes().iter().filter_map(|node| node.inserted.as_deref()).collect();
    assert_eq!(
        inserted,
        [
            "inserted because `x` reads messages in the memory of `mock`",
            "inserted because `z` writes messages in the memory of `mock`"
        ]
    );
    let memory = plan.memory();
    assert!(memory.devices > 0 && memory.devices.is_multiple_of(8), "{memory:?}");
    let on_device = |name: &str| plan.nodes().iter().find(|node| node.name == name).unwrap().outputs[0].device_bytes;
    assert_eq!((on_device("a"), on_device("z_to_host")), (0, 0));
    assert!(on_device("a_to_mock") > 0 && on_device("z") > 0);
}

#[test]
fn a_chain_gives_the_right_numbers_in_every_order_and_waits_once() {
    let n = 40;
    for seed in 0..200 {
        let (report, device) = turn(&chain(n, ""), seed, MockFaults::default());
        assert_eq!(figure(&report, "c.sum_in"), (n * (n - 1) / 2 + n * 123) as f64, "seed {seed}");
        assert_eq!((figure(&report, "c.count"), figure(&report, "c.disorder")), (n as f64, 0.0), "seed {seed}");
        // The host waits for what it reads, and for nothing else; each message is written once,
        // read once, and computed three times.
        assert_eq!(figure(&report, "z_to_host.host_waits"), n as f64);
        let waits = report.nodes.iter().filter_map(|node| report.metric(&format!("{}.host_waits", node.name)));
        assert_eq!(waits.count(), 1);
        let follows = device.steps() - 10 * n;
        assert!(follows <= 4 * n, "seed {seed}: {follows}");
    }
}

/// If calls did not follow those that wrote their inputs, the numbers above would be wrong.
#[test]
fn without_events_the_numbers_are_wrong() {
    let wrong = (0..50).filter(|seed| {
        let faults = MockFaults { ignores_events: true, ..MockFaults::default() };
        let (report, _) = turn(&chain(40, ""), *seed, faults);
        figure(&report, "c.sum_in") != (40 * 39 / 2 + 40 * 123) as f64
    });
    assert!(wrong.count() > 25);
}

#[test]
fn threads_share_a_device() {
    let (plan, _) = plan(&chain(2000, ""), MockFaults::default());
    let report = finished(plan.unwrap().wire().unwrap().start().unwrap());
    assert_eq!((report.outcome, &report.bugs[..]), (Outcome::Finished, &[][..]));
    assert_eq!(figure(&report, "c.sum_in"), f64::from(2000 * 1999 / 2 + 2000 * 123));
}

/// A node that only prefers the device resides there beside another one that does.
#[test]
fn a_node_alone_copies_within_its_calls() {
    let step = |name: &str, from: &str| {
        format!("  {name}: {{ kind: mock_step, config: {{ add: 1, optional: true }}, from: {from} }}\n")
    };
    let source = "  a: { kind: numbers, config: { count: 20 } }\n";
    let alone = format!("{source}{}  c: {{ kind: collect, from: x }}\n", step("x", "a"));
    let two = format!("{source}{}{}  c: {{ kind: collect, from: y }}\n", step("x", "a"), step("y", "x"));
    let apart = format!(
        "{source}{}  s: {{ kind: step, from: x }}\n{}  c: {{ kind: collect, from: y }}\n",
        step("x", "a"),
        step("y", "s")
    );
    for (text, nodes, sum) in [(&alone, 3, 210.0), (&two, 6, 230.0), (&apart, 5, 230.0)] {
        let (report, _) = turn(text, 3, MockFaults::default());
        assert_eq!((report.nodes.len(), figure(&report, "c.sum_in")), (nodes, sum), "{text}");
    }
}

/// The policy of a connection holds where its messages are in host memory, and consumers with the
/// same one share a copy.
#[test]
fn policies_are_kept_and_copies_shared() {
    let text = "  a: { kind: numbers, config: { count: 50 } }\n  \
                x: { kind: mock_step, config: { add: 1 }, from: { from: a, when_full: latest } }\n  \
                y: { kind: mock_step, config: { add: 2 }, from: a }\n  \
                w: { kind: mock_step, config: { add: 2 }, from: a }\n  \
                c: { kind: collect, from: { from: x, when_full: drop_oldest, capacity: 2 } }\n  \
                d: { kind: collect, from: x }\n  \
                e: { kind: collect, from: y }\n  f: { kind: collect, from: w }\n";
    let (planned, _) = plan(text, MockFaults::default());
    let planned = planned.unwrap();
    let edge = |from: &str, to: &str| {
        let found =
            planned.edges().iter().find(|edge| edge.from_name.starts_with(from) && edge.to_name.starts_with(to));
        let edge = found.unwrap_or_else(|| panic!("{from} {to}: {:?}", planned.edges()));
        (edge.when_full().name(), edge.capacity)
    };
    assert_eq!(edge("a/", "a_to_mock/"), ("latest", 1));
    assert_eq!(edge("a_to_mock/", "x/"), ("block", 1));
    assert_eq!(edge("a/", "a_to_mock_2/").0, "block");
    assert_eq!(edge("a_to_mock_2/", "y/").0, "block");
    assert_eq!(edge("a_to_mock_2/", "w/").0, "block");
    assert_eq!(edge("x_to_host/", "c/"), ("drop_oldest", 2));
    assert_eq!(edge("x_to_host/", "d/").0, "block");
    for seed in 0..30 {
        let (report, _) = turn(text, seed, MockFaults::default());
        assert_eq!(figure(&report, "e.sum_in"), f64::from(50 * 49 / 2 + 50 * 2), "seed {seed}");
        assert_eq!(figure(&report, "f.count"), 50.0);
        assert_eq!(figure(&report, "d.count") as u64, report.node("x_to_host").unwrap().done);
    }
}

/// A failed call fails alone: what depends on it is lost, once, and everything before and after is
/// right.
#[test]
fn a_failed_call_loses_what_depends_on_it() {
    let n = 30;
    let on_error = ", on_error: skip";
    for seed in 0..60 {
        let faults = MockFaults { fail_at: (60..70).collect(), ..MockFaults::default() };
        let (report, _) = turn(&chain(n, on_error), seed, faults);
        let node = |name: &str| report.node(name).unwrap();
        let failed: u64 = ["x", "y", "z"].map(|name| node(name).failed).iter().sum();
        assert_eq!(report.failed_calls, failed, "seed {seed}: {:?}", report.failures);
        let count = figure(&report, "c.count") as u64;
        assert_eq!(count + failed, n, "seed {seed}: what failed is lost once, and nothing else is");
        // Behind a failed call, its message is lost at the next node. It goes further only if that
        // node's call began before.
        assert_eq!(node("y").lost, node("x").failed);
        assert!(node("z").lost <= node("x").failed + node("y").failed && node("z_to_host").lost <= failed);
        assert_eq!(report.losses()["device_lost"], node("y").lost + node("z").lost + node("z_to_host").lost);
        assert_eq!(figure(&report, "c.disorder"), 0.0);
    }
}

/// The device is lost at each step in turn. It is opened again; nothing of the lost generation is
/// passed on.
#[test]
fn a_lost_device_is_rebuilt_and_messages_are_accounted_for() {
    let n = 30;
    for step in 1..=100 {
        let faults = MockFaults { lose_at: vec![step], ..MockFaults::default() };
        let (report, _) = turn(&chain(n, ", on_error: skip"), step, faults);
        assert_eq!(report.outcome, Outcome::Finished, "step {step}");
        let count = figure(&report, "c.count");
        assert!(count < n as f64 && count >= (n - 20) as f64, "step {step}: {count}");
        // Every message is there whole or not at all, so that no sum is of memory that nothing
        // wrote.
        let sum = figure(&report, "c.sum_in");
        assert!(sum < (n * (n + 123)) as f64 && sum >= count * 123.0, "step {step}: {sum}");
        let lost = report.failures.iter().filter(|failure| failure.text.contains("the device was lost: mock")).count();
        assert_eq!(lost, report.failures.len(), "step {step}: {:?}", report.failures);
        assert!(lost > 0, "step {step}");
    }
}

#[test]
fn a_device_that_is_lost_again_and_again_is_given_up() {
    // Once more than it is rebuilt.
    let faults = MockFaults { lose_at: vec![5, 25, 45, 65], ..MockFaults::default() };
    let (report, _) = turn(&chain(60, ", on_error: skip"), 1, faults);
    let texts: Vec<&str> = report.failures.iter().map(|failure| failure.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.contains("was lost again after it was rebuilt 3 times in 60 s")), "{texts:?}");
    // With the default policy the first loss ends the run.
    let faults = MockFaults { lose_at: vec![25], ..MockFaults::default() };
    let (report, _) = turn(&chain(60, ""), 1, faults);
    assert_eq!((report.outcome, report.exit_code()), (Outcome::Failed, 1));
}

#[test]
fn a_missing_device_is_an_error_before_the_start() {
    let (plan, _) = plan(&chain(1, ""), MockFaults { is_missing: true, ..MockFaults::default() });
    let error = plan.unwrap().wire().unwrap_err().to_string();
    assert!(error.contains("`mock`: the mock is configured to be missing"), "{error}");
}

#[test]
fn what_a_device_cannot_do_is_refused() {
    for (text, code, why) in [
        (
            "  a: { kind: numbers }\n  t: { kind: to_device, config: { device: gpu }, from: a }\n  c: { kind: 'null', from: t }\n",
            "E0130",
            "`device` must be `mock`",
        ),
        (
            "  a: { kind: synthetic, config: { pattern: noise, shape: [8, 6], dtype: f32, count: 1 } }\n  n: { kind: nms, config: { iou: 0.5 }, from: a }\n  \
             s: { kind: transpose, config: { order: [1, 0] }, from: n }\n  t: { kind: to_device, config: { device: mock }, from: s }\n  \
             h: { kind: to_host, config: { device: mock }, from: t }\n  c: { kind: 'null', from: h }\n",
            "E0135",
            "or only a first dim that varies up to a bound, found ",
        ),
    ] {
        let problems = plan(text, MockFaults::default()).0.unwrap_err();
        assert!(problems.0.iter().any(|problem| problem.code == code && problem.message.contains(why)), "{problems}");
    }
}

/// A message whose first dim varies has its length beside its elements.
#[test]
fn rows_keep_their_number_on_a_device() {
    let text = "  a: { kind: inlet, config: { spec: 'i32[≤5,3]' } }\n  up: { kind: to_device, config: { device: mock }, from: a }\n  \
                down: { kind: to_host, config: { device: mock }, from: up }\n  c: { kind: outlet, from: down }\n";
    let mut wired = plan(text, MockFaults::default()).0.unwrap().wire().unwrap();
    let (mut inlet, mut outlet) = (wired.inlet::<Tensor>("a").unwrap(), wired.outlet::<Tensor>("c").unwrap());
    let running = wired.start().unwrap();
    for (seq, rows) in (0..).zip([5, 0, 1, 4]) {
        let mut sent = inlet.loan(&Header::new(seq, Time::ZERO)).unwrap();
        sent.set_len(0, rows).unwrap();
        (0..).zip(sent.as_mut_slice::<i32>().unwrap()).for_each(|(at, number)| *number = at - 7);
        inlet.send_timeout(sent, Duration::from_secs(10)).unwrap();
        let received = outlet.recv_timeout(limen_tests::PATIENCE).unwrap().body;
        assert_eq!(received.shape()[..], [rows, 3]);
        assert_eq!(received.as_slice::<i32>().unwrap(), (0..rows as i32 * 3).map(|at| at - 7).collect::<Vec<_>>());
    }
    inlet.close();
    running.wait();
}

/// Written by the graph, the copies are the graph's.
#[test]
fn a_graph_may_write_its_copies() {
    let text = "  a: { kind: numbers, config: { count: 10 } }\n  up: { kind: to_device, config: { device: mock }, from: a }\n  \
                x: { kind: mock_step, config: { add: 1 }, from: up }\n  \
                down: { kind: to_host, config: { device: mock }, from: x }\n  c: { kind: collect, from: down }\n";
    let (report, _) = turn(text, 1, MockFaults::default());
    assert_eq!((report.nodes.len(), figure(&report, "c.sum_in")), (5, 55.0));
}

/// A tap would have nothing to copy.
#[test]
fn a_tap_on_a_device_is_refused() {
    let (plan, _) = plan(&chain(1, ""), MockFaults::default());
    let mut wired = plan.unwrap().wire().unwrap();
    let error = wired.tap::<limen::Tensor>("x").unwrap_err().to_string();
    assert!(error.contains("tap the downstream `to_host` node"), "{error}");
    wired.tap::<limen::Tensor>("z_to_host").unwrap();
}
