//! Nodes for tests: a source of numbers, nodes that fail on purpose, a sink that records its input.
//!
//! Every tensor here is a `u64[]`. [`run`] takes the text of a graph and returns the report.

#![forbid(unsafe_code)]

pub mod cost;
pub mod fuzz;
pub mod protobuf;
pub mod random;
mod tally;

use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Burst, Connected, Cost, Emit, InPort, Interest, Many, MessageSet, Metrics, Next, Node, NodeError,
    OutPort, PlanErrors, Planning, Ports, Reset, Sink, Source, Transform, Watched,
};
use limen::report::Reason;
use limen::{
    Clock, Driven, Event, Message, Plan, Problems, Registry, Report, SimulatedClock, Spec, Tensor, TensorMut, Time,
    Turned,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The type that every port of these nodes carries.
fn number() -> PortSpec {
    PortSpec::fixed(DType::U64, [])
}

fn value(message: &Message<Tensor>) -> Result<u64, NodeError> {
    Ok(message.body.as_slice::<u64>()?[0])
}

/// Adds the stock nodes of all crates.
pub fn stock_nodes(registry: Registry) -> Registry {
    registry
        .with(limen_nodes_core::register)
        .with(limen_codec::register)
        .with(limen_devices::register)
        .with(limen_recording::register)
        .with(limen_signal::register)
        .with(limen_vision::register)
}

/// Returns a registry with the stock kinds and every kind for tests.
pub fn registry() -> Registry {
    Registry::new()
        .with(stock_nodes)
        .source::<Numbers>("numbers")
        .transform::<Step>("step")
        .transform::<Fault>("fault")
        .sink::<FaultSink>("fault_sink")
        .transform::<Split>("split")
        .transform::<Pair>("pair")
        .transform::<Add>("add")
        .transform::<Sized>("sized")
        .transform::<Hasty>("hasty")
        .sink::<Collect>("collect")
        .sink::<Trail>("trail")
        .infer::<tally::Tally>("tally")
        .with(limen_backends::register)
}

/// Plans a graph given as text.
///
/// # Errors
/// Every problem of the graph.
pub fn plan(text: &str) -> Result<Plan, Problems> {
    Plan::new(Spec::from_text(text, "test.yaml")?, &registry())
}

/// Drives a graph with a simulated clock until a time or its end. Returns its events and the graph.
///
/// # Panics
/// When the graph cannot be started.
pub fn drive(plan: Plan, until: Duration) -> (Vec<Event>, Driven) {
    let clock = SimulatedClock::new(Time(1_000_000_000));
    let end = clock.now() + u64::try_from(until.as_nanos()).expect("a time within the clock");
    let driven = plan.wire().and_then(|wired| wired.drive(Clock::Simulated(clock.clone())));
    let mut driven = driven.unwrap_or_else(|error| panic!("{error}"));
    (drive_on(&mut driven, &clock, end), driven)
}

/// Drives a graph on until a time of its clock or its end. Returns the events since.
pub fn drive_on(driven: &mut Driven, clock: &SimulatedClock, end: Time) -> Vec<Event> {
    let mut events = Vec::new();
    while clock.now() < end {
        match driven.turn() {
            Turned::Worked => clock.advance(1_000),
            Turned::Idle(time) => clock.advance_to(time.min(end).max(clock.now() + 1_000)),
            Turned::Ended => break,
        }
        events.extend(driven.events());
    }
    events
}

/// How long a test waits for what must happen. Beside other load a machine is many times slower.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a TCP port that is free at the moment.
pub fn tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("is bound").port()
}

/// Returns a UDP port that is free at the moment.
pub fn udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").expect("binds").local_addr().expect("is bound").port()
}

/// Returns a metric of a report, which may lack it.
pub fn figure(report: &Report, name: &str) -> f64 {
    report.metric(name).unwrap_or(f64::NAN)
}

/// Returns how many messages all edges lost for a reason.
pub fn lost(report: &Report, reason: Reason) -> u64 {
    let all = report.edges.iter().flat_map(|edge| &edge.lost);
    all.filter(|(found, _)| *found == reason).map(|(_, n)| n).sum()
}

