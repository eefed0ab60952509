//! Random graphs on real threads: every message is accounted for. P1, P2, M5.

use limen::{Clock, Drain, Plan, Report, SimulatedClock, Spec, Time};
use limen_tests::fuzz::{attack, pick};
use limen_tests::random;
use std::time::Duration;

/// Attack (runs): random graphs on real threads, stopped after 300 ms; expected: every message is
/// accounted for
#[test]
fn random_graphs_on_threads_account_for_every_message() {
    attack("runs", 150, |seed| {
        let mut drawn = random::draw(seed, false);
        let plan =
            |yaml: &str| Spec::from_text(yaml, "drawn.yaml").and_then(|spec| Plan::new(spec, &limen_tests::registry()));
        let mut found = plan(&drawn.yaml);
        if found.is_err() {
            drawn = random::draw(seed, true);
            found = plan(&drawn.yaml);
        }
        let plan = found.map_err(|problems| format!("{problems}\n{}", drawn.yaml))?;
        let mut running =
            plan.wire().and_then(limen::Wired::start).map_err(|error| format!("{error}\n{}", drawn.yaml))?;
        // Most have ended by then; the others are stopped while running.
        let has_ended = running.wait_for(Duration::from_millis(300));
        let report = if has_ended { running.wait() } else { running.stop(Drain::within(limen_tests::PATIENCE)) };
        let mut wrong = if has_ended { random::wrong(&drawn, &report) } else { report.bugs.clone() };
        if report.nodes.iter().any(|node| node.abandoned) {
            wrong.push("a node was abandoned".into());
        }
        if wrong.is_empty() { Ok(has_ended) } else { Err(format!("{}\n{}", wrong.join("; "), drawn.yaml)) }
    });
}

/// Draws a graph with a feedback loop through random edges, at most one of which may lose messages.
/// Half of the loops empty themselves.
fn draw_loop(seed: u64) -> (String, bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (count, length, empties) = (rng.u64(1..100), rng.usize(1..4), rng.bool());
    let back =
        ["latest", "drop_newest, capacity: 64", "drop_oldest, capacity: 70", "latest, max_age: 50us"][rng.usize(..4)];
    let kinds = ["kind: decimate, config: { keep_every: 2 }", "kind: pass", "kind: delay, config: { by: 20us }"];
    let within = if empties { kinds[0] } else { kinds[rng.usize(1..3)] };
    let policy = pick(&mut rng, &["", ", join: { policy: priority }"]);
    let period = rng.u64(0..3) * 10_000;
    let mut core = || rng.u8(..2);
    let mut yaml = format!(
        "version: 1\nrun: {{ stop: 20ms }}\nnodes:\n  s: {{ kind: numbers, config: {{ count: {count}, period_ns: {period} }}, core: {} }}\n  \
         m: {{ kind: merge, inputs: {{ a: s, b: {{ from: p{}, when_full: {back} }} }}, core: {}{policy} }}\n",
        core(),
        length - 1,
        core()
    );
    for at in 0..length {
        let from = if at == 0 { "m".to_string() } else { format!("p{}", at - 1) };
        let kind = if at == 0 { within } else { "kind: pass" };
        yaml += &format!("  p{at}: {{ {kind}, from: {from}, core: {} }}\n", core());
    }
    (yaml + &format!("  k: {{ kind: collect, from: p{} }}\n", length - 1), empties)
}

/// Promise (loops): A run with a loop that does not empty itself ends on request with exit code 0.
#[test]
fn runs_with_feedback_loops_end() {
    attack("loops", 20, |seed| {
        let (yaml, empties) = draw_loop(seed);
        let wired = || {
            let plan = Spec::from_text(&yaml, "drawn.yaml").and_then(|spec| Plan::new(spec, &limen_tests::registry()));
            plan.map_err(|problems| problems.to_string())?.wire().map_err(|error| error.to_string())
        };
        let judge = |report: &Report| match (report.exit_code(), report.bugs.is_empty()) {
            (0, true) => Ok(()),
            (code, _) => Err(format!("exit code {code}: {}\n{yaml}", report.bugs.join("; "))),
        };
        let clock = Clock::Simulated(SimulatedClock::new(Time(1)));
        let driven = wired()?.drive(clock).map_err(|error| error.to_string())?;
        judge(&driven.run_until(Time(2_000_000), || {}))?;
        if empties {
            let report = wired()?.start().map_err(|error| error.to_string())?.wait();
            judge(&report)?;
            return if report.outcome.name() == "finished" {
                Ok(true)
            } else {
                Err(format!("{:?}\n{yaml}", report.outcome))
            };
        }
        let mut running = wired()?.start().map_err(|error| error.to_string())?;
        let has_ended = running.wait_for(Duration::from_millis(5));
        judge(&if has_ended { running.wait() } else { running.stop(Drain::within(limen_tests::PATIENCE)) })?;
        Ok(true)
    });
}
