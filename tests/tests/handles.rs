//! Inlets, outlets and taps: messages of the program arrive, messages it does not take are counted,
//! nothing hangs, nothing is lost uncounted, and taps do not slow the graph.

use limen::message::Plain;
use limen::report::{HandleKind, HandleReport, Reason};
use limen::{
    Clock, Drain, Inlet, Message, Outlet, Plan, RecvError, Registry, Report, RunError, SendError, SimulatedClock, Spec,
    Tensor, Time, Turned, Wired,
};
use limen_tests::plan;
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = limen_tests::PATIENCE;

fn wired(graph: &str) -> Wired {
    plan(&format!("version: 1\nnodes:\n{graph}"))
        .unwrap_or_else(|problems| panic!("{problems}\n{graph}"))
        .wire()
        .unwrap()
}

/// Sends a number; waits for room.
fn send(inlet: &mut Inlet<Tensor>, number: u64) -> Result<(), SendError<Tensor>> {
    let mut tensor = inlet.loan(&inlet.header()).expect("one is on loan at a time");
    tensor.as_mut_slice::<u64>().unwrap()[0] = number;
    inlet.send_timeout(tensor, LONG)
}

fn try_send(inlet: &mut Inlet<Tensor>, number: u64) -> Result<(), SendError<Tensor>> {
    let mut tensor = inlet.loan(&inlet.header()).expect("one is on loan at a time");
    tensor.as_mut_slice::<u64>().unwrap()[0] = number;
    inlet.try_send(tensor)
}

fn number(message: &Message<Tensor>) -> u64 {
    message.body.as_slice::<u64>().unwrap()[0]
}

/// Receives until the stream ends.
fn rest(outlet: &mut Outlet<Tensor>) -> (Vec<u64>, RecvError) {
    let mut all = Vec::new();
    loop {
        match outlet.recv_timeout(LONG) {
            Ok(message) => all.push(number(&message)),
            Err(why) => return (all, why),
        }
    }
}

fn handle<'a>(report: &'a Report, name: &str) -> &'a HandleReport {
    report.handles.iter().find(|handle| handle.name == name).unwrap()
}

/// Checks that the message accounting balances and that every handle was counted.
fn check(report: &Report) {
    assert_eq!(report.bugs, Vec::<String>::new());
    for handle in &report.handles {
        assert!(handle.counted, "{handle:?}");
        assert_eq!(
            handle.sent,
            handle.received + handle.lost_total() + handle.discarded_total() + handle.left,
            "{handle:?}"
        );
    }
}

const ECHO: &str = "  a: { kind: inlet, config: { spec: u64 } }\n  b: { kind: step, from: a }\n  \
                    z: { kind: outlet, from: b }\n";

fn echo() -> (Wired, Inlet<Tensor>, Outlet<Tensor>) {
    let mut graph = wired(ECHO);
    let (inlet, outlet) = (graph.inlet("a").unwrap(), graph.outlet("z").unwrap());
    (graph, inlet, outlet)
}

/// Promise (handles): Messages from an inlet reach the outlet in order and are counted at both
/// ends.
#[test]
fn messages_of_the_program_come_out_in_order() {
    for cores in ["", ", core: 1"] {
        let mut graph = wired(&ECHO.replace("kind: step", &format!("kind: step{cores}")));
        let (mut inlet, mut outlet) = (graph.inlet("a").unwrap(), graph.outlet("z").unwrap());
        let running = graph.start().unwrap();
        let program = thread::spawn(move || (0..5_000).for_each(|n| send(&mut inlet, n).unwrap()));
        let mut last = None;
        for n in 0..5_000 {
            let message = outlet.recv().unwrap();
            assert_eq!((number(&message), message.header().seq, message.header().source), (n, n, 0));
            assert!(last.is_none_or(|last| last <= message.header().origin));
            last = Some(message.header().origin);
        }
        program.join().unwrap();
        // The thread has dropped the inlet.
        assert_eq!(outlet.recv().unwrap_err(), RecvError::Ended);
        let report = running.wait();
        check(&report);
        assert_eq!((report.exit_code(), report.node("z").unwrap().done), (0, 5_000));
        for name in ["a", "z"] {
            let HandleReport { sent, received, left, .. } = handle(&report, name);
            assert_eq!((*sent, *received, *left), (5_000, 5_000, 0), "{name}");
        }
        assert_eq!((handle(&report, "a").kind, handle(&report, "z").kind), (HandleKind::Inlet, HandleKind::Outlet));
        assert!(report.paths().any(|(from, to, latencies)| from == "a" && to == "z" && latencies.samples > 0));
    }
}