/// Returns a command that starts a program in a folder, without input and without `LIMEN_*` variables.
pub fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LIMEN_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a graph, given as text, until it ends by itself.
///
/// # Panics
/// When it cannot be planned or started, or has not ended after [`PATIENCE`].
pub fn run(text: &str) -> Report {
    let plan = plan(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let mut running = plan.wire().expect("wires").start().expect("starts");
    assert!(running.wait_for(PATIENCE), "no end after {PATIENCE:?}: {:?}\n{text}", running.stats());
    running.wait()
}

/// Simulates a graph, given as text, until it ends by itself; `seed` decides the order of turns.
///
/// # Panics
/// When it cannot be planned or does not end.
pub fn turn(text: &str, seed: u64) -> Report {
    let plan = plan(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let simulation = plan.wire().expect("wires").simulate(seed).expect("builds");
    simulation.run(1_000_000).unwrap_or_else(|stuck| panic!("{stuck}\n{text}"))
}

/// Counts upwards from 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct NumbersConfig {
    /// The number of numbers; endless if absent.
    pub count: Option<u64>,
    /// The period in ns; if absent, as fast as possible.
    pub period_ns: Option<u64>,
    /// The number at which the source fails.
    pub fail_at: Option<u64>,
    /// The origin of each number, in ns after the start of the run: the sensor's clock. The origin of numbers beyond the list is
    /// the time when they are sent.
    #[serde(default)]
    pub origins: Vec<i64>,
    /// Whether it declares that its numbers may begin later than now.
    #[serde(default)]
    pub ahead: bool,
    /// The deadline of each number, in ns after its origin.
    pub deadline_ns: Option<u64>,
    /// Whether each number waits for a byte from a socket; when there is none, a few are written to the other end.
    #[serde(default)]
    pub descriptor: bool,
    /// Whether it declares a size without a bound, so that the plan is refused.
    #[serde(default)]
    pub unbounded: bool,
}

/// See [`NumbersConfig`].
#[derive(Debug)]
pub struct Numbers {
    config: NumbersConfig,
    next: u64,
    begin: Time,
    /// Both ends.
    socket: Option<(Watched<UnixStream>, UnixStream)>,
}

/// Reads the byte that a number waits for; returns whether there was one.
fn read_byte((near, far): &mut (Watched<UnixStream>, UnixStream), next: u64) -> Result<bool, NodeError> {
    match (&**near).read(&mut [0]) {
        Ok(n) => Ok(n > 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            far.write_all(&[0; 3][..1 + next as usize % 3]).map_err(NodeError::other)?;
            Ok(false)
        }
        Err(error) => Err(NodeError::other(error)),
    }
}

impl Node for Numbers {
    type Config = NumbersConfig;
    fn ports(config: &NumbersConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let unbounded = PortSpec::new(DType::U64, [Dim::Unbounded("longest")]);
        let ports = Ports::new().output("out", if config.unbounded { unbounded } else { number() });
        Ok(if config.ahead { ports.ahead() } else { ports })
    }
    fn build(config: NumbersConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let pair = || {
            let (near, far) = UnixStream::pair()?;
            near.set_nonblocking(true)?;
            Ok((cx.descriptors().watch(near, Interest::Read)?, far))
        };
        let socket =
            config.descriptor.then(pair).transpose().map_err(|error: std::io::Error| NodeError::other(error))?;
        Ok(Numbers { config, next: 0, begin: cx.now(), socket })
    }
}

impl Source for Numbers {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.config.count == Some(self.next) {
            return Ok(Next::Done);
        }
        let mut origin = out.now();
        if let Some(period) = self.config.period_ns {
            let due = self.begin + self.next * period;
            if due > origin {
                return Ok(Next::At(due));
            }
            origin = due;
        }
        if let Some(socket) = &mut self.socket
            && !read_byte(socket, self.next)?
        {
            return Ok(Next::WhenReady(Time::NEVER));
        }
        let n = self.next;
        self.next += 1;
        if let Some(shift) = self.config.origins.get(n as usize) {
            // The minimum stands for `Time::ZERO`, the maximum for `Time::NEVER`.
            origin = match *shift {
                i64::MIN => Time::ZERO,
                i64::MAX => Time::NEVER,
                shift => Time(self.begin.0.saturating_add_signed(shift)),
            };
        }
        if self.config.fail_at == Some(n) {
            return Err(NodeError::input("numbers", format!("{n} is the number to fail at")));
        }
        let mut header = out.header(origin);
        if let Some(deadline) = self.config.deadline_ns {
            header.deadline = origin + deadline;
        }
        let mut tensor = out.loan(&header)?;
        tensor.as_mut_slice::<u64>()?[0] = n;
        out.send(tensor);
        Ok(Next::More)
    }
}

