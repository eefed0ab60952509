//! Fail-safe output: a stale sensor or a dead model leads to the declared safe command within the
//! declared time, and critical nodes and paths decide the result of the run.

use limen::message::{DType, Header, PortSpec};
use limen::node::{
    Building, Connected, Emit, InPort, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Sink, Source,
    Transform,
};
use limen::report::Outcome;
use limen::{Clock, Drain, Event, EventKind, Message, Plan, Registry, Report, Spec, Tensor, Time};
use limen_tests::{PATIENCE, figure, finished, plan, turn};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const US: u64 = 1_000;
/// The number of a safe command; sensors count from 1.
const SAFE: u64 = 0;

/// Sends numbers at random times: in a rhythm, with pauses, and some with an early origin.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct SensorConfig {
    seed: u64,
    count: u64,
    /// Longest pause between two messages, and greatest age of a message when it is sent, in µs.
    pause_us: u64,
    age_us: u64,
}

struct Sensor {
    config: SensorConfig,
    rng: fastrand::Rng,
    due: Time,
}

impl Node for Sensor {
    type Config = SensorConfig;
    fn ports(_: &SensorConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output("out", PortSpec::fixed(DType::U64, [])))
    }
    fn build(config: SensorConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Sensor { rng: fastrand::Rng::with_seed(config.seed), config, due: cx.now() })
    }
}

impl Source for Sensor {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let now = out.now();
        if now < self.due {
            return Ok(Next::At(self.due));
        }
        let age = if self.rng.u8(..4) == 0 { self.rng.u64(..=self.config.age_us) * US } else { 0 };
        let header = out.header(Time(now.0 - age));
        if header.seq == self.config.count {
            return Ok(Next::Done);
        }
        let mut number = out.loan(&header)?;
        number.as_mut_slice::<u64>()?[0] = header.seq + 1;
        out.send(number);
        let pause = if self.rng.u8(..8) == 0 { self.rng.u64(..=self.config.pause_us) } else { 1_000 };
        self.due = now + pause * US;
        Ok(Next::At(self.due))
    }
}

/// A model whose calls are in flight: it answers in order, each after a random time, and now and
/// then hangs for a long one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct SlowConfig {
    seed: u64,
    hang_us: u64,
}

struct Slow {
    config: SlowConfig,
    rng: fastrand::Rng,
    held: VecDeque<(Time, Message<Tensor>)>,
}

impl Node for Slow {
    type Config = SlowConfig;
    fn ports(_: &SlowConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.single().cloned();
        let input = InPort { name: "in".into(), spec: spec.clone(), holds: 8 };
        Ok(Ports::new().in_port(input).output_forwarding("out", spec, "in").selective())
    }
    fn build(config: SlowConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Slow { rng: fastrand::Rng::with_seed(config.seed), config, held: VecDeque::new() })
    }
}

impl Slow {
    fn due(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |(due, _)| *due)
    }
}

impl Transform for Slow {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.held.len() < 8 {
            let takes = if self.rng.u8(..16) == 0 { self.rng.u64(..=self.config.hang_us) } else { self.rng.u64(..400) };
            self.held.push_back((out.clock() + takes * US, input));
        }
        let due = self.due();
        out.wake_at(due);
        Ok(())
    }
    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.held.pop_front().into_iter().for_each(|(_, message)| out.send(message));
        let due = self.due();
        out.wake_at(due);
        Ok(())
    }
}

/// A command as it reached the actuator.
#[derive(Debug, Clone, Copy)]
struct Command {
    at: u64,
    origin: u64,
    number: u64,
    source: u16,
}

/// Reports each command to the test that owns the key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct ActuatorConfig {
    key: u64,
}

struct Actuator {
    to: Sender<Command>,
    clock: Clock,
    taken: u64,
}

/// The channel of each actuator, by its key.
static ACTUATORS: Mutex<Vec<(u64, Sender<Command>)>> = Mutex::new(Vec::new());

/// Returns the commands of the actuator with this key.
fn commands(key: u64) -> Receiver<Command> {
    let (to, from) = channel();
    ACTUATORS.lock().unwrap().push((key, to));
    from
}

