//! A graph driven by the program's own loop: no threads are started, and everything happens in
//! `turn`.
//!
//! First with the machine's clock, between the steps of a control loop; then with a clock of the
//! program, as in a simulator.

use limen::{Clock, Plan, SimulatedClock, Spec, Tensor, Time, Turned};

const LOOP: &str = "
version: 1
nodes:
  speeds: { kind: inlet, config: { spec: \"f32[4]\" } }
  fast: { kind: threshold, config: { at: 2.0 }, from: speeds }
  alarms: { kind: outlet, from: { from: fast, when_full: latest } }
";

const TICKS: &str = "
version: 1
nodes:
  tick: { kind: timer, config: { rate: 100Hz } }
  end: { kind: \"null\", from: tick }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = limen_run::registry();
    let mut graph = Plan::new(Spec::from_text(LOOP, "loop.yaml")?, &registry)?.wire()?;
    let mut speeds = graph.inlet::<Tensor>("speeds")?;
    let mut alarms = graph.outlet::<Tensor>("alarms")?;
    let mut graph = graph.drive(Clock::Monotonic)?;
    let mut heard = 0;
    for step in 0..100u16 {
        let mut speed = speeds.loan(&speeds.header())?;
        speed.as_mut_slice::<f32>()?.fill(f32::from(step) / 25.0);
        speeds.try_send(speed)?;
        // Each turn is a bounded amount of work; the loop decides how many to take.
        while graph.turn() == Turned::Worked {}
        let alarm = alarms.try_recv()?;
        heard += usize::from(alarm.body.as_slice::<u8>()? == [1; 4]);
    }
    assert_eq!(heard, 50);
    speeds.close();
    let report = graph.run();
    assert!(report.bugs.is_empty());

    let clock = SimulatedClock::new(Time(1_000_000_000));
    let graph = Plan::new(Spec::from_text(TICKS, "ticks.yaml")?, &registry)?.wire()?;
    let mut graph = graph.drive(Clock::Simulated(clock.clone()))?;
    for _ in 0..1_000 {
        while graph.turn() == Turned::Worked {}
        clock.advance(1_000_000);
    }
    graph.stopper().stop();
    let report = graph.run();
    println!("{} ticks in {:?} of simulated time", report.nodes[1].done, report.wall);
    assert_eq!((report.nodes[1].done, report.wall.as_secs()), (100, 1));
    Ok(())
}