/// Promise (handles): A full graph refuses messages of its inlet (`Full`) and loses none.
#[test]
fn backpressure_reaches_the_program_and_nothing_is_lost() {
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    // The program takes nothing, so the outlet fills, then the edges, then the inlet.
    let mut accepted = 0;
    while inlet_has_room(&mut inlet, accepted) {
        accepted += 1;
        assert!(accepted < 10_000, "messages in flight are not bounded");
    }
    let Err(SendError::Full(message)) = try_send(&mut inlet, 77) else { panic!("there is room") };
    assert_eq!(number(&message), 77);
    drop(message);
    inlet.close();
    assert_eq!(rest(&mut outlet), ((0..accepted).collect(), RecvError::Ended));
    let report = running.wait();
    check(&report);
    assert_eq!((handle(&report, "a").sent, handle(&report, "z").received), (accepted, accepted));
    assert_eq!(report.metric("lost"), Some(0.0));
}

/// Promise (handles): The `when_full` policy of an outlet's edge also covers the outlet's queue.
#[test]
fn the_policy_of_an_outlets_edge_includes_the_outlet() {
    let find = |policy: &str, first: u64, reason: Option<Reason>| {
        let mut graph = wired(&format!(
            "  a: {{ kind: inlet, config: {{ spec: u64, capacity: 256 }} }}\n  \
             z: {{ kind: outlet, config: {{ hold: 4 }}, from: {{ from: a, when_full: {policy} }} }}\n"
        ));
        let (mut inlet, mut outlet) = (graph.inlet("a").unwrap(), graph.outlet("z").unwrap());
        let mut graph = graph.drive(Clock::Monotonic).unwrap();
        for n in 0..100 {
            // With `fail` a full outlet ends the run.
            let sent = try_send(&mut inlet, n);
            assert!(sent.is_ok() || policy == "fail", "{policy}: {sent:?}");
            while graph.turn() == Turned::Worked {}
        }
        assert_eq!(number(&outlet.try_recv().unwrap()), first, "{policy}");
        drop(inlet);
        if policy == "block" {
            while outlet.try_recv().is_ok() {
                while graph.turn() == Turned::Worked {}
            }
        }
        let report = graph.run();
        check(&report);
        let z = handle(&report, "z");
        assert_eq!(z.lost.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), Vec::from_iter(reason), "{policy}");
        assert_eq!(z.sent, if policy == "fail" { 4 } else { 100 }, "{policy}");
    };
    find("block", 0, None);
    find("drop_newest", 0, Some(Reason::FullNewest));
    find("drop_oldest", 96, Some(Reason::FullOldest));
    find("latest", 99, Some(Reason::Superseded));
    find("fail", 0, None);
}

/// Promise (handles): A graph continues after its outlet is dropped, and counts the messages for
/// it.
#[test]
fn a_graph_continues_after_an_outlet_is_dropped() {
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    for n in 0..100 {
        send(&mut inlet, n).unwrap();
        assert_eq!(number(&outlet.recv_timeout(LONG).unwrap()), n);
    }
    for n in 100..105 {
        send(&mut inlet, n).unwrap();
    }
    drop(outlet);
    for n in 105..1_000 {
        send(&mut inlet, n).unwrap();
    }
    drop(inlet);
    let report = running.wait();
    check(&report);
    let z = handle(&report, "z");
    assert_eq!((z.sent, z.received, z.left), (1_000, 100, 0));
    assert_eq!(z.lost, [(Reason::ConsumerGone, 900)]);
    assert_eq!((report.exit_code(), report.metric("lost")), (0, Some(900.0)));
}

/// Promise (handles): The graph drains a closed inlet.
#[test]
fn a_closed_inlet_is_drained() {
    let (graph, mut inlet, mut outlet) = echo();
    // They are buffered until the run starts.
    for n in 0..10 {
        try_send(&mut inlet, n).unwrap();
    }
    inlet.close();
    let begin = Clock::Monotonic.now();
    let running = graph.start().unwrap();
    let first = outlet.recv_timeout(LONG).unwrap();
    assert!(number(&first) == 0 && first.header().origin >= begin);
    assert_eq!(rest(&mut outlet), ((1..10).collect(), RecvError::Ended));
    let report = running.wait();
    check(&report);
    assert_eq!(report.outcome.name(), "finished");
}

/// Promise (handles): A stop processes accepted messages and accepts no new ones.
#[test]
fn a_stop_processes_accepted_messages_and_accepts_no_more() {
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    let program = thread::spawn(move || {
        let mut accepted = 0;
        loop {
            match send(&mut inlet, accepted) {
                Ok(()) => accepted += 1,
                Err(SendError::Closed(message)) => return (accepted, number(&message), inlet),
                Err(other) => panic!("{other}"),
            }
        }
    });
    let stopper = running.stopper();
    let taker = thread::spawn(move || {
        let mut all = Vec::new();
        while let Ok(message) = outlet.recv() {
            all.push(number(&message));
            if all.len() == 500 {
                stopper.stop();
            }
        }
        (all, outlet.recv().unwrap_err())
    });
    let report = running.wait();
    let (accepted, returned, mut inlet) = program.join().unwrap();
    let (all, why) = taker.join().unwrap();
    check(&report);
    assert_eq!((report.outcome.name(), returned, why), ("stopped", accepted, RecvError::Ended));
    // A message accepted while the inlet's node was ending is counted.
    let left = handle(&report, "a").left;
    assert!(
        left <= 1 && all.len() as u64 == accepted - left,
        "{accepted} accepted, {} came out, {left} left",
        all.len()
    );
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    // After the end the handle returns an error at once.
    assert!(inlet.is_closed() && matches!(send(&mut inlet, 0), Err(SendError::Closed(_))));
}