/// Passes numbers on, after some work.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StepConfig {
    /// Busy-waiting per message, in ns.
    #[serde(default)]
    pub work_ns: u64,
    /// Whether it is planned as heavy, so that it gets its own core.
    #[serde(default)]
    pub heavy: bool,
    /// Whether it is planned as blocking, so that it runs on a helper thread.
    #[serde(default)]
    pub blocking: bool,
    /// Whether it forwards its input, or fills a new message.
    #[serde(default)]
    pub forward: bool,
}

/// See [`StepConfig`].
#[derive(Debug)]
pub struct Step(StepConfig);

impl Node for Step {
    type Config = StepConfig;
    fn ports(config: &StepConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().input("in", number());
        let ports = if config.forward {
            ports.output_forwarding("out", Some(number()), "in")
        } else {
            ports.output("out", number())
        };
        let ports = ports.cost(if config.heavy { Cost::Heavy } else { Cost::Light });
        Ok(if config.blocking { ports.blocking() } else { ports })
    }
    fn build(config: StepConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Step(config))
    }
}

impl Transform for Step {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0.work_ns > 0 {
            let end = out.clock() + self.0.work_ns;
            while out.clock() < end {
                std::hint::spin_loop();
            }
        }
        if self.0.forward {
            out.send(input);
            return Ok(());
        }
        let mut tensor = out.loan(input.header())?;
        tensor.as_mut_slice::<u64>()?[0] = value(&input)?;
        out.send(tensor);
        Ok(())
    }
    fn apply_burst(&mut self, burst: &mut Burst<'_, Message<Tensor>>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0.forward && self.0.work_ns == 0 {
            burst.forward(out)?;
        }
        Ok(())
    }
}

/// Passes numbers on and fails on purpose.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct FaultConfig {
    /// The number at which a call fails.
    pub at: Option<u64>,
    /// A call fails at every number divisible by this.
    pub every: Option<u64>,
    /// How it fails.
    #[serde(default)]
    pub how: How,
    /// The method that fails instead of a call.
    pub place: Option<Where>,
    /// Whether it gets its own core.
    #[serde(default)]
    pub heavy: bool,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum How {
    #[default]
    Error,
    Panic,
    Hang,
    TooMany,
}

/// Methods that may fail instead of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Where {
    Build,
    Finish,
    Drop,
}

/// See [`FaultConfig`].
#[derive(Debug)]
pub struct Fault(FaultConfig);

impl Fault {
    fn fail(&self) -> Result<(), NodeError> {
        match self.0.how {
            How::Error | How::TooMany => Err(NodeError::other("this was asked for")),
            How::Panic => panic!("this was asked for"),
            How::Hang => loop {
                std::thread::park();
            },
        }
    }

    fn is_due(&self, n: u64) -> bool {
        self.0.at == Some(n) || self.0.every.is_some_and(|every| n.is_multiple_of(every))
    }
}

impl Node for Fault {
    type Config = FaultConfig;
    fn ports(config: &FaultConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().input("in", number()).cost(if config.heavy { Cost::Heavy } else { Cost::Light });
        Ok(if given.outputs().count() > 0 || config.place != Some(Where::Build) || config.how != How::TooMany {
            ports.output("out", number())
        } else {
            ports
        })
    }
    fn build(config: FaultConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let fault = Fault(config);
        if fault.0.place == Some(Where::Build) {
            fault.fail()?;
        }
        Ok(fault)
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if self.0.place == Some(Where::Drop) && !std::thread::panicking() {
            panic!("this was asked for");
        }
    }
}

impl Transform for Fault {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let n = value(&input)?;
        let mut tensor = out.loan(input.header())?;
        tensor.as_mut_slice::<u64>()?[0] = n;
        out.send(tensor);
        if self.is_due(n) && self.0.how == How::TooMany {
            out.send(input);
            return Ok(());
        }
        // It fails after sending: no message of a failed call may be published.
        if self.is_due(n) { self.fail() } else { Ok(()) }
    }
    fn finish(&mut self, _: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0.place == Some(Where::Finish) { self.fail() } else { Ok(()) }
    }
}