impl Node for Actuator {
    type Config = ActuatorConfig;
    fn ports(_: &ActuatorConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", PortSpec::fixed(DType::U64, [])))
    }
    fn build(config: ActuatorConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let mut keys = ACTUATORS.lock().unwrap();
        let at = keys.iter().position(|(key, _)| *key == config.key).expect("the test asked for the commands");
        Ok(Actuator { to: keys.swap_remove(at).1, clock: cx.clock(), taken: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("taken", self.taken as f64);
    }
}

impl Sink for Actuator {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let (header, number) = (*input.header(), input.body.as_slice::<u64>()?[0]);
        let (at, origin) = (self.clock.now().0, header.origin.0);
        self.taken += 1;
        self.to.send(Command { at, origin, number, source: header.source }).map_err(NodeError::other)
    }
}

fn registry() -> Registry {
    limen_tests::registry().source::<Sensor>("sensor").transform::<Slow>("slow").sink::<Actuator>("actuator")
}

fn planned(graph: &str) -> Plan {
    let spec = Spec::from_text(graph, "test.yaml").unwrap_or_else(|problems| panic!("{problems}\n{graph}"));
    Plan::new(spec, &registry()).unwrap_or_else(|problems| panic!("{problems}\n{graph}"))
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// A random graph from a sensor over models that fail to a `hold` and an actuator.
struct Drawn {
    yaml: String,
    after: u64,
    every: u64,
    /// How long calls keep the only thread of the simulation, in which nothing else can act.
    blocks: u64,
}

/// Draws a graph whose actuator has this key. Times are multiples of 1 ms, as the sensor's period.
fn draw(seed: u64, key: u64) -> Drawn {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rng = &mut rng;
    let (after, every) = (rng.u64(4..12) * 1_000 * US, rng.u64(2..9) * 1_000 * US);
    let (mut yaml, mut blocks) = (String::from("version: 1\nnodes:\n"), 0);
    let on_error = |rng: &mut fastrand::Rng| {
        pick(rng, &["stop", "skip", "skip", "detach", "{ restart: { max: 4, backoff: 7ms } }"])
    };
    let mut fault = |rng: &mut fastrand::Rng, takes: bool| {
        let n = rng.u64(2..60);
        let text = match rng.u8(..8) {
            0 => format!("panic_at: {n}"),
            1 => format!("error_every: {n}"),
            2 => format!("error_at: {n}"),
            3 => {
                blocks += 50 * US;
                "delay: 1us, delay_to: 50us".into()
            }
            4 if takes => "drop: 0.7".into(),
            _ => return String::new(),
        };
        format!(", fault: {{ {text}, seed: {n} }}")
    };
    let core = |rng: &mut fastrand::Rng| pick(rng, &["", ", core: 0", ", core: 1"]);
    let count = rng.u64(20..150);
    let (pause, age) = (rng.u64(..60_000), rng.u64(..20_000));
    for sensor in ["imu", "camera"] {
        let seed = rng.u64(..);
        let (on_error, fault) = (on_error(rng), fault(rng, false));
        yaml += &format!(
            "  {sensor}: {{ kind: sensor, config: {{ seed: {seed}, count: {count}, pause_us: {pause}, age_us: {age} }}, \
             on_error: {on_error}{fault}{} }}\n",
            core(rng)
        );
    }
    let policy = |rng: &mut fastrand::Rng| {
        pick(rng, &["when_full: block", "when_full: latest", "when_full: drop_oldest, capacity: 4"])
    };
    let mut from = "imu".to_string();
    if rng.bool() {
        // A stale input must lead to no set.
        let max_age = rng.u64(1..5);
        yaml += &format!(
            "  both: {{ kind: synchronize, inputs: {{ a: {{ from: imu, max_age: {max_age}ms }}, b: {{ from: camera, \
             max_age: {max_age}ms }} }}, join: {{ policy: sample{} }} }}\n  rest: {{ kind: collect, from: both/b }}\n",
            pick(rng, &["", ", trigger: a", ", trigger: b"])
        );
        from = "both/a".into();
    } else {
        yaml += "  rest: { kind: collect, from: camera }\n";
    }
    for model in 0..rng.usize(..4) {
        let (on_error, fault, seed) = (on_error(rng), fault(rng, true), rng.u64(..));
        let kind = match rng.bool() {
            true => "kind: step".into(),
            false => format!("kind: slow, config: {{ seed: {seed}, hang_us: {} }}", rng.u64(..80_000)),
        };
        let (policy, core) = (policy(rng), core(rng));
        yaml += &format!(
            "  m{model}: {{ {kind}, from: {{ from: {from}, {policy} }}, on_error: {on_error}{fault}{core} }}\n"
        );
        from = format!("m{model}");
    }
    let (policy, core) = (policy(rng), core(rng));
    yaml += &format!(
        "  safe: {{ kind: hold, from: {{ from: {from}, {policy} }}, config: {{ on_stale: {{ after: {}us, send: zeros, \
         every: {}us }} }}{core} }}\n  arm: {{ kind: actuator, config: {{ key: {key} }}, from: safe }}\n",
        after / US,
        every / US
    );
    Drawn { yaml, after, every, blocks }
}

/// Returns what is wrong with the commands that reached an actuator, from the start of the run to
/// its end.
fn wrong(commands: &[Command], start: u64, after: u64, every: u64, slack: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut due = start + after;
    for command in commands {
        let Command { at, origin, number, source } = *command;
        if at > due + slack {
            wrong.push(format!("nothing until {} us after it was due", (at - due) / US));
        }
        let is_safe = number == SAFE;
        if is_safe != (source == Header::NO_SOURCE) || (is_safe && origin > at) {
            wrong.push(format!("{command:?} is not a safe command of its time"));
        }
        if is_safe {
            due = at + every;
        } else {
            if at > origin + after + slack {
                wrong.push(format!("{command:?} is {} us old", (at - origin) / US));
            }
            due = origin + after;
        }
    }
    if commands.last().is_none_or(|last| last.number != SAFE) {
        wrong.push(format!("the last command is {:?}", commands.last()));
    }
    wrong
}

/// Simulates a drawn graph after a change, and returns what is wrong, how many safe commands were
/// sent while the stream had not ended, and how many others.
fn check(seed: u64, key: u64, change: impl FnOnce(&str) -> String) -> (Vec<String>, usize, usize) {
    let mut drawn = draw(seed, key);
    drawn.yaml = change(&drawn.yaml);
    let from = commands(key);
    let simulation = planned(&drawn.yaml).wire().unwrap().simulate(seed).unwrap();
    let start = simulation.clock().now().0;
    let report = match simulation.run(2_000_000) {
        Ok(report) => report,
        Err(stuck) => return (vec![format!("{stuck}\n{}", drawn.yaml)], 0, 0),
    };
    let all: Vec<Command> = from.try_iter().collect();
    // A turn takes up to 2 us, in a random order, and a call may keep the thread.
    let slack = 1_000 * US + 20 * drawn.blocks;
    let mut found = wrong(&all, start, drawn.after, drawn.every, slack);
    found.extend(report.bugs.iter().cloned());
    let safe = all.iter().filter(|command| command.number == SAFE).count();
    if report.metric("safe.safe_delay_ms").is_none() {
        return (found, safe, all.len() - safe);
    }
    if figure(&report, "safe.safe_delay_ms") > slack as f64 / 1e6 {
        found.push(format!("a safe command was {} ms late", figure(&report, "safe.safe_delay_ms")));
    }
    if figure(&report, "safe.safe_commands") != safe as f64 || figure(&report, "arm.taken") != all.len() as f64 {
        found.push(format!("{safe} safe commands of {} are not those of the report", all.len()));
    }
    let graph = if found.is_empty() { String::new() } else { format!("seed {seed}\n{}", drawn.yaml) };
    (found.into_iter().map(|wrong| format!("{wrong}\n{graph}")).collect(), safe - 1, all.len() - safe)
}

/// Promise (fail-safe): In every order and with random faults, the last command at the sink is
/// young enough or the safe command, at every time from `after` on.
///
/// Attack (faults): 400 random graphs with panics, errors, hanging models, lost messages, pauses
/// and late messages, in simulation; expected: the safe command within the declared time
#[test]
fn the_last_command_is_young_or_safe_in_random_graphs() {
    let (mut safe, mut young) = (0, 0);
    for seed in 0..400 {
        let (wrong, safes, others) = check(seed, seed, str::to_string);
        assert!(wrong.is_empty(), "{} wrong, the first: {}", wrong.len(), wrong[0]);
        (safe, young) = (safe + safes, young + others);
    }
    // The property means something only if both kinds of commands occur.
    assert!(safe > 2_000 && young > 2_000, "{safe} safe, {young} young");
}

/// The property finds a `hold` that is missing or too slow.
#[test]
fn a_missing_or_slow_hold_breaks_the_property() {
    let mut found = [0; 2];
    for seed in 0..20 {
        let slow = |yaml: &str| yaml.replace("on_stale: { after: ", "on_stale: { after: 1");
        let missing = |yaml: &str| {
            let (before, after) = yaml.split_once("  safe: { kind: hold").unwrap();
            let (config, after) = after.split_once("  arm:").unwrap();
            let from = config.split_once(", config").unwrap().0;
            format!("{before}  safe: {{ kind: pass{from} }}\n  arm:{after}")
        };
        found[0] += usize::from(!check(seed, 1_000_000 + seed, slow).0.is_empty());
        found[1] += usize::from(!check(seed, 2_000_000 + seed, missing).0.is_empty());
    }
    assert!(found[0] >= 15 && found[1] == 20, "{found:?}");
    let command = |at: u64, origin: u64, number: u64| {
        let source = if number == SAFE { Header::NO_SOURCE } else { 0 };
        Command { at: at * US, origin: origin * US, number, source }
    };
    for (commands, expected) in [
        (&[command(1, 1, 1), command(9, 9, SAFE)][..], ""),
        (&[command(1, 1, 1), command(30, 30, SAFE)], "nothing until"),
        (&[command(40, 40, 1), command(41, 41, SAFE)], "nothing until"),
        (&[command(1, 1, 1), command(9, 9, SAFE), command(29, 29, SAFE)], "nothing until"),
        (&[command(50, 1, 1), command(51, 51, SAFE)], "old"),
        (&[command(1, 1, 1)], "the last command is"),
        (&[], "the last command is None"),
    ] {
        let found = wrong(commands, 0, 10 * US, 10 * US, 2 * US).join("; ");
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{commands:?}: {found}");
    }
}

fn events_of(plan: Plan, until: Duration) -> (Vec<String>, Report) {
    let (events, driven) = limen_tests::drive(plan, until);
    let is_ours = |event: &Event| matches!(event.kind, EventKind::Stale { .. } | EventKind::StaleEnded { .. });
    let shown = events.iter().filter(|event| is_ours(event));
    (shown.map(|event| format!("{} {event}", event.time.0 / 1_000_000)).collect(), driven.stop(Drain::within(PATIENCE)))
}

/// Promise (fail-safe): A `hold` is stale from `after` until the next young message. Both are
/// events, and safe commands belong to no path.
#[test]
fn becoming_stale_and_recovering_are_events() {
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3, period_ns: 60000000 } }\n  \
                 h: { kind: hold, from: a, config: { on_stale: { after: 20ms, send: 7, every: 10ms } } }\n  \
                 z: { kind: collect, from: h }\npaths: [{ from: a, to: z, deadline: 1s }]\n";
    let (events, report) = events_of(plan(graph).unwrap(), Duration::from_secs(1));
    // Numbers at 1000, 1060 and 1120 ms of the clock; the source ends with the last.
    let expected = [
        "1020 `h` is stale: no message younger than 20.0 ms arrived",
        "1060 `h` is fresh again after 40.0 ms",
        "1080 `h` is stale: no message younger than 20.0 ms arrived",
        "1120 `h` is fresh again after 40.0 ms",
    ];
    assert_eq!(events, expected);
    assert_eq!(report.bugs, Vec::<String>::new());
    assert_eq!(figure(&report, "stale_periods"), 2.0);
    let safe = figure(&report, "safe_commands");
    assert_eq!(report.node("z").unwrap().done as f64, safe + 3.0);
    assert_eq!(figure(&report, "sum_in"), 7.0 * safe + 3.0);
    // Only the numbers of `a` are judged.
    assert_eq!(report.deadlines[0].judged, 3);
    assert_eq!(report.paths().map(|(_, _, recorded)| recorded.histogram.len()).sum::<u64>(), 3);
}