/// Promise (handles): A stop abandons an outlet that is not emptied within `run.stop`.
#[test]
fn a_stop_abandons_a_full_outlet_after_its_timeout() {
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    let mut accepted = 0;
    // Without room before the outlet is full, the graph is only slow.
    loop {
        if inlet_has_room(&mut inlet, accepted) {
            accepted += 1;
        } else if running.stats()[2].done == 8 {
            break;
        }
    }
    let report = running.stop(Drain::within(Duration::from_millis(100)));
    check(&report);
    assert_eq!(report.outcome.name(), "deadline passed");
    let z = handle(&report, "z");
    assert_eq!((z.sent, z.received, z.left), (8, 0, 8));
    let on_the_way: u64 = report.edges.iter().map(|edge| edge.left).sum::<u64>() + handle(&report, "a").left + z.left;
    assert_eq!(on_the_way, accepted);
    // Messages left in the outlet can still be received; then it reports the end.
    assert_eq!(rest(&mut outlet), ((0..8).collect(), RecvError::Failed));
}

fn inlet_has_room(inlet: &mut Inlet<Tensor>, n: u64) -> bool {
    let mut tensor = inlet.loan(&inlet.header()).unwrap();
    tensor.as_mut_slice::<u64>().unwrap()[0] = n;
    inlet.send_timeout(tensor, Duration::from_millis(100)).is_ok()
}

/// Promise (handles): A handle of a dropped graph returns an error and wakes its waiters.
#[test]
fn handles_of_a_dropped_graph_return_an_error() {
    // Never started.
    let (graph, mut inlet, mut outlet) = echo();
    drop(graph);
    assert!(matches!(send(&mut inlet, 1), Err(SendError::Closed(_))));
    assert_eq!(outlet.recv().unwrap_err(), RecvError::Failed);
    // Dropped while running, with a waiting program.
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    let waiting = thread::spawn(move || outlet.recv().unwrap_err());
    drop(running);
    assert_eq!(waiting.join().unwrap(), RecvError::Failed);
    while send(&mut inlet, 1).is_ok() {}
    assert!(inlet.is_closed());
    // Could not be built.
    let mut graph = wired(
        "  a: { kind: inlet, config: { spec: u64 } }\n  b: { kind: fault, config: { place: build }, from: a }\n  \
         z: { kind: outlet, from: b }\n",
    );
    let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
    assert!(matches!(graph.start(), Err(RunError::Build { .. })));
    assert_eq!(outlet.recv().unwrap_err(), RecvError::Failed);
    assert!(matches!(send(&mut inlet, 1), Err(SendError::Closed(_))));
}

/// Promise (handles): A failed node closes its inlet and its outlet.
#[test]
fn a_failed_node_closes_inlet_and_outlet() {
    let mut graph = wired(
        "  a: { kind: inlet, config: { spec: u64 } }\n  b: { kind: fault, config: { at: 5 }, from: a }\n  \
         z: { kind: outlet, from: b }\n",
    );
    let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
    let running = graph.start().unwrap();
    let mut sent = 0;
    while send(&mut inlet, sent).is_ok() {
        sent += 1;
    }
    assert_eq!(rest(&mut outlet), ((0..5).collect(), RecvError::Failed));
    let report = running.wait();
    check(&report);
    assert_eq!(report.exit_code(), 1);
}

/// Promise (handles): Faults at inlets and outlets lose no message uncounted.
#[test]
fn faults_injected_at_inlets_and_outlets_lose_nothing_uncounted() {
    for (a, z) in
        [("error_at: 7", ""), ("panic_at: 1", ""), ("", "panic_at: 7"), ("", "error_every: 3"), ("", "drop: 0.5")]
    {
        for policy in ["skip", "stop", "detach"] {
            let keys = |fault: &str| format!("on_error: {policy}, fault: {{ {fault} }}");
            let mut graph = wired(&format!(
                "  a: {{ kind: inlet, config: {{ spec: u64 }}, {} }}\n  z: {{ kind: outlet, from: a, {} }}\n",
                keys(a),
                keys(z)
            ));
            let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
            let running = graph.start().unwrap();
            let taker = thread::spawn(move || rest(&mut outlet).0.len() as u64);
            let accepted = (0..100).take_while(|n| send(&mut inlet, *n).is_ok()).count() as u64;
            drop(inlet);
            let report = running.wait();
            check(&report);
            let (a, z) = (handle(&report, "a"), handle(&report, "z"));
            let taken = taker.join().unwrap();
            assert_eq!((a.sent, z.received + z.left), (accepted, taken), "{policy}: {:?}", report.handles);
        }
    }
}