/// A sink that fails as [`Fault`] does.
#[derive(Debug)]
pub struct FaultSink(Fault);

impl Node for FaultSink {
    type Config = FaultConfig;
    fn ports(config: &FaultConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", number()).cost(if config.heavy { Cost::Heavy } else { Cost::Light }))
    }
    fn build(config: FaultConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(FaultSink(Fault(config)))
    }
}

impl Sink for FaultSink {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        if self.0.is_due(value(&input)?) { self.0.fail() } else { Ok(()) }
    }
}

/// Emits every number `times` times.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SplitConfig {
    /// The number of times.
    pub times: usize,
}

/// See [`SplitConfig`].
#[derive(Debug)]
pub struct Split(usize);

impl Node for Split {
    type Config = SplitConfig;
    fn ports(config: &SplitConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", number()).out_port(OutPort {
            name: "out".into(),
            spec: Some(number()),
            emits: config.times,
            rows: 1,
            forwards: Vec::new(),
        }))
    }
    fn build(config: SplitConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Split(config.times))
    }
}

impl Transform for Split {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        for _ in 0..self.0 {
            let mut tensor = out.loan(input.header())?;
            tensor.as_mut_slice::<u64>()?[0] = value(&input)?;
            out.send(tensor);
        }
        Ok(())
    }
}

/// Adds the numbers of two inputs. Fails if their sequence numbers differ.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct PairConfig {
    /// Whether sequence numbers may differ.
    #[serde(default)]
    pub any: bool,
}

/// Forwards its input `a`. It cannot be planned unless `a` and `b` are connected and the size of `a` is known.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SizedConfig {}

/// See [`SizedConfig`].
#[derive(Debug)]
pub struct Sized;

impl Node for Sized {
    type Config = SizedConfig;
    fn ports(_: &SizedConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !["a", "b"].iter().all(|port| given.inputs().any(|(name, _)| name == *port)) {
            errors.connections([("a".into(), None), ("b".into(), Some("leave it to `a`".into()))]);
        } else if given.input("a").is_none_or(|spec| spec.max_elements().is_none()) {
            errors.input("a", "its size is not known");
        }
        let spec = given.input("a").cloned();
        let ports = Ports::new().input_any("a").input_any("b").output_forwarding("out", spec, "a");
        errors.into_result(ports)
    }
    fn build(_: SizedConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Sized)
    }
}

impl Transform for Sized {
    type In = (Tensor, Tensor);
    type Out = Tensor;
    fn apply(&mut self, (a, _): (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(a);
        Ok(())
    }
}

/// See [`PairConfig`].
#[derive(Debug, Default)]
pub struct Pair {
    any: bool,
    sets: u64,
}

impl Node for Pair {
    type Config = PairConfig;
    fn ports(_: &PairConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("a", number()).input("b", number()).output("out", number()))
    }
    fn build(config: PairConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Pair { any: config.any, sets: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("sets", self.sets as f64);
    }
}

impl Transform for Pair {
    type In = (Tensor, Tensor);
    type Out = Tensor;
    fn apply(&mut self, (a, b): (Message<Tensor>, Message<Tensor>), out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.sets += 1;
        if !self.any && a.header().seq != b.header().seq {
            return Err(NodeError::input("pair", "sequence numbers differ"));
        }
        let mut tensor = out.loan(a.header())?;
        tensor.as_mut_slice::<u64>()?[0] = value(&a)? + value(&b)?;
        out.send(tensor);
        Ok(())
    }
}

/// Adds a number in place.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct AddConfig {
    /// The number to add.
    pub n: u64,
}

/// See [`AddConfig`].
#[derive(Debug)]
pub struct Add(u64);

impl Node for Add {
    type Config = AddConfig;
    fn ports(_: &AddConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", number()).output_forwarding("out", Some(number()), "in"))
    }
    fn build(config: AddConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Add(config.n))
    }
}

impl Transform for Add {
    type In = TensorMut;
    type Out = Tensor;
    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        input.as_mut_slice::<u64>()?[0] += self.0;
        out.send(input);
        Ok(())
    }
}