/// Promise (fail-safe): Before the first message, the time counts from the start of the run. When
/// the stream ends, the safe command is the last message.
#[test]
fn safe_commands_come_before_the_first_message_and_after_the_last() {
    for (config, count, expected) in [
        ("{ after: 20ms, send: 9 }", 0, [1.0, 9.0]),
        ("{ after: 20ms, send: zeros }", 2, [3.0, 1.0]),
        ("{ after: 20ms, send: last }", 0, [0.0, 0.0]),
        ("{ after: 20ms, send: last }", 3, [4.0, 5.0]),
        ("{ after: 20ms, send: [5] }", 1, [2.0, 5.0]),
        ("{ after: 20ms, send: 5 }, at_end: nothing", 1, [1.0, 0.0]),
    ] {
        let graph = format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: {count}, period_ns: 1000000 }} }}\n  \
             h: {{ kind: hold, from: a, config: {{ on_stale: {config} }} }}\n  z: {{ kind: collect, from: h }}\n"
        );
        let report = turn(&graph, 3);
        assert_eq!([figure(&report, "count"), figure(&report, "sum_in")], expected, "{config} {count}");
        assert_eq!(report.bugs, Vec::<String>::new(), "{config} {count}");
    }
    // A node that writes in place gets a message of its own, which `last` does not share.
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 3, period_ns: 1000000 } }\n  \
                 h: { kind: hold, from: a, config: { on_stale: { after: 20ms, send: last } } }\n  \
                 n: { kind: add, config: { n: 1 }, from: h }\n  z: { kind: collect, from: n }\n";
    let report = turn(graph, 3);
    assert_eq!([figure(&report, "count"), figure(&report, "sum_in")], [4.0, 1.0 + 2.0 + 3.0 + 3.0]);
    // The first message arrives at 1090 ms and is discarded; the source ends at 1100 ms.
    let graph = "version: 1\nnodes:\n  a: { kind: numbers, config: { count: 2, period_ns: 100000000 } }\n  \
                 d: { kind: delay, config: { by: 90ms }, from: a }\n  \
                 h: { kind: hold, from: d, config: { on_stale: { after: 20ms, send: 9 } } }\n  \
                 z: { kind: collect, from: h }\n";
    let (events, report) = events_of(plan(graph).unwrap(), Duration::from_millis(150));
    let expected =
        ["1020 `h` is stale: no message younger than 20.0 ms arrived", "1100 `h` is fresh again after 80.0 ms"];
    assert_eq!(events, expected);
    assert_eq!(report.node("h").unwrap().discarded_total(), 1);
}