/// Promise (handles): limen rejects wrong handle names, wrong payload types and a second handle of
/// one port.
#[test]
fn wrong_names_payloads_and_duplicate_handles_are_refused() {
    #[derive(Clone, Debug)]
    struct Pose;
    impl Plain for Pose {}
    let said = |error: RunError| {
        assert!(matches!(error, RunError::NoSuch(_)), "{error:?}");
        error.to_string()
    };
    let mut graph = wired(ECHO);
    assert_eq!(said(graph.inlet::<Tensor>("c").unwrap_err()), "unknown node `c`: write one of `a`, `b`, `z`");
    assert_eq!(said(graph.inlet::<Tensor>("b").unwrap_err()), "unknown inlet `b`");
    assert_eq!(said(graph.inlet::<Tensor>("z").unwrap_err()), "`z`: expected an inlet, found an outlet");
    assert_eq!(said(graph.outlet::<Tensor>("a").unwrap_err()), "`a`: expected an outlet, found an inlet");
    assert_eq!(said(graph.inlet::<Pose>("a").unwrap_err()), "`a`: expected Pose, found Tensor");
    assert_eq!(said(graph.outlet::<Pose>("z").unwrap_err()), "`z`: expected Pose, found Tensor");
    assert_eq!(said(graph.tap::<Pose>("b").unwrap_err()), "`b/out`: expected Pose, found Tensor");
    assert_eq!(said(graph.tap::<Tensor>("b/in").unwrap_err()), "unknown output `b/in`: write one of `b/out`");
    assert_eq!(said(graph.tap::<Tensor>("z").unwrap_err()), "unknown output `z`: `z` has no outputs");
    assert!(matches!(graph.tap_holding::<Tensor>("b", 0), Err(RunError::Refused(_))));
    assert!(matches!(graph.tap_holding::<Tensor>("b", 1 << 40), Err(RunError::Refused(_))));
    let _taken = graph.inlet::<Tensor>("a").unwrap();
    assert_eq!(said(graph.inlet::<Tensor>("a").unwrap_err()), "inlet `a` is already taken");
}

/// Promise (handles): A graph starts only if the program has taken all its handles.
#[test]
fn a_graph_with_untaken_handles_does_not_start() {
    let said = "no program is connected to the inlets and outlets `a`, `z`";
    let refused = |error: RunError| {
        assert!(matches!(error, RunError::Refused(_)) && error.to_string().starts_with(said), "{error}");
    };
    refused(wired(ECHO).start().unwrap_err());
    refused(wired(ECHO).simulate(1).unwrap_err());
    refused(wired(ECHO).drive(Clock::Monotonic).unwrap_err());
    let mut graph = wired(ECHO);
    let _inlet = graph.inlet::<Tensor>("a").unwrap();
    let said = "no program is connected to the inlets and outlets `z`";
    assert!(graph.start().unwrap_err().to_string().starts_with(said));
}

/// Promise (handles): An inlet accepts only buffers that it loaned and that have no other handle.
#[test]
fn an_inlet_accepts_only_its_own_unshared_loans() {
    let (graph, mut inlet, _outlet) = echo();
    let mut second = wired(ECHO);
    let mut other = second.inlet::<Tensor>("a").unwrap();
    let foreign = other.loan(&other.header()).unwrap();
    let Err(SendError::Foreign(message)) = inlet.try_send(foreign) else { panic!("a foreign buffer was taken") };
    drop(message);
    let tensor = inlet.loan(&inlet.header()).unwrap().freeze();
    let kept = tensor.share();
    let Err(SendError::Foreign(message)) = inlet.try_send(tensor) else { panic!("a shared buffer was taken") };
    drop(kept);
    inlet.try_send(message).unwrap();
    // The declared loans, and some that a run holds.
    let mut loans = Vec::new();
    while let Ok(loan) = inlet.loan(&inlet.header()) {
        loans.push(loan);
        assert!(loans.len() < 1_000, "the pool is not bounded");
    }
    assert!(loans.len() >= 2);
    drop(graph);
}

/// Promise (handles): The clock of the graph sets the time of a message, unless the program sets
/// it.
#[test]
fn headers_are_stamped_by_the_graph_or_by_the_program() {
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    let mut sent = |header: limen::message::Header| {
        let mut tensor = inlet.loan(&header).unwrap();
        tensor.as_mut_slice::<u64>().unwrap()[0] = 0;
        inlet.send(tensor).unwrap();
        *outlet.recv_timeout(LONG).unwrap().header()
    };
    let now = Clock::Monotonic.now();
    let (mut given, stamped) = (limen::message::Header::new(77, Time(5)), limen::message::Header::new(0, Time::ZERO));
    (given.deadline, given.qos, given.trace) = (Time(9), limen::policy::Qos::Urgent, 42);
    let got = sent(given);
    assert_eq!(
        (got.seq, got.origin, got.deadline, got.qos, got.trace),
        (0, Time(5), Time(9), limen::policy::Qos::Urgent, 42)
    );
    let got = sent(stamped);
    assert!(got.seq == 1 && got.origin >= now && got.deadline == Time::NEVER, "{got:?}");
    drop(inlet);
    check(&running.wait());
}

