//! Random graphs on real threads: every message is accounted for. P1, P2, M5.

use limen::{Plan, Spec};
use limen_tests::fuzz::attack;
use limen_tests::random;
use std::time::Duration;

/// \[M5\]
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
        let report =
            if has_ended { running.wait() } else { running.stop(limen::Drain::within(Duration::from_secs(5))) };
        let mut wrong = if has_ended { random::wrong(&drawn, &report) } else { report.bugs.clone() };
        if report.nodes.iter().any(|node| node.abandoned) {
            wrong.push("a node was abandoned".into());
        }
        if wrong.is_empty() { Ok(has_ended) } else { Err(format!("{}\n{}", wrong.join("; "), drawn.yaml)) }
    });
}