/// Promise (fail-safe): An input of a `sample` join that is older than its `max_age` is in no set,
/// also if it was used before.
#[test]
fn a_stale_input_of_a_sampling_join_is_in_no_set() {
    // The IMU sends for 50 ms, the camera for 200 ms.
    let graph = "version: 1\nnodes:\n  imu: { kind: numbers, config: { count: 10, period_ns: 5000000 } }\n  \
                 camera: { kind: numbers, config: { count: 40, period_ns: 5000000 } }\n  \
                 both: { kind: pair, config: { any: true }, inputs: { a: { from: imu, max_age: 12ms }, b: camera }, \
                 join: { policy: sample, trigger: b } }\n  \
                 h: { kind: hold, from: both, config: { on_stale: { after: 20ms, send: zeros } } }\n  \
                 z: { kind: collect, from: h }\n";
    let (events, report) = events_of(plan(graph).unwrap(), Duration::from_secs(1));
    // The last IMU message is of 1045 ms, so the last set is that of 1055 ms. `pair` sends the
    // header of the IMU message.
    assert_eq!(events, ["1065 `h` is stale: no message younger than 20.0 ms arrived"]);
    assert_eq!(report.bugs, Vec::<String>::new());
    let sets = report.node("both").unwrap().done;
    assert!((11..=13).contains(&sets), "{sets}");
}