/// Promise (handles): An inlet maps times of a device clock to the clock of the run.
#[test]
fn device_times_are_mapped_and_times_of_the_graph_are_not() {
    let mut graph = wired(&ECHO.replace("kind: inlet,", "kind: inlet, clock: { offset: +1s },"));
    let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
    let running = graph.start().unwrap();
    let own = inlet.header();
    for (header, origin) in [(own, own.origin), (inlet.header_at(Time(5)), Time(1_000_000_005))] {
        let tensor = inlet.loan(&header).unwrap();
        inlet.send(tensor).unwrap();
        assert_eq!(outlet.recv_timeout(LONG).unwrap().header().origin, origin);
    }
    drop(inlet);
    check(&running.wait());
}

/// Promise (handles): A tap receives copies, and the graph behaves as it does without the tap.
#[test]
fn a_tap_sees_every_message_and_changes_nothing() {
    let graph = "  a: { kind: numbers, config: { count: 20000 } }\n  b: { kind: add, config: { n: 1 }, from: a }\n  \
                 c: { kind: add, config: { n: 1 }, from: b }\n  z: { kind: collect, from: c }\n";
    for spread in [false, true] {
        let graph = if spread { graph.replace("add, config", "add, core: 1, config") } else { graph.into() };
        let mut graph = wired(&graph);
        let mut tap = graph.tap::<Tensor>("b").unwrap();
        let mut kept = graph.tap_holding::<Tensor>("a/out", 8).unwrap();
        let dropped = graph.tap::<Tensor>("c").unwrap();
        let running = graph.start().unwrap();
        drop(dropped);
        let mut seen = 0;
        let mut all = Vec::new();
        while let Ok(message) = tap.recv_timeout(LONG) {
            // Not the value that `c` writes later.
            assert_eq!(number(&message), message.header().seq + 1);
            seen += 1;
            // Some are kept, so the tap runs out of buffers; the graph is not affected.
            if seen % 3 == 0 {
                all.extend(kept.try_recv());
            }
        }
        let report = running.wait();
        check(&report);
        let (z, figure) = (report.node("z").unwrap(), |name| report.metric(name).unwrap());
        assert_eq!((z.done, figure("sum_in"), figure("lost")), (20_000, (2 + 20_001) as f64 * 10_000.0, 0.0));
        assert!(seen > 0 && all.iter().all(|message| number(message) == message.header().seq));
        for (name, received) in [("b/out", seen), ("a/out", all.len() as u64)] {
            let tap = handle(&report, name);
            assert_eq!((tap.kind, tap.sent, tap.received), (HandleKind::Tap, 20_000, received), "{name}");
        }
        assert!(report.nodes.iter().all(|node| node.pool_empty == 0));
        assert_eq!(tap.try_recv().unwrap_err(), RecvError::Ended);
    }
}

/// Promise (handles): A tap works on an unconnected output.
#[test]
fn a_tap_works_on_an_unconnected_output() {
    let mut graph = wired("  a: { kind: numbers, config: { count: 3 } }\n  b: { kind: step, from: a }\n");
    let mut tap = graph.tap_holding::<Tensor>("b", 3).unwrap();
    let report = graph.start().unwrap().wait();
    check(&report);
    assert_eq!(handle(&report, "b/out").left, 3);
    for n in 0..3 {
        assert_eq!(number(&tap.try_recv().unwrap()), n);
    }
    assert_eq!(tap.recv().unwrap_err(), RecvError::Ended);
}

#[derive(Clone, Debug, PartialEq)]
struct Pose {
    x: f32,
    heading: f32,
}

impl Plain for Pose {}

#[test]
fn a_custom_payload_is_passed_by_value() {
    let registry = Registry::new().inlet::<Pose>("poses").outlet::<Pose>("seen");
    let graph = "version: 1\nnodes: { a: { kind: poses }, z: { kind: seen, from: a } }";
    let spec = |text: &str| Spec::from_text(text, "test.yaml").unwrap();
    let mut graph = Plan::new(spec(graph), &registry).unwrap().wire().unwrap();
    let (mut inlet, mut outlet) = (graph.inlet::<Pose>("a").unwrap(), graph.outlet::<Pose>("z").unwrap());
    let mut tap = graph.tap::<Pose>("a").unwrap();
    let running = graph.start().unwrap();
    let pose = Pose { x: 1.0, heading: 0.5 };
    inlet.send(Message::new(inlet.header(), pose.clone())).unwrap();
    assert_eq!(outlet.recv_timeout(LONG).unwrap().body, pose);
    assert_eq!(tap.recv_timeout(LONG).unwrap().body, pose);
    drop(inlet);
    check(&running.wait());
    // Plain values have no spec.
    let wrong = "version: 1\nnodes: { a: { kind: poses, config: { spec: u64 } }, z: { kind: seen, from: a } }";
    let problems = Plan::new(spec(wrong), &registry).unwrap_err();
    assert!(problems.to_string().contains("remove `spec`"), "{problems}");
}