/// Counts the messages it takes, and sums the numbers of each input.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct CollectConfig {
    /// Busy-waiting per message, in ns.
    #[serde(default)]
    pub work_ns: u64,
    /// Whether it gets its own core.
    #[serde(default)]
    pub heavy: bool,
}

/// See [`CollectConfig`].
#[derive(Debug)]
pub struct Collect {
    config: CollectConfig,
    names: Vec<String>,
    sums: Vec<u64>,
    count: u64,
    last: Option<u64>,
    disorder: u64,
    resets: u64,
}

impl Node for Collect {
    type Config = CollectConfig;
    fn ports(config: &CollectConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input(name, number()));
        Ok(ports.cost(if config.heavy { Cost::Heavy } else { Cost::Light }))
    }
    fn build(config: CollectConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let names: Vec<String> = cx.inputs().iter().map(|(name, _)| name.clone()).collect();
        Ok(Collect { config, sums: vec![0; names.len()], names, count: 0, last: None, disorder: 0, resets: 0 })
    }
    fn reset(&mut self, _: Reset) {
        self.resets += 1;
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("count", self.count as f64);
        to.set("resets", self.resets as f64);
        to.set("disorder", self.disorder as f64);
        for (name, sum) in self.names.iter().zip(&self.sums) {
            to.set(format!("sum_{name}"), *sum as f64);
        }
        if let Some(last) = self.last {
            to.set("last", last as f64);
        }
    }
}

impl Sink for Collect {
    type In = Many<Tensor>;
    fn take(&mut self, input: MessageSet<Tensor>) -> Result<(), NodeError> {
        if self.config.work_ns > 0 {
            let end = std::time::Instant::now() + Duration::from_nanos(self.config.work_ns);
            while std::time::Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        self.count += 1;
        for (message, sum) in input.iter().zip(&mut self.sums) {
            *sum += value(message)?;
        }
        let seq = input[0].header().seq;
        self.disorder += u64::from(self.last.is_some_and(|last| last > seq));
        self.last = Some(seq);
        Ok(())
    }
}

/// Passes numbers on, but swaps two that arrive within a microsecond: an injected bug that shows only in some orders of turns,
/// for the simulation to find.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct HastyConfig {}

/// See [`HastyConfig`].
#[derive(Debug, Default)]
pub struct Hasty(Option<(Message<Tensor>, Time)>);

impl Node for Hasty {
    type Config = HastyConfig;
    fn ports(_: &HastyConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let input = InPort { name: "in".into(), spec: Some(number()), holds: 1 };
        let output =
            OutPort { name: "out".into(), spec: Some(number()), emits: 2, rows: 1, forwards: vec!["in".into()] };
        Ok(Ports::new().in_port(input).out_port(output))
    }
    fn build(_: HastyConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Hasty::default())
    }
}

impl Transform for Hasty {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        match self.0.take() {
            None => {
                self.0 = Some((input, out.now()));
                out.wake_at(out.now() + 3_000);
            }
            Some((first, at)) if out.now().since(at) < 1_000 => {
                out.send(input);
                out.send(first);
            }
            Some((first, _)) => {
                out.send(first);
                out.send(input);
            }
        }
        Ok(())
    }
    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.finish(out)
    }
    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if let Some((message, _)) = self.0.take() {
            out.send(message);
        }
        Ok(())
    }
}

/// Takes tensors of numbers, and reports the first number, length and source of each, and the highest latency.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TrailConfig {}

/// See [`TrailConfig`].
#[derive(Debug)]
pub struct Trail {
    seen: Vec<(u64, usize, u16)>,
    clock: limen::Clock,
    latest: u64,
}

impl Node for Trail {
    type Config = TrailConfig;
    fn ports(_: &TrailConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }
    fn build(_: TrailConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Trail { seen: Vec::new(), clock: cx.clock(), latest: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        for (at, (number, length, source)) in self.seen.iter().enumerate() {
            to.set(format!("number_{at}"), *number as f64);
            to.set(format!("length_{at}"), *length as f64);
            to.set(format!("source_{at}"), f64::from(*source));
        }
        to.set("latest_us", self.latest as f64 / 1e3);
    }
}

impl Sink for Trail {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let numbers: &[u64] = input.body.as_slice()?;
        self.seen.push((numbers[0], numbers.len(), input.header().source));
        self.latest = self.latest.max(self.clock.now().since(input.header().origin));
        Ok(())
    }
}