/// Promise (fail-safe): On threads, the safe command follows a model that is detached, and nothing
/// follows the safe command.
#[test]
fn a_dead_model_is_followed_by_the_safe_command_on_threads() {
    let from = commands(u64::MAX);
    let graph = format!(
        "version: 1\nnodes:\n  a: {{ kind: numbers, core: 0, config: {{ period_ns: 1000000 }} }}\n  \
         m: {{ kind: step, core: 1, from: a, fault: {{ panic_at: 40 }}, on_error: detach }}\n  \
         h: {{ kind: hold, core: 0, from: m, config: {{ on_stale: {{ after: 100s, send: zeros }} }} }}\n  \
         z: {{ kind: actuator, config: {{ key: {} }}, from: h }}\n  rest: {{ kind: collect, from: a }}\n",
        u64::MAX
    );
    let running = planned(&graph).wire().unwrap().start().unwrap();
    let mut numbers = Vec::new();
    while let Ok(command) = from.recv_timeout(PATIENCE) {
        numbers.push((command.number, command.source == Header::NO_SOURCE));
        if command.source == Header::NO_SOURCE {
            break;
        }
    }
    running.stopper().stop();
    let report = finished(running);
    // `step` counts from 0, so the first number is the safe one, too: the source tells them apart.
    assert_eq!(numbers.len(), 40, "{numbers:?}");
    assert!(numbers[..39].iter().all(|(_, is_safe)| !is_safe) && numbers[39] == (SAFE, true), "{numbers:?}");
    assert_eq!(from.try_iter().count(), 0);
    assert_eq!((report.exit_code(), report.bugs.len()), (0, 0));
    assert_eq!(figure(&report, "safe_commands"), 1.0);
}