#[test]
fn an_inlet_can_replace_a_source() {
    let mut graph = wired(
        "  a: { kind: numbers }\n  b: { kind: add, config: { n: 10 }, from: a }\n  z: { kind: collect, from: b }\n",
    );
    let mut inlet = graph.replace_with_inlet::<Tensor>("a").unwrap();
    let mut tap = graph.tap::<Tensor>("a").unwrap();
    assert!(matches!(graph.replace_with_inlet::<Tensor>("b"), Err(RunError::NoSuch(_))));
    assert!(matches!(graph.replace_with_inlet::<Tensor>("a"), Err(RunError::NoSuch(_))));
    let running = graph.start().unwrap();
    for n in [1, 2, 3] {
        send(&mut inlet, n).unwrap();
    }
    inlet.close();
    let report = running.wait();
    check(&report);
    assert_eq!((report.metric("sum_in"), number(&tap.try_recv().unwrap())), (Some(36.0), 1));
}

/// Promise (handles): With `Options::frames`, an inlet ends after that many messages.
#[test]
fn an_inlet_ends_after_its_frames() {
    let options = limen::Options { frames: Some(10), ..limen::Options::default() };
    let spec = Spec::from_text(&format!("version: 1\nnodes:\n{ECHO}"), "test.yaml").unwrap();
    let plan = Plan::with_options(spec, &limen_tests::registry(), &options).unwrap();
    let mut graph = plan.wire().unwrap();
    let (mut inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
    let running = graph.start().unwrap();
    let taker = thread::spawn(move || rest(&mut outlet));
    let mut accepted = 0;
    while send(&mut inlet, accepted).is_ok() {
        accepted += 1;
    }
    assert_eq!(taker.join().unwrap(), ((0..10).collect(), RecvError::Ended));
    let report = running.wait();
    check(&report);
    let a = handle(&report, "a");
    assert_eq!((a.sent, a.received, a.left), (accepted, 10, accepted - 10));
}

/// Promise (handles): A handle can move between threads.
#[test]
fn a_handle_can_move_between_threads() {
    let (graph, mut inlet, mut outlet) = echo();
    let running = graph.start().unwrap();
    // Each step waits on a new thread for a message that is sent only while it waits.
    for n in 0..50 {
        let waiting = thread::spawn(move || {
            let message = outlet.recv_timeout(LONG).unwrap();
            (number(&message), outlet)
        });
        let sending = thread::spawn(move || {
            send(&mut inlet, n).unwrap();
            inlet
        });
        let (got, back) = waiting.join().unwrap();
        assert_eq!(got, n);
        (outlet, inlet) = (back, sending.join().unwrap());
    }
    assert_eq!(outlet.recv_timeout(Duration::from_millis(1)).unwrap_err(), RecvError::Empty);
    drop(inlet);
    check(&running.wait());
}

/// Promise (handles): A setting takes effect between two turns.
#[test]
fn settings_are_applied_between_turns() {
    let mut graph = wired(&ECHO.replace("kind: step", "kind: gate"));
    let (mut inlet, mut outlet) = (graph.inlet("a").unwrap(), graph.outlet("z").unwrap());
    let running = graph.start().unwrap();
    send(&mut inlet, 0).unwrap();
    assert_eq!(number(&outlet.recv_timeout(LONG).unwrap()), 0);
    running.set("b", "open", 0.0).unwrap();
    // From some message on none passes: more are missing than can be in flight.
    let begin = Instant::now();
    let missing = |running: &limen::Running| {
        let stats = running.stats();
        stats[1].done.saturating_sub(stats[2].done)
    };
    while missing(&running) < 1_000 {
        send(&mut inlet, 1).unwrap();
        let _ = outlet.try_recv();
        assert!(begin.elapsed() < LONG, "{:?}", running.stats());
    }
    // Then all pass again, beginning with a number that was not sent before.
    running.set("b", "open", 1.0).unwrap();
    while !outlet.try_recv().is_ok_and(|message| number(&message) == 2) {
        send(&mut inlet, 2).unwrap();
        assert!(begin.elapsed() < LONG, "{:?}", running.stats());
    }
    for (node, name, value, said) in [
        ("c", "open", 0.0, "unknown node `c`: write one of `a`, `b`, `z`"),
        ("b", "opne", 0.0, "unknown setting `opne` of `b`: did you mean `open`?"),
        ("a", "open", 0.0, "unknown setting `open` of `a`: remove `open`"),
        ("b", "open", 2.0, "`open` of `b` must be 0 to 1, got 2"),
        ("b", "open", f64::NAN, "`open` of `b` must be 0 to 1, got NaN"),
    ] {
        assert_eq!(running.set(node, name, value).unwrap_err().to_string(), said);
    }
    drop((inlet, outlet));
    let report = running.wait();
    check(&report);
    assert!(report.metric("b.stopped").unwrap() >= 500.0);
}

/// Promise (handles): No order of turns loses a message or deadlocks.
#[test]
fn no_order_of_turns_loses_messages_or_deadlocks() {
    for seed in 0..300 {
        let mut graph = wired(
            "  a: { kind: inlet, config: { spec: u64, capacity: 3 } }\n  b: { kind: step, from: { from: a, capacity: 2 } }\n  \
             c: { kind: step, core: 1, from: { from: b, capacity: 2 } }\n  \
             z: { kind: outlet, config: { hold: 2 }, from: { from: c, capacity: 2 } }\n",
        );
        let (inlet, mut outlet) = (graph.inlet::<Tensor>("a").unwrap(), graph.outlet::<Tensor>("z").unwrap());
        let mut simulation = graph.simulate(seed).unwrap();
        let (mut sent, mut got, mut idle, mut steps) = (0, 0, 0, 0);
        let mut inlet = Some(inlet);
        loop {
            let step = simulation.step();
            steps += 1;
            assert!(steps < 100_000, "seed {seed}: {step:?} after {sent} in and {got} out\n{simulation:#?}");
            if let Some(open) = &mut inlet {
                match try_send(open, sent) {
                    Ok(()) => sent += 1,
                    Err(SendError::Full(_)) => {}
                    Err(other) => panic!("seed {seed}: {other}"),
                }
                if sent == 30 {
                    inlet = None;
                }
            }
            // The program receives when the graph cannot continue, and now and then.
            let idles = matches!(step, limen::sim::Step::Stuck | limen::sim::Step::Ended);
            if idles || (seed + got) % 3 == 0 {
                match outlet.try_recv() {
                    Ok(message) => {
                        assert_eq!(number(&message), got, "seed {seed}");
                        got += 1;
                    }
                    Err(RecvError::Ended) => break,
                    Err(RecvError::Empty) => {}
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            }
            idle = if idles { idle + 1 } else { 0 };
            assert!(idle < 100, "seed {seed}: stuck after {sent} in and {got} out");
        }
        while simulation.step() != limen::sim::Step::Ended {}
        let report = simulation.finish();
        check(&report);
        assert_eq!((sent, got), (30, 30), "seed {seed}");
    }
}

/// Promise (handles): A program can drive a graph on its own thread.
#[test]
fn a_graph_can_be_driven_on_the_callers_thread() {
    let (graph, mut inlet, mut outlet) = echo();
    let mut graph = graph.drive(Clock::Monotonic).unwrap();
    assert_eq!(graph.turn(), Turned::Idle(Time::NEVER));
    // Blocking on the thread that drives the graph is an error, not a hang.
    assert_eq!(outlet.recv().unwrap_err(), RecvError::OwnTurn);
    let mut sent = 0;
    while try_send(&mut inlet, sent).is_ok() {
        sent += 1;
    }
    let tensor = inlet.loan(&inlet.header()).unwrap();
    assert!(matches!(inlet.send(tensor), Err(SendError::OwnTurn(_))));
    let mut got = Vec::new();
    while graph.turn() == Turned::Worked {
        got.extend(std::iter::from_fn(|| outlet.try_recv().ok()).map(|message| number(&message)));
    }
    assert_eq!(got, (0..sent).collect::<Vec<_>>());
    assert_eq!(graph.stats().iter().map(|node| node.done).collect::<Vec<_>>(), [sent; 3]);
    // A stop from another thread, while this one sleeps.
    let program = thread::spawn(move || send(&mut inlet, sent).unwrap());
    while outlet.try_recv().is_err() {
        assert!(graph.wait(LONG) != Turned::Ended || outlet.try_recv().is_ok());
        if graph.stats()[2].done > sent {
            break;
        }
    }
    program.join().unwrap();
    let report = graph.run();
    check(&report);
    assert_eq!((report.exit_code(), report.node("z").unwrap().done), (0, sent + 1));
}

/// Promise (handles): A driven graph can use a simulated clock.
#[test]
fn a_driven_graph_can_use_a_simulated_clock() {
    let clock = SimulatedClock::new(Time(1_000_000));
    let graph = "  a: { kind: numbers, config: { count: 5, period_ns: 1000 } }\n  z: { kind: collect, from: a }\n";
    let mut driven = wired(graph).drive(Clock::Simulated(clock.clone())).unwrap();
    for n in 1..=5 {
        while driven.turn() == Turned::Worked {}
        assert_eq!(driven.stats()[1].done, n);
        // Nothing happens until the clock advances.
        if n < 5 {
            assert_eq!(driven.turn(), Turned::Idle(Time(1_000_000 + n * 1000)));
            assert_eq!(driven.stats()[1].done, n);
        }
        clock.advance(1000);
    }
    while driven.turn() != Turned::Ended {}
    let report = driven.finish();
    check(&report);
    assert_eq!((report.wall, report.outcome.name()), (Duration::from_nanos(5000), "finished"));
    // `run` advances the clock to the next time that a node waits for.
    let clock = SimulatedClock::new(Time(1));
    let report = wired(graph).drive(Clock::Simulated(clock.clone())).unwrap().run();
    check(&report);
    assert_eq!((report.metric("count"), clock.now()), (Some(5.0), Time(4001)));
}

/// Promise (handles): A simulated clock advances while messages go round a loop.
#[test]
fn a_simulated_clock_goes_on_while_messages_go_round_a_loop() {
    let graph = "  s: { kind: numbers, config: { count: 5, period_ns: 1000000 } }\n  \
                 m: { kind: merge, inputs: { a: s, b: { from: p, when_full: latest } } }\n  \
                 p: { kind: pass, from: m }\n  k: { kind: collect, from: p }\n";
    for end in [Time(10_000_000), Time::NEVER] {
        let driven = wired(graph).drive(Clock::Simulated(SimulatedClock::new(Time(1)))).unwrap();
        let (stopper, mut calls) = (driven.stopper(), 0);
        let report = driven.run_until(end, || {
            calls += 1;
            // As a signal does.
            if end == Time::NEVER && calls == 3 {
                stopper.stop();
            }
        });
        check(&report);
        // What goes round is left there at the end of `run.stop`.
        assert_eq!((report.outcome.name(), report.exit_code()), ("stopped", 0));
        assert!(report.edges.iter().any(|edge| edge.left > 0));
        assert!(report.wall < Duration::from_secs(20), "{:?}", report.wall);
    }
}

/// Promise (loops): An embedding program can stop a graph whose loop loses nothing.
#[test]
fn a_loop_that_loses_nothing_can_be_stopped() {
    let graph = "  s: { kind: numbers, config: { count: 5 } }\n  \
                 m: { kind: merge, inputs: { a: s, b: { from: p, when_full: latest } } }\n  \
                 p: { kind: pass, from: m }\n  k: { kind: collect, from: p }\n";
    let mut running = wired(graph).start().unwrap();
    while running.stats()[0].done < 5 {
        running.wait_for(Duration::from_millis(1));
    }
    let report = running.stop(Drain::within(LONG));
    check(&report);
    assert_eq!((report.outcome.name(), report.exit_code()), ("stopped", 0));
    assert!(report.edges.iter().any(|edge| edge.left > 0));
}

/// Promise (handles): A program can stop or end a driven graph at any time.
#[test]
fn a_driven_graph_can_be_stopped_or_ended_at_any_time() {
    let graph = "  a: { kind: numbers }\n  b: { kind: step, core: 1, from: a }\n  z: { kind: collect, from: b }\n";
    let mut driven = wired(graph).drive(Clock::Monotonic).unwrap();
    (0..20).for_each(|_| _ = driven.turn());
    let report = driven.stop(Drain::within(LONG));
    check(&report);
    assert_eq!((report.outcome.name(), report.metric("left")), ("stopped", Some(0.0)));
    let mut driven = wired(graph).drive(Clock::Monotonic).unwrap();
    driven.turn();
    let report = driven.finish();
    check(&report);
    assert_eq!(report.outcome.name(), "deadline passed");
    // After a drop its handles return an error.
    let (graph, mut inlet, mut outlet) = echo();
    drop(graph.drive(Clock::Monotonic).unwrap());
    assert_eq!(outlet.recv().unwrap_err(), RecvError::Failed);
    assert!(matches!(send(&mut inlet, 0), Err(SendError::Closed(_))));
}

/// Promise (handles): limen rejects contradictory settings of inlets and outlets.
#[test]
fn contradictory_inlets_and_outlets_are_refused() {
    let refused = |graph: &str, code: &str, words: &str| {
        let problems = plan(&format!("version: 1\nnodes:\n{graph}")).unwrap_err().to_string();
        assert!(problems.contains(code) && problems.contains(words), "{problems}");
    };
    let with = |config: &str| format!("  a: {{ kind: inlet{config} }}\n  z: {{ kind: outlet, from: a }}\n");
    refused(&with(""), "E0130", "spec: \"u8[480,640,3]\"");
    refused(&with(", config: { spec: u9 }"), "E0130", "u9");
    refused(&with(", config: { spec: u64, capacity: 0 }"), "E0130", "capacity");
    refused(&with(", config: { spec: u64, hold: 0 }"), "E0130", "hold");
    refused(&with(", config: { spec: \"u64[99999999999,99999999999]\" }"), "E0135", "cannot allocate");
    refused(&with(", config: { spec: u64 }, on_error: restart"), "E0160", "cannot restart");
    let outlet = |config: &str| {
        format!(
            "  a: {{ kind: inlet, config: {{ spec: u64 }} }}\n  z: {{ kind: outlet, config: {{ {config} }}, from: a }}\n"
        )
    };
    refused(&outlet("hold: 0"), "E0130", "hold");
    refused(&outlet("spec: f32"), "E0128", "u64");
    refused(&outlet("spec: \"u64[\""), "E0130", "`]`");
}