/// Promise (fail-safe): `age(x)` in a formula is the time since the origin of the input, and grows
/// while a sampling join repeats the message.
#[test]
fn the_age_of_an_input_is_data() {
    let graph = "version: 1\nnodes:\n  imu: { kind: numbers, config: { count: 1 } }\n  \
                 f: { kind: cast, config: { dtype: f64 }, from: imu }\n  \
                 clock: { kind: numbers, config: { count: 11, period_ns: 10000000 } }\n  \
                 g: { kind: cast, config: { dtype: f64 }, from: clock }\n  \
                 age: { kind: map, inputs: { x: f, t: g }, join: { policy: sample, trigger: t }, \
                 config: { outputs: { old: 'if(age(x) > 0.045, t + 1, 0) + 0 * x' } } }\n  \
                 c: { kind: cast, config: { dtype: u64 }, from: age }\n  z: { kind: collect, from: c }\n";
    let report = turn(graph, 1);
    assert_eq!(report.bugs, Vec::<String>::new());
    // Old from 50 ms on: numbers 5 to 10, plus 1 each.
    assert_eq!(figure(&report, "sum_in"), (6..=11).sum::<u64>() as f64);
}

fn critical(node_a: &str, node_f: &str, path: &str) -> Report {
    turn(
        &format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers, config: {{ count: 50, period_ns: 1000000 }}{node_a} }}\n  \
             f: {{ kind: step, from: a{node_f} }}\n  z: {{ kind: collect, from: f }}\n\
             paths: [{{ from: a, to: z, deadline: 5ms{path} }}]\n"
        ),
        1,
    )
}

/// Promise (fail-safe): A failure or a loss at a critical node fails the run, and so does a miss on
/// a critical path. At a best-effort node, neither degrades the run.
#[test]
fn criticality_decides_the_result_of_a_run() {
    let skip = ", on_error: skip, fault: { error_every: 10 }";
    let detach = ", on_error: detach, fault: { error_at: 10 }";
    let drop = ", fault: { drop: 0.5 }";
    let late = ", fault: { delay: 6ms }";
    for (node, path, code, degraded, expected) in [
        (skip.to_string(), "", 0, true, vec![]),
        (format!("{skip}, criticality: critical"), "", 1, true, vec!["critical node `f` failed 5 times"]),
        (
            format!("{detach}, criticality: critical"),
            "",
            1,
            true,
            vec!["critical node `f` failed 1 time", "critical node `f`: 40 messages lost at f/in (detached)"],
        ),
        (format!("{skip}, criticality: best_effort"), "", 0, false, vec![]),
        (", fault: { error_at: 10 }, criticality: best_effort".to_string(), "", 0, false, vec![]),
        (drop.to_string(), "", 0, false, vec![]),
        (format!("{drop}, criticality: critical"), "", 1, false, vec!["lost at f/in (gate)"]),
        (late.to_string(), "", 0, false, vec![]),
        (late.to_string(), ", criticality: critical", 1, false, vec!["missed the deadline of 5.00 ms"]),
        (late.to_string(), ", on_miss: drop, criticality: critical", 1, false, vec!["(expired)", "no message arrived"]),
        (", fault: { drop: 1 }".to_string(), ", criticality: critical", 1, false, vec!["no message arrived"]),
        (String::new(), ", criticality: critical", 0, false, vec![]),
    ] {
        let report = critical("", &node, path);
        let name = format!("{node}{path}: {:?}", report.critical);
        assert_eq!((report.exit_code(), report.is_degraded()), (code, degraded), "{name}");
        assert_eq!(report.outcome == Outcome::Failed, code == 1, "{name}");
        assert_eq!(report.critical.len(), expected.len(), "{name}");
        for (found, expected) in std::iter::zip(&report.critical, expected) {
            assert!(found.contains(expected), "{name}: expected {expected}");
        }
        assert_eq!(report.bugs, Vec::<String>::new(), "{name}");
    }
}

/// Contradictory classes are errors; what a critical path may lose unseen, and a `hold` that cannot
/// act, are notes.
#[test]
fn contradictory_criticality_is_refused() {
    let graph = |a: &str, f: &str, edge: &str, path: &str| {
        format!(
            "version: 1\nnodes:\n  a: {{ kind: numbers{a} }}\n  f: {{ kind: step, from: {{ from: a{edge} }}{f} }}\n  \
             h: {{ kind: hold, from: f, core: 0, config: {{ on_stale: {{ after: 1ms, send: zeros }} }} }}\n  \
             z: {{ kind: collect, from: h }}\npaths: [{{ from: a, to: z{path} }}]\n"
        )
    };
    for (f, path, expected) in [
        (", criticality: best_effort, on_error: stop", "", "error[E0170]: `f` is `best_effort`, but its failure"),
        ("", ", criticality: critical", "error[E0118]: `criticality: critical` requires a `deadline`"),
        ("", ", deadline: 1ms, on_miss: stop, criticality: best_effort", "error[E0170]: a `best_effort` path"),
        (
            ", criticality: best_effort",
            ", deadline: 1ms, criticality: critical",
            "error[E0170]: the critical path `a` to `z` passes through `f`, which is `best_effort`",
        ),
        ("", ", deadline: 1ms, criticality: urgent", "error[E0104]"),
    ] {
        let said = plan(&graph("", f, "", path)).expect_err(path).to_string();
        assert!(said.contains(expected), "{said}");
    }
    let lossy = graph("", ", core: 0", ", when_full: drop_oldest", ", deadline: 1ms, criticality: critical");
    let notes = plan(&lossy).unwrap().notes().join("\n");
    assert!(notes.contains("the critical path `a` to `z` loses messages when the edge to `f/in` is full"), "{notes}");
    assert!(notes.contains("`h` shares a thread with `f`: while a call of `f` hangs, `h` cannot act"), "{notes}");
    for (send, expected) in [
        ("[1, 2]", "expected 1 numbers for u64[], found 2"),
        ("-1", "`send` must have values of u64, got -1"),
        ("stop", "expected `zeros`, `last`, a number, or a list of numbers"),
    ] {
        let said = plan(&graph("", "", "", "").replace("zeros", send)).expect_err(send).to_string();
        assert!(said.contains(expected), "{said}");
    }
}
